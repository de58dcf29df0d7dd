"""The trees as one object: owns the arrays, makes them grow, calls the kernels.

Kernels never allocate. When a pool is full they stop in a consistent state and say so; the methods
here enlarge the pool and call again. Nothing here knows ids, labels or categories.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from core.forest import inputs, nodes
from core.forest.blocks import Blocks, empty_blocks
from core.forest.build import FULL
from core.forest.inputs import Data, Parameters, Scratch, empty_scratch
from core.forest.nodes import NIL, Trees, empty_trees
from core.forest.predict import sum_leaves, sum_leaves_frozen
from core.forest.resolve import resolve_paths, resolve_tree
from core.forest.update import ADD, DELETE, plant, update_samples
from core.rng import mix

_NO_LIMIT = 2**62
_WHOLE_BELOW = 1024  # samples below which a subtree is grown in one step, well under a millisecond
MAX_ENTRIES = 2**31 - 1  # an entry is an int32


@dataclass(frozen=True)
class ForestSettings:
    """The parameters of a forest, all defaults resolved to numbers."""

    n_trees: int
    occurrences: int
    max_depth: int
    min_samples_split: int
    n_thresholds: int
    max_features: int
    criterion: int
    seed: int
    is_regression: bool


class Ensemble:
    """T dynamic trees over the samples of a store.

    Parameters
    ----------
    settings : the forest's parameters.
    n_features : columns of the cells.
    n_classes : room for class codes; ignored for regression.
    cell_dtype : float32 or float64.
    """

    def __init__(
        self, settings: ForestSettings, n_features: int, n_classes: int, cell_dtype: npt.DTypeLike
    ) -> None:
        self.settings = settings
        self.n_features = n_features
        self.cell_dtype = np.dtype(cell_dtype)
        self.width: int = 2 if settings.is_regression else n_classes
        self._smallest_block: int | None = None
        self.parameters = self._parameters()
        self.trees = self._empty_trees()
        self.blocks = self._empty_blocks(2)
        self._scratch = self._empty_scratch(64, 0)

    def _parameters(self) -> Parameters:
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
        seed_key = np.empty(1, np.uint64)
        seed_key[0] = mix(np.uint64(settings.seed))
        return Parameters(values, seed_key)

    def _block_minimum(self) -> int:
        """Samples from which on a node keeps counters: below, counting again is cheaper than keeping."""
        if self._smallest_block is not None:
            return self._smallest_block
        return int(max(64, 2 * (self.settings.n_thresholds + 2) * self.width))

    def keep_blocks_like(self, other: "Ensemble") -> None:
        """Keep counters for nodes as small as the smallest of another forest that has some.

        Whether a node keeps them never shows in the model; `compare.py` wants both to have them.
        """
        records = other.trees.nodes[: other.trees.meta[nodes.N_NODES]]
        with_block = records["n_samples"][records["block"] != NIL]
        if len(with_block):
            self._smallest_block = max(2, int(with_block.min()))
            self.parameters = self._parameters()

    @property
    def _counter_dtype(self) -> type[np.int32] | type[np.int64]:
        return np.int64 if self.settings.is_regression else np.int32

    def _empty_trees(self) -> Trees:
        return empty_trees(self.settings.n_trees, self.width, self._counter_dtype)

    def _empty_blocks(self, capacity: int) -> Blocks:
        settings = self.settings
        return empty_blocks(
            capacity,
            settings.max_features,
            settings.n_thresholds,
            self.n_features,
            self.width,
            self._counter_dtype,
        )

    def _empty_scratch(self, n_rows: int, n_codes: int) -> Scratch:
        return empty_scratch(
            n_rows,
            n_codes,
            self.settings.max_features,
            self.settings.n_thresholds,
            self.n_features,
            self.settings.n_trees,
            self.width,
            self.cell_dtype,
        )

    # -- sizes ----------------------------------------------------------------------------------

    @property
    def n_tags(self) -> int:
        """Number of tagged nodes."""
        return int(self.trees.meta[nodes.N_TAGS])

    @property
    def nbytes(self) -> int:
        """Bytes of all arrays, unused capacity included."""
        arrays = [*self.trees, *self.blocks, *self._scratch]
        return int(sum(array.nbytes for array in arrays)) - self.blocks.categories.nbytes

    def _largest_tree(self) -> int:
        roots: npt.NDArray[np.int32] = self.trees.nodes["n_samples"][: self.settings.n_trees]
        return int(roots.max())

    def _reserve_entries(self, n_slots: int) -> None:
        needed = n_slots * self.settings.occurrences
        capacity = len(self.trees.links)
        if needed > capacity:
            enlarged = _enlarged(self.trees.links, max(needed, capacity + capacity // 4))
            self.trees = self.trees._replace(links=enlarged)

    def _reserve_scratch(self, data: Data) -> None:
        """Working space for the largest tree and all categories, never less than before."""
        n_rows, n_codes = len(self._scratch.rows), len(self._scratch.category_places) - 1
        needed = self._largest_tree()
        if needed > n_rows or len(data.category_hashes) != n_codes:
            if needed > n_rows:
                n_rows = max(needed, n_rows + n_rows // 4)
            self._scratch = self._empty_scratch(n_rows, len(data.category_hashes))

    def _cleared_scratch(self) -> Scratch:
        return self._empty_scratch(len(self._scratch.rows), len(self._scratch.category_places) - 1)

    def _reserve(self, n_nodes: int, n_leaves: int, n_blocks: int) -> None:
        trees = self.trees
        if n_nodes > len(trees.nodes):
            enlarged = _enlarged(trees.nodes, n_nodes)
            trees = trees._replace(nodes=enlarged)
        if n_leaves > len(trees.heads):
            trees = trees._replace(
                heads=_enlarged(trees.heads, n_leaves),
                statistics=_enlarged(trees.statistics, n_leaves),
            )
        self.trees = trees
        if n_blocks > len(self.blocks.sizes):
            self.blocks = self._with_categories(
                {
                    name: _enlarged(array, n_blocks)
                    for name, array in self.blocks._asdict().items()
                    if name != "categories"
                }
            )

    @staticmethod
    def _with_categories(arrays: dict[str, npt.NDArray[Any]]) -> Blocks:
        """Put blocks together; `categories` is a view of the thresholds' bytes."""
        return Blocks(**arrays, categories=arrays["thresholds"].view(np.uint64))

    def _grow_pools(self) -> None:
        """Enlarge by a quarter whatever is nearly used up."""
        meta = self.trees.meta
        sizes = []
        for used, capacity, n_free in (
            (meta[nodes.N_NODES], len(self.trees.nodes), 2 * meta[nodes.N_FREE_PAIRS]),
            (meta[nodes.N_LEAVES], len(self.trees.heads), meta[nodes.N_FREE_LEAVES]),
            (meta[nodes.N_BLOCKS], len(self.blocks.sizes), meta[nodes.N_FREE_BLOCKS]),
        ):
            is_scarce = capacity - used + n_free < max(256, capacity // 16)
            sizes.append(int(capacity + max(512, capacity // 4)) if is_scarce else capacity)
        self._reserve(*sizes)

    # -- learning -------------------------------------------------------------------------------

    def plant(self, data: Data, slots: npt.NDArray[np.int64]) -> None:
        """Forget all trees and put the samples of `slots` into their roots, to be grown."""
        self.trees = self._empty_trees()
        self.blocks = self._empty_blocks(2)
        self._reserve_entries(int(slots.max()) + 1 if len(slots) else 0)
        plant(self.trees, data, self.parameters, self._scratch, slots)

    def fit(
        self,
        data: Data,
        slots: npt.NDArray[np.int64],
        progress: Callable[[int, int], None] | None = None,
    ) -> None:
        """Grow all trees from nothing on the samples of `slots`, calling progress(done, total)."""
        self.plant(data, slots)
        n_trees = self.settings.n_trees
        for tree in range(n_trees):
            self._resolve_tree(data, tree, _NO_LIMIT, _NO_LIMIT)
            if tree == 0:
                self._reserve_for_all_trees()
            if progress is not None:
                progress(tree + 1, n_trees)

    def _reserve_for_all_trees(self) -> None:
        """Make room for as many trees as there are of the size of the first, and some more."""
        meta = self.trees.meta
        factor = 1.1 * self.settings.n_trees
        self._reserve(
            math.ceil(factor * int(meta[nodes.N_NODES])) + 512,
            math.ceil(factor * int(meta[nodes.N_LEAVES])) + 512,
            math.ceil(factor * int(meta[nodes.N_BLOCKS])) + 8,
        )

    def add(self, data: Data, slots: npt.NDArray[np.int64]) -> None:
        """Learn the samples in `slots`."""
        self._reserve_entries(int(slots.max()) + 1)
        update_samples(
            self.trees, data, self.parameters, self._scratch, self.blocks, slots, ADD
        )

    def delete(self, data: Data, slots: npt.NDArray[np.int64]) -> None:
        """Unlearn the samples in `slots`, whose cells, targets and id hashes are still in place."""
        update_samples(
            self.trees, data, self.parameters, self._scratch, self.blocks, slots, DELETE
        )

    def widen(self, n_classes: int) -> None:
        """Make room for class codes up to `n_classes`; O(model)."""
        if self.settings.is_regression or n_classes <= self.width:
            return
        self.width = n_classes
        self.parameters = self._parameters()
        self.trees = self.trees._replace(statistics=_widened(self.trees.statistics, n_classes))
        self.blocks = self.blocks._replace(
            bins=_widened(self.blocks.bins, n_classes),
            totals=_widened(self.blocks.totals, n_classes),
        )
        self._scratch = self._cleared_scratch()

    # -- resolving ------------------------------------------------------------------------------

    def _resolve_tree(self, data: Data, tree: int, max_tags: int, whole_below: int) -> int:
        self._reserve_scratch(data)
        total = 0
        while True:
            status, n_resolved = resolve_tree(
                self.trees, data, self.parameters, self._scratch, self.blocks, tree,
                max_tags - total, whole_below,
            )  # fmt: skip
            total += int(n_resolved)
            if status != FULL:
                return total
            self._grow_pools()

    def resolve(self, data: Data, max_tags: int | None = None) -> int:
        """Resolve all tags and return how many there were; or work on `max_tags` and return how many.

        With `max_tags` no single step is long: big nodes are grown by one level, which leaves tags on
        their children.
        """
        if max_tags is None:
            n_tags = self.n_tags
            for tree in np.flatnonzero(self.trees.tree_tags):
                self._resolve_tree(data, int(tree), _NO_LIMIT, _NO_LIMIT)
            return n_tags
        done = 0
        for tree in np.flatnonzero(self.trees.tree_tags):
            if done >= max_tags:
                break
            done += self._resolve_tree(data, int(tree), max_tags - done, _WHOLE_BELOW)
        return done

    # -- reading --------------------------------------------------------------------------------

    def sum_leaves(
        self,
        data: Data,
        cells: npt.NDArray[np.floating],
        category_hashes: npt.NDArray[np.uint64],
        *,
        frozen: bool,
    ) -> tuple[npt.NDArray[np.float64], int]:
        """Sum over the non-empty trees what each query's leaf says; also the number of such trees.

        Returns float64[n, n_classes] sums of class shares by class code, or float64[n, 1] sums of
        means of quantised targets. `frozen` writes nothing but working space; otherwise the tags
        on the queries' paths are resolved first.
        """
        is_regression = self.settings.is_regression
        sums = np.zeros((len(cells), 1 if is_regression else self.width))
        if self.n_tags > 0 and frozen:
            self._reserve_scratch(data)
            n_planted = sum_leaves_frozen(
                self.trees, data, self.parameters, self._scratch, self.blocks, cells,
                category_hashes, sums,
            )  # fmt: skip
            return sums, n_planted
        if self.n_tags > 0:
            self._resolve_for(data, cells, category_hashes)
        n_planted = sum_leaves(
            self.trees.nodes, self.trees.statistics, self.settings.n_trees, is_regression, cells,
            category_hashes, sums,
        )  # fmt: skip
        return sums, n_planted

    def _resolve_for(
        self, data: Data, cells: npt.NDArray[np.floating], category_hashes: npt.NDArray[np.uint64]
    ) -> None:
        # Many queries meet most tags; growing subtrees whole is then cheaper than path by path.
        if 4 * len(cells) > self._largest_tree():
            self.resolve(data)
            return
        self._reserve_scratch(data)
        row = 0
        while row < len(cells):
            row = resolve_paths(
                self.trees, data, self.parameters, self._scratch, self.blocks, cells,
                category_hashes, row,
            )  # fmt: skip
            if row < len(cells):
                self._grow_pools()

    # -- keeping --------------------------------------------------------------------------------

    def wipe_working_space(self) -> None:
        """Overwrite what the split search left behind, so that it holds nothing of any sample."""
        self._scratch = self._cleared_scratch()
        for array in self.blocks[1:]:
            array[0] = 0

    def copy(self) -> "Ensemble":
        """An independent copy; O(size)."""
        other = Ensemble(self.settings, self.n_features, max(self.width, 2), self.cell_dtype)
        other.trees = Trees(*(array.copy() for array in self.trees))
        other.blocks = self._with_categories(
            {n: a.copy() for n, a in self.blocks._asdict().items() if n != "categories"}
        )
        other._scratch = self._cleared_scratch()
        return other

    def state(self) -> dict[str, npt.NDArray[Any]]:
        """The arrays in use, by name, for `core.persistence`; all tags must have been resolved."""
        self.wipe_working_space()
        trees, meta = self.trees, self.trees.meta
        records = trees.nodes[: meta[nodes.N_NODES]]
        arrays: dict[str, npt.NDArray[Any]] = {
            f"nodes.{field}": np.ascontiguousarray(records[field])
            for field in ("category", "child", "attribute", "n_samples", "block", "kind")
        }
        arrays["leaves.statistics"] = trees.statistics[: meta[nodes.N_LEAVES]]
        arrays["leaves.heads"] = trees.heads[: meta[nodes.N_LEAVES]]
        arrays["links"] = trees.links
        arrays["meta"] = meta
        for name, array in self.blocks._asdict().items():
            if name != "categories":
                arrays[f"blocks.{name}"] = array[: meta[nodes.N_BLOCKS]]
        return arrays

    def restore(self, arrays: dict[str, npt.NDArray[Any]], n_slots: int) -> None:
        """Take over arrays that `state` gave; `n_slots` is the number of slots of the samples.

        Raises
        ------
        ValueError
            When an index points out of bounds, which a kernel would follow blindly.
        """
        trees = self._empty_trees()
        n_nodes = len(arrays["nodes.child"])
        records = np.zeros(n_nodes, nodes.NODE_DTYPE)
        for field in ("category", "child", "attribute", "n_samples", "block", "kind"):
            records[field] = arrays[f"nodes.{field}"]
        self.trees = trees._replace(
            nodes=records,
            statistics=np.array(arrays["leaves.statistics"], self._counter_dtype),
            heads=np.array(arrays["leaves.heads"], np.int32),
            links=np.array(arrays["links"], np.int32),
            meta=np.array(arrays["meta"], np.int64),
        )
        self.blocks = self._with_categories(
            {
                name: np.array(arrays[f"blocks.{name}"], array.dtype)
                for name, array in self.blocks._asdict().items()
                if name != "categories"
            }
        )
        self._check_bounds(n_slots)

    def _check_bounds(self, n_slots: int) -> None:
        trees, settings = self.trees, self.settings
        records, meta = trees.nodes, trees.meta
        n_nodes, n_leaves, n_blocks = len(records), len(trees.heads), len(self.blocks.sizes)
        n_entries = len(trees.links)
        child = records["child"].astype(np.int64)
        previous = trees.links[:, 1].astype(np.int64)
        sound = (
            n_nodes >= settings.n_trees
            and n_entries >= n_slots * settings.occurrences
            and trees.statistics.shape == (n_leaves, self.width)
            and (child < n_nodes - 1).all()
            and (~child < n_leaves).all()
            and _within(records["attribute"], 0, self.n_features)
            and _within(records["block"], NIL, n_blocks)
            and _within(trees.heads, NIL, max(n_leaves, n_entries))
            and _within(trees.links[:, 0], NIL, n_entries)
            and (previous < n_entries).all()
            and (~previous < n_leaves).all()
            and meta[nodes.N_NODES] == n_nodes
            and meta[nodes.N_LEAVES] == n_leaves
            and meta[nodes.N_BLOCKS] == n_blocks
            and meta[nodes.N_TAGS] == 0
            and _within(meta[nodes.FREE_PAIR], NIL, n_nodes)
            and _within(meta[nodes.FREE_LEAF], NIL, n_leaves)
            and _within(meta[nodes.FREE_BLOCK], NIL, n_blocks)
            and _within(self.blocks.attributes, 0, self.n_features)
            and _within(self.blocks.skipped, 0, self.n_features)
        )
        if not sound:
            raise ValueError("an index points out of bounds")


def _within(values: Any, low: int, end: int) -> bool:
    """Whether all values are in [low, end)."""
    values = np.asarray(values)
    return bool(((values >= low) & (values < end)).all())


def _enlarged(array: npt.NDArray[Any], capacity: int) -> npt.NDArray[Any]:
    """Copy an array into one with more rows; the new ones are zero."""
    larger = np.zeros((capacity, *array.shape[1:]), array.dtype)
    larger[: len(array)] = array
    return larger


def _widened(array: npt.NDArray[Any], width: int) -> npt.NDArray[Any]:
    """Copy an array into one with more columns in its last axis; the new ones are zero."""
    wider = np.zeros((*array.shape[:-1], width), array.dtype)
    wider[..., : array.shape[-1]] = array
    return wider
