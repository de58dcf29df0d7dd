"""The root of a set as it is defined: by recursion over all depths, nothing kept and nothing left out."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping

DEPTH = 64


def root(leaves: Mapping[int, bytes]) -> bytes:
    """The root of positions with a hash each."""
    return at_depth(0, dict(leaves)) if leaves else hashlib.sha256(b"").digest()


def at_depth(depth: int, leaves: dict[int, bytes]) -> bytes:
    if depth == DEPTH:
        (leaf,) = leaves.values()
        return leaf
    sides: tuple[dict[int, bytes], dict[int, bytes]] = ({}, {})
    for position, leaf in leaves.items():
        sides[position >> (DEPTH - 1 - depth) & 1][position] = leaf
    left, right = sides
    if not right:
        return hashlib.sha256(b"\x02" + at_depth(depth + 1, left)).digest()
    if not left:
        return hashlib.sha256(b"\x03" + at_depth(depth + 1, right)).digest()
    return hashlib.sha256(b"\x01" + at_depth(depth + 1, left) + at_depth(depth + 1, right)).digest()
