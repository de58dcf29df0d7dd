"""Columns with many categories: exact boosting with and without statistics of the labels, beside LightGBM.

Made sets are skewed: of a column with c categories the k-th has a share of about k^-s. Each category has an effect
drawn from a normal distribution; beside them there are four numbers, and noise.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd
from sklearn.metrics import roc_auc_score

from benchmarks.boosting.datasets import REGRESSION, Load, Split
from benchmarks.boosting.exactness import fresh_seconds
from benchmarks.boosting.kinds import INCREMENTAL, Shape, names
from benchmarks.boosting.peers import LIGHTGBM
from benchmarks.boosting.quantising import auc, mean
from benchmarks.results import Row, at_least
from benchmarks.timing import cpu_seconds, median

NAME = "categories"
TITLE = "columns with many categories"
TEXT = (
    "Quantised `incremental-boosting` with the defaults (*with*), with `category_statistics=None` (*without*), and "
    "LightGBM with 31 leaves, on at most 16,000 training rows: AUC for two classes, accuracy for more, R2 for numbers; "
    "mean over the rounds. Categories: of the largest column. A deletion is one of a random sample, mean; its fit is "
    "that of the samples held, median. *Points* are those of *with* less LightGBM's."
)
HEAD = ("data:", "rows", "categories", "with", "without", "LightGBM", "fit s, with", "fit s, without", "ms a deletion",
        "recoded", "what:", "figure")  # fmt: skip
SETS = ("adult", "diabetes", "kddcup99", "noshow")
N_ROWS = 16_000
MADE = {  # name: classes (0: numbers), categories of the columns, s
    "made, 3,000 and 1,000": (2, (3_000, 1_000), 0.6),
    "made, 7,500, 600 and 50": (2, (7_500, 600, 50), 0.9),
    "made, 2,000 and 700, four classes": (4, (2_000, 700), 0.8),
    "made, 3,000 and 600, numbers": (0, (3_000, 600), 0.8),
}


@dataclass
class Found:
    """What the rounds gave on a set."""

    split: Split
    scores: dict[str, list[float]] = field(default_factory=lambda: {"with": [], "without": [], "LightGBM": []})
    fits: dict[str, list[float]] = field(default_factory=lambda: {"with": [], "without": []})
    seconds: list[float] = field(default_factory=list)
    recoded: list[float] = field(default_factory=list)


def make(name: str, seed: int, n_rows: int) -> Split:
    """Draw a made set: a fourth more rows than asked for, which are the test part."""
    n_classes, sizes, skew = MADE[name]
    rng, n = np.random.default_rng([seed, list(MADE).index(name)]), n_rows + n_rows // 4
    columns: dict[str, Any] = {f"x{j}": rng.integers(-128, 129, n) / 64 for j in range(4)}
    score = columns["x0"] + columns["x1"] * columns["x2"] + rng.logistic(size=n)
    for j, size in enumerate(sizes):
        shares = 1 / np.arange(1, size + 1) ** skew
        drawn = rng.choice(size, n, p=shares / shares.sum())
        score += rng.normal(size=size)[drawn]
        columns[f"c{j}"] = [f"value {i}" for i in drawn]
    y = np.digitize(score, np.quantile(score, np.arange(1, n_classes) / n_classes)) if n_classes else score
    X, task = pd.DataFrame(columns), {0: REGRESSION, 2: "binary"}.get(n_classes, "multiclass")
    categorical = [f"c{j}" for j in range(len(sizes))]
    return Split(name, task, X[:n_rows], y[:n_rows], X[n_rows:].reset_index(drop=True), y[n_rows:], categorical)


Splits = Mapping[str, Callable[[int], Split]]  # by name, how a set is split, given a seed


def splits(load: Load, sets: Sequence[str], n_rows: int | None) -> Splits:
    """How sets are read and drawn, and the made ones."""
    most = n_rows or N_ROWS
    read = {name: lambda seed, name=name: load(name, seed).drawn(most, seed) for name in sets}
    return read | {name: lambda seed, name=name: make(name, seed, most) for name in MADE}


def measure(splits: Splits, rounds: int, n_singles: int) -> list[Found]:
    """Fit all three on each set, and delete; a round has its own seed and split."""
    found = []
    for name, split_of in splits.items():
        started = time.perf_counter()
        for seed in range(rounds):
            split = split_of(seed)
            if not seed:
                one = Found(split)
                for least in (48, None):
                    INCREMENTAL.warm_up(split, category_statistics=least)
            _one_round(one, split, seed, n_singles // rounds)
        found.append(one)
        print(f"{name}: {time.perf_counter() - started:.0f} s", flush=True)
    return found


def _one_round(found: Found, split: Split, seed: int, n: int) -> None:
    for mode, changed in (("without", {"category_statistics": None}), ("with", {})):
        model = INCREMENTAL.fit(split, seed=seed, **changed)
        is_binary = split.task == "binary"
        found.scores[mode].append(auc(model, split) if is_binary else _score(split, model.predict(split.X_test)))
        found.fits[mode].append(fresh_seconds(model))
    for name in names(np.random.default_rng(seed).choice(len(split), min(n, len(split) // 2), replace=False)):
        found.seconds.append(cpu_seconds(lambda name=name: model.delete(name), collect=False))
        found.recoded.append(model.engine_.last_update.n_recoded)
    if LIGHTGBM.is_installed:
        theirs = LIGHTGBM.train(split, LIGHTGBM.view(split), Shape(max_leaves=31), seed=seed)
        theirs.fit()
        if split.task == "binary":
            probabilities = theirs.estimator.predict_proba(theirs.view.X_test)[:, 1]
            found.scores["LightGBM"].append(float(roc_auc_score(split.y_test, probabilities)))
        else:
            found.scores["LightGBM"].append(_score(split, theirs.predict()))


def _score(split: Split, predicted: Any) -> float:
    return 1 - split.points(split.error(predicted)) / 100


def cells(found: Found) -> tuple[str, ...]:
    """What a row says of a set."""
    split, theirs = found.split, found.scores["LightGBM"]
    return (
        split.name,
        f"{len(split):,}",
        f"{max((split.X[column].nunique() for column in split.categorical), default=0):,}",
        f"{mean(found.scores['with']):.4f}",
        f"{mean(found.scores['without']):.4f}",
        f"{mean(theirs):.4f}" if theirs else "",
        f"{median(found.fits['with']):.2f}",
        f"{median(found.fits['without']):.2f}",
        f"{1e3 * mean(found.seconds):.1f}",
        f"{mean(found.recoded):.1f}",
    )


def points(found: Found) -> list[Row]:
    """The row of the points between LightGBM and ours, if it is installed."""
    theirs = found.scores["LightGBM"]
    gap = 100 * (mean(found.scores["with"]) - mean(theirs)) if theirs else 0.0
    return [Row((*cells(found), "points"), gap, at_least(-1))] if theirs else []


def times_faster(found: Found) -> float:
    """A fit by a deletion."""
    return median(found.fits["with"]) / mean(found.seconds)


def rows(found: Sequence[Found]) -> list[Row]:
    """Two rows a set."""
    deletions = [Row((*cells(one), "times faster"), times_faster(one), at_least(4)) for one in found]
    return [row for one, deletion in zip(found, deletions, strict=True) for row in (*points(one), deletion)]
