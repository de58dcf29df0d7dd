"""The tree as one object: owns the arrays, makes them grow, calls the kernels.

Kernels never allocate. When the pool of nodes is full a build stops and says so; the methods here enlarge
the pool and let it go on. Nothing here knows ids, labels or categories.
"""

from collections.abc import Callable
from contextlib import suppress
from typing import Self

import numpy as np
import numpy.typing as npt

from oubli.core.array_types import Array, Arrays, Bools, Hashes, Ints, Reals
from oubli.core.changes import Changes
from oubli.core.jit import aligned
from oubli.core.samples.arrays import Data
from oubli.core.tree import serialise as packing
from oubli.core.tree import state as nodes
from oubli.core.tree.digest import tree_digest
from oubli.core.tree.foresight import count_built, count_short_updates
from oubli.core.tree.grow import FULL, OK
from oubli.core.tree.importances import feature_importances
from oubli.core.tree.invariants import check_invariants
from oubli.core.tree.parameters import MAX_DEPTH, TreeSettings
from oubli.core.tree.predict import end_of, ends_of, list_tags
from oubli.core.tree.state import NIL, ROOT, TreeArrays, empty_tree, zeroed_nodes
from oubli.core.tree.update import GO_ON, LEAVE_OFF, list_samples, run_updates
from oubli.core.tree.workspace import STACK_SIZE, WorkingSpace, make_room

# Working space for so many list entries is kept from one update to the next; more is given back.
_KEPT_ENTRIES = 2**20

_NO_SLOTS = np.zeros(0, np.int64)


class Tree:
    """A fully dynamic decision tree over the samples of a store.

    Parameters
    ----------
    settings : the tree's parameters.
    n_features : columns of the cells.
    n_classes : room for class codes, at least 1.
    cell_dtype : float32 or float64.
    categorical_mask : bool[n_features]
    changes : those of the samples' store; its own when left out.
    """

    def __init__(
        self,
        settings: TreeSettings,
        n_features: int,
        n_classes: int,
        cell_dtype: npt.DTypeLike,
        categorical_mask: Bools,
        changes: Changes | None = None,
    ) -> None:
        self.settings = settings
        self.changes = Changes() if changes is None else changes
        self.n_features = n_features
        self.cell_dtype = np.dtype(cell_dtype)
        self.categorical_mask = np.array(categorical_mask, np.bool_)
        self.arrays_ = empty_tree(max(n_classes, 2))
        self._rule = np.array(
            [min(settings.max_depth, MAX_DEPTH), settings.pruning_size, settings.alpha / 2, settings.epsilon],
            np.float64,
        )
        self._space = self._make_room(0, 0)

    # -- reading what is there ------------------------------------------------------------------

    @property
    def width(self) -> int:
        """Room for class codes."""
        width: int = self.arrays_.counts.shape[1]
        return width

    @property
    def n_samples(self) -> int:
        """Samples in the tree."""
        return int(self.arrays_.nodes["n_samples"][ROOT])

    def class_counts(self) -> Ints:
        """Samples by class code."""
        counts: Ints = self.arrays_.counts[ROOT].astype(np.int64)
        return counts

    @property
    def n_tags(self) -> int:
        """Subtrees that are to be rebuilt before a query may pass."""
        return int(self.arrays_.meta[nodes.N_TAGS])

    @property
    def n_nodes(self) -> int:
        """Nodes of the tree, tagged ones counted as the leaves they are for now."""
        meta = self.arrays_.meta
        return int(meta[nodes.N_NODES] - 2 * meta[nodes.N_FREE_PAIRS]) - 1

    @property
    def nbytes(self) -> int:
        """Bytes of the arrays, working space included."""
        return sum(array.nbytes for array in self.arrays_) + self._space.nbytes

    # -- room -----------------------------------------------------------------------------------

    def _make_room(self, n_rows: int, n_codes: int) -> WorkingSpace:
        return make_room(n_rows, n_codes, self.width, self.cell_dtype, self.categorical_mask, self._rule)

    def _reserve_rows(self, n_rows: int) -> None:
        """Make room for building on so many samples; on all there are, unless that would be kept for nothing."""
        kept = min(self.n_samples + self.n_samples // 2, _KEPT_ENTRIES // self.n_features)
        n_rows = max(n_rows, kept)
        if n_rows > self._space.n_rows:
            self._space = self._make_room(n_rows, self._space.n_codes)

    def reserve_slots(self, data: Data) -> None:
        """Make room for the lists of all samples."""
        links = self.arrays_.links
        if len(data.targets) > len(links):
            enlarged = np.full((len(data.targets), 2), NIL, np.int32)
            enlarged[: len(links)] = links
            self.arrays_ = self.arrays_._replace(links=enlarged)

    def _enlarge_pool(self) -> None:
        old_nodes, old_counts = self.arrays_.nodes, self.arrays_.counts
        capacity = 2 * len(old_nodes)
        enlarged = zeroed_nodes(capacity)
        enlarged[: len(old_nodes)] = old_nodes
        counts = np.zeros((capacity, self.width), np.int32)
        counts[: len(old_counts)] = old_counts
        self.arrays_ = self.arrays_._replace(nodes=enlarged, counts=counts)

    def widen(self, n_classes: int) -> None:
        """Make room for class codes up to `n_classes`; O(model)."""
        if n_classes <= self.width:
            return
        counts = np.zeros((len(self.arrays_.counts), n_classes), np.int32)
        counts[:, : self.width] = self.arrays_.counts
        space = make_room(0, 0, n_classes, self.cell_dtype, self.categorical_mask, self._rule)
        old = self._space
        # One statement: no exception comes between its parts.
        self.arrays_, self._space = self.arrays_._replace(counts=counts), space
        _overwrite(old)

    # -- learning -------------------------------------------------------------------------------

    def _empty(self, n_classes: int) -> Self:
        """A tree of the same parameters that holds nothing."""
        return type(self)(
            self.settings, self.n_features, n_classes, self.cell_dtype, self.categorical_mask, self.changes
        )

    def planted(self, data: Data, slots: Ints) -> Self:
        """Another tree: the samples of `slots` under one tag at the root."""
        other = self._empty(self.width)
        other.plant(data, slots)
        return other

    def built(self, data: Data, slots: Ints, n_classes: int) -> Self:
        """Another tree, with room for so many classes, built on the samples of `slots`: a pure function of them."""
        other = self._empty(max(n_classes, self.width))
        other.build(data, slots)
        return other

    def plant(self, data: Data, slots: Ints) -> None:
        """Forget the tree and put the samples of `slots` under one tag at the root."""
        arrays = empty_tree(self.width, n_slots=len(data.targets))
        list_samples(arrays, data.targets, slots)
        self.arrays_ = arrays

    def build(self, data: Data, slots: Ints) -> None:
        """Build the tree from nothing on the samples of `slots`: a pure function of them."""
        self.plant(data, slots)
        shortage = self._run(data, _NO_SLOTS, 0, False, ROOT)
        if shortage is not None:
            raise shortage

    def add(self, data: Data, slots: Ints, *, lazy: bool = False) -> None:
        """Learn the samples in `slots`, one after the other; `lazy` leaves tags instead of rebuilding."""
        self.exchange(data, slots, len(slots), lazy=lazy)

    def delete(self, data: Data, slots: Ints, *, lazy: bool = False) -> None:
        """Unlearn the samples in `slots`, one after the other; their cells and targets are still in place."""
        self.exchange(data, slots, 0, lazy=lazy)

    def exchange(self, data: Data, slots: Ints, n_added: int, *, lazy: bool = False) -> None:
        """Learn the samples in slots[:n_added] and unlearn those in the others, one after the other.

        The same as `add` and `delete` in one call, which for two samples takes less time. In a critical section.
        """
        if len(data.targets) > len(self.arrays_.links):
            self.reserve_slots(data)
        self._run(data, slots, n_added, lazy, NIL)

    def _build_below(self, data: Data, node: int) -> None:
        """Build the subtree of a tagged leaf; without memory for that, MemoryError, and tags stay."""
        with self.changes:
            shortage = self._run(data, _NO_SLOTS, 0, False, node)
        if shortage is not None:
            raise shortage

    def _run(self, data: Data, slots: Ints, n_added: int, lazy: bool, node: int) -> MemoryError | None:
        """Run the kernel, with more room whenever it asks for some.

        When there is no memory for that, the rest of `slots` is learned and unlearned lazily, and the tags stay; the
        error is returned.
        """
        done = 0
        shortage: MemoryError | None = None
        if len(data.category_hashes) > self._space.n_codes:
            try:
                self._space = self._make_room(self._space.n_rows, len(data.category_hashes))
            except MemoryError as error:
                shortage, lazy, node = error, True, NIL
        while True:
            space = self._space
            status, done, node = run_updates(
                *self.arrays_, data.cells, data.targets, data.category_hashes, space.lists, space.keys, space.arena,
                slots, n_added, lazy, done, node,
            )  # fmt: skip
            if status == OK:
                break
            try:
                if status == FULL:
                    self._enlarge_pool()
                    node = GO_ON
                else:
                    self._reserve_rows(int(self.arrays_.nodes["n_samples"][node]))
            except MemoryError as error:
                shortage, lazy = error, True
                node = LEAVE_OFF if status == FULL else NIL
        if self._space.lists.size > 4 * _KEPT_ENTRIES:
            with suppress(MemoryError):
                self.wipe_working_space()
        return shortage

    def resolve(self, data: Data, max_tags: int | None = None) -> int:
        """Rebuild the subtrees of all tags, or of `max_tags` at most, and return of how many."""
        tags = np.empty(self.n_tags if max_tags is None else min(max_tags, self.n_tags), np.int64)
        list_tags(self.arrays_.nodes, np.empty(STACK_SIZE, np.int64), tags)
        for node in tags.tolist():
            self._build_below(data, node)
        return len(tags)

    def n_short_updates(self, n_samples: int) -> int:
        """How many samples may come and go until one builds some `n_samples` or more anew; see `foresight.py`."""
        walk = np.empty(STACK_SIZE, np.int64)
        return int(count_short_updates(self.arrays_.nodes, self.settings.epsilon, n_samples, walk))

    def n_built_by(self, cells: Array, category_hashes: Hashes) -> int:
        """How many samples, roughly, are built anew when one with the features of a row, `cells`, comes or goes."""
        return int(count_built(self.arrays_.nodes, self.settings.epsilon, cells, 0, category_hashes))

    # -- reading --------------------------------------------------------------------------------

    def counts(self, data: Data, cells: Array, category_hashes: Hashes, *, frozen: bool = False) -> Ints:
        """Class counts, by class code, of the leaf of each row, or of its nearest ancestor that has samples.

        Tags that the rows meet are resolved first; when `frozen`, in a copy, so that nothing is written and
        the answer is the same.

        Parameters
        ----------
        data : the samples held.
        cells : float32/64[n, d], the rows.
        category_hashes : the hashes that categorical cells of the rows index.

        Returns
        -------
        int64[n, width]; zeros when the tree has no samples.
        """
        if frozen and self.n_tags > 0:
            return self.copy().counts(data, cells, category_hashes)
        ends = np.empty(len(cells), np.int32)
        done = ends_of(self.arrays_.nodes, cells, category_hashes, 0, ends)
        while done < len(cells):
            self._build_below(data, int(ends[done]))
            done = ends_of(self.arrays_.nodes, cells, category_hashes, done, ends)
        return self.arrays_.counts[ends].astype(np.int64)

    def count_one(self, data: Callable[[], Data], cells: Array, category_hashes: Hashes) -> Array:
        """Class counts for the one row of `cells`, as `counts` gives them; a view, only to be read.

        data : returns the samples held; only asked when there is a tag to be resolved.
        """
        node = end_of(self.arrays_.nodes, cells, 0, category_hashes)
        while node < 0:
            self._build_below(data(), ~node)
            node = end_of(self.arrays_.nodes, cells, 0, category_hashes)
        counts: Array = self.arrays_.counts[node]
        return counts

    def importances(self) -> Reals:
        """Share of each feature in the decrease of the Gini index; all tags must have been resolved."""
        return feature_importances(self.arrays_, self.n_features)

    def digest(self, class_order: Ints) -> str:
        """SHA-256 of what predictions read, hexadecimal; all tags must have been resolved.

        class_order : codes of the classes held, in canonical order.
        """
        return tree_digest(self.arrays_, self.n_nodes, class_order)

    # -- keeping --------------------------------------------------------------------------------

    def wipe_working_space(self) -> None:
        """Overwrite what updates left behind, so that it holds nothing of any sample."""
        old, self._space = self._space, self._make_room(0, 0)
        _overwrite(old)

    def shred(self) -> None:
        """Overwrite all arrays; the tree cannot be used afterwards."""
        self.wipe_working_space()
        aligned.shred(self.arrays_)

    def copy(self) -> "Tree":
        """An independent copy, tags included; O(size)."""
        other = Tree(self.settings, self.n_features, self.width, self.cell_dtype, self.categorical_mask)
        other.arrays_ = TreeArrays(*(array.copy() for array in self.arrays_))
        return other

    def arrays(self) -> Arrays:
        """The tree as arrays for a file, see `serialise.py`; tags included, nothing of unused capacity."""
        return packing.pack(self.arrays_, self.n_nodes)

    @classmethod
    def from_arrays(cls, settings: TreeSettings, n_classes: int, arrays: Arrays, data: Data, slots: Ints) -> Self:
        """Undo `arrays`, over the samples of `slots`.

        Raises
        ------
        ValueError
            When the arrays are not a tree of these samples, saying what is wrong.
        """
        tree = cls(settings, data.cells.shape[1], n_classes, data.cells.dtype, data.categorical)
        tree.arrays_ = packing.unpack(arrays, tree.width, settings.max_depth, data, slots)
        return tree

    def check_invariants(self, data: Data, slots: Ints) -> None:
        """Check that the tree holds the samples of `slots` and nothing else, and is sound; slow, for tests.

        Raises
        ------
        AssertionError
            Naming the node or slot and the rule that is broken.
        """
        check_invariants(self.arrays_, self.settings, data, slots)


def _overwrite(space: WorkingSpace) -> None:
    """Leave nothing of any sample in working space that is given up; its replacement is in use already."""
    for array in (space.lists, space.keys, space.arena):
        array.fill(0)
