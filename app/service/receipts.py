"""Reading the ledger: receipts as they are now, entries, public keys."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

from oubli.app.errors import NoReceiptError
from oubli.app.ledger.ledger import Auditor
from oubli.app.ledger.receipts import Receipt
from oubli.app.service.deadlines import Deadline
from oubli.app.service.folding import Folder


class Receipts:
    """What the ledger's file says, after all that was acknowledged.

    Parameters
    ----------
    auditor
        Has the keys.
    folder
        Asks the file.
    deadline
        Says which are overdue.
    """

    def __init__(self, auditor: Auditor, folder: Folder, deadline: Deadline) -> None:
        self._auditor = auditor
        self._folder = folder
        self._is_overdue = deadline.is_overdue

    async def get(self, receipt_id: str) -> Receipt:
        """Return a receipt; raises `NoReceiptError`."""
        found = await self._folder.read(lambda store: store.receipt(receipt_id, self._is_overdue))
        if found is None:
            raise NoReceiptError
        return found

    async def of_case(self, ref: str) -> list[Receipt]:
        """Return the receipts of a case number, the oldest first."""
        return await self._folder.read(lambda store: store.receipts_of(ref, self._is_overdue))

    async def last_of(self, names: Sequence[str], by: Literal["ids", "subjects"]) -> Receipt | None:
        """Return the receipt of the last erasure of exactly these targets that found something, if there is one."""
        hashes = self._auditor.target_hashes(names, by)
        return await self._folder.read(lambda store: store.last_receipt_of(hashes, self._is_overdue))

    async def page(self, after: int, limit: int) -> list[dict[str, Any]]:
        """Return entries of the ledger, those after a number."""
        return await self._folder.read(lambda store: store.entries(after, limit))

    def public_keys(self) -> list[dict[str, Any]]:
        """Return the public keys of receipts, current and retired."""
        return self._auditor.public_keys()
