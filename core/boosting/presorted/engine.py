"""Exact boosting without quantization: iGBDT.

"On Incremental Learning for Gradient Boosting Decision Trees" (Zhang et al. 2019), section 4.

    orders      the presorted columns: merged, never sorted again                            state.py
    table       what the search reads of them, prepared once an update                       state.py
    words       derivatives in fixed point                                                   derivatives.py
    trees       grown one after the other, each node compared with the one in its place      grow.py

F_0 depends on every sample, and so do all residuals: an update is a fit without sorting. It keeps the nodes whose
column is still the best and says how many these are, but no check is cheaper than the search that a rebuild would make.
"""

from dataclasses import dataclass
from functools import partial
from typing import Any, Self

import numpy as np

from oubli.core.array_types import Arrays, Bools, Reals, Slots
from oubli.core.boosting.engine import ExactEngine
from oubli.core.boosting.incremental.parameters import IncrementalSettings
from oubli.core.boosting.loss import HUBER
from oubli.core.boosting.parameters import check_size, n_groups
from oubli.core.boosting.presorted import state as presorting
from oubli.core.boosting.presorted import workspace as r
from oubli.core.boosting.presorted.boost import ThreadedBoosting, boost
from oubli.core.boosting.presorted.derivatives import SQUARED, Start, Watch, begin, mark_validating, targets_of_others
from oubli.core.boosting.presorted.serialise import check_trees, put_together, take_apart
from oubli.core.boosting.state import LEAF, NODE, Trees, no_trees
from oubli.core.boosting.weights import units_of
from oubli.core.engine import Progress, Shape, copied
from oubli.core.errors import expect
from oubli.core.jit import aligned
from oubli.core.samples.arrays import Data, Problem

_NODES_A_CALL = 2**16  # of the trees grown by one call of the kernel, so that there is room for them
_LEAST_ANEW = 512  # samples that come or go, from which on it may pay to begin from nothing


@dataclass(frozen=True)
class LastUpdate:
    """What the last update did; after a fresh fit, nothing is kept or changed.

    Attributes
    ----------
    nodes_kept : inner nodes whose column is still the best one, below such nodes.
    nodes_changed : nodes below them where it is not; the subtrees there are new.
    first_tree_changed : the first tree whose root changed; -1 when none did.
    """

    nodes_kept: int = 0
    nodes_changed: int = 0
    first_tree_changed: int = -1


class PresortedTrees(ExactEngine):
    """Boosted trees whose splits are searched over all thresholds: the engine of `quantization=None`.

    Parameters
    ----------
    settings : the parameters in force.
    n_features : columns of the cells.
    cell_dtype : float32 or float64.
    categorical : bool[n_features]
    is_classification : whether labels are classes.
    """

    trees: Trees = no_trees()

    def __init__(self, settings: IncrementalSettings, *columns: Any) -> None:
        super().__init__(settings, *columns)
        self.forget()

    def become(self, other: Self) -> None:
        """Take over everything from an engine that was made aside, in one step, and leave nothing of the columns."""
        old = self.orders
        super().become(other)
        if old is not self.orders:
            for array in old:
                array.fill(0)

    def forget(self) -> None:
        nothing = np.zeros(0, np.int64)
        self.orders = presorting.Orders(nothing, np.zeros((self.n_features, 0), np.int32))
        self.others = nothing
        self.trees = no_trees()
        self.split_gains = np.zeros(0)
        self.last_update = LastUpdate()

    # -- reading what is there ------------------------------------------------------------------

    @property
    def n_trees(self) -> int:
        """Trees held."""
        return len(self.trees.roots)

    def gains(self) -> Reals:
        feature = self.trees.nodes["feature"]
        is_split = feature != LEAF
        return np.bincount(feature[is_split], self.split_gains[is_split], self.n_features).astype(np.float64)

    # -- learning -------------------------------------------------------------------------------

    def join(self, problem: Problem, slots: Slots) -> None:
        held = np.concatenate([self.orders.slots, self.others])
        other = self.aside()
        if len(slots) >= max(len(held), _LEAST_ANEW):
            other.trees = no_trees()  # hardly a node of theirs stays where most samples are others
            other.train_on(problem, np.concatenate([held, slots]))
        elif self._validates(problem.data, self.orders.slots[:1]).all():
            # There were none, or all validate by their ids and train for want of others.
            other.train_on(problem, np.concatenate([held, slots]))
        else:
            validates = self._validates(problem.data, slots)
            other.others = np.concatenate([self.others, slots[validates]])
            other.orders = presorting.merge_samples(self.orders, problem.data, slots[~validates], self.n_threads)
            other.grow_trees(problem, None)
        self.become(other)

    def leave(self, problem: Problem, slots: Slots) -> None:
        held = np.concatenate([self.orders.slots, self.others])
        other = self.aside()
        if len(slots) >= max(len(held) - len(slots), _LEAST_ANEW):
            other.trees = no_trees()
            other.train_on(problem, held[~presorting.is_among(held, slots)])
        else:
            other.orders = presorting.remove_samples(self.orders, slots, self.n_threads)
            other.others = self.others[~presorting.is_among(self.others, slots)]
            if other.orders.n_samples == 0 and len(other.others) > 0:
                other.train_on(problem, other.others)
            else:
                other.grow_trees(problem, None)
        self.become(other)

    def train_on(self, problem: Problem, slots: Slots, progress: Progress | None = None) -> None:
        """Hold these samples from now on, others than before of which train."""
        training, self.others = self.divide(problem.data, slots)
        self.orders = presorting.sort_columns(problem.data, training, self.n_threads)
        self.grow_trees(problem, progress)

    def _validates(self, data: Data, slots: Slots) -> Bools:
        """Whether samples validate by their ids."""
        validates = np.zeros(len(slots), np.bool_)
        if self.settings.patience > 0:
            seed, limit = np.uint64(self.settings.seed), self.settings.validation_limit
            mark_validating(data.id_hashes, slots, seed, limit, validates)
        return validates

    def divide(self, data: Data, slots: Slots) -> tuple[Slots, Slots]:
        """Tell samples that train from those that validate; when none would train, all do."""
        validates = self._validates(data, slots)
        if validates.all():
            return slots, slots[:0]
        return slots[~validates], slots[validates]

    def begin(self, problem: Problem) -> Start:
        """Where boosting starts from."""
        s = self.settings
        weights = s.l2_regularization, s.min_child_weight
        return begin(problem, self.orders.slots, s.learning_rate, *weights, self.kind or SQUARED, s.level, s.seed)

    def loss_level(self, problem: Problem) -> float:
        start = self.begin(problem)
        return start.loss.level * (start.unit if self.kind == HUBER else 1.0)

    def _watch(self, problem: Problem, start: Start) -> Watch:
        """What decides when training ends."""
        others = self.others
        return Watch(
            self.settings.patience if len(others) else 0,
            others,
            targets_of_others(problem, self.orders.slots, others),
            units_of(problem.units, others),
            np.repeat(start.first[:, np.newaxis], len(others), axis=1),
            np.zeros(self.settings.n_estimators, np.int64),
        )

    def grow_trees(self, problem: Problem, progress: Progress | None) -> None:
        """Grow all trees on the presorted columns, comparing them with those there were."""
        groups = n_groups(problem, self.orders.n_samples)
        if groups == 0:
            self.trees, self.split_gains, self.last_update = no_trees(), np.zeros(0), LastUpdate()
            return
        data, settings, old = problem.data, self.settings, self.trees
        check_size(settings.n_estimators, groups, 2 ** (settings.max_depth + 1) - 1)
        start = self.begin(problem)
        table = presorting.make_table(self.orders, data, settings.max_depth, self.n_threads)
        derivatives = r.make_derivatives(self.orders.n_samples, start.first)
        watch, room = self._watch(problem, start), r.make_room(table, settings.max_depth)
        directions = np.array(settings.monotone or (0,) * self.n_features, np.int64)
        boosting = r.Boosting(table, room, derivatives, start.loss, watch, settings.max_depth, directions)
        counts = np.zeros(r.COUNTS_SIZE, np.int64)
        counts[r.FIRST_CHANGED] = r.NIL
        old_roots = old.roots if old.n_groups == groups else old.roots[:0]
        # No tree has more leaves than there are samples.
        a_tree = 2 * min(2**settings.max_depth, self.orders.n_samples) - 1
        step = 1 if progress is not None else max(1, _NODES_A_CALL // (a_tree * groups))
        nodes, gains = np.zeros(0, NODE), np.zeros(0)
        roots = np.zeros(settings.n_estimators * groups, np.int32)
        size, done, best, last = 0, 0, 0, settings.n_estimators
        in_threads = self.in_threads(ThreadedBoosting, boosting, a_tree)
        grow = partial(boost, boosting) if in_threads is None else in_threads.boost
        while done < last:
            end = min(done + step, last)
            nodes, gains = _enlarged(nodes, gains, size, (end - done) * groups * a_tree)
            size, done, best = grow(old.nodes, old_roots, nodes, gains, roots, size, best, done, end, counts)
            for k in range(groups if progress is not None else 0):
                progress((done - 1) * groups + k + 1, last * groups)  # type: ignore[misc]
            if watch.patience and done - 1 - best >= watch.patience:
                break
        n_trees = groups * (best + 1 if watch.patience else done)
        n_nodes = size if n_trees == done * groups else int(roots[n_trees])
        self.trees = Trees(nodes[:n_nodes].copy(), roots[:n_trees].copy(), start.base, start.unit)
        self.split_gains = gains[:n_nodes].copy()
        self.last_update = LastUpdate(*counts.tolist()) if len(old_roots) else LastUpdate()
        if in_threads is not None:
            in_threads.erase()
        of_table = table.codes, table.values, table.hashes, table.lists
        for array in (*room, *derivatives, *of_table, nodes, gains, watch.scores):
            array.fill(0)

    # -- keeping --------------------------------------------------------------------------------

    def wipe(self) -> None:
        """Do nothing: working space is overwritten at the end of every update."""

    def shred(self) -> None:
        """Overwrite the arrays that no copy shares; the trees cannot be used afterwards."""
        aligned.shred((*self.orders, self.others, self.trees.nodes, self.split_gains))

    def copy(self) -> Self:
        other = self.aside()
        other.orders, other.trees = copied(self.orders), copied(self.trees)
        other.others, other.split_gains = self.others.copy(), self.split_gains.copy()
        return other

    def arrays(self) -> Arrays:
        """The trees as arrays for a file."""
        return take_apart(self.trees.nodes, self.trees.roots, self.split_gains)

    @staticmethod
    def bytes_asked(settings: IncrementalSettings, shape: Shape, arrays: Arrays) -> int:
        """Bytes of the engine that a file is read into, roughly, without the arrays that are as large in the file."""
        return 16 * shape.n_samples * len(shape.categorical) + 8 * settings.n_estimators * shape.groups

    def take_over(self, arrays: Arrays, problem: Problem, slots: Slots) -> None:
        """Undo `arrays`, over the samples of `slots`; what follows from these is computed again.

        Raises
        ------
        ValueError
            When the arrays are not sound, saying what is wrong.
        """
        settings = self.settings
        nodes, roots, gains = put_together(arrays, settings.max_depth, self.categorical)
        training, self.others = self.divide(problem.data, slots)
        groups = n_groups(problem, len(training))
        most, step = settings.n_estimators * groups, max(groups, 1)
        least = step if groups > 0 and settings.patience > 0 and len(self.others) > 0 else most
        expect(least <= len(roots) <= most and len(roots) % step == 0, "the number of trees (roots) is wrong")
        self.orders = presorting.sort_columns(problem.data, training, self.n_threads)
        if groups > 0:
            start = self.begin(problem)
            self.trees = Trees(nodes, roots, start.base, start.unit)
            self.split_gains = gains

    # -- checking -------------------------------------------------------------------------------

    def find_differences(self, problem: Problem, slots: Slots) -> list[str]:
        training, others = self.divide(problem.data, slots)
        wrong = presorting.check_orders(self.orders, problem.data, training)
        if not np.array_equal(np.sort(others), np.sort(self.others)):
            wrong.append("other samples should validate")
        if not wrong and n_groups(problem, len(training)) > 0:
            start = self.begin(problem)
            if not np.array_equal(start.base, self.trees.base) or start.unit != self.trees.unit:
                wrong.append("boosting should begin elsewhere")
        return wrong

    def find_unsound(self, problem: Problem, slots: Slots) -> list[str]:
        groups = n_groups(problem, self.orders.n_samples)
        if self.trees.n_groups != groups:
            return [f"there are {self.trees.n_groups} trees an iteration instead of {groups}"]
        try:
            check_trees(self.trees.nodes, self.trees.roots, self.settings.max_depth, self.categorical)
        except ValueError as error:
            return [str(error)]
        return []


def _enlarged(nodes: Any, gains: Any, size: int, n_more: int) -> tuple[Any, Any]:
    """Room for more nodes behind the first `size`."""
    if size + n_more <= len(nodes):
        return nodes, gains
    capacity = max(size + n_more, 2 * len(nodes))
    more_nodes, more_gains = np.zeros(capacity, NODE), np.zeros(capacity)
    more_nodes[:size], more_gains[:size] = nodes[:size], gains[:size]
    return more_nodes, more_gains
