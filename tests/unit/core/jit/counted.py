"""Kernels of which tests count how often they are compiled, and work that calls them."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from numba.core.event import Event, Listener, register

from oubli.core.jit import policy


@policy.kernel
def double(x: Any) -> Any:
    return 2 * x


@policy.kernel
def quadruple(x: Any, y: Any) -> Any:
    return double(double(x)) + y


def work(argument: str, progress: Callable[[int], object]) -> None:
    """Two steps; the second calls with other types what the first has called."""
    double(int(argument))
    double(int(argument))
    progress(1)
    quadruple(int(argument), 0.5)
    double(0.5)
    progress(2)


class _Notes(Listener):  # type: ignore[misc]
    def on_start(self, event: Event) -> None:
        name = event.data["dispatcher"].py_func.__name__
        with Path(os.environ["NOTES"]).open("a") as file:
            file.write(f"{name} {os.getpid()}\n")

    def on_end(self, event: Event) -> None:
        pass


if "NOTES" in os.environ:
    register("numba:compile", _Notes())
