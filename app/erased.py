"""Which ids were erased or rectified since the server started, without knowing them.

A restore must not bring back what was erased after the snapshot was written. What is kept for that is a keyed hash of
each id, 8 bytes with a key that lives as long as the process, and the model version of its erasure: 17 bytes each in
three arrays, and nothing that could be turned into an id again. A hash that collides (1 in 2**64 for each pair) drops a
sample too many, never one too few.
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Iterable, Sequence

import numpy as np
import numpy.typing as npt

ERASED = 0
RECTIFIED = 1


class ErasedIds:
    """An append-only set of (keyed hash of an id, model version, erased or rectified)."""

    def __init__(self) -> None:
        self._key = secrets.token_bytes(32)
        self._hashes = np.zeros(64, dtype=np.uint64)
        self._versions = np.zeros(64, dtype=np.int64)
        self._kinds = np.zeros(64, dtype=np.uint8)
        self._n = 0

    def __len__(self) -> int:
        return self._n

    def add(self, ids: Sequence[str], model_version: int, kind: int) -> None:
        """Note that ids were erased or rectified by the mutation that led to a model version."""
        end = self._n + len(ids)
        if end > len(self._hashes):
            self._grow(end)
        self._hashes[self._n : end] = self._hash(ids)
        self._versions[self._n : end] = model_version
        self._kinds[self._n : end] = kind
        self._n = end

    def since(self, ids: Sequence[str], model_version: int) -> tuple[list[str], int]:
        """Return those of `ids` that were erased or rectified after a version, and how many of them were rectified.

        An id that was both counts as erased.
        """
        later = self._versions[: self._n] > model_version
        kinds = self._kinds[: self._n][later]
        hashes = self._hashes[: self._n][later]
        asked = self._hash(ids)
        erased = np.isin(asked, hashes[kinds == ERASED])
        rectified = np.isin(asked, hashes[kinds == RECTIFIED]) & ~erased
        gone = erased | rectified
        return [name for name, is_gone in zip(ids, gone.tolist(), strict=True) if is_gone], int(rectified.sum())

    def _hash(self, ids: Iterable[str]) -> npt.NDArray[np.uint64]:
        key = self._key
        digests = (hashlib.blake2b(i.encode("utf-8"), digest_size=8, key=key).digest() for i in ids)
        return np.frombuffer(b"".join(digests), dtype="<u8").astype(np.uint64)

    def _grow(self, needed: int) -> None:
        size = max(needed, 2 * len(self._hashes))
        self._hashes = np.resize(self._hashes, size)
        self._versions = np.resize(self._versions, size)
        self._kinds = np.resize(self._kinds, size)
