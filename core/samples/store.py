"""The one sample store: what is held, by slot, and who it belongs to.

    slots.py       arrays by slot, ids, the counter behind generated ids
    encoding.py    X -> cells           targets.py    y -> canonical labels
    categories.py  values <-> codes     labels.py     classes <-> codes
    owners.py      whom samples belong to, when they have to go    additions.py   when they came
    nonces.py      random bytes for hashes of samples
    restricted.py  samples that are kept and not learned from
    serialise.py   to arrays and back, and the check of every invariant

Ids, subjects, expiries, category values and class values leave with the last sample that has them:
they are overwritten before `remove` returns.

An addition has three parts. `prepare` encodes and checks everything. `stage` makes room and works out all that will
be written. `hold` writes it, asks NumPy for no memory and has nothing to refuse. In between the caller may write a
journal. A removal has two: `stage_removal` and `let_go`. `commit` and `remove` do all of it.
"""

import sys
from collections.abc import Iterable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from oubli.core.array_types import Array, Arrays, Hashes, Ints, Reals
from oubli.core.data.encoding import Encoder
from oubli.core.data.targets import encode_labels, encode_targets
from oubli.core.data.values import ColumnType, Label, normalise_id
from oubli.core.errors import InputError
from oubli.core.jit import aligned
from oubli.core.rng import hash_text
from oubli.core.samples.admission import admit
from oubli.core.samples.arrays import Data, Problem
from oubli.core.samples.categories import CategoryTable, write_codes
from oubli.core.samples.hashing import hash_texts
from oubli.core.samples.labels import ClassTable
from oubli.core.samples.owners import OwnedSlots
from oubli.core.samples.records import Arrivals, Departures, HeldSample, Prepared
from oubli.core.samples.restricted import RestrictedSamples
from oubli.core.samples.serialise import check, dump, fill
from oubli.core.samples.slots import end_of_numbers, read_ids, refuse_repeated

if TYPE_CHECKING:
    from oubli.core.data.schema import Schema

__all__ = ["HeldSample", "Prepared", "SampleStore", "normalise_id"]

_new: Any = tuple.__new__
# A rough size of one id; its entries in the dictionary and in the list are counted apart.
_TEXT_BYTES = sys.getsizeof("0123456789")
# A subject's link: its text and the entries of both dictionaries.
_SUBJECT_TEXTS = 4


class SampleStore(OwnedSlots):
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
    restricted : RestrictedSamples
        Samples that are kept beside these and are not learned from; nothing else here counts or shows them.
    n_threads : int
        For long work; the model says it, and no file knows it.
    subjects, expiries, additions, nonces, changes : see `OwnedSlots`

    The arrays are replaced when the store grows; take them anew after every `commit`.
    """

    def __init__(self, schema: "Schema", owner: str = "the model") -> None:
        super().__init__(schema)
        self.encoder = Encoder(schema, owner)
        self._categorical = self.encoder.categorical
        self.classes = ClassTable(schema.label_type)
        self.categories = CategoryTable(self._categorical)
        self.restricted = RestrictedSamples(partial(SampleStore, schema, owner), self.changes)
        self.is_fresh_copy = False
        self.n_threads = 1
        self._blank = np.zeros(schema.n_features, schema.cell_dtype)  # copied in a third of the time of a scalar

    # What is held ---------------------------------------------------------------------------------

    @property
    def owner(self) -> str:
        """Name of the estimator in messages."""
        return self.encoder.owner

    @property
    def nbytes(self) -> int:
        """Bytes in memory: exact for arrays, an estimate for texts."""
        beside = self.expiries.nbytes + self.limits.nbytes + self.additions.nbytes + self.nonces.nbytes
        tables = self.classes.nbytes + self.categories.nbytes + beside
        texts = len(self) + _SUBJECT_TEXTS * len(self.subjects) + len(self.categories)
        arrays = sum(array.nbytes for array in self._arrays())
        return arrays + tables + self._containers_nbytes() + texts * _TEXT_BYTES + self.restricted.nbytes

    @property
    def has_rights(self) -> bool:
        """Whether some of the samples are restricted, or some subjects have a retention period."""
        return bool(self.periods) or len(self.restricted) > 0

    def get(self, sample_id: object) -> HeldSample:
        """Return a sample as it is held.

        Raises
        ------
        UnknownIdError
            When the id is not held.
        UnusableModelError
            When a change was broken off halfway.
        """
        self.changes.check()
        slot = self._slot(sample_id)
        features: list[float | str | bool | None] = []
        for cell, column in zip(self.cells[slot].tolist(), self.schema.columns, strict=True):
            if cell != cell:
                features.append(None)
            elif column.type is ColumnType.CATEGORICAL:
                features.append(self.categories.value(int(cell)))
            else:
                features.append(bool(cell) if column.type is ColumnType.BOOLEAN else cell)
        return HeldSample(self.id_of(slot), features, self._label(slot), self.subjects.get(slot), self._expiry_at(slot))

    def holding(self, sample_id: object) -> "SampleStore | None":
        """Return the store that holds a sample, this one or that of the restricted ones; None when neither does."""
        if self.contains(sample_id):
            return self
        return self.restricted.samples if self.restricted.holds(sample_id) else None

    def problem(self) -> Problem:
        """The samples as engines read them; anew after each change."""
        classes, n_samples = self.classes, self.top - len(self.free)
        # A third of the time that constructors take.
        data = _new(
            Data, (self.cells, self.class_codes, self.id_hashes, self.categories.hashes, self.schema.categorical_mask)
        )
        ranks, n_classes = classes.ranking or classes.rank()
        problem: Problem = _new(Problem, (data, ranks, n_classes, self.y, self.held, n_samples, classes.counts))
        return problem

    def _label(self, slot: int) -> Label:
        return self.classes.value(int(self.class_codes[slot])) if self._classification else float(self.y[slot])

    def same_content(self, sample_id: object, prepared: Prepared, row: int) -> bool:
        """Tell whether a prepared row has the features and the label of the sample held under an id."""
        slot = self.slot_of.get(normalise_id(sample_id))
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

    def prepared_again(self, slots: Ints) -> Prepared:
        """Return samples held as `prepare` had them, with values in place of codes, to be held elsewhere."""
        self.changes.check()
        cells = self.cells[slots]
        texts = {column: self.categories.values_of(cells[:, column]) for column in self._categorical}
        cells[:, self._categorical] = np.nan
        labels: list[Label] | Reals
        labels = self.classes.values(self.class_codes[slots]) if self._classification else self.y[slots]
        numbers = slots.tolist()
        names = list(map(self.id_at.__getitem__, numbers))
        if None in names:
            names = list(map(self.id_of, numbers))  # says which slot is free
        return Prepared(len(slots), cells, texts, labels, cast("list[str]", names))

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
        cells, texts = self.encoder.encode(X)
        n = len(cells)
        name = self.schema.label_name
        labels: list[Label] | Reals = (
            encode_labels(y, n, self.schema.label_type, name) if self._classification else encode_targets(y, n, name)
        )
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
                self.restricted.refuse_held(names)
        if texts and not self.categories.has_room(n * len(texts)):
            self.categories.check_room_for(texts)
        return Prepared(n, cells, texts, labels, names)

    def commit(self, prepared: Prepared) -> Ints:
        """Hold prepared rows and return their slots; they belong to the store then, and are not to be used any more.

        Fails only before anything has changed: for lack of memory, or when an id has been added since
        `prepare`.
        """
        self.changes.check()
        if not prepared.n:
            return np.zeros(0, np.int64)
        arrivals = self.stage(prepared)
        with self.changes:
            if self.top == 0 and prepared.n == self.capacity:
                self.cells = prepared.cells  # all that there is room for: nothing need be copied
            return self.hold(arrivals)

    def stage(self, prepared: Prepared) -> Arrivals:
        """Make room for prepared rows, of which there is one at least, and say what `hold` will write.

        Nothing that is held changes. What is staged is out of date with the next change.

        Raises
        ------
        DuplicateIdError
            When an id has been added since `prepare`.
        """
        n = prepared.n
        if self.is_fresh_copy:
            self.build_index()  # what is changed is going to be asked
        names = prepared.ids
        if names is None:
            names = self.next_ids(n)
            next_id = int(names[-1]) + 1
        else:
            self._refuse_held(names)
            next_id = max(self.next_id, end_of_numbers(names))
        if n == 1:
            texts, labels = prepared.texts, prepared.labels
            if (
                not self.free
                or not self.categories.has_room(len(texts))
                or (type(labels) is list and not self.classes.has_room_for(labels[0]))
            ):
                self.reserve(prepared)
            slot = self.free[-1] if self.free else self.top
            return Arrivals(prepared, names, np.array([slot], np.int64), next_id, hash_text(names[0]), None, None)
        hashes = hash_texts(names, self.n_threads)
        self.reserve(prepared)
        categories = self.categories.plan(prepared.texts) if prepared.texts else None
        classes = self.classes.plan(prepared.labels) if isinstance(prepared.labels, list) else None
        return Arrivals(prepared, names, self._next_slots(n), next_id, hashes, categories, classes)

    def hold(self, arrivals: Arrivals) -> Ints:
        """Hold what was staged last and return its slots; in a critical section."""
        if len(arrivals.names) == 1:
            self._hold_one(arrivals)
        else:
            self._hold_many(arrivals)
        arrivals.prepared.ids = arrivals.names
        self.next_id = arrivals.next_id
        return arrivals.slots

    def admit(self, row: Any, y: Any) -> int | None:
        """Hold one plain row without an id and return its slot; None if it has to go the long way."""
        return admit(self, row, y) if self._classification else None

    def reserve(self, prepared: Prepared) -> None:
        """Make room for prepared rows, so that `stage` needs to make none."""
        texts = prepared.texts
        if texts and not self.categories.has_room(prepared.n * len(texts)):
            self.categories.reserve(self.categories.new_values(texts))
        if isinstance(prepared.labels, list):
            self.classes.reserve(prepared.labels)
        self._reserve_slots(prepared.n)

    def _hold_one(self, arrivals: Arrivals) -> None:
        prepared, name = arrivals.prepared, arrivals.names[0]
        texts, labels = prepared.texts, prepared.labels
        if self.free:
            slot = self.free.pop()
        else:
            slot = self.top
            self.top += 1
        self.cells[slot] = prepared.cells[0]
        if texts:
            row = self.cells[slot]
            for column, cell in zip(texts, self.categories.acquire_row(texts), strict=True):
                row[column] = cell
        if type(labels) is list:
            self.class_codes[slot] = self.classes.acquire_one(labels[0])
        else:
            self.y[slot] = labels[0]
        self.id_hashes[slot] = arrivals.hashes
        self.held[slot] = True
        self.slot_of[name] = slot
        self.id_at[slot] = name

    def _hold_many(self, arrivals: Arrivals) -> None:
        prepared, names, slots = arrivals.prepared, arrivals.names, arrivals.slots
        numbers = slots.tolist()
        # A slice copies faster than a list of slots, and those that have never been used follow one another.
        where = slots if self.free else slice(numbers[0], numbers[0] + len(numbers))
        self._take_slots(len(numbers))
        if self.cells is not prepared.cells:
            self.cells[where] = prepared.cells
        if arrivals.categories is not None:
            for column, cells in arrivals.categories.cells.items():
                self.cells[where, column] = cells
            self.categories.take_in(arrivals.categories)
        if arrivals.classes is not None:
            self.class_codes[where] = arrivals.classes.codes
            self.classes.take_in(arrivals.classes)
        else:
            self.y[where] = prepared.labels
        self.id_hashes[where] = arrivals.hashes
        self.held[where] = True
        self.slot_of.update(zip(names, numbers, strict=True))
        if isinstance(where, slice):
            self.id_at[where] = names
        else:
            for slot, name in zip(numbers, names, strict=True):
                self.id_at[slot] = name

    # Removing -------------------------------------------------------------------------------------

    def remove(self, slots: Iterable[int] | Ints) -> None:
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
        departures = self.stage_removal(slots)
        with self.changes:
            self.let_go(departures)

    def stage_removal(self, slots: Iterable[int] | Ints) -> Departures:
        """Say what `let_go` will do to samples held; nothing changes.

        Raises
        ------
        IndexError
            When a slot is free or named twice.
        """
        if len(slots := slots if isinstance(slots, np.ndarray) else list(map(int, slots))) == 1:
            slot = int(slots[0])
            if not 0 <= slot < self.top or self.id_at[slot] is None:
                raise IndexError(f"slot {slot} is free")
            return Departures([slot], None, None, None, None)
        where = np.asarray(slots, np.int64)
        gone = np.zeros(self.capacity, np.bool_)
        if len(where) == 0:
            return Departures([], None, None, None, None)
        if where.min() < 0 or where.max() >= self.top or not self.held[where].all():
            raise IndexError("a slot is free or named twice")
        gone[where] = True
        numbers: list[int] = where.tolist()
        where = np.flatnonzero(gone)  # in the order of memory, which is overwritten faster so
        if len(numbers) != len(where):
            raise IndexError("a slot is free or named twice")
        categories = None
        if self._categorical:
            categories = self.categories.plan_release(self.cells[where][:, self._categorical])
        classes = self.classes.plan_release(self.class_codes[where]) if self._classification else None
        kept = self._ids_without(gone) if 2 * len(numbers) > len(self) else None
        return Departures(numbers, where, categories, classes, kept)

    def let_go(self, departures: Departures) -> None:
        """Let go of the samples whose removal was staged last, and overwrite what is theirs alone; in a section."""
        if len(departures.slots) == 1:
            self.let_go_of_one(departures.slots[0])
        elif departures.where is not None:
            self._let_go_of_many(departures, departures.where)

    def let_go_of_one(self, slot: int) -> None:
        """Let go of one sample that is held, as `let_go` does."""
        cells, name = self.cells, self.id_of(slot)
        if self._categorical:
            self.categories.release_row([cells.item(slot, column) for column in self._categorical])
        if self._classification:
            code, counts = self.class_codes.item(slot), self.classes.counts
            if counts[code] == 1:
                self.classes.release(np.array([code]))
            else:
                counts[code] -= 1
            self.class_codes[slot] = 0
        else:
            self.y[slot] = 0.0
        cells[slot] = self._blank
        self.id_hashes[slot] = 0
        self.origins[slot] = 0
        self.held[slot] = False
        self._forget([slot])
        del self.slot_of[name]
        self.id_at[slot] = None
        self.free.append(slot)

    def _let_go_of_many(self, departures: Departures, where: Ints) -> None:
        if departures.categories is not None:
            self.categories.let_go(departures.categories)
        if departures.classes is not None:
            self.classes.let_go(departures.classes)
            self.class_codes[where] = 0
        else:
            self.y[where] = 0.0
        self.held[where] = False
        self.cells[where] = 0.0
        self.id_hashes[where] = 0
        self.origins[where] = 0
        slots = departures.slots
        self._forget(slots)
        if departures.kept is not None:
            self.slot_of, self.id_at = departures.kept
        else:
            ids, slot_of = self.id_at, self.slot_of
            for slot in slots:
                del slot_of[self.id_of(slot)]
                ids[slot] = None
        self.free.extend(slots)

    # Queries --------------------------------------------------------------------------------------

    def encode_queries(self, X: Any) -> tuple[Array, Hashes]:
        """Encode rows to be predicted.

        Returns
        -------
        cells : float32/64[n, d], C order
            May be X itself; only to be read.
        category_hashes : uint64[]
            Hashes by code. The store's own table, or a longer copy in which categories that are not
            held have temporary codes.
        """
        encoder = self.encoder
        known = None if type(X) is list else encoder.encode_plain(X)
        if known is None:
            known = encoder.encode_known_row(encoder.only_row(X), self.categories.codes)
        if known is not None:
            return known, self.categories.hashes
        unseen: dict[str, int] = {}
        look_ups = self.categories.look_ups(unseen)
        cells, texts = encoder.encode(X, look_ups)
        write_codes(cells, texts, look_ups)
        return cells, self.categories.query_hashes(unseen)

    # Copies ---------------------------------------------------------------------------------------

    def copy(self) -> "SampleStore":
        """Return an independent copy; other threads may read meanwhile, and are not kept waiting."""
        self.changes.check()
        other = SampleStore(self.schema, self.owner)
        for name in ("classes", "categories", "subjects", "expiries", "periods", "limits", "additions", "nonces"):
            setattr(other, name, getattr(self, name).copy())
        other.restricted = self.restricted.copy(other.changes)
        other.is_fresh_copy = True
        self._copy_slots_to(other)
        return other

    def shred(self) -> None:
        """Overwrite the arrays that hold samples: the store is about to be let go of, and nobody reads it any more."""
        beside = (self.expiries.moments, self.limits.moments, self.additions.moments, self.nonces.rows)
        aligned.shred((*self._arrays(), self.categories.hashes, *beside))
        self.restricted.shred()

    def build_index(self) -> None:
        """Get ready to look up ids and subjects; in a copy the first look-up does this, which takes a while."""
        _ = self.slot_of
        self.subjects.build_index()
        self.is_fresh_copy = False

    def __reduce__(self) -> tuple[Any, ...]:
        # Pickles and deep copies hold what is held, nothing of unused capacity.
        return type(self).from_state, (self.schema, self.state(), self.owner)

    def state(self) -> Arrays:
        """Return everything held as arrays, and nothing else; see `oubli.core.samples.serialise`."""
        self.changes.check()
        return dump(self)

    @classmethod
    def from_state(cls, schema: "Schema", arrays: Mapping[str, Array], owner: str = "the model") -> "SampleStore":
        """Rebuild a store from `state`; slots stay as they are.

        Raises
        ------
        FileError
            When the arrays do not fit the schema or each other.
        """
        store = cls(schema, owner)
        fill(store, arrays)
        return store

    def check_invariants(self) -> None:
        """Walk all of the store; AssertionError names what is broken."""
        check(self)
