"""The trees of online boosting as one object: owns the arrays, makes them grow, calls the kernels.

Nothing here knows ids, labels or categories. What an update does is a function of the arrays and of the samples, so a
model that was saved and restored goes on as if it had not been.

Differs from the paper (bins and candidates do, too: see `discretise.py` and `candidates.py`):

    a) derivatives are integers, so sums do not round, and what is added and deleted again leaves nothing behind;
    b) of the candidates that a split is ranked among, those count that could be chosen, at that node and now; and it
       may rank behind fewer of them when few samples come or go (`tolerance_of`);
    c) derivatives of a subtree that is trained anew are put right in the nodes above it as well;
    d) all trees are grown anew when a batch is so large that too much would be left behind (`is_too_much`), when there
       are many more samples than the bins were made for (MOST_GROWTH), when the loss changes (from two classes to
       three, or back), and when a target of a regression is out of the scale's reach;
    e) a class that has lost its last sample takes its trees along.
"""

from functools import partial
from itertools import pairwise
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from oubli.core.array_types import Arrays, Bools, Reals, Slots
from oubli.core.boosting.engine import BoostedEngine
from oubli.core.boosting.online import labels as scaling
from oubli.core.boosting.online import serialise
from oubli.core.boosting.online import update as updating
from oubli.core.boosting.online.candidates import draw_candidates, no_candidates
from oubli.core.boosting.online.classes import choose_classes, write_values
from oubli.core.boosting.online.derivatives import add_values
from oubli.core.boosting.online.discretise import Bins, encode, make_bins, no_bins
from oubli.core.boosting.online.grow import Space, grow_tree, make_space
from oubli.core.boosting.online.invariants import check_invariants, compare
from oubli.core.boosting.online.limits import LastUpdate, is_too_much, room_for
from oubli.core.boosting.online.measures import importances, leaf_score_error
from oubli.core.boosting.online.parallel import ThreadedGrowing
from oubli.core.boosting.online.parameters import OnlineSettings
from oubli.core.boosting.online.recount import count_anew
from oubli.core.boosting.online.retrain import Retraining, count_leaves, retrain
from oubli.core.boosting.online.state import Forest, Labels, Rules, blank_forest
from oubli.core.boosting.online.workspace import Rows, choose_layout, gather_rows, no_layout
from oubli.core.boosting.problem import check_size, n_groups
from oubli.core.boosting.rows import cut, n_blocks
from oubli.core.boosting.state import Trees, no_trees
from oubli.core.engine import Progress, Shape
from oubli.core.jit import aligned
from oubli.core.rng import MISSING_CATEGORY, mix
from oubli.core.samples.arrays import Problem
from oubli.core.threads import run

Work = tuple[Labels, Rules, updating.Batch, Retraining]


_FEW = 0.001  # share of the samples whose coming or going mostly leaves all splits where they are
_CELLS_TO_ENCODE = 10  # that looking up the bin of a value is worth, in cells that are summed
_SECONDS_A_PATH = 5e-6  # to take a sample through a tree, roughly
# Working space for so many samples is kept from one update to the next; more is given back.
_KEPT_ROWS = 2**14


class OnlineTrees(BoostedEngine):
    """Boosted trees updated in place, over the samples of a store."""

    measures_distance = True

    def __init__(self, settings: OnlineSettings, *columns: Any) -> None:
        super().__init__(settings, *columns)
        self.forget()

    def forget(self, n_slots: int = 0) -> None:
        """Hold no samples and no trees, with room for so many."""
        self.last_update = LastUpdate()
        self.groups = 0
        self.n_grown = 0
        self.scale = scaling.NO_SCALE
        self.ranks = np.zeros(0, np.int32)
        self.held = np.zeros(n_slots, np.bool_)
        self.bins = no_bins(self.categorical)
        self.candidates = no_candidates(self.n_features)
        self.codes = np.zeros((n_slots, self.n_features), np.uint16)
        self.layout = no_layout()
        self.forest = self._blank_forest(n_slots)
        self.space = self.make_space(0)

    def _blank_forest(self, n_slots: int) -> Forest:
        return blank_forest(
            self.settings.n_estimators * self.groups, self.settings.max_leaf_nodes, self.candidates.n_bins, n_slots,
            is_classification=self.is_classification,
        )  # fmt: skip

    def make_space(self, n_rows: int) -> Space:
        """Working space for so many samples."""
        return make_space(n_rows, self.candidates.n_bins, self.settings.max_leaf_nodes)

    @staticmethod
    def bytes_asked(settings: OnlineSettings, shape: Shape, arrays: Arrays) -> int:
        """Bytes of the engine that is made of the arrays of a file, roughly; of a new one when there are no arrays."""
        return serialise.bytes_asked(settings, shape, arrays)

    # -- reading what is there ------------------------------------------------------------------

    @property
    def trees(self) -> Trees:
        """What predictions read."""
        if self.groups == 0:
            return no_trees()
        base = np.full(self.groups, self.scale.base)
        return Trees(self.forest.nodes, self.forest.roots, base, scaling.unit_of(self.settings, self.scale))

    @property
    def n_trees(self) -> int:
        """Trees held."""
        return self.forest.n_trees

    @property
    def n_held(self) -> int:
        """Samples held."""
        return int(np.count_nonzero(self.held))

    @property
    def nbytes(self) -> int:
        """Bytes of all arrays, working space included."""
        parts = (self.forest, self.bins, self.candidates, self.layout, self.space)
        return sum(array.nbytes for part in parts for array in part) + self.codes.nbytes + self.held.nbytes

    def gains(self) -> Reals:
        return importances(self.forest, self._rules(), self.n_features)

    def leaf_score_error(self, problem: Problem) -> float:
        """How far leaf values are from those of derivatives that are up to date; see `measures.py`."""
        return leaf_score_error(self.forest, self._rules(), self._labels(problem), np.flatnonzero(self.held))

    def _rules(self) -> Rules:
        return scaling.make_rules(self.settings, self.groups, self.scale)

    def _labels(self, problem: Problem) -> Labels:
        return scaling.make_labels(problem, self.settings, self.ranks, self.groups, self.scale)

    # -- growing --------------------------------------------------------------------------------

    def train_on(self, problem: Problem, slots: Slots, progress: Progress | None = None) -> None:
        slots = np.sort(slots)
        settings = self.settings
        groups = n_groups(problem, len(slots))
        check_size(settings.n_estimators, groups, 2 * settings.max_leaf_nodes - 1)
        is_scaled = groups > 0 and not self.is_classification
        scale = scaling.scale_of(problem.y[slots], scaling.MOST_GROWTH * len(slots)) if is_scaled else scaling.NO_SCALE
        self.restore(slots, groups, problem.ranks.copy(), len(slots), scale)
        self.last_update = LastUpdate(samples_retrained=len(slots), grown=True)
        if groups == 0:
            return
        self.restore_bins(problem, slots, make_bins(problem.data, slots, settings.max_bins, self.n_threads))
        self._grow_trees(self._labels(problem), slots, progress)

    def _grow_trees(self, labels: Labels, slots: Slots, progress: Progress | None) -> None:
        forest, bins, candidates, rules = self.forest, self.bins, self.candidates, self._rules()
        n = len(slots)
        rows = self._gather(slots, with_columns=True)
        in_threads = self.in_threads(
            ThreadedGrowing, forest, bins, candidates, self.layout, rules, labels, rows, self.codes, slots,
            self.make_space,
        )  # fmt: skip
        if in_threads is not None:
            n, step = self.settings.n_estimators, self.settings.n_estimators if progress is None else 1
            try:
                for iteration in range(0, n, step):
                    in_threads.grow_iterations(iteration, iteration + step)
                    for k in range(self.groups if progress is not None else 0):
                        progress(iteration * self.groups + k + 1, forest.n_trees)  # type: ignore[misc]
            finally:
                in_threads.erase()
            return
        space = self.make_space(n)
        sums, probabilities = np.zeros((self.groups, n)), np.zeros(self.groups)
        for iteration in range(self.settings.n_estimators):
            first_tree = iteration * self.groups
            updating.derive_all(labels, sums, slots, n, iteration, first_tree, forest.gh, 0, self.groups, probabilities)
            for k in range(self.groups):
                tree = first_tree + k
                grow_tree(
                    forest, bins, candidates, self.layout, rules, rows, self.codes, slots, space, iteration, tree, k > 0
                )
                add_values(forest.values[tree], forest.leaf_of[tree], slots, n, sums[k])
                if progress is not None:
                    progress(tree + 1, forest.n_trees)

    def _gather(self, slots: Slots, *, with_columns: bool) -> Rows:
        bin_type = self.candidates.places.dtype
        return gather_rows(self.codes, self.bins.first, self.layout, slots, bin_type, with_columns=with_columns)

    def _encode(self, problem: Problem, slots: Slots) -> None:
        """Write the codes of samples; new categories take spare codes, which one thread hands out in their order."""
        data = problem.data
        n = 1 if self.categorical.any() else n_blocks(len(slots), _CELLS_TO_ENCODE * self.n_features, self.n_threads)
        work = partial(encode, self.bins, data.cells, data.category_hashes, MISSING_CATEGORY)
        run([partial(work, slots[begin:end], self.codes) for begin, end in pairwise(cut(len(slots), n))], n)

    def restore(
        self, slots: Slots, groups: int, ranks: npt.NDArray[np.int32], n_grown: int, scale: scaling.Scale
    ) -> None:
        """Begin again with the samples of some slots, trees yet to come."""
        self.forget(room_for(slots))
        self.held[slots] = True
        self.groups, self.ranks, self.n_grown, self.scale = groups, ranks, n_grown, scale

    def restore_bins(self, problem: Problem, slots: Slots, bins: Bins) -> None:
        """Go on with these bins: codes, candidates, and trees that are a leaf without samples."""
        settings = self.settings
        seed_key = np.uint64(mix(np.uint64(settings.seed)))
        self.bins = bins
        self.candidates = draw_candidates(bins, settings.split_sampling, settings.n_estimators, seed_key)
        self.codes = np.zeros((len(self.held), self.n_features), np.uint16)
        self._encode(problem, slots)
        self.layout = choose_layout(self.codes, slots, bins.first, self.candidates.first)
        self.forest = self._blank_forest(len(self.held))
        self.space = self.make_space(0)

    def count_anew(self, slots: Slots) -> Forest:
        """The trees with their structure as it is, and what samples contribute counted anew."""
        forest, candidates = self.forest, self.candidates
        return count_anew(forest, self.codes, self.bins.first, candidates, self._rules(), self.groups, slots)

    # -- updating -------------------------------------------------------------------------------

    def join(self, problem: Problem, slots: Slots) -> None:
        n_after = self.n_held + len(slots)
        groups = n_groups(problem, n_after)
        check_size(self.settings.n_estimators, groups, 2 * self.settings.max_leaf_nodes - 1)
        if self._must_grow(problem, slots, n_after, groups):
            self.fit_anew(problem, np.concatenate([np.flatnonzero(self.held), slots]))
            return
        self._reserve(slots)
        if groups > self.groups:
            self.changes.undo = None
        is_new = self._take_classes(problem, groups)
        work = self._make_work(problem, slots, 1, n_after)
        self.changes.undo = None
        self.held[slots] = True
        self._encode(problem, slots)
        self._update(work, slots, 1, is_new)

    def _must_grow(self, problem: Problem, slots: Slots, n_after: int, groups: int) -> bool:
        """Whether updates in place would not do."""
        if self.groups == 0 or n_after > scaling.MOST_GROWTH * self.n_grown or is_too_much(len(slots), n_after):
            return True
        if self.is_classification:
            return groups != self.groups and min(groups, self.groups) < 3
        with np.errstate(over="ignore"):
            return bool(np.abs(problem.y[slots] - self.scale.base).max() > self.scale.reach)

    def _take_classes(self, problem: Problem, groups: int) -> Bools:
        """Have the trees of the classes that there are now (Appendix M); returns which of them are new."""
        is_new = np.zeros(groups, np.bool_)
        if groups != self.groups:
            places = np.full(groups, -1, np.int64)  # among the trees of an iteration that each class has had
            held = np.flatnonzero(problem.ranks >= 0)
            known = held[held < len(self.ranks)]
            places[problem.ranks[known]] = self.ranks[known]
            is_new = places < 0
            self.forest = choose_classes(self.forest, self.groups, places)
            self.groups = groups
            write_values(self.forest, self._rules())  # all change, for (K - 1) / K does
        self.ranks = problem.ranks.copy()
        return is_new

    def leave(self, problem: Problem, slots: Slots) -> None:
        n_after = self.n_held - len(slots)
        loses_classes = n_after > 0 and problem.changes_classes(slots)
        after, rest = problem.without(slots) if loses_classes else (problem, slots)
        if n_after == 0:
            other = self.aside()
            other.forget()
            other.last_update = LastUpdate(grown=True)
            self.become(other)
        elif loses_classes and (groups := n_groups(after, n_after)) != self.groups and groups < 3:
            self.fit_anew(after, rest)  # the loss is another one
        elif is_too_much(len(slots), n_after):
            self.fit_anew(*problem.without(slots))
        elif self.groups:
            is_new = np.zeros(self.groups, np.bool_)
            work = self._make_work(problem, slots, -1, n_after)
            self.changes.undo = None
            self.held[slots] = False
            self._update(work, slots, -1, is_new)
            if loses_classes:
                self._take_classes(after, n_groups(after, n_after))
        else:
            self.changes.undo = None
            self.held[slots] = False

    def _reserve(self, slots: Slots) -> None:
        """Make room for new slots."""
        n_slots = int(slots.max()) + 1
        if n_slots <= len(self.held):
            return
        n_more = room_for(np.array([n_slots])) - len(self.held)
        held = np.pad(self.held, (0, n_more))
        codes = np.pad(self.codes, ((0, n_more), (0, 0)))
        forest = self.forest._replace(
            gh=np.pad(self.forest.gh, ((0, 0), (0, n_more))),
            leaf_of=np.pad(self.forest.leaf_of, ((0, 0), (0, n_more))),
        )
        # One statement: no exception comes between its parts.
        self.held, self.codes, self.forest = held, codes, forest

    def _make_work(self, problem: Problem, slots: Slots, sign: int, n_after: int) -> Work:
        """What an update of all trees needs, but for subtrees that are trained anew."""
        rules = self._rules()._replace(robustness=scaling.tolerance_of(self.settings.robustness, len(slots), n_after))
        batch = updating.make_batch(slots, sign, self.n_features, self.groups, self.forest.n_places)
        return self._labels(problem), rules, batch, Retraining(self.forest, self.held)

    def _update(self, work: Work, slots: Slots, sign: int, is_new: Bools) -> None:
        """Update all trees by samples that come (sign 1) or go (-1)."""
        forest, (labels, rules, batch, retraining) = self.forest, work
        while True:
            status = updating.run_updates(
                forest, self.bins, self.candidates, rules, labels, self.space, self.codes, batch, is_new
            )
            if status == updating.DONE:
                break
            iteration, k, place = (int(batch.cursor[i]) for i in (updating.ITERATION, updating.GROUP, updating.NODE))
            self._retrain(retraining, rules, labels, iteration, iteration * self.groups + k, place)
        self.last_update = LastUpdate(int(batch.cursor[updating.N_CHECKED]), retraining.n_nodes, retraining.n_samples)
        if sign < 0:
            self.codes[slots] = 0
        if len(self.space.order) > _KEPT_ROWS:
            self.space = self.make_space(0)

    def _retrain(
        self, retraining: "Retraining", rules: Rules, labels: Labels, iteration: int, tree: int, place: int
    ) -> None:
        """Train the subtree of a node anew."""
        forest, settings = self.forest, self.settings
        members, n_leaves = retraining.list_members(forest, tree, place)
        n = len(members)
        if n > len(self.space.order):
            self.space = self.make_space(min(2 * n, len(retraining.slots)))
        sums = retraining.sums_of(forest, members, iteration, self.groups)
        budget = settings.max_leaf_nodes - count_leaves(forest, tree) + n_leaves
        rows = self._gather(members, with_columns=False)
        retrain(
            forest, self.bins, self.candidates, self.layout, rules, labels, rows, self.codes, members, self.space,
            iteration, tree, place, budget, sums, retraining.stack, np.zeros(self.groups),
        )  # fmt: skip
        retraining.n_nodes += 1
        retraining.n_samples += n

    def seconds_to_change(self, n_changed: int, problem: Problem) -> float:
        fitting = self.seconds_to_fit(problem)
        if n_changed > _FEW * problem.n_samples:
            return fitting  # some splits will lose their place, and in later trees more of them
        return min(fitting, n_changed * self.n_trees * _SECONDS_A_PATH)

    # -- keeping --------------------------------------------------------------------------------

    def copy(self) -> Self:
        """An independent copy; O(size)."""
        other = self.counterpart()
        other.n_mutations = self.n_mutations
        other.groups, other.n_grown, other.scale = self.groups, self.n_grown, self.scale
        other.ranks, other.held, other.codes = self.ranks.copy(), self.held.copy(), self.codes.copy()
        other.bins, other.candidates, other.layout = self.bins.copy(), self.candidates, self.layout
        other.forest = self.forest.copy()
        other.space = other.make_space(0)
        other.last_update = self.last_update
        return other

    def shred(self) -> None:
        """Overwrite the arrays that no copy shares; the trees cannot be used afterwards."""
        self.wipe()
        aligned.shred((*self.forest, self.codes, self.held))

    def wipe(self) -> None:
        """Overwrite the working space, so that it holds nothing of any sample."""
        old, self.space = self.space, self.make_space(0)
        for array in old:
            array.fill(0)

    def arrays(self) -> Arrays:
        """The trees as arrays for a file, see `serialise.py`."""
        return serialise.pack(self)

    def take_over(self, arrays: Arrays, problem: Problem, slots: Slots) -> None:
        """Undo `arrays`, over the samples of `slots`.

        Raises
        ------
        ValueError
            When the arrays are not trees of these samples, saying what is wrong.
        """
        serialise.unpack(self, arrays, problem, slots)

    # -- checking -------------------------------------------------------------------------------

    def find_differences(self, problem: Problem, slots: Slots) -> list[str]:
        if not np.array_equal(np.flatnonzero(self.held), np.sort(slots)):
            return ["the trees do not hold the samples"]
        return compare(self.forest, self.count_anew(np.sort(slots))) if self.groups else []

    def check_invariants(self, problem: Problem, slots: Slots) -> None:
        """Check everything kept for internal soundness.

        Raises
        ------
        AssertionError
            Naming what is broken.
        """
        check_invariants(self, problem, slots)
