"""The root over the samples of an export, in a fraction of the time that `oubli.verifier` takes for it.

It is made as a server makes it: samples become JSON in C, and a kernel hashes the tree. `oubli.verifier.set_root` needs
nothing but hashlib and shares no code with a server: for whoever does not trust this one, and for whatever a server
does not write.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from hashlib import sha256
from itertools import chain
from typing import Any

import orjson

from oubli import verifier
from oubli.app.ledger.set_leaves import Positions, as_written, content_of, in_order
from oubli.app.ledger.set_tree import SetTree

FEW = 2_000  # samples for which the kernel is not worth loading
_NONCES = re.compile(r"(?:[0-9a-f]{32})*")
_NONCE_DIGITS, _NONCE_BYTES = 32, 16
_WRITTEN_ALIKE = frozenset({str, int, bool, type(None)})  # by orjson and by RFC 8785


class _UnusualError(Exception):
    """The samples are not as a server writes them."""


def set_root(samples: Sequence[Any], positions_key: bytes) -> bytes:
    """Return what `oubli.verifier.set_root` returns, or raise what that raises; other threads go on meanwhile.

    Parameters
    ----------
    samples
        As `GET /samples?openings=true` lists them.
    positions_key
        The key of positions.
    """
    if len(samples) <= FEW:
        return verifier.set_root(samples, positions_key)
    try:
        leaves = _leaves(samples, positions_key)
    except (_UnusualError, AttributeError, KeyError, TypeError, ValueError):
        return verifier.set_root(samples, positions_key)
    tree, positions = SetTree(len(leaves)), sorted(leaves)
    tree.fill(positions, b"".join(map(leaves.__getitem__, positions)))
    return tree.root()


def _leaves(samples: Sequence[Any], key: bytes) -> dict[int, bytes]:
    """Return the contents of leaves by position."""
    if any(one.get("restricted_at") is not None for one in samples):
        raise _UnusualError
    hashes = dict(zip((one["id"] for one in samples), _hashes(samples), strict=True))
    if len(hashes) < len(samples):
        raise _UnusualError
    of_subjects: dict[str, list[bytes]] = {}
    for one in samples:
        if one["subject"] is not None:
            of_subjects.setdefault(one["subject"], []).append(hashes[one["id"]])
    places = Positions(key)
    leaves = {places.of(("id", name)): content for name, content in hashes.items()}
    subjects = {places.of(("subject", name)): content_of(ones) for name, ones in of_subjects.items()}
    if len(leaves) < len(hashes) or len(subjects) < len(of_subjects):  # names that share a position
        raise _UnusualError
    return leaves | subjects


def _hashes(samples: Sequence[Any]) -> list[bytes]:
    """Return the hashes of samples."""
    nonces = _raw_nonces([one["nonce"] for one in samples])
    rows = _features(samples)
    labels = [one["label"] for one in samples]
    if not {*map(type, labels)} <= _WRITTEN_ALIKE | {float}:
        raise _UnusualError
    return [
        sha256(
            nonces[_NONCE_BYTES * i : _NONCE_BYTES * (i + 1)]
            + orjson.dumps(
                {"features": rows[i], "id": one["id"], "label": as_written(labels[i]), "subject": one["subject"]},
                option=orjson.OPT_SORT_KEYS,
            )
        ).digest()
        for i, one in enumerate(samples)
    ]


def _raw_nonces(nonces: Sequence[str]) -> bytes:
    text = "".join(nonces)
    if not _NONCES.fullmatch(text) or {*map(len, nonces)} != {_NONCE_DIGITS}:
        raise _UnusualError
    return bytes.fromhex(text)


def _features(samples: Sequence[Any]) -> list[dict[str, Any]]:
    """Return the features of samples so that orjson writes them as RFC 8785 does."""
    rows: list[dict[str, Any]] = [one["features"] for one in samples]
    names = {*chain.from_iterable(rows)}
    types = {*map(type, chain.from_iterable(map(dict.values, rows)))}
    if sorted(names) != in_order(names) or not types <= _WRITTEN_ALIKE | {float}:
        raise _UnusualError
    if float in types:
        rows = [{name: as_written(value) for name, value in row.items()} for row in rows]
    return rows
