"""The forest as it is kept: its arrays, room for more, copies, files, and the checks of both."""

import math
from collections.abc import Mapping
from functools import partial
from typing import Any, Self

import numpy as np

from oubli.core.array_types import Arrays, Ints, Reals, Slots
from oubli.core.engine import Counterpart, Engine, Shape
from oubli.core.forest import check, leftovers, serialise
from oubli.core.forest import state as nodes
from oubli.core.forest import workspace as inputs
from oubli.core.forest.bits import ForestData, bit_rows_of, no_bit_rows
from oubli.core.forest.blocks import Blocks, Layout, blocks_over, layout_of, parameters_of, relaid
from oubli.core.forest.compare import compare_forests
from oubli.core.forest.digest import tree_digest
from oubli.core.forest.importances import feature_importances
from oubli.core.forest.invariants import check_invariants
from oubli.core.forest.look import ForestLook
from oubli.core.forest.parameters import ForestSettings
from oubli.core.forest.quantisation import Targets
from oubli.core.forest.room import with_members, with_nodes
from oubli.core.forest.state import NIL, Trees, empty_trees
from oubli.core.forest.workspace import Parameters, Scratch, UpdateScratch
from oubli.core.jit import aligned
from oubli.core.samples.arrays import Data, Problem
from oubli.core.threads import is_long, run

_new: Any = tuple.__new__
_CELLS_A_SECOND = 20_000_000  # counted by training, at each level of a tree, roughly
_CELLS_OF_READING = 20  # what reading a cell of a sample from Python takes, in such
_HASHING = 50e-9  # seconds that a node takes, roughly ...
_COMPARING = 200e-9  # ... and an entry
# A mutation waits for the memory of every block that it passes, so a large tree has them only at its largest nodes:
# those that hold such a share of its samples, or so many that counting them again is no short piece of work.
_SHARE_WITH_BLOCK = 1 / 50
_SURELY_WITH_BLOCK = 2048


class KeptForest(Engine):
    """A forest, with the targets as its kernels count them; `engine.py` says how it learns and answers.

    Attributes
    ----------
    width : columns of statistics: room for class codes, 2 for a regression.
    trees, blocks, bits, parameters, scratch : see `state.py`, `blocks.py`, `bits.py` and `workspace.py`.
    targets : those of a regression; None of a classification.
    smallest_block : samples from which on a node keeps counters; None: where that is cheaper than counting.
    n_planted : samples of the largest tree when the trees were planted.
    is_planted : whether the pools have yet to be made as large as the trees will be.
    """

    prefix = serialise.PREFIX
    format = 2
    yields = True

    settings: ForestSettings
    parameters: Parameters

    def __init__(self, settings: ForestSettings, *columns: Any) -> None:
        super().__init__(settings, *columns)
        self.has_categories = bool(self.categorical.any())
        self.targets = None if self.is_classification else Targets.of(np.zeros(0), np.zeros(0, np.int64))
        self.smallest_block: int | None = None
        self.clear(2)

    def clear(self, n_classes: int) -> None:
        """Hold nothing, with room for so many class codes."""
        self.width: int = 2 if self.settings.is_regression else n_classes
        self.n_planted = 0
        self.is_planted = False
        self.trees = self._empty_trees()
        self.blocks = self._empty_blocks()
        self.bits = no_bit_rows(self.n_features)
        self.scratch = self.empty_scratch(64, 0)
        self._update_scratch = UpdateScratch.part_of(self.scratch)
        self.set_block_minimum(0)

    def emptied(self, n_classes: int) -> Self:
        """Another engine of the same parameters that holds nothing, to be filled; see `become`."""
        other = super().counterpart()
        other.smallest_block = self.smallest_block
        other.clear(n_classes)
        return other

    def become(self, other: Self) -> None:
        """Take over everything from an engine that was made aside, in one step."""
        # One statement: no exception comes between its parts.
        (
            self.width, self.n_planted, self.is_planted, self.trees, self.blocks, self.bits, self.scratch,
            self.parameters, self.targets,
        ) = (
            other.width, other.n_planted, other.is_planted, other.trees, other.blocks, other.bits, other.scratch,
            other.parameters, other.targets,
        )  # fmt: skip

    def plain_data(self, problem: Problem) -> Data:
        """The samples without their bit rows."""
        targets = self.targets
        return problem.data if targets is None else problem.data._replace(targets=targets.numbers)

    def data(self, problem: Problem) -> ForestData:
        """The samples as the kernels read them."""
        # A third of the time that the constructor takes.
        data: ForestData = _new(ForestData, (*self.plain_data(problem), *self.bits))
        return data

    # -- which nodes keep counters --------------------------------------------------------------

    @property
    def layout(self) -> Layout:
        """Where things are in a block."""
        return layout_of(self.settings, self.n_features, self.width, has_categories=self.has_categories)

    def _block_minimum(self) -> int:
        """Samples from which on a node keeps counters: below, counting again is cheaper than keeping."""
        if self.smallest_block is not None:
            return self.smallest_block
        smallest = max(96, 3 * (self.settings.n_thresholds + 2) * self.width)
        return max(smallest, min(int(_SHARE_WITH_BLOCK * self.n_planted), _SURELY_WITH_BLOCK))

    def set_block_minimum(self, n_planted: int) -> None:
        """Decide which nodes keep counters, by the samples of the largest tree."""
        self.n_planted = n_planted
        self.parameters = parameters_of(self.settings, self.layout, self.width, self._block_minimum())

    # -- room -----------------------------------------------------------------------------------

    def _empty_trees(self) -> Trees:
        return empty_trees(self.settings.n_trees, self.width, is_regression=self.settings.is_regression)

    def _blocks_over(self, longs: Ints) -> Blocks:
        return blocks_over(longs, is_regression=self.settings.is_regression)

    def _empty_blocks(self) -> Blocks:
        return self._blocks_over(aligned.zeros((2, self.layout.size), np.int64))

    def empty_scratch(self, n_rows: int, n_codes: int) -> Scratch:
        """Working space for so many samples in a tree, and codes of categories."""
        return inputs.empty_scratch(
            n_rows, n_codes, self.layout.n_counters, self.n_features, self.bits.words.shape[1], self.settings.n_trees,
            self.width, self.cell_dtype, nodes.NODE_DTYPE,
        )  # fmt: skip

    @property
    def nbytes(self) -> int:
        arrays = [*self.trees, self.blocks.longs, *self.bits, *self.scratch]
        return int(sum(array.nbytes for array in arrays if isinstance(array, np.ndarray)))

    def largest_tree(self) -> int:
        """Samples of the largest tree."""
        return int(self.trees.nodes["n_samples"][: self.settings.n_trees].max())

    def reserve_members(self, n_members: int) -> None:
        """Make sure that so many places for entries have never been taken."""
        self.trees = with_members(self.trees, n_members)

    @property
    def _scratch_room(self) -> tuple[int, int]:
        """Samples and codes that there is working space for."""
        return len(self.scratch.order), len(self.scratch.category_places) - 1

    def reserve_scratch(self, data: ForestData) -> None:
        """Working space for the largest tree and all categories, never less than before."""
        n_rows, n_codes = self._scratch_room
        needed, n_words = self.largest_tree(), self.scratch.words.shape[1]
        if needed > n_rows or len(data.category_hashes) != n_codes or data.words.shape[1] != n_words:
            if needed > n_rows:
                n_rows = max(needed, n_rows + n_rows // 4)
            self.scratch = self.empty_scratch(n_rows, len(data.category_hashes))

    def rows_taken(self) -> Ints:
        """Nodes, leaves and blocks that are not free."""
        meta = self.trees.meta
        taken: Ints = meta[[nodes.N_NODES, nodes.N_LEAVES, nodes.N_BLOCKS]]
        return taken - (2, 1, 1) * meta[[nodes.N_FREE_PAIRS, nodes.N_FREE_LEAVES, nodes.N_FREE_BLOCKS]]

    def reserve_rows(self, n_nodes: int, n_leaves: int, n_blocks: int) -> None:
        """Make room for so many nodes, leaves and blocks."""
        self.trees = with_nodes(self.trees, n_nodes, n_leaves)
        if n_blocks > len(self.blocks.longs):
            self.blocks = self._blocks_over(
                aligned.enlarged(self.blocks.longs, n_blocks, self.trees.meta.item(nodes.N_BLOCKS))
            )

    def grow_pools(self) -> None:
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
        self.reserve_rows(*sizes)
        self.reserve_members(2 * self.largest_tree() + 4)

    def widen(self, n_classes: int) -> None:
        """Make room for class codes up to `n_classes`; O(model)."""
        wider = self.emptied(n_classes)
        wider.is_planted = self.is_planted
        statistics = np.pad(self.trees.statistics, ((0, 0), (0, n_classes - self.width)))
        wider.trees = self.trees._replace(statistics=statistics)
        longs = relaid(self.blocks.longs, self.layout, wider.layout, self.settings.max_features, self.width, n_classes)
        wider.blocks = self._blocks_over(longs)
        wider.bits = self.bits
        wider.scratch = wider.empty_scratch(*self._scratch_room)
        wider.set_block_minimum(self.n_planted)
        self.become(wider)

    # -- reading --------------------------------------------------------------------------------

    def importances(self) -> Reals:
        return feature_importances(self.trees, self.n_features, self.settings.criterion)

    @property
    def n_drawn_trees(self) -> int:
        return self.settings.n_trees

    def look(self, tree: int, problem: Problem) -> ForestLook:
        return ForestLook(self, tree, problem.class_order())

    def header(self) -> dict[str, Any]:
        header = self.settings.to_dict()
        del header["is_regression"]
        header["n_estimators"] = header.pop("n_trees")
        header["exponent"] = 0 if self.targets is None else self.targets.exponent
        return header

    def digests(self, class_order: Ints) -> list[str]:
        settings, trees = self.settings, self.trees
        n_threads = self.n_threads if is_long(_HASHING * int(trees.meta[nodes.N_NODES])) else 1
        numbers = range(settings.n_trees)
        pieces = [partial(tree_digest, trees, tree, settings.is_regression, class_order) for tree in numbers]
        return run(pieces, n_threads)

    def seconds_to_verify(self, problem: Problem) -> float:
        settings, n = self.settings, problem.n_samples
        n_counted = n * settings.occurrences * settings.max_features * (2 + math.log2(n + 1))
        return (n_counted + n * self.n_features * _CELLS_OF_READING) / _CELLS_A_SECOND

    # -- keeping --------------------------------------------------------------------------------

    def copy(self) -> Self:
        other = self.emptied(self.width)
        other.trees = Trees(*map(aligned.copy, self.trees))
        other.blocks = self._blocks_over(aligned.copy(self.blocks.longs))
        other.is_planted = self.is_planted
        other.set_block_minimum(self.n_planted)
        other.bits = self.bits.copy()
        other.scratch = other.empty_scratch(*self._scratch_room)
        if self.targets is not None:
            scale, exponent, numbers = self.targets
            other.targets = Targets(scale.copy(), exponent, numbers.copy())
        return other

    def counterpart(self) -> Self:
        """An empty forest that keeps counters for nodes as small as the smallest of this one that has some.

        Whether a node keeps them never shows in the model; `compare.py` wants both to have them.
        """
        other = super().counterpart()
        records = self.trees.nodes[: self.trees.meta[nodes.N_NODES]]
        with_block = records["n_samples"][records["block"] != NIL]
        if len(with_block):
            other.smallest_block = max(2, int(with_block.min()))
            other.set_block_minimum(0)
        return other

    def wipe(self) -> None:
        """Overwrite the working space.

        What a sample leaves in slots, tables, leaves and pools is overwritten when it goes, and what its ranges and
        thresholds leave behind, when the tags that it leaves are resolved. O(largest tree).
        """
        self.scratch = self.empty_scratch(*self._scratch_room)
        self.blocks.longs[0] = 0

    def shred(self) -> None:
        self.wipe()
        aligned.shred((*self.trees, self.blocks.longs, *self.bits))
        if self.targets is not None:
            aligned.shred([self.targets.numbers])

    def arrays(self) -> Arrays:
        self.wipe()
        return serialise.pack(self.trees, self.blocks.longs)

    def notes(self) -> dict[str, Any]:
        return {"n_classes": self.width}

    def take_over(self, arrays: Arrays, problem: Problem, slots: Slots) -> None:
        width = arrays["leaves.statistics"].shape[1]
        if width > self.width:
            self.clear(width)
        trees, longs = serialise.unpack(arrays, self._empty_trees())
        blocks = self._blocks_over(longs)
        n_slots = len(problem.held)
        serialise.check_bounds(trees, blocks, self.settings, self.layout, self.n_features, self.width, n_slots)
        self.trees, self.blocks = trees, blocks
        self.set_block_minimum(self.largest_tree())
        if self.targets is not None:
            self.targets = Targets.of(problem.y, slots)
        self.bits = bit_rows_of(self.plain_data(problem), slots, self.n_threads)
        leftovers.check_leftovers(self, check.check_forest(self, self.data(problem), slots), slots)

    @staticmethod
    def bytes_asked(settings: ForestSettings, shape: Shape, arrays: Arrays) -> int:
        return serialise.bytes_asked(settings, shape, arrays)

    @classmethod
    def check_file(cls, document: Mapping[str, Any], arrays: Arrays, *, with_trees: bool) -> None:
        if with_trees:
            check.check_parts(document, arrays)
        else:
            check.check_description(document, arrays)

    # -- checking -------------------------------------------------------------------------------

    def recount(self, problem: Problem, slots: Slots, fresh: Counterpart | None = None) -> list[str]:
        """Compare every counter, range and membership that is kept for later mutations with a fresh fit's."""
        if fresh is None:
            return []
        live = self, slots, problem.class_order()
        n_threads = self.n_threads if is_long(_COMPARING * len(self.trees.places)) else 1
        return compare_forests(live, (fresh.engine, fresh.slots, fresh.problem.class_order()), n_threads)

    def check_invariants(self, problem: Problem, slots: Slots) -> None:
        check_invariants(self, self.data(problem), slots)
