"""Time of one training sample by update set (Figure 1 of the paper)."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from benchmarks.influence.problems import COLOURS, UPDATE_SETS, Problem
from benchmarks.paper.figures import figure
from benchmarks.results import Row
from benchmarks.timing import cpu_seconds
from oubli.core.influence import FastLeafInfluence, FastLeafRefit, view

NAME = "times"
TITLE = "time of a training sample by update set"
TEXT = (
    "CPU milliseconds to find what one training sample does to all leaf values (Figure 1 of the paper): new values "
    "for FastLeafRefit, derivatives for FastLeafInfluence; the mean over random samples. As in the paper, this "
    "leaves out what is computed once for all samples (the derivatives of all samples in all trees). *Reverse* is "
    "the time of reverse mode for all samples at once, divided by their number; it answers the question about a row "
    "or a mean of rows."
)
HEAD = ("data:", "update set:", "refit, ms:", "derivative, ms:", "reverse, ms")


@dataclass(frozen=True)
class Found:
    """A row of the table."""

    data: str
    update_set: str
    refit: float
    derivative: float
    reverse: float


def measure(problems: list[Problem], n_samples: int) -> list[Found]:
    """Time all forms."""
    from oubli.core.influence import influence

    found = []
    for problem in problems:
        model = problem.fit()
        seen = view(model)
        X, y = problem.test_rows(1, seed=0)
        influence(model, X, y)
        reverse = 1e3 * cpu_seconds(lambda: influence(model, X, y)) / problem.n  # noqa: B023
        samples = np.random.default_rng(0).choice(problem.n, n_samples, replace=False).tolist()
        for label, name in UPDATE_SETS.items():
            times = []
            for form in (FastLeafRefit(seen, name), FastLeafInfluence(seen, name)):
                form.change(0)
                seconds = cpu_seconds(lambda form=form: [form.change(i) for i in samples])  # type: ignore[misc]  # noqa: B023
                times.append(1e3 * seconds / n_samples)
            found.append(Found(problem.name, label, *times, reverse))
    return found


def rows(found: list[Found]) -> list[Row]:
    """The table."""
    return [Row((f.data, f.update_set, f"{f.refit:.3g}", f"{f.derivative:.3g}"), f.reverse) for f in found]


def draw(found: list[Found], path: Path) -> None:
    """Time by update set."""
    with figure(path, [TITLE], "update set", "ms a training sample") as (axis,):
        for data in dict.fromkeys(f.data for f in found):
            mine = [f for f in found if f.data == data]
            places = range(len(mine))
            axis.plot(places, [f.refit for f in mine], "o-", color=COLOURS[data], label=f"{data}, FastLeafRefit")
            axis.plot(
                places, [f.derivative for f in mine], "s--", color=COLOURS[data], label=f"{data}, FastLeafInfluence"
            )
        axis.set_xticks(range(len(UPDATE_SETS)), list(UPDATE_SETS), rotation=20)
        axis.set_yscale("log")
