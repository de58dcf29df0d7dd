"""The engine of online boosting: owns the arrays, makes them grow, calls the kernels.

Nothing here knows ids, labels or categories. What an update does is a function of the arrays and of the samples, so a
restored model behaves exactly as the one that was saved.

Differs from the paper (so do the bins, see `bins.py`, and the candidates, see `split.py`):

    a) derivatives are integers, so sums do not round, and what is added and deleted again leaves nothing behind;
    b) of the candidates that a split is ranked among, those count that could be chosen, at that node and now; and it
       may rank behind fewer of them when few samples come or go (`tolerance_of`);
    c) when a subtree is retrained, its new derivatives are corrected in the nodes above it as well;
    d) all trees are grown again when a batch is so large that its traces would remain (`is_too_much`), when there
       are many more samples than the bins were made for (MOST_GROWTH), when the loss changes (from two classes to
       three, or back), and when a target of a regression is out of the scale's reach;
    e) the trees of a class are dropped with its last sample;
    f) samples have weights: how many come, go or are held is their size (`core/boosting/weights.py`);
    g) a regression may have another loss than squared error, whose derivatives are kept as those of a class are.
"""

from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Any, Self

import numpy as np

from oubli.core.array_types import Arrays, Bools, Reals, Slots
from oubli.core.boosting.engine import BoostedEngine
from oubli.core.boosting.histogram import unsplit_score
from oubli.core.boosting.loss import POISSON
from oubli.core.boosting.online import derivatives as scaling
from oubli.core.boosting.online import serialise
from oubli.core.boosting.online import update as updating
from oubli.core.boosting.online.bins import Bins, encode, make_bins, no_bins
from oubli.core.boosting.online.blocks import ThreadedGrowing
from oubli.core.boosting.online.check import recount
from oubli.core.boosting.online.grow import Space, grow_tree, make_space
from oubli.core.boosting.online.invariants import check_invariants, compare
from oubli.core.boosting.online.parameters import OnlineSettings
from oubli.core.boosting.online.retrain import Retraining, retrain
from oubli.core.boosting.online.split import draw_candidates, no_candidates
from oubli.core.boosting.online.state import Forest, Labels, Model, Rules, blank_forest
from oubli.core.boosting.online.update import choose_classes, write_values
from oubli.core.boosting.online.workspace import Rows, choose_layout, gather_rows, no_layout
from oubli.core.boosting.parameters import check_size, n_groups
from oubli.core.boosting.rows import cut, n_blocks
from oubli.core.boosting.state import LEAF, Trees, no_trees
from oubli.core.boosting.weights import size_of, units_of
from oubli.core.concurrency.threads import run
from oubli.core.engine import Progress, copied
from oubli.core.errors import ensure
from oubli.core.jit import aligned
from oubli.core.jit.policy import kernel
from oubli.core.rng import MISSING_CATEGORY, mix
from oubli.core.samples.arrays import Problem

# A batch of more than one in so many samples held is too much: growing all again takes no longer.
MOST_CHANGED = 5
# So is one of more than one in so many, when these are many. Growing all again takes some four times as long as an
# update in place; but leaves that are behind by 4 % remember what was deleted, such as a trigger that all deleted
# samples had.
MOST_OF_MANY = 60
MANY = 100

Work = tuple[Model, Labels, updating.Batch, Retraining]

_FEW = 0.001  # share of the samples whose coming or going mostly leaves all splits where they are
_CELLS_TO_ENCODE = 10  # that looking up the bin of a value is worth, in cells that are summed
_SECONDS_A_PATH = 5e-6  # to take a sample through a tree, roughly
# Working space for so many samples is kept from one update to the next; more is given back.
_KEPT_ROWS = 2**14


@dataclass
class LastUpdate:
    """What the last addition or deletion did.

    Attributes
    ----------
    nodes_checked : nodes that were asked whether their split still has its place.
    nodes_retrained : subtrees that were retrained.
    samples_retrained : the samples in them, added up.
    grown : whether all trees were grown again: the number of classes became 3, or was; the samples are more than twice
        as many as when they were grown last; too many samples came or went at once; a target of a regression is out
        of reach.
    """

    nodes_checked: int = 0
    nodes_retrained: int = 0
    samples_retrained: int = 0
    grown: bool = False


def is_too_much(n_moved: int, n_held: int) -> bool:
    """Whether all trees are grown again when so many samples come or go; n_held: afterwards."""
    return MOST_CHANGED * n_moved > n_held or (n_moved > MANY and MOST_OF_MANY * n_moved > n_held)


def room_for(slots: Slots) -> int:
    """Slots to make room for: some more than there are, so that adding one seldom moves everything."""
    n_slots = int(slots.max()) + 1 if len(slots) else 0
    return n_slots + n_slots // 16 + 16


@kernel
def add_gains(forest, rules, gains):
    """Add the gain of every split, from the sums as they are, to float64[d] by feature."""
    shift, states = np.int64(rules.shift), forest.states
    for row in range(forest.nodes.shape[0]):
        feature = forest.nodes[row]["feature"]
        if feature == LEAF:
            continue
        left = np.int64(forest.nodes[row]["left"])
        gain = unsplit_score(states[left]["sums"], shift, rules.l2)
        gain += unsplit_score(states[left + 1]["sums"], shift, rules.l2)
        gain -= unsplit_score(states[row]["sums"], shift, rules.l2)
        if gain > 0.0:
            gains[feature] += gain


class OnlineTrees(BoostedEngine):
    """Boosted trees updated in place, over the samples of a store."""

    measures_distance = True
    bytes_asked = staticmethod(serialise.bytes_asked)

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

    def loss_level(self, problem: Problem) -> float:
        return self.scale.level if self.groups else self.settings.level

    def _size(self, problem: Problem) -> int:
        """Size of the samples held, those that are about to leave included."""
        return size_of(problem.units, np.flatnonzero(self.held))

    def gains(self) -> Reals:
        gains = np.zeros(self.n_features)
        add_gains(self.forest, self._rules(), gains)
        return gains

    def _rules(self) -> Rules:
        return scaling.make_rules(self.settings, self.groups, self.scale)

    def _model(self, rules: Rules, problem: Problem) -> Model:
        return Model(self.forest, self.bins, self.candidates, rules, problem.units, problem.data.id_hashes)

    def _labels(self, problem: Problem) -> Labels:
        return scaling.make_labels(problem, self.settings, self.ranks, self.groups, self.scale)

    # -- growing --------------------------------------------------------------------------------

    def train_on(self, problem: Problem, slots: Slots, progress: Progress | None = None) -> None:
        slots = np.sort(slots)
        settings = self.settings
        groups = n_groups(problem, len(slots))
        check_size(settings.n_estimators, groups, 2 * settings.max_leaf_nodes - 1)
        size, scale = size_of(problem.units, slots), scaling.NO_SCALE
        if groups > 0 and not self.is_classification:
            y, most = problem.y[slots], scaling.MOST_GROWTH * size
            if self.kind is None:
                scale = scaling.scale_of(y, most, units_of(problem.units, slots))
            else:
                units = problem.units[slots] if len(problem.units) else problem.units
                scale = scaling.scale_of_loss(settings, self.kind, y, most, units)
        self.restore(slots, groups, serialise.Header(size, scale, problem.ranks.copy()))
        self.last_update = LastUpdate(samples_retrained=len(slots), grown=True)
        if groups == 0:
            return
        self.restore_bins(problem, slots, make_bins(problem.data, slots, settings.max_bins, self.n_threads))
        self._grow_trees(problem, slots, progress)

    def _grow_trees(self, problem: Problem, slots: Slots, progress: Progress | None) -> None:
        labels = self._labels(problem)
        forest, model, n = self.forest, self._model(self._rules(), problem), len(slots)
        rows = self._gather(slots, with_columns=True)
        in_threads = self.in_threads(ThreadedGrowing, model, labels, rows, self.make_space)
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
            updating.derive_all(
                labels, sums, slots, 0, n, iteration, first_tree, forest.gh, 0, self.groups, probabilities
            )
            for k in range(self.groups):
                grow_tree(model, rows, space, iteration, first_tree + k, k > 0)
                if progress is not None:
                    progress(first_tree + k + 1, forest.n_trees)
            updating.add_values(forest, slots, 0, n, iteration, iteration + 1, sums)

    def _gather(self, slots: Slots, *, with_columns: bool) -> Rows:
        bin_type = self.candidates.places.dtype
        return gather_rows(self.codes, self.bins.first, self.layout, slots, bin_type, with_columns=with_columns)

    def _encode(self, problem: Problem, slots: Slots) -> None:
        """Write the codes of samples; new categories take spare codes, which one thread hands out in their order."""
        data = problem.data
        n = 1 if self.categorical.any() else n_blocks(len(slots), _CELLS_TO_ENCODE * self.n_features, self.n_threads)
        work = partial(encode, self.bins, data.cells, data.category_hashes, MISSING_CATEGORY)
        run([partial(work, slots[begin:end], self.codes) for begin, end in pairwise(cut(len(slots), n))], n)

    def restore(self, slots: Slots, groups: int, header: serialise.Header) -> None:
        """Hold the samples of some slots, and no trees yet."""
        self.forget(room_for(slots))
        self.held[slots] = True
        self.groups = groups
        self.n_grown, self.scale, self.ranks = header

    def restore_bins(self, problem: Problem, slots: Slots, bins: Bins) -> None:
        """Take bins, and make what follows from them: codes, candidates, and trees that are a leaf without samples."""
        settings = self.settings
        seed_key = np.uint64(mix(np.uint64(settings.seed)))
        self.bins = bins
        self.candidates = draw_candidates(bins, settings.split_sampling, settings.n_estimators, seed_key)
        self.codes = np.zeros((len(self.held), self.n_features), np.uint16)
        self._encode(problem, slots)
        self.layout = choose_layout(self.codes, slots, bins.first, self.candidates.first)
        self.forest = self._blank_forest(len(self.held))
        self.space = self.make_space(0)

    def _recounted(self, problem: Problem, slots: Slots) -> Forest:
        """The trees with their structure as it is, and all sums counted again from the samples."""
        return recount(self._model(self._rules(), problem), self.codes, self.groups, slots)

    # -- updating -------------------------------------------------------------------------------

    def join(self, problem: Problem, slots: Slots) -> None:
        n_after = self._size(problem) + size_of(problem.units, slots)
        groups = n_groups(problem, n_after)
        check_size(self.settings.n_estimators, groups, 2 * self.settings.max_leaf_nodes - 1)
        if self._must_grow(problem, slots, n_after, groups):
            self.refit(problem, np.concatenate([np.flatnonzero(self.held), slots]))
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
        n_moved = size_of(problem.units, slots)
        if self.groups == 0 or n_after > scaling.MOST_GROWTH * self.n_grown or is_too_much(n_moved, n_after):
            return True
        if self.is_classification:
            return groups != self.groups and min(groups, self.groups) < 3
        center = 0.0 if self.kind == POISSON else self.scale.base
        with np.errstate(over="ignore"):
            return bool(np.abs(problem.y[slots] - center).max() > self.scale.reach)

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
        n_moved = size_of(problem.units, slots)
        n_after = self._size(problem) - n_moved
        loses_classes = n_after > 0 and problem.changes_classes(slots)
        after, rest = problem.without(slots) if loses_classes else (problem, slots)
        if n_after == 0:
            other = self.aside()
            other.forget()
            other.last_update = LastUpdate(grown=True)
            self.become(other)
        elif loses_classes and (groups := n_groups(after, n_after)) != self.groups and groups < 3:
            self.refit(after, rest)  # the loss is another one
        elif is_too_much(n_moved, n_after):
            self.refit(*problem.without(slots))
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
        """What an update of all trees needs, but for subtrees that are retrained."""
        tolerance = scaling.tolerance_of(self.settings.robustness, size_of(problem.units, slots), n_after)
        rules = self._rules()._replace(robustness=tolerance)
        batch = updating.make_batch(slots, sign, self.n_features, self.groups, self.forest.n_places)
        return (
            self._model(rules, problem),
            self._labels(problem),
            batch,
            Retraining(self.forest, self.held, self.groups),
        )

    def _update(self, work: Work, slots: Slots, sign: int, is_new: Bools) -> None:
        """Update all trees by samples that come (sign 1) or go (-1)."""
        model, labels, batch, retraining = work
        while updating.run_updates(model, labels, self.space, self.codes, batch, is_new) != updating.DONE:
            iteration, k, place = (int(batch.cursor[i]) for i in (updating.ITERATION, updating.GROUP, updating.NODE))
            self._retrain(model, labels, retraining, iteration, iteration * self.groups + k, place)
        self.last_update = LastUpdate(int(batch.cursor[updating.N_CHECKED]), retraining.n_nodes, retraining.n_samples)
        if sign < 0:
            self.codes[slots] = 0
        if len(self.space.order) > _KEPT_ROWS:
            self.space = self.make_space(0)

    def _retrain(
        self, model: Model, labels: Labels, retraining: Retraining, iteration: int, tree: int, place: int
    ) -> None:
        """Retrain the subtree of a node."""
        members, budget = retraining.list_members(self.forest, tree, place)
        if len(members) > len(self.space.order):
            self.space = self.make_space(min(2 * len(members), len(retraining.slots)))
        sums = retraining.sums_of(self.forest, members, iteration)
        rows = self._gather(members, with_columns=False)
        retrain(
            model, labels, rows, self.space, iteration, tree, place, budget, sums, retraining.found,
            retraining.probabilities,
        )  # fmt: skip

    def seconds_to_change(self, n_changed: int, problem: Problem) -> float:
        fitting = self.seconds_to_fit(problem)
        if n_changed > _FEW * problem.n_samples:
            return fitting  # some splits will lose their place, and in later trees more of them
        return min(fitting, n_changed * self.n_trees * _SECONDS_A_PATH)

    # -- keeping --------------------------------------------------------------------------------

    def copy(self) -> Self:
        other = self.aside()
        other.held, other.codes = self.held.copy(), self.codes.copy()
        other.bins, other.forest = copied(self.bins, "hashes", "n_taken"), copied(self.forest)
        other.space = self.make_space(0)
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
        return serialise.pack(serialise.Header(self.n_grown, self.scale, self.ranks), self.forest, self.bins, self.held)

    def take_over(self, arrays: Arrays, problem: Problem, slots: Slots) -> None:
        """Undo `arrays`, over the samples of `slots`.

        Raises
        ------
        ValueError
            When the arrays are not trees of these samples, saying what is wrong.
        """
        slots = np.sort(slots)
        header = serialise.take_header(arrays, problem, size_of(problem.units, slots), self.kind)
        self.restore(slots, n_groups(problem, len(slots)), header)
        if self.groups:
            self.restore_bins(problem, slots, serialise.take_bins(arrays, self.categorical))
            serialise.take_structure(arrays, self.forest, self.bins, self.candidates, self.groups)
            shift = self._rules().shift
            self.forest.gh[:, slots] = serialise.take_derivatives(arrays, self.forest, len(slots), self.scale, shift)
            self.forest = self._recounted(problem, slots)

    # -- checking -------------------------------------------------------------------------------

    def find_differences(self, problem: Problem, slots: Slots) -> list[str]:
        if not np.array_equal(np.flatnonzero(self.held), np.sort(slots)):
            return ["the trees do not hold the samples"]
        return compare(self.forest, self._recounted(problem, np.sort(slots))) if self.groups else []

    def check_invariants(self, problem: Problem, slots: Slots) -> None:
        wrong = self.recount(problem, slots)
        ensure(not wrong, f"counted wrong: {wrong[:3]}")
        ensure(self.groups > 0 or self.n_trees == 0, "without a choice there must be no trees")
        check_invariants(self.forest, self.codes, self.held, problem, slots)
