"""Growing iterations in threads: what `training.grow_iterations` does in one, with the same result.

Trees of several classes are grown side by side, if there are as many as threads, and so are the regions of a tree, if
there are any. Else the samples are cut into blocks of rows, and all threads grow one tree together, see `blocks.py`.
"""

from collections.abc import Callable
from functools import partial
from itertools import pairwise
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from oubli.core import threads
from oubli.core.array_types import Ints
from oubli.core.boosting import rows
from oubli.core.boosting.crews import lead
from oubli.core.boosting.quantised import state as s
from oubli.core.boosting.quantised.blocks import (
    DERIVE,
    KEEP,
    LOSS,
    ROLL,
    begin_tree,
    derive_block,
    divide_block,
    make_blocks,
    search_level,
)
from oubli.core.boosting.quantised.gradients import Loss
from oubli.core.boosting.quantised.grow import grow_regions, set_cuts
from oubli.core.boosting.quantised.rolling import leaf_values
from oubli.core.boosting.quantised.state import BEST_ITERATION, N_FREE
from oubli.core.boosting.quantised.training import DONE, NO_BLOCKS, sum_first
from oubli.core.boosting.quantised.validate import should_stop
from oubli.core.jit.crew import ARGUMENTS, WHAT, announce, await_pieces, end_piece, make_crew, take, wait_for_piece
from oubli.core.jit.policy import inner, kernel

Result = TypeVar("Result")

_BLOCKS_A_THREAD = 3  # a thread that wakes up late takes fewer
_CELLS_BESIDE = 4  # what dividing, deriving and adding up a sample is worth, in cells that are summed


def sum_first_in_threads(
    bin_rows: npt.NDArray[np.unsignedinteger], first: Ints, slots: npt.NDArray[np.int32], space: s.Space, n_threads: int
) -> None:
    """Sum the derivatives at F_0 of some samples, which are sorted by region, to space.root."""
    groups, n_regions = len(first), len(space.grows)
    n = rows.n_blocks(len(slots), bin_rows.shape[1] * groups, n_threads)
    if n == n_regions == 1:
        sum_first(bin_rows, first, slots, space.root)
        return
    begins = space.bounds.tolist()
    # Of one region each: its number, and its samples.
    blocks = [
        (region, slots[begins[region] + start : begins[region] + end])
        for region in range(n_regions)
        for start, end in pairwise(rows.cut(begins[region + 1] - begins[region], n if n_regions == 1 else 1))
    ]
    parts = np.zeros((len(blocks), groups, space.root.shape[1]), np.int64)
    threads.run([partial(sum_first, bin_rows, first, some, parts[i]) for i, (_, some) in enumerate(blocks)], n)
    space.root.fill(0)
    by_region = space.root.reshape(groups, n_regions, -1)
    for part, (region, _) in zip(parts, blocks, strict=True):
        by_region[:, region] += part
    parts.fill(0)


@kernel
def grow_part(forest, tree, bins, plans, iteration, rules, samples, space, group, slots, seed_key):
    """Grow the regions of a tree that are to grow; what is written to belongs to them."""
    grow_regions(forest, tree, bins, plans, iteration, rules, samples, space, group, slots, seed_key)


@kernel
def complete_trees(forest, first_tree, rules, values):
    """Join the regions of some trees and write the values of their leaves; values: int32[groups, labels]."""
    for group in range(values.shape[0]):
        set_cuts(forest, first_tree + group, rules)
        leaf_values(forest, first_tree + group, rules.depth, values[group])


# -- one tree after the other: a crew shares blocks ---------------------------------------------------

# What crew[WHAT] says, and what is in crew[ARGUMENTS:].
_DERIVE = 0  # iteration, parts
_DIVIDE = 1  # iteration, group, depth


@inner
def _do(crew, block, bins, plans, rules, samples, scores, space, loss, blocks, values, forest):
    """Do a block's part of what is announced."""
    iteration, second, third = crew[ARGUMENTS], crew[ARGUMENTS + 1], crew[ARGUMENTS + 2]
    if crew[WHAT] == _DERIVE:
        derive_block(forest.leaf_of, values, scores, samples, loss, space.packed, blocks, block, iteration, second)
        return
    tree = iteration * scores.new.shape[0] + second
    divide_block(
        forest, tree, third, bins, plans.places[iteration], rules, blocks, block, space.packed[second],
        samples.first[second],
    )  # fmt: skip


@inner
def _do_all(
    crew, what, iteration, second, third, bins, plans, rules, samples, scores, space, loss, blocks, values, forest
):
    """Have all blocks do something."""
    crew[ARGUMENTS], crew[ARGUMENTS + 1], crew[ARGUMENTS + 2] = iteration, second, third
    announce(crew, what, blocks.losses.shape[0])
    block = take(crew)
    while block >= 0:
        _do(crew, block, bins, plans, rules, samples, scores, space, loss, blocks, values, forest)
        end_piece(crew)
        block = take(crew)
    await_pieces(crew)


@kernel
def help_out(crew, bins, plans, rules, samples, scores, space, loss, blocks, values, forest):
    """Take blocks until the crew is dismissed."""
    block = wait_for_piece(crew)
    while block >= 0:
        _do(crew, block, bins, plans, rules, samples, scores, space, loss, blocks, values, forest)
        end_piece(crew)
        block = wait_for_piece(crew)


@kernel
def derive_in_blocks(crew, iteration, parts, bins, plans, rules, samples, scores, space, loss, blocks, values, forest):
    """Have all blocks derive."""
    _do_all(
        crew, _DERIVE, iteration, parts, 0, bins, plans, rules, samples, scores, space, loss, blocks, values, forest
    )


@kernel
def grow_in_blocks(
    crew, begin, end, patience, seed_key, report, bins, plans, rules, samples, scores, space, loss, blocks, values,
    forest,
):  # fmt: skip
    """Grow the iterations from `begin` on, see `training.grow_iterations`; leads the crew."""
    n_groups = scores.new.shape[0]
    n_needed = n_groups * ((1 << rules.depth) - 1)
    parts = DERIVE
    for iteration in range(begin, end):
        has_room = forest.meta[N_FREE] >= n_needed
        now = parts if has_room else parts & ~DERIVE
        _do_all(
            crew, _DERIVE, iteration, now, 0, bins, plans, rules, samples, scores, space, loss, blocks, values, forest
        )
        if not has_room:
            return iteration, NO_BLOCKS
        for group in range(n_groups):
            tree = iteration * n_groups + group
            begin_tree(forest, tree, rules, blocks)
            for depth in range(0 if rules.top > 0 else -1, rules.depth + 1):
                if depth >= 0:
                    search_level(
                        forest, tree, depth, bins, plans, iteration, rules, space, blocks, group, seed_key, values
                    )
                if depth < rules.depth:
                    _do_all(
                        crew, _DIVIDE, iteration, group, depth, bins, plans, rules, samples, scores, space, loss,
                        blocks, values, forest,
                    )  # fmt: skip
        parts = ROLL | KEEP | DERIVE
        if patience > 0:
            _do_all(
                crew, _DERIVE, iteration + 1, ROLL | KEEP | LOSS, 0, bins, plans, rules, samples, scores, space, loss,
                blocks, values, forest,
            )  # fmt: skip
            parts = DERIVE
            total = np.int64(0)
            for block in range(blocks.losses.shape[0]):
                total += blocks.losses[block]
            scores.losses[iteration] = total
            report[BEST_ITERATION], stops = should_stop(scores.losses, iteration, report[BEST_ITERATION], patience)
            if stops:
                return iteration + 1, DONE
    _do_all(
        crew, _DERIVE, end, parts & ~DERIVE, 0, bins, plans, rules, samples, scores, space, loss, blocks, values, forest
    )
    return end, DONE


# -- all of it --------------------------------------------------------------------------------------


class ThreadedTraining:
    """Iterations grown in threads, on the samples of some slots; `pays` says whether that is worth it.

    Memory is asked for when it is made; growing asks for none that matters.
    """

    def __init__(
        self,
        bins: s.Bins,
        plans: s.Plans,
        rules: s.Rules,
        samples: s.Samples,
        scores: s.Scores,
        space: s.Space,
        loss: Loss,
        slots: npt.NDArray[np.int32],
        seed_key: np.uint64,
        n_threads: int,
    ) -> None:
        groups, width = len(scores.new), bins.rows.shape[1]
        n_blocks = rows.n_blocks(len(slots), width // 2 + _CELLS_BESIDE, _BLOCKS_A_THREAD * n_threads)
        self._by_tree = rules.levels > 0 or (groups > 1 and (groups >= n_threads or n_blocks == 1))
        self.pays = n_blocks > 1
        if self._by_tree:
            self.pays = rows.n_blocks(len(slots) * groups, width, n_threads) > 1
            n_blocks = rows.n_blocks(len(slots), 4 * groups, n_threads)
        if not self.pays:
            return
        self._n_threads, self._groups, self._seed_key = n_threads, groups, seed_key
        n_places = plans.cuts.shape[1]
        self._blocks = make_blocks(slots, n_blocks, samples.first, rules, n_places, fills=not self._by_tree)
        self._values = np.zeros((groups, 2**rules.depth + 1), np.int32)
        self._parts = bins, plans, rules, samples, scores, space, loss, self._blocks, self._values
        self._crew = make_crew(min(n_blocks, n_threads))
        # Where there are as many classes as threads, a piece is a tree; else it is a region of one.
        regions: list[tuple[int, ...]] = [tuple(np.flatnonzero(space.grows).tolist())]
        if groups < n_threads:
            regions = [(region,) for region in regions[0]]
        self._pieces = [(group, some) for group in range(groups) for some in regions]
        self._spaces = [_own_space(space) for _ in range(min(n_threads, len(self._pieces)) if self._by_tree else 0)]

    def erase(self) -> None:
        """Overwrite what samples have left."""
        self._blocks.erase()
        for space in self._spaces:
            for name in _OWN:
                getattr(space, name).fill(0)

    def grow_iterations(self, forest: s.Forest, report: Ints, begin: int, end: int, patience: int) -> tuple[int, int]:
        """Grow the iterations from `begin` on; see `training.grow_iterations`."""
        report[s.DRIFTS] = 1
        if self._by_tree:
            return self._grow_side_by_side(forest, report, begin, end, patience)
        work = partial(grow_in_blocks, self._crew, begin, end, patience, self._seed_key, report)
        done: tuple[int, int] = self._lead(forest, work)
        return done

    def _lead(self, forest: s.Forest, work: Callable[..., Result]) -> Result:
        """Do something with the crew."""
        parts = *self._parts, forest
        return lead(self._crew, partial(work, *parts), partial(help_out, self._crew, *parts))

    # -- trees side by side -------------------------------------------------------------------------

    def _grow_side_by_side(
        self, forest: s.Forest, report: Ints, begin: int, end: int, patience: int
    ) -> tuple[int, int]:
        rules = self._parts[2]
        parts, n_needed = DERIVE, self._groups * (2**rules.depth - 1)
        for iteration in range(begin, end):
            has_room = forest.meta[N_FREE] >= n_needed
            self._derive(forest, iteration, parts if has_room else parts & ~DERIVE)
            if not has_room:
                return iteration, NO_BLOCKS
            self._grow_trees(forest, iteration)
            parts = ROLL | KEEP | DERIVE
            if patience > 0:
                self._derive(forest, iteration + 1, ROLL | KEEP | LOSS)
                parts = DERIVE
                if self._stops(report, iteration, patience):
                    return iteration + 1, DONE
        self._derive(forest, end, parts & ~DERIVE)
        return end, DONE

    def _derive(self, forest: s.Forest, iteration: int, parts: int) -> None:
        if parts:
            self._lead(forest, partial(derive_in_blocks, self._crew, iteration, parts))

    def _stops(self, report: Ints, iteration: int, patience: int) -> bool:
        """Note the validation loss after an iteration; whether the lowest is so long ago that training ends."""
        losses = self._parts[4].losses
        losses[iteration] = self._blocks.losses.sum()
        if iteration == 0 or losses[iteration] < losses[report[BEST_ITERATION]]:
            report[BEST_ITERATION] = iteration
        return bool(iteration - report[BEST_ITERATION] >= patience)

    def _grow_trees(self, forest: s.Forest, iteration: int) -> None:
        """Grow the trees of an iteration; each piece takes blocks from a list of its own, and gives back to it."""
        rules = self._parts[2]
        most = [len(regions) * (2 ** (rules.depth - rules.levels) - 1) for _, regions in self._pieces]
        n_free = int(forest.meta[N_FREE]) - sum(most)
        lists, numbers = [], []
        for n in most:
            # What was there before gives back as many as it may take.
            lists.append(np.concatenate([forest.free[n_free : n_free + n], np.zeros(n, np.int32)]))
            numbers.append(np.array([n], np.int64))
            n_free += n
        threads.run(
            [
                partial(self._grow_piece, forest._replace(free=lists[i], meta=numbers[i]), iteration, group, regions)
                for i, (group, regions) in enumerate(self._pieces)
            ],
            self._n_threads,
        )
        n_free -= sum(most)
        for free, number in zip(lists, numbers, strict=True):
            n = int(number[N_FREE])
            forest.free[n_free : n_free + n] = free[:n]
            n_free += n
        forest.meta[N_FREE] = n_free
        complete_trees(forest, iteration * self._groups, rules, self._values)

    def _grow_piece(self, forest: s.Forest, iteration: int, group: int, regions: tuple[int, ...]) -> None:
        bins, plans, rules, samples, *_ = self._parts
        space = self._spaces.pop()
        space.grows.fill(0)
        space.grows[list(regions)] = 1
        grow_part(
            forest, iteration * self._groups + group, bins, plans, iteration, rules, samples, space, group,
            self._blocks.slots, self._seed_key,
        )  # fmt: skip
        self._spaces.append(space)


_OWN = ("members", "spare", "first", "last", "sums", "found", "lefts", "gains", "grows")


def _own_space(space: s.Space) -> s.Space:
    """Working space for a tree: derivatives and their sums at the root are everyone's."""
    return space._replace(**{name: np.zeros_like(getattr(space, name)) for name in _OWN})
