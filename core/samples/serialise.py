"""The sample store as plain arrays, and back again.

    samples.slots      int64[n]      in the order of the ids
    samples.cells      float[n, d]
    samples.targets    int64[n] class codes, or float64[n]
    samples.ids        uint8[], samples.id_offsets int64[n + 1]
    samples.subjects   uint8[], samples.subject_offsets int64[m + 1], samples.subject_rows int64[m]
    samples.next_id    int64[1]
    samples.id_source  int64[1], an `IdSource`; older files have none
    samples.expiry_slots, samples.expiries, samples.origin_slots, samples.origins
                       int64[] each, of the samples that have one; older files have none of the four
    samples.addition_slots, samples.addition_moments, samples.addition_rows
                       int64[] each, of the samples whose addition is known; the row is that of the request, or -1
    samples.requests   uint8[], samples.request_offsets int64[r + 1]; older files have none of the five
    samples.retained   uint8[], samples.retained_offsets int64[p + 1], samples.retentions int64[p],
    samples.retained_since int64[p]: subjects with a retention period; a file without one has none of the four
    samples.nonce_slots int64[k], samples.nonces uint8[16 k], of the samples that have one; else a file has neither
    samples.weights    int64[n] in units, see `weights.py`; a file of samples of weight 1 has none
    class_table.*      see ClassTable.state
    categories.*       see CategoryTable.state
    restricted.*       the same of the samples that are restricted, and of each of their subjects:
    restricted.subjects uint8[], restricted.subject_offsets int64[m + 1], restricted.since int64[m],
    restricted.keeps   int64[m], 0 or 1; a file without restricted samples has none of these

Free slots are not written, so a file holds nothing of removed samples. Hashes of ids and categories
are computed again.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np

from oubli.core.array_types import Array, Arrays, Hashes
from oubli.core.bounds import LARGEST_COUNTER
from oubli.core.concurrency.slices import cut
from oubli.core.data.columns import canonical_cells
from oubli.core.data.schema import Schema
from oubli.core.data.values import ID_LENGTH, MOMENTS, NEVER, ColumnType, RefusedError, Task, id_text
from oubli.core.errors import FileError
from oubli.core.samples.categories import CategoryTable, pack_texts, unpack_texts
from oubli.core.samples.contents import Contents
from oubli.core.samples.hashing import hash_texts
from oubli.core.samples.indexes import NONCE_BYTES
from oubli.core.samples.labels import ClassTable
from oubli.core.samples.owners import Mark
from oubli.core.samples.slots import MAX_SLOTS, IdSource, end_of_numbers

_NOTHING = np.zeros(0, np.int64)
# Parts that older files do not have, and what they are then: a group is there as a whole, or not at all.
_LATER_KEYS: tuple[dict[str, Array], ...] = (
    dict.fromkeys(("samples.expiry_slots", "samples.expiries", "samples.origin_slots", "samples.origins"), _NOTHING),
    {
        **dict.fromkeys(("samples.addition_slots", "samples.addition_moments", "samples.addition_rows"), _NOTHING),
        "samples.requests": np.zeros(0, np.uint8),
        "samples.request_offsets": np.zeros(1, np.int64),
    },
    {
        "samples.retained": np.zeros(0, np.uint8),
        "samples.retained_offsets": np.zeros(1, np.int64),
        **dict.fromkeys(("samples.retentions", "samples.retained_since"), _NOTHING),
    },
    {"samples.nonce_slots": _NOTHING, "samples.nonces": np.zeros(0, np.uint8)},
    {"samples.weights": _NOTHING},
    # A file that does not say it may hold labels of an index.
    {"samples.id_source": np.array([IdSource.GIVEN], np.int64)},
)
# All parts, by the kinds of their numbers.
_KEYS = {
    "samples.slots": "i",
    "samples.cells": "f",
    "samples.targets": "if",
    "samples.ids": "u",
    "samples.id_offsets": "i",
    "samples.subjects": "u",
    "samples.subject_offsets": "i",
    "samples.subject_rows": "i",
    "samples.next_id": "i",
    "class_table.codes": "i",
    "class_table.values": "u",
    "categories.codes": "i",
    "categories.columns": "i",
    "categories.values": "u",
    "categories.offsets": "i",
    **{key: missing.dtype.kind for group in _LATER_KEYS for key, missing in group.items()},
}
RESTRICTED = "restricted."
_MARK_KEYS = {
    "restricted.subjects": "u",
    "restricted.subject_offsets": "i",
    "restricted.since": "i",
    "restricted.keeps": "i",
}
_REMEDY = "restore another file"
# Roughly, beside the cells: what the store and the trees keep of a slot, of a code, of an id.
_SLOT_BYTES, _CODE_BYTES, _TEXT_BYTES = 96, 96, 128


def dump(store: Contents) -> Arrays:
    """Return everything a store holds as arrays."""
    slots = store.slots_in_order()
    ids, id_offsets = pack_texts(store.names(slots))
    # By subject, in the order in which samples were linked, which `ids_of_subject` keeps.
    subjects, linked = store.subjects.links()
    subject_texts, subject_offsets = pack_texts(subjects)
    row_of = np.zeros(store.capacity, np.int64)
    row_of[slots] = np.arange(len(slots))
    targets = store.class_codes if store.schema.task is Task.CLASSIFICATION else store.y
    expiry_slots, expiries = store.expiries.items()
    origin_slots = np.flatnonzero(store.origins)
    addition_slots, moments, requests, request_rows = store.additions.items()
    request_texts, request_offsets = pack_texts(requests)
    return {
        "samples.slots": slots,
        "samples.cells": store.cells[slots],
        "samples.targets": targets[slots],
        "samples.ids": ids,
        "samples.id_offsets": id_offsets,
        "samples.subjects": subject_texts,
        "samples.subject_offsets": subject_offsets,
        "samples.subject_rows": row_of[linked],
        "samples.next_id": np.array([store.next_id], np.int64),
        "samples.id_source": np.array([store.id_source], np.int64),
        "samples.expiry_slots": expiry_slots,
        "samples.expiries": expiries,
        "samples.origin_slots": origin_slots,
        "samples.origins": store.origins[origin_slots],
        "samples.addition_slots": addition_slots,
        "samples.addition_moments": moments,
        "samples.addition_rows": request_rows,
        "samples.requests": request_texts,
        "samples.request_offsets": request_offsets,
        **store.classes.state(),
        **store.categories.state(),
        **_dump_periods(store),
        **_dump_nonces(store),
        **({"samples.weights": store.weights[slots].astype(np.int64)} if store.has_weights else {}),
    }


def _dump_periods(store: Contents) -> Arrays:
    """Return the retention periods of subjects, when there are any."""
    if not store.periods:
        return {}
    texts, offsets = pack_texts(store.periods)
    periods = list(store.periods.values())
    return {
        "samples.retained": texts,
        "samples.retained_offsets": offsets,
        "samples.retentions": np.array([period.period_ms for period in periods], np.int64),
        "samples.retained_since": np.array([period.since_ms for period in periods], np.int64),
    }


def _dump_nonces(store: Contents) -> Arrays:
    """Return the nonces of samples, when there are any."""
    slots = store.nonces.slots()
    if not len(slots):
        return {}
    return {"samples.nonce_slots": slots, "samples.nonces": store.nonces.values[slots].reshape(-1)}


def dump_restricted(samples: Contents, marks: Mapping[str, Mark]) -> Arrays:
    """Return restricted samples and the marks of their subjects, when there are any."""
    if not len(samples):
        return {}
    texts, offsets = pack_texts(marks)
    return {
        **{RESTRICTED + name: array for name, array in dump(samples).items()},
        "restricted.subjects": texts,
        "restricted.subject_offsets": offsets,
        "restricted.since": np.array([mark.since_ms for mark in marks.values()], np.int64),
        "restricted.keeps": np.array([mark.keeps for mark in marks.values()], np.int64),
    }


def _restricted_parts(arrays: Mapping[str, Array]) -> Arrays:
    """Return the arrays of the restricted samples among those of a store, without those of the marks."""
    return {
        name.removeprefix(RESTRICTED): array
        for name, array in arrays.items()
        if name.startswith(RESTRICTED) and name not in _MARK_KEYS
    }


def canonical_parts(schema: Schema, arrays: Mapping[str, Array]) -> tuple[Arrays, bool]:
    """Return the arrays of a model with the numbers of its samples in the form that `add` gives them.

    Returns
    -------
    arrays, and whether they were in that form already: trees that were grown on other bits are other trees.

    Raises
    ------
    FileError
        When the samples do not fit the schema or each other.
    """
    parts = _checked_parts(schema, arrays)
    cells, targets = parts["samples.cells"], parts["samples.targets"]
    canonical = canonical_cells(schema.columns, cells)
    changed = {} if canonical is cells else {"samples.cells": canonical}
    if targets.dtype.kind == "f" and (np.signbit(targets) & (targets == 0)).any():
        changed["samples.targets"] = targets + 0.0
    restricted = _restricted_parts(arrays)
    if restricted:  # no tree was grown on them
        others, _ = canonical_parts(schema, restricted)
        arrays = {**arrays, **{RESTRICTED + name: array for name, array in others.items()}}
    return {**arrays, **changed}, not changed


def store_bytes(schema: Schema, arrays: Mapping[str, Array]) -> int:
    """Bytes of the store that `fill` makes, roughly: slots and codes may be few and yet have large numbers."""
    slots, codes = arrays["samples.slots"], arrays["categories.codes"]
    classes = arrays["class_table.codes"]
    n_slots, n_codes, n_classes = (int(array.max(initial=-1)) + 1 for array in (slots, codes, classes))
    slot_bytes = schema.n_features * schema.cell_dtype.itemsize + _SLOT_BYTES
    slot_bytes += NONCE_BYTES * ("samples.nonces" in arrays)
    texts = arrays["samples.ids"].nbytes + _TEXT_BYTES * len(slots)
    restricted = _restricted_parts(arrays)
    others = store_bytes(schema, restricted) if restricted else 0
    return n_slots * slot_bytes + _CODE_BYTES * (n_codes + n_classes) + texts + others


def fill(store: Contents, arrays: Mapping[str, Array]) -> None:
    """Put what `dump` gave into an empty store.

    FileError when the arrays do not fit the schema or each other.

    As in a copy, ids are not indexed yet, see `SlotTable`. Other threads are not kept waiting.
    """
    schema = store.schema
    parts = _checked_parts(schema, arrays)
    names = unpack_texts(parts["samples.ids"], parts["samples.id_offsets"], "ids")
    slots, cells, targets = parts["samples.slots"], parts["samples.cells"], parts["samples.targets"]
    n = len(slots)
    hashes = hash_texts(names)
    _check_samples(schema, names, hashes, slots, cells, targets)
    top = int(slots.max()) + 1 if n else 0
    store.grow(top)
    store.top = top
    store.cells[slots] = cells
    store.held[slots] = True
    store.id_hashes[slots] = hashes
    if schema.task is Task.CLASSIFICATION:
        store.class_codes[slots] = targets
        store.classes = ClassTable.from_state(schema.label_type, parts, targets)
    else:
        store.y[slots] = targets
    store.fill_weights(slots, parts["samples.weights"])
    store.categories = CategoryTable.from_state(np.flatnonzero(schema.categorical_mask).tolist(), parts, cells)
    ids = store.id_at
    for part in cut(n):
        for slot, name in zip(slots[part].tolist(), names[part], strict=True):
            ids[slot] = name
    del store.slot_of
    store.unindexed = slots.astype(np.int64)
    store.is_fresh_copy = True
    store.free = np.flatnonzero(~store.held[:top])[::-1].tolist()
    store.next_id = int(parts["samples.next_id"][0])
    _expect(end_of_numbers(names) <= store.next_id, "the counter of ids is behind the ids held")
    store.id_source = IdSource(int(parts["samples.id_source"][0]))
    _link_subjects(store, parts)
    _attach_numbers(store, parts)
    _attach_additions(store, parts)
    _attach_periods(store, parts)
    _attach_nonces(store, parts)


def fill_restricted(samples: Contents, others: Contents, arrays: Mapping[str, Array]) -> dict[str, Mark]:
    """Put what `dump_restricted` gave into an empty store, and return the marks of the subjects.

    others : the samples that are not restricted.

    FileError when the arrays do not fit each other, or the others.
    """
    parts = _restricted_parts(arrays)
    if not parts:
        _expect(arrays.keys().isdisjoint(_MARK_KEYS), "the restricted samples are missing")
        return {}
    _expect(not any(name.startswith(RESTRICTED) for name in parts), "the restricted samples have restricted samples")
    if samples.schema.task is Task.CLASSIFICATION:
        codes, targets = parts["class_table.codes"], parts["samples.targets"]
        is_sound = np.isin(targets, codes).all() and np.isin(codes, targets).all()
        _expect(is_sound, "the restricted samples have labels of no class")
    fill(samples, parts)
    marks = _typed_parts(arrays, _MARK_KEYS)
    subjects = unpack_texts(marks["restricted.subjects"], marks["restricted.subject_offsets"], "subjects")
    _check_texts(subjects, "subjects")
    _expect(_are_moments(marks["restricted.since"]), "a subject is restricted since no time")
    since, keeps = marks["restricted.since"].tolist(), marks["restricted.keeps"].tolist()
    held, _ = samples.subjects.links()
    sound = (
        len(subjects) == len(set(subjects)) == len(since) == len(keeps)
        and set(keeps) <= {0, 1}
        and len(samples) == len(held)
        and set(held) == set(subjects)
        and set(others.ids()).isdisjoint(samples.ids())
        and set(others.subjects.links()[0]).isdisjoint(subjects)
    )
    _expect(sound, "the restricted samples do not fit the others")
    return {subject: Mark(at, bool(keep)) for subject, at, keep in zip(subjects, since, keeps, strict=True)}


def _typed_parts(arrays: Mapping[str, Array], keys: Mapping[str, str]) -> Arrays:
    """Return the parts of some keys, checked to be there and of these kinds of numbers."""
    parts = {}
    for key, kinds in keys.items():
        _expect(key in arrays, f"the part {key!r} is missing")
        array = np.asarray(arrays[key])
        is_expected = array.dtype.kind in kinds and array.ndim == (2 if key == "samples.cells" else 1)
        _expect(is_expected, f"the part {key!r} has another type or shape than expected")
        parts[key] = array
    return parts


def _checked_parts(schema: Schema, arrays: Mapping[str, Array]) -> Arrays:
    for group in _LATER_KEYS:
        if arrays.keys().isdisjoint(group):
            arrays = {**arrays, **group}
    parts = _typed_parts(arrays, _KEYS)
    n = len(parts["samples.slots"])
    if (
        parts["samples.cells"].shape != (n, schema.n_features)
        or parts["samples.cells"].dtype != schema.cell_dtype
        or parts["samples.targets"].shape != (n,)
        or parts["samples.targets"].dtype.kind != ("i" if schema.task is Task.CLASSIFICATION else "f")
        or len(parts["samples.id_offsets"]) != n + 1
        or parts["samples.next_id"].shape != (1,)
        or not 0 <= parts["samples.next_id"][0] <= LARGEST_COUNTER
        or parts["samples.id_source"].tolist() not in ([0], [1], [2])
    ):
        raise FileError(f"the samples do not fit the schema: {_REMEDY}")
    targets = parts["samples.targets"]
    if np.isinf(parts["samples.cells"]).any() or (targets.dtype.kind == "f" and not np.isfinite(targets).all()):
        raise FileError(f"the samples hold a number that is not finite: {_REMEDY}")
    return parts


def _check_samples(
    schema: Schema, names: list[str], hashes: Hashes, slots: Array, cells: Array, targets: Array
) -> None:
    n = len(slots)
    if n and (slots.min() < 0 or slots.max() >= MAX_SLOTS or not _are_distinct(slots)):
        raise FileError(f"the slots of the samples are damaged: {_REMEDY}")
    _expect(_are_distinct(hashes) or len(set(names)) == n, "an id is held twice")
    _check_texts(names, "ids")
    _expect(targets.dtype.kind != "i" or not n or targets.min() >= 0, "the labels of the samples are damaged")
    for j, column in enumerate(schema.columns):
        if column.type is ColumnType.BOOLEAN:
            values = cells[:, j]
            _expect(((values == 0) | (values == 1) | np.isnan(values)).all(), "the samples do not fit the schema")


def _expect(condition: Any, what: str) -> None:
    if not condition:
        raise FileError(f"{what}: {_REMEDY}")


def _are_distinct(numbers: Array) -> bool:
    """Whether no number is there twice."""
    ordered = np.sort(numbers)
    return not (ordered[1:] == ordered[:-1]).any()


def _are_moments(numbers: Array) -> bool:
    return bool(((numbers >= MOMENTS[0]) & (numbers <= MOMENTS[-1])).all())


def _check_texts(names: list[str], what: str) -> None:
    for part in cut(len(names)):
        _check_some_texts(names[part], what)


def _check_some_texts(names: list[str], what: str) -> None:
    lengths = set(map(len, names))
    if min(lengths, default=1) > 0 and max(lengths, default=1) <= ID_LENGTH and "".join(names).isascii():
        return  # nearly always, and many times faster than one by one
    try:
        for name in names:
            id_text(name)
    except RefusedError:
        raise FileError(f"the {what} are damaged: {_REMEDY}") from None


def _link_subjects(store: Contents, parts: Arrays) -> None:
    subjects = unpack_texts(parts["samples.subjects"], parts["samples.subject_offsets"], "subjects")
    rows = parts["samples.subject_rows"]
    n = len(parts["samples.slots"])
    if len(rows) != len(subjects) or not _are_distinct(rows) or ((rows < 0) | (rows >= n)).any():
        raise FileError(f"the subjects do not fit the samples: {_REMEDY}")
    _check_texts(subjects, "subjects")
    for part in cut(len(rows)):
        for slot, subject in zip(parts["samples.slots"][rows[part]].tolist(), subjects[part], strict=True):
            store.subjects.link(slot, subject)


def _attach_numbers(store: Contents, parts: Arrays) -> None:
    """Take over expiries and origins."""
    for slots_key, values_key, what in (
        ("samples.expiry_slots", "samples.expiries", "expiries"),
        ("samples.origin_slots", "samples.origins", "origins"),
    ):
        slots, values = parts[slots_key], parts[values_key]
        sound = len(slots) == len(values) and _are_distinct(slots)
        if not sound or not np.isin(slots, parts["samples.slots"]).all() or (values == NEVER).any():
            raise FileError(f"the {what} do not fit the samples: {_REMEDY}")
    _expect(_are_moments(parts["samples.expiries"]), "an expiry is no time")
    store.expiries.set_many(parts["samples.expiry_slots"], parts["samples.expiries"])
    store.origins[parts["samples.origin_slots"]] = parts["samples.origins"]


def _attach_additions(store: Contents, parts: Arrays) -> None:
    """Take over when samples were added, and by which requests."""
    slots, moments, rows = (parts[f"samples.addition_{name}"] for name in ("slots", "moments", "rows"))
    requests = unpack_texts(parts["samples.requests"], parts["samples.request_offsets"], "requests")
    sound = len(slots) == len(moments) == len(rows) and _are_distinct(slots)
    sound = sound and _are_moments(moments) and bool((moments > 0).all())
    _expect(sound and np.isin(slots, parts["samples.slots"]).all(), "the additions do not fit the samples")
    _expect(not len(rows) or -1 <= rows.min() <= rows.max() < len(requests), "the additions do not fit the requests")
    store.additions.note_many(slots, moments, [*requests, None], rows)  # -1 points to the last


def _attach_periods(store: Contents, parts: Arrays) -> None:
    """Take over the retention periods of subjects, once subjects and additions are there."""
    subjects = unpack_texts(parts["samples.retained"], parts["samples.retained_offsets"], "subjects")
    periods, since = parts["samples.retentions"], parts["samples.retained_since"]
    sound = len(set(subjects)) == len(subjects) == len(periods) == len(since) and (periods > 0).all()
    _expect(sound and all(map(store.subjects.slots, subjects)), "the retention periods do not fit the subjects")
    for subject, period_ms, since_ms in zip(subjects, periods.tolist(), since.tolist(), strict=True):
        store.set_retention(subject, period_ms, since_ms)


def _attach_nonces(store: Contents, parts: Arrays) -> None:
    """Take over the nonces of samples."""
    slots, nonces = parts["samples.nonce_slots"], parts["samples.nonces"]
    sound = len(nonces) == NONCE_BYTES * len(slots) and nonces.dtype == np.uint8 and _are_distinct(slots)
    _expect(sound and np.isin(slots, parts["samples.slots"]).all(), "the nonces do not fit the samples")
    if len(slots):
        store.nonces.note(slots, nonces.tobytes())
