"""Batch addition from 5 % to 100 % and removal back to 5 %, and the other way round (Figure 3 of Online GBDT)."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.boosting.datasets import Indices, Load, Split
from benchmarks.boosting.kinds import ONLINE, Kind, names
from benchmarks.boosting.peers import LIGHTGBM
from benchmarks.paper.figures import figure
from benchmarks.results import Row, at_most
from benchmarks.timing import timed

NAME = "stream"
TITLE = "batch addition and removal"
TEXT = (
    "The training part is divided into 20 random parts of 5 %. *Up*: `online-boosting` is fitted on one part; the "
    "others are added one after the other and then removed in reverse. *Down*: it is fitted on all; parts are "
    "removed down to one and then added again. A part is larger than a sixtieth of the samples held, so that every "
    "step rebuilds all trees: distances of 0 are those of retraining. The table has the test accuracy after each "
    "step beside retraining on the same samples, ours and LightGBM's: the mean over the steps, and the mean and the "
    "largest distance to our retraining in points. *Seconds*: CPU time of all steps, and of our and LightGBM's "
    "retraining at each step."
)
HEAD = (
    "data:",
    "way:",
    "steps",
    "updated",
    "retrained",
    "LightGBM",
    "seconds",
    "retraining s",
    "LightGBM s",
    "largest distance",
    "mean distance",
)
SETS = ("adult", "optdigits", "pendigits", "covtype")
N_PARTS = 20
MOST_DISTANCE = 0.3
UP = ("up: added", "up: removed")
DOWN = ("down: removed", "down: added")
_STYLES = {
    "up: added": ("o-", "#0b6e4f"),
    "up: removed": ("o:", "#3fa37c"),
    "down: removed": ("s-", "#30638e"),
    "down: added": ("s:", "#7ba6c4"),
    "retrained": ("-", "#000000"),
    "LightGBM": ("--", "#d1495b"),
}


@dataclass
class Found:
    """Accuracies of a set by number of parts held, for each way and for retraining."""

    split: Split
    ways: dict[str, dict[int, float]] = field(default_factory=dict)
    retrained: dict[int, float] = field(default_factory=dict)
    lightgbm: dict[int, float] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)

    def distances(self, way: str) -> list[float]:
        """Distances to retraining, in points."""
        return [100 * abs(value - self.retrained[n]) for n, value in self.ways[way].items()]


def measure(load: Load, sets: Sequence[str], n_parts: int, kind: Kind = ONLINE) -> list[Found]:
    """Go both ways on each set."""
    found = []
    for name in sets:
        started = time.perf_counter()
        one = Found(load(name, 0))
        kind.warm_up(one.split)
        parts = np.array_split(np.random.default_rng(0).permutation(len(one.split)), n_parts)
        _retrain(one, parts, kind)
        _go(one, parts, kind, UP, first=1)
        _go(one, parts, kind, DOWN, first=n_parts)
        found.append(one)
        print(f"{name}: added and removed, {time.perf_counter() - started:.0f} s", flush=True)
    return found


def _accuracy(split: Split, model: Any) -> float:
    return 1 - split.error(model.predict(split.X_test))


def _retrain(found: Found, parts: Sequence[Indices], kind: Kind) -> None:
    split, view = found.split, LIGHTGBM.view(found.split)
    found.seconds |= {"retrained": 0.0, "LightGBM": 0.0}
    for n in range(1, len(parts) + 1):
        rows = np.concatenate(parts[:n])
        seconds, model = timed(lambda rows=rows: kind.fit(split, rows))
        found.retrained[n] = _accuracy(split, model)
        found.seconds["retrained"] += seconds
        trained = LIGHTGBM.train(split, view, kind.shape, rows)
        found.seconds["LightGBM"] += timed(trained.fit)[0]
        found.lightgbm[n] = 1 - split.error(trained.predict())


def _go(found: Found, parts: Sequence[Indices], kind: Kind, ways: tuple[str, str], first: int) -> None:
    """From `first` parts held to the other end and back."""
    split, n_parts = found.split, len(parts)
    model = kind.fit(split, np.concatenate(parts[:first]))
    for way in ways:
        adds = way.endswith("added")
        found.ways[way] = {first: _accuracy(split, model)}
        found.seconds[way] = 0.0
        for n in range(1, n_parts) if adds else range(n_parts - 1, 0, -1):
            rows = parts[n]
            X, y = split.table(rows), split.y[rows]
            work = (
                (lambda X=X, y=y, rows=rows: model.add(X, y, ids=names(rows)))
                if adds
                else (lambda rows=rows: model.delete(names(rows)))
            )
            found.seconds[way] += timed(work)[0]
            first = n + 1 if adds else n
            found.ways[way][first] = _accuracy(split, model)


def rows(found: Sequence[Found]) -> list[Row]:
    """One row a set and way."""
    return [
        Row(
            (
                one.split.name,
                way,
                str(len(accuracies) - 1),
                f"{np.mean(list(accuracies.values())):.4f}",
                f"{np.mean([one.retrained[n] for n in accuracies]):.4f}",
                f"{np.mean([one.lightgbm[n] for n in accuracies]):.4f}",
                f"{one.seconds[way]:.2f}",
                f"{one.seconds['retrained']:.2f}",
                f"{one.seconds['LightGBM']:.2f}",
                f"{max(one.distances(way)):.2f}",
            ),
            float(np.mean(one.distances(way))),
            at_most(MOST_DISTANCE),
        )
        for one in found
        for way, accuracies in one.ways.items()
    ]


def draw(found: Sequence[Found], path: Path) -> None:
    """Accuracy over the share held."""
    with figure(path, [one.split.name for one in found], "samples held, %", "test accuracy") as axes:
        for axis, one in zip(axes, found, strict=True):
            for name, curve in {"retrained": one.retrained, "LightGBM": one.lightgbm, **one.ways}.items():
                line, colour = _STYLES[name]
                shares = [100 * n / len(one.retrained) for n in curve]
                axis.plot(shares, list(curve.values()), line, color=colour, label=name, markersize=3, linewidth=1)
