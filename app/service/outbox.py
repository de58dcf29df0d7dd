"""Who is told of receipts, known to those who make them, and what is sent."""

import asyncio
from collections.abc import Sequence
from typing import NamedTuple


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


class Message(NamedTuple):
    """What is sent: headers besides those that every request has, and the body in JSON."""

    headers: Sequence[tuple[str, str]]
    body: bytes
