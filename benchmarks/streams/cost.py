"""The amortized cost of an update by the number of samples n, of columns d, and by epsilon, beside the bounds.

A window of n samples moves on: the oldest is deleted, a new one added. The root is rebuilt at the latest when it has
seen more than epsilon * n updates, and then everything is as after a fresh fit. So the updates up to and including
that one are a period, whose mean is the amortized cost.
"""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.paper.figures import figure
from benchmarks.results import Row
from benchmarks.streams.figures import GREENS
from oubli.core import DynamicTreeClassifier

NAME = "cost"
TITLE = "amortized cost of an update"
TEXT = (
    "CPU time of one update from Python in microseconds, while a window of n samples moves on: the mean over whole "
    "periods between two rebuilds of the root. `alpha=0`, `pruning_size=1`. Columns are independent and uniform, "
    "categorical ones have eight values; the label depends on two of them with 20 % noise, so that an unlimited "
    "tree grows until its leaves are pure. Where a row does not vary them, n = 10,000, d = 8 and epsilon = 0.1. "
    "*Exponent* is the slope of a straight line through the logarithms. *Exponent of rebuilding* is the same for "
    "the time minus that of the same updates with an epsilon at which nothing is ever rebuilt (the call from Python "
    "and the walk down the tree). *Bound* is the slope of O(d h log^2 n / epsilon) for a fixed height (Theorem "
    "3.2), of O(d log^3 n / epsilon^2) for an unlimited one, and of O(d log^2 n / epsilon) for categories (Theorem "
    "3.3), over the same range. Values whose period would take too long are left out. The plot shows rebuilding."
)
HEAD = (
    "varied:",
    "columns, height:",
    "values:",
    "us an update:",
    "us without rebuilding:",
    "exponent",
    "bound",
    "exponent of rebuilding",
)
N_CATEGORIES = 8
N, D, EPSILON = 10_000, 8, 0.1
USUAL = (("n", N), ("d", D), ("epsilon", EPSILON))
NEVER = 1e9  # an epsilon at which nothing is rebuilt
CHUNK = 10_000  # updates between two looks at the clock
LEAST_UPDATES = 1_000


@dataclass(frozen=True)
class Kind:
    """A kind of columns and a limit of the height, with its bound as a function of n, d and epsilon."""

    name: str
    categorical: bool
    depth: int | None
    bound: Callable[[float, float, float], float]


KINDS = (
    Kind("numeric, h = 10", False, 10, lambda n, d, epsilon: d * math.log(n) ** 2 / epsilon),
    Kind("numeric, no limit", False, None, lambda n, d, epsilon: d * math.log(n) ** 3 / epsilon**2),
    Kind("categorical, no limit", True, None, lambda n, d, epsilon: d * math.log(n) ** 2 / epsilon),
)


@dataclass(frozen=True)
class Sizes:
    """What is varied, and how much is measured."""

    n: tuple[int, ...] = (1_000, 3_162, 10_000, 31_623, 100_000, 316_228, 1_000_000)
    d: tuple[int, ...] = (8, 16, 32, 64, 128)  # with fewer categorical columns there are few different rows
    epsilon: tuple[float, ...] = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5)
    least: float = 0.3  # CPU seconds of whole periods
    most: float = 25.0  # CPU seconds after which a longer period is not waited for


@dataclass
class Curve:
    """Microseconds by what is varied."""

    varied: str
    kind: Kind
    points: dict[float, float] = field(default_factory=dict)
    walks: dict[float, float] = field(default_factory=dict)  # the same updates where nothing is ever rebuilt

    @property
    def exponent(self) -> float:
        """Slope of the logarithms."""
        return slope(list(self.points), list(self.points.values()))

    def rebuilding(self) -> dict[float, float]:
        """What is left without the call and the walk down the tree."""
        return {x: max(time - self.walks[x], 1e-3) for x, time in self.points.items()}

    @property
    def exponent_of_rebuilding(self) -> float:
        """Slope of the logarithms of what rebuilding takes."""
        return slope(list(self.points), list(self.rebuilding().values()))

    def bounds(self) -> list[float]:
        """The theorem's bound at the same places, through the point where it is least."""
        at = {
            "n": lambda x: self.kind.bound(x, D, EPSILON),
            "d": lambda x: self.kind.bound(N, x, EPSILON),
            "epsilon": lambda x: self.kind.bound(N, D, x),
        }[self.varied]
        least = min(self.points, key=at)
        return [self.rebuilding()[least] * at(x) / at(least) for x in self.points]

    @property
    def bound(self) -> float:
        """Slope of the bound's logarithms over the same range."""
        return slope(list(self.points), self.bounds())


def slope(places: Sequence[float], values: Sequence[float]) -> float:
    """Slope of a straight line through the logarithms."""
    return float(np.polyfit(np.log(places), np.log(values), 1)[0]) if len(places) > 1 else math.nan


def measure(sizes: Sizes) -> list[Curve]:
    """Vary one thing after the other, for each kind of columns."""
    curves = []
    for varied, values in (("n", sizes.n), ("d", sizes.d), ("epsilon", sizes.epsilon)):
        for kind in KINDS:
            curve = Curve(varied, kind)
            at(kind, 500, D, EPSILON, EPSILON, 0.0, sizes.most)  # compiles
            for value in values:
                n, d, epsilon = (value if name == varied else usual for name, usual in USUAL)
                place = kind, int(n), int(d), epsilon
                time = at(*place, epsilon, sizes.least, sizes.most)
                walk = None if time is None else at(*place, NEVER, 0.0, sizes.most)
                if time is None or walk is None:
                    break  # nor the larger ones
                curve.points[value], curve.walks[value] = time, walk
            curves.append(curve)
    return curves


def at(kind: Kind, n: int, d: int, periodic: float, epsilon: float, least: float, most: float) -> float | None:
    """Microseconds of an update, over whole periods of `least` CPU seconds together; None if one takes above `most`."""
    period = 2 * math.ceil((math.floor(periodic * n) + 1) / 2)
    X, y = samples(kind, n + period, d)
    window = Window(X, y, n, DynamicTreeClassifier(max_depth=kind.depth, epsilon=epsilon))
    window.model.fit(X[:n], y[:n], categorical_features=list(range(d)) if kind.categorical else None)
    window.held.extend(window.model.samples_.ids())
    seconds, updates = 0.0, 0
    while updates < LEAST_UPDATES or seconds < least:
        for first in range(0, period, CHUNK):
            seconds += window.move((min(first + CHUNK, period) - first) // 2)
            if seconds > most and first + CHUNK < period:
                return None
        updates += period
    return 1e6 * seconds / updates


@dataclass
class Window:
    """A model that holds n of some samples, and moves on over them round and round."""

    X: np.ndarray[Any, Any]
    y: np.ndarray[Any, Any]
    next: int
    model: DynamicTreeClassifier
    held: deque[str] = field(default_factory=deque)

    def move(self, n: int) -> float:
        """Delete the oldest sample and add a new one, n times; returns the CPU seconds."""
        started = time.process_time()
        for _ in range(n):
            self.model.delete(self.held.popleft())
            i = self.next % len(self.y)
            self.held += self.model.add(self.X[i : i + 1], self.y[i : i + 1])
            self.next += 1
        return time.process_time() - started


def samples(kind: Kind, n: int, d: int) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """Independent uniform columns, and a label that follows the first two, with noise."""
    rng = np.random.default_rng(d)
    X = rng.random((n, d), dtype=np.float32)
    y = (X[:, 0] + X[:, 1] > 1) ^ (rng.random(n) < 0.2)
    return (np.floor(N_CATEGORIES * X) if kind.categorical else X), y.astype(np.int64)


def rows(curves: list[Curve]) -> list[Row]:
    """One row a curve."""
    return [
        Row(
            (
                curve.varied,
                curve.kind.name,
                ", ".join(f"{value:g}" for value in curve.points),
                ", ".join(f"{value:.3g}" for value in curve.points.values()),
                ", ".join(f"{value:.3g}" for value in curve.walks.values()),
                f"{curve.exponent:.2f}",
                f"{curve.bound:.2f}",
            ),
            curve.exponent_of_rebuilding,
        )
        for curve in curves
    ]


def draw(curves: list[Curve], path: Path) -> None:
    """Rebuilding over n, d and epsilon, all logarithmic; the bounds dashed, through the points where they are least."""
    varied = list(dict.fromkeys(curve.varied for curve in curves))
    with figure(path, varied, "", "us an update, rebuilding (CPU)") as axes:
        for axis, name in zip(axes, varied, strict=True):
            shown = [curve for curve in curves if curve.varied == name]
            for number, (curve, colour) in enumerate(zip(shown, COLOURS, strict=True)):
                places, values = list(curve.points), list(curve.rebuilding().values())
                axis.plot(places, values, marker="o", color=colour, label=curve.kind.name)
                label = None if number else "bounds, in the same colours"
                axis.plot(places, curve.bounds(), linestyle="--", color=colour, alpha=0.6, label=label)
                text, offset = f"{curve.exponent_of_rebuilding:.2f}", (4, 7 * (1 - number))
                axis.annotate(
                    text, (places[-1], values[-1]), xytext=offset, textcoords="offset points", fontsize=7, color=colour
                )
            axis.set_xscale("log")
            axis.set_yscale("log")
            places = list(shown[0].points)
            if name != "n":
                axis.set_xticks(places, [f"{place:g}" for place in places])
                axis.minorticks_off()


COLOURS = (GREENS[0], GREENS[2], "#edae49")
