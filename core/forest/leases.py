"""Leases of a forest's pools to several threads, each of which works at trees of its own.

All trees share the arrays of `Trees`, and a kernel writes to the rows of its tree alone: its nodes, leaves and blocks,
the rooms of its leaves, the places of its entries, its number of tags. What trees have in common is `meta`: free lists,
and where the unused rows begin. So each thread gets a *lease*: a `meta` of its own, with rows that no other thread
takes, and a working space of its own.

    nodes      [ rows in use and free |  unused            ]      meta of the forest: all free and unused rows but those
    leaves     [ rows in use and free |  unused            ]      that are lent
    blocks     [ rows in use and free |  unused            ]      meta of a lease: free lists of rows lent, none unused
    members    [ rooms in use and free | lease 0 | lease 1 | .. ]  a range of places that have never been taken

The kernels know nothing of this: they look at `meta` and at the length of the arrays. The `members` of a lease end
where its range ends, and in its `meta` the other arrays have no unused rows.

When nothing is left to lend, threads come to a stop as they do alone when a pool is full. At the end all that is lent
and all that was freed goes back, and the tags resolved are counted, in one call of a kernel: no exception comes between
its steps. Until then the forest's `meta` is not to be used.
"""

import threading
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from operator import length_hint

import numpy as np

from oubli.core.array_types import Ints
from oubli.core.concurrency.changes import Changes
from oubli.core.concurrency.threads import run
from oubli.core.forest.grow import FULL
from oubli.core.forest.layout.blocks import NEXT_FREE, clear_block
from oubli.core.forest.state import (
    BLOCKS,
    FREE_ROOMS,
    LEAVES,
    MAX_ROOM,
    META_SIZE,
    N_MEMBERS,
    N_TAGS,
    PAIRS,
    POOLS,
    Trees,
    list_room,
    unlist_room,
)
from oubli.core.forest.storage import KeptForest
from oubli.core.forest.workspace import STACK_SIZE, WORKING_BLOCK, Scratch
from oubli.core.jit.nodes import FREE, N_FREE, NIL, give_row, n_available, take_row
from oubli.core.jit.policy import inner, kernel

# Beside those of `meta`.
END_OF_MEMBERS = META_SIZE
BLOCK_AT_WORK = META_SIZE + 1
_LEASE_SIZE = META_SIZE + 2

_FREE = np.add(POOLS, N_FREE)
# With so many pairs, leaves and blocks a node can be split, and all that wait can become leaves.
_ENOUGH = np.array([1, STACK_SIZE + 4, 2])
# What is lent at a time, at least and at most, where it is unknown how many will be needed.
_FEW_ROWS = np.array([128, 256, 8])
_MANY_ROWS = np.array([4096, 8192, 64])
# Each row that is lent is written to, which for memory that is new takes a while: the others wait for that.
_TREES_AHEAD = 4
_ROOMS = 1024  # of a size, lent to each lease
_LONGEST_WAIT = 1.0  # seconds; borrowing takes microseconds


@inner
def _move_rows(pool, following, step, source, target, n):
    """Move up to so many free rows, then unused ones, from one `meta` to another; `step` rows side by side are one."""
    for _ in range(min(n, n_available(source, pool, following, step))):
        give_row(target, pool, following, take_row(source, pool, following, step))


@inner
def _move_all(trees, blocks, source, target, n_pairs, n_leaves, n_blocks):
    """Move up to so many free or unused pairs of nodes, leaves and blocks from one `meta` to another."""
    _move_rows(PAIRS, trees.nodes["child"], 2, source, target, n_pairs)
    _move_rows(LEAVES, trees.starts, 1, source, target, n_leaves)
    _move_rows(BLOCKS, blocks.longs[:, NEXT_FREE], 1, source, target, n_blocks)


@inner
def _move_room(members, source, target, size):
    """Move a free room, of which there is one of this size."""
    list_room(target, members, unlist_room(source, members, size), size)


@inner
def _give_up_range(trees, lease, target):
    """List the places of a lease that were not taken as free rooms, or as not lent if they are the last ones."""
    meta = trees.meta
    start = lease[N_MEMBERS]
    end = lease[END_OF_MEMBERS]
    if end == meta[N_MEMBERS]:
        meta[N_MEMBERS] = start
    else:
        size = MAX_ROOM
        while start < end:
            while np.int64(1) << size > end - start:
                size -= 1
            list_room(target, trees.members, start, size)
            start += np.int64(1) << size
    lease[N_MEMBERS] = 0
    lease[END_OF_MEMBERS] = 0


@kernel
def deal_rooms(trees, leases):
    """Deal out free rooms one by one, so that each of int64[n, _LEASE_SIZE] `leases` has some of every size."""
    for size in range(MAX_ROOM + 1):
        dealt = 0
        while dealt < _ROOMS * leases.shape[0] and trees.meta[FREE_ROOMS + size] != NIL:
            _move_room(trees.members, trees.meta, leases[dealt % leases.shape[0]], size)
            dealt += 1


@kernel
def lend(trees, blocks, lease, n_pairs, n_leaves, n_blocks, n_members):
    """Lend rows: the number wanted, or all that there are.

    lease      int64[_LEASE_SIZE], written
    n_members  places that have never been taken; 0: the lease keeps its range
    """
    meta = trees.meta
    _move_all(trees, blocks, meta, lease, n_pairs, n_leaves, n_blocks)
    if n_members > 0 and meta[N_MEMBERS] + n_members <= trees.members.shape[0]:
        _give_up_range(trees, lease, lease)
        lease[N_MEMBERS] = meta[N_MEMBERS]
        meta[N_MEMBERS] += n_members
        lease[END_OF_MEMBERS] = meta[N_MEMBERS]
    if lease[BLOCK_AT_WORK] == NIL and lease[BLOCKS + N_FREE] > 0:
        block = take_row(lease, BLOCKS, blocks.longs[:, NEXT_FREE], 1)
        blocks.longs[block, NEXT_FREE] = 0
        lease[BLOCK_AT_WORK] = block


@kernel
def take_back(trees, blocks, leases):
    """Take back all that was lent, and count the tags that are gone; int64[n, _LEASE_SIZE] `leases` are empty then."""
    meta = trees.meta
    for i in range(leases.shape[0]):
        lease = leases[i]
        if lease[BLOCK_AT_WORK] != NIL:
            clear_block(blocks, lease[BLOCK_AT_WORK])
            give_row(lease, BLOCKS, blocks.longs[:, NEXT_FREE], lease[BLOCK_AT_WORK])
            lease[BLOCK_AT_WORK] = NIL
        n_pairs, n_leaves, n_blocks = lease[PAIRS + N_FREE], lease[LEAVES + N_FREE], lease[BLOCKS + N_FREE]
        _move_all(trees, blocks, lease, meta, n_pairs, n_leaves, n_blocks)
        for size in range(MAX_ROOM + 1):
            while lease[FREE_ROOMS + size] != NIL:
                _move_room(trees.members, lease, meta, size)
        meta[N_TAGS] += lease[N_TAGS]
        lease[N_TAGS] = 0
    # The last range first: if nothing of it was taken, the one before is the last then.
    for _ in range(leases.shape[0]):
        last = 0
        for i in range(leases.shape[0]):
            if leases[i, END_OF_MEMBERS] > leases[last, END_OF_MEMBERS]:
                last = i
        _give_up_range(trees, leases[last], meta)


Resolve = Callable[[Trees, Scratch, int], int]
"""Resolves what is tagged in a tree of the trees given, in the working space given; returns OK or FULL."""

Finish = Callable[..., object]
"""Called with each tree that has no tags any more, in the thread that has worked at it."""


class Lease:
    """What one thread works with.

    Parameters
    ----------
    forest : whose trees they are; no other thread changes them during this time.
    meta : of the lease.
    scratch : the working space of the thread.
    n_leases : of all.
    n_a_tree : pairs, leaves and blocks that a tree takes which has yet to be grown; None: unknown.
    """

    def __init__(self, forest: KeptForest, meta: Ints, scratch: Scratch, n_leases: int, n_a_tree: Ints | None) -> None:
        self._forest = forest
        self._meta = meta
        self._n_leases = n_leases
        self._n_a_tree = None if n_a_tree is None else np.maximum(n_a_tree, _ENOUGH)
        self._needed = 2 * forest.largest_tree() + 2
        # That of the caller is the forest's own, which works with block 0 again afterwards.
        self.scratch = scratch._replace(work=np.zeros_like(scratch.work))
        self.trees: Trees = forest.trees

    def has_enough(self) -> bool:
        """Whether nothing need be borrowed for one tree more, as far as is known."""
        if self._meta[BLOCK_AT_WORK] == NIL:
            return False
        return self._n_a_tree is None or bool((self._meta[_FREE] >= self._n_a_tree).all())

    def borrow(self, n_left: int, *, is_full: bool) -> bool:
        """Borrow what one tree more may take, or several; whether that could be had. One thread at a time.

        n_left : trees that no thread has begun.
        is_full : the kernel has found a pool full.
        """
        forest, meta = self._forest, self._meta
        trees, blocks = forest.trees, forest.blocks
        is_first = meta[BLOCK_AT_WORK] == NIL
        meta[POOLS] = forest.capacities()
        if self._n_a_tree is None or is_full:
            wanted = np.clip(_rows_left(forest) // (2 * self._n_leases), _FEW_ROWS, _MANY_ROWS)
        else:
            wanted = min(_TREES_AHEAD, 1 + n_left // (2 * self._n_leases)) * self._n_a_tree - meta[_FREE]
        n_places = meta[END_OF_MEMBERS] - meta[N_MEMBERS]
        n_members = members_of_a_lease(forest) if is_first or (is_full and n_places < self._needed) else 0
        lend(trees, blocks, meta, *wanted.tolist(), n_members)
        self.trees = trees._replace(meta=meta, members=trees.members[: int(meta[END_OF_MEMBERS])])
        self.scratch.work[WORKING_BLOCK] = meta[BLOCK_AT_WORK]
        n_places = meta[END_OF_MEMBERS] - meta[N_MEMBERS]
        return bool((meta[_FREE] >= _ENOUGH).all() and (n_places >= self._needed or not (is_first or is_full)))


class Sharing:
    """Several leases of one forest, from the first that is lent until all is taken back.

    Parameters
    ----------
    forest : has a working space and room for what leases take of `members`.
    scratches : the working spaces, one for each thread; the first one is the caller's.
    n_a_tree : see `Lease`.
    """

    def __init__(self, forest: KeptForest, scratches: Sequence[Scratch], n_a_tree: Ints | None) -> None:
        n = len(scratches)
        self._forest = forest
        self._metas = np.zeros((n, _LEASE_SIZE), np.int64)
        self._metas[:, [*np.add(POOLS, FREE), BLOCK_AT_WORK]] = NIL
        self._metas[:, FREE_ROOMS:META_SIZE] = NIL
        self._leases = [Lease(forest, self._metas[i], scratch, n, n_a_tree) for i, scratch in enumerate(scratches)]
        self._lock = threading.Lock()
        self._begun: list[Lease] = []
        self._ended: list[Lease] = []
        self._is_over = False  # whether no further tree is begun

    def resolve(self, trees: Sequence[int], resolve: Resolve, changes: Changes, finish: Finish) -> None:
        """Resolve what is tagged in some trees, or less when a pool is full, or Ctrl-C waits."""
        forest, turns = self._forest, iter(trees)
        pieces = [partial(self._work, lease, turns, resolve, changes, finish) for lease in self._leases]
        with changes:
            deal_rooms(forest.trees, self._metas)
            try:
                run(pieces, len(pieces))
            finally:
                self._is_over = True
                # A model whose threads have not come to their end, whatever happened, is not used any more.
                if len(self._begun) == len(self._ended):
                    take_back(forest.trees, forest.blocks, self._metas)
                    if changes.depth == 1:
                        changes.undo = []  # nothing is left to be taken back
        finish()  # in the caller's thread

    def _work(self, lease: Lease, turns: Iterator[int], resolve: Resolve, changes: Changes, finish: Finish) -> None:
        # Before the check whether all is over, so that nothing is begun after `resolve` has looked.
        self._begun.append(lease)
        try:
            for tree in turns:
                n_left = length_hint(turns)
                if self._is_over or changes.is_interrupted or not self._finish(lease, tree, n_left, resolve):
                    self._is_over = True
                    return
                finish(tree)
        finally:
            self._ended.append(lease)

    def _finish(self, lease: Lease, tree: int, n_left: int, resolve: Resolve) -> bool:
        """Resolve a tree; False when there is nothing left to borrow."""
        is_full = False
        while True:
            if (is_full or not lease.has_enough()) and not self._borrow(lease, n_left, is_full=is_full):
                return False
            is_full = resolve(lease.trees, lease.scratch, tree) == FULL
            if not is_full:
                return True

    def _borrow(self, lease: Lease, n_left: int, *, is_full: bool) -> bool:
        """Have a lease borrow, one thread at a time; False when it cannot."""
        # An exception at the very line that lets go of the lock would keep all others waiting for ever.
        if not self._lock.acquire(timeout=_LONGEST_WAIT):
            return False
        try:
            return lease.borrow(n_left, is_full=is_full)
        finally:
            self._lock.release()


def reserve_leases(forest: KeptForest, n_leases: int) -> None:
    """Make room for what each of some leases needs to get anywhere."""
    sizes, wanted = forest.capacities(), 2 * n_leases * _FEW_ROWS
    larger = sizes + np.maximum(wanted * (2, 1, 1), sizes // 4)
    forest.reserve_rows(*np.where(_rows_left(forest) < wanted, larger, sizes).tolist())
    forest.reserve_members(n_leases * members_of_a_lease(forest))


def _rows_left(forest: KeptForest) -> Ints:
    """Pairs, leaves and blocks that are free, or unused."""
    meta = forest.trees.meta
    left: Ints = meta[_FREE] + (forest.capacities() - meta[POOLS]) // (2, 1, 1)
    return left


def members_of_a_lease(forest: KeptForest) -> int:
    """Places in the lists of leaves that a lease begins with: what the largest tree needs, and some to be used up."""
    return 3 * forest.largest_tree() + 64
