"""The state that requests see and mutations change: the model, and its place in its history."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from oubli.app.errors import NotLeaderError, StopReason, UnavailableError

if TYPE_CHECKING:
    from oubli.app.ledger.database import PendingErasure
    from oubli.app.times import Clock
    from oubli.core.model import Model

Names = AbstractSet[tuple[str, str]]
"""Kinds (`id` or `subject`) and texts."""


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
    period
        In which it was acknowledged; see `oubli.app.service.holders`.
    """

    seq: int
    since_ms: int
    is_inherited: bool = False
    period: int = 0


@dataclass(slots=True)
class ModelState:
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
    period
        How many times the freed memory of the model was overwritten; see `oubli.app.service.holders`.
    n_resolved
        How many tags were resolved since the start.
    halted
        Why nothing is changed until a restart: an error left the model or the disk in doubt. None when none did.
    hindered
        Why the last change could not be written, although the disk and the model are sound. None when it could.
    following
        Whether another node leads, so that nothing is changed here but by its records.
    leader_url
        Where that node is reached, as far as this one knows.
    is_withdrawn
        Whether nothing is answered from the model, which is not the leader's.
    deposed
        Called when a change was refused because another node leads by now.
    listeners
        Told of each change of the model; see `tell`.
    """

    model: Model
    version: int
    epoch: int
    seq: int = 0
    next_id: int = 0
    exports: int = 0
    pending: dict[str, Pending] = field(default_factory=dict)
    period: int = 0
    n_resolved: int = 0
    halted: StopReason | None = None
    hindered: StopReason | None = None
    following: bool = False
    leader_url: str | None = None
    is_withdrawn: bool = False
    deposed: Callable[[], object] = field(default=lambda: None, repr=False)
    listeners: list[Callable[[Names | None], object]] = field(default_factory=list, repr=False)

    @property
    def stopped(self) -> StopReason | None:
        """Why nothing is changed at present; None when changes are taken."""
        return self.halted or self.hindered

    @property
    def failed(self) -> bool:
        """Whether nothing is changed until a restart."""
        return self.halted is not None

    def count_resolved(self, n_tags: int) -> None:
        """Note that tags were resolved."""
        self.n_resolved += n_tags

    def count_export(self) -> None:
        """Note that a snapshot is handed out."""
        self.exports += 1

    def tell(self, names: Names | None) -> None:
        """Tell those who follow the model that it has changed, after the change was answered.

        Parameters
        ----------
        names
            Of what has changed at least; None: another model has taken the place of this one.
        """
        for listener in self.listeners:
            listener(names)

    def halt(self, reason: StopReason) -> None:
        """Change nothing until a restart; the first reason stays."""
        self.halted = self.halted or reason

    def require_leading(self) -> None:
        """Refuse what only the node that leads may do; raises `NotLeaderError`."""
        if self.following:
            raise NotLeaderError(self.leader_url)

    def require_changeable(self) -> None:
        """Refuse a change; raises `NotLeaderError`, or `UnavailableError` when nothing is changed until a restart."""
        self.require_leading()
        if self.halted is not None:
            raise UnavailableError("failed")

    def depose(self) -> None:
        """Note that another node leads by now: nothing is changed here any more."""
        if not self.following:
            self.following, self.leader_url = True, None
            self.deposed()


def new_epoch() -> int:
    """Name an order of samples; cursors of another order are refused."""
    return secrets.randbits(48)


def inherited(erasure: PendingErasure, clock: Clock) -> Pending:
    """Return an erasure that an earlier process has not finished; it has waited for as long as any clock says."""
    at_ms = erasure.acknowledged_ms
    return Pending(erasure.seq, min(clock.steady_since(at_ms), clock.steady_since_wall(at_ms)), is_inherited=True)
