"""A journal that takes its time, for callers who go before the end."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Coroutine
from typing import Any

import pytest

from oubli.app.service.service import Service


class SlowJournal:
    """Has a service's next records written slowly.

    Parameters
    ----------
    service
        Its journal is replaced.
    holding
        What the notes of the records hold that are meant.
    """

    def __init__(self, service: Service, holding: bytes = b"") -> None:
        self._entered = asyncio.Event()
        journal, loop = service.disk.storage.journal, asyncio.get_running_loop()
        append = journal.append

        def slow(records: Any, *, reserve: bool = False) -> None:
            if holding in records[0].notes:
                loop.call_soon_threadsafe(self._entered.set)
                time.sleep(0.05)
            append(records, reserve=reserve)

        journal.append = slow  # type: ignore[method-assign]

    async def leave(self, work: Coroutine[Any, Any, Any]) -> None:
        """Ask for something, and go while it is being written."""
        asking = asyncio.ensure_future(work)
        await self._entered.wait()
        asking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking
