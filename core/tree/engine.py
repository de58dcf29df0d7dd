"""The engine of the fully dynamic decision tree (FuDyADT): owns the arrays, makes them grow, calls the kernels.

Nothing here knows ids, labels or categories. Kernels never allocate: when a pool is full they stop in a consistent
state and say so; the methods here enlarge it and call again. With a sliding window the samples are also kept in the
order of their arrival, so that the oldest can leave.
"""

import math
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from itertools import chain, islice
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from oubli.core.array_types import Array, Arrays, Hashes, Ints, Reals, Slots
from oubli.core.engine import Counterpart, Engine, Progress, Shape, arrays_in, copied
from oubli.core.errors import CapacityError, ensure
from oubli.core.explanation.trees import WeightedTrees
from oubli.core.jit import aligned
from oubli.core.jit.nodes import N_FREE, NIL, tree_digest
from oubli.core.jit.policy import Direct
from oubli.core.jit.targets import GRID
from oubli.core.samples.arrays import Data, Problem
from oubli.core.tree import serialise
from oubli.core.tree.grow import FULL, OK
from oubli.core.tree.inspection import SingleTreeLook, feature_importances, weighted_trees
from oubli.core.tree.invariants import check_invariants, check_updates, compare, find_broken_promises
from oubli.core.tree.parameters import MAX_DEPTH, MAX_SAMPLES, TreeParameters
from oubli.core.tree.predict import end_of, ends_of, list_tags
from oubli.core.tree.state import N_TAGS, PAIRS, ROOT, TAGGED, TreeArrays, empty_tree, zeroed_nodes
from oubli.core.tree.update import (
    GO_ON,
    LEAVE_OFF,
    OVERDUE,
    count_built,
    count_short_updates,
    list_samples,
    run_updates,
)
from oubli.core.tree.workspace import STACK_SIZE, Scratch, make_room

# A batch of more samples than this, and of a larger share of those held or of more than the root takes until it is
# rebuilt, costs more to take in or out one by one than to rebuild the tree.
_REBUILD_SHARE = 0.1
_REBUILD_SIZE = 100
_CELLS_OF_READING = 20  # what reading a cell of a sample from Python takes, in such
_CELLS_A_SECOND = 10_000_000  # sorted and divided by a build, roughly: numeric columns, half the speed of some machine
_CHANGING = 2e-5  # seconds that a sample takes to come or go, without what is rebuilt for it
_REBUILDING = 1e-8  # seconds that a cell takes, on one level, in what is rebuilt while a batch comes or goes
# Working space for so many list entries is kept from one update to the next; more is given back.
_KEPT_ENTRIES = 2**20

_MOST_WHOLE = np.int32(2**23 - 1)  # what a node is built on at most where weights are counted in units

_NO_SLOTS = np.zeros(0, np.int64)

Window = OrderedDict[int, None]  # slots in the order of arrival; unlike in a dict, the first is found at once


class TreeEngine(Engine):
    """A tree that depends on its history within the bounds of its guarantee, until it is rebuilt.

    Attributes
    ----------
    tree : the arrays, see `state.py`.
    window : the slots in the order of arrival, the oldest first, if only the newest samples are held.
    is_whole : whether the weights of all samples are whole, so that the tree counts them, and no units.
    """

    prefix = serialise.PREFIX
    format = 1

    settings: TreeParameters

    def __init__(self, settings: TreeParameters, *columns: Any) -> None:
        super().__init__(settings, *columns)
        tree = settings.tree
        self._rule = np.array(
            [min(tree.max_depth, MAX_DEPTH), tree.pruning_size, tree.alpha / 2, tree.epsilon], np.float64
        )
        self.tree = empty_tree(2)
        self.is_whole = True
        self.space = self._make_room(0, 0)
        # By the size of the entries of lists; all other types are those of the engine.
        self._run_updates = {4: Direct(run_updates), 8: Direct(run_updates)}
        self.keeps_order = settings.window is not None
        self.window: Window | None = None if settings.window is None else OrderedDict()

    # -- room -----------------------------------------------------------------------------------

    @property
    def width(self) -> int:
        """Room for class codes."""
        return int(self.tree.counts.shape[1])

    @property
    def n_samples(self) -> int:
        """Samples in the tree."""
        return int(self.tree.nodes["n_samples"][ROOT])

    @property
    def _mean_amount(self) -> float:
        """What a sample counts for on average."""
        return float(self.tree.counts[ROOT].sum()) / self.n_samples if self.n_samples else 1.0

    @property
    def n_nodes(self) -> int:
        """Nodes of the tree, tagged ones counted as the leaves they are for now."""
        meta = self.tree.meta
        return int(meta[PAIRS] - 2 * meta[PAIRS + N_FREE]) - 1

    def _make_room(self, n_rows: int, n_codes: int) -> Scratch:
        return make_room(n_rows, n_codes, self.width, self.cell_dtype, self.categorical, self._rule)

    def _reserve_rows(self, n_rows: int) -> None:
        """Make room for building on so many samples; on all there are, unless that would be kept for nothing."""
        n_rows = max(n_rows, min(self.n_samples + self.n_samples // 2, _KEPT_ENTRIES // self.n_features))
        if n_rows > self.space.n_rows:
            self.space = self._make_room(n_rows, self.space.n_codes)

    def _reserve_slots(self, data: Data) -> None:
        """Make room for the lists of all samples."""
        n_more = len(data.targets) - len(self.tree.links)
        if n_more > 0:
            links = np.pad(self.tree.links, ((0, n_more), (0, 0)), constant_values=NIL)
            self.tree = self.tree._replace(links=links)

    def _enlarge_pool(self) -> None:
        nodes, capacity = self.tree.nodes, 2 * len(self.tree.nodes)
        enlarged = zeroed_nodes(capacity)
        enlarged[: len(nodes)] = nodes
        self.tree = self.tree._replace(nodes=enlarged, counts=aligned.enlarged(self.tree.counts, capacity))

    def _widen(self, n_classes: int) -> None:
        """Make room for class codes up to `n_classes`; O(model)."""
        counts = np.pad(self.tree.counts, ((0, 0), (0, n_classes - self.width)))
        space = make_room(0, 0, n_classes, self.cell_dtype, self.categorical, self._rule)
        old = self.space
        # One statement: no exception comes between its parts.
        self.tree, self.space = self.tree._replace(counts=counts), space
        aligned.shred(arrays_in(old))

    # -- learning -------------------------------------------------------------------------------

    @staticmethod
    def check_capacity(settings: TreeParameters, n_samples: int, n_slots: int = 0) -> None:
        if n_samples > MAX_SAMPLES:
            raise CapacityError(f"a tree holds at most {MAX_SAMPLES} samples")

    def enqueue(self, slots: Slots) -> Slots:
        size = self.settings.window
        if size is None:
            return slots[:0]
        self.window = OrderedDict.fromkeys(slots[-size:].tolist())
        return slots[:-size]

    def leaving(self, n_new: int, slots: Sequence[int] = ()) -> list[int]:
        window, size = self.window, self.settings.window
        if window is None or size is None:
            return []
        return list(islice(chain(window, slots), max(0, len(window) + n_new - size)))

    def _aside(self, tree: TreeArrays) -> Self:
        """Another engine with these arrays, whose window is empty."""
        other = self.counterpart()
        other.tree, other.is_whole = tree, self.is_whole
        other.wipe()  # its working space is as wide as the arrays
        return other

    def fit(self, problem: Problem, slots: Slots, progress: Progress | None = None) -> None:
        other = self._aside(_planted(problem.data, slots, max(len(problem.ranks), self.width)))
        shortage = other.run(problem.data, _NO_SLOTS, 0, False, ROOT)
        if shortage is not None:
            raise shortage
        with self.changes:
            self.tree, self.space, self.n_mutations = other.tree, other.space, 0
            self.is_whole = problem.is_whole
        if progress is not None:
            progress(1, 1)

    def _is_rebuilt(self, n_changed: int, n_samples: int) -> bool:
        """Whether the tree is rebuilt when so many of the samples held have come, or will go.

        With an epsilon of 0 that comes to the same as learning them one by one, each of which rebuilds the tree.
        """
        if self.settings.tree.epsilon == 0.0:
            return True
        return n_changed > _REBUILD_SIZE and n_changed > min(_REBUILD_SHARE * n_samples, self._updates_left())

    def _updates_left(self) -> float:
        """How many updates the root takes until it is rebuilt."""
        root = self.tree.nodes[ROOT]
        if root["flags"] & TAGGED:
            return math.inf
        return float(self.settings.tree.epsilon * root["built"] - root["touched"]) / self._mean_amount

    def add(self, problem: Problem, slots: Slots, *, lazy: bool = False) -> None:
        window, data, planted = self.window, problem.data, None
        if len(problem.ranks) > self.tree.counts.shape[1]:
            self._widen(len(problem.ranks))
        n = len(slots)
        if n > 1 and self._is_rebuilt(n, problem.n_samples):
            planted = self._planted_without(problem, self.leaving(n, slots.tolist()))
        elif len(data.targets) > len(self.tree.links):
            self._reserve_slots(data)
        self.changes.undo = None
        if window is not None:
            n += self._slide(window, problem, slots, lazy, is_planted=planted is not None)
        elif planted is None:
            self.run(data, slots, n, lazy, NIL)
        if planted is not None:
            self.tree = planted
        self.n_mutations += n

    def _slide(self, window: Window, problem: Problem, slots: Slots, lazy: bool, *, is_planted: bool) -> int:
        """Add samples one by one; each replaces the oldest if the window is full. Returns how many left."""
        n_left = 0
        for slot in slots.tolist():
            leaving = self.leaving(1, [slot])
            window[slot] = None
            for oldest in leaving:
                del window[oldest]
            n_left += len(leaving)
            if not is_planted:
                self.run(problem.data, np.array([slot, *leaving], np.int64), 1, lazy, NIL)
        return n_left

    def _planted_without(self, problem: Problem, leaving: Any) -> TreeArrays:
        stays = problem.held.copy()
        stays[leaving] = False
        return _planted(problem.data, np.flatnonzero(stays), self.width)

    def delete(self, problem: Problem, slots: Slots, *, lazy: bool = False) -> None:
        n, planted = len(slots), None
        if n > 1 and self._is_rebuilt(n, problem.n_samples):
            planted = self._planted_without(problem, slots)
        self.changes.undo = None
        if self.window is not None:
            for slot in slots.tolist():
                del self.window[slot]
        if planted is None:
            self.run(problem.data, slots, 0, lazy, NIL)
        else:
            self.tree = planted
        self.n_mutations += n

    def follow_weights(self, problem: Problem) -> None:
        was_whole, self.is_whole = self.is_whole, problem.is_whole
        if self.is_whole == was_whole:
            return
        counts, built, touched = self.tree.counts, self.tree.nodes["built"], self.tree.nodes["touched"]
        if was_whole:
            np.minimum(built, _MOST_WHOLE, out=built)
            for numbers in (counts, built, touched):
                numbers *= GRID
        else:
            touched += GRID - 1  # nodes may have been built on parts, and parts have come and gone: rounded up
            for numbers in (counts, built, touched):
                numbers //= GRID
        # Rounding may have a node come to be rebuilt.
        self._run_updates[self.space.lists.itemsize].call(
            self.tree, problem.data, self.space, _NO_SLOTS, 0, True, 0, OVERDUE
        )

    def run(self, data: Data, slots: Slots, n_added: int, lazy: bool, node: int) -> MemoryError | None:
        """Learn the samples in slots[:n_added] and unlearn those in the others, one after the other.

        `lazy` leaves tags instead of rebuilding. The kernel gets more room whenever it asks for some. When there is no
        memory for that, the rest of `slots` is learned and unlearned lazily, and the tags stay; the error is returned.

        node : a tagged leaf whose subtree is built, or NIL.
        """
        done = 0
        shortage: MemoryError | None = None
        if len(data.category_hashes) > self.space.n_codes:
            try:
                self.space = self._make_room(self.space.n_rows, len(data.category_hashes))
            except MemoryError as error:
                shortage, lazy, node = error, True, NIL
        while True:
            run_updates = self._run_updates[self.space.lists.itemsize]
            status, done, node = run_updates.call(self.tree, data, self.space, slots, n_added, lazy, done, node)
            if status == OK:
                break
            try:
                if status == FULL:
                    self._enlarge_pool()
                    node = GO_ON
                else:
                    self._reserve_rows(int(self.tree.nodes["n_samples"][node]))
            except MemoryError as error:
                shortage, lazy = error, True
                node = LEAVE_OFF if status == FULL else NIL
        if self.space.lists.size > 4 * _KEPT_ENTRIES:
            with suppress(MemoryError):
                self.wipe()
        return shortage

    def _build_below(self, data: Data, node: int) -> None:
        """Build the subtree of a tagged leaf; without memory for that, MemoryError, and tags stay."""
        with self.changes:
            shortage = self.run(data, _NO_SLOTS, 0, False, node)
        if shortage is not None:
            raise shortage

    @property
    def n_tags(self) -> int:
        n_tags: int = self.tree.meta.item(N_TAGS)
        return n_tags

    def resolve(self, problem: Problem, max_tags: int | None = None) -> int:
        """Build the subtrees of all tags and return how many there were; or those of `max_tags` at most."""
        tags = np.empty(self.n_tags if max_tags is None else min(max_tags, self.n_tags), np.int64)
        list_tags(self.tree.nodes, np.empty(STACK_SIZE, np.int64), tags)
        for node in tags.tolist():
            self._build_below(problem.data, node)
        return len(tags)

    # -- reading --------------------------------------------------------------------------------

    def counts(
        self, cells: Array, category_hashes: Hashes, class_order: Ints, problem: Callable[[], Problem], frozen: bool
    ) -> npt.NDArray[np.integer[Any]]:
        """Class counts of the leaf of each row, or of its nearest ancestor that has samples.

        Tags that the rows meet are resolved first; when `frozen`, in a copy, so that nothing is written and the answer
        is the same.

        Returns
        -------
        int[n, n_classes] in the order of the classes; int[n_classes] for one row. Arrays of one dimension are so much
        faster that a single row is worth the exception.
        """
        if frozen and self.n_tags:
            return self._aside(copied(self.tree)).counts(cells, category_hashes, class_order, problem, False)
        if len(cells) == 1:
            node = end_of(self.tree.nodes, cells, 0, category_hashes)
            while node < 0:
                self._build_below(problem().data, ~node)
                node = end_of(self.tree.nodes, cells, 0, category_hashes)
            counts: Array = self.tree.counts[node]
            return counts[class_order]
        ends = np.empty(len(cells), np.int32)
        done = ends_of(self.tree.nodes, cells, category_hashes, 0, ends)
        while done < len(cells):
            self._build_below(problem().data, int(ends[done]))
            done = ends_of(self.tree.nodes, cells, category_hashes, done, ends)
        return self.tree.counts[ends].astype(np.int64).take(class_order, axis=1)

    def predict(
        self, cells: Array, category_hashes: Hashes, class_order: Ints, problem: Callable[[], Problem], frozen: bool
    ) -> Reals:
        counts = self.counts(cells, category_hashes, class_order, problem, frozen)
        shares: Reals
        if counts.ndim == 1:
            shares = (counts / counts.sum())[np.newaxis]
        else:
            shares = counts / counts.sum(axis=1, keepdims=True)
        return shares

    def importances(self) -> Reals:
        return feature_importances(self.tree, self.n_features)

    @property
    def n_drawn_trees(self) -> int:
        return 1

    def look(self, tree: int, problem: Problem) -> SingleTreeLook:
        return SingleTreeLook(self.tree, problem.class_order(), is_whole=self.is_whole)

    def weighted_trees(self, problem: Problem, class_order: Ints) -> WeightedTrees:
        return weighted_trees(self.tree, self.n_features, class_order)

    def header(self) -> dict[str, Any]:
        return dict(vars(self.settings.tree))

    def digests(self, class_order: Ints) -> list[str]:
        return [tree_digest(self.tree.nodes, self.tree.counts, ROOT, class_order, are_by_node=True)]

    def seconds_to_verify(self, problem: Problem) -> float:
        depth = min(self.settings.tree.max_depth, 32)
        return problem.n_samples * self.n_features * (depth + _CELLS_OF_READING) / _CELLS_A_SECOND

    def seconds_to_change(self, n_changed: int, problem: Problem) -> float:
        if n_changed > 1 and self._is_rebuilt(n_changed, problem.n_samples):
            return self.n_features * problem.n_samples / _CELLS_A_SECOND
        n_updates, epsilon = n_changed if self.window is None else 2 * n_changed, self.settings.tree.epsilon
        # On each level a node of s samples is rebuilt after epsilon s updates; single ones: see `builds_long`.
        cells = self.n_features * math.log2(problem.n_samples + 2) / epsilon if epsilon and n_changed > 1 else 0.0
        return n_updates * (_CHANGING + cells * _REBUILDING)

    def builds_long(
        self, n_changed: int, row: Callable[[], tuple[Array, Hashes]], problem: Callable[[], Problem], seconds: float
    ) -> bool:
        n_rows = int(seconds * _CELLS_A_SECOND / self.n_features)
        if 2 * self.n_samples <= n_rows:
            return False
        n_updates = n_changed if self.window is None else 2 * n_changed
        nodes, epsilon, mean = self.tree.nodes, self.settings.tree.epsilon, self._mean_amount
        n_rows, amount = int(n_rows * mean), math.ceil(mean)
        if count_short_updates(nodes, epsilon, n_rows, np.empty(STACK_SIZE, np.int64)) >= max(n_updates, 1) * amount:
            return False
        if n_updates != 1:
            return True
        cells, category_hashes = row()
        return bool(count_built(nodes, epsilon, cells, 0, category_hashes, amount) > n_rows)

    # -- keeping --------------------------------------------------------------------------------

    def copy(self) -> Self:
        other = self._aside(copied(self.tree))
        other.n_mutations = self.n_mutations
        if self.window is not None:
            other.window = self.window.copy()
        return other

    def wipe(self) -> None:
        """Overwrite the working space.

        What a sample leaves in slots, tables, leaves and pools is overwritten when it goes; splits that were chosen
        with it stay, until the tree is rebuilt.
        """
        old, self.space = self.space, self._make_room(0, 0)
        aligned.shred(arrays_in(old))

    def shred(self) -> None:
        self.wipe()
        aligned.shred(self.tree)

    def arrays(self) -> Arrays:
        """The tree, see `serialise.py`, and what is known from the samples.

        held          bool[slots]: which slots hold samples
        class_counts  int64[classes]: samples by class code, by weight

        They say how much room a tree takes, and make a file that asks for more room than it has samples for as large as
        that.
        """
        arrays = serialise.pack(self.tree, self.n_nodes)
        members = arrays["members"]
        held = np.zeros(int(members.max()) + 1 if len(members) else 0, np.bool_)
        held[members] = True
        return {**arrays, "held": held, "class_counts": self.tree.counts[ROOT].astype(np.int64)}

    def take_over(self, arrays: Arrays, problem: Problem, slots: Slots) -> None:
        self.tree = self._unpacked(arrays, max(len(arrays["class_counts"]), 2), problem, slots)
        self.is_whole = problem.is_whole
        self.wipe()

    def _unpacked(self, arrays: Arrays, width: int, problem: Problem, slots: Slots) -> TreeArrays:
        return serialise.unpack(arrays, width, self.settings.tree.max_depth, problem.data, slots)

    @staticmethod
    def bytes_asked(settings: TreeParameters, shape: Shape, arrays: Arrays) -> int:
        """Bytes of the tree that a file gives, roughly: each node counts all classes that there is room for."""
        if not arrays:
            return 0
        n_nodes, width = len(arrays["child"]), len(arrays["class_counts"])
        return 2 * n_nodes * (4 * width + 64) + 32 * width + 32 * shape.n_codes

    @classmethod
    def check_file(cls, document: Mapping[str, Any], arrays: Arrays, *, with_trees: bool) -> None:
        serialise.check_description(document, arrays, with_trees=with_trees)

    # -- checking -------------------------------------------------------------------------------

    def recount(self, problem: Problem, slots: Slots, fresh: Counterpart | None = None) -> list[str]:
        """Name the counters that differ when they are counted again on the samples."""
        return self._recounted(problem, slots) + check_updates(self.tree, self.settings.tree.epsilon)

    def _recounted(self, problem: Problem, slots: Slots) -> list[str]:
        try:
            recounted = self._unpacked(self.arrays(), self.width, problem, np.sort(slots))
        except ValueError as error:
            return [str(error)]
        return compare(self.tree, recounted)

    def broken_promises(self, problem: Problem, slots: Slots) -> list[str]:
        if not self.settings.is_feasible:
            return []
        return find_broken_promises(self.tree, self.settings, problem.data, slots)

    def check_invariants(self, problem: Problem, slots: Slots) -> None:
        check_invariants(self.tree, self.settings.tree, slots)
        wrong = self._recounted(problem, slots)
        ensure(not wrong, "; ".join(wrong))
        if self.window is not None and list(self.window) != slots.tolist():
            raise AssertionError("the window has other samples, or in another order, than the store")


def _planted(data: Data, slots: Slots, width: int) -> TreeArrays:
    """A tree with the samples of `slots` under one tag at its root, and room for so many class codes."""
    arrays = empty_tree(width, n_slots=len(data.targets))
    list_samples(arrays, data.targets, slots)
    return arrays
