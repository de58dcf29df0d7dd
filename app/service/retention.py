"""Samples whose time is over are unlearned and erased by themselves."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from oubli.app.service.commands.deletions import DeleteSamples

if TYPE_CHECKING:
    from oubli.app.service.state import ModelState
    from oubli.app.service.writer import Writer
    from oubli.app.times import Clock

log = logging.getLogger("oubli.service")

_TICK = 0.5  # seconds between two looks at the clock
_MOST_AT_ONCE = 1000


@dataclass(eq=False, repr=False)
class Retention:
    """The background task that lets samples expire.

    Parameters
    ----------
    state
        What is served.
    clock
        Tells the time, and whether it can be trusted.
    max_share
        Largest share of the samples that may expire at once without being confirmed.
    writer
        Deletes what has expired.
    """

    _state: ModelState
    _clock: Clock
    _max_share: float
    _writer: Writer
    _confirmed: int = field(default=0, init=False)
    _refusal: str | None = field(default=None, init=False)

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
        store, now = self._state.model.samples_, self._clock.now_ms()
        first, restricted = store.next_expiry(), store.restricted
        others = restricted.due(now) if len(restricted) else []
        if self._state.failed or self._clock.paused or not (others or (first is not None and first <= now)):
            return
        due = [*store.due(now, len(store)), *others]
        unconfirmed = [name for name in due if ((store.holding(name) or store).expiry(name) or 0) > self._confirmed]
        was_paused = self._refusal is not None
        self._refusal = refuses(n_held=len(store) + len(restricted), n_due=len(unconfirmed), max_share=self._max_share)
        if self._refusal is not None:
            if not was_paused:
                log.warning("expiry is paused: %s", self._refusal)
            return
        for start in range(0, len(due), _MOST_AT_ONCE):
            await self._writer.execute(DeleteSamples(due[start : start + _MOST_AT_ONCE], kind="expiry"))

    async def erase_restricted(self, subjects: Sequence[str]) -> int:
        """Delete what is due of restricted subjects and was kept beyond that; return how many samples.

        Who names the subjects has confirmed it, however many samples they have.
        """
        restricted, now = self._state.model.samples_.restricted, self._clock.now_ms()
        if self._clock.paused or not len(restricted):
            return 0
        named = set(subjects)
        due = [
            name for name in restricted.samples.due(now, len(restricted)) if restricted.samples.subject(name) in named
        ]
        if due:
            await self._writer.execute(DeleteSamples(due, kind="expiry"))
        return len(due)


def refuses(*, n_held: int, n_due: int, max_share: float) -> str | None:
    """Return why a sweep must wait until it is confirmed, or None when it may go on.

    A retention period with a mistake in it, or one that is new to samples already held, lets half of a model expire in
    one night. One sample may always go: in a small model it is a large share.

    Parameters
    ----------
    n_held
        Samples held.
    n_due
        Those of them whose time is over and that nobody has confirmed.
    max_share
        Largest share of the samples held that may go at once; 0 has every sample confirmed.
    """
    allowed = max(1, int(max_share * n_held)) if max_share > 0 else 0
    if n_due <= allowed:
        return None
    return (
        f"{n_due} of {n_held} samples have expired at once, max_expiry_share lets {allowed} go: look why, and confirm"
    )
