"""Reading the ledger: receipts as they are now, entries, public keys."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal

from app.audit.auditor import Auditor
from app.audit.receipts import Receipt
from app.errors import NoReceiptError
from app.folding import Folder


class Receipts:
    """What the ledger's file says, after all that was acknowledged.

    Parameters
    ----------
    auditor
        Has the keys.
    folder
        Asks the file.
    now_ms
        The time, in milliseconds since 1970: a receipt says whether it is overdue.
    erasure_deadline
        Seconds after which it is.
    """

    def __init__(self, auditor: Auditor, folder: Folder, now_ms: Callable[[], int], erasure_deadline: float) -> None:
        self._auditor = auditor
        self._folder = folder
        self._now_ms = now_ms
        self._deadline_ms = round(erasure_deadline * 1000)

    async def get(self, receipt_id: str) -> Receipt:
        """Return a receipt; raises `NoReceiptError`."""
        now = self._now_ms()
        found = await self._folder.read(lambda store: store.receipt(receipt_id, now, self._deadline_ms))
        if found is None:
            raise NoReceiptError
        return found

    async def of_case(self, ref: str) -> list[Receipt]:
        """Return the receipts of a case number, the oldest first."""
        now = self._now_ms()
        return await self._folder.read(lambda store: store.receipts_of(ref, now, self._deadline_ms))

    async def last_of(self, names: Sequence[str], by: Literal["ids", "subjects"]) -> Receipt | None:
        """Return the receipt of the last erasure of exactly these targets that found something, if there is one."""
        hashes, now = self._auditor.target_hashes(names, by), self._now_ms()
        return await self._folder.read(lambda store: store.last_receipt_of(hashes, now, self._deadline_ms))

    async def page(self, after: int, limit: int) -> list[dict[str, Any]]:
        """Return entries of the ledger, those after a number."""
        return await self._folder.read(lambda store: store.entries(after, limit))

    def public_keys(self) -> list[dict[str, Any]]:
        """Return the public keys of receipts, current and retired."""
        return self._auditor.public_keys()
