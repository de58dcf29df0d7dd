"""The engine behind `quantization`: exact boosting in which many updates change no leaf.

The trees are defined so that they hardly depend on any one sample, and are still a function of the set of samples:

    bins.py         bins: edges are values of samples that a hash of their ids chooses
    candidates.py   candidates of each iteration: a share of the edges, chosen likewise
    regions.py      parts of the samples that no update of another part concerns
    derivatives.py  F_0 on a coarse grid; derivatives on a coarse grid, rounded by a hash of the id
    split.py        the best candidate splits
    grow.py         one iteration after the other; leaf values on a coarse grid, rounded by a hash of their path
    update.py       the update that gives the same result
    statistics.py   of columns with many categories: further columns, of the labels by category

One sample more or less changes the sums along its own paths. Unless that moves a rounded number, nothing else happens.
"""

from collections.abc import Generator, Iterator
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, NamedTuple, Self

import numpy as np
import numpy.typing as npt

from oubli.core.array_types import Array, Arrays, Bools, Ints, Reals, Slots
from oubli.core.boosting.engine import BoostedLook, ExactEngine
from oubli.core.boosting.incremental.parameters import IncrementalSettings
from oubli.core.boosting.loss import POISSON
from oubli.core.boosting.parameters import check_size, n_groups
from oubli.core.boosting.quantised import bins as binning
from oubli.core.boosting.quantised import derivatives, serialise
from oubli.core.boosting.quantised import state as s
from oubli.core.boosting.quantised import workspace as room
from oubli.core.boosting.quantised.bins import EdgeTable
from oubli.core.boosting.quantised.blocks import ThreadedTraining, sum_first_in_threads
from oubli.core.boosting.quantised.candidates import make_plans
from oubli.core.boosting.quantised.grow import DONE, NO_BLOCKS, TOO_MUCH, grow_iterations
from oubli.core.boosting.quantised.invariants import differences, loose_ends
from oubli.core.boosting.quantised.regions import Chooser, no_regions
from oubli.core.boosting.quantised.relabel import add_categories, drop_categories, update_edges
from oubli.core.boosting.quantised.split import (
    MOST_LEVELS,
    Steadiness,
    below_regions,
    grids_of_numbers,
    least_level,
    make_rules,
    most_levels,
    regression_steadiness,
    steadiness,
)
from oubli.core.boosting.quantised.statistics import CategoryStatistics, Rule, rule_of_classes, rule_of_numbers
from oubli.core.boosting.quantised.update import reach, update_iterations
from oubli.core.boosting.state import Trees, no_trees
from oubli.core.boosting.targets import Start, TargetSums, log_scale
from oubli.core.boosting.weights import units_of
from oubli.core.engine import Progress, copied, wrong_numbers
from oubli.core.jit import aligned
from oubli.core.rng import mix
from oubli.core.samples.arrays import Problem

_COARSEST = 0.5  # grid of gradients that is made by doubling

_SLICE = 0.02  # seconds of one slice of a change, roughly
# Some changes move where boosting starts, so that all trees are grown again: seldom those of a small share of the
# samples held. Binning a cell of all samples again, which is one slice, takes so many seconds, and no more may in all.
_FEW = 0.002
_BINNING, _LONGEST_BINNING = 6e-8, 0.05

_FEWER_OF_CLASSES, _FEWER_OF_NUMBERS = 4, 2  # within regions an iteration looks at so many times fewer candidates


@dataclass(frozen=True)
class LastUpdate:
    """What the last update did.

    Attributes
    ----------
    nothing_changed : no split, no leaf's value; only sums.
    first_tree : the first tree that changed; -1 when none did.
    n_touched : samples held whose derivatives changed, over all trees.
    n_trees_rebuilt : trees that changed.
    n_nodes_rebuilt : nodes below which everything was rebuilt.
    n_members : samples in these.
    grown_from : the first of the iterations that were grown from nothing; -1 when none was.
    n_recoded : samples held of which trees read other statistics of categories.
    """

    nothing_changed: bool = False
    first_tree: int = 0
    n_touched: int = 0
    n_trees_rebuilt: int = 0
    n_nodes_rebuilt: int = 0
    n_members: int = 0
    grown_from: int = 0
    n_recoded: int = 0


class Moved(NamedTuple):
    """Who comes and goes for the trees in an update, by slot."""

    going: Slots
    coming: Slots
    recoded: Slots  # samples held that are among those that go ...
    stand_ins: Slots  # ... and among those that come in these slots


def read_report(report: Ints, groups: int, grown_from: int) -> LastUpdate:
    """Read what the kernels reported; grown_from: the first of the iterations grown from nothing, or -1."""
    first = int(report[s.FIRST_TREE])
    if first < 0 and grown_from >= 0:
        first = grown_from * groups
    n_touched, n_trees, n_nodes, n_members = report[[s.N_TOUCHED, s.N_TREES, s.N_NODES, s.N_MEMBERS]].tolist()
    return LastUpdate(first < 0, first, n_touched, n_trees, n_nodes, n_members, grown_from)


class QuantisedTrees(ExactEngine):
    """Boosted trees on grids: the engine of `quantization`."""

    format = 3  # 1: no regions; 2: no statistics of categories, no least level of edges
    bytes_asked = staticmethod(serialise.bytes_asked)

    settings: IncrementalSettings
    statistics: CategoryStatistics

    def __init__(self, settings: IncrementalSettings, *columns: Any) -> None:
        super().__init__(settings, *columns)
        self.seed = np.uint64(settings.seed)
        self._seed_key = np.uint64(mix(self.seed))
        self.forget()

    def forget(self) -> None:
        self.groups = 0
        self.n_iterations = 0
        self.n_predicting = 0
        self._all_train = False
        self._has_other_candidates = False
        self.n_training = self.n_held = 0
        self.statistics = CategoryStatistics((), self.categorical, 0, Rule(np.zeros(0, np.int64)), self.settings.seed)
        self.cells: Array = np.zeros((0, 0), self.cell_dtype)
        self.edges = EdgeTable(~self.categorical, self.settings.max_bins - 1, 0, self.settings.seed)
        self.sums = TargetSums(self.kind, self.settings.level)
        self.regions = no_regions()
        self._most_levels = 0
        self.class_counts = np.zeros(0, np.int64)
        self.category_counts = np.zeros(0, np.int64)
        self.read_trees: Trees | None = no_trees()
        self.work: Arrays | None = None
        self.last_update = LastUpdate()
        self._allocate_samples(0)

    def _allocate_samples(self, capacity: int) -> None:
        self.capacity = capacity
        self.roles = np.zeros(capacity, np.uint8)
        self.labels = np.zeros(capacity, np.int32)
        self.rounding = np.zeros(capacity, np.uint32)
        self.n_training = self.n_held = 0

    # -- growing --------------------------------------------------------------------------------

    def train_on(self, problem: Problem, slots: Slots, progress: Progress | None = None) -> None:
        last = self.settings.n_estimators
        for done in self.training_on(problem, slots, 1 if progress is not None else last):
            if progress is not None and done:
                progress(done * self.groups, last * self.groups)

    def training_on(self, problem: Problem, slots: Slots, step: int) -> Iterator[int]:
        """Train on samples, so many iterations at a time; yields how many there are."""
        if not len(slots):
            return
        self._allocate_samples(len(problem.data.cells))
        self._enter(problem, slots)
        self._count_targets(problem, slots)
        yield 0
        groups = n_groups(problem, self.n_training)
        check_size(self.settings.n_estimators, groups, 2 ** (self.settings.max_depth + MOST_LEVELS + 1) - 1)
        if groups:
            self.groups = groups
            self.start = self._start_now()
            self._steadiness = self._steadiness_now()
            self.loss = self._make_loss()
            self.first = np.zeros((self.groups, self.capacity), np.int64)
            self._make_statistics(problem, slots)
            read = self.as_read(problem)
            least = least_level(self.n_training, self.settings.seed)
            self.edges = EdgeTable(~read.data.categorical, self.settings.max_bins - 1, least, self.settings.seed)
            yield 0
            self.edges.collect(read.data.cells, read.data.id_hashes, slots, self.n_threads)
            yield 0
            self._prepare(read, slots)
            yield 0
            yield from self._train(self._samples(read), slots, 0, step)

    def _refit(self, problem: Problem, slots: Slots, step: int) -> Iterator[None]:
        """Do what `refit` does, so many iterations at a time."""
        other = self.aside()
        other.forget()
        for _ in other.training_on(problem, slots, step):
            yield
        with self.changes:
            self.become(other)

    def _make_statistics(self, problem: Problem, slots: Slots) -> None:
        """Find the statistics of the columns with many categories, and what trees read, if there are any."""
        n_held = [len(found) for found in binning.find_categories(problem.data, slots)]
        columns = self._columns_with_statistics(n_held)
        if not columns:
            return
        if self.is_classification:
            shares = np.zeros(self.groups, np.int64)
            derivatives.write_shares(self.loss, self.start.scores, shares)
            rule = rule_of_classes(shares.tolist())
        else:
            rule = rule_of_numbers(self.sums.exponent, self.start.base, self.start.spread)
        least, samples = self.settings.category_statistics, self._samples(problem)
        self.statistics = CategoryStatistics(columns, self.categorical, least, rule, self.settings.seed)
        self.statistics.move(problem.data, samples, slots, 1, slots[:0])
        self.cells = np.zeros((self.capacity, len(self.statistics.categorical)), problem.data.cells.dtype)
        self.cells[slots] = self.statistics.read(problem.data, samples, slots)

    def _columns_with_statistics(self, n_held: list[int]) -> tuple[int, ...]:
        """The columns with many categories, of so many held by column."""
        most = self.settings.category_statistics
        return tuple(column for column, n in enumerate(n_held) if most and n > most)

    def as_read(self, problem: Problem, moved: Moved | None = None) -> Problem:
        """The problem with the cells that trees read, and what else is read of the slots that `moved` names."""
        if not self.statistics:
            return problem
        data = problem.data
        by_slot: list[Array] = [data.id_hashes, problem.y, problem.units]
        for i, array in enumerate(by_slot):
            if len(array):  # there may be no targets, and no weights
                by_slot[i] = room.longer(array, 0, max(self.capacity, len(array)))
                if moved is not None:
                    by_slot[i][moved.stand_ins] = array[moved.recoded]
        id_hashes, y, units = by_slot
        hashes, categorical = self.statistics.hashes(data.category_hashes), self.statistics.categorical
        read = data._replace(cells=self.cells, id_hashes=id_hashes, category_hashes=hashes, categorical=categorical)
        return problem._replace(data=read, y=y, units=units)

    def _samples(self, problem: Problem) -> s.Samples:
        return s.Samples(self.roles, self.labels, problem.y, self.rounding, self.first, problem.units)

    def _model(self, samples: s.Samples) -> s.Model:
        return s.Model(
            self.forest, self.bins, self.plans, self.rules, samples, self.scores, self.space, self.loss, self._seed_key
        )

    def _enter(self, problem: Problem, slots: Slots) -> None:
        data, limit = problem.data, self.settings.validation_limit
        derivatives.enter(
            self.roles, self.labels, self.rounding, data.id_hashes, problem.class_codes, problem.ranks, slots,
            self.seed, limit, self.is_classification,
        )  # fmt: skip

    def _count_targets(self, problem: Problem, slots: Slots) -> None:
        """Count what F_0 depends on."""
        self._all_train = not (self.roles[slots] == s.TRAINS).any()
        if self._all_train:  # rather than that none does
            self.roles[slots] = s.TRAINS
        training = slots[self.roles[slots] == s.TRAINS]
        self.n_training, self.n_held = len(training), len(slots)
        if self.is_classification:
            self.class_counts = np.zeros(problem.n_classes, np.int64)
            np.add.at(self.class_counts, self.labels[training], units_of(problem.units, training))
        else:
            self.sums.recount(problem.y[training], self._units(problem, training), self.settings.seed)

    def _units(self, problem: Problem, slots: Slots) -> npt.NDArray[np.int32]:
        return problem.units[slots] if len(problem.units) else problem.units

    @property
    def _directions(self) -> Ints:
        """Monotone constraints, by column that trees read; empty when there is none."""
        monotone, n_read = self.settings.monotone, len(self.features.categorical)
        return np.array((*monotone, *[0] * (n_read - len(monotone))) if monotone else (), np.int64)

    def _start_now(self) -> Start:
        if not self.is_classification:
            return self.sums.start(self.settings.seed)
        unit = self.settings.learning_rate * self.settings.leaf_grid
        return derivatives.class_start(self.class_counts, self.groups, unit, self.settings.seed)

    @property
    def _validates(self) -> bool:
        """Whether training may end early: there are samples to validate on."""
        return self.settings.patience > 0 and self.n_held > self.n_training

    def _prepare(self, problem: Problem, slots: Slots) -> None:
        """Make bins, candidates, tables and room."""
        settings, data = self.settings, problem.data
        categories = binning.find_categories(data, slots)
        self.features = binning.make_features(self.edges.edges, categories, data.categorical)
        self.bins = binning.make_bins(self.features, data, slots, self.n_threads)
        self.category_counts = binning.count_categories(self.features, self.bins, data.categorical, slots)
        self.live_edges = np.ones(len(self.features.edges), np.bool_)
        self.live_categories = np.ones(len(self.features.categories), np.bool_)
        samples = self._samples(problem)
        derivatives.derive_first(self.loss, self.start.scores, samples, slots)
        self._most_levels = most_levels(
            self.n_training, self.groups, settings.seed, is_classification=self.is_classification
        )
        self.regions = self._chooser().find(self._most_levels, samples, slots)
        self.loss = self._make_loss()
        levels, capacity = self.regions.levels, self.capacity
        steady = below_regions(self._steadiness, levels)
        depth = steady.depth
        self.rules = make_rules(settings, self.loss, self.groups, steady, self.regions.cuts, self._directions)
        m = settings.n_estimators
        self.plans = make_plans(self.features, self.bins, m, settings.seed, self.share)
        n_places = self.plans.cuts.shape[1]
        self.scores = room.new_scores(m, capacity, self.start.scores)
        self.scores.new[:, slots] = self.start.scores[:, np.newaxis]
        self.scores.kept[0] = self.scores.new
        self.forest = room.new_forest(m * self.groups, depth, capacity, n_places)
        self.space = room.new_space(self.groups, depth, levels, capacity, n_places, int(self.bins.first_bin[-1]))

    def state(self) -> room.State:
        """Everything kept, of an engine with trees."""
        return room.State(*(getattr(self, name) for name in room.State._fields))

    @property
    def n_labels(self) -> int:
        """Labels of the leaves of a tree."""
        return int(2**self.rules.depth)

    @property
    def share(self) -> float:
        """Of the candidates that an iteration looks at: fewer for the smaller nodes of regions."""
        fewer = _FEWER_OF_CLASSES if self.is_classification else _FEWER_OF_NUMBERS
        return self.settings.split_sampling / (fewer if self.regions.levels else 1)

    def _chooser(self) -> Chooser:
        live = self.live_edges, self.live_categories
        return Chooser(self.features, self.bins, *live, self.settings.seed, self._directions)

    def _part(self, problem: Problem, moved: Moved, held: Slots) -> bool:
        """Let samples come to their regions, and go; False when the regions are others now."""
        if not self._most_levels:
            return True
        chooser, samples = self._chooser(), self._samples(problem)
        if self._has_other_candidates:
            rest = np.concatenate([np.setdiff1d(held, moved.going), moved.coming])
            self.regions, cuts = chooser.find(self._most_levels, samples, rest), self.regions.cuts
            return np.array_equal(self.regions.cuts, cuts)
        steps = ((moved.going, -1), (moved.coming, 1))
        return all(chooser.move(self.regions, samples, slots, sign) for slots, sign in steps if len(slots))

    def _steadiness_now(self) -> Steadiness:
        if not self.is_classification:
            return regression_steadiness(self.settings.max_depth)
        return steadiness(self.n_training, self.settings.max_depth, self.settings.seed)

    def _make_loss(self) -> s.Loss:
        settings, start = self.settings, self.start
        if self.is_classification:
            coarsest = max(settings.gradient_grid, _COARSEST)
            grid = min(settings.gradient_grid * 2**self._steadiness.coarsening, coarsest)
            kind = derivatives.BINARY if self.groups == 1 else derivatives.MULTICLASS
            return derivatives.make_loss(kind, grid, settings.learning_rate * settings.leaf_grid)
        gradient_grid, leaf_grid = grids_of_numbers(settings, self.regions.levels)
        unit = settings.learning_rate * leaf_grid * (log_scale(start) if self.kind == POISSON else start.spread)
        return derivatives.make_loss(
            self.kind or derivatives.REGRESSION, gradient_grid, unit, start.base, start.spread, settings.level
        )

    def _train(
        self, samples: s.Samples, slots: Slots, begin: int, step: int, grows: Bools | None = None
    ) -> Iterator[int]:
        """Grow the iterations from `begin` on, from the scores before it, so many at a time.

        grows : in which regions; all if omitted.

        Yields how many iterations there are.
        """
        report = np.zeros(s.REPORT_SIZE, np.int64)
        report[s.BEST_ITERATION] = int(self.scores.losses[:begin].argmin()) if begin else 0
        patience, last = self.settings.patience if self._validates else 0, self.settings.n_estimators
        self.space.grows[:] = 1 if grows is None else grows
        slots, bounds = self._chooser().sort(self.regions, np.sort(slots))
        is_in = np.repeat(self.space.grows == 1, np.diff(bounds))
        np.cumsum(np.diff(bounds) * self.space.grows, out=self.space.bounds[1:])
        slots32 = slots[is_in].astype(np.int32)
        sum_first_in_threads(self.bins.rows, self.first, slots32, self.space, self.n_threads)
        in_threads = self.in_threads(ThreadedTraining, self._model(samples), slots32)
        values = np.zeros(self.n_labels + 1, np.int32)
        done = begin
        try:
            while done < last:
                end = min(done + step, last)
                model = self._model(samples)
                if in_threads is not None:
                    done, status = in_threads.grow_iterations(model, report, done, end, patience)
                else:
                    done, status = grow_iterations(model, slots32, values, report, done, end, patience)
                if status == NO_BLOCKS:
                    self.forest = room.with_more_blocks(self.forest, self.groups)
                else:
                    yield done
                if status == DONE and (done < end or self._has_ended(done, int(report[s.BEST_ITERATION]))):
                    break
        finally:
            if in_threads is not None:
                in_threads.erase()
        self._finish(done, int(report[s.BEST_ITERATION]))

    def _has_ended(self, done: int, best: int) -> bool:
        return self._validates and done - 1 - best >= self.settings.patience

    def _finish(self, done: int, best: int) -> None:
        """Note how many iterations there are, and how many of them predict."""
        self.n_iterations = done
        self.n_predicting = best + 1 if self._validates else done
        self.read_trees = None

    # -- updating -------------------------------------------------------------------------------

    def join(self, problem: Problem, slots: Slots) -> None:
        for _ in self._join(problem, slots, self.settings.n_estimators):
            pass

    def leave(self, problem: Problem, slots: Slots) -> None:
        for _ in self._change(problem, slots, np.flatnonzero(self.roles), -1, self.settings.n_estimators):
            pass

    def _slice_size(self, problem: Problem) -> int:
        """Iterations in a slice of a change: updating one takes as long as growing it, at most."""
        return max(1, int(_SLICE * self.settings.n_estimators / self.seconds_to_fit(problem)))

    def can_be_sliced(self, n_changed: int, problem: Problem, *, lazy: bool, is_queried: bool) -> bool:
        n_samples = max(problem.n_samples, n_changed)
        is_short = n_samples * self.n_features * _BINNING <= _LONGEST_BINNING
        return self.n_trees > 0 and (is_short or n_changed <= max(1, _FEW * n_samples))

    def reader(self) -> Self:
        other = self.aside()
        other.read_trees = self.trees  # arrays of their own, which no change writes to
        return other

    def change_in_slices(self, problem: Problem, slots: Slots, sign: int) -> Iterator[None]:
        size, before = self._slice_size(problem), self.statistics
        self.statistics = before.copy()  # readers between two slices have those before
        try:
            if sign > 0:
                yield from self._join(problem, slots, size)
                self.n_mutations += len(slots)
            elif len(slots) == problem.n_samples or problem.changes_classes(slots):
                yield from self._refit(*problem.without(slots), size)
                self.n_mutations = 0  # as `delete` does
            else:
                yield from self._change(problem, slots, np.flatnonzero(self.roles), -1, size)
                self.n_mutations += len(slots)
        finally:
            before.shred()

    def _join(self, problem: Problem, slots: Slots, step: int) -> Iterator[None]:
        """Learn samples that have just joined the others, so many iterations at a time."""
        held = np.flatnonzero(self.roles)
        check_size(self.settings.n_estimators, self.groups, 2 * self.n_labels - 1)
        if not self.groups or self._all_train or n_groups(problem, 1) != self.groups:
            yield from self._refit(problem, np.concatenate([held, slots]), step)
            return
        self._widen(len(problem.data.cells))
        yield from self._change(problem, slots, held, 1, step)

    def _change(self, problem: Problem, slots: Slots, held: Slots, sign: int, step: int) -> Iterator[None]:
        """Follow samples that come (1) or go (-1), so many iterations at a time; grow all again if that has to be."""
        self.changes.undo = None
        try:
            is_done = yield from self._follow(problem, slots, held, sign, step)
        except MemoryError:
            is_done = False  # growing all again needs nothing that was left halfway, and gives the same trees
        if not is_done:
            held = np.concatenate([held, slots]) if sign > 0 else np.setdiff1d(held, slots)
            yield from self._refit(problem, held, step)

    def _follow(self, problem: Problem, slots: Slots, held: Slots, sign: int, step: int) -> Generator[None, None, bool]:
        """The same; False when all has to be grown again."""
        validated = self._validates
        if sign > 0:
            self._enter(problem, slots)
        if not self._move_targets(problem, slots, sign) or self._validates != validated:
            return False
        moved = self._recode(problem, slots, held, sign)
        change = self._make_change(moved)
        read = self.as_read(problem, moved)
        if not self._move_bins(read, moved, held) or not self._part(read, moved, held):
            return False
        yield from self._update(read, moved, change, step)
        self._settle(moved)
        return True

    def _recode(self, problem: Problem, slots: Slots, held: Slots, sign: int) -> Moved:
        """Bring statistics up to date, and find who comes and goes for the trees: samples that are recoded do both.

        As they will be, these are in free slots until the trees are up to date.
        """
        none = slots[:0]
        statistics, data, samples = self.statistics, problem.data, self._samples(problem)
        if not statistics:
            return Moved(*((none, slots) if sign > 0 else (slots, none)), none, none)
        recoded = statistics.move(data, samples, slots, sign, held if sign > 0 else np.setdiff1d(held, slots))
        free = np.flatnonzero(self.roles == 0)
        if len(free) < len(recoded):
            self._widen(self.capacity + max(len(recoded), self.capacity // 8))
            free, samples = np.flatnonzero(self.roles == 0), self._samples(problem)
        stand_ins = free[: len(recoded)]
        self.cells[stand_ins] = statistics.read(data, samples, recoded)
        for array in (self.roles, self.labels, self.rounding):
            array[stand_ins] = array[recoded]
        if sign < 0:
            return Moved(np.concatenate([slots, recoded]), stand_ins, recoded, stand_ins)
        self.cells[slots] = statistics.read(data, samples, slots)
        return Moved(recoded, np.concatenate([slots, stand_ins]), recoded, stand_ins)

    def _settle(self, moved: Moved) -> None:
        """Let samples that were recoded have their slots again; what goes leaves no cell."""
        if not self.statistics:
            return
        recoded, stand_ins = moved.recoded, moved.stand_ins
        self.cells[moved.going] = 0
        samples = s.Samples(self.roles, self.labels, np.zeros(0), self.rounding, self.first, np.zeros(0, np.int32))
        room.move(samples, self.bins, self.scores, self.forest, stand_ins, recoded)
        self.cells[recoded] = self.cells[stand_ins]
        self.cells[stand_ins] = 0
        self.last_update = replace(self.last_update, n_recoded=len(recoded))

    def _move_bins(self, problem: Problem, moved: Moved, held: Slots) -> bool:
        """Take samples into bins and counters, and out of them; False when all has to be grown again."""
        data, changed = problem.data, set[int]()
        for slots, sign in ((moved.going, -1), (moved.coming, 1)):
            if not len(slots):
                continue
            others, is_known = self.edges.count(data.cells, data.id_hashes, slots, sign)
            changed |= set(others)
            if not is_known:
                return False
        self._move_categories(moved.going, -1)
        if not update_edges(self.state(), self._model(self._samples(problem)), data, held, sorted(changed)):
            return False
        is_done, has_new = add_categories(self.state(), data, moved.coming)
        if not is_done or not binning.encode(self.features, data, moved.coming, self.bins.codes):
            return False
        self._move_categories(moved.coming, 1)
        is_done, has_gone = drop_categories(self.state())
        self._has_other_candidates = bool(changed) or has_new or has_gone
        if not is_done or self._columns_with_statistics(self._n_categories()) != self.statistics.columns:
            return False
        self._write_rows(moved.coming)
        derivatives.derive_first(self.loss, self.start.scores, self._samples(problem), moved.coming)
        return True

    def _n_categories(self) -> list[int]:
        """Categories held, by column of the store."""
        bounds = self.features.first_category[: self.n_features + 1].tolist()
        n_held = [int(self.live_categories[first:last].sum()) for first, last in pairwise(bounds)]
        for column, table in zip(self.statistics.columns, self.statistics.tables, strict=True):
            n_held[column] = len(table.hashes)
        return n_held

    def _write_rows(self, slots: Slots) -> None:
        """Write the rows of samples whose codes are written, with room for the longest."""
        bins = self.bins
        common_code = np.where(bins.common_bin < 0, -1, bins.common_bin - bins.first_bin[:-1])
        lengths = np.zeros(512, np.int64)
        longest = int(binning.longest_row(bins.codes, common_code.astype(np.int32), slots, lengths))
        if longest > bins.rows.shape[1]:
            rows = np.full((self.capacity, longest), bins.first_bin[-1], bins.rows.dtype)
            rows[:, : bins.rows.shape[1]] = bins.rows
            bins = self.bins = bins._replace(rows=rows)
        binning.write_rows(bins.codes, bins.first_bin, bins.common_bin, slots, bins.rows, lengths)

    def _move_categories(self, slots: Slots, sign: int) -> None:
        for column in np.flatnonzero(self.features.categorical).tolist():
            np.add.at(self.category_counts, self.bins.codes[column, slots] + self.features.first_category[column], sign)

    def _move_targets(self, problem: Problem, slots: Slots, sign: int) -> bool:
        training = slots[self.roles[slots] == s.TRAINS]
        self.n_training += sign * len(training)
        self.n_held += sign * len(slots)
        if not self.n_training:
            return False
        if self.is_classification:
            np.add.at(self.class_counts, self.labels[training], sign * units_of(problem.units, training))
        elif not self.sums.count(problem.y[training], self._units(problem, training), sign):
            return False
        size, before = self._steadiness_now(), self._steadiness
        if (size.top, size.coarsening) != (before.top, before.coarsening):
            return False
        if least_level(self.n_training, self.settings.seed) != self.edges.least:  # the most levels move with it
            return False
        start, old = self._start_now(), self.start
        return (start.base, start.spread, start.scores.tolist()) == (old.base, old.spread, old.scores.tolist())

    def _update(self, problem: Problem, moved: Moved, change: s.Change, step: int) -> Iterator[None]:
        """Bring the trees up to date for samples that come and go; bins and counters are."""
        samples, going, coming = self._samples(problem), moved.going, moved.coming
        slots = np.concatenate([going, coming])
        patience = self.settings.patience if self._validates else 0
        change.report[s.CHECKS_ALL] = self._has_other_candidates
        start = self.start.scores[:, np.newaxis]
        self.scores.old[:, going] = start
        self.scores.new[:, coming] = start
        self.scores.kept[0][:, coming] = start
        _, bounds = self._chooser().sort(self.regions, slots)
        concerned = np.diff(bounds) > 0
        samples.roles[slots] |= s.MOVING
        report, done, status, before = change.report, 0, NO_BLOCKS, self.n_iterations
        n_concerned = int(self._sizes()[concerned].sum())
        while status != TOO_MUCH and done < before and not self._has_ended(done, int(report[s.BEST_ITERATION])):
            yield  # what comes before the first iteration may have taken as long as a slice
            end = min(done + step, before)
            done, status = update_iterations(
                self._model(samples), change, n_concerned, int(concerned.sum()), done, end, patience
            )
            if status == NO_BLOCKS:
                self.forest = room.with_more_blocks(self.forest, self.groups)
        goes_on = not self._has_ended(done, int(report[s.BEST_ITERATION])) and done < self.settings.n_estimators
        if goes_on:
            reach(self.forest, self.scores, change, done, self.rules.depth)
        samples.roles[coming] ^= s.MOVING
        room.erase(samples, self.bins, self.scores, going)
        self.forest.leaf_of[done * self.groups :, going] = self.n_labels
        self.last_update = read_report(report, self.groups, done if status == TOO_MUCH or goes_on else -1)
        if goes_on:
            grows = concerned if status == TOO_MUCH and not patience else None
            for _ in self._train(samples, np.flatnonzero(samples.roles), done, step, grows):
                yield
            return
        self._drop_from(done)
        if done != before or report[s.FIRST_TREE] >= 0 or patience:
            self._finish(done, int(report[s.BEST_ITERATION]))

    def _sizes(self) -> Ints:
        """Samples held by region, those that are about to leave included."""
        if not self.n_iterations:
            return np.full(2**self.rules.levels, self.n_held)
        return np.asarray(self.forest.nodes["count"][0, 2**self.rules.levels - 1 : 2 ** (self.rules.levels + 1) - 1])

    def _drop_from(self, iteration: int) -> None:
        """Let go of the trees from an iteration on, and of their histograms."""
        first, last = iteration * self.groups, self.n_iterations * self.groups
        if first >= last:
            return
        room.drop_trees(self.forest, first, last)
        self.scores.losses[iteration:] = 0
        self.scores.kept[iteration // s.EVERY + 1 :] = 0

    def _make_change(self, moved: Moved) -> s.Change:
        if self.work is None:
            self.work = room.new_work(self.groups, self.rules.depth, self.forest)
        return room.new_change(moved.going, moved.coming, self.groups, self.work)

    def _widen(self, capacity: int) -> None:
        """Make room for more slots."""
        if capacity <= self.capacity:
            return
        wider = {
            "capacity": capacity,
            "roles": room.longer(self.roles, 0, capacity),
            "labels": room.longer(self.labels, 0, capacity),
            "rounding": room.longer(self.rounding, 0, capacity),
            "first": room.longer(self.first, 1, capacity),
            "cells": room.longer(self.cells, 0, capacity) if self.statistics else self.cells,
            "work": None,
        }
        parts = room.with_more_slots(self.bins, self.scores, self.forest, self.space, capacity)
        wider |= zip(("bins", "scores", "forest", "space"), parts, strict=True)
        self.__dict__.update(wider)  # in one step

    # -- reading --------------------------------------------------------------------------------

    @property
    def n_trees(self) -> int:
        """Trees held, those that predictions leave out included."""
        return self.n_iterations * self.groups

    def loss_level(self, problem: Problem) -> float:
        return float(self.loss.level) if self.groups else self.settings.level

    @property
    def trees(self) -> Trees:
        """What predictions read."""
        if self.read_trees is None:
            loss, start = self.loss, self.start
            base = [loss.unit * score + start.base for score in start.scores.tolist()]
            n_trees = self.n_predicting * self.groups
            self.read_trees = serialise.make_trees(self.forest, n_trees, self.features, base, loss.unit)
        return self.read_trees

    def predict_unseen(self, problem: Problem, slots: Slots, class_order: Ints) -> tuple[Reals, Bools] | None:
        if not (self.groups and self._validates):
            return None
        known = self.roles[slots] == s.VALIDATES
        cells, hashes = problem.data.cells[slots[known]], problem.data.category_hashes
        found = self.predict(cells, hashes, class_order, lambda: problem, True)
        answers = np.zeros((len(slots), *found.shape[1:]))
        answers[known] = found
        return answers, known

    def header(self) -> dict[str, Any]:
        return {**super().header(), "statistics": self.statistics.digest()}

    def look(self, tree: int, problem: Problem) -> BoostedLook:
        return BoostedLook(self.trees, tree, self.as_read(problem), self.sources)

    def counts_kept(self) -> Reals | None:
        if not self.groups:
            return None
        nodes = self.forest.nodes[: self.n_predicting * self.groups]
        return np.asarray(nodes["count"][nodes["feature"] >= s.LEAF], np.float64)  # in the order of `write_nodes`

    def gains(self) -> Reals:
        if not self.groups:
            return np.zeros(self.n_features)
        gains = np.zeros(len(self.features.categorical))
        serialise.add_gains(self.forest.nodes, self.n_predicting * self.groups, self.rules.regularisation, gains)
        return np.asarray(np.bincount(self.sources, gains, self.n_features), np.float64)

    # -- keeping --------------------------------------------------------------------------------

    def shred(self) -> None:
        """Overwrite the arrays that no copy shares; the trees cannot be used afterwards."""
        aligned.shred((self.roles, self.labels, self.rounding, self.cells))
        self.statistics.shred()
        if self.groups:
            regions = self.regions.counts, self.regions.sums
            kept = (self.first, self.bins.codes, self.bins.rows, *regions)
            aligned.shred((*kept, *self.forest, *self.scores, *self.space))

    def copy(self) -> Self:
        """An independent copy; O(size)."""
        other = self.aside()
        other.edges, other.sums = self.edges.copy(), self.sums.copy()
        for name in ("roles", "labels", "rounding", "class_counts", "category_counts"):
            setattr(other, name, getattr(self, name).copy())
        other.work = None
        other.statistics, other.cells = self.statistics.copy(), self.cells.copy()
        if self.groups:
            # Tables are never changed in place.
            other.features = copied(self.features, "edges", "categories")
            other.plans = copied(self.plans, "cuts", "draws")
            other.live_edges, other.live_categories = self.live_edges.copy(), self.live_categories.copy()
            other.first, other.regions = self.first.copy(), copied(self.regions, "cuts", "counts", "sums")
            other.bins = copied(self.bins, "codes", "rows")
            other.forest, other.scores = copied(self.forest), copied(self.scores)
            other.space = s.Space(*map(np.zeros_like, self.space))
        return other

    def wipe(self) -> None:
        self.work = None
        if not self.groups:
            return
        for array in self.space:
            array[...] = 0
        # The update that needs those of all samples computes them from the ones kept.
        self.scores.new[:] = 0
        self.scores.old[:] = 0
        forest = self.forest
        forest.pool[forest.free[: int(forest.meta[s.N_FREE])]] = 0

    def arrays(self) -> Arrays:
        """The trees as arrays for a file: what they are compared with when they are grown again from the samples."""
        return serialise.pack(self.trees)

    def take_over(self, arrays: Arrays, problem: Problem, slots: Slots) -> None:
        """Make the engine of the samples, and see that `arrays` describes its trees.

        The trees are a function of the samples, and growing them takes little longer than counting all that is kept
        with them: nothing has to be believed of a file.

        Raises
        ------
        ValueError
            When the arrays are not those of these samples.
        """
        serialise.check_number_of_trees(arrays, self.settings, n_groups(problem, len(slots)))
        self.fit(problem, slots)
        serialise.check_same(arrays, self.arrays())

    # -- checking -------------------------------------------------------------------------------

    def find_differences(self, problem: Problem, slots: Slots) -> list[str]:
        fresh = self.counterpart()
        fresh.fit(problem, slots)
        if self.groups != fresh.groups:
            return ["the number of groups differs"]
        if not self.groups:
            return []
        wrong = self.statistics.differences(fresh.statistics)
        if self.statistics and not wrong:
            kept, recounted = self.cells[slots, self.n_features :], fresh.cells[slots, self.n_features :]
            wrong = wrong_numbers("the statistics that samples read", kept, recounted, by_sample=True)
        return wrong or differences(self.state(), fresh.state(), slots)

    def find_unsound(self, problem: Problem, slots: Slots) -> list[str]:
        if not self.groups:
            return []
        wrong = loose_ends(self.state(), slots)
        if self.statistics and self.cells[self.roles == 0].any():
            wrong.append("a slot that holds no sample has cells")
        return wrong
