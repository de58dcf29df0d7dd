"""What goes on and is no job: snapshots that are written, restores. People who look are told how far they are."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass


@dataclass(eq=False, slots=True)
class Activity:
    """Something that goes on.

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
    """Everything of that sort that goes on at present. It belongs to the event loop."""

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
