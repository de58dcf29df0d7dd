"""A journal that is being written until the caller has gone."""

import asyncio
import threading
from collections.abc import Coroutine
from typing import Any

import pytest

from oubli.app.service.service import Service


class SlowJournal:
    """Has a service's next records, those whose notes hold something, written only when the client has gone."""

    def __init__(self, service: Service, holding: bytes = b"") -> None:
        self._entered, self._gone = asyncio.Event(), threading.Event()
        journal, loop = service.disk.storage.journal, asyncio.get_running_loop()
        append = journal.append

        def slow(records: Any, *, reserve: bool = False) -> None:
            if holding in records[0].notes:
                loop.call_soon_threadsafe(self._entered.set)
                assert self._gone.wait(30)
            append(records, reserve=reserve)

        journal.append = slow  # type: ignore[method-assign]

    async def leave(self, work: Coroutine[Any, Any, Any]) -> None:
        """Ask for something, and go while it is being written."""
        asking = asyncio.ensure_future(work)
        await self.entered()
        asking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking
        self.go_on()

    async def entered(self) -> None:
        """Return when it is being written."""
        await self._entered.wait()

    def go_on(self) -> None:
        """Write, also what comes later."""
        self._gone.set()
