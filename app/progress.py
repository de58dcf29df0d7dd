"""How long work reports where it is, without knowing who shows it.

The command line draws a bar, the tests count calls, and a server without a terminal stays silent: whoever
starts the work passes a function, whoever does the work calls it.
"""

from __future__ import annotations

from collections.abc import Callable

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


def at_stage(progress: Progress, stage: str, action: Callable[[], object]) -> Progress:
    """Report to `progress`, and run an action when a stage is reported for the first time."""
    waiting = [action]

    def report(reported: str, done: int, total: int) -> None:
        if reported == stage and waiting:
            waiting.pop()()
        progress(reported, done, total)

    return report
