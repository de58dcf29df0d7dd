"""Time to unlearn a batch by its size, beside one by one and retraining (the paper's Figure 6)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import numpy as np

from benchmarks.paper.figures import COLOURS, figure
from benchmarks.paper.sets import Split, ready_copy
from benchmarks.results import Row
from benchmarks.timing import cpu_seconds, median
from oubli.core import DynamicForestClassifier

NAME = "batch-size"
TITLE = "batch time by size"
TEXT = (
    "CPU seconds to unlearn a random batch from higgs-like with the parameters of `fast`. *Lazily*: `delete(ids)`, "
    "and the `resolve()` that does the deferred work. *One by one*: each delete is followed by its own `resolve()`. "
    "Beside them, retraining on the rest: ours, and scikit-learn's with 10 trees. Medians of the rounds; *one by "
    "one* and retraining are measured once, for some sizes. *Share* is lazy unlearning divided by the fastest "
    "retraining at that size or, where none was measured, at the smallest size."
)
HEAD = (
    "batch",
    "rounds",
    "oubli, lazily s",
    "one by one s",
    "oubli, retrained s",
    "ExtraTrees s",
    "RandomForest s",
    "share",
)
SIZES = (1, 10, 100, 1_000, 10_000, 50_000, 125_000, 250_000)
ONE_BY_ONE_UP_TO = 1_000
RETRAINED = ("oubli, retrained", "ExtraTrees", "RandomForest")


@dataclass
class Found:
    """CPU seconds by batch size; and of the other ways by name and size."""

    n_rows: int
    rounds: int
    lazily: dict[int, float] = field(default_factory=dict)
    one_by_one: dict[int, float] = field(default_factory=dict)
    retraining: dict[str, dict[int, float]] = field(default_factory=lambda: {name: {} for name in RETRAINED})

    def share(self, size: int) -> float:
        """Lazy unlearning by the fastest retraining."""
        at = size if size in self.retraining[RETRAINED[0]] else min(self.lazily)
        return self.lazily[size] / min(times[at] for times in self.retraining.values())


def measure(split: Split, sizes: Sequence[int], rounds: int) -> Found:
    """Unlearn from copies of one model."""
    found = Found(len(split.y), rounds)
    split.forest().fit(split.X[:2000], split.y[:2000]).delete(["0"])
    forest = split.forest().fit(split.X, split.y)
    _lazily(forest, _batch(split, 1, rounds))  # compiles what is not yet
    for size in sizes:
        batches = [_batch(split, size, number) for number in range(rounds)]
        found.lazily[size] = median(_lazily(forest, batch) for batch in batches)
        if size <= ONE_BY_ONE_UP_TO:
            found.one_by_one[size] = _one_by_one(forest, batches[0])
    for size in (sizes[0], sizes[-1]):
        rest = np.setdiff1d(np.arange(len(split.y)), np.array(_batch(split, size, 0), dtype=np.int64))
        X, y = split.X[rest], split.y[rest]
        for name, estimator in {RETRAINED[0]: split.forest(), **split.peers()}.items():
            found.retraining[name][size] = cpu_seconds(partial(estimator.fit, X, y))
    return found


def _batch(split: Split, size: int, seed: int) -> list[str]:
    return [str(i) for i in np.random.default_rng(seed).choice(len(split.y), size, replace=False).tolist()]


def _lazily(forest: DynamicForestClassifier, batch: list[str]) -> float:
    model = ready_copy(forest)

    def work() -> None:
        model.delete(batch)
        model.resolve()

    return cpu_seconds(work)


def _one_by_one(forest: DynamicForestClassifier, batch: list[str]) -> float:
    model = ready_copy(forest)

    def work() -> None:
        for i in batch:
            model.delete(i)
            model.resolve()

    return cpu_seconds(work)


def rows(found: Found) -> list[Row]:
    """One row a size."""

    def cell(times: dict[int, float], size: int) -> str:
        return f"{times[size]:.4f}" if size in times else ""

    return [
        Row(
            (
                f"{size:,}",
                str(found.rounds),
                f"{seconds:.4f}",
                cell(found.one_by_one, size),
                *(cell(found.retraining[name], size) for name in RETRAINED),
            ),
            found.share(size),
        )
        for size, seconds in found.lazily.items()
    ]


def draw(found: Found, path: Path) -> None:
    """Time over size, both logarithmic."""
    with figure(path, [f"higgs-like, {found.n_rows:,} rows"], "batch size", "CPU seconds") as (axis,):
        axis.plot(*_points(found.lazily), "o-", color=COLOURS["oubli"], label="oubli, lazily")
        axis.plot(*_points(found.one_by_one), "^:", color=COLOURS["oubli"], label="oubli, one by one")
        for name, times in found.retraining.items():
            label = name if name.startswith("oubli") else f"{name}, retrained"
            axis.plot(*_points(times), "--", color=COLOURS[name], label=label)
        axis.set_xscale("log")
        axis.set_yscale("log")


def _points(times: dict[int, float]) -> tuple[list[int], list[float]]:
    return list(times), list(times.values())
