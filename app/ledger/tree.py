"""The Merkle tree over the entries of a ledger, as RFC 6962 defines it, in tiles of 256 hashes.

    tile of level 1:   |  hashes of the whole tiles below  |  ...
    tile of level 0:   |  256 hashes of entries            |  ...      one whole tile is one row of the ledger's file

A whole tile never changes. It is kept with the nodes between its hashes and its root, so that a proof reads nodes and
makes none. The last tile of each level is not whole, and in memory.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from functools import lru_cache

TILE = 256
HASH_BYTES = 32
TILE_BYTES = TILE * HASH_BYTES
_HEIGHT = 8  # of a tile
_KEPT = 64  # tiles in memory
EMPTY_ROOT = hashlib.sha256().digest()

Mark = tuple[int, list[list[list[bytes]]]]


def hash_leaf(content: bytes) -> bytes:
    """Return the hash of a leaf."""
    return hashlib.sha256(b"\x00" + content).digest()


def hash_node(left: bytes, right: bytes) -> bytes:
    """Return the hash of a node with two children."""
    return hashlib.sha256(b"\x01" + left + right).digest()


class Tree:
    """A tree that grows at its right edge.

    Parameters
    ----------
    store
        Keeps a whole tile: its level, its number in the level, and its hashes with the nodes above them.
    load
        Returns what was kept.

    Attributes
    ----------
    size
        How many leaves there are.
    """

    def __init__(self, store: Callable[[int, int, bytes], None], load: Callable[[int, int], bytes]) -> None:
        self.size = 0
        self._store = store
        self._load = lru_cache(_KEPT)(load)
        # The tiles that are not whole: by level, by height in the tile, their nodes.
        self._edge: list[list[list[bytes]]] = []

    def append(self, leaf: bytes) -> None:
        """Take in the hash of the next leaf."""
        self._push(0, leaf)
        self.size += 1

    def mark(self) -> Mark:
        """Return what `rewind` needs to come back to this size."""
        return self.size, [[list(row) for row in rows] for rows in self._edge]

    def rewind(self, mark: Mark) -> None:
        """Forget the leaves since a mark; tiles that were stored since are not there any more."""
        self.size, self._edge = mark

    def root(self, size: int | None = None) -> bytes:
        """Return the root of the first leaves; None: of all."""
        return self._root_of(0, self.size if size is None else size)

    def inclusion(self, index: int, size: int) -> list[bytes]:
        """Return the path from a leaf to the root of the first leaves (RFC 6962, 2.1.1)."""
        first, n, path = 0, size, []
        while n > 1:
            left = 1 << (n - 1).bit_length() - 1
            if index - first < left:
                path.append(self._root_of(first + left, n - left))
                n = left
            else:
                path.append(self._root_of(first, left))
                first, n = first + left, n - left
        return path[::-1]

    def consistency(self, old: int, new: int) -> list[bytes]:
        """Return what shows that the first `new` leaves go on from the first `old` ones (RFC 6962, 2.1.2)."""
        if old == 0:
            return []
        first, path, is_whole = 0, [], True
        while old != new:
            left = 1 << (new - 1).bit_length() - 1
            if old <= left:
                path.append(self._root_of(first + left, new - left))
                new = left
            else:
                path.append(self._root_of(first, left))
                first, old, new, is_whole = first + left, old - left, new - left, False
        if not is_whole:
            path.append(self._root_of(first, old))
        return path[::-1]

    def tile(self, level: int, number: int, width: int) -> bytes | None:
        """Return the first hashes of a tile; None when the tree has not so many there."""
        n_hashes = self.size >> _HEIGHT * level
        if not 0 < width <= TILE or number * TILE + width > n_hashes:
            return None
        if number < n_hashes >> _HEIGHT:
            return self._load(level, number)[: width * HASH_BYTES]
        return b"".join(self._edge[level][0][:width])

    def _push(self, level: int, node: bytes) -> None:
        if level == len(self._edge):
            self._edge.append(_empty_tile())
        rows, height = self._edge[level], 0
        rows[0].append(node)
        while height < _HEIGHT - 1 and len(rows[height]) % 2 == 0:
            rows[height + 1].append(hash_node(*rows[height][-2:]))
            height += 1
        if len(rows[0]) == TILE:
            self._store(level, self.size >> _HEIGHT * (level + 1), b"".join(b"".join(row) for row in rows))
            self._edge[level] = _empty_tile()
            self._push(level + 1, hash_node(*rows[-1]))

    def _root_of(self, first: int, n: int) -> bytes:
        """Return the root of some leaves that are a subtree, or at the right edge of one."""
        if n == 0:
            return EMPTY_ROOT
        peaks = []
        while n:
            height = n.bit_length() - 1
            peaks.append(self._node(height, first >> height))
            first, n = first + (1 << height), n - (1 << height)
        found = peaks.pop()
        while peaks:
            found = hash_node(peaks.pop(), found)
        return found

    def _node(self, height: int, index: int) -> bytes:
        """Return the root of a whole subtree."""
        level, row = divmod(height, _HEIGHT)
        number, place = divmod(index, TILE >> row)
        if number == self.size >> _HEIGHT * (level + 1):
            return self._edge[level][row][place]
        start = (2 * TILE - (2 * TILE >> row) + place) * HASH_BYTES
        return self._load(level, number)[start : start + HASH_BYTES]


def _empty_tile() -> list[list[bytes]]:
    return [[] for _ in range(_HEIGHT)]
