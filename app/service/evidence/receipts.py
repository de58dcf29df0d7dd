"""Receipts: when erasures are due, how many empty ones are written down, and what the ledger says of all of them.

Deadlines go by elapsed time: setting a clock neither stops them nor hides that they are late.

Requests that erase nothing are erasures, restrictions, releases and retention periods of what is not held or is so
already, and rectifications with the content that a sample has. Each costs a ledger entry that stays, so they are
counted by the id of the caller's key and by hour, in memory. Nothing that the requests name is kept, neither ids nor
subjects nor hashes of them. A restart begins to count again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import chain, takewhile
from typing import Any

from oubli.app.errors import NoReceiptError
from oubli.app.ledger.database import LedgerDatabase, PendingErasure
from oubli.app.ledger.entries import By, Receipt, StatusFilter
from oubli.app.ledger.ledger import Ledger, LedgerWorker
from oubli.app.service.model.state import ModelState, Pending
from oubli.app.times import Clock

_MOST_PATIENCE = 15.0  # seconds that work has to end which holds erased samples
_RESERVE = 1 / 12  # of the deadline: to end such work, and to note that the erasures are finished


class Deadline:
    """How long erasures have waited, and which of them are overdue. It may be asked from any thread.

    Parameters
    ----------
    state
        Knows the erasures that are not finished.
    steady_ms
        The time in milliseconds, independent of the machine's clock; see `Clock.steady_ms`.
    seconds
        How long an erasure may take from its acknowledgement.
    """

    def __init__(self, state: ModelState, steady_ms: Callable[[], int], seconds: float) -> None:
        self._state = state
        self._steady_ms = steady_ms
        self.seconds = seconds
        self.ms = round(seconds * 1000)

    def is_overdue(self, receipt_id: str) -> bool:
        """Whether an erasure should be finished and is not."""
        pending = self._state.pending.get(receipt_id)
        return pending is not None and self._steady_ms() - pending.since_ms > self.ms

    def n_overdue(self) -> int:
        """Return how many erasures are overdue."""
        end = self._steady_ms() - self.ms
        return sum(pending.since_ms < end for pending in self._state.pending.values())

    def overdue(self) -> list[str]:
        """Return the receipts of overdue erasures, up to the first that is not; they are in the order of their age."""
        end = self._steady_ms() - self.ms
        return [name for name, _ in takewhile(lambda item: item[1].since_ms < end, self._state.pending.items())]

    def next_in(self) -> tuple[str, float] | None:
        """Return the receipt of the oldest erasure, and in how many seconds it is due; negative when it is overdue."""
        for name, pending in self._state.pending.items():  # in the order of their age
            return name, (pending.since_ms + self.ms - self._steady_ms()) / 1000
        return None

    def longest_wait(self) -> float:
        """Return how many seconds the oldest erasure has waited; 0 when there is none."""
        return self._waited(self._state.pending.values())

    def patience(self, receipt_ids: Iterable[str]) -> float:
        """Return how many seconds work that holds erased samples may take, so that the erasures end in time."""
        waited = self._waited(self._state.pending[name] for name in receipt_ids if name in self._state.pending)
        return max(0.0, min(_MOST_PATIENCE, self.seconds / 4, self.seconds * (1 - _RESERVE) - waited))

    def is_due(self, receipt_ids: Iterable[str], lasts: float) -> bool:
        """Whether one of some erasures has to be finished now, when that lasts so many seconds.

        Half of the deadline is left, or thrice the time that it takes; or an earlier process has left it.
        """
        waiting = [self._state.pending[name] for name in receipt_ids]
        if not waiting:
            return False
        if any(pending.is_inherited for pending in waiting):
            return True
        return self._waited(waiting) >= min(self.seconds / 2, self.seconds - 3 * lasts)

    def _waited(self, erasures: Iterable[Pending]) -> float:
        oldest = min((pending.since_ms for pending in erasures), default=None)
        return 0.0 if oldest is None else max(0, self._steady_ms() - oldest) / 1000


HOUR_MS = 3_600_000


def inherited(erasures: Iterable[PendingErasure], clock: Clock) -> dict[str, Pending]:
    """Return erasures that an earlier process has not finished; they have waited for as long as any clock says."""
    found = {}
    for one in erasures:
        since = min(clock.steady_since(one.acknowledged_ms), clock.steady_since_wall(one.acknowledged_ms))
        found[one.receipt_id] = Pending(one.seq, since, is_inherited=True)
    return found


@dataclass(eq=False, repr=False)
class EmptyErasures:
    """Counts requests that change nothing. It belongs to the event loop.

    Parameters
    ----------
    most
        How many of each caller are written down in an hour.
    steady_ms
        The time in milliseconds, independent of the machine's clock.
    """

    _most: int
    _steady_ms: Callable[[], int]
    _counts: dict[str, tuple[int, int]] = field(default_factory=dict, init=False)  # when the hour began, and how many

    def admits(self, caller: str) -> bool:
        """Count a request of a caller that changes nothing; whether it is to be written down."""
        now = self._steady_ms()
        begun, n_before = self._counts.get(caller, (now, 0))
        if now - begun >= HOUR_MS or caller not in self._counts:
            # Keys come and go: those that have not been used for an hour are forgotten.
            self._counts = {name: count for name, count in self._counts.items() if now - count[0] < HOUR_MS}
            begun, n_before = now, 0
        self._counts[caller] = begun, n_before + 1
        return n_before < self._most


class Receipts:
    """What the ledger's database says, after all that was acknowledged.

    Parameters
    ----------
    ledger
        Has the keys.
    database
        Is asked.
    deadline
        Says which are overdue.
    """

    def __init__(self, ledger: Ledger, database: LedgerWorker, deadline: Deadline) -> None:
        self._ledger = ledger
        self._database = database
        self._is_overdue = deadline.is_overdue

    async def get(self, receipt_id: str) -> Receipt:
        """Return a receipt; raises `NoReceiptError`."""
        found = await self._database.read(lambda database: database.receipt(receipt_id, self._is_overdue))
        if found is None:
            raise NoReceiptError
        return found

    async def listed(
        self,
        after: int,
        limit: int,
        *,
        ref: str | None = None,
        status: StatusFilter | None = None,
        newest_first: bool = False,
    ) -> tuple[list[Receipt], int | None]:
        """Return a page of receipts, and where it ends; see `LedgerDatabase.receipts_page`."""
        return await self._database.read(
            lambda database: database.receipts_page(
                after, limit, self._is_overdue, ref=ref, status=status, newest_first=newest_first
            )
        )

    async def last_of(self, names: Sequence[str], by: By) -> Receipt | None:
        """Return the receipt of the last erasure of exactly these targets that found something, if there is one."""
        hashes = self._ledger.target_hashes(names, by)
        return await self._database.read(lambda database: database.last_receipt_of(hashes, self._is_overdue))

    async def about(self, subject: str, ids: Sequence[str]) -> list[Receipt]:
        """Return the receipts of erasures and rectifications that named a subject, or one of its samples, alone."""

        def ask(database: LedgerDatabase) -> list[Receipt]:  # in a thread: hashing many ids takes long
            hashes = (self._ledger.target_hashes([name], "ids") for name in ids)
            targets = [*self._ledger.target_hashes([subject], "subjects"), *chain.from_iterable(hashes)]
            return database.receipts_about(targets, self._is_overdue)

        return await self._database.read(ask)

    async def found(self, receipt_id: str, names: Sequence[str], by: By) -> dict[str, int]:
        """Return of which names an erasure has found something, and how many samples."""
        return await self._database.read(lambda database: database.found_by(receipt_id, names, by))

    async def page(self, after: int, limit: int) -> list[dict[str, Any]]:
        """Return entries of the ledger, those after a number."""
        return await self._database.read(lambda database: database.entries(after, limit))
