r"""A tree over a set whose root is a function of the set, whatever its history: a commitment that proves absence, too.

    depth 0            root                     every leaf is at depth 48, at the place that its position says,
                      /    \                    the first bit decides first
    depth 1          a      b                   two children   SHA-256(0x01 | left | right)
                    / \      \                  a left one     SHA-256(0x02 | child)
    ...            c   d      e                 a right one    SHA-256(0x03 | child)
    depth 48       leaf                         SHA-256(0x00 | content)

No node is left out of the hashes: a leaf's sibling in a proof is the end of a chain, and tells nothing of who is there.
In memory only leaves and nodes with two children are kept, as in a radix tree. Positions must be made with a secret
key, so that the shape of a proof tells nothing either.

A change is mostly hashing the chain above its leaf. So hashes are kept where they are needed next: that of a node below
its parent, and that of a leaf at a middle depth, above which few of the chain are left.

A leaf has the position of a name under a key, and hashes of samples:

    position of an id       0, then 47 bits of HMAC-SHA256(key, "id" | 0x00 | id)
    position of a subject   1, then 47 bits of HMAC-SHA256(key, "subject" | 0x00 | subject)
    sample                  c = SHA-256(nonce | JSON of features, id, label, subject and, unless it is 1, weight, as RFC
                            8785 writes it)
    content of an id        c
    content of a subject    SHA-256(the c of all its samples, in order)

The nonce is random and is erased with the sample: without it no guess of the sample can be tested. Should two
names have one position, its content is SHA-256(the c of all their samples, in order).
"""

from __future__ import annotations

import hmac
import math
from array import array
from collections.abc import Iterable, Sequence
from decimal import Decimal
from hashlib import sha256
from sys import getsizeof
from typing import Any, Literal

import numpy as np
import orjson

from oubli.core.samples.set_tree import DEPTH, EMPTY_ROOT, HASH_BYTES, NONE, Bytes, Kept, hash_tree

_LEAF = b"\x00"
# Nodes are hashed by copies of these: beginning a hash takes longer than copying one that has begun.
_BOTH = sha256(b"\x01")
_ONE = (sha256(b"\x02"), sha256(b"\x03"))  # by the bit of the child
_SPARE = 5  # levels of the kept part of a leaf's chain below where most parents are
_FEWEST = 8


class SetTree:
    """A set of positions with a content of 32 bytes each.

    Parameters
    ----------
    n_expected
        Of how many positions, roughly: what is kept of chains depends on it, and the root does not.
    """

    def __init__(self, n_expected: int = 0) -> None:
        self._root = NONE  # a node from 0 on, or a leaf: the complement of its number
        self._root_hash = EMPTY_ROOT
        self._middle = min(max(n_expected.bit_length() + _SPARE, _FEWEST), DEPTH)
        # Of nodes with two children: where they branch, their children, and their hash below their parent.
        self._depths, self._left, self._right = bytearray(), array("i"), array("i")
        self._hashes = bytearray()
        # Of leaves: the position, the content, and the hash of the chain at the middle depth.
        self._positions, self._contents, self._chains = array("Q"), bytearray(), bytearray()
        self._free_nodes, self._free_leaves = array("i"), array("i")

    def __len__(self) -> int:
        return len(self._positions) - len(self._free_leaves)

    @property
    def nbytes(self) -> int:
        """Bytes of all arrays, unused capacity included."""
        numbers = (self._left, self._right, self._positions, self._free_nodes, self._free_leaves)
        hashes = (self._depths, self._hashes, self._contents, self._chains)
        return sum(map(getsizeof, (*numbers, *hashes)))

    def root(self) -> bytes:
        """Return the root."""
        return self._root_hash

    def get(self, position: int) -> bytes | None:
        """Return the content at a position; None when it is not in the set."""
        _, place = self._way_to(position)
        if place == NONE or self._positions[~place] != position:
            return None
        return _at(self._contents, ~place)

    def put(self, position: int, content: bytes) -> bool:
        """Add a position, or give it another content; whether it was added."""
        way, place = self._way_to(position)
        if place == NONE:
            leaf = self._new_leaf(position, content)
            self._root = ~leaf
            self._root_hash = self._leaf_at(leaf, 0)
            return True
        other = self._positions[~place]
        branch = DEPTH - (position ^ other).bit_length()
        if branch == DEPTH:
            self._fill_leaf(~place, position, content)
            self._rehash(way, position, place)
            return False
        # Nodes that branch further down are below the new one.
        while way and self._depths[way[-1]] > branch:
            place = way.pop()
        leaf = ~self._new_leaf(position, content)
        if place >= 0:
            # Its hash is kept below a parent that is not its own any more.
            _put(self._hashes, place, _lifted(self._node_hash(place), other, self._depths[place], branch + 1))
        node = self._new_node(branch, *((leaf, place) if _bit(position, branch) == 0 else (place, leaf)))
        self._replace(way[-1] if way else None, position, node)
        way.append(node)
        self._rehash(way, position, leaf)
        return True

    def remove(self, position: int) -> bool:
        """Remove a position, and overwrite what is kept of it; whether it was in the set."""
        way, place = self._way_to(position)
        if place == NONE or self._positions[~place] != position:
            return False
        self._fill_leaf(~place, 0, None)
        self._free_leaves.append(~place)
        if not way:
            self._root, self._root_hash = NONE, EMPTY_ROOT
            return True
        node = way.pop()
        depth = self._depths[node]
        sibling = (self._right, self._left)[_bit(position, depth)][node]
        top = self._depths[way[-1]] + 1 if way else 0
        if sibling >= 0:
            # What is above is the way to the position that goes, but for the last step.
            turned = position ^ 1 << DEPTH - 1 - depth
            _put(self._hashes, sibling, _lifted(_at(self._hashes, sibling), turned, depth + 1, top))
        _put(self._hashes, node, bytes(HASH_BYTES))
        self._left[node] = self._right[node] = self._depths[node] = 0
        self._free_nodes.append(node)
        self._replace(way[-1] if way else None, position, sibling)
        self._rehash(way, position, sibling)
        return True

    def fill(self, positions: Sequence[int], contents: bytes | bytearray) -> None:
        """Fill an empty tree, all nodes of a level at once.

        Other threads continue, but must not use this tree.

        Parameters
        ----------
        positions
            Ascending, each once.
        contents
            Of all of them, one behind the other.
        """
        if len(self):
            raise ValueError("the tree is not empty")
        n = len(positions)
        n_nodes = max(n - 1, 0)
        self._positions, self._contents = array("Q", positions), bytearray(contents)
        self._chains, self._hashes = bytearray(HASH_BYTES * n), bytearray(HASH_BYTES * n_nodes)
        self._depths, self._left, self._right = bytearray(n_nodes), _zeros(n_nodes), _zeros(n_nodes)
        self._free_nodes, self._free_leaves = array("i"), array("i")
        kept = Kept(
            _rows(self._chains),
            np.frombuffer(self._depths, np.uint8),
            np.frombuffer(self._left, np.int32),
            np.frombuffer(self._right, np.int32),
            _rows(self._hashes),
        )
        places = np.frombuffer(self._positions, np.uint64)
        self._root, self._root_hash = hash_tree(places, _rows(self._contents), self._middle, kept)

    def prove_absence(self, position: int) -> dict[int, bytes] | None:
        """Return a proof that a position is not in the set; None when it is.

        By depth, downwards, the hashes of the other children on the way to the position. The last is that of the node
        at which the way leaves the tree, which has no other child. There is none in an empty set.
        """
        way, place = self._way_to(position)
        if place == NONE:
            return {}
        other = self._positions[~place]
        branch = DEPTH - (position ^ other).bit_length()
        if branch == DEPTH:
            return None
        while way and self._depths[way[-1]] > branch:
            place = way.pop()
        others = {}
        for node in way:
            depth = self._depths[node]
            others[depth] = self._below((self._right, self._left)[_bit(position, depth)][node], depth + 1)
        if place < 0:
            others[branch] = self._leaf_at(~place, branch + 1)
        else:
            others[branch] = _lifted(self._node_hash(place), other, self._depths[place], branch + 1)
        return others

    def shred(self) -> None:
        """Overwrite all that is kept; the tree cannot be used any more."""
        for kept in (self._depths, self._hashes, self._contents, self._chains):
            kept[:] = bytes(len(kept))
        for numbers in (self._left, self._right, self._positions):
            numbers[:] = array(numbers.typecode, bytes(len(numbers) * numbers.itemsize))

    def _way_to(self, position: int) -> tuple[list[int], int]:
        """Return the nodes on the way to a position, and the leaf at its end, which may be another's."""
        way: list[int] = []
        place, depths, children = self._root, self._depths, (self._left, self._right)
        while place >= 0:
            way.append(place)
            place = children[position >> DEPTH - 1 - depths[place] & 1][place]
        return way, place

    def _below(self, place: int, depth: int) -> bytes:
        """Return the hash of a child at the depth below its parent."""
        return self._leaf_at(~place, depth) if place < 0 else _at(self._hashes, place)

    def _leaf_at(self, leaf: int, depth: int) -> bytes:
        """Return the hash of a leaf's chain at a depth."""
        position = self._positions[leaf]
        if depth <= self._middle:
            return _lifted(_at(self._chains, leaf), position, self._middle, depth)
        return _lifted(sha256(_LEAF + _at(self._contents, leaf)).digest(), position, DEPTH, depth)

    def _node_hash(self, node: int) -> bytes:
        """Return the hash of a node with two children, at its own depth."""
        below = self._depths[node] + 1
        return _hash_of(self._below(self._left[node], below), self._below(self._right[node], below))

    def _rehash(self, way: list[int], position: int, place: int) -> None:
        """Hash the nodes on the way to a position again, upwards; `place` is below the last and has its hash."""
        depths, left, right, hashes = self._depths, self._left, self._right, self._hashes
        depth = depths[way[-1]] if way else -1
        found = self._below(place, depth + 1)
        for index in range(len(way) - 1, -1, -1):
            node = way[index]
            is_right = position >> DEPTH - 1 - depth & 1
            other = left[node] if is_right else right[node]
            if other >= 0:
                beside: bytes | bytearray = hashes[other * HASH_BYTES : (other + 1) * HASH_BYTES]
            else:
                beside = self._leaf_at(~other, depth + 1)
            both = _BOTH.copy()  # as `_hash_of`, which most of the time of this loop would go to calling
            both.update(beside + found if is_right else found + beside)
            found = both.digest()
            above = depths[way[index - 1]] if index else -1
            if depth > above + 1:
                found = _lifted(found, position, depth, above + 1)
            hashes[node * HASH_BYTES : (node + 1) * HASH_BYTES] = found
            depth = above
        self._root_hash = found

    def _replace(self, parent: int | None, position: int, place: int) -> None:
        if parent is None:
            self._root = place
        else:
            (self._left, self._right)[_bit(position, self._depths[parent])][parent] = place

    def _new_leaf(self, position: int, content: bytes) -> int:
        if self._free_leaves:
            leaf = self._free_leaves.pop()
        else:
            leaf = len(self._positions)
            self._positions.append(0)
            self._contents += bytes(HASH_BYTES)
            self._chains += bytes(HASH_BYTES)
        self._fill_leaf(leaf, position, content)
        return leaf

    def _fill_leaf(self, leaf: int, position: int, content: bytes | None) -> None:
        """Say what a leaf holds; None overwrites it."""
        self._positions[leaf] = position
        _put(self._contents, leaf, content or bytes(HASH_BYTES))
        chain = bytes(HASH_BYTES)
        if content is not None:
            chain = _lifted(sha256(_LEAF + content).digest(), position, DEPTH, self._middle)
        _put(self._chains, leaf, chain)

    def _new_node(self, depth: int, left: int, right: int) -> int:
        if self._free_nodes:
            node = self._free_nodes.pop()
            self._depths[node], self._left[node], self._right[node] = depth, left, right
        else:
            node = len(self._depths)
            self._depths.append(depth)
            self._left.append(left)
            self._right.append(right)
            self._hashes += bytes(HASH_BYTES)
        return node


def _lifted(found: bytes, position: int, level: int, depth: int) -> bytes:
    """Return the hash of a chain with one child a level, from a level up to a depth, on the way to a position."""
    one, ahead = _ONE, position >> DEPTH - level
    for _ in range(level - depth):
        node = one[ahead & 1].copy()
        node.update(found)
        found = node.digest()
        ahead >>= 1
    return found


def _hash_of(left: bytes | bytearray, right: bytes | bytearray) -> bytes:
    """Return the hash of a node with two children."""
    node = _BOTH.copy()
    node.update(left + right)
    return node.digest()


def _zeros(n: int) -> array[int]:
    return array("i", bytes(n * array("i").itemsize))


def _rows(hashes: bytearray) -> Bytes:
    """Return hashes as an array of bytes, a row each; as long as it is there they cannot become more."""
    return np.frombuffer(hashes, np.uint8).reshape(-1, HASH_BYTES)


def _at(hashes: bytearray, number: int) -> bytes:
    return bytes(hashes[number * HASH_BYTES : (number + 1) * HASH_BYTES])


def _put(hashes: bytearray, number: int, value: bytes) -> None:
    hashes[number * HASH_BYTES : (number + 1) * HASH_BYTES] = value


def _bit(position: int, depth: int) -> int:
    return position >> DEPTH - 1 - depth & 1


Name = tuple[Literal["id", "subject"], str]
_NAMESPACES = {"id": 0, "subject": 1 << DEPTH - 1}
_IN_NAMESPACE = (1 << DEPTH - 1) - 1
_POSITION_BYTES = DEPTH // 8
_COMMITMENT = b"oubli positions key commitment\0"
# Numbers between these are written by orjson as RFC 8785 does, if they are not whole.
_SMALL, _LARGE = 1e-4, 1e16


def commitment_of(secret: bytes) -> str:
    """Return what may be told of the key of positions: a hash that no other key has."""
    return sha256(_COMMITMENT + secret).hexdigest()


class Positions:
    """Where names are in the tree.

    Parameters
    ----------
    secret
        The key of positions.
    """

    def __init__(self, secret: bytes) -> None:
        self._keyed = hmac.new(secret, digestmod="sha256")  # a copy of it takes half as long as a new one

    def of(self, name: Name) -> int:
        """Return the position of a name."""
        namespace, text = name
        code = self._keyed.copy()
        code.update(namespace.encode("ascii") + b"\0" + text.encode("utf-8"))
        return int.from_bytes(code.digest()[:_POSITION_BYTES], "big") & _IN_NAMESPACE | _NAMESPACES[namespace]


def in_order(names: Iterable[str]) -> list[str]:
    """Return the names of features in the order in which RFC 8785 writes them: by their UTF-16 units."""
    return sorted(names, key=lambda name: name.encode("utf-16-be"))


def hash_of_sample(
    nonce: bytes, sample_id: str, subject: str | None, features: dict[str, Any], label: Any, weight: float = 1
) -> bytes:
    """Return the hash of a sample.

    Parameters
    ----------
    nonce
        16 bytes.
    sample_id, subject
        Its id, and whom it belongs to.
    features
        By name, `in_order`, as answers show them.
    label
        As answers show it.
    weight
        Its weight; 1 is not hashed.
    """
    # In order.
    content = {"features": features, "id": sample_id, "label": label, "subject": subject}
    if weight != 1:
        content["weight"] = as_written(weight)
    return sha256(nonce + orjson.dumps(content)).digest()


def content_of(hashes: Sequence[bytes]) -> bytes:
    """Return the content of a position that several samples have: those of a subject, or of names that share it."""
    return sha256(b"".join(sorted(hashes))).digest()


def as_written(value: Any) -> Any:
    """Return a value of a sample so that orjson writes it as RFC 8785 does."""
    if type(value) is not float:
        return value
    if value.is_integer() and abs(value) < _LARGE:
        return int(value)
    if _SMALL <= abs(value) < _LARGE:
        return value
    return orjson.Fragment(_number(value))


def _number(value: float) -> str:
    """Return a number as ECMAScript writes it (Number::toString)."""
    if not math.isfinite(value):
        raise ValueError
    sign, digits, exponent = Decimal(repr(value)).normalize().as_tuple()
    text, n = "".join(map(str, digits)), len(digits) + int(exponent)
    if 0 < n <= 21:
        text = text.ljust(n, "0") if len(text) <= n else f"{text[:n]}.{text[n:]}"
    elif -6 < n <= 0:
        text = f"0.{'0' * -n}{text}"
    else:
        first, rest = text[0], text[1:]
        text = f"{first}{'.' if rest else ''}{rest}e{'+' if n > 0 else '-'}{abs(n - 1)}"
    return "-" * sign + text
