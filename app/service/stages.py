"""Where the time of a request goes, for traces: stages that follow each other, by names of this program and times.

    parse -> wait -> plan -> journal -> model -> answer        a change
    parse -> (wait) -> model -> answer                         a prediction; only a long one waits

Nothing is noted unless somebody reads it.
"""

from __future__ import annotations

import time
from contextvars import ContextVar
from typing import Literal, NamedTuple

Name = Literal["parse", "wait", "plan", "journal", "model", "answer"]


class Stage(NamedTuple):
    """A part of the time of a request; both ends as `time.monotonic` tells them."""

    name: Name
    started: float
    ended: float


class Stages:
    """The stages of one request.

    Parameters
    ----------
    started
        When the first one began.

    Attributes
    ----------
    found
        Those that have ended, in their order.
    """

    __slots__ = ("_since", "found")

    def __init__(self, started: float) -> None:
        self.found: list[Stage] = []
        self._since = started

    def end(self, name: Name) -> None:
        """Note that a stage has ended, and that the next one begins."""
        now = time.monotonic()
        self.found.append(Stage(name, self._since, now))
        self._since = now


stages: ContextVar[Stages | None] = ContextVar("stages", default=None)
"""Of the request that is being answered; None when nobody reads them."""


def end_stage(name: Name) -> None:
    """Note that a stage of the request that is being answered has ended."""
    noted = stages.get()
    if noted is not None:
        noted.end(name)
