"""Proofs of absence as answers."""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING, Any

from oubli.core.set_tree import DEPTH

if TYPE_CHECKING:
    from oubli.app.service.sample_set import AbsenceProof

_POSITION_BYTES = DEPTH // 8


def absence_content(found: AbsenceProof, told: str | None = None) -> dict[str, Any]:
    """Return a proof that a name is not in the set; `oubli proof check` reads it.

    The root is not in it: that is what the hashes lead to.

    Parameters
    ----------
    found
        The proof.
    told
        Proof that the log tells of this state; None where it does not.
    """
    return {
        "format": "oubli-absence-proof@v1",
        "by": found.by,
        "name": found.name,
        "model_version": found.state.model_version,
        "way": base64.b64encode(_way(found)).decode("ascii"),
        "state": told,
    }


def _way(found: AbsenceProof) -> bytes:
    """Return the position, a bit for each depth with another child on the way, and the hashes of these."""
    marked = sum(1 << DEPTH - 1 - depth for depth in found.others)
    numbers = (number.to_bytes(_POSITION_BYTES, "big") for number in (found.position, marked))
    return b"".join((*numbers, *found.others.values()))
