"""The engine of the fully dynamic decision tree (FuDyADT): owns the arrays, makes them grow, calls the kernels.

Nothing here knows ids, labels or categories. Kernels never allocate: when a pool is full they stop in a consistent
state and say so; the methods here enlarge it and call again.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from oubli.core.array_types import Array, Arrays, Hashes, Ints, Reals, Slots
from oubli.core.engine import Counterpart, Engine, Progress, Shape
from oubli.core.errors import CapacityError
from oubli.core.jit import aligned
from oubli.core.samples.arrays import Data, Problem
from oubli.core.tree import check, serialise
from oubli.core.tree.digest import tree_digest
from oubli.core.tree.feasibility import find_broken_promises
from oubli.core.tree.foresight import count_built, count_short_updates
from oubli.core.tree.grow import FULL, OK
from oubli.core.tree.importances import feature_importances
from oubli.core.tree.invariants import check_invariants
from oubli.core.tree.look import SingleTreeLook
from oubli.core.tree.parameters import MAX_DEPTH, MAX_SAMPLES, TreeParameters
from oubli.core.tree.predict import end_of, ends_of, list_tags
from oubli.core.tree.state import N_FREE_PAIRS, N_NODES, N_TAGS, NIL, ROOT, TreeArrays, empty_tree, zeroed_nodes
from oubli.core.tree.update import GO_ON, LEAVE_OFF, list_samples, run_updates
from oubli.core.tree.window import Window
from oubli.core.tree.workspace import STACK_SIZE, WorkingSpace, make_room

# A batch that is larger than both, in samples and as a share of those held, costs more to take in or out one by
# one than to build the tree anew.
_REBUILD_SHARE = 0.1
_REBUILD_SIZE = 1000
_CELLS_OF_READING = 20  # what reading a cell of a sample from Python takes, in such
_CELLS_A_SECOND = 10_000_000  # sorted and divided by a build, roughly: numeric columns, half the speed of some machine
# Working space for so many list entries is kept from one update to the next; more is given back.
_KEPT_ENTRIES = 2**20

_NO_SLOTS = np.zeros(0, np.int64)


class TreeEngine(Engine):
    """A tree that depends on its history within the bounds of its guarantee, until it is built anew.

    Attributes
    ----------
    tree : the arrays, see `state.py`.
    window : the samples in the order of arrival, if only the newest ones are held.
    """

    prefix = check.PREFIX
    format = 1

    settings: TreeParameters

    def __init__(self, settings: TreeParameters, *columns: Any) -> None:
        super().__init__(settings, *columns)
        tree = settings.tree
        self._rule = np.array(
            [min(tree.max_depth, MAX_DEPTH), tree.pruning_size, tree.alpha / 2, tree.epsilon], np.float64
        )
        self.tree = empty_tree(2)
        self.space = self._make_room(0, 0)
        self.keeps_order = settings.window is not None
        self.window: Window | None = None if settings.window is None else Window(settings.window)

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
    def n_nodes(self) -> int:
        """Nodes of the tree, tagged ones counted as the leaves they are for now."""
        meta = self.tree.meta
        return int(meta[N_NODES] - 2 * meta[N_FREE_PAIRS]) - 1

    @property
    def nbytes(self) -> int:
        return sum(array.nbytes for array in self.tree) + self.space.nbytes

    def _make_room(self, n_rows: int, n_codes: int) -> WorkingSpace:
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
        old_nodes, old_counts = self.tree.nodes, self.tree.counts
        capacity = 2 * len(old_nodes)
        enlarged = zeroed_nodes(capacity)
        enlarged[: len(old_nodes)] = old_nodes
        counts = np.zeros((capacity, self.width), np.int32)
        counts[: len(old_counts)] = old_counts
        self.tree = self.tree._replace(nodes=enlarged, counts=counts)

    def _widen(self, n_classes: int) -> None:
        """Make room for class codes up to `n_classes`; O(model)."""
        counts = np.zeros((len(self.tree.counts), n_classes), np.int32)
        counts[:, : self.width] = self.tree.counts
        space = make_room(0, 0, n_classes, self.cell_dtype, self.categorical, self._rule)
        old = self.space
        # One statement: no exception comes between its parts.
        self.tree, self.space = self.tree._replace(counts=counts), space
        _overwrite(old)

    # -- learning -------------------------------------------------------------------------------

    @staticmethod
    def check_capacity(settings: TreeParameters, n_samples: int, n_slots: int = 0) -> None:
        if n_samples > MAX_SAMPLES:
            raise CapacityError(f"a tree holds at most {MAX_SAMPLES} samples")

    def enqueue(self, slots: Slots) -> Slots:
        size = self.settings.window
        if size is None:
            return slots[:0]
        self.window = Window(size, slots[-size:].tolist())
        return slots[:-size]

    def leaving(self, n_new: int, slots: Sequence[int] = ()) -> list[int]:
        return [] if self.window is None else self.window.leaving(n_new, slots)

    def _aside(self, tree: TreeArrays) -> Self:
        """Another engine with these arrays, whose window is empty."""
        other = self.counterpart()
        other.tree = tree
        other.wipe()  # its working space is as wide as the arrays
        return other

    def fit(self, problem: Problem, slots: Slots, progress: Progress | None = None) -> None:
        other = self._aside(_planted(problem.data, slots, max(len(problem.ranks), self.width)))
        shortage = other.run(problem.data, _NO_SLOTS, 0, False, ROOT)
        if shortage is not None:
            raise shortage
        # One statement: no exception comes between its parts.
        self.tree, self.space, self.n_mutations = other.tree, other.space, 0
        if progress is not None:
            progress(1, 1)

    def _is_built_anew(self, n_changed: int, n_samples: int) -> bool:
        """Whether the tree is built anew when so many of the samples held have come, or will go.

        With an epsilon of 0 that comes to the same as learning them one by one, each of which builds the tree anew.
        """
        is_large = n_changed > _REBUILD_SIZE and n_changed > _REBUILD_SHARE * n_samples
        return is_large or self.settings.tree.epsilon == 0.0

    def add(self, problem: Problem, slots: Slots, *, lazy: bool = False) -> None:
        window, data, planted = self.window, problem.data, None
        if len(problem.ranks) > self.tree.counts.shape[1]:
            self._widen(len(problem.ranks))
        n = len(slots)
        if n > 1 and self._is_built_anew(n, problem.n_samples):
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
        """Take in samples one by one, each in the place of the oldest if the window is full; returns how many left."""
        n_left = 0
        for slot in slots.tolist():
            oldest = window.append(slot)
            n_left += oldest is not None
            if not is_planted:
                self.run(problem.data, np.array([slot] if oldest is None else [slot, oldest], np.int64), 1, lazy, NIL)
        return n_left

    def _planted_without(self, problem: Problem, leaving: Any) -> TreeArrays:
        stays = problem.held.copy()
        stays[leaving] = False
        return _planted(problem.data, np.flatnonzero(stays), self.width)

    def delete(self, problem: Problem, slots: Slots, *, lazy: bool = False) -> None:
        n, planted = len(slots), None
        if n > 1 and self._is_built_anew(n, problem.n_samples):
            planted = self._planted_without(problem, slots)
        self.changes.undo = None
        if self.window is not None:
            self.window.remove(slots.tolist())
        if planted is None:
            self.run(problem.data, slots, 0, lazy, NIL)
        else:
            self.tree = planted
        self.n_mutations += n

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
            space = self.space
            status, done, node = run_updates(
                *self.tree, data.cells, data.targets, data.category_hashes, space.lists, space.keys, space.arena,
                slots, n_added, lazy, done, node,
            )  # fmt: skip
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
            copied = self._aside(TreeArrays(*(array.copy() for array in self.tree)))
            return copied.counts(cells, category_hashes, class_order, problem, False)
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
        return SingleTreeLook(self.tree, problem.class_order())

    def header(self) -> dict[str, Any]:
        return dict(vars(self.settings.tree))

    def digests(self, class_order: Ints) -> list[str]:
        return [tree_digest(self.tree, self.n_nodes, class_order)]

    def seconds_to_verify(self, problem: Problem) -> float:
        depth = min(self.settings.tree.max_depth, 32)
        return problem.n_samples * self.n_features * (depth + _CELLS_OF_READING) / _CELLS_A_SECOND

    def takes_long(
        self, n_changed: int, row: Callable[[], tuple[Array, Hashes]], problem: Callable[[], Problem], seconds: float
    ) -> bool:
        n_rows = int(seconds * _CELLS_A_SECOND / self.n_features)
        if 2 * self.n_samples <= n_rows:
            return False
        n_updates = n_changed if self.window is None else 2 * n_changed
        nodes, epsilon = self.tree.nodes, self.settings.tree.epsilon
        if count_short_updates(nodes, epsilon, n_rows, np.empty(STACK_SIZE, np.int64)) >= max(n_updates, 1):
            return False
        if n_updates != 1:
            return True
        cells, category_hashes = row()
        return bool(count_built(nodes, epsilon, cells, 0, category_hashes) > n_rows)

    # -- keeping --------------------------------------------------------------------------------

    def copy(self) -> Self:
        other = self._aside(TreeArrays(*(array.copy() for array in self.tree)))
        other.n_mutations = self.n_mutations
        if self.window is not None:
            other.window = Window(self.window.size, self.window.slots())
        return other

    def wipe(self) -> None:
        """Overwrite the working space.

        What a sample leaves in slots, tables, leaves and pools is overwritten when it goes; splits that were chosen
        with it stay, until the tree is built anew.
        """
        old, self.space = self.space, self._make_room(0, 0)
        _overwrite(old)

    def shred(self) -> None:
        self.wipe()
        aligned.shred(self.tree)

    def arrays(self) -> Arrays:
        """The tree, see `serialise.py`, and what is known from the samples.

        held          bool[slots]: which slots hold samples
        class_counts  int64[classes]: samples by class code

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
        self.wipe()

    def _unpacked(self, arrays: Arrays, width: int, problem: Problem, slots: Slots) -> TreeArrays:
        return serialise.unpack(arrays, width, self.settings.tree.max_depth, problem.data, slots)

    @staticmethod
    def bytes_asked(settings: TreeParameters, shape: Shape, arrays: Arrays) -> int:
        """Bytes of the tree that is made of a file, roughly: each node counts all classes that there is room for."""
        if not arrays:
            return 0
        n_nodes, width = len(arrays["child"]), len(arrays["class_counts"])
        return 2 * n_nodes * (4 * width + 64) + 32 * width + 32 * shape.n_codes

    @classmethod
    def check_file(cls, document: Mapping[str, Any], arrays: Arrays, *, with_trees: bool) -> None:
        check.check_description(document, arrays, with_trees=with_trees)

    # -- checking -------------------------------------------------------------------------------

    def recount(self, problem: Problem, slots: Slots, fresh: Counterpart | None = None) -> list[str]:
        """Name the counters that differ when they are counted anew on the samples."""
        try:
            recounted = self._unpacked(self.arrays(), self.width, problem, slots)
        except ValueError as error:
            wrong = [str(error)]
        else:
            wrong = check.compare(self.tree, recounted)
        return wrong + check.check_updates(self.tree, self.settings.tree.epsilon)

    def broken_promises(self, problem: Problem, slots: Slots) -> list[str]:
        if not self.settings.is_feasible:
            return []
        return find_broken_promises(self.tree, self.settings, problem.data, slots)

    def check_invariants(self, problem: Problem, slots: Slots) -> None:
        check_invariants(self.tree, self.settings.tree, problem.data, slots)
        if self.window is not None and self.window.slots() != slots.tolist():
            raise AssertionError("the window has other samples, or in another order, than the store")


def _planted(data: Data, slots: Slots, width: int) -> TreeArrays:
    """A tree with the samples of `slots` under one tag at its root, and room for so many class codes."""
    arrays = empty_tree(width, n_slots=len(data.targets))
    list_samples(arrays, data.targets, slots)
    return arrays


def _overwrite(space: WorkingSpace) -> None:
    """Leave nothing of any sample in working space that is given up; its replacement is in use already."""
    for array in (space.lists, space.keys, space.arena):
        array.fill(0)
