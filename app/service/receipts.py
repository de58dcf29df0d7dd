"""Reading the ledger: receipts as they are now, entries, public keys."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from typing import TYPE_CHECKING, Any

from oubli.app.errors import NoReceiptError
from oubli.app.ledger.entries import By, Receipt, StatusFilter
from oubli.app.ledger.ledger import Ledger, LedgerWorker
from oubli.app.service.erasures import Deadline

if TYPE_CHECKING:
    from oubli.app.ledger.database import LedgerDatabase


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
