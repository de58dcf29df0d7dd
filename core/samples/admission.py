"""The short way into a store, for one row of plain values.

Most samples of a stream are like this: numbers, categories and a class that are held already, and no id. They
need none of the checks that `prepare` makes for all others, and no `Prepared` in between. Whatever else a row
is, it takes the long way from its beginning, so that the rules and the errors are in one place.
"""

from typing import TYPE_CHECKING, Any

from oubli.core.rng import hash_text

if TYPE_CHECKING:
    from oubli.core.samples.store import SampleStore


def admit(store: "SampleStore", row: Any, y: Any) -> int | None:
    """Hold one row of a classification under a generated id and return its slot.

    None when that takes a closer look; then nothing has changed.
    """
    encoder, slot_of, name = store.encoder, store.slot_of, str(store.next_id)
    if type(row) is not list or len(row) != encoder.n_features or not encoder.is_plain or name in slot_of:
        return None
    if type(y) is not list or len(y) != 1 or store.is_fresh_copy:
        return None
    is_reused = bool(store.free)
    slot = store.free[-1] if is_reused else store.top
    if slot == store.capacity:
        return None
    label = y[0]
    class_code = store.classes.plain_code(label)
    if class_code is None:
        return None
    codes = []
    if encoder.categorical:
        row = row.copy()
        for column, known in store.categories.codes.items():
            value = row[column]
            if value is None:
                continue
            code = known.get(value) if type(value) is str else None
            if code is None:
                return None
            row[column] = code
            codes.append(code)
    # A free slot: nobody looks at it before it is held.
    if not encoder.write_plain(row, store.cells[slot : slot + 1]):
        return None
    if is_reused:
        store.free.pop()
    else:
        store.top += 1
    for code in codes:
        store.categories.counts[code] += 1
    store.classes.counts[class_code] += 1
    store.class_codes[slot] = class_code
    store.id_hashes[slot] = hash_text(name)
    store.held[slot] = True
    store.id_at[slot] = name
    slot_of[name] = slot
    store.next_id += 1
    return slot
