"""Merkle trees written down as RFC 6962 defines them: by recursion over the list of leaves (section 2.1)."""

import hashlib
from collections.abc import Sequence


def split(n: int) -> int:
    """The largest power of two below n."""
    k = 1
    while 2 * k < n:
        k *= 2
    return k


def mth(entries: Sequence[bytes]) -> bytes:
    """Merkle Tree Hash of a list of entries."""
    if not entries:
        return hashlib.sha256(b"").digest()
    if len(entries) == 1:
        return hashlib.sha256(b"\x00" + entries[0]).digest()
    k = split(len(entries))
    return hashlib.sha256(b"\x01" + mth(entries[:k]) + mth(entries[k:])).digest()


def path(m: int, entries: Sequence[bytes]) -> list[bytes]:
    """The audit path of entry m."""
    if len(entries) == 1:
        return []
    k = split(len(entries))
    if m < k:
        return [*path(m, entries[:k]), mth(entries[k:])]
    return [*path(m - k, entries[k:]), mth(entries[:k])]


def proof(m: int, entries: Sequence[bytes]) -> list[bytes]:
    """The consistency proof from the first m entries to all."""
    return subproof(m, entries, whole=True) if m else []


def subproof(m: int, entries: Sequence[bytes], *, whole: bool) -> list[bytes]:
    if m == len(entries):
        return [] if whole else [mth(entries)]
    k = split(len(entries))
    if m <= k:
        return [*subproof(m, entries[:k], whole=whole), mth(entries[k:])]
    return [*subproof(m - k, entries[k:], whole=False), mth(entries[:k])]
