"""Every stream: ours over windows and over everything seen, beside the peers, in F1 and time."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.paper.figures import figure
from benchmarks.results import Row
from benchmarks.streams.figures import logarithmic, style_of
from benchmarks.streams.learners import PREVIOUS, Forest
from benchmarks.streams.prequential import Peers, Run, run_ours
from benchmarks.streams.sets import Stream

NAME = "streams"
TITLE = "streams"
TEXT = (
    "Prequential F1 of the positive class, and CPU time to predict and learn a sample. Ours: `max_depth=10`, "
    "`epsilon=0.1`, `alpha=0`, `pruning_size=1`, over a window or over everything seen (*incremental*: "
    "`max_depth=20`, `epsilon=0.15`); and an exact forest (`n_estimators=10`, `max_depth=10`) over a window: at each "
    "moment it is the forest that a fit on the last 1,000 samples gives, bit for bit. The peers are river's with "
    "their defaults. Positive classes: UP, rain, and "
    "class 2 of covtype against the rest, as in the paper. SEA: four concepts, 10 % noise. Hyperplane: ten columns, "
    "five moving weights, 5 % noise. A learner that uses up its time is stopped; *samples* says how many it has "
    "seen, and the last column is the F1 of ours with window 1000 on the same samples."
)
HEAD = ("stream:", "learner:", "samples", "F1", "accuracy", "us a sample", "F1 of window 1000 there")
REFERENCE = "oubli, window 1000"
OURS: dict[str, dict[str, Any]] = {
    "oubli, window 100": {"max_depth": 10, "epsilon": 0.1, "window": 100},
    "oubli, window 300": {"max_depth": 10, "epsilon": 0.1, "window": 300},
    REFERENCE: {"max_depth": 10, "epsilon": 0.1, "window": 1_000},
    "oubli, incremental": {"max_depth": 20, "epsilon": 0.15},
}
FOREST = "oubli forest(10), window 1000"
FOREST_PARAMETERS: dict[str, Any] = {"n_estimators": 10, "max_depth": 10}


@dataclass(frozen=True)
class Found:
    """The runs on one stream, by learner."""

    stream: Stream
    runs: dict[str, Run]


def measure(streams: Iterable[Stream], peers: Peers) -> list[Found]:
    """Run everything on every stream."""
    found = []
    for one in streams:
        runs = {name: run_ours(parameters, one, peers.budget) for name, parameters in OURS.items()}
        runs[FOREST] = run_ours(FOREST_PARAMETERS, one, peers.budget, Forest)
        found.append(Found(one, runs | peers.all(one)))
    return found


def rows(found: list[Found]) -> list[Row]:
    """One row a stream and learner."""
    table = []
    for one in found:
        for name, run in one.runs.items():
            samples = f"{run.n:,}" if run.is_whole else f"first {run.n:,} of {len(one.stream):,}"
            # The baseline does nothing, what it takes is the loop's.
            time = "" if name == PREVIOUS else f"{run.microseconds:.1f}"
            cells = (one.stream.name, name, samples, f"{run.f1():.2f}", f"{run.accuracy():.2f}", time)
            table.append(Row(cells, one.runs[REFERENCE].f1(run.n)))
    return table


def draw(found: list[Found], path: Path) -> None:
    """F1 over time, a panel a stream."""
    with figure(path, [one.stream.name for one in found], "us a sample (CPU)", "F1, %") as axes:
        for axis, one in zip(axes, found, strict=True):
            for name, run in one.runs.items():
                if name == PREVIOUS:
                    axis.axhline(run.f1(), color="grey", linestyle=":", label=name)
                else:
                    axis.plot(run.microseconds, run.f1(), linestyle="none", markersize=8, label=name, **style_of(name))
            logarithmic(axis)
