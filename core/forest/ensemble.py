"""The trees as one object: owns the arrays, makes them grow, calls the kernels.

Kernels never allocate. When a pool is full they stop in a consistent state and say so; the methods
here enlarge the pool and call again. Nothing here knows ids, labels or categories.
"""

from collections.abc import Callable
from typing import Self

import numpy as np
import numpy.typing as npt

from oubli.core.array_types import Arrays, Hashes, Ints, Reals
from oubli.core.errors import CapacityError
from oubli.core.forest import state as nodes
from oubli.core.forest import workspace as inputs
from oubli.core.forest.blocks import Blocks, Layout, blocks_over, layout_of, relaid
from oubli.core.forest.grow import FULL
from oubli.core.forest.parameters import MAX_ENTRIES, ForestSettings
from oubli.core.forest.predict import ROWS_AT_A_TIME, sum_leaves, sum_leaves_frozen
from oubli.core.forest.resolve import resolve_paths, resolve_tree
from oubli.core.forest.serialise import check_bounds, pack, unpack
from oubli.core.forest.state import NIL, Trees, empty_trees
from oubli.core.forest.update import ADD, DELETE, count_members, plant, update_samples
from oubli.core.forest.workspace import Parameters, Scratch, UpdateScratch
from oubli.core.jit import aligned
from oubli.core.jit.direct import Direct
from oubli.core.rng import mix
from oubli.core.samples.arrays import Data

_NO_LIMIT = 2**62
_WHOLE_BELOW = 512  # samples below which a subtree is grown in one step, well under a millisecond
_SHORT_WORK = 8192  # samples looked at, a level counting anew, in one short piece of resolving
# A mutation waits for the memory of every block that it passes, so a large tree has them only at its largest nodes:
# those that hold such a share of its samples, or so many that counting them again is no short piece of work.
_SHARE_WITH_BLOCK = 1 / 50
_SURELY_WITH_BLOCK = 2048


class Ensemble:
    """T dynamic trees over the samples of a store.

    Parameters
    ----------
    settings : the forest's parameters.
    n_features : columns of the cells.
    n_classes : room for class codes; ignored for regression.
    cell_dtype : float32 or float64.
    has_categories : whether any column is categorical.
    smallest_block : samples from which on a node keeps counters; by default where that is cheaper than counting.
    """

    def __init__(
        self,
        settings: ForestSettings,
        n_features: int,
        n_classes: int,
        cell_dtype: npt.DTypeLike,
        has_categories: bool,
        smallest_block: int | None = None,
    ) -> None:
        self.settings = settings
        self.n_features = n_features
        self.cell_dtype = np.dtype(cell_dtype)
        self.has_categories = has_categories
        self.width: int = 2 if settings.is_regression else n_classes
        self._smallest_block = smallest_block
        self._n_planted = 0  # samples of the largest tree when the trees were planted
        # The types of all that these are given are those of the forest.
        self._update_samples, self._resolve_tree_of = Direct(update_samples), Direct(resolve_tree)
        self._resolve_paths, self._sum_leaves_of = Direct(resolve_paths), Direct(sum_leaves)
        self.is_planted = False  # whether the pools have yet to be made as large as the trees will be
        self.parameters = self.make_parameters()
        self.trees = self._empty_trees()
        self.blocks = self._empty_blocks(2)
        self.scratch = self.empty_scratch(64, 0)
        self._update_scratch = UpdateScratch.part_of(self.scratch)

    def make_parameters(self) -> Parameters:
        """The parameters as the kernels read them."""
        settings = self.settings
        values = np.zeros(inputs.PARAMETERS_SIZE, np.int64)
        values[inputs.N_TREES] = settings.n_trees
        values[inputs.OCCURRENCES] = settings.occurrences
        values[inputs.MAX_DEPTH] = settings.max_depth
        values[inputs.MIN_SAMPLES_SPLIT] = settings.min_samples_split
        values[inputs.MAX_FEATURES] = settings.max_features
        values[inputs.CRITERION] = settings.criterion
        values[inputs.IS_REGRESSION] = settings.is_regression
        values[inputs.BLOCK_MINIMUM] = self._block_minimum()
        layout = self.layout
        values[inputs.WIDTH] = self.width
        values[inputs.N_THRESHOLDS] = settings.n_thresholds
        values[inputs.N_COUNTERS] = layout.n_counters
        values[inputs.TOTALS_AT] = layout.totals_at
        values[inputs.SKIPPED_AT] = layout.skipped_at
        values[inputs.ATTRIBUTES_AT] = layout.attributes_at
        values[inputs.COUNTERS_AT] = layout.counters_at
        values[inputs.COUNTERS_STRIDE] = layout.counters_stride
        values[inputs.CATEGORIES_AT] = layout.categories_at
        values[inputs.CATEGORIES_STRIDE] = layout.categories_stride
        seed_key = np.empty(1, np.uint64)
        seed_key[0] = mix(np.uint64(settings.seed))
        return Parameters(values, seed_key)

    @property
    def layout(self) -> Layout:
        """Where things are in a block."""
        settings = self.settings
        return layout_of(
            settings.max_features,
            settings.n_thresholds,
            self.n_features,
            self.width,
            is_regression=settings.is_regression,
            has_categories=self.has_categories,
        )

    def _block_minimum(self) -> int:
        """Samples from which on a node keeps counters: below, counting again is cheaper than keeping."""
        if self._smallest_block is not None:
            return self._smallest_block
        smallest = max(96, 3 * (self.settings.n_thresholds + 2) * self.width)
        return max(smallest, min(int(_SHARE_WITH_BLOCK * self._n_planted), _SURELY_WITH_BLOCK))

    def set_block_minimum(self, n_planted: int) -> None:
        """Decide which nodes keep counters, by the samples of the largest tree."""
        self._n_planted = n_planted
        self.parameters = self.make_parameters()

    def keep_blocks_like(self, other: "Ensemble") -> None:
        """Keep counters for nodes as small as the smallest of another forest that has some.

        Whether a node keeps them never shows in the model; `compare.py` wants both to have them.
        """
        records = other.trees.nodes[: other.trees.meta[nodes.N_NODES]]
        with_block = records["n_samples"][records["block"] != NIL]
        if len(with_block):
            self._smallest_block = max(2, int(with_block.min()))
            self.parameters = self.make_parameters()

    @property
    def _counter_dtype(self) -> type[np.int32] | type[np.int64]:
        return np.int64 if self.settings.is_regression else np.int32

    def _empty_trees(self) -> Trees:
        return empty_trees(self.settings.n_trees, self.width, self._counter_dtype)

    def _blocks_over(self, longs: Ints) -> Blocks:
        return blocks_over(longs, is_regression=self.settings.is_regression)

    def _empty_blocks(self, capacity: int) -> Blocks:
        return self._blocks_over(aligned.zeros((capacity, self.layout.size), np.int64))

    def empty_scratch(self, n_rows: int, n_codes: int) -> Scratch:
        """Working space for so many samples in a tree, and codes of categories."""
        return inputs.empty_scratch(
            n_rows,
            n_codes,
            self.layout.n_counters,
            self.n_features,
            self.settings.n_trees,
            self.width,
            self.cell_dtype,
            nodes.NODE_DTYPE,
        )

    # -- sizes ----------------------------------------------------------------------------------

    @property
    def n_tags(self) -> int:
        """Number of tagged nodes."""
        return int(self.trees.meta[nodes.N_TAGS])

    @property
    def nbytes(self) -> int:
        """Bytes of all arrays, unused capacity included."""
        arrays = [*self.trees, self.blocks.longs, *self.scratch]
        return int(sum(array.nbytes for array in arrays if isinstance(array, np.ndarray)))

    def _largest_tree(self) -> int:
        roots: npt.NDArray[np.int32] = self.trees.nodes["n_samples"][: self.settings.n_trees]
        return int(roots.max())

    def _reserve_entries(self, n_slots: int) -> None:
        needed = n_slots * self.settings.occurrences
        capacity = len(self.trees.places)
        if needed > capacity:
            enlarged = aligned.enlarged(self.trees.places, max(needed, capacity + capacity // 4))
            self.trees = self.trees._replace(places=enlarged)

    def _reserve_members(self, n_members: int) -> None:
        """Make sure that so many places for entries have never been taken."""
        needed = int(self.trees.meta[nodes.N_MEMBERS]) + n_members
        capacity = len(self.trees.members)
        if needed > capacity:
            if needed > MAX_ENTRIES:
                raise CapacityError(
                    f"the lists of leaves would exceed {MAX_ENTRIES} places: fit anew, or lower `occurrence` or "
                    "`n_estimators`"
                )
            enlarged = aligned.enlarged(self.trees.members, min(max(needed, capacity + capacity // 8), MAX_ENTRIES))
            self.trees = self.trees._replace(members=enlarged)

    def _reserve_scratch(self, data: Data) -> None:
        """Working space for the largest tree and all categories, never less than before."""
        n_rows, n_codes = len(self.scratch.entries), len(self.scratch.category_places) - 1
        needed = self._largest_tree()
        if needed > n_rows or len(data.category_hashes) != n_codes:
            if needed > n_rows:
                n_rows = max(needed, n_rows + n_rows // 4)
            self.scratch = self.empty_scratch(n_rows, len(data.category_hashes))

    def cleared_scratch(self) -> Scratch:
        """Working space of the same size that holds nothing of any sample."""
        return self.empty_scratch(len(self.scratch.entries), len(self.scratch.category_places) - 1)

    def _reserve(self, n_nodes: int, n_leaves: int, n_blocks: int) -> None:
        trees = self.trees
        if n_nodes > len(trees.nodes):
            enlarged = aligned.enlarged(trees.nodes, n_nodes)
            trees = trees._replace(nodes=enlarged)
        if n_leaves > len(trees.starts):
            trees = trees._replace(
                starts=aligned.enlarged(trees.starts, n_leaves),
                rooms=aligned.enlarged(trees.rooms, n_leaves),
                statistics=aligned.enlarged(trees.statistics, n_leaves),
            )
        self.trees = trees
        if n_blocks > len(self.blocks.longs):
            self.blocks = self._blocks_over(aligned.enlarged(self.blocks.longs, n_blocks))

    def _grow_pools(self) -> None:
        """Enlarge by a quarter whatever is nearly used up."""
        meta = self.trees.meta
        sizes = []
        for used, capacity, n_free in (
            (meta[nodes.N_NODES], len(self.trees.nodes), 2 * meta[nodes.N_FREE_PAIRS]),
            (meta[nodes.N_LEAVES], len(self.trees.starts), meta[nodes.N_FREE_LEAVES]),
            (meta[nodes.N_BLOCKS], len(self.blocks.longs), meta[nodes.N_FREE_BLOCKS]),
        ):
            is_scarce = capacity - used + n_free < max(256, capacity // 16)
            sizes.append(int(capacity + max(512, capacity // 4)) if is_scarce else capacity)
        self._reserve(*sizes)
        self._reserve_members(2 * self._largest_tree() + 4)

    # -- learning -------------------------------------------------------------------------------

    def emptied(self, n_classes: int) -> Self:
        """Another ensemble of the same parameters that holds nothing, with room for so many class codes.

        Unlike one that `aside` makes it has attributes that are read at full speed.
        """
        return type(self)(
            self.settings, self.n_features, n_classes, self.cell_dtype, self.has_categories, self._smallest_block
        )

    def aside(self) -> Self:
        """Another ensemble with the same arrays, to be given new ones; see `become`."""
        other: Self = object.__new__(type(self))
        other.__dict__.update(self.__dict__)
        return other

    def become(self, other: "Ensemble") -> None:
        """Take over everything from an ensemble that `planted` made of this one, in one step."""
        self.__dict__.update(other.__dict__)

    def planted(self, data: Data, slots: Ints) -> Self:
        """An ensemble with the samples of `slots` in the roots of its trees, to be grown; this one stays as it is."""
        other = self.aside()
        other.plant(data, slots)
        return other

    def plant(self, data: Data, slots: Ints) -> None:
        """Forget all trees and put the samples of `slots` into their roots, to be grown."""
        self.trees = self._empty_trees()
        self.blocks = self._empty_blocks(2)
        self._reserve_entries(int(slots.max()) + 1 if len(slots) else 0)
        counts = np.zeros(self.settings.n_trees, np.int64)
        count_members(data, self.parameters, self.scratch, slots, counts)
        self.set_block_minimum(int(counts.max()))
        self._reserve_members(int(2 * counts.sum()) + len(counts))
        plant(self.trees, data, self.parameters, self.scratch, slots, counts)
        self.is_planted = True

    def fit(self, data: Data, slots: Ints, progress: Callable[[int, int], None] | None = None) -> None:
        """Grow all trees from nothing on the samples of `slots`, calling progress(done, total)."""
        self.plant(data, slots)
        n_trees = self.settings.n_trees
        for tree in range(n_trees):
            self._resolve_whole_tree(data, tree)
            if progress is not None:
                progress(tree + 1, n_trees)

    def has_many_pieces(self, n_new: int) -> bool:
        """Whether free rooms of sizes that nobody asks for have used up the places that can be numbered.

        Rooms are cut in halves and never put together again; planting anew does that.
        """
        n_spare = 3 * self._n_planted + 16 * n_new * self.settings.occurrences + 64
        return len(self.trees.members) + 2 * n_spare > MAX_ENTRIES

    def reserve(self, slots: Ints) -> None:
        """Make room for the samples in `slots`, so that `add` needs to make none, unless nearly all leaves are full."""
        n, trees, occurrences = len(slots), self.trees, self.settings.occurrences
        top = slots.item() + 1 if n == 1 else int(slots.max()) + 1
        if top * occurrences > len(trees.places):
            self._reserve_entries(top)
        n_spare = 3 * self._n_planted + 16 * n * occurrences + 64
        if len(trees.members) - trees.meta.item(nodes.N_MEMBERS) < n_spare:
            self._reserve_members(n_spare + n_spare // 2)

    def add(self, data: Data, slots: Ints) -> None:
        """Learn the samples in `slots`; in a critical section, after `reserve`."""
        self._update(data, slots, ADD)

    def delete(self, data: Data, slots: Ints) -> None:
        """Unlearn the samples in `slots`, whose cells, targets and id hashes are still in place; in a section."""
        self._update(data, slots, DELETE)

    def _update(self, data: Data, slots: Ints, sign: int) -> None:
        done = 0
        scratch = self._update_scratch
        if scratch.permutation is not self.scratch.permutation:
            scratch = self._update_scratch = UpdateScratch.part_of(self.scratch)
        while done < len(slots) * self.settings.occurrences:
            done = self._update_samples.call(self.trees, data, self.parameters, scratch, self.blocks, slots, sign, done)
            if done < len(slots) * self.settings.occurrences:
                self._reserve_members(4 * self._largest_tree() + 64)

    def widen(self, n_classes: int) -> None:
        """Make room for class codes up to `n_classes`; O(model)."""
        if self.settings.is_regression or n_classes <= self.width:
            return
        old_layout, old_width = self.layout, self.width
        wider = self.aside()
        wider.width = n_classes
        wider.parameters = wider.make_parameters()
        wider.trees = self.trees._replace(statistics=aligned.widened(self.trees.statistics, n_classes))
        n_attributes = self.settings.max_features
        longs = relaid(self.blocks.longs, old_layout, wider.layout, n_attributes, old_width, n_classes)
        wider.blocks = self._blocks_over(longs)
        wider.scratch = wider.cleared_scratch()
        self.become(wider)

    # -- resolving ------------------------------------------------------------------------------

    def _resolve_tree(self, data: Data, tree: int, max_tags: int, max_work: int, whole_below: int) -> int:
        self._reserve_scratch(data)
        total = 0
        while True:
            status, n_resolved = self._resolve_tree_of.call(
                self.trees, data, self.parameters, self.scratch, self.blocks, tree,
                max_tags - total, max_work, whole_below,
            )  # fmt: skip
            total += int(n_resolved)
            if status != FULL:
                return total
            self._grow_pools()

    def _resolve_whole_tree(self, data: Data, tree: int) -> None:
        pools = [nodes.N_NODES, nodes.N_LEAVES, nodes.N_BLOCKS]
        before = self.trees.meta[pools]
        self._resolve_tree(data, tree, _NO_LIMIT, _NO_LIMIT, _NO_LIMIT)
        if self.is_planted:
            # The others will be of the same size: growing the pools bit by bit would copy them many times.
            self.is_planted = False
            used = self.trees.meta[pools]
            needed = used + np.ceil(1.1 * self.settings.n_trees * (used - before)).astype(np.int64)
            self._reserve(*(int(size) + 512 for size in needed))

    def resolve(self, data: Data, max_tags: int | None = None) -> int:
        """Resolve all tags and return how many there were; or work on `max_tags`, or fewer, and return how many.

        With `max_tags` no single call is long: it ends when it has looked at some thousand samples, and big
        nodes are grown by one level, which leaves tags on their children.
        """
        if max_tags is None:
            n_tags = self.n_tags
            for tree in np.flatnonzero(self.trees.tree_tags):
                self._resolve_whole_tree(data, int(tree))
            return n_tags
        done, max_tags = 0, int(max_tags)
        self.scratch.work[0] = 0
        for tree in np.flatnonzero(self.trees.tree_tags):
            if done >= max_tags or self.scratch.work[0] >= _SHORT_WORK:
                break
            done += self._resolve_tree(data, int(tree), max_tags - done, _SHORT_WORK, _WHOLE_BELOW)
        return done

    # -- reading --------------------------------------------------------------------------------

    def sum_leaves(
        self, data: Data, cells: npt.NDArray[np.floating], category_hashes: Hashes, *, frozen: bool
    ) -> tuple[Reals, int]:
        """Sum over the non-empty trees what each query's leaf says; also the number of such trees.

        Returns float64[n, n_classes] sums of class shares by class code, or float64[n, 1] sums of
        means of quantised targets. `frozen` writes nothing but working space; otherwise the tags
        on the queries' paths are resolved first.
        """
        if self.n_tags > 0:
            if frozen:
                return self._sum_leaves_frozen(data, cells, category_hashes)
            self._resolve_for(data, cells, category_hashes)
        return self.sum_resolved_leaves(cells, category_hashes)

    def _sum_leaves_frozen(
        self, data: Data, cells: npt.NDArray[np.floating], category_hashes: Hashes
    ) -> tuple[Reals, int]:
        self._reserve_scratch(data)
        sums = np.zeros((len(cells), 1 if self.settings.is_regression else self.width))
        n_planted = sum_leaves_frozen(
            self.trees, data, self.parameters, self.scratch, self.blocks, cells,
            category_hashes, sums,
        )  # fmt: skip
        return sums, n_planted

    def sum_resolved_leaves(self, cells: npt.NDArray[np.floating], category_hashes: Hashes) -> tuple[Reals, int]:
        """The same for a forest without tags."""
        is_regression = self.settings.is_regression
        sums = np.zeros((len(cells), 1 if is_regression else self.width))
        hashes = np.empty((min(len(cells), ROWS_AT_A_TIME) if self.has_categories else 0, self.n_features), np.uint64)
        n_planted = self._sum_leaves_of.call(
            self.trees.nodes, self.trees.statistics, self.settings.n_trees, is_regression, cells,
            category_hashes, hashes, np.empty((3, inputs.N_LANES), np.int32), sums,
        )  # fmt: skip
        return sums, n_planted

    def _resolve_for(self, data: Data, cells: npt.NDArray[np.floating], category_hashes: Hashes) -> None:
        # Many queries meet most tags; growing subtrees whole is then cheaper than path by path.
        if 4 * len(cells) > self._largest_tree():
            self.resolve(data)
            return
        self._reserve_scratch(data)
        row = 0
        while row < len(cells):
            row = self._resolve_paths.call(
                self.trees, data, self.parameters, self.scratch, self.blocks, cells,
                category_hashes, row,
            )  # fmt: skip
            if row < len(cells):
                self._grow_pools()

    # -- keeping --------------------------------------------------------------------------------

    def wipe_working_space(self) -> None:
        """Overwrite what the split search left behind, so that it holds nothing of any sample."""
        self.scratch = self.cleared_scratch()
        self.blocks.longs[0] = 0

    def shred(self) -> None:
        """Overwrite all arrays; the trees cannot be used afterwards."""
        self.wipe_working_space()
        aligned.shred((*self.trees, self.blocks.longs))

    def copy(self) -> "Ensemble":
        """An independent copy; O(size)."""
        other = Ensemble(self.settings, self.n_features, max(self.width, 2), self.cell_dtype, self.has_categories)
        other.trees = Trees(*map(aligned.copy, self.trees))
        other.blocks = self._blocks_over(aligned.copy(self.blocks.longs))
        other.is_planted = self.is_planted
        other.set_block_minimum(self._n_planted)
        other.scratch = self.cleared_scratch()
        return other

    def state(self) -> Arrays:
        """The arrays in use, by name, for a file; all tags must have been resolved."""
        self.wipe_working_space()
        return pack(self.trees, self.blocks.longs)

    def restore(self, arrays: Arrays, n_slots: int) -> None:
        """Take over arrays that `state` gave; `n_slots` is the number of slots of the samples.

        Raises
        ------
        ValueError
            When an index points out of bounds, which a kernel would follow blindly.
        """
        trees, longs = unpack(arrays, self._empty_trees())
        blocks = self._blocks_over(longs)
        check_bounds(trees, blocks, self.settings, self.layout, self.n_features, self.width, n_slots)
        self.trees, self.blocks = trees, blocks
        self.set_block_minimum(self._largest_tree())
