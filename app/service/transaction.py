"""One commit: the changes that are written to the journal and made together."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from oubli.app.ledger.ledger import Head
from oubli.app.ledger.notes import with_idempotency
from oubli.app.ledger.receipts import Receipt
from oubli.app.service.commands import Change, Done, Settle
from oubli.app.service.idempotency import Claim
from oubli.app.service.plans import Plan
from oubli.app.storage.journal import Record
from oubli.app.storage.records import AddBody

log = logging.getLogger("oubli.service")


@dataclass(slots=True)
class Waiting:
    """A change that waits, and whom to tell."""

    change: Change[Any]
    settle: Settle[Any]

    def tell(self, done: Done[Any] | None, error: BaseException | None) -> None:
        """Tell the outcome; a mistake in an answer must not keep the others from theirs."""
        try:
            self.settle(done, error)
        except Exception as mistake:
            log.error("an answer could not be made (%s)", type(mistake).__name__)


@dataclass(slots=True)
class Made:
    """A change that is being committed."""

    waiting: Waiting
    plan: Plan[Any]
    version: int
    receipt: Receipt | None
    hashes: Sequence[str]  # of the samples that the receipt is about


@dataclass(slots=True)
class Commit:
    """Changes that are committed together; or one that was planned first and turned out to be long."""

    head: Head
    made: list[Made] = field(default_factory=list)
    long: Plan[Any] | None = None
    n_items: int = 0
    n_changes: int = 0
    n_added: int = 0
    next_id: int = 0
    records: list[Record] = field(default_factory=list)
    names: set[tuple[str, str]] = field(default_factory=set)
    seconds: float = 0.0


def with_claim(
    claim: Claim, notes: bytes, plan: Plan[Any], receipt: Receipt | None, *, version: int, n_samples: int, now_ms: int
) -> bytes:
    """Return notes with what a repeated request is known by."""
    n_new = len(plan.body.ids) if isinstance(plan.body, AddBody) else 0
    record = claim.record(
        now_ms=now_ms,
        model_version=version,
        n_samples=n_samples,
        n_new=n_new,
        first_id=plan.first_generated,
        receipt=None if receipt is None else receipt.id,
    )
    return with_idempotency(notes, record)
