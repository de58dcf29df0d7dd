"""The forest as it is kept: its arrays, room for more in them, copies, files, and the checks of both."""

import math
from collections.abc import Mapping
from functools import partial
from typing import Any, Self

import numpy as np

from oubli.core.array_types import Array, Arrays, Ints, Reals, Slots
from oubli.core.bounds import require_sound
from oubli.core.concurrency.threads import is_long, run
from oubli.core.engine import Counterpart, Engine, copied
from oubli.core.errors import CapacityError, ensure
from oubli.core.explanation.trees import WeightedTrees, kept_in, of_one_kind
from oubli.core.forest import serialise
from oubli.core.forest.inspection import ForestLook, feature_importances, weigh
from oubli.core.forest.invariants import Part, find_faults
from oubli.core.forest.layout.blocks import (
    CHOSEN,
    Blocks,
    Forest,
    Layout,
    blocks_over,
    counters_of,
    layout_of,
    parameters_of,
    relaid,
)
from oubli.core.forest.layout.cells import ForestData, bit_rows_of, no_bit_rows
from oubli.core.forest.parameters import LOW, MAX_ENTRIES, ForestSettings
from oubli.core.forest.state import (
    BLOCKS,
    LEAVES,
    N_MEMBERS,
    NODE_DTYPE,
    PAIRS,
    POOLS,
    Trees,
    empty_trees,
    with_tallies,
)
from oubli.core.forest.workspace import Scratch, UpdateScratch, empty_scratch
from oubli.core.jit import aligned
from oubli.core.jit.nodes import N_FREE, NIL, tree_digest
from oubli.core.jit.targets import GRID, GRID_BITS, WEIGHTLESS, values_of, write_targets
from oubli.core.samples.arrays import Data, Problem
from oubli.core.samples.fixed_point import Targets

_new: Any = tuple.__new__
_CELLS_A_SECOND = 20_000_000  # counted by training, at each level of a tree, roughly
_CELLS_OF_READING = 20  # what reading a cell of a sample from Python takes, in such
_HASHING = 50e-9  # seconds that a node takes, roughly
_SPARE_ROWS = 512
_SPARE_BLOCKS = 2**22  # bytes
_FEW_BLOCKS = 8
# A mutation waits for the memory of every block that it passes, so a large tree has them only at its largest nodes:
# those that hold such a share of its samples, or so many that counting them again is no short piece of work.
_SHARE_WITH_BLOCK = 1 / 50
_SURELY_WITH_BLOCK = 2048


class KeptForest(Engine):
    """A forest, with the targets as its kernels count them; `engine.py` says how it learns and answers.

    Attributes
    ----------
    width : columns of statistics: room for class codes, 2 for a regression.
    trees, blocks, bits, parameters, scratch : see `state.py`, `layout/` and `workspace.py`.
    targets : those of a regression; None of a classification.
    smallest_block : samples from which on a node keeps counters; None: where that is cheaper than counting.
    n_chosen : samples of a node that its candidates depend on, at most; tests have fewer.
    most_counters : classes up to which a leaf has a counter for each; tests have fewer.
    n_planted : samples of the largest tree when the trees were planted.
    has_weights, is_whole : whether samples may have weights, and whether all are whole; see `core/jit/targets.py`.
    is_planted : whether the pools have yet to be made as large as the trees will be.
    """

    prefix = serialise.PREFIX
    format = 3  # 2: ranges of all samples
    yields = True
    bytes_asked = staticmethod(serialise.bytes_asked)

    settings: ForestSettings
    parameters: Array

    n_chosen = CHOSEN
    most_counters = 16

    def __init__(self, settings: ForestSettings, *columns: Any) -> None:
        super().__init__(settings, *columns)
        self.has_categories = bool(self.categorical.any())
        self.targets = None if self.is_classification else Targets.of(np.zeros(0), np.zeros(0, np.int64), WEIGHTLESS)
        self.smallest_block: int | None = None
        self.clear(2)

    def clear(self, n_classes: int) -> None:
        """Hold nothing, with room for so many class codes."""
        self.width: int = 2 if self.settings.is_regression else n_classes
        self.has_tallies = self.width > self.most_counters
        self.n_planted = 0
        self.has_weights, self.is_whole = False, True
        self.is_planted = False
        self.trees = self._empty_trees()
        self.blocks = self._empty_blocks()
        self.bits = no_bit_rows(self.n_features)
        self.scratch = self.empty_scratch(64, 0)
        self._update_scratch = UpdateScratch.part_of(self.scratch)
        self.set_block_minimum(0)

    def emptied(self, n_classes: int) -> Self:
        """Another engine of the same parameters that holds nothing, to be filled; see `become`."""
        other = self.aside()
        other.clear(n_classes)
        return other

    def forest(self) -> Forest:
        """Everything kept."""
        return Forest(self.trees, self.blocks, self.parameters, self.settings, self.layout, self.width, self.n_features)

    def plain_data(self, problem: Problem) -> Data:
        """The samples without their bit rows."""
        targets = self.targets
        return problem.data if targets is None else problem.data._replace(targets=targets.numbers)

    def data(self, problem: Problem) -> ForestData:
        """The samples as the kernels read them."""
        # A third of the time that the constructor takes.
        data: ForestData = _new(ForestData, (*self.plain_data(problem), *self.bits))
        return data

    @property
    def exponent(self) -> int:
        """The scale of what sums of a regression's targets come to, divided by what their samples count for."""
        exponent = 0 if self.targets is None else self.targets.exponent
        return exponent if self.is_whole else exponent + GRID_BITS

    # -- which nodes keep counters --------------------------------------------------------------

    @property
    def layout(self) -> Layout:
        """Where things are in a block."""
        return layout_of(self.settings, self.n_features, self.width, has_categories=self.has_categories)

    def _block_minimum(self) -> int:
        """Samples from which on a node keeps counters: below, counting again is cheaper than keeping."""
        if self.smallest_block is not None:
            return self.smallest_block
        smallest = max(96, 3 * (self.settings.n_thresholds + 2) * self.width // 2)
        return max(smallest, min(int(_SHARE_WITH_BLOCK * self.n_planted), _SURELY_WITH_BLOCK))

    def set_block_minimum(self, n_planted: int) -> None:
        """Decide which nodes keep counters, by the samples of the largest tree."""
        self.n_planted = n_planted
        minimum = self._block_minimum()
        self.parameters = parameters_of(
            self.settings, self.layout, self.n_features, self.width, minimum, self.n_chosen,
            has_weights=self.has_weights,
        )  # fmt: skip

    def follow_weights(self, problem: Problem) -> None:
        was_whole, self.is_whole = self.is_whole, problem.is_whole
        if problem.has_weights != self.has_weights:
            self.has_weights, self.parameters = problem.has_weights, self.parameters.copy()
            self.parameters["has_weights"] = self.has_weights
        if self.is_whole == was_whole:
            return
        # Units in place of whole weights, or these in place of units that are multiples of them.
        is_regression, tallies = self.settings.is_regression, self.trees.tallies[:, 1]
        totals, tables = counters_of(self.blocks.longs, self.settings, self.layout, self.width)
        amounts = (self.trees.statistics, totals, tables)
        for counts in (tallies, *((array[..., 0] for array in amounts) if is_regression else amounts)):
            np.floor_divide(counts, GRID, out=counts) if self.is_whole else np.multiply(counts, GRID, out=counts)
        if self.targets is not None:
            numbers = self.targets.numbers
            write_targets(values_of(numbers), problem.units[: len(numbers)], numbers, is_whole=self.is_whole)

    # -- room -----------------------------------------------------------------------------------

    def _empty_trees(self) -> Trees:
        return empty_trees(
            self.settings.n_trees, self.width, is_regression=self.settings.is_regression, has_tallies=self.has_tallies
        )

    def _blocks_over(self, longs: Ints) -> Blocks:
        return blocks_over(longs, is_regression=self.settings.is_regression)

    def _empty_blocks(self) -> Blocks:
        return self._blocks_over(aligned.zeros((2, self.layout.size), np.int64))

    def empty_scratch(self, n_rows: int, n_codes: int) -> Scratch:
        """Working space for so many samples in a tree, and codes of categories."""
        return empty_scratch(
            n_rows, n_codes, self.layout.n_counters, self.n_features, self.bits.words.shape[1], self.settings.n_trees,
            self.width, self.cell_dtype, NODE_DTYPE,
        )  # fmt: skip

    def largest_tree(self) -> int:
        """Samples of the largest tree."""
        return int(self.trees.nodes["n_samples"][: self.settings.n_trees].max())

    def reserve_members(self, n_members: int) -> None:
        """Make sure that so many places for entries have never been taken; CapacityError when that cannot be."""
        members, n_used = self.trees.members, self.trees.meta.item(N_MEMBERS)
        needed, capacity = n_used + n_members, len(members)
        if needed <= capacity:
            return
        if needed > MAX_ENTRIES:
            raise CapacityError(
                f"the lists of leaves would exceed {MAX_ENTRIES} places: fit again, or lower `occurrence` or "
                "`n_estimators`"
            )
        capacity = min(max(needed, capacity + capacity // 8), MAX_ENTRIES)
        tallies = aligned.enlarged(self.trees.tallies, capacity if self.has_tallies else 0, n_used)
        self.trees = self.trees._replace(members=aligned.enlarged(members, capacity, n_used), tallies=tallies)

    def reserve_entries(self, needed: int) -> None:
        """Make room for so many entries, a sample having one for each of its trees."""
        capacity = len(self.trees.places)
        if needed > capacity:
            places = aligned.enlarged(self.trees.places, max(needed, capacity + capacity // 4))
            self.trees = self.trees._replace(places=places)

    @property
    def _scratch_room(self) -> tuple[int, int]:
        """Samples and codes that there is working space for."""
        return len(self.scratch.order), len(self.scratch.category_places) - 1

    def reserve_scratch(self, data: ForestData, needed: int | None = None) -> None:
        """Working space for trees of `needed` samples, or the largest, and all categories, never less than before."""
        n_rows, n_codes = self._scratch_room
        needed = self.largest_tree() if needed is None else needed
        n_words = self.scratch.words.shape[1]
        if needed > n_rows or len(data.category_hashes) != n_codes or data.words.shape[1] != n_words:
            if needed > n_rows:
                n_rows = max(needed, n_rows + n_rows // 4)
            self.scratch = self.empty_scratch(n_rows, len(data.category_hashes))

    def rows_taken(self) -> Ints:
        """Nodes, leaves and blocks that are not free."""
        meta = self.trees.meta
        taken: Ints = meta[POOLS] - np.array([2, 1, 1]) * meta[np.add(POOLS, N_FREE)]
        return taken

    def capacities(self) -> Ints:
        """Nodes, leaves and blocks that there is room for."""
        return np.array([len(self.trees.nodes), len(self.trees.starts), len(self.blocks.longs)])

    def reserve_rows(self, n_nodes: int, n_leaves: int, n_blocks: int) -> None:
        """Make room for so many nodes, leaves and blocks."""
        trees, longs, n_used = self.trees, self.blocks.longs, self.trees.meta.item
        larger = {}
        if n_nodes > len(trees.nodes):
            larger["nodes"] = aligned.enlarged(trees.nodes, n_nodes, n_used(PAIRS))
        if n_leaves > len(trees.starts):
            for name in ("starts", "rooms") if self.has_tallies else ("starts", "rooms", "statistics"):
                larger[name] = aligned.enlarged(getattr(trees, name), n_leaves, n_used(LEAVES))
        if larger:
            self.trees = trees._replace(**larger)
        if n_blocks > len(longs):
            self.blocks = self._blocks_over(aligned.enlarged(longs, n_blocks, n_used(BLOCKS)))

    def spare_rows(self) -> Ints:
        """Nodes, leaves and blocks that there is to be room for: fewer blocks where many classes make them large."""
        n_blocks = _SPARE_BLOCKS // self.blocks.longs[0].nbytes
        return np.array([_SPARE_ROWS, _SPARE_ROWS, min(max(n_blocks, _FEW_BLOCKS), _SPARE_ROWS)])

    def grow_pools(self) -> None:
        """Enlarge by a quarter whatever is nearly used up."""
        capacities, spare = self.capacities(), self.spare_rows()
        is_scarce = capacities - self.rows_taken() < np.maximum(spare // 2, capacities // 16)
        self.reserve_rows(*(capacities + is_scarce * np.maximum(spare, capacities // 4)).tolist())
        self.reserve_members(2 * self.largest_tree() + 4)

    def widen(self, n_classes: int) -> None:
        """Make room for class codes up to `n_classes`; O(model)."""
        wider = self.emptied(n_classes)
        wider.is_planted = self.is_planted
        statistics = np.pad(self.trees.statistics, ((0, 0), (0, n_classes - self.width)))
        wider.trees = self.trees._replace(statistics=statistics)
        if wider.has_tallies and not self.has_tallies:
            wider.trees = with_tallies(wider.trees)
        longs = relaid(self.blocks.longs, self.settings, self.layout, wider.layout, self.width, n_classes)
        wider.blocks = self._blocks_over(longs)
        wider.bits = self.bits
        wider.has_weights, wider.is_whole = self.has_weights, self.is_whole
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
        exponent = None if self.targets is None else self.exponent
        return ForestLook(self.trees, exponent, tree, problem.class_order(), is_whole=self.is_whole)

    def weighted_trees(self, problem: Problem, class_order: Ints) -> WeightedTrees:
        exponent, nodes = None if self.targets is None else self.exponent, self.trees.nodes
        make = partial(weigh, self.trees, exponent, class_order, has_weights=self.has_weights)
        covers, leaves = kept_in(self.changes.derived, make)
        roots = np.flatnonzero(nodes["n_samples"][: self.settings.n_trees])
        return of_one_kind(nodes, covers, leaves, roots, self.n_features, len(class_order))

    def header(self) -> dict[str, Any]:
        header = self.settings.to_dict()
        del header["is_regression"]
        if header.pop("has_low_disclosure", False):
            header["disclosure"] = LOW
        header["n_estimators"] = header.pop("n_trees")
        header["exponent"] = 0 if self.targets is None else self.targets.exponent
        return header

    def digest_of(self, tree: int, class_order: Ints) -> str:
        """Digest of one tree."""
        trees = self.trees
        return tree_digest(
            trees.nodes, trees.statistics, tree, class_order, are_by_node=False,
            is_regression=self.settings.is_regression, tallies=(trees.starts, trees.tallies),
        )  # fmt: skip

    def digests(self, class_order: Ints) -> list[str]:
        n_threads = self.n_threads if is_long(_HASHING * int(self.trees.meta[PAIRS])) else 1
        return run([partial(self.digest_of, tree, class_order) for tree in range(self.settings.n_trees)], n_threads)

    def seconds_to_verify(self, problem: Problem) -> float:
        settings, n = self.settings, problem.n_samples
        n_counted = n * settings.occurrences * settings.max_features * (2 + math.log2(n + 1))
        return (n_counted + n * self.n_features * _CELLS_OF_READING) / _CELLS_A_SECOND

    # -- keeping --------------------------------------------------------------------------------

    def copy(self) -> Self:
        other = self.aside()
        other.trees, other.bits = copied(self.trees), copied(self.bits)
        longs = self.blocks.longs
        other.blocks = self._blocks_over(aligned.enlarged(longs, len(longs), self.trees.meta.item(BLOCKS)))
        other.scratch = self.empty_scratch(*self._scratch_room)
        if self.targets is not None:
            other.targets = copied(self.targets)._replace(scale=self.targets.scale.copy())
        return other

    def counterpart(self) -> Self:
        """An empty forest that keeps counters for nodes as small as the smallest of this one that has some.

        Whether a node keeps them never shows in the model; `find_faults` needs both to have them.
        """
        other = super().counterpart()
        records = self.trees.nodes[: self.trees.meta[PAIRS]]
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
        self.trees, longs = serialise.unpack(arrays, self._empty_trees())
        self.blocks = self._blocks_over(longs)
        serialise.check_bounds(self.forest(), len(problem.held))
        self.has_weights, self.is_whole = problem.has_weights, problem.is_whole
        self.set_block_minimum(self.largest_tree())
        if self.targets is not None:
            self.targets = Targets.of(problem.y, slots, problem.weights)
        self.bits = bit_rows_of(self.plain_data(problem), slots, self.n_threads)
        faults = find_faults(self.forest(), self.data(problem), slots, self.n_threads)
        require_sound(not faults, "; ".join(faults))

    @classmethod
    def check_file(cls, document: Mapping[str, Any], arrays: Arrays, *, with_trees: bool) -> None:
        if with_trees:
            serialise.check_parts(document, arrays, has_tallies=document["n_classes"] > cls.most_counters)
        else:
            serialise.check_description(document, arrays)

    # -- checking -------------------------------------------------------------------------------

    def recount(self, problem: Problem, slots: Slots, fresh: Counterpart | None = None) -> list[str]:
        """Count again what is kept for later mutations, and compare the counters of candidates with a fresh fit's."""
        parts = None
        if fresh is not None:
            parts = (
                Part(self.forest(), slots, problem.class_order()),
                Part(fresh.engine.forest(), fresh.slots, fresh.problem.class_order()),
            )
        return find_faults(self.forest(), self.data(problem), slots, self.n_threads, parts)

    def check_invariants(self, problem: Problem, slots: Slots) -> None:
        faults = find_faults(self.forest(), self.data(problem), slots)
        ensure(not faults, "; ".join(faults))
