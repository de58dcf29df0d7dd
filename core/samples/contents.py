"""Samples with features and labels: how they are encoded, added and removed.

Ids, subjects, expiries, category values and class values leave with the last sample that has them:
they are overwritten before `remove` returns.

An addition has three parts. `prepare` encodes and checks everything. `stage` makes room and works out all that will
be written. `hold` writes it, asks NumPy for no memory and has nothing to refuse. In between the caller may write a
journal. A removal has two: `stage_removal` and `let_go`. `commit` and `remove` do all of it.
"""

import math
import sys
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Self, cast

import numpy as np

from oubli.core.array_types import Array, Hashes, Ints, Reals
from oubli.core.concurrency.changes import Changes
from oubli.core.concurrency.locks import reads, writes
from oubli.core.data.encoding import Encoder
from oubli.core.data.schema import Schema, label_key
from oubli.core.data.targets import encode_labels, encode_targets
from oubli.core.data.values import ColumnType, Label, normalise_id
from oubli.core.errors import InputError, ensure
from oubli.core.jit import aligned
from oubli.core.jit.targets import GRID
from oubli.core.rng import hash_text
from oubli.core.samples.arrays import Data, Problem
from oubli.core.samples.categories import CategoryTable, write_codes
from oubli.core.samples.hashing import hash_texts
from oubli.core.samples.labels import ClassTable
from oubli.core.samples.owners import OwnedSlots
from oubli.core.samples.records import Arrivals, Departures, HeldSample, Prepared, Rows
from oubli.core.samples.slots import COUNTER_LIMIT, end_of_numbers, read_ids, refuse_repeated
from oubli.core.samples.weights import WeighedSlots, read_weights

_new: Any = tuple.__new__
# A rough size of one id; its entries in the dictionary and in the list are counted apart.
_TEXT_BYTES = sys.getsizeof("0123456789")
_MOST_CLASSES = 2**31 - 1
# A subject's link: its text and the entries of both dictionaries.
_SUBJECT_TEXTS = 4


class Contents(WeighedSlots, OwnedSlots):
    """Samples with their features and labels.

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
    weights, units, targets, is_whole : see `WeighedSlots`
    classes : ClassTable
    categories : CategoryTable
    n_threads : int
        For long work; the model says it, and no file knows it.
    subjects, expiries, additions, nonces, changes : see `OwnedSlots`

    The arrays are replaced when the store grows; read them again after every `commit`.
    """

    def __init__(self, schema: Schema, owner: str = "the model") -> None:
        super().__init__(schema)
        self.encoder = Encoder(schema, owner)
        self._categorical = self.encoder.categorical
        self.classes = ClassTable(schema.label_type)
        self.categories = CategoryTable(self._categorical)
        self.is_fresh_copy = False
        self.n_threads = 1
        self.least_target, self.most_classes = -math.inf, _MOST_CLASSES
        self._blank = np.zeros(schema.n_features, schema.cell_dtype)  # copied in a third of the time of a scalar

    def take_bounds(self, settings: Any) -> None:
        """Hold only samples that a model with some settings is for.

        Raises
        ------
        InputError
            When it is for others than those held; nothing has changed.
        """
        least, most = getattr(settings, "least_target", -math.inf), getattr(settings, "most_classes", _MOST_CLASSES)
        if len(self.y) and (self.y[self.held] < least).any():
            raise InputError(f"is for targets of at least {least:g}, some held are lower: use another", field="loss")
        if len(self.classes) > most:
            raise InputError(f"are for {most} classes, more are held: leave them out", field="monotone_constraints")
        self.least_target, self.most_classes = least, most

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
        return arrays + tables + self._containers_nbytes() + texts * _TEXT_BYTES

    @reads
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
        features = self.features_of(self.cells[slot])
        subject, expires_ms = self.subjects.get(slot), self._expiry_at(slot)
        return HeldSample(
            self.id_of(slot), features, self._label(slot), subject, expires_ms, weight=self.weight_at(slot)
        )

    def features_of(self, row: Array, unseen: Mapping[int, str] | None = None) -> list[float | str | bool | None]:
        """Return the values of a row of cells; `unseen`: texts of temporary codes, see `encode_queries`."""
        features: list[float | str | bool | None] = []
        for cell, column in zip(row.tolist(), self.schema.columns, strict=True):
            if cell != cell:
                features.append(None)
            elif column.type is ColumnType.CATEGORICAL:
                code = int(cell)
                features.append(unseen[code] if unseen and code in unseen else self.categories.value(code))
            else:
                features.append(bool(cell) if column.type is ColumnType.BOOLEAN else cell)
        return features

    def problem(self) -> Problem:
        """The samples as engines read them; ask again after each change."""
        classes, n_samples, codes = self.classes, self.top - len(self.free), self.class_codes
        # A third of the time that constructors take.
        data = _new(
            Data,
            (
                self.cells, self.targets if self.has_weights else codes, self.id_hashes, self.categories.hashes,
                self.schema.categorical_mask,
            ),
        )  # fmt: skip
        ranks, n_classes = classes.ranking or classes.rank()
        problem: Problem = _new(
            Problem,
            (data, ranks, n_classes, self.y, self.held, n_samples, classes.counts, codes, self.units, self.is_whole),
        )
        return problem

    def problem_with(self, slots: Ints) -> Problem:
        """The samples as engines read them, and those that were written ahead to some slots as if they were held."""
        problem, held = self.problem(), self.held.copy()
        held[slots] = True
        return problem._replace(held=held, n_samples=problem.n_samples + len(slots))

    def _label(self, slot: int) -> Label:
        return self.classes.value(int(self.class_codes[slot])) if self._classification else float(self.y[slot])

    @reads
    def same_content(self, sample_id: object, prepared: Prepared, row: int) -> bool:
        """Tell whether a prepared row has the features and the label of the sample held under an id."""
        slot = self.slot_of.get(normalise_id(sample_id))
        if slot is None:
            return False
        if self.weight_at(slot) * GRID != (GRID if prepared.weights is None else prepared.weights[row]):
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

    def is_same(self, rows: Rows, row: int, prepared: Prepared) -> bool:
        """Whether a row is the sample held under its id. An expiry that was left out is not compared: it moves."""
        name = (prepared.ids or ())[row]
        slot = self.slot_of[name]
        expires = rows.expires if rows.expires is None or isinstance(rows.expires, int) else rows.expires[row]
        return (
            (None if rows.subjects is None else rows.subjects[row]) == self.subjects.get(slot)
            and (expires is None or expires in (self.expiries.get(slot), self._expiry_at(slot)))
            and self.same_content(name, prepared, row)
        )

    @reads
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
        weights, units = (self.weights[slots], self.units[slots]) if self.has_weights else (None, None)
        return Prepared(len(slots), cells, texts, labels, cast("list[str]", names), weights, units)

    # Adding ---------------------------------------------------------------------------------------

    def prepare(
        self,
        X: Any,
        y: Any,
        ids: Any = None,
        weights: Any = None,
        *,
        allow_held: bool = False,
        may_be_zero: bool = False,
    ) -> Prepared:
        """Encode and check rows to be added; nothing changes.

        Parameters
        ----------
        X : 2-d array, DataFrame or list of rows
            The features.
        y : 1-d array or list
            The labels.
        ids : sequence of str or int, optional
            Generated when None.
        weights : sequence of numbers, or one, optional
            All are 1 when None.
        allow_held : bool
            Accept ids that are held, so that the caller can compare (`same_content`) or replace
            them; they must be gone before `commit`.
        may_be_zero : bool
            Accept weights of 0, of rows that the caller takes out.

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
        if not isinstance(labels, list) and (is_low := labels < self.least_target).any():
            rule = f"must be at least {self.least_target:g} for this loss: correct it, or fit with another loss"
            raise InputError(rule, row=int(is_low.argmax()), field=name, value=float(labels[is_low][0]))
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
                self._refuse_taken(names)
        if texts and not self.categories.has_room(n * len(texts)):
            self.categories.check_room_for(texts)
        own = read_weights(weights, n, may_be_zero=may_be_zero)
        return Prepared(n, cells, texts, labels, names, own, self._units_of(own, labels))

    def _refuse_taken(self, names: Sequence[str]) -> None:
        """Refuse ids under which samples are held; raises DuplicateIdError."""
        self._refuse_held(names)

    def admit_classes(self, prepared: Prepared, replaced: object = None) -> int:
        """Return how many classes prepared rows would add to those held.

        replaced : the sample that leaves for them, and its class with it when it is the only one.

        Raises
        ------
        InputError
            When the schema does not allow one of them, or so many.
        """
        labels, schema = prepared.labels, self.schema
        if not isinstance(labels, list):
            return 0
        new = self.classes.new_rows(labels)
        field = schema.label_name
        for row in new:
            if not schema.allows(labels[row]):
                rule = (
                    "must be one of the classes of the model, which are closed: correct it, or fit with classes 'open'"
                )
                raise InputError(rule, row=row, field=field, value=labels[row])
        n_more = min(schema.max_classes, self.most_classes) - len(self.classes)
        if new and replaced is not None and self.contains(replaced):
            n_more += int(self.classes.counts[self.classes.code(self.get(replaced).label)] == 1)
        if len(new) > max(n_more, 0):
            rule = f"would make one class more than max_classes, {schema.max_classes}: correct it, or raise that"
            if self.most_classes < schema.max_classes:
                rule = "would make a third class, and monotone_constraints are for two: correct it, or fit without them"
            raise InputError(rule, row=new[max(n_more, 0)], field=field, value=labels[new[max(n_more, 0)]])
        return len(new)

    def weigh_classes(self, class_weight: Mapping[Any, float] | str, prepared: Prepared) -> None:
        """Give classes weights, before the first samples are held; these are weighed again.

        Parameters
        ----------
        class_weight : weights by class; or "balanced": all classes of the samples weigh the same together.
        prepared : the first samples.

        Raises
        ------
        InputError
            When it is neither, or there is a regression.
        """
        if class_weight == "balanced" and isinstance(prepared.labels, list):
            counts = Counter(map(label_key, prepared.labels))
            pairs = [(label, prepared.n / (len(counts) * n)) for (_, label), n in counts.items()]
        elif isinstance(class_weight, Mapping):
            pairs = list(class_weight.items())
        else:
            raise InputError("must be None, 'balanced' or weights by class, in a classification", field="class_weight")
        self.schema = replace(self.schema, class_weight=tuple(pairs))
        prepared.units = self._units_of(prepared.weights, prepared.labels)

    @writes
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
                self.cells = prepared.cells  # they fill the store: nothing need be copied
            return self.hold(arrivals)

    def stage(self, prepared: Prepared, *, is_ahead: bool = False) -> Arrivals:
        """Make room for prepared rows, of which there is one at least, and say what `hold` will write.

        Nothing that is held changes. What is staged is out of date with the next change. `is_ahead` lets it be
        written ahead.

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
        if n == 1 and not is_ahead:
            texts, labels = prepared.texts, prepared.labels
            if (
                not self.free
                or not self.categories.has_room(len(texts))
                or (type(labels) is list and not self.classes.has_room_for(labels[0]))
                or not (self.has_weights or prepared.units is None)
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
        if isinstance(arrivals.hashes, np.ndarray):
            self._hold_many(arrivals)
        else:
            self._hold_one(arrivals)
        arrivals.prepared.ids = arrivals.names
        self.next_id = arrivals.next_id
        return arrivals.slots

    def admit(self, row: Any, y: Any) -> int | None:
        """Hold one row of plain values under a generated id and return its slot; None if it has to go the long way.

        Most samples of a stream are like this: numbers, categories and a class that are held already, and no id. They
        need none of the checks that `prepare` makes for all others, and no `Prepared` in between. Whatever else a row
        is, it takes the long way from its beginning, so that the rules and the errors are in one place.
        """
        if not self._classification:
            return None
        encoder, slot_of, name = self.encoder, self.slot_of, str(self.next_id)
        if type(row) is not list or len(row) != encoder.n_features or not encoder.is_plain or name in slot_of:
            return None
        if type(y) is not list or len(y) != 1 or self.is_fresh_copy or self.next_id >= COUNTER_LIMIT:
            return None
        if self.has_weights or self.schema.class_weight:
            return None
        is_reused = bool(self.free)
        slot = self.free[-1] if is_reused else self.top
        if slot == self.capacity:
            return None
        label = y[0]
        class_code = self.classes.plain_code(label)
        if class_code is None:
            return None
        codes = []
        if encoder.categorical:
            row = row.copy()
            for column, known in self.categories.codes.items():
                value = row[column]
                if value is None:
                    continue
                code = known.get(value) if type(value) is str else None
                if code is None:
                    return None
                row[column] = code
                codes.append(code)
        # A free slot: no reader looks at it before it is held.
        if not encoder.write_plain(row, self.cells[slot : slot + 1]):
            return None
        if is_reused:
            self.free.pop()
        else:
            self.top += 1
        for code in codes:
            self.categories.counts[code] += 1
        self.classes.counts[class_code] += 1
        self.class_codes[slot] = class_code
        self.id_hashes[slot] = hash_text(name)
        self.held[slot] = True
        self.id_at[slot] = name
        slot_of[name] = slot
        self.next_id += 1
        return slot

    def reserve(self, prepared: Prepared) -> None:
        """Make room for prepared rows, so that `stage` needs to make none."""
        texts = prepared.texts
        if texts and not self.categories.has_room(prepared.n * len(texts)):
            self.categories.reserve(self.categories.new_values(texts))
        if isinstance(prepared.labels, list):
            self.classes.reserve(prepared.labels)
        self._reserve_slots(prepared.n)
        if prepared.units is not None and not self.has_weights:
            self._begin_weights()

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
        if self.has_weights:
            self._write_weights(arrivals.slots, prepared)
            self._count_weights(arrivals.slots, 1)
        self.id_hashes[slot] = arrivals.hashes
        self.held[slot] = True
        self.slot_of[name] = slot
        self.id_at[slot] = name

    def _hold_many(self, arrivals: Arrivals) -> None:
        names, slots = arrivals.names, arrivals.slots
        numbers = slots.tolist()
        # A slice copies faster than a list of slots, and those that have never been used follow one another.
        where = slots if self.free else slice(numbers[0], numbers[0] + len(numbers))
        self._write(arrivals, where)
        is_first = self.top == 0
        self._take_slots(len(numbers))
        if arrivals.categories is not None:
            self.categories.take_in(arrivals.categories)
        if arrivals.classes is not None:
            self.classes.take_in(arrivals.classes)
        if self.has_weights:
            self._count_weights(where, 1)
        self.held[where] = True
        if is_first:
            # The index is made beside the growth of the trees, or when an id is first looked up.
            self.unindexed = slots
            del self.slot_of
        else:
            self.slot_of.update(zip(names, numbers, strict=True))
        if isinstance(where, slice):
            self.id_at[where] = names
        else:
            for slot, name in zip(numbers, names, strict=True):
                self.id_at[slot] = name

    def write_ahead(self, arrivals: Arrivals) -> None:
        """Write what was staged last, rows of known categories, to slots that are free until `hold`."""
        self._write(arrivals, arrivals.slots)

    def _write(self, arrivals: Arrivals, where: Ints | slice) -> None:
        prepared = arrivals.prepared
        if self.cells is not prepared.cells:
            self.cells[where] = prepared.cells
        if arrivals.categories is not None:
            for column, cells in arrivals.categories.cells.items():
                self.cells[where, column] = cells
        if arrivals.classes is not None:
            self.class_codes[where] = arrivals.classes.codes
        else:
            self.y[where] = prepared.labels
        if self.has_weights:
            self._write_weights(where, prepared)
        self.id_hashes[where] = arrivals.hashes

    def blank(self, slots: Ints) -> None:
        """Overwrite the features, labels and hashes of slots that are free."""
        (self.class_codes if self._classification else self.y)[slots] = 0
        if self.has_weights:
            self._blank_weights(slots)
        self.cells[slots] = 0.0
        self.id_hashes[slots] = 0

    def aside(self) -> Self:
        """Return a store with the same contents and changes of its own: to be read while this one is changed.

        It is up to date as long as what is held here stays.
        """
        other: Self = object.__new__(type(self))
        other.__dict__.update(vars(self))
        other.changes = Changes()
        return other

    # Removing -------------------------------------------------------------------------------------

    @writes
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
        if self.has_weights:
            self._count_weights(np.array([slot]), -1)
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
        if self.has_weights:
            self._count_weights(where, -1)
        self.blank(where)
        self.held[where] = False
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

    def encode_queries(self, X: Any, unseen: dict[str, int] | None = None) -> tuple[Array, Hashes]:
        """Encode rows to be predicted.

        `unseen`, when it is given, gets the temporary codes.

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
        unseen = {} if unseen is None else unseen
        look_ups = self.categories.look_ups(unseen)
        cells, texts = encoder.encode(X, look_ups)
        write_codes(cells, texts, look_ups)
        return cells, self.categories.query_hashes(unseen)

    # Copies ---------------------------------------------------------------------------------------

    def copy(self) -> Self:
        """Return an independent copy; other threads can read at the same time."""
        self.changes.check()
        other = type(self)(self.schema, self.owner)
        for name in ("classes", "categories", "subjects", "expiries", "periods", "limits", "additions", "nonces"):
            setattr(other, name, getattr(self, name).copy())
        other.encoder.told = self.encoder.told
        other.is_fresh_copy = True
        self._copy_slots_to(other)
        self._copy_weights_to(other)
        return other

    def shred(self) -> None:
        """Overwrite the arrays that hold samples: the store is no longer needed, and no thread reads it."""
        self.changes.forget_derived()
        beside = (self.expiries.values, self.limits.values, self.additions.values, self.nonces.values)
        aligned.shred((*self._arrays(), self.categories.hashes, *beside))

    def build_index(self) -> None:
        """Get ready to look up ids and subjects; in a copy the first look-up does this, which takes a while."""
        _ = self.slot_of
        self.subjects.build_index()
        self.is_fresh_copy = False

    def check_invariants(self) -> None:
        """Walk all of the samples; AssertionError names what is broken."""
        capacity, top = self.capacity, self.top
        targets = self.class_codes if self._classification else self.y
        ensure(self.cells.shape == (capacity, self.schema.n_features), "shape of cells")
        ensure(self.cells.flags.c_contiguous and self.cells.dtype == self.schema.cell_dtype, "layout of cells")
        ensure(len(targets) == len(self.id_hashes) == len(self.id_at) == capacity, "lengths of the arrays differ")
        held = self.slots()
        ensure(len(self) == len(held), "the number of samples is wrong")
        ensure(not self.held[top:].any(), "a slot above the top is held")
        names = list(self.slot_of)
        slots = np.fromiter(self.slot_of.values(), np.int64, len(names))
        ensure(np.array_equal(np.sort(slots), held), "ids and held slots differ")
        free = np.flatnonzero(~self.held)
        ensure(sorted(self.free) == free[free < top].tolist(), "the list of free slots is wrong")
        ensure([self.id_at[slot] for slot in slots.tolist()] == names, "an id is listed under another slot")
        ensure(np.array_equal(self.id_hashes[slots], hash_texts(names)), "the hash of an id is wrong")
        ensure(all(self.id_at[slot] is None for slot in free.tolist()), "a free slot has an id")
        for what, array in (
            ("cells", self.cells),
            ("targets", targets),
            ("id hashes", self.id_hashes),
            ("origins", self.origins),
        ):
            ensure(not np.ascontiguousarray(array[free]).view(np.uint8).any(), f"{what} of a free slot are not wiped")
        cells = self.cells[held]
        ensure(not np.isinf(cells).any(), "an infinity is held")
        ensure(not np.signbit(cells[cells == 0]).any(), "a negative zero is held")
        self.categories.check_invariants(cells)
        self.classes.check_invariants(self.class_codes[held] if self._classification else np.zeros(0, np.int64))
        self.expiries.check_invariants(self.held)
        self.additions.check_invariants(self.held)
        self.nonces.check_invariants(self.held)
        self.check_limits()
        self.check_weights()
        self.subjects.check_invariants(set(held.tolist()))
