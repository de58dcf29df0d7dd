"""The cost of each operation by the number of samples, with the exponent that fits it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.operations import mutations
from benchmarks.paper.figures import COLOURS, figure
from benchmarks.paper.sets import Split
from benchmarks.problems import Problem, warm_up
from benchmarks.results import Row
from benchmarks.timing import cpu_seconds, median, per_call, rounds_of

NAME = "scaling"
TITLE = "cost by number of samples"
TEXT = (
    "CPU time of each operation on the first n rows of higgs-like, with the parameters of `fast` and n from 10^3 to "
    "10^6. Deletes, adds and queries are of one sample from Python. Medians of the rounds, of which there are fewer "
    "where they take long. *Owed*: the `resolve()` after deleting 2 % of the samples, at most 1,000, divided by "
    "their number. ExtraTrees and RandomForest are scikit-learn's with 10 trees. *Exponent* is the slope of a "
    "straight line through the logarithms of time and n."
)
OPERATIONS = {
    "fit": "fit",
    "lazy_delete": "delete, lazily",
    "owed_by_delete": "owed by a delete",
    "lazy_add": "add, lazily",
    "eager_delete": "delete, eagerly",
    "predict": "predict one row",
    "ExtraTrees": "ExtraTrees, fit",
    "RandomForest": "RandomForest, fit",
}
SIZES = (1_000, 3_162, 10_000, 31_623, 100_000, 316_228, 1_000_000)
N_QUERIES = 500


@dataclass
class Found:
    """CPU seconds by operation and size."""

    seconds: dict[str, dict[int, float]] = field(default_factory=lambda: {name: {} for name in OPERATIONS})

    def exponent(self, operation: str) -> float:
        """Slope of log time over log n."""
        sizes, values = zip(*self.seconds[operation].items(), strict=True)
        return float(np.polyfit(np.log(sizes), np.log(values), 1)[0])


def measure(split: Split, sizes: Sequence[int], rounds: int, budget: float) -> Found:
    """Measure at each size; no further round of an operation begins when it has used up `budget` CPU seconds."""
    found = Found()
    for n in sizes:
        for name, value in _at(_first(split, n), split.peers(), rounds, budget).items():
            found.seconds[name][n] = value
    return found


def _at(problem: Problem, peers: dict[str, Any], rounds: int, budget: float) -> dict[str, float]:
    """CPU seconds of each operation at one size."""

    def typical(work: Callable[[], float]) -> float:
        return median(rounds_of(lambda _: work(), rounds, budget))

    warm_up(problem, "fast")
    forest = problem.forest("fast")
    seconds = {"fit": typical(partial(cpu_seconds, partial(problem.fit, forest)))}
    for name, peer in peers.items():
        seconds[name] = typical(partial(cpu_seconds, partial(peer.fit, problem.X, problem.y)))
    n_changes = max(20, min(1_000, len(problem.y) // 50))
    changes = mutations.measure(problem, forest, n_changes, rounds, budget)
    for name in ("lazy_delete", "owed_by_delete", "lazy_add", "eager_delete"):
        seconds[name] = changes.seconds(name)
    queries = problem.queries(np.arange(N_QUERIES))
    seconds["predict"] = typical(partial(per_call, forest.predict_proba, queries))
    return seconds


def _first(split: Split, n: int) -> Problem:
    """The first n training rows."""
    X, y = split.X[:n], split.y[:n]
    return Problem(split.name, X, y, split.X_test, split.y_test, X, split.X_test)


def rows(found: Found) -> list[Row]:
    """One row an operation."""
    return [
        Row((label, *(_duration(value) for value in found.seconds[name].values())), found.exponent(name))
        for name, label in OPERATIONS.items()
    ]


def head(found: Found) -> tuple[str, ...]:
    """The headings: a column a size."""
    return ("operation:", *(f"n = {n:,}" for n in found.seconds["fit"]), "exponent")


def _duration(seconds: float) -> str:
    """A time with its unit."""
    for factor, unit in ((1.0, "s"), (1e3, "ms")):
        if seconds * factor >= 1:
            return f"{seconds * factor:.3g} {unit}"
    return f"{seconds * 1e6:.3g} us"


def draw(found: Found, path: Path) -> None:
    """Time over n, both logarithmic, with the exponents in the legend."""
    markers = dict(zip(OPERATIONS, "os^vD*xx", strict=True))
    with figure(path, ["higgs-like, parameters of fast"], "samples n", "CPU seconds") as (axis,):
        for name, label in OPERATIONS.items():
            sizes, values = zip(*found.seconds[name].items(), strict=True)
            colour = COLOURS.get(name)
            text = f"{label}: n^{found.exponent(name):.2f}"
            axis.plot(sizes, values, marker=markers[name], color=colour, label=text)
        axis.set_xscale("log")
        axis.set_yscale("log")
