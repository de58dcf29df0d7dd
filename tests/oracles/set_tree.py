"""The root of a set as it is defined: by recursion over all depths, nothing kept and nothing left out."""

import hashlib
from collections.abc import Mapping

DEPTH = 48


def root(contents: Mapping[int, bytes]) -> bytes:
    """The root of positions with a content each."""
    return at_depth(0, dict(contents)) if contents else hashlib.sha256(b"").digest()


def at_depth(depth: int, contents: dict[int, bytes]) -> bytes:
    if depth == DEPTH:
        (content,) = contents.values()
        return hashlib.sha256(b"\x00" + content).digest()
    sides: tuple[dict[int, bytes], dict[int, bytes]] = ({}, {})
    for position, content in contents.items():
        sides[position >> (DEPTH - 1 - depth) & 1][position] = content
    left, right = sides
    if not right:
        return hashlib.sha256(b"\x02" + at_depth(depth + 1, left)).digest()
    if not left:
        return hashlib.sha256(b"\x03" + at_depth(depth + 1, right)).digest()
    return hashlib.sha256(b"\x01" + at_depth(depth + 1, left) + at_depth(depth + 1, right)).digest()


def together(hashes: list[bytes]) -> bytes:
    """The content of a subject with samples of these hashes."""
    return hashlib.sha256(b"".join(sorted(hashes))).digest()
