"""Proofs of absence as answers."""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING, Any

from oubli.app.ledger.set_tree import DEPTH

if TYPE_CHECKING:
    from oubli.app.service.sample_set import NameProof


def absence_content(found: NameProof, commitment: str, told: str | None = None) -> dict[str, Any]:
    """Return a proof that a name is not in the set; `oubli proof check` reads it.

    Parameters
    ----------
    found
        The proof.
    commitment
        To the key that positions are made with.
    told
        Proof that the log tells of this state; None where it does not.
    """
    state, proof = found.state, found.proof
    depths = sorted(proof.siblings)
    return {
        "format": "oubli-absence-proof@v1",
        "by": found.by,
        "name": found.name,
        "model_version": state.model_version,
        "n_samples": state.n_samples,
        "root": state.root.hex(),
        "positions_key": commitment,
        "position": _bits_text(found.position),
        "end": proof.end,
        "last": None if proof.last is None else _base64(proof.last),
        "depths": _bits_text(sum(1 << DEPTH - 1 - depth for depth in depths)),
        "siblings": _base64(b"".join(proof.siblings[depth] for depth in depths)),
        "state": told,
    }


def _bits_text(bits: int) -> str:
    return f"{bits:0{DEPTH // 4}x}"


def _base64(raw: bytes) -> str:
    return base64.b64encode(raw).decode("ascii")
