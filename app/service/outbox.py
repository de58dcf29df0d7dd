"""Who is told of receipts, known to those who make them."""

import asyncio
from collections.abc import Sequence


class Outbox:
    """Who is told of receipts, and a bell for those who tell them. It belongs to the event loop.

    Parameters
    ----------
    targets
        Of the states of receipts; requests of OpenDSR name their own.

    Attributes
    ----------
    targets
        The same.
    """

    def __init__(self, targets: Sequence[str] = ()) -> None:
        self.targets = tuple(targets)
        self._bells: list[asyncio.Event] = []

    def bell(self) -> asyncio.Event:
        """Return an event that is set when something is noted that may have to be told."""
        self._bells.append(asyncio.Event())
        return self._bells[-1]

    def ring(self) -> None:
        """Say that something was noted."""
        for bell in self._bells:
            bell.set()
