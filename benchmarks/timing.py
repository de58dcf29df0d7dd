"""CPU seconds of a call, and medians over rounds that stop when a budget is used up."""

from __future__ import annotations

import gc
import statistics
import time
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

Found = TypeVar("Found")


def cpu_seconds(work: Callable[[], object], *, collect: bool = True) -> float:
    """CPU seconds of one call, of all threads; garbage is collected before (unless told not to) and not during it."""
    if collect:
        gc.collect()
    gc.disable()
    try:
        started = time.process_time()
        work()
        return time.process_time() - started
    finally:
        gc.enable()


def timed(work: Callable[[], Any]) -> tuple[float, Any]:
    """CPU seconds of one call and what it returned."""
    kept: list[Any] = []
    seconds = cpu_seconds(lambda: kept.append(work()))
    return seconds, kept[0]


def rounds_of(work: Callable[[int], Found], rounds: int, budget: float) -> list[Found]:
    """What a measurement returns, round by round: `rounds` times, or fewer when `budget` CPU seconds are used up."""
    found: list[Found] = []
    started = time.process_time()
    while len(found) < rounds and (not found or time.process_time() - started < budget):
        found.append(work(len(found)))
    return found


def per_call(work: Callable[[Any], object], arguments: Iterable[Any]) -> float:
    """CPU seconds of one of the calls, on average."""
    prepared = list(arguments)

    def call_all() -> None:
        for argument in prepared:
            work(argument)

    return cpu_seconds(call_all) / len(prepared)


def median(values: Iterable[float]) -> float:
    """The middle value."""
    return float(statistics.median(values))
