"""Nonces of samples: drawn with an addition or a rectification, kept in its record, given to those that have none."""

from __future__ import annotations

import base64
import os
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from oubli.core.samples.nonces import NONCE_BYTES

if TYPE_CHECKING:
    from oubli.core.samples.store import SampleStore


def new_nonces(n: int) -> str:
    """Draw nonces for so many samples; in base64, one behind the other."""
    return base64.b64encode(os.urandom(NONCE_BYTES * n)).decode("ascii")


def note_nonces(store: SampleStore, ids: Sequence[str], nonces: str) -> None:
    """Keep nonces with samples; those that have left a sliding window again are passed over."""
    raw = base64.b64decode(nonces)
    held = [row for row, name in enumerate(ids) if store.contains(name)]
    if len(held) < len(ids):
        raw = np.frombuffer(raw, np.uint8).reshape(-1, NONCE_BYTES)[held].tobytes()
        ids = [ids[row] for row in held]
    store.note_nonces(ids, raw)


def give_nonces(store: SampleStore) -> int:
    """Give nonces to all samples that have none, restricted or not; return to how many.

    Those are samples of a data file, and of files and journals of earlier versions.
    """
    without = np.setdiff1d(store.slots(), store.nonces.slots(), assume_unique=True)
    if len(without):
        store.nonces.reserve(int(without.max()) + 1)
        with store.changes:
            store.nonces.note(without, os.urandom(NONCE_BYTES * len(without)))
    return len(without) + (give_nonces(store.restricted.samples) if len(store.restricted) else 0)
