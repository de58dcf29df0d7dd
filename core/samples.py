"""The one sample store: what is held, by slot, and who it belongs to.

    slots.py       arrays by slot, ids, the counter behind generated ids
    encoding.py    X -> cells           targets.py    y -> canonical labels
    categories.py  values <-> codes     labels.py     classes <-> codes
    subjects.py    whom samples belong to      expiries.py   when samples have to go
    sample_state.py  to arrays and back, and the check of every invariant

Ids, subjects, expiries, category values and class values leave with the last sample that has them:
they are overwritten before `remove` returns.

A mutation has two halves: `prepare` encodes and checks everything and changes nothing, `commit`
then cannot fail. In between the caller may write a journal.
"""

import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from core import _aligned
from core.admission import admit
from core.categories import CategoryTable
from core.encoding import Encoder
from core.errors import InputError
from core.expiries import ExpiryIndex
from core.ids import hash_ids, read_ids
from core.labels import ClassTable
from core.records import HeldSample, Prepared
from core.rng import hash_text
from core.schema import ColumnType, Schema
from core.slots import SlotTable, refuse_repeated
from core.subjects import SubjectIndex
from core.targets import Label, encode_labels, encode_targets
from core.values import normalise_id

__all__ = ["HeldSample", "Prepared", "SampleStore", "normalise_id"]

# A rough size of one id: the text, its entries in the dictionary and in the list are counted apart.
_TEXT_BYTES = sys.getsizeof("0123456789")
# A subject's link: its text and the entries of both dictionaries.
_SUBJECT_TEXTS = 4


class SampleStore(SlotTable):
    """The samples of one model.

    Parameters
    ----------
    schema : Schema
        Types of columns and label.
    owner : str
        Name of the estimator, for messages.

    Attributes
    ----------
    cells : float32/64[capacity, d], C order
    class_codes : int64[capacity], empty for a regression
    y : float64[capacity], empty for a classification
    id_hashes : uint64[capacity]
    held : bool[capacity]
    origins : int64[capacity]
    classes : ClassTable
    categories : CategoryTable

    The arrays are replaced when the store grows; take them anew after every `commit`.
    """

    def __init__(self, schema: Schema, owner: str = "the model") -> None:
        super().__init__(schema)
        self._encoder = Encoder(schema, owner)
        self._categorical = self._encoder.categorical
        self.classes = ClassTable(schema.label_type)
        self.categories = CategoryTable(self._categorical)
        self._subjects = SubjectIndex()
        self._expiries = ExpiryIndex()
        self._is_fresh_copy = False
        self._blank = np.zeros(schema.n_features, schema.cell_dtype)  # copied in a third of the time of a scalar

    # What is held ---------------------------------------------------------------------------------

    @property
    def owner(self) -> str:
        """Name of the estimator in messages."""
        return self._encoder.owner

    @property
    def nbytes(self) -> int:
        """Bytes in memory: exact for arrays, an estimate for texts."""
        tables = self.classes.nbytes + self.categories.nbytes + self._expiries.nbytes
        containers = self._containers_nbytes()
        texts = len(self) + _SUBJECT_TEXTS * len(self._subjects) + len(self.categories)
        return sum(array.nbytes for array in self._arrays()) + tables + containers + texts * _TEXT_BYTES

    def get(self, sample_id: object) -> HeldSample:
        """Return a sample as it is held.

        Raises
        ------
        UnknownIdError
            When the id is not held.
        """
        slot = self._slot(sample_id)
        features: list[float | str | bool | None] = []
        for cell, column in zip(self.cells[slot].tolist(), self.schema.columns, strict=True):
            if cell != cell:
                features.append(None)
            elif column.type is ColumnType.CATEGORICAL:
                features.append(self.categories.value(int(cell)))
            else:
                features.append(bool(cell) if column.type is ColumnType.BOOLEAN else cell)
        subject, expires_ms = self._subjects.get(slot), self._expiries.get(slot)
        return HeldSample(self.id_of(slot), features, self._label(slot), subject, expires_ms)

    def _label(self, slot: int) -> Label:
        return self.classes.value(int(self.class_codes[slot])) if self._classification else float(self.y[slot])

    def same_content(self, sample_id: object, prepared: Prepared, row: int) -> bool:
        """Tell whether a prepared row has the features and the label of the sample held under an id."""
        slot = self._slot_of.get(normalise_id(sample_id))
        if slot is None:
            return False
        label, other = self._label(slot), prepared.labels[row]
        if label != other or (isinstance(prepared.labels, list) and type(label) is not type(other)):
            return False
        held, cells = self.cells[slot], prepared.cells[row]
        equal = (held == cells) | (np.isnan(held) & np.isnan(cells))
        for column, values in prepared.texts.items():
            cell, text = float(held[column]), values[row]
            equal[column] = text is None if cell != cell else self.categories.value(int(cell)) == text
        return bool(equal.all())

    # Adding ---------------------------------------------------------------------------------------

    def prepare(self, X: Any, y: Any, ids: Any = None, *, allow_held: bool = False) -> Prepared:
        """Encode and check rows to be added; nothing changes.

        Parameters
        ----------
        X : 2-d array, DataFrame or list of rows
            The features.
        y : 1-d array or list
            The labels.
        ids : sequence of str or int, optional
            Generated when None.
        allow_held : bool
            Accept ids that are held, so that the caller can compare (`same_content`) or replace
            them; they must be gone before `commit`.

        Raises
        ------
        InputError
            For whatever does not fit the schema; DuplicateIdError for an id given twice, or held.
        """
        cells, texts = self._encoder.encode(X)
        n = len(cells)
        name = self.schema.label_name
        labels: list[Label] | npt.NDArray[np.float64]
        if self._classification:
            labels = encode_labels(y, n, self.schema.label_type, name)
        else:
            labels = encode_targets(y, n, name)
        names = None
        if ids is not None:
            if isinstance(ids, (set, frozenset)):
                raise InputError("ids must be a list in the order of the rows, not a set", field="id")
            names = read_ids(ids)
            if len(names) != n:
                raise InputError(f"X has {n} rows, but {len(names)} ids are given: give one for each row", field="id")
            if n > 1 and len(set(names)) != n:
                refuse_repeated(names)
            if not allow_held:
                self._refuse_held(names)
        if texts and not self.categories.has_room(n * len(texts)):
            self.categories.check_room(self.categories.new_values(texts))
        return Prepared(n, cells, texts, labels, names)

    def commit(self, prepared: Prepared) -> npt.NDArray[np.int64]:
        """Hold prepared rows and return their slots.

        Fails only before anything has changed: for lack of memory, or when an id has been added since
        `prepare`.
        """
        if not prepared.n:
            return np.zeros(0, np.int64)
        if self._is_fresh_copy:
            self.build_index()  # what is changed is going to be asked
        generated = prepared.ids is None
        names = self.next_ids(prepared.n) if prepared.ids is None else prepared.ids
        if not generated:
            self._refuse_held(names)
        if prepared.n == 1:
            slots = self._commit_one(prepared, names[0])
        else:
            slots = self._commit_many(prepared, names)
        if generated:
            prepared.ids = names
            self._next_id = int(names[-1]) + 1
        else:
            self._pass_numbers(names)
        return slots

    def admit(self, row: Any, y: Any) -> int | None:
        """Hold one plain row without an id and return its slot; None if it has to go the long way."""
        return admit(self, row, y) if self._classification else None

    def _reserve(self, prepared: Prepared) -> None:
        texts = prepared.texts
        if texts and not self.categories.has_room(prepared.n * len(texts)):
            self.categories.reserve(self.categories.new_values(texts))
        if isinstance(prepared.labels, list):
            self.classes.reserve(prepared.labels)
        self._reserve_slots(prepared.n)

    def _commit_one(self, prepared: Prepared, name: str) -> npt.NDArray[np.int64]:
        id_hash = hash_text(name)
        texts, labels = prepared.texts, prepared.labels
        is_class = type(labels) is list
        if (
            not self._free
            or not self.categories.has_room(len(texts))
            or (is_class and not self.classes.has_room_for(labels[0]))
        ):
            self._reserve(prepared)
        slot = self._take_slot()
        self.cells[slot] = prepared.cells[0]
        if texts:
            row = self.cells[slot]
            for column, cell in zip(texts, self.categories.acquire_row(texts), strict=True):
                row[column] = cell
        if is_class:
            self.class_codes[slot] = self.classes.acquire_one(labels[0])
        else:
            self.y[slot] = labels[0]
        self.id_hashes[slot] = id_hash
        self.held[slot] = True
        self._slot_of[name] = slot
        self._ids[slot] = name
        return np.array([slot], np.int64)

    def _commit_many(self, prepared: Prepared, names: Sequence[str]) -> npt.NDArray[np.int64]:
        hashes = hash_ids(names)
        self._reserve(prepared)
        slots = self._take_slots(prepared.n)
        numbers = slots.tolist()
        # A slice copies faster than a list of slots, and a first fit has consecutive ones.
        consecutive = numbers == list(range(numbers[0], numbers[0] + prepared.n))
        where = slice(numbers[0], numbers[0] + prepared.n) if consecutive else slots
        self.cells[where] = prepared.cells
        for column, values in prepared.texts.items():
            self.cells[where, column] = self.categories.acquire(column, values)
        labels = prepared.labels
        if isinstance(labels, list):
            self.class_codes[where] = self.classes.acquire(labels)
        else:
            self.y[where] = labels
        self.id_hashes[where] = hashes
        self.held[where] = True
        self._slot_of.update(zip(names, numbers, strict=True))
        if isinstance(where, slice):
            self._ids[where] = names
        else:
            for slot, name in zip(numbers, names, strict=True):
                self._ids[slot] = name
        return slots

    # Removing -------------------------------------------------------------------------------------

    def remove(self, slots: Iterable[int] | npt.NDArray[np.int64]) -> None:
        """Remove samples and overwrite what is theirs alone.

        Parameters
        ----------
        slots : sequence of int
            Of samples held, each once; as `find` returns them.

        Raises
        ------
        IndexError
            When a slot is free or named twice; nothing has changed.
        """
        numbers = slots if isinstance(slots, (list, np.ndarray)) else list(map(int, slots))
        if len(numbers) == 1:
            self.remove_one(int(numbers[0]))
        elif len(numbers):
            self._remove_many(np.asarray(numbers, np.int64))

    def remove_one(self, slot: int) -> None:
        """Remove one sample, as `remove` does."""
        name = self._ids[slot] if 0 <= slot < self._top else None
        if name is None:
            raise IndexError(f"slot {slot} is free")
        cells = self.cells
        if self._categorical:
            self.categories.release_row([cells.item(slot, column) for column in self._categorical])
        if self._classification:
            self.classes.release_one(self.class_codes.item(slot))
            self.class_codes[slot] = 0
        else:
            self.y[slot] = 0.0
        cells[slot] = self._blank
        self.id_hashes[slot] = 0
        self.origins[slot] = 0
        self.held[slot] = False
        if self._subjects:
            self._subjects.unlink(slot)
        if self._expiries:
            self._expiries.forget([slot])
        del self._slot_of[name]
        self._ids[slot] = None
        self._free.append(slot)

    def _remove_many(self, where: npt.NDArray[np.int64]) -> None:
        if where.min() < 0 or where.max() >= self._top:
            raise IndexError("a slot is free or named twice")
        n_before = np.count_nonzero(self.held)
        was_held = self.held[where]
        self.held[where] = False
        if n_before - np.count_nonzero(self.held) != len(where):
            self.held[where[was_held]] = True
            raise IndexError("a slot is free or named twice")
        for column in self._categorical:
            self.categories.release(self.cells[where, column])
        if self._classification:
            self.classes.release(self.class_codes[where])
            self.class_codes[where] = 0
        else:
            self.y[where] = 0.0
        self.cells[where] = 0.0
        self.id_hashes[where] = 0
        self.origins[where] = 0
        self._forget(where.tolist())

    def _forget(self, slots: list[int]) -> None:
        if self._subjects:
            for slot in slots:
                self._subjects.unlink(slot)
        if self._expiries:
            self._expiries.forget(slots)
        if 2 * len(slots) > len(self):
            self._keep_ids_of_held()
        else:
            ids, slot_of = self._ids, self._slot_of
            for slot in slots:
                del slot_of[self.id_of(slot)]
                ids[slot] = None
        self._free.extend(slots)

    # Subjects -------------------------------------------------------------------------------------

    def set_subject(self, sample_id: object, subject: object | None) -> None:
        """Say whom a sample belongs to; None takes it back.

        Raises
        ------
        UnknownIdError, InputError
            When the id is not held, or the subject is not text like an id.
        """
        text = None if subject is None else normalise_id(subject, field="subject")
        slot = self._slot(sample_id)
        self._subjects.unlink(slot)
        if text is not None:
            self._subjects.link(slot, text)

    def subject(self, sample_id: object) -> str | None:
        """Return whom a sample belongs to.

        Raises
        ------
        UnknownIdError
            When the id is not held.
        """
        return self._subjects.get(self._slot(sample_id))

    def ids_of_subject(self, subject: object) -> list[str]:
        """Return the ids of a subject's samples, in the order in which they were linked."""
        return list(map(self.id_of, self._subjects.slots(normalise_id(subject, field="subject"))))

    # Expiries and origins -------------------------------------------------------------------------

    def set_expiry(self, sample_id: object, expires_ms: int | None) -> None:
        """Say when a sample has to go, in milliseconds since 1970 UTC; None takes it back.

        Raises
        ------
        UnknownIdError, InputError
            When the id is not held, or the time is not an integer of 64 bits.
        """
        self._expiries.set(self._slot(sample_id), expires_ms)

    def expiry(self, sample_id: object) -> int | None:
        """Return when a sample has to go.

        Raises
        ------
        UnknownIdError
            When the id is not held.
        """
        return self._expiries.get(self._slot(sample_id))

    def next_expiry(self) -> int | None:
        """Return when the first sample has to go; None when none has to."""
        return self._expiries.soonest()

    def due(self, now_ms: int, limit: int) -> list[str]:
        """Return the ids of up to `limit` samples that have to be gone by now, the soonest first."""
        return list(map(self.id_of, self._expiries.due(now_ms, limit)))

    def set_origins(self, ids: Iterable[object], value: int) -> None:
        """Keep a number with samples, which is 0 until then.

        Raises
        ------
        UnknownIdError, DuplicateIdError
            When an id is not held, or named twice.
        """
        self.origins[self.find(ids)] = value

    def origin(self, sample_id: object) -> int:
        """Return the number kept with a sample.

        Raises
        ------
        UnknownIdError
            When the id is not held.
        """
        return int(self.origins[self._slot(sample_id)])

    # Queries --------------------------------------------------------------------------------------

    def encode_queries(self, X: Any) -> tuple[npt.NDArray[Any], npt.NDArray[np.uint64]]:
        """Encode rows to be predicted.

        Returns
        -------
        cells : float32/64[n, d], C order
            May be X itself; only to be read.
        category_hashes : uint64[]
            Hashes by code. The store's own table, or a longer copy in which categories that are not
            held have temporary codes.
        """
        encoder = self._encoder
        known = None if type(X) is list else encoder.encode_plain(X)
        if known is None:
            known = encoder.encode_known_row(encoder.only_row(X), self.categories.tables)
        if known is not None:
            return known, self.categories.hashes
        cells, texts = self._encoder.encode(X)
        if not texts:
            return cells, self.categories.hashes
        return cells, self.categories.encode_queries(cells, texts)

    # Copies ---------------------------------------------------------------------------------------

    def copy(self) -> "SampleStore":
        """Return an independent copy; other threads may read meanwhile, and are not kept waiting."""
        other = SampleStore(self.schema, self.owner)
        other.classes = self.classes.copy()
        other.categories = self.categories.copy()
        other._subjects = self._subjects.copy()
        other._expiries = self._expiries.copy()
        other._is_fresh_copy = True
        self._copy_slots_to(other)
        return other

    def shred(self) -> None:
        """Overwrite the arrays that hold samples: the store is about to be let go of, and nobody reads it any more."""
        _aligned.shred((*self._arrays(), self.categories.hashes, self._expiries.moments))

    def build_index(self) -> None:
        """Get ready to look up ids and subjects; in a copy the first look-up does this, which takes a while."""
        _ = self._slot_of
        self._subjects.build_index()
        self._is_fresh_copy = False

    def __reduce__(self) -> tuple[Any, ...]:
        # Pickles and deep copies hold what is held, nothing of unused capacity.
        return type(self).from_state, (self.schema, self.state(), self.owner)

    def state(self) -> dict[str, npt.NDArray[Any]]:
        """Return everything held as arrays, and nothing else; see `core.sample_state`."""
        from core.sample_state import dump

        return dump(self)

    @classmethod
    def from_state(
        cls, schema: Schema, arrays: Mapping[str, npt.NDArray[Any]], owner: str = "the model"
    ) -> "SampleStore":
        """Rebuild a store from `state`; slots stay as they are.

        Raises
        ------
        FileError
            When the arrays do not fit the schema or each other.
        """
        from core.sample_state import load

        return load(schema, arrays, owner)

    def check_invariants(self) -> None:
        """Walk all of the store; AssertionError names what is broken."""
        from core.sample_state import check

        check(self)
