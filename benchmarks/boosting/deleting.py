"""One exact deletion beside the model's own fit on every data set, with what quantisation costs in accuracy there."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from benchmarks.boosting.datasets import REGRESSION, Load, Split
from benchmarks.boosting.exactness import MARKS, NO_MARKS, fresh_seconds
from benchmarks.boosting.kinds import INCREMENTAL, UNQUANTISED, names, refit
from benchmarks.boosting.quantising import auc, mean
from benchmarks.results import Row, at_most
from benchmarks.timing import cpu_seconds, median

NAME = "deletion"
TITLE = "one deletion on every data set"
TEXT = (
    "Quantised `incremental-boosting` with the defaults: CPU time of one `delete`, mean over random samples, each of "
    "which is added back; beside it the model's own fit of the samples held, median. *Times faster* is the fit's time "
    'divided by that of a deletion. *Points lost* is what `quantization="auto"` loses on the test part beside `None`: '
    "of AUC for two classes, of accuracy for more, of R2 for numbers; mean over the rounds, each with its own seed "
    "and, where no split is given, its own split. The digest is compared with that of a fresh fit after the first "
    "deletion of each round."
)
HEAD = ("data:", "rows", "columns", "groups", "rounds", "deletions", "ms", "its fit ms", "auto", "None",
        "other digests", "what:", "figure")  # fmt: skip
MOST_LOST = 0.3


@dataclass
class Found:
    """What the rounds gave on a set."""

    split: Split
    groups: int = 0
    seconds: list[float] = field(default_factory=list)
    fits: list[float] = field(default_factory=list)
    auto: list[float] = field(default_factory=list)
    none: list[float] = field(default_factory=list)
    different: int = 0


def measure(load: Load, sets: Sequence[str], rounds: int, n_singles: int, budget: float) -> list[Found]:
    """Fit with and without quantisation, and delete.

    Parameters
    ----------
    load, sets
        Where the sets come from, and which.
    rounds
        With a seed each.
    n_singles
        Samples deleted, over all rounds.
    budget
        CPU seconds of a set after which no further round begins, and of its deletions.
    """
    found = []
    for name in sets:
        started, began = time.perf_counter(), time.process_time()
        one = Found(load(name, 0))
        for kind in (INCREMENTAL, UNQUANTISED):
            kind.warm_up(one.split)
        for seed in range(rounds):
            if seed and time.process_time() - began > budget:
                break
            _one_round(one, load(name, seed) if seed else one.split, seed, n_singles // rounds, budget / rounds)
        found.append(one)
        print(f"{name}: one deletion, {time.perf_counter() - started:.0f} s", flush=True)
    return found


def _one_round(found: Found, split: Split, seed: int, n: int, budget: float) -> None:
    found.none.append(_score(UNQUANTISED.fit(split, seed=seed), split))
    model = INCREMENTAL.fit(split, seed=seed)
    found.groups = model.n_trees_ // model.n_estimators
    found.auto.append(_score(model, split))
    found.fits.append(fresh_seconds(model))
    rows = np.random.default_rng(seed).choice(len(split), min(n, len(split)), replace=False)
    spent = 0.0
    for number, table in enumerate(split.one_row_tables(rows)):
        row = rows[number : number + 1]
        (name,), label = names(row), split.y[row]
        seconds = cpu_seconds(lambda model=model, name=name: model.delete(name), collect=False)
        found.seconds.append(seconds)
        spent += seconds
        if number == 0:
            found.different += model.digest() != refit(model).digest()
        if spent > budget:
            break
        model.add(table, label, ids=[name])


def _score(model: Any, split: Split) -> float:
    """AUC, accuracy or R2."""
    if split.task == "binary":
        return auc(model, split)
    return 1 - split.points(split.error(model.predict(split.X_test))) / 100


def rows(found: Sequence[Found]) -> list[Row]:
    """Two rows a set."""
    result = []
    for one in found:
        n_columns = one.split.X.shape[1]
        cells = (
            one.split.name + (", R2" if one.split.task == REGRESSION else ""),
            f"{len(one.split):,}",
            str(n_columns),
            str(one.groups),
            str(len(one.fits)),
            str(len(one.seconds)),
            f"{1e3 * mean(one.seconds):.2f}",
            f"{1e3 * median(one.fits):.0f}",
            f"{mean(one.auto):.4f}",
            f"{mean(one.none):.4f}",
            str(one.different),
        )
        _, mark = MARKS.get(one.split.name, NO_MARKS)
        result += [
            Row((*cells, "times faster"), median(one.fits) / mean(one.seconds), mark),
            Row((*cells, "points lost"), 100 * (mean(one.none) - mean(one.auto)), at_most(MOST_LOST)),
        ]
    return result
