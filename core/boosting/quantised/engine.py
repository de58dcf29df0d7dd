"""Exact boosting of which many updates change no leaf: the engine behind `quantization`.

What is trained is defined so that it hardly depends on any one sample, and yet is a function of the set of samples:

    edges.py, bins.py   bins: edges are values of samples that a hash of their ids chooses
    plans.py            candidates of each iteration: a share of the edges, chosen likewise
    start.py            F_0 and units, on coarse grids
    regions.py          parts of the samples that no update of another part concerns
    gradients.py        derivatives on a coarse grid, rounded by a hash of the id
    split.py, grow.py   trees: the best candidate splits, leaf values on a coarse grid, rounded by a hash of their path
    training.py         one iteration after the other
    update.py           what an update does instead, with the same result

A sample more or less changes the sums along its own paths. Unless that moves a rounded number, nothing else happens.
"""

from functools import partial
from typing import Any

import numpy as np

from oubli.core.array_types import Arrays, Bools, Ints, Slots
from oubli.core.boosting.incremental.parameters import IncrementalSettings
from oubli.core.boosting.problem import check_size, n_groups
from oubli.core.boosting.quantised import bins as binning
from oubli.core.boosting.quantised import state as s
from oubli.core.boosting.quantised import workspace as room
from oubli.core.boosting.quantised.candidates import make_plans
from oubli.core.boosting.quantised.comparing import differences, loose_ends
from oubli.core.boosting.quantised.edges import EdgeTable
from oubli.core.boosting.quantised.entering import derive_first, enter
from oubli.core.boosting.quantised.following import dismiss_categories, follow_edges, welcome_categories
from oubli.core.boosting.quantised.gradients import Loss
from oubli.core.boosting.quantised.kept import KeptTrees
from oubli.core.boosting.quantised.parallel import ThreadedTraining, sum_first_in_threads
from oubli.core.boosting.quantised.regions import Chooser, no_regions
from oubli.core.boosting.quantised.report import LastUpdate, read_report
from oubli.core.boosting.quantised.rules import loss_of_classes, loss_of_numbers, make_rules
from oubli.core.boosting.quantised.start import Start, TargetSums, class_start
from oubli.core.boosting.quantised.steadiness import (
    MOST_LEVELS,
    Steadiness,
    below_regions,
    most_levels,
    regression_steadiness,
    steadiness,
)
from oubli.core.boosting.quantised.training import DONE, NO_BLOCKS, TOO_MUCH, grow_iterations
from oubli.core.boosting.quantised.update import reach, update_iterations
from oubli.core.boosting.state import Trees, no_trees
from oubli.core.engine import Progress
from oubli.core.rng import mix
from oubli.core.samples.arrays import Problem

_FEWER_OF_CLASSES, _FEWER_OF_NUMBERS = 4, 2  # within regions an iteration looks at so many times fewer candidates


class QuantisedTrees(KeptTrees):
    """Boosted trees on grids: the engine of `quantization`."""

    format = 2  # 1: no regions

    def __init__(self, settings: IncrementalSettings, *columns: Any) -> None:
        super().__init__(settings, *columns)
        self.seed = np.uint64(settings.seed)
        self._seed_key = np.uint64(mix(self.seed))
        limit = int(settings.validation_fraction * 2.0**64) if settings.patience else 0
        self._validation_limit = np.uint64(min(limit, 2**64 - 1))
        self.forget()

    def forget(self) -> None:
        self.groups = 0
        self.n_iterations = 0
        self.n_predicting = 0
        self._all_train = False
        self._has_other_candidates = False
        self.n_training = self.n_held = 0
        self.edges = EdgeTable(~self.categorical, self.settings.max_bins - 1, self.settings.seed)
        self.sums = TargetSums()
        self.regions = no_regions()
        self._most_levels = 0
        self.class_counts = np.zeros(0, np.int64)
        self.category_counts = np.zeros(0, np.int64)
        self._trees: Trees | None = no_trees()
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
        if not len(slots):
            return
        self._allocate_samples(len(problem.data.cells))
        self._enter(problem, slots)
        self._count_targets(problem, slots)
        self.edges.collect(problem.data.cells, problem.data.id_hashes, slots, self.n_threads)
        groups = n_groups(problem, self.n_training)
        check_size(self.settings.n_estimators, groups, 2 ** (self.settings.max_depth + MOST_LEVELS + 1) - 1)
        if groups:
            self.groups = groups
            self._prepare(problem, slots)
            self._train(self._samples(problem), slots, 0, progress)

    def _samples(self, problem: Problem) -> s.Samples:
        return s.Samples(self.roles, self.labels, problem.y, self.rounding, self.first)

    def _enter(self, problem: Problem, slots: Slots) -> None:
        data, limit = problem.data, self._validation_limit
        enter(
            self.roles, self.labels, self.rounding, data.id_hashes, data.targets, problem.ranks, slots, self.seed,
            limit, self.is_classification,
        )  # fmt: skip

    def _count_targets(self, problem: Problem, slots: Slots) -> None:
        """Count what F_0 depends on."""
        self._all_train = not (self.roles[slots] == s.TRAINS).any()
        if self._all_train:  # rather than that none does
            self.roles[slots] = s.TRAINS
        training = slots[self.roles[slots] == s.TRAINS]
        self.n_training, self.n_held = len(training), len(slots)
        if self.is_classification:
            self.class_counts = np.bincount(self.labels[training], minlength=problem.n_classes)
        else:
            self.sums.recount(problem.y[training])

    def _start_now(self) -> Start:
        if not self.is_classification:
            return self.sums.start(self.settings.seed)
        unit = self.settings.learning_rate * self.settings.leaf_grid
        return class_start(self.class_counts, self.groups, unit, self.settings.seed)

    @property
    def _validates(self) -> bool:
        """Whether training may end early: there are samples to validate on."""
        return self.settings.patience > 0 and self.n_held > self.n_training

    def _prepare(self, problem: Problem, slots: Slots) -> None:
        """Make bins, candidates, tables and room."""
        settings, data = self.settings, problem.data
        self.features = binning.make_features(self.edges.edges, binning.find_categories(data, slots), self.categorical)
        self.bins = binning.make_bins(self.features, data, slots, self.n_threads)
        self.category_counts = binning.count_categories(self.features, self.bins, self.categorical, slots)
        self.live_edges = np.ones(len(self.features.edges), np.bool_)
        self.live_categories = np.ones(len(self.features.categories), np.bool_)
        self.start = self._start_now()
        self._steadiness = self._steadiness_now()
        self.loss = self._make_loss()
        self.first = np.zeros((self.groups, self.capacity), np.int64)
        samples = self._samples(problem)
        derive_first(self.loss, self.start.scores, samples, slots)
        self._most_levels = self._most_levels_now()
        self.regions = self._chooser().find(self._most_levels, samples, slots)
        self.loss = self._make_loss()
        levels, capacity = self.regions.levels, self.capacity
        steady = below_regions(self._steadiness, levels)
        depth = steady.depth
        self.rules = make_rules(settings, self.loss, self.groups, self.start, steady, self.regions.cuts)
        m = settings.n_estimators
        self.plans = make_plans(self.features, self.bins, m, settings.seed, self.share)
        n_places = self.plans.cuts.shape[1]
        self.scores = room.new_scores(m, capacity, self.start.scores)
        self.scores.new[:, slots] = self.start.scores[:, np.newaxis]
        self.scores.kept[0] = self.scores.new
        self.forest = room.new_forest(m * self.groups, depth, capacity, n_places)
        self.space = room.new_space(self.groups, depth, levels, capacity, n_places, int(self.bins.first_bin[-1]))

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
        return Chooser(self.features, self.bins, self.live_edges, self.live_categories, self.settings.seed)

    def _part(self, problem: Problem, slots: Slots, others: Slots, sign: int) -> bool:
        """Let samples come to their regions (1), or go (-1); False when the regions are others now."""
        if not self._most_levels:
            return True
        chooser, samples = self._chooser(), self._samples(problem)
        if self._has_other_candidates:
            held = np.concatenate([others, slots]) if sign > 0 else np.setdiff1d(others, slots)
            self.regions, cuts = chooser.find(self._most_levels, samples, held), self.regions.cuts
            return np.array_equal(self.regions.cuts, cuts)
        return chooser.move(self.regions, samples, slots, sign)

    def _steadiness_now(self) -> Steadiness:
        if not self.is_classification:
            return regression_steadiness(self.settings.max_depth)
        return steadiness(self.n_training, self.settings.max_depth, self.settings.seed)

    def _most_levels_now(self) -> int:
        return most_levels(self.n_training, self.groups, self.settings.seed, is_classification=self.is_classification)

    def _make_loss(self) -> Loss:
        if self.is_classification:
            return loss_of_classes(self.settings, self.groups, self._steadiness)
        return loss_of_numbers(self.settings, self.start, self.regions.levels)

    def _train(
        self, samples: s.Samples, slots: Slots, begin: int, progress: Progress | None = None, grows: Bools | None = None
    ) -> None:
        """Grow the iterations from `begin` on, from the scores before it; `grows`: in which regions, all if omitted."""
        report = np.zeros(s.REPORT_SIZE, np.int64)
        report[s.BEST_ITERATION] = int(self.scores.losses[:begin].argmin()) if begin else 0
        patience = self.settings.patience if self._validates else 0
        last, step = self.settings.n_estimators, 1 if progress is not None else self.settings.n_estimators
        self.space.grows[:] = 1 if grows is None else grows
        slots, bounds = self._chooser().sort(self.regions, np.sort(slots))
        is_in = np.repeat(self.space.grows == 1, np.diff(bounds))
        np.cumsum(np.diff(bounds) * self.space.grows, out=self.space.bounds[1:])
        slots32 = slots[is_in].astype(np.int32)
        sum_first_in_threads(self.bins.rows, self.first, slots32, self.space, self.n_threads)
        parts = self.bins, self.plans, self.rules, samples, self.scores, self.space, self.loss, slots32, self._seed_key
        in_threads = self.in_threads(ThreadedTraining, *parts)
        grow: Any = partial(grow_iterations, *parts, np.zeros(self.n_labels + 1, np.int32))
        if in_threads is not None:
            grow = in_threads.grow_iterations
        done = begin
        try:
            while done < last:
                end = min(done + step, last)
                done, status = grow(self.forest, report, done, end, patience)
                if status == NO_BLOCKS:
                    self.forest = room.with_more_blocks(self.forest, self.groups)
                elif progress is not None:
                    progress(done * self.groups, last * self.groups)
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
        self._trees = None

    # -- updating -------------------------------------------------------------------------------

    def join(self, problem: Problem, slots: Slots) -> None:
        held = np.flatnonzero(self.roles)
        check_size(self.settings.n_estimators, self.groups, 2 * self.n_labels - 1)
        if not self.groups or self._all_train or n_groups(problem, 1) != self.groups:
            self.fit_anew(problem, np.concatenate([held, slots]))
            return
        self._widen(len(problem.data.cells))
        change = self._make_change(slots, 1)
        self.changes.undo = None
        try:
            self._enter(problem, slots)
            is_done = self._enter_bins(problem, slots, held)
            if is_done:
                derive_first(self.loss, self.start.scores, self._samples(problem), slots)
                is_done = self._part(problem, slots, held, 1)
            if is_done:
                self._update(problem, slots, change, 1)
        except MemoryError:
            is_done = False  # growing anew needs nothing of what has been left halfway, and gives the same trees
        if not is_done:
            self.fit_anew(problem, np.concatenate([held, slots]))

    def leave(self, problem: Problem, slots: Slots) -> None:
        held = np.flatnonzero(self.roles)
        change = self._make_change(slots, 0)
        self.changes.undo = None
        try:
            is_done = self._leave_bins(problem, slots, held) and self._part(problem, slots, held, -1)
            if is_done:
                self._update(problem, slots, change, 0)
        except MemoryError:
            is_done = False  # as in `join`
        if not is_done:
            self.fit_anew(problem, np.setdiff1d(held, slots))

    def _enter_bins(self, problem: Problem, slots: Slots, held: Slots) -> bool:
        """Take samples into bins and counters; False when everything has to be grown anew."""
        data, validated = problem.data, self._validates
        changed, is_known = self.edges.count(data.cells, data.id_hashes, slots, 1)
        if not is_known or not self._move_targets(problem, slots, 1) or self._validates != validated:
            return False
        if not follow_edges(self, data, self._samples(problem), held, changed):
            return False
        has_room, has_new = welcome_categories(self, data, slots)
        bins = self.bins
        if not has_room or not binning.encode(self.features, data, slots, bins.codes):
            return False
        common_code = np.where(bins.common_bin < 0, -1, bins.common_bin - bins.first_bin[:-1])
        lengths = np.zeros(512, np.int64)
        longest = int(binning.longest_row(bins.codes, common_code.astype(np.int32), slots, lengths))
        if longest > bins.rows.shape[1]:
            rows = np.full((self.capacity, longest), bins.first_bin[-1], bins.rows.dtype)
            rows[:, : bins.rows.shape[1]] = bins.rows
            bins = self.bins = bins._replace(rows=rows)
        binning.write_rows(bins.codes, bins.first_bin, bins.common_bin, slots, bins.rows, lengths)
        self._move_categories(slots, 1)
        self._has_other_candidates = bool(changed) or has_new
        return True

    def _leave_bins(self, problem: Problem, slots: Slots, held: Slots) -> bool:
        """Take samples out of bins and counters; False when everything has to be grown anew."""
        data, validated = problem.data, self._validates
        changed, is_known = self.edges.count(data.cells, data.id_hashes, slots, -1)
        self._move_categories(slots, -1)
        if not is_known or not self._move_targets(problem, slots, -1) or self._validates != validated:
            return False
        if not follow_edges(self, data, self._samples(problem), held, changed):
            return False
        is_done, has_gone = dismiss_categories(self)
        self._has_other_candidates = bool(changed) or has_gone
        return is_done

    def _move_categories(self, slots: Slots, sign: int) -> None:
        for column in np.flatnonzero(self.categorical).tolist():
            np.add.at(self.category_counts, self.bins.codes[column, slots] + self.features.first_category[column], sign)

    def _move_targets(self, problem: Problem, slots: Slots, sign: int) -> bool:
        training = slots[self.roles[slots] == s.TRAINS]
        self.n_training += sign * len(training)
        self.n_held += sign * len(slots)
        if not self.n_training:
            return False
        if self.is_classification:
            np.add.at(self.class_counts, self.labels[training], sign)
        elif not self.sums.count(problem.y[training], sign):
            return False
        size, before = self._steadiness_now(), self._steadiness
        if (size.top, size.coarsening) != (before.top, before.coarsening):
            return False
        if self._most_levels_now() != self._most_levels:
            return False
        start, old = self._start_now(), self.start
        return (start.base, start.spread, start.scores.tolist()) == (old.base, old.spread, old.scores.tolist())

    def _update(self, problem: Problem, slots: Slots, change: s.Change, joins: int) -> None:
        """Bring the trees up to date for samples that come (1) or go (0); bins and counters are."""
        samples = self._samples(problem)
        patience = self.settings.patience if self._validates else 0
        change.report[s.CHECKS_ALL] = self._has_other_candidates
        (self.scores.new if joins else self.scores.old)[:, slots] = self.start.scores[:, np.newaxis]
        if joins:
            self.scores.kept[0][:, slots] = self.start.scores[:, np.newaxis]
        _, bounds = self._chooser().sort(self.regions, slots)
        concerned = np.diff(bounds) > 0
        samples.roles[slots] |= s.MOVING
        report, done, status, before = change.report, 0, NO_BLOCKS, self.n_iterations
        n_concerned = int(self._sizes()[concerned].sum())
        while status == NO_BLOCKS:
            done, status = update_iterations(
                self.forest, self.bins, self.plans, self.rules, samples, self.scores, self.space, change,
                self.loss, n_concerned, int(concerned.sum()), done, before, patience, self._seed_key,
            )  # fmt: skip
            if status == NO_BLOCKS:
                self.forest = room.with_more_blocks(self.forest, self.groups)
        goes_on = not self._has_ended(done, int(report[s.BEST_ITERATION])) and done < self.settings.n_estimators
        if goes_on:
            reach(self.forest, self.scores, change, done, self.rules.depth)
        if joins:
            samples.roles[slots] ^= s.MOVING
        else:
            room.erase(samples, self.bins, self.scores, slots)
            self.forest.leaf_of[done * self.groups :, slots] = self.n_labels
        self.last_update = read_report(report, self.groups, done if status == TOO_MUCH or goes_on else -1)
        if goes_on:
            grows = concerned if status == TOO_MUCH and not patience else None
            self._train(samples, np.flatnonzero(samples.roles), done, grows=grows)
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

    def _make_change(self, slots: Slots, joins: int) -> s.Change:
        if self.work is None:
            self.work = room.new_work(self.groups, self.rules.depth, self.forest)
        return room.new_change(slots, joins, self.groups, self.work)

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
            "work": None,
        }
        parts = room.with_more_slots(self.bins, self.scores, self.forest, self.space, capacity)
        wider |= zip(("bins", "scores", "forest", "space"), parts, strict=True)
        self.__dict__.update(wider)  # in one step

    # -- checking -------------------------------------------------------------------------------

    def find_differences(self, problem: Problem, slots: Slots) -> list[str]:
        fresh = self.counterpart()
        fresh.fit(problem, slots)
        return differences(self, fresh, slots)

    def find_unsound(self, problem: Problem, slots: Slots) -> list[str]:
        return loose_ends(self, slots)
