"""Samples whose time is over are unlearned and erased by themselves."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence

from oubli.app.clock import Clock
from oubli.app.service.state import Live
from oubli.app.service.sweeper import refuses

log = logging.getLogger("oubli.service")

_TICK = 0.5  # seconds between two looks at the clock
_MOST_AT_ONCE = 1000


class Expiring:
    """The background task that lets samples expire.

    Parameters
    ----------
    live
        What is served.
    clock
        Tells the time, and whether it can be trusted.
    max_share
        Largest share of the samples that may expire at once without being confirmed.
    expire
        Deletes samples by their ids.
    """

    def __init__(
        self, live: Live, clock: Clock, max_share: float, expire: Callable[[Sequence[str]], Awaitable[None]]
    ) -> None:
        self._live = live
        self._clock = clock
        self._max_share = max_share
        self._expire = expire
        self._confirmed = 0
        self._refusal: str | None = None

    @property
    def paused(self) -> str | None:
        """Why nothing expires at present; None when it does."""
        return self._clock.paused or self._refusal

    def confirm(self) -> None:
        """Believe the clock, and let all expire that is due now, however many they are."""
        self._clock.confirm()
        self._confirmed = self._clock.now_ms()
        self._refusal = None

    async def run(self) -> None:
        """Look for what is due, until cancelled."""
        while True:
            await asyncio.sleep(_TICK)
            try:
                await self.sweep()
            except Exception as error:  # whatever it was: it must be tried again
                log.error("samples that have expired could not be deleted (%s)", type(error).__name__)

    async def sweep(self) -> None:
        """Delete what is due, unless the clock or the number of samples says that something is wrong."""
        store, now = self._live.model.samples_, self._clock.now_ms()
        first = store.next_expiry()
        if self._live.failed or self._clock.paused or first is None or first > now:
            return
        due = store.due(now, len(store))
        unconfirmed = [name for name in due if (store.expiry(name) or 0) > self._confirmed]
        was_paused = self._refusal is not None
        self._refusal = refuses(n_held=len(store), n_due=len(unconfirmed), max_share=self._max_share)
        if self._refusal is not None:
            if not was_paused:
                log.warning("expiry is paused: %s", self._refusal)
            return
        for start in range(0, len(due), _MOST_AT_ONCE):
            await self._expire(due[start : start + _MOST_AT_ONCE])
