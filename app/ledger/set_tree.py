r"""A tree over a set whose root is a function of the set, whatever its history: a commitment that proves absence, too.

    depth 0            root                     every leaf is at depth 64, at the place that its position says,
                      /    \\                    the first bit decides first
    depth 1          a      b                   two children   SHA-256(0x01 | left | right)
                    / \\      \\                  a left one     SHA-256(0x02 | child)
    ...            c   d      e                 a right one    SHA-256(0x03 | child)

No node is left out of the hashes: a leaf's sibling in a proof is the end of a chain, and tells nothing of who is there.
In memory only leaves and nodes with two children are kept, as in a radix tree. Positions must be made with a secret
key, so that the shape of a proof tells nothing either.
"""

from __future__ import annotations

from array import array
from hashlib import sha256
from typing import NamedTuple

DEPTH = 64
HASH_BYTES = 32
EMPTY_ROOT = sha256().digest()
_NONE = -(2**31)
_BOTH = b"\x01"
_ONE = (b"\x02", b"\x03")  # by the bit of the child


class SetProof(NamedTuple):
    """That a position is in the set, or that it is not.

    Attributes
    ----------
    end
        `DEPTH` when the position is in the set; otherwise the depth at which its way leaves the tree.
    last
        Hash of the leaf; otherwise of the other child of the node where the way ends. None: the set is empty.
    siblings
        By depth, the hashes of the other children on the way; where there are none the node has one child.
    """

    end: int
    last: bytes | None
    siblings: dict[int, bytes]


class SetTree:
    """A set of positions with a hash each; a change takes as many steps as there are nodes with two children above."""

    def __init__(self) -> None:
        self._root = _NONE  # a node from 0 on, or a leaf: the complement of its number
        # Of nodes with two children: where they branch, the way to them, their children and hashes.
        self._depths, self._ways = bytearray(), array("Q")
        self._children, self._hashes = (array("i"), array("i")), bytearray()
        self._positions, self._leaves = array("Q"), bytearray()
        self._free_nodes, self._free_leaves = array("i"), array("i")

    def __len__(self) -> int:
        return len(self._positions) - len(self._free_leaves)

    @property
    def nbytes(self) -> int:
        """Bytes of all arrays."""
        arrays = (self._ways, *self._children, self._positions, self._free_nodes, self._free_leaves)
        return sum(len(one) * one.itemsize for one in arrays) + sum(
            map(len, (self._depths, self._hashes, self._leaves))
        )

    def root(self) -> bytes:
        """Return the root."""
        return EMPTY_ROOT if self._root == _NONE else self._lifted(self._root, 0)

    def put(self, position: int, leaf: bytes) -> None:
        """Add a position, or give it another hash."""
        way, place = self._way_to(position)
        if place == _NONE:
            self._root = ~self._new_leaf(position, leaf)
            return
        branch = _first_difference(position, self._position_of(place))
        if branch == DEPTH:
            self._set(self._leaves, ~place, leaf)
        else:
            # Nodes that branch further down are below the new one.
            while way and self._depths[way[-1]] > branch:
                place = way.pop()
            node = self._new_node(branch, position, place, ~self._new_leaf(position, leaf))
            self._replace(way[-1] if way else None, position, node)
            way.append(node)
        self._rehash(way)

    def remove(self, position: int) -> None:
        """Remove a position, and overwrite its hash.

        Raises
        ------
        KeyError
            When it is not in the set.
        """
        way, place = self._way_to(position)
        if place == _NONE or self._positions[~place] != position:
            raise KeyError(position)
        self._set(self._leaves, ~place, bytes(HASH_BYTES))
        self._positions[~place] = 0
        self._free_leaves.append(~place)
        if not way:
            self._root = _NONE
            return
        node = way.pop()
        sibling = self._children[1 - _bit(position, self._depths[node])][node]
        self._set(self._hashes, node, bytes(HASH_BYTES))
        self._ways[node] = 0
        self._free_nodes.append(node)
        self._replace(way[-1] if way else None, position, sibling)
        self._rehash(way)

    def prove(self, position: int) -> SetProof:
        """Return a proof that a position is in the set, or that it is not."""
        way, place = self._way_to(position)
        if place == _NONE:
            return SetProof(0, None, {})
        branch = _first_difference(position, self._position_of(place))
        while way and self._depths[way[-1]] > branch:
            place = way.pop()
        siblings = {}
        for node in way:
            depth = self._depths[node]
            other = self._children[1 - _bit(position, depth)][node]
            siblings[depth] = self._lifted(other, depth + 1)
        return SetProof(branch, self._lifted(place, min(branch + 1, DEPTH)), siblings)

    def _way_to(self, position: int) -> tuple[list[int], int]:
        """Return the nodes on the way to a position, and the leaf at its end, which may be another's."""
        way, place = [], self._root
        while place >= 0:
            way.append(place)
            place = self._children[_bit(position, self._depths[place])][place]
        return way, place

    def _position_of(self, place: int) -> int:
        return self._positions[~place] if place < 0 else self._ways[place]

    def _lifted(self, place: int, depth: int) -> bytes:
        """Return the hash of the node at a depth on the way to a leaf or node, below which nothing else is."""
        if place < 0:
            start, level = ~place * HASH_BYTES, DEPTH
            found, position = bytes(self._leaves[start : start + HASH_BYTES]), self._positions[~place]
        else:
            start, level = place * HASH_BYTES, self._depths[place]
            found, position = bytes(self._hashes[start : start + HASH_BYTES]), self._ways[place]
        while level > depth:
            level -= 1
            found = sha256(_ONE[position >> DEPTH - 1 - level & 1] + found).digest()
        return found

    def _rehash(self, way: list[int]) -> None:
        left, right = self._children
        for node in reversed(way):
            below = self._depths[node] + 1
            made = sha256(_BOTH + self._lifted(left[node], below) + self._lifted(right[node], below)).digest()
            self._set(self._hashes, node, made)

    def _replace(self, parent: int | None, position: int, place: int) -> None:
        if parent is None:
            self._root = place
        else:
            self._children[_bit(position, self._depths[parent])][parent] = place

    def _new_leaf(self, position: int, leaf: bytes) -> int:
        if self._free_leaves:
            number = self._free_leaves.pop()
            self._positions[number] = position
        else:
            number = len(self._positions)
            self._positions.append(position)
            self._leaves += leaf
        self._set(self._leaves, number, leaf)
        return number

    def _new_node(self, depth: int, position: int, place: int, leaf: int) -> int:
        children = (leaf, place) if _bit(position, depth) == 0 else (place, leaf)
        # Nothing of the position is kept but the way that all below share.
        way = position & ~((1 << DEPTH - depth) - 1)
        if self._free_nodes:
            node = self._free_nodes.pop()
            self._depths[node], self._ways[node] = depth, way
            for array_, child in zip(self._children, children, strict=True):
                array_[node] = child
        else:
            node = len(self._depths)
            self._depths.append(depth)
            self._ways.append(way)
            for array_, child in zip(self._children, children, strict=True):
                array_.append(child)
            self._hashes += bytes(HASH_BYTES)
        return node

    @staticmethod
    def _set(hashes: bytearray, number: int, value: bytes) -> None:
        hashes[number * HASH_BYTES : (number + 1) * HASH_BYTES] = value


def _bit(position: int, depth: int) -> int:
    return position >> DEPTH - 1 - depth & 1


def _first_difference(position: int, other: int) -> int:
    """Return the first depth at which two ways part; `DEPTH` when they are one."""
    return DEPTH - (position ^ other).bit_length()
