"""The state that requests see and mutations change: the model, and its place in its history."""

from __future__ import annotations

from dataclasses import dataclass, field

from app.model import ServedModel


@dataclass(slots=True)
class Pending:
    """An erasure that was acknowledged and is not finished: old files still hold what was unlearned.

    Attributes
    ----------
    seq
        Number of its journal record.
    since_ms
        When it was acknowledged, in the steady time of this process (`Clock.steady_ms`).
    is_inherited
        Whether an earlier process acknowledged it: nobody knows for sure how long ago, so it is due at once.
    """

    seq: int
    since_ms: int
    is_inherited: bool = False


@dataclass(slots=True)
class Live:
    """What is served now. It belongs to the event loop.

    Attributes
    ----------
    model
        Replaced as a whole by long mutations, restores and fits.
    version
        Of the samples, the parameters and the kind.
    epoch
        Names the order in which samples are listed.
    seq
        Number of the newest record of the journal.
    next_id
        Generated ids are at least this number.
    exports
        How many times a snapshot was handed out.
    pending
        Erasures that are not finished, by receipt.
    failed
        An error left the model or the disk in doubt: nothing is changed any more.
    """

    model: ServedModel
    version: int
    epoch: int
    seq: int = 0
    next_id: int = 0
    exports: int = 0
    pending: dict[str, Pending] = field(default_factory=dict)
    failed: bool = False
