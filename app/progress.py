"""How long work reports where it is, without knowing who shows it.

The command line draws a bar, the tests count calls, and a server without a terminal stays silent: whoever
starts the work passes a function, whoever does the work calls it.
"""

from collections.abc import Callable, Collection

Progress = Callable[[str, int, int], None]
"""``progress(stage, done, total)``: ``stage`` is a short text such as ``"training the forest"``; ``done`` of
``total`` units are finished. A new text starts a new bar; ``total`` 0 means that nobody knows the total."""


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
