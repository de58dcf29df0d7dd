"""A downloaded ledger against a checkpoint that somebody kept: nothing up to it was altered, dropped or put in."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from typing import Any

from oubli.verifier.canonical import canonical
from oubli.verifier.checkpoints import Checkpoint, check_checkpoint
from oubli.verifier.errors import FailedError
from oubli.verifier.merkle import Frontier, hash_leaf
from oubli.verifier.policies import Policy

# What is delivered beside an entry, and not hashed.
_BESIDE = frozenset({"hash", "keyed"})


def check_since(entries: Iterable[Any], checkpoint: Checkpoint, policy: Policy | None = None) -> int:
    """Check that a ledger goes on from a checkpoint; return how many entries it has.

    Parameters
    ----------
    entries
        From the first one on.
    checkpoint
        That was kept.
    policy
        Whom to trust; None: the checkpoint is trusted as it is, because it was kept in a safe place.

    Raises
    ------
    FailedError
        When it does not, or the checkpoint is not that of a log that is trusted.
    """
    if policy is not None:
        check_checkpoint(checkpoint, policy)
    frontier = Frontier()
    root = frontier.root() if checkpoint.size == 0 else None
    for entry in entries:
        body = _body(entry, frontier.size + 1)
        frontier.add(hash_leaf(body))
        if frontier.size == checkpoint.size:
            root = frontier.root()
    if root is None:
        raise FailedError(
            "truncated",
            f"the ledger has {frontier.size} entries, and the checkpoint was signed over {checkpoint.size}: entries "
            "were cut off, or the download is older than the checkpoint",
        )
    if root != checkpoint.root:
        raise FailedError(
            "rewritten",
            f"the first {checkpoint.size} entries are others than those that the checkpoint was signed over",
        )
    return frontier.size


def _body(entry: Any, index: int) -> bytes:
    """Return what an entry's hash and its leaf are made of: JSON in the form of RFC 8785."""
    if not isinstance(entry, dict) or entry.get("index") != index:
        raise FailedError("entry", f"entry {index} is missing, or is not in its place")
    content = {name: value for name, value in entry.items() if name not in _BESIDE}
    try:
        body = canonical(content)
    except ValueError:
        raise FailedError("entry", f"entry {index} holds what no entry may hold") from None
    if hashlib.sha256(body).hexdigest() != entry.get("hash"):
        raise FailedError("entry", f"entry {index} was changed: its hash is not that of its content")
    return body
