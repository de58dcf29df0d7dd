"""Brings the ledger's file up to what the journal holds, aside, several records at a time.

The journal is what makes things durable; the ledger's file is made from it and may lag behind it, also across a crash.
So it is written when nobody asks anything, or when much has come together: a thread at work beside the event loop makes
every request wait for its turn at the interpreter.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from functools import partial
from typing import TypeVar

from oubli.app.errors import FlushFailedError, StorageError
from oubli.app.ledger.database import AuditStore
from oubli.app.service.threads import Workers
from oubli.app.storage.journal import Record

_RETRY = 1.0  # seconds
_WAIT = 0.02  # seconds between two looks whether nobody asks anything
_MOST = 2000  # records that may wait

log = logging.getLogger("oubli.service")
T = TypeVar("T")


class Folder:
    """The one user of the ledger's file while the server runs.

    Parameters
    ----------
    store
        The ledger's file.
    workers
        Has a thread for it.
    is_idle
        Whether nobody asks anything at present.
    failed
        Called when the file and the journal do not fit together.
    """

    def __init__(
        self, store: AuditStore, workers: Workers, is_idle: Callable[[], bool], failed: Callable[[], None]
    ) -> None:
        self._store = store
        self._workers = workers
        self._is_idle = is_idle
        self._failed = failed
        self._due: list[tuple[int, bytes]] = []

    def fold(self, records: Sequence[Record]) -> None:
        """Have the notes of records folded, soon and in order."""
        due = [(record.seq, record.notes) for record in records if record.notes]
        if due:
            idle = not self._due
            self._due.extend(due)
            if idle:
                self._workers.begin(self._fold_due(), endless=True)

    async def read(self, question: Callable[[AuditStore], T]) -> T:
        """Ask the ledger's file, after all that was folded before."""
        return await self._workers.audit(partial(self._ask, question))

    async def flush(self) -> None:
        """Return when all that was folded is on the disk."""
        await self.read(AuditStore.flush)

    async def _fold_due(self) -> None:
        told = False
        while len(self._due) < _MOST and not self._is_idle():  # noqa: ASYNC110 - time is what is waited for
            await asyncio.sleep(_WAIT)
        while True:
            try:
                await self._workers.audit(self._drain)
                return
            except FlushFailedError:
                log.error("a flush of the ledger's file failed: no mutation is accepted until a restart")
                self._failed()
                return
            except StorageError:
                # A full disk, say. The journal has it all, and what is not folded waits here.
                if not told:
                    log.error("the ledger's file cannot be written: it is tried again")
                told = True
                await asyncio.sleep(_RETRY)
            except Exception as error:
                log.error("the ledger is not what the journal goes on from (%s)", type(error).__name__)
                self._failed()
                return

    def _ask(self, question: Callable[[AuditStore], T]) -> T:
        self._drain()
        return question(self._store)

    def _drain(self) -> None:
        """Runs in the ledger's thread; the loop only ever appends to the list meanwhile."""
        due = self._due
        while due:
            n = len(due)
            self._store.fold_many(due[:n])
            del due[:n]
