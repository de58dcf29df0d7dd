"""The data sets of the paper's experiments, one-hot for all systems, and the forest's parameters on them."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import higgs_like
from benchmarks.datasets import load
from benchmarks.problems import FAST, Labels, Matrix, one_hot
from oubli.core import DynamicForestClassifier

HIGGS_LIKE = "higgs-like"


@dataclass(frozen=True)
class Split:
    """A data set with its test part."""

    name: str
    X: Matrix
    y: Labels
    X_test: Matrix
    y_test: Labels

    @property
    def parameters(self) -> dict[str, Any]:
        """Those of the setting `fast`; the paper's p for the number of columns."""
        if self.name == HIGGS_LIKE:
            return FAST[self.name]
        return {**FAST["adult-one-hot"], "max_features": math.isqrt(self.X.shape[1]) + 1}

    def forest(self, seed: int = 0, **changed: Any) -> DynamicForestClassifier:
        """Our estimator, not fitted."""
        return DynamicForestClassifier(random_state=seed, **{**self.parameters, **changed})

    def peers(self, seed: int = 0) -> dict[str, Any]:
        """scikit-learn's forests, not fitted: as many trees as a sample goes to on higgs-like, else as many as ours."""
        from sklearn.ensemble import ExtraTreesClassifier, RandomForestClassifier

        parameters = self.parameters
        common = {
            "n_estimators": 10 if self.name == HIGGS_LIKE else parameters["n_estimators"],
            "max_depth": 20,
            "min_samples_split": parameters["min_samples_split"],
            "random_state": seed,
            "n_jobs": 1,
        }
        return {"ExtraTrees": ExtraTreesClassifier(**common), "RandomForest": RandomForestClassifier(**common)}


def load_split(name: str, data: Path, cache: Path, seed: int = 0, n_rows: int | None = None) -> Split:
    """Read a data set: the given split, or a stratified fifth for testing that the seed decides.

    Parameters
    ----------
    name
        `higgs-like` or one of `benchmarks.datasets.SOURCES`.
    data, cache
        Directories of the files and of what is generated.
    seed
        Decides the split where none is given.
    n_rows
        Training rows to keep, the first ones; all when omitted.
    """
    if name == HIGGS_LIKE:
        held = higgs_like.load(cache, n_rows or higgs_like.N_TRAIN, min(n_rows or higgs_like.N_TEST, higgs_like.N_TEST))
        return Split(name, held.X, held.y, held.X_test, held.y_test)
    held_set = load(name, data)
    X, y = one_hot(held_set.X), np.unique(held_set.y, return_inverse=True)[1]
    train, test = next(held_set.splits(seed, 5))
    return Split(name, X[train][:n_rows], y[train][:n_rows], X[test][:n_rows], y[test][:n_rows])


def accuracy(estimator: Any, split: Split) -> float:
    """Share of right predictions on the test part."""
    return float((estimator.predict(split.X_test) == split.y_test).mean())


def ready_copy(forest: DynamicForestClassifier) -> DynamicForestClassifier:
    """A copy that has made its table of ids, which the first question would do."""
    copy = forest.copy()
    copy.holds("0")
    return copy
