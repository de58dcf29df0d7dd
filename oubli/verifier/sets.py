"""Proofs that something is in a committed set, or that it is not: a way of 64 steps through a tree of hashes."""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import sha256

from oubli.verifier.merkle import EMPTY_ROOT, HASH_BYTES, ProofError

DEPTH = 64


def check_way(root: bytes, position: int, end: int, last: bytes | None, siblings: Mapping[int, bytes]) -> bool:
    """Check the way to a position; return whether the position is in the set.

    Parameters
    ----------
    root
        Of the set.
    position
        64 bits.
    end
        `DEPTH`: the position is in the set. A smaller depth: there the way leaves the tree.
    last
        Hash of the leaf, or of the other child where the way ends; None says that the set is empty.
    siblings
        By depth, the hashes of the other children on the way.

    Raises
    ------
    ProofError
        When the way does not lead to the root.
    """
    if last is None:
        if root != EMPTY_ROOT or siblings or end != 0:
            raise ProofError
        return False
    if not 0 <= end <= DEPTH or not all(0 <= depth < end for depth in siblings):
        raise ProofError
    if any(len(one) != HASH_BYTES for one in (last, *siblings.values())):
        raise ProofError
    found = last
    if end < DEPTH:  # a node with the other child alone
        found = _one(1 - _bit(position, end), last)
    for depth in reversed(range(end)):
        bit = _bit(position, depth)
        other = siblings.get(depth)
        if other is None:
            found = _one(bit, found)
        else:
            found = sha256(b"\x01" + (found + other if bit == 0 else other + found)).digest()
    if found != root:
        raise ProofError
    return end == DEPTH


def _one(bit: int, child: bytes) -> bytes:
    return sha256((b"\x02", b"\x03")[bit] + child).digest()


def _bit(position: int, depth: int) -> int:
    return position >> DEPTH - 1 - depth & 1
