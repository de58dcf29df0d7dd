"""Deleting a large share of the samples in one batch and predicting, beside a fresh fit on the rest."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from benchmarks.problems import Problem
from benchmarks.results import Mark, Row, at_most
from benchmarks.timing import cpu_seconds, median, rounds_of
from oubli.core import DynamicForestClassifier

TITLE = "Deleting a large batch"
TEXT = (
    "CPU seconds to delete a random share of the samples with one `delete(ids)` and to predict the test set, beside "
    "a fresh fit on the rest and the same prediction; in turn, medians of the rounds. Both end with the same "
    "predictions, which is checked. The model is a copy of one in use, with the index of its ids built beforehand."
)
HEAD = ("data:", "setting:", "deleted", "rounds", "delete s", "fresh fit s", "ratio")
SHARES = (0.1, 0.5, 0.9)
MARKS: dict[float, Mark] = {0.1: at_most(1.0), 0.5: at_most(1.0), 0.9: at_most(1.2)}


def rows(problem: Problem, setting: str, forest: DynamicForestClassifier, rounds: int, budget: float) -> list[Row]:
    """One row a share; a share gets no further round when its third of `budget` CPU seconds is used up."""
    found = []
    for share in SHARES:
        one_round = partial(_round, problem, setting, forest, share)
        seconds = rounds_of(one_round, rounds, budget / len(SHARES))
        deleting, fitting = median(s[0] for s in seconds), median(s[1] for s in seconds)
        cells = (problem.name, setting, f"{share:.0%}", str(len(seconds)), f"{deleting:.3f}", f"{fitting:.3f}")
        ratio = median(s[0] / s[1] for s in seconds)
        found.append(Row(cells, ratio, MARKS[share] if setting == "fast" else None))
    return found


def _round(
    problem: Problem, setting: str, forest: DynamicForestClassifier, share: float, seed: int
) -> tuple[float, float]:
    """CPU seconds of deleting and of a fresh fit, predictions included."""
    n = len(problem.y)
    chosen = np.random.default_rng(seed).permutation(n)[: round(share * n)]
    kept = np.setdiff1d(np.arange(n), chosen)
    X = problem.X.iloc[kept] if hasattr(problem.X, "iloc") else problem.X[kept]
    model, fresh = forest.copy(), problem.forest(setting)
    model.samples_.build_index()  # which the model in use has; a copy makes it at the first look-up
    doomed = [str(i) for i in chosen.tolist()]
    kept_ids = [str(i) for i in kept.tolist()]
    predictions: list[Any] = []

    def delete() -> None:
        model.delete(doomed)
        predictions.append(model.predict_proba(problem.X_test))

    def fit() -> None:
        fresh.fit(X, problem.y[kept], ids=kept_ids, categorical_features=problem.categorical)
        predictions.append(fresh.predict_proba(problem.X_test))

    seconds = cpu_seconds(delete), cpu_seconds(fit)
    if not np.array_equal(predictions[0], predictions[1]):
        raise AssertionError("deleting and a fresh fit predict differently")
    return seconds
