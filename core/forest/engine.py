"""The engine of the forest: DynFrs with exact adds and deletes.

Paper: "DynFrs: An Efficient Framework for Machine Unlearning in Random Forest". After any history of adds and deletes
the trees are those that a fit on the samples held gives. The algorithm is in the kernels beside this file, which never
allocate. When a pool is full they stop in a consistent state and say so; the methods here enlarge the pool and call
again.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from oubli.core.array_types import Array, Bools, Hashes, Ints, Reals, Slots
from oubli.core.engine import Progress
from oubli.core.errors import CapacityError
from oubli.core.forest import quantisation
from oubli.core.forest import workspace as inputs
from oubli.core.forest.batches import MANY_ROWS, ROWS_AT_A_TIME, batch_scratch, sum_leaves_of_many
from oubli.core.forest.bits import ForestData, bit_rows_of
from oubli.core.forest.counters import ADD, DELETE
from oubli.core.forest.grow import FULL
from oubli.core.forest.kept import KeptForest
from oubli.core.forest.leases import Sharing, reserve_leases
from oubli.core.forest.occurrences import drawn_trees
from oubli.core.forest.parameters import MAX_ENTRIES, MAX_SAMPLES, ForestSettings, places_of
from oubli.core.forest.predict import sum_leaves, sum_leaves_frozen
from oubli.core.forest.quantisation import Targets
from oubli.core.forest.resolve import resolve_paths, resolve_trees
from oubli.core.forest.room import with_entries
from oubli.core.forest.separate import digests_of_some
from oubli.core.forest.state import N_BLOCKS, N_LEAVES, N_MEMBERS, N_NODES, N_TAGS, Trees
from oubli.core.forest.unseen import sum_unseen_leaves
from oubli.core.forest.update import plant, update_samples
from oubli.core.forest.workspace import WORKED, Scratch, UpdateScratch, shred_scratches
from oubli.core.jit.direct import Direct
from oubli.core.samples.arrays import Problem
from oubli.core.threads import is_long, run

# A batch above this share of the samples held costs more to take out one by one than to plant the
# rest anew.
_REPLANT_SHARE = 0.08
_NO_LIMIT = 2**62
_NEVER = np.zeros(1, np.int64)  # a signal that nobody sets
_WHOLE_BELOW = 512  # samples below which a subtree is grown in one step, well under a millisecond
_SHORT_WORK = 8192  # samples looked at, a level counting anew, in one short piece of resolving
_LONG_WORK = 2**22  # the same in one long piece: some tenths of a second

_POOLS = [N_NODES, N_LEAVES, N_BLOCKS]
_FIRST_TREES = 1, 8  # so many tell how much room the next need, and those how much all others
_MARGIN = 1.1  # times what they take
_SPARE_ROWS = 512

# What work takes, roughly, in seconds.
_GROWING = 200e-9  # a sample, all levels of its tree
_RESOLVING = 1e-6  # a tag
_ANSWERING = 100e-9  # a row in a tree
_PREPARING = 5e-7  # times as much work as else is needed, a byte of a working space


def _tell_more(tell: Callable[[int], object], n_before: int, n_done: int) -> None:
    tell(n_before + n_done)


class ForestEngine(KeptForest):
    """A forest over the samples of some slots, exact after any history."""

    has_separate_trees = True

    def __init__(self, settings: ForestSettings, *columns: Any) -> None:
        super().__init__(settings, *columns)
        # The types of all that these are given are those of the forest.
        self._update_samples, self._resolve_trees_of = Direct(update_samples), Direct(resolve_trees)
        self._resolve_paths, self._sum_leaves_of = Direct(resolve_paths), Direct(sum_leaves)
        self._sum_leaves_of_many = Direct(sum_leaves_of_many)

    # -- learning -------------------------------------------------------------------------------

    @staticmethod
    def check_capacity(settings: ForestSettings, n_samples: int, n_slots: int = 0) -> None:
        # Slots that are free have entries, too.
        if places_of(settings, n_samples if n_samples > n_slots else n_slots) > MAX_ENTRIES:
            raise CapacityError(
                f"{max(n_samples, n_slots)} samples in {settings.occurrences} trees each exceed {MAX_ENTRIES} "
                "places in the lists of leaves: lower `occurrence` or `n_estimators`"
            )
        if n_samples > MAX_SAMPLES:
            raise CapacityError(f"a forest holds at most {MAX_SAMPLES} samples")
        if settings.is_regression and n_samples > quantisation.MAX_SAMPLES:
            raise CapacityError(f"a regression holds at most {quantisation.MAX_SAMPLES} samples")

    def fit(self, problem: Problem, slots: Slots, progress: Progress | None = None) -> None:
        other, n_trees = self.emptied(len(problem.ranks)), self.settings.n_trees
        if not self.is_classification:
            other.targets = Targets.of(problem.y, slots)
        other.plant(problem, slots)
        data = other.data(problem)
        other.resolve_all(data, None if progress is None else lambda done: progress(done, n_trees))
        self.become(other)

    def fit_some(
        self, problem: Problem, slots: Slots, trees: Sequence[int], class_order: Ints, progress: Progress | None = None
    ) -> list[str]:
        self.clear(len(problem.ranks))
        if not self.is_classification:
            self.targets = Targets.of(problem.y, slots)
        self.bits = bit_rows_of(self.plain_data(problem), slots, self.n_threads)
        return digests_of_some(self, problem, slots, trees, class_order, progress)

    def _has_many_pieces(self, n_new: int) -> bool:
        """Whether free rooms of sizes that nobody asks for have used up the places that can be numbered.

        Rooms are cut in halves and never put together again; planting anew does that.
        """
        return len(self.trees.members) + 2 * self._n_spare(n_new) > MAX_ENTRIES

    def _n_spare(self, n_new: int) -> int:
        """Places in the lists of leaves that so many new samples may take."""
        return 3 * self.n_planted + 16 * n_new * self.settings.occurrences + 64

    def _reserve(self, slots: Slots) -> None:
        """Make room for new samples, so that adding needs to make none, unless nearly all leaves are full."""
        n, trees = len(slots), self.trees
        needed = (slots.item() + 1 if n == 1 else int(slots.max()) + 1) * self.settings.occurrences
        if needed > len(trees.places):
            self.trees = with_entries(trees, needed)
        if self.bits.words.shape[1]:
            self.bits = self.bits.with_slots(needed // self.settings.occurrences)
        n_spare = self._n_spare(n)
        if len(trees.members) - trees.meta.item(N_MEMBERS) < n_spare:
            self.reserve_members(n_spare + n_spare // 2)

    def plant(self, problem: Problem, slots: Slots) -> None:
        """Forget all trees and put the samples of `slots` into their roots, to be grown."""
        self.bits = bit_rows_of(self.plain_data(problem), slots, self.n_threads)
        data = self.data(problem)
        self.blocks = self._empty_blocks()
        n_slots = int(slots.max()) + 1 if len(slots) else 0
        self.trees = with_entries(self._empty_trees(), n_slots * self.settings.occurrences)
        drawn = drawn_trees(data, self.parameters, slots, self.n_threads)
        counts = np.bincount(drawn.ravel(), minlength=self.settings.n_trees)
        self.set_block_minimum(int(counts.max()))
        self.reserve_members(int(2 * counts.sum()) + len(counts))
        plant(self.trees, data, self.parameters, slots, drawn, counts)
        self.is_planted = True

    def plant_alone(self, problem: Problem, tree: int, slots: Slots) -> None:
        """Put samples into the root of one tree of an empty forest in which a sample is in one tree, to be grown."""
        if not len(slots):
            return
        self.trees = with_entries(self.trees, int(slots.max()) + 1)
        self.reserve_members(4 * len(slots) + 64)  # what the root takes, and what growing it does
        drawn = np.full((len(slots), 1), tree, np.int16)
        counts = np.bincount([tree], [len(slots)], self.settings.n_trees).astype(np.int64)
        plant(self.trees, self.data(problem), self.parameters, slots, drawn, counts)

    def _planted(self, problem: Problem, targets: Targets | None, slots: Slots) -> Self:
        """Another engine with the samples of `slots` in the roots of its trees; this one stays as it is."""
        other = self.emptied(self.width)
        other.scratch, other.targets = self.scratch, targets
        other.plant(problem, slots)
        return other

    def add(self, problem: Problem, slots: Slots, *, lazy: bool = False) -> None:
        # Tags are left in any case: what a mutation has to do is never more than counting.
        if len(problem.ranks) > self.width and self.is_classification:
            self.widen(len(problem.ranks))
        scale_moved = self.targets is not None and self._take_targets(self.targets, problem.y, slots)
        n_before = problem.n_samples - len(slots)
        if scale_moved or len(slots) > _REPLANT_SHARE * n_before or self._has_many_pieces(len(slots)):
            planted = self._planted(problem, self.targets, problem.slots())
            self.changes.undo = None
            self.become(planted)
            return
        self._reserve(slots)
        data = self.data(problem)
        self.changes.undo = None
        try:
            self.update(data, slots, ADD)
        except MemoryError:
            # Planting needs nothing of what has been left halfway, and gives the same trees in the end.
            self.become(self._planted(problem, self.targets, problem.slots()))

    def delete(self, problem: Problem, slots: Slots, *, lazy: bool = False) -> None:
        targets = self.targets
        is_large = len(slots) > _REPLANT_SHARE * problem.n_samples
        if is_large or (targets is not None and targets.moves_without(problem.y[slots])):
            self._plant_without(problem, slots)
            return
        data = self.data(problem)
        self.changes.undo = None
        self.update(data, slots, DELETE)
        if targets is not None:
            targets.scale.count(problem.y[slots], -1)
            targets.numbers[slots] = 0

    def update(self, data: ForestData, slots: Slots, sign: int) -> None:
        """Learn (ADD) or unlearn (DELETE) samples; their cells, targets and id hashes are in place."""
        done = 0
        scratch = self._update_scratch
        if scratch.permutation is not self.scratch.permutation:
            scratch = self._update_scratch = UpdateScratch.part_of(self.scratch)
        while done < len(slots) * self.settings.occurrences:
            done = self._update_samples.call(self.trees, data, self.parameters, scratch, self.blocks, slots, sign, done)
            if done < len(slots) * self.settings.occurrences:
                self.reserve_members(4 * self.largest_tree() + 64)

    def _plant_without(self, problem: Problem, slots: Slots) -> None:
        """Unlearn samples by planting the others anew."""
        targets = self.targets
        if targets is not None:
            y, scale = problem.y.copy(), targets.scale.copy()
            scale.count(y[slots], -1)
            y[slots] = 0.0
            targets = Targets.on_scale(scale, y)
        stays = problem.held.copy()
        stays[slots] = False
        planted = self._planted(problem, targets, np.flatnonzero(stays))
        self.changes.undo = None
        self.become(planted)

    def _take_targets(self, old: Targets, y: Reals, slots: Slots) -> bool:
        """Take in the targets of new samples; whether the scale of all has moved. Adds to `changes.undo`."""
        scale, numbers = old.scale.copy(), old.numbers
        scale.count(y[slots], 1)
        exponent = scale.exponent
        has_moved = exponent != old.exponent
        if has_moved:
            numbers = quantisation.quantise(y, exponent)
        elif len(numbers) < len(y):
            numbers = np.pad(old.numbers, (0, len(y) - len(old.numbers)))
        new = quantisation.quantise(y[slots], exponent)
        if self.changes.undo is not None:
            self.changes.undo += [(self._set_targets, old), (self._blank_targets, slots)]
        self.targets = Targets(scale, exponent, numbers)
        numbers[slots] = new
        return has_moved

    def _set_targets(self, targets: Targets) -> None:
        self.targets = targets

    def _blank_targets(self, slots: Slots) -> None:
        if self.targets is not None:
            self.targets.numbers[slots] = 0

    # -- resolving ------------------------------------------------------------------------------

    @property
    def n_tags(self) -> int:
        return int(self.trees.meta[N_TAGS])

    def _resolve_trees(
        self, data: ForestData, first: int, end: int, max_tags: int = _NO_LIMIT, max_work: int = _NO_LIMIT,
        whole_below: int = _NO_LIMIT, stop: Ints = _NEVER,
    ) -> int:  # fmt: skip
        """Resolve tags of the trees first .. end with one call of the kernel; as `resolve_trees`."""
        self.reserve_scratch(data)
        total = 0
        while True:
            status, n_resolved = self._resolve_trees_of.call(
                self.trees, data, self.parameters, self.scratch, self.blocks, first, end,
                max_tags - total, max_work, whole_below, stop,
            )  # fmt: skip
            total += int(n_resolved)
            if status != FULL:
                return total
            self.grow_pools()

    def resolve_whole_tree(self, data: ForestData, tree: int) -> None:
        """Resolve all tags of a tree."""
        self._resolve_trees(data, tree, tree + 1)

    def _resolve_first(
        self, data: ForestData, tagged: list[int], spare: list[Scratch], tell: Callable[[int], object]
    ) -> Ints | None:
        """Resolve the first of planted trees, and make room for the others; returns what one takes, as `Lease` says."""
        before, n_a_tree, n_done = self.rows_taken(), None, 0
        for n in _FIRST_TREES:
            self._resolve_some(data, n_a_tree, tagged[n_done : n_done + n], spare, partial(_tell_more, tell, n_done))
            n_done += n
            n_left = len(tagged) - n_done
            if n_left <= 0:
                break
            # The others will be of about the same size: growing the pools bit by bit would copy them many times.
            n_rows = np.ceil(_MARGIN * (self.rows_taken() - before) / n_done).astype(np.int64)
            n_next = n_left if n == _FIRST_TREES[-1] else min(n_left, _FIRST_TREES[-1])
            self.reserve_rows(*(self.trees.meta[_POOLS] + n_next * n_rows + _SPARE_ROWS).tolist())
            n_a_tree = n_rows // (2, 1, 1) + 64
        self.is_planted = False
        return n_a_tree

    def resolve(self, problem: Problem, max_tags: int | None = None) -> int:
        """Resolve all tags and return how many there were; or work on `max_tags`, or fewer, and return how many.

        With `max_tags` no single call is long: it ends when it has looked at some thousand samples, and big nodes are
        grown by one level, which leaves tags on their children.
        """
        data = self.data(problem)
        if max_tags is None:
            return self.resolve_all(data)
        self.scratch.work[WORKED] = 0
        return self._resolve_trees(data, 0, self.settings.n_trees, int(max_tags), _SHORT_WORK, _WHOLE_BELOW)

    def resolve_until(self, problem: Problem, stop: Ints) -> int:
        return self._resolve_trees(self.data(problem), 0, self.settings.n_trees, whole_below=_WHOLE_BELOW, stop=stop)

    def resolve_all(self, data: ForestData, tell: Callable[[int], object] | None = None) -> int:
        """Resolve all tags and return how many there were; `tell`: told how many trees have none."""
        n_tags, told = self.n_tags, [0]
        tagged = np.flatnonzero(self.trees.tree_tags).tolist()
        n_before = self.settings.n_trees - len(tagged)

        def count(n_done: int) -> None:
            if tell is not None and n_before + n_done > told[0]:
                told[0] = n_before + n_done
                tell(told[0])

        spare: list[Scratch] = []  # working spaces of other threads
        try:
            n_a_tree = self._resolve_first(data, tagged, spare, count) if self.is_planted and tagged else None
            if self.n_threads > 1 or tell is not None:
                self._resolve_some(data, n_a_tree, tagged, spare, count)
        finally:
            shred_scratches(spare)
        while self.n_tags > 0:
            # A part at a time: between two calls Ctrl-C gets through.
            self.scratch.work[WORKED] = 0
            self._resolve_trees(data, 0, self.settings.n_trees, max_work=_LONG_WORK)
        return n_tags

    def _resolve_some(
        self, data: ForestData, n_a_tree: Ints | None, trees: list[int], spare: list[Scratch],
        tell: Callable[[int], object],
    ) -> None:  # fmt: skip
        """Resolve what is tagged in some trees, in threads if that is worth it; `tell`: told how many have no tags."""
        tagged = [tree for tree in trees if self.trees.tree_tags[tree]]
        while self.n_threads > 1 and self._is_much_work(tagged):
            n_before = len(trees) - len(tagged)
            if not self._resolve_in_threads(data, n_a_tree, tagged, spare, partial(_tell_more, tell, n_before)):
                break
            tagged = [tree for tree in tagged if self.trees.tree_tags[tree]]
        for number, tree in enumerate(tagged, 1 + len(trees) - len(tagged)):
            self.resolve_whole_tree(data, tree)
            tell(number)

    def _is_much_work(self, tagged: list[int]) -> bool:
        """Whether resolving some trees takes so long that other threads had better help."""
        if len(tagged) < 2:
            return False
        trees = self.trees
        n_planted = int(trees.nodes["n_samples"][tagged][trees.nodes["child"][tagged] < 0].sum())
        seconds = _RESOLVING * int(trees.tree_tags[tagged].sum()) + _GROWING * n_planted
        # Every other thread needs a working space, which has to be made and overwritten.
        return is_long(seconds / (1 + _PREPARING * (self.n_threads - 1) * self.scratch.columns.nbytes))

    def _resolve_in_threads(
        self, data: ForestData, n_a_tree: Ints | None, tagged: list[int], spare: list[Scratch],
        tell: Callable[[int], object],
    ) -> bool:  # fmt: skip
        """Resolve some trees, or less when a pool is full, which is larger then.

        Returns False when that leads nowhere, for want of memory above all.

        spare : working spaces of other threads; those that are missing are added.
        """
        n_threads = min(self.n_threads, len(tagged))
        try:
            self.reserve_scratch(data)
            reserve_leases(self, n_threads)
            while len(spare) < n_threads - 1:
                spare.append(self.empty_scratch(*self._scratch_room))
            sharing = Sharing(self, [self.scratch, *spare[: n_threads - 1]], n_a_tree)
        except (CapacityError, MemoryError):
            return False

        def resolve(trees: Trees, scratch: Scratch, tree: int) -> int:
            status, _ = self._resolve_trees_of.call(
                trees, data, self.parameters, scratch, self.blocks, tree, tree + 1, _NO_LIMIT, _NO_LIMIT, _NO_LIMIT,
                _NEVER,
            )  # fmt: skip
            return int(status)

        n_done, before = sharing.resolve(tagged, resolve, self.changes, tell), (self.trees, self.blocks)
        if self.trees.tree_tags[tagged].any():
            self.grow_pools()
        return n_done > 0 or self.trees is not before[0] or self.blocks is not before[1]

    def _resolve_for(self, data: ForestData, cells: Array, category_hashes: Hashes) -> None:
        """Resolve the tags on the paths of queries."""
        # Many queries meet most tags; growing subtrees whole is then cheaper than path by path.
        if 4 * len(cells) > self.largest_tree():
            self.resolve_all(data)
            return
        self.reserve_scratch(data)
        row = 0
        while row < len(cells):
            row = self._resolve_paths.call(
                self.trees, data, self.parameters, self.scratch, self.blocks, cells,
                category_hashes, row,
            )  # fmt: skip
            if row < len(cells):
                self.grow_pools()

    # -- reading --------------------------------------------------------------------------------

    def predict(
        self, cells: Array, category_hashes: Hashes, class_order: Ints, problem: Callable[[], Problem], frozen: bool
    ) -> Reals:
        targets = self.targets
        if self.n_tags == 0:
            sums, n_planted = self._sum_resolved_leaves(cells, category_hashes)
        else:
            sums, n_planted = self.sum_leaves(self.data(problem()), cells, category_hashes, frozen=frozen)
        if targets is None:
            probabilities: Reals = sums.take(class_order, axis=1)
            probabilities /= n_planted
            return probabilities
        return quantisation.restore(sums[:, 0] / n_planted, targets.exponent)

    def predict_unseen(self, problem: Problem, slots: Slots, class_order: Ints) -> tuple[Reals, Bools] | None:
        settings, trees, targets, data = self.settings, self.trees, self.targets, problem.data
        if settings.occurrences == settings.n_trees:
            return None
        sums = np.zeros((len(slots), 1 if settings.is_regression else self.width))
        n_summed = np.zeros(len(slots), np.int64)
        sum_unseen_leaves(
            trees.nodes, trees.statistics, settings.n_trees, settings.occurrences, settings.is_regression,
            self.parameters.seed_key[0], data.cells, data.id_hashes, data.category_hashes, slots,
            np.arange(settings.n_trees, dtype=np.int32), sums, n_summed,
        )  # fmt: skip
        known = n_summed > 0
        shares = sums / np.maximum(n_summed, 1)[:, np.newaxis]
        if targets is None:
            return shares.take(class_order, axis=1), known
        return quantisation.restore(shares[:, 0], targets.exponent), known

    def sum_leaves(
        self, data: ForestData, cells: npt.NDArray[np.floating], category_hashes: Hashes, *, frozen: bool
    ) -> tuple[Reals, int]:
        """Sum over the non-empty trees what each query's leaf says; also the number of such trees.

        Returns float64[n, n_classes] sums of class shares by class code, or float64[n, 1] sums of
        means of quantised targets. `frozen` writes nothing but working space; otherwise the tags
        on the queries' paths are resolved first.
        """
        if self.n_tags > 0:
            if frozen:
                self.reserve_scratch(data)
                sums = np.zeros((len(cells), 1 if self.settings.is_regression else self.width))
                n_planted = sum_leaves_frozen(
                    self.trees, data, self.parameters, self.scratch, self.blocks, cells,
                    category_hashes, sums,
                )  # fmt: skip
                return sums, n_planted
            self._resolve_for(data, cells, category_hashes)
        return self._sum_resolved_leaves(cells, category_hashes)

    def _sum_resolved_leaves(self, cells: npt.NDArray[np.floating], category_hashes: Hashes) -> tuple[Reals, int]:
        """The same for a forest without tags."""
        sums = np.zeros((len(cells), 1 if self.settings.is_regression else self.width))
        n_rows = len(cells)
        if self.n_threads == 1 or n_rows == 1 or not is_long(_ANSWERING * n_rows * self.settings.n_trees):
            return sums, self._add_resolved_leaves(cells, category_hashes, sums)
        step = min(ROWS_AT_A_TIME, -(-n_rows // self.n_threads))
        parts = [slice(start, start + step) for start in range(0, n_rows, step)]
        pieces = [partial(self._add_resolved_leaves, cells[part], category_hashes, sums[part]) for part in parts]
        return sums, run(pieces, self.n_threads)[0]

    def _add_resolved_leaves(self, cells: npt.NDArray[np.floating], category_hashes: Hashes, sums: Reals) -> int:
        """Add to `sums`, and return the number of non-empty trees; may run for several ranges of rows at a time."""
        trees, settings = self.trees, self.settings
        if len(cells) < MANY_ROWS:
            hashes = np.empty((int(self.has_categories), self.n_features), np.uint64)
            n_planted = self._sum_leaves_of.call(
                trees.nodes, trees.statistics, settings.n_trees, settings.is_regression, cells, category_hashes, hashes,
                np.empty((3, inputs.N_LANES), np.int32), sums,
            )  # fmt: skip
            return int(n_planted)
        n_codes = len(category_hashes) if self.has_categories else -1
        scratch = batch_scratch(len(cells), self.n_features, self.cell_dtype, n_codes)
        n_planted = self._sum_leaves_of_many.call(
            trees.nodes, trees.statistics, settings.n_trees, settings.is_regression, cells, category_hashes,
            self.categorical, scratch, sums,
        )  # fmt: skip
        return int(n_planted)
