"""Statistics of the labels by category, as further columns that trees read like numbers.

A split takes one category from all others, so that trees of a column with thousands of categories hardly begin. For
such a column there are columns beside it that say how the labels of a category's samples are:

    cells       [ shop 17 | 3.5 | ... ]      what the store holds
    read        [ shop 17 | 3.5 | ... | 2 ]  what bins, trees and predictions read: 2 is the statistic of shop 17

    classes     log((s + 10 p) / (n - s + 10 (1 - p))), n the weight of the category, s that of its class, which
                has the share p by F_0; one statistic for two classes, one a class for up to MOST_TARGETS, and of more
                classes one for those whose ranks are equal modulo MOST_TARGETS
    numbers     (s - n F_0) / (n + 10) / spread, s the sum of the targets times their weights

rounded by floor(f x + u), u drawn for the category, f the steps of a grid so coarse that a sample more or less seldom
moves a statistic: coarser with many classes, whose statistics are many and whose updates are dear. No sample may
see its own label: samples are dealt into N_FOLDS folds by a hash of their ids, and a sample reads the statistic of the
others' samples. Validation samples and queries read that of all samples that train.

Categories of little weight have no splits of their own: they are read as one category, RARE_CATEGORY. So are categories
that no sample has.

All of it is a function of the samples held. When a sample comes or goes, the statistics of its categories may move:
the samples that read another value then are *recoded*. For the trees they leave as they were and join as they are.
"""

import hashlib
from collections.abc import Sequence
from copy import copy
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from oubli.core.array_types import Array, Bools, Hashes, Ints, Slots
from oubli.core.boosting.loss import log
from oubli.core.boosting.quantised.state import TRAINS, Samples
from oubli.core.boosting.weights import units_of
from oubli.core.engine import copied, wrong_numbers
from oubli.core.jit import aligned
from oubli.core.jit.policy import kernel
from oubli.core.jit.targets import GRID
from oubli.core.rng import RARE_CATEGORY, combine, mix, unit
from oubli.core.samples.arrays import Data
from oubli.core.samples.fixed_point import BITS, quantise
from oubli.core.samples.hashing import hashes_of

N_FOLDS = 5
MOST_TARGETS = 8
STATISTICS, FOLDS = np.uint64(12), np.uint64(13)
_RARE = -1  # code of rare categories, whose hash is the last one
_WEIGHT = 10
_OF_TWO, _OF_MANY, _OF_NUMBERS = 2.0, 0.5, 8.0  # steps of the grid; of numbers in a spread
_LARGEST = 1000.0
_WHOLE = 1 << 32
_UNIT = np.int64(_WHOLE // GRID)
_ALL = N_FOLDS  # the part of validation samples and queries
_N_PARTS = N_FOLDS + 1


class Rule(NamedTuple):
    """What statistics are computed by."""

    shares: Ints  # int64[targets]: p in steps of 2**-32; empty in a regression
    fineness: float = 1.0  # f
    exponent: int = 0  # regression: of targets in fixed point
    scale: float = 0.0  # regression: a target's unit in spreads
    base: float = 0.0  # regression: F_0 in spreads


class Table(NamedTuple):
    """The categories of a column, ascending by hash, with what is counted by part: each fold, and those that validate.

    Counts are units of weights. So are the sums of classes; those of a regression are of targets in fixed point times
    weights: 2**38 over a size of 2**24 at most.
    """

    hashes: Hashes  # uint64[n]
    counts: Ints  # int64[n, parts]
    sums: Ints  # int64[n, parts, targets]: 0 of the part that validates
    values: npt.NDArray[np.int32]  # int32[n, parts, targets]: the statistics that samples of each part read

    def places(self, hashes: Hashes) -> tuple[Ints, Bools]:
        """Where some hashes are, and whether they are there."""
        if not len(self.hashes):
            return np.zeros(len(hashes), np.int64), np.zeros(len(hashes), np.bool_)
        places = np.minimum(np.searchsorted(self.hashes, hashes), len(self.hashes) - 1)
        return places, self.hashes[places] == hashes


@kernel
def estimate(hashes, counts, sums, rule, seed, column, values):
    """Write the statistics of some categories: each fold's of the others, the last part's of all folds."""
    key = combine(combine(mix(seed), STATISTICS), np.uint64(column))
    for i in range(hashes.shape[0]):
        for target in range(values.shape[2]):
            offset = unit(combine(combine(key, np.uint64(target)), hashes[i]))
            n_all, all_sum = np.int64(0), np.int64(0)
            for part in range(_ALL):
                n_all += counts[i, part]
                all_sum += sums[i, part, target]
            for part in range(_N_PARTS):
                n = n_all - (counts[i, part] if part < _ALL else 0)
                total = all_sum - (sums[i, part, target] if part < _ALL else 0)
                if rule.shares.shape[0] > 0:
                    share = rule.shares[target]
                    # A size of 2**24: below 2**57.
                    ours = np.float64(total * _UNIT + _WEIGHT * share)
                    others = np.float64((n - total) * _UNIT + _WEIGHT * (_WHOLE - share))
                    x = log(ours / others) * rule.fineness
                else:
                    weight = n / GRID
                    x = (total * rule.scale - weight * rule.base) / (weight + _WEIGHT) * rule.fineness
                if not -_LARGEST < x < _LARGEST:
                    x = _LARGEST if x > 0.0 else -_LARGEST
                values[i, part, target] = np.int32(np.floor(x + offset))


@kernel
def find_parts(id_hashes, roles, slots, seed, parts):
    """Write the fold of each sample that trains, and the last part for those that validate."""
    key = combine(mix(seed), FOLDS)
    for i in range(slots.shape[0]):
        slot = slots[i]
        fold = combine(key, id_hashes[slot]) % np.uint64(N_FOLDS)
        parts[i] = np.int64(fold) if roles[slot] & TRAINS != 0 else _ALL


class CategoryStatistics:
    """The statistics of all columns with many categories.

    Parameters
    ----------
    columns : with more than `least` categories.
    categorical : bool[d], of the columns that the store holds.
    least : weight that a category of these columns has unless it is rare.
    rule, seed : what they are computed by.
    """

    def __init__(self, columns: Sequence[int], categorical: Bools, least: int, rule: Rule, seed: int) -> None:
        self.columns, self.least, self.rule, n_targets = tuple(columns), least, rule, max(len(rule.shares), 1)
        self.n_targets = n_targets
        self.seed = np.uint64(seed)
        self.n_stored = len(categorical)
        self.categorical = np.concatenate([categorical, np.zeros(len(self.columns) * n_targets, np.bool_)])
        self.tables = [self._table(np.zeros(0, np.uint64)) for _ in self.columns]

    def __len__(self) -> int:
        return len(self.columns)

    @property
    def sources(self) -> Ints:
        """The column held that each column read is of."""
        return np.concatenate([np.arange(self.n_stored), np.repeat(np.array(self.columns, np.int64), self.n_targets)])

    def _table(self, hashes: Hashes) -> Table:
        shape = len(hashes), _N_PARTS, self.n_targets
        return Table(hashes, np.zeros(shape[:2], np.int64), np.zeros(shape, np.int64), np.zeros(shape, np.int32))

    def _estimate(self, index: int, table: Table, places: Any = slice(None)) -> None:
        """Compute the statistics of some categories again."""
        values = np.zeros_like(table.values[places])
        counted = table.hashes[places], table.counts[places], table.sums[places]
        estimate(*counted, self.rule, self.seed, self.columns[index], values)
        table.values[places] = values

    def _parts(self, data: Data, samples: Samples, slots: Slots) -> Ints:
        parts = np.zeros(len(slots), np.int64)
        find_parts(data.id_hashes, samples.roles, slots, self.seed, parts)
        return parts

    def _targets(self, samples: Samples, slots: Slots) -> Ints:
        """What sums add up, int64[n, targets]; 0 of samples that do not train."""
        trains = ((samples.roles[slots] & TRAINS) != 0)[:, np.newaxis]
        if len(samples.y):
            return quantise(np.where(trains, samples.y[slots, np.newaxis], 0.0), self.rule.exponent)
        labels, n = samples.labels[slots, np.newaxis], self.n_targets
        return GRID * np.asarray((labels % n == np.arange(n) if n > 1 else labels == 1) & trains, np.int64)

    # -- following the samples ------------------------------------------------------------------

    def move(self, data: Data, samples: Samples, slots: Slots, sign: int, others: Slots) -> Slots:
        """Count samples that come (1), or count them no more (-1).

        others : all samples held but these.

        Returns
        -------
        those of the others that read other values now; ascending.
        """
        parts, units = self._parts(data, samples, slots), units_of(samples.units, slots)
        targets = (self._targets(samples, slots) * units[:, np.newaxis] + GRID // 2) // GRID
        recoded = [others[:0]]
        for index, column in enumerate(self.columns):
            keys = hashes_of(data.cells[slots, column], data.category_hashes)
            table = self._with(index, np.unique(keys))
            places, _ = table.places(keys)
            touched = np.unique(places)
            values, is_rare = table.values[touched], self._is_rare(table, touched)
            np.add.at(table.counts, (places, parts), sign * units)
            np.add.at(table.sums, (places, parts), sign * targets)
            self._estimate(index, table, touched)
            has_changed = (values != table.values[touched]).any(axis=2)
            has_changed[is_rare != self._is_rare(table, touched)] = True
            if has_changed.any() and len(others):
                recoded.append(self._readers(data, samples, column, others, table.hashes[touched], has_changed))
            is_held = table.counts.any(axis=1)
            if is_held.all():
                self.tables[index] = table
            else:
                self.tables[index] = Table._make(array[is_held] for array in table)
                aligned.shred(table)
        return np.unique(np.concatenate(recoded))

    def _with(self, index: int, hashes: Hashes) -> Table:
        """The table of a column with room for some categories."""
        table = self.tables[index]
        new = hashes[~table.places(hashes)[1]]
        if not len(new):
            return table
        at = np.searchsorted(table.hashes, new)
        rows: list[tuple[Array, Array]] = list(zip(table, self._table(new), strict=True))
        wider = Table._make(np.insert(kept, at, added, axis=0) for kept, added in rows)
        aligned.shred(table)
        return wider

    def _is_rare(self, table: Table, places: Any = slice(None)) -> Bools:
        return np.asarray(table.counts[places].sum(axis=1) < self.least * GRID)

    def _readers(
        self, data: Data, samples: Samples, column: int, others: Slots, hashes: Hashes, has_changed: Bools
    ) -> Slots:
        """The samples that are of some categories and parts; has_changed: bool[categories, parts]."""
        keys = hashes_of(data.cells[others, column], data.category_hashes)
        places = np.minimum(np.searchsorted(hashes, keys), len(hashes) - 1)
        is_found = hashes[places] == keys
        found = others[is_found]
        return np.asarray(found[has_changed[places[is_found], self._parts(data, samples, found)]])

    # -- reading --------------------------------------------------------------------------------

    def read(self, data: Data, samples: Samples, slots: Slots) -> Array:
        """What trees read of some samples held."""
        return self._read(data.cells[slots], data.category_hashes, self._parts(data, samples, slots))

    def read_queries(self, cells: Array, category_hashes: Hashes) -> tuple[Array, Hashes]:
        """What trees read of rows, and the hashes that go with it."""
        return self._read(cells, category_hashes, np.full(len(cells), _ALL)), self.hashes(category_hashes)

    def hashes(self, category_hashes: Hashes) -> Hashes:
        """The hashes of categories by code, that of rare ones last, for the code -1."""
        return np.append(category_hashes, RARE_CATEGORY)

    def _read(self, stored: Array, category_hashes: Hashes, parts: Ints) -> Array:
        cells = np.zeros((len(stored), len(self.categorical)), stored.dtype)
        cells[:, : self.n_stored] = stored
        for index, (column, table) in enumerate(zip(self.columns, self.tables, strict=True)):
            keys = hashes_of(stored[:, column], category_hashes)
            places, is_held = table.places(keys)
            is_rare = ~is_held
            is_rare[is_held] = self._is_rare(table, places[is_held])
            values = np.zeros((len(keys), self.n_targets), np.int32)
            values[is_held] = table.values[places[is_held], parts[is_held]]
            if not is_held.all():
                unknown = self._table(keys[~is_held])
                self._estimate(index, unknown)
                values[~is_held] = unknown.values[:, _ALL]
            cells[is_rare, column] = _RARE
            first = self.n_stored + index * self.n_targets
            cells[:, first : first + self.n_targets] = values
        return cells

    def digest(self) -> str:
        """SHA-256 of what predictions read: categories, whether they are rare, and their statistics."""
        found = hashlib.sha256()
        for column, table in zip(self.columns, self.tables, strict=True):
            sizes = np.array([column, len(table.hashes), self.n_targets])
            for array in (sizes, table.hashes, self._is_rare(table), table.values[:, _ALL]):
                found.update(array.astype("<u8").tobytes())
        return found.hexdigest()

    # -- keeping and checking -------------------------------------------------------------------

    def copy(self) -> "CategoryStatistics":
        """An independent copy."""
        other = copy(self)
        other.tables = [copied(table) for table in self.tables]
        return other

    def shred(self) -> None:
        """Overwrite what is counted; the statistics cannot be used afterwards."""
        aligned.shred(array for table in self.tables for array in table)

    def differences(self, fresh: "CategoryStatistics") -> list[str]:
        """Name what is counted differently from fresh statistics."""
        if self.columns != fresh.columns:
            return [f"the columns with statistics: {self.columns} kept, {fresh.columns} recounted"]
        wrong = []
        for column, ours, its in zip(self.columns, self.tables, fresh.tables, strict=True):
            name = f"the statistics of column {column}"
            wrong += [] if np.array_equal(ours.hashes, its.hashes) else [f"{name}: the categories"]
            for what in ("counts", "sums", "values"):
                kept, recounted = getattr(ours, what), getattr(its, what)
                wrong += wrong_numbers(f"{name}: {what}", kept, recounted, category=None, part=None)
        return wrong


def rule_of_classes(shares: Sequence[int]) -> Rule:
    """The rule of classes, whose shares by rank are in steps of 2**-32; of two classes the second one's share."""
    n_targets = min(len(shares), MOST_TARGETS)
    added = [sum(shares[rank::n_targets]) for rank in range(n_targets)]
    limited = np.array([min(max(share, 1), _WHOLE - 1) for share in added], np.int64)
    return Rule(limited, _OF_TWO if n_targets == 1 else _OF_MANY)


def rule_of_numbers(exponent: int, base: float, spread: float) -> Rule:
    """The rule of a regression, whose targets are multiples of 2**(exponent - BITS)."""
    inverse = 1.0 / spread
    return Rule(np.zeros(0, np.int64), _OF_NUMBERS, exponent, float(np.ldexp(inverse, exponent - BITS)), base * inverse)
