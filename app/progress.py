"""Progress of long work: callbacks that report a stage, and the list of operations that are not jobs.

The command line draws a bar, the tests count calls, and a server without a terminal stays silent: the caller passes a
function, and the work calls it. Operations that are not jobs, such as snapshots and restores, are listed with the share
that is done.
"""

from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

Progress = Callable[[str, int, int], None]
"""``progress(stage, done, total)``: ``stage`` is a short text such as ``"training the forest"``; ``done`` of
``total`` units are finished. A new text starts a new bar; ``total`` 0 means that the total is not known."""


def silent(stage: str, done: int, total: int) -> None:
    """Report nothing."""


def within(progress: Progress, stage: str) -> Callable[[int, int], None]:
    """Return the ``(done, total)`` callback of one stage, as the estimators' ``fit`` takes it."""

    def report(done: int, total: int) -> None:
        progress(stage, done, total)

    return report


def at_stages(progress: Progress, stages: Collection[str], action: Callable[[], object]) -> Progress:
    """Report to `progress`, and run an action when one of some stages is reported for the first time."""
    waiting = [action]

    def report(reported: str, done: int, total: int) -> None:
        if reported in stages and waiting:
            waiting.pop()()
        progress(reported, done, total)

    return report


@dataclass(eq=False, slots=True)
class Activity:
    """An operation that is running.

    Attributes
    ----------
    kind
        ``"snapshot"`` or ``"restore"``.
    progress
        The share that is done.
    """

    kind: str
    progress: float = 0.0

    def report(self, share: float) -> None:
        """Take in the share that is done; may be called from any thread."""
        self.progress = max(self.progress, min(share, 1.0))


class Activities:
    """All such operations that are running now. It belongs to the event loop."""

    def __init__(self) -> None:
        self._going_on: list[Activity] = []

    def __iter__(self) -> Iterator[Activity]:
        return iter(self._going_on)

    @contextmanager
    def begin(self, kind: str) -> Iterator[Callable[[float], None]]:
        """Show an activity for the length of the block, which gets what takes in its progress."""
        activity = Activity(kind)
        self._going_on.append(activity)
        try:
            yield activity.report
        finally:
            self._going_on.remove(activity)


Ask = Callable[[str, Sequence[str]], str | None]
"""Asks a person a question with some answers, and returns the one that is chosen; None without a terminal."""


def no_answer(question: str, answers: Sequence[str]) -> str | None:
    """Answer nothing."""
    del question, answers
    return None
