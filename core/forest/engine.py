"""The engine of the forest: DynFrs with exact adds and deletes.

Paper: "DynFrs: An Efficient Framework for Machine Unlearning in Random Forest". After any history of adds and deletes
the trees are those that a fit on the samples held gives. The algorithm is in the kernels beside this file, which never
allocate. When a pool is full they stop in a consistent state and say so; the methods here enlarge the pool and call
again.
"""

import math
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import pairwise
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from oubli.core.array_types import Array, Bools, Hashes, Ints, Reals, Slots
from oubli.core.concurrency.threads import is_long, run
from oubli.core.engine import Progress, arrays_in
from oubli.core.errors import CapacityError
from oubli.core.forest import workspace as inputs
from oubli.core.forest.grow import FULL
from oubli.core.forest.layout.blocks import ADD, DELETE
from oubli.core.forest.layout.cells import ForestData, bit_rows_of
from oubli.core.forest.layout.draws import drawn_trees
from oubli.core.forest.layout.pages import in_order
from oubli.core.forest.leases import Finish, Sharing, reserve_leases
from oubli.core.forest.parameters import MAX_ENTRIES, MAX_SAMPLES, ForestSettings, places_of
from oubli.core.forest.predict import (
    MANY_ROWS,
    ROWS_AT_A_TIME,
    batch_scratch,
    sum_leaves,
    sum_leaves_frozen,
    sum_leaves_of_many,
)
from oubli.core.forest.state import LEAVES, N_MEMBERS, N_TAGS, PAIRS, POOLS, Trees
from oubli.core.forest.storage import KeptForest
from oubli.core.forest.unseen import banded, sum_unseen_leaves
from oubli.core.forest.update import (
    ReachedLeaves,
    count_draws,
    find_ends,
    open_roots,
    plant,
    resolve,
    tag_roots,
    update_samples,
)
from oubli.core.forest.workspace import WORKED, Scratch, UpdateScratch
from oubli.core.jit import aligned
from oubli.core.jit.policy import Direct
from oubli.core.samples import fixed_point
from oubli.core.samples.arrays import Problem
from oubli.core.samples.fixed_point import Targets

# A batch above this share of the samples held costs more to take out one by one than to plant the
# rest again.
_REPLANT_SHARE = 0.08
_NO_LIMIT = 2**62
_NEVER = np.zeros(1, np.int64)  # a signal that is never set
_WHOLE_BELOW = 512  # samples below which a subtree is grown in one step, well under a millisecond
_SHORT_WORK = 8192  # samples looked at, counted again at each level, in one short piece of resolving
_LONG_WORK = 2**22  # the same in one long piece: some tenths of a second

_SLICE = 0.02  # seconds of one slice of a change, roughly
_MOST_REACHED = 2**19  # leaves that a change in slices may reach: in the end they change all at once

_FIRST_TREES = 1, 8  # so many tell how much room the next need, and those how much all others
_MARGIN = 1.1  # times what they take
_SPARE_ROWS_ALONE = 64

# What work takes, roughly, in seconds.
_GROWING = 200e-9  # a sample, all levels of its tree
_RESOLVING = 1e-6  # a tag
_PLANTING = 2e-8  # a sample in a tree
_ANSWERING = 100e-9  # a row in a tree
_PASSING = 4e-7  # a node on a sample's way down, counted
_TAG_PER_PASSED = 20  # how many such nodes a tag is worth, resolved in slices of the loop
_PREPARING = 5e-7  # times as much work as else is needed, a byte of a working space


class ForestEngine(KeptForest):
    """A forest over the samples of some slots, exact after any history."""

    has_separate_trees = True

    def __init__(self, settings: ForestSettings, *columns: Any) -> None:
        super().__init__(settings, *columns)
        # The types of all that these are given are those of the forest.
        self._update_samples, self._resolve_tags = Direct(update_samples), Direct(resolve)
        self._sum_leaves_of, self._sum_leaves_of_many = Direct(sum_leaves), Direct(sum_leaves_of_many)

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
        if settings.is_regression and n_samples > fixed_point.MAX_SAMPLES:
            raise CapacityError(f"a regression holds at most {fixed_point.MAX_SAMPLES} samples")

    def fit(self, problem: Problem, slots: Slots, progress: Progress | None = None) -> None:
        other, n_trees = self.emptied(len(problem.ranks)), self.settings.n_trees
        if not self.is_classification:
            other.targets = Targets.of(problem.y, slots, problem.weights)
        other.plant(problem, slots)
        data = other.data(problem)
        other.resolve_all(data, None if progress is None else lambda done: progress(done, n_trees))
        other.trees = in_order(other.trees)
        with self.changes:
            self.become(other)

    def fit_some(
        self, problem: Problem, slots: Slots, trees: Sequence[int], class_order: Ints, progress: Progress | None = None
    ) -> list[str]:
        # No tree depends on another one: it is a function of its number, of the samples that draw it, and of the seed.
        # So a few are grown in the time and memory of a few, one after the other, or one in each thread.
        self.clear(len(problem.ranks))
        if not self.is_classification:
            self.targets = Targets.of(problem.y, slots, problem.weights)
        self.bits = bit_rows_of(self.plain_data(problem), slots, self.n_threads)
        drawn = drawn_trees(self.plain_data(problem), self.parameters, slots, self.n_threads)
        caller, sizes = threading.get_ident(), list[tuple[int, int]]()

        def grow(tree: int) -> str:
            engine = self.beside()
            try:
                own = slots[(drawn == tree).any(axis=1)]
                engine.plant(problem, own, np.full((len(own), 1), tree, np.int16))
                if (
                    sizes
                ):  # the others are of about the same size: growing the pools in steps would copy them many times
                    n_nodes, n_leaves = (size + size // 8 + _SPARE_ROWS_ALONE for size in sizes[-1])
                    engine.reserve_rows(n_nodes, n_leaves, 0)
                engine.resolve_all(engine.data(problem))
                digest = engine.digest_of(tree, class_order)
                sizes.append((int(engine.trees.meta[PAIRS]), int(engine.trees.meta[LEAVES])))
            finally:
                # No other block is ever taken.
                aligned.shred(arrays_in([engine.trees, engine.blocks.longs[:1], engine.scratch]))
            if progress is not None and threading.get_ident() == caller:
                progress(len(sizes), len(trees))
            return digest

        digests = run([partial(grow, tree) for tree in trees], self.n_threads)
        if progress is not None:
            progress(len(trees), len(trees))
        return digests

    def beside(self) -> Self:
        """An empty forest in which a sample is in one tree, over the same targets and bit rows.

        The number of an entry is the slot of its sample. No node keeps counters: nothing is going to change.
        """
        settings = replace(self.settings, occurrences=1)
        other = type(self)(settings, self.n_features, self.cell_dtype, self.categorical, self.is_classification)
        other.smallest_block = MAX_SAMPLES + 1
        other.clear(self.width)
        other.targets, other.bits = self.targets, self.bits
        return other

    def _has_many_pieces(self, n_new: int) -> bool:
        """Whether free rooms of sizes that are not needed have used up the places that can be numbered.

        Rooms are cut in halves and never put together again; planting again does that.
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
            self.reserve_entries(needed)
        if self.bits.words.shape[1]:
            self.bits = self.bits.with_slots(needed // self.settings.occurrences)
        n_spare = self._n_spare(n)
        if len(trees.members) - trees.meta.item(N_MEMBERS) < n_spare:
            self.reserve_members(n_spare + n_spare // 2)

    def plant(self, problem: Problem, slots: Slots, drawn: npt.NDArray[np.int16] | None = None) -> None:
        """Forget all trees and put the samples of `slots` into their roots, to be grown.

        drawn : int16[n, k] the trees of each sample; None: those that its id draws. Then bit rows are made, too.
        """
        self.has_weights, self.is_whole = problem.has_weights, problem.is_whole
        if drawn is None:
            self.bits = bit_rows_of(self.plain_data(problem), slots, self.n_threads)
            drawn = drawn_trees(self.plain_data(problem), self.parameters, slots, self.n_threads)
        self.blocks = self._empty_blocks()
        self.trees = self._empty_trees()
        self.reserve_entries((int(slots.max()) + 1 if len(slots) else 0) * self.settings.occurrences)
        n_trees = self.settings.n_trees
        counts = np.zeros(n_trees, np.int64)
        count_draws(drawn, counts)
        self.set_block_minimum(int(counts.max()))
        self.reserve_members(2 * int(counts.sum() + counts.max()) + len(counts))
        open_roots(self.trees, counts)
        data, n = self.data(problem), self.n_threads if is_long(_PLANTING * drawn.size) else 1
        ends = np.linspace(0, n_trees, n + 1).astype(np.int64).tolist()
        put = partial(plant, self.trees, data, self.parameters, slots, drawn)
        run([partial(put, first, end) for first, end in pairwise(ends)], n)
        tag_roots(self.trees, data, self.parameters)
        self.is_planted = True

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
        if self._is_planted_with(problem, slots):
            return
        data = self.data(problem)
        self.changes.undo = None
        try:
            self.update(data, slots, ADD)
        except MemoryError:
            # Planting needs nothing of what has been left halfway, and gives the same trees in the end.
            self.become(self._planted(problem, self.targets, problem.slots()))

    def _is_planted_with(self, problem: Problem, slots: Slots) -> bool:
        """Plant all samples again if new ones ask for that; otherwise make room for these."""
        scale_moved = self.targets is not None and self._take_targets(self.targets, problem, slots)
        n_before = problem.n_samples - len(slots)
        if scale_moved or len(slots) > _REPLANT_SHARE * n_before or self._has_many_pieces(len(slots)):
            planted = self._planted(problem, self.targets, problem.slots())
            self.changes.undo = None
            self.become(planted)
            return True
        self._reserve(slots)
        return False

    def delete(self, problem: Problem, slots: Slots, *, lazy: bool = False) -> None:
        if self._is_planted_without(problem, slots):
            return
        data = self.data(problem)
        self.changes.undo = None
        self.update(data, slots, DELETE)
        self._let_go_of_targets(problem, slots)

    def _is_planted_without(self, problem: Problem, slots: Slots) -> bool:
        """Plant the other samples again if those that leave ask for that."""
        targets = self.targets
        is_large = len(slots) > _REPLANT_SHARE * problem.n_samples
        if is_large or (targets is not None and targets.moves_without(problem.y[slots])):
            self._plant_without(problem, slots)
            return True
        return False

    def _let_go_of_targets(self, problem: Problem, slots: Slots) -> None:
        if self.targets is not None:
            self.targets.scale.count(problem.y[slots], -1)
            self.targets.numbers[slots] = 0

    def reader(self) -> Self:
        other, trees = self.aside(), self.trees
        other.trees = trees._replace(meta=trees.meta.copy(), tree_tags=trees.tree_tags.copy())
        return other

    def change_in_slices(self, problem: Problem, slots: Slots, sign: int) -> Iterator[None]:
        is_planted = self._is_planted_with if sign == ADD else self._is_planted_without
        if is_planted(problem, slots):
            return
        data, occurrences, size = self.data(problem), self.settings.occurrences, self._slice_size(problem)
        leaves, ends = ReachedLeaves(self.trees, len(slots) * occurrences), np.empty((size, occurrences), np.int32)
        yield  # making room may have taken as long as a slice
        self.changes.undo = None
        for start in range(0, len(slots), size):
            some = slots[start : start + size]
            find_ends(self.trees, data, self.parameters, self._scratch_of_updates(), some, ends)
            leaves.reach(ends[: len(some)])
            self.update(data, some, sign)
            leaves.hide()
            yield
        leaves.show()
        if sign == DELETE:
            self._let_go_of_targets(problem, slots)

    def _scratch_of_updates(self) -> UpdateScratch:
        if self._update_scratch.permutation is not self.scratch.permutation:
            self._update_scratch = UpdateScratch.part_of(self.scratch)
        return self._update_scratch

    def update(self, data: ForestData, slots: Slots, sign: int) -> None:
        """Learn (ADD) or unlearn (DELETE) samples; their cells, targets and id hashes are in place."""
        done = 0
        scratch = self._scratch_of_updates()
        while done < len(slots) * self.settings.occurrences:
            done = self._update_samples.call(self.trees, data, self.parameters, scratch, self.blocks, slots, sign, done)
            if done < len(slots) * self.settings.occurrences:
                self.reserve_members(4 * self.largest_tree() + 64)

    def _plant_without(self, problem: Problem, slots: Slots) -> None:
        """Unlearn samples by planting the others again."""
        targets = self.targets
        if targets is not None:
            y, scale = problem.y.copy(), targets.scale.copy()
            scale.count(y[slots], -1)
            y[slots] = 0.0
            weights = problem.weights
            if len(weights.units):
                weights = weights._replace(units=np.where(problem.held, weights.units, 0))
                weights.units[slots] = 0
            targets = Targets.on_scale(scale, y, weights)
        stays = problem.held.copy()
        stays[slots] = False
        planted = self._planted(problem, targets, np.flatnonzero(stays))
        self.changes.undo = None
        self.become(planted)

    def _take_targets(self, old: Targets, problem: Problem, slots: Slots) -> bool:
        """Take in the targets of new samples; whether the scale of all has moved. Adds to `changes.undo`."""
        y, weights = problem.y, problem.weights
        scale, numbers = old.scale.copy(), old.numbers
        scale.count(y[slots], 1)
        exponent = scale.exponent
        has_moved = exponent != old.exponent
        if has_moved:
            numbers = weights.targets(fixed_point.quantise(y, exponent))
        elif len(numbers) < len(y):
            numbers = np.pad(old.numbers, (0, len(y) - len(old.numbers)))
        new = weights.of(slots).targets(fixed_point.quantise(y[slots], exponent))
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

    # -- what it costs --------------------------------------------------------------------------

    def seconds_to_change(self, n_changed: int, problem: Problem) -> float:
        occurrences, n = self.settings.occurrences, max(problem.n_samples, n_changed)
        if n_changed > _REPLANT_SHARE * n:
            return n * occurrences * _GROWING
        return n_changed * occurrences * math.log2(n + 2) * _PASSING

    def _slice_size(self, problem: Problem) -> int:
        """Samples in a slice of a change."""
        return max(1, int(_SLICE / self.seconds_to_change(1, problem)))

    def can_be_sliced(self, n_changed: int, problem: Problem, *, lazy: bool, is_queried: bool) -> bool:
        if not lazy or n_changed < 2:
            return False
        n_reached = n_changed * self.settings.occurrences
        # What tallies said before a change would have to be kept in places of its own.
        if self.has_tallies:
            return False
        # Readers in between pass no tags: these are resolved before.
        most_tags = n_reached * math.log2(problem.n_samples + 2) / (1 if is_queried else _TAG_PER_PASSED)
        if self.n_tags > most_tags or n_reached > _MOST_REACHED:
            return False
        return n_changed <= _REPLANT_SHARE * problem.n_samples

    # -- resolving ------------------------------------------------------------------------------

    @property
    def n_tags(self) -> int:
        return int(self.trees.meta.item(N_TAGS))

    @property
    def is_planted_only(self) -> bool:
        return self.n_tags > 0 and bool((self.trees.nodes["child"][: self.settings.n_trees] < 0).all())

    def _resolve(
        self, data: ForestData, first: int = 0, end: int = 0, *, queries: tuple[Array, Hashes] | None = None,
        max_tags: int = _NO_LIMIT, max_work: int = _NO_LIMIT, whole_below: int = _NO_LIMIT, stop: Ints = _NEVER,
    ) -> int:  # fmt: skip
        """Resolve the tags that queries meet, or those of the trees first .. end; as the kernel `resolve` does."""
        self.reserve_scratch(data, 0)  # the kernel finds trees that have outgrown it in less time
        cells, category_hashes = (data.cells[:0], data.category_hashes) if queries is None else queries
        total = 0
        while True:
            status, n_resolved = self._resolve_tags.call(
                self.trees, data, self.parameters, self.scratch, self.blocks, cells, category_hashes, first, end,
                max_tags - total, max_work, whole_below, stop,
            )  # fmt: skip
            total += int(n_resolved)
            if status != FULL:
                return total
            before = self.scratch
            self.reserve_scratch(data)
            if self.scratch is before:
                self.grow_pools()

    def _resolve_first(self, data: ForestData, tagged: list[int], spare: list[Scratch], finish: Finish) -> Ints | None:
        """Resolve the first of planted trees, and make room for the others; returns what one takes, as `Lease` says."""
        before, n_a_tree, n_done = self.rows_taken(), None, 0
        for n in _FIRST_TREES:
            self._resolve_some(data, n_a_tree, tagged[n_done : n_done + n], spare, finish)
            n_done += n
            n_left = len(tagged) - n_done
            if n_left <= 0:
                break
            # The others will be of about the same size: growing the pools bit by bit would copy them many times.
            n_rows = np.ceil(_MARGIN * (self.rows_taken() - before) / n_done).astype(np.int64)
            n_next = n_left if n == _FIRST_TREES[-1] else min(n_left, _FIRST_TREES[-1])
            self.reserve_rows(*(self.trees.meta[POOLS] + n_next * n_rows + self.spare_rows()).tolist())
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
        return self._resolve(
            data, 0, self.settings.n_trees, max_tags=int(max_tags), max_work=_SHORT_WORK, whole_below=_WHOLE_BELOW
        )

    def resolve_until(self, problem: Problem, stop: Ints) -> int:
        return self._resolve(self.data(problem), 0, self.settings.n_trees, whole_below=_WHOLE_BELOW, stop=stop)

    def resolve_all(self, data: ForestData, tell: Callable[[int], object] | None = None) -> int:
        """Resolve all tags and return how many there were; `tell` is called with the number of trees that have none."""
        n_tags, is_by_trees = self.n_tags, self.is_planted or tell is not None
        if is_by_trees or self.n_threads > 1:
            tagged = np.flatnonzero(self.trees.tree_tags).tolist()
            if is_by_trees or self._is_much_work(tagged):
                self._resolve_by_trees(data, tagged, tell)
        while self.n_tags > 0:
            # A part at a time: between two calls Ctrl-C gets through.
            self.scratch.work[WORKED] = 0
            self._resolve(data, 0, self.settings.n_trees, max_work=_LONG_WORK)
        return n_tags

    def _resolve_by_trees(self, data: ForestData, tagged: list[int], tell: Callable[[int], object] | None) -> None:
        """Resolve what is tagged in some trees, one after the other or in threads, and tell how far that is."""
        caller, done = threading.get_ident(), list[int]()
        n_told = n_before = self.settings.n_trees - len(tagged)

        def finish(*trees: int) -> None:
            nonlocal n_told
            done.extend(trees)
            n_done = n_before + len(done)
            if tell is not None and threading.get_ident() == caller and n_done > n_told:
                n_told = n_done
                tell(n_done)

        spare: list[Scratch] = []  # working spaces of other threads
        try:
            n_a_tree = self._resolve_first(data, tagged, spare, finish) if self.is_planted and tagged else None
            self._resolve_some(data, n_a_tree, tagged, spare, finish)
        finally:
            aligned.shred(arrays_in(spare))

    def _resolve_some(
        self, data: ForestData, n_a_tree: Ints | None, trees: list[int], spare: list[Scratch], finish: Finish
    ) -> None:
        """Resolve what is tagged in some trees, in threads if that is worth it."""
        tagged = [tree for tree in trees if self.trees.tree_tags[tree]]
        while self.n_threads > 1 and self._is_much_work(tagged):
            if not self._resolve_in_threads(data, n_a_tree, tagged, spare, finish):
                break
            tagged = [tree for tree in tagged if self.trees.tree_tags[tree]]
        for tree in tagged:
            self._resolve(data, tree, tree + 1)
            finish(tree)

    def _is_much_work(self, tagged: list[int]) -> bool:
        """Whether resolving some trees takes so long that other threads should help."""
        if len(tagged) < 2:
            return False
        trees = self.trees
        n_planted = int(trees.nodes["n_samples"][tagged][trees.nodes["child"][tagged] < 0].sum())
        seconds = _RESOLVING * int(trees.tree_tags[tagged].sum()) + _GROWING * n_planted
        # Every other thread needs a working space, which has to be made and overwritten.
        return is_long(seconds / (1 + _PREPARING * (self.n_threads - 1) * self.scratch.columns.nbytes))

    def _resolve_in_threads(
        self, data: ForestData, n_a_tree: Ints | None, tagged: list[int], spare: list[Scratch], finish: Finish
    ) -> bool:
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
            status, _ = self._resolve_tags.call(
                trees, data, self.parameters, scratch, self.blocks, data.cells[:0], data.category_hashes, tree,
                tree + 1, _NO_LIMIT, _NO_LIMIT, _NO_LIMIT, _NEVER,
            )  # fmt: skip
            return int(status)

        before = self.trees, self.blocks
        sharing.resolve(tagged, resolve, self.changes, finish)
        is_done = self.trees.tree_tags[tagged] == 0
        if not is_done.all():
            self.grow_pools()
        return bool(is_done.any()) or self.trees is not before[0] or self.blocks is not before[1]

    def _resolve_for(self, data: ForestData, cells: Array, category_hashes: Hashes) -> None:
        """Resolve the tags on the paths of queries."""
        # Many queries meet most tags; growing subtrees whole is then cheaper than path by path.
        if len(cells) > 1 and 4 * len(cells) > self.largest_tree():
            self.resolve_all(data)
            return
        self._resolve(data, queries=(cells, category_hashes))

    # -- reading --------------------------------------------------------------------------------

    def predict(
        self, cells: Array, category_hashes: Hashes, class_order: Ints, problem: Callable[[], Problem], frozen: bool
    ) -> Reals:
        has_tags, is_low = self.n_tags > 0, self.settings.has_low_disclosure
        n_summed: Any
        if has_tags and frozen:
            sums, n_summed = self._sum_leaves_frozen(self.data(problem()), cells, category_hashes)
        else:
            if has_tags:
                self._resolve_for(self.data(problem()), cells, category_hashes)
            if is_low:
                data = self.data(problem())._replace(cells=cells, category_hashes=category_hashes)
                sums, n_summed = self._sum_unseen_leaves(data, np.arange(len(cells)))
            else:
                sums, n_summed = self.sum_leaves(cells, category_hashes)
        answers = self._means(sums, np.maximum(n_summed, 1) if is_low else n_summed, class_order)
        return banded(answers) if is_low and self.is_classification else answers

    def _means(self, sums: Reals, n_summed: Any, class_order: Ints) -> Reals:
        """What trees say together: class probabilities in the order of the classes, or targets."""
        if self.targets is None:
            probabilities: Reals = sums.take(class_order, axis=1)
            probabilities /= n_summed if isinstance(n_summed, int) else n_summed[:, np.newaxis]
            return probabilities
        return fixed_point.restore(sums[:, 0] / n_summed, self.exponent)

    def predict_unseen(self, problem: Problem, slots: Slots, class_order: Ints) -> tuple[Reals, Bools] | None:
        if self.settings.occurrences == self.settings.n_trees:
            return None
        sums, n_summed = self._sum_unseen_leaves(self.data(problem), slots)
        answers = self._means(sums, np.maximum(n_summed, 1), class_order)
        is_banded = self.settings.has_low_disclosure and self.is_classification
        return banded(answers) if is_banded else answers, n_summed > 0

    def _sum_unseen_leaves(self, data: ForestData, rows: Ints) -> tuple[Reals, Ints]:
        """Sum what the trees say that rows do not draw, without tags; also the number of such trees for each."""
        sums = np.zeros((len(rows), 1 if self.settings.is_regression else self.width))
        n_summed = np.zeros(len(rows), np.int64)
        sum_unseen_leaves(
            self.trees.nodes, self.trees.leaves(), self.parameters, data, rows,
            np.arange(self.settings.n_trees, dtype=np.int32),
            np.empty((int(self.has_categories), self.n_features), np.uint64),
            np.empty((3, inputs.N_LANES), np.int32), sums, n_summed,
        )  # fmt: skip
        return sums, n_summed

    def _sum_leaves_frozen(self, data: ForestData, cells: Array, category_hashes: Hashes) -> tuple[Reals, Ints]:
        """As `sum_leaves`, through tags; writes nothing but working space."""
        self.reserve_scratch(data)
        sums = np.zeros((len(cells), 1 if self.settings.is_regression else self.width))
        n_summed = np.zeros(len(cells), np.int64)
        sum_leaves_frozen(
            self.trees, data, self.parameters, self.scratch, self.blocks, cells, category_hashes,
            np.arange(self.settings.n_trees, dtype=np.int32), sums, n_summed,
        )  # fmt: skip
        return sums, n_summed

    def sum_leaves(self, cells: Array, category_hashes: Hashes) -> tuple[Reals, int]:
        """Sum over the non-empty trees what each query's leaf says, without tags; also the number of such trees.

        Returns float64[n, n_classes] sums of class shares by class code, or float64[n, 1] sums of
        means of quantised targets.
        """
        sums = np.zeros((len(cells), 1 if self.settings.is_regression else self.width))
        n_rows = len(cells)
        if self.n_threads == 1 or n_rows == 1 or not is_long(_ANSWERING * n_rows * self.settings.n_trees):
            return sums, self._add_leaves(cells, category_hashes, sums)
        step = min(ROWS_AT_A_TIME, -(-n_rows // self.n_threads))
        parts = [slice(start, start + step) for start in range(0, n_rows, step)]
        pieces = [partial(self._add_leaves, cells[part], category_hashes, sums[part]) for part in parts]
        return sums, run(pieces, self.n_threads)[0]

    def _add_leaves(self, cells: Array, category_hashes: Hashes, sums: Reals) -> int:
        """Add to `sums`, and return the number of non-empty trees; may run for several ranges of rows at a time."""
        trees, settings = self.trees, self.settings
        if len(cells) < MANY_ROWS:
            hashes = np.empty((int(self.has_categories), self.n_features), np.uint64)
            n_planted = self._sum_leaves_of.call(
                trees.nodes, trees.statistics, trees.starts, trees.tallies, settings.n_trees, settings.is_regression,
                cells, category_hashes, hashes, np.empty((3, inputs.N_LANES), np.int32), sums,
            )  # fmt: skip
            return int(n_planted)
        n_codes = len(category_hashes) if self.has_categories else -1
        scratch = batch_scratch(len(cells), self.n_features, self.cell_dtype, n_codes)
        n_planted = self._sum_leaves_of_many.call(
            trees.nodes, trees.leaves(), settings.n_trees, settings.is_regression, cells, category_hashes,
            self.categorical, scratch, sums,
        )  # fmt: skip
        return int(n_planted)
