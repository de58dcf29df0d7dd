"""What the operations are measured on: data sets as each system takes them, and the forest's settings.

* `higgs-like`      500,000 rows of 28 numbers (`higgs_like.py`)
* `adult-one-hot`   Adult, 32,561 rows, categories one-hot: 108 numbers, the same for all systems
* `adult-native`    Adult as it is, 14 columns with text and missing values, for us; one-hot for the peers

The setting `fast` has `occurrence=0.1` and the parameters of the paper's runs; `defaults` has none.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from benchmarks import higgs_like
from benchmarks.datasets import load
from oubli.core import DynamicForestClassifier

PROBLEMS = ("higgs-like", "adult-one-hot", "adult-native")
SETTINGS = ("fast", "defaults")
WARM_UP_ROWS = 2_000

Matrix = npt.NDArray[np.float32]
Labels = npt.NDArray[Any]

# p is the paper's: floor(sqrt(d)) + 1.
_HIGGS_FAST = {
    "n_estimators": 100,
    "occurrence": 0.1,
    "max_depth": 30,
    "n_thresholds": 20,
    "max_features": 6,
    "min_samples_split": 10,
}
_ADULT_FAST = {**_HIGGS_FAST, "max_depth": 20, "n_thresholds": 30}
FAST: dict[str, dict[str, Any]] = {
    "higgs-like": _HIGGS_FAST,
    "adult-one-hot": {**_ADULT_FAST, "max_features": 11},
    "adult-native": {**_ADULT_FAST, "max_features": 4},
}
# The peer whose training is the unit: 10 trees where each sample goes to 10 trees, else scikit-learn's defaults.
ET10 = {"n_estimators": 10, "max_depth": 20, "min_samples_split": 10}
PEERS: dict[str, dict[str, Any]] = {"higgs-like": ET10, "adult-one-hot": {}, "adult-native": {}}


@dataclass(frozen=True)
class Problem:
    """A data set, as we take it and as the peers take it."""

    name: str
    X: Matrix | pd.DataFrame
    y: Labels
    X_test: Matrix | pd.DataFrame
    y_test: Labels
    encoded: Matrix
    encoded_test: Matrix
    categorical: list[str] | None = field(default=None)

    @property
    def is_adult(self) -> bool:
        """Whether the rows are Adult's, encoded or not."""
        return self.name.startswith("adult")

    @property
    def peer_name(self) -> str:
        """The peer whose training is the unit."""
        return "ET10" if self.name == "higgs-like" else "ExtraTrees(100)"

    def forest(self, setting: str, seed: int = 0) -> DynamicForestClassifier:
        """Our estimator, not fitted."""
        parameters = FAST[self.name] if setting == "fast" else {}
        return DynamicForestClassifier(random_state=seed, **parameters)

    def fit(self, forest: DynamicForestClassifier, n_rows: int | None = None) -> DynamicForestClassifier:
        """Fit our estimator on the first rows, all when omitted."""
        return forest.fit(self.X[:n_rows], self.y[:n_rows], categorical_features=self.categorical)

    def peer(self, seed: int = 0) -> Any:
        """scikit-learn's forest, not fitted."""
        from sklearn.ensemble import ExtraTreesClassifier

        return ExtraTreesClassifier(random_state=seed, n_jobs=1, **PEERS[self.name])

    def rows(self, indices: npt.ArrayLike) -> list[Any]:
        """Each of some training rows as a table of one row, as a user has it."""
        return one_row_tables(self.X, np.asarray(indices))

    def queries(self, indices: npt.ArrayLike) -> list[Any]:
        """Each of some test rows as a table of one row; indices beyond the last begin again."""
        return one_row_tables(self.X_test, np.asarray(indices) % len(self.y_test))


def one_row_tables(X: Matrix | pd.DataFrame, indices: npt.NDArray[Any]) -> list[Any]:
    """Rows as arrays of shape (1, d), or as lists of one list where there is text."""
    if isinstance(X, pd.DataFrame):
        return [[row] for row in X.iloc[indices].to_numpy(dtype=object).tolist()]
    return [X[i : i + 1] for i in indices.tolist()]


def one_hot(frame: pd.DataFrame) -> Matrix:
    """Text columns one-hot, a missing value being a category of its own; numbers as they are."""
    text = frame.columns[[not pd.api.types.is_numeric_dtype(dtype) for dtype in frame.dtypes]]
    filled = frame.assign(**{column: frame[column].fillna("") for column in text})
    # One row after the other, as every system reads them.
    return np.ascontiguousarray(pd.get_dummies(filled, columns=list(text)).to_numpy(dtype=np.float32))


def load_problem(name: str, data: Path, cache: Path, n_rows: int | None = None) -> Problem:
    """Read or generate a data set, or its first rows only.

    Parameters
    ----------
    name
        One of `PROBLEMS`.
    data
        Directory of the gzip CSV files.
    cache
        Directory that keeps what is generated.
    n_rows
        Training rows; all when omitted. There are then as many test rows at the most.
    """
    if name == "higgs-like":
        held = higgs_like.load(cache, n_rows or higgs_like.N_TRAIN, n_rows or higgs_like.N_TEST)
        return Problem(name, held.X, held.y, held.X_test, held.y_test, held.X, held.X_test)
    adult = load("adult", data)
    n_train = adult.n_train or 0
    encoded = one_hot(adult.X)
    train = slice(0, n_rows or n_train)
    test = slice(n_train, n_train + n_rows if n_rows else None)
    native = name == "adult-native"
    X: Any = adult.X if native else encoded
    return Problem(
        name,
        X[train],
        adult.y[train],
        X[test],
        adult.y[test],
        encoded[train],
        encoded[test],
        list(adult.source.categorical) if native else None,
    )


def warm_up(problem: Problem, setting: str) -> None:
    """Compile every kernel that the measurements use, on a small model of the same parameters and types."""
    forest = problem.fit(problem.forest(setting), WARM_UP_ROWS)
    row, label, query = problem.rows([0])[0], problem.y[:1], problem.queries([0])[0]
    for _ in range(2):
        forest.delete("0")
        forest.predict_proba(query)
        forest.add(row, label, ids=["0"])
        forest.resolve(max_tags=1)
        forest.resolve()
        forest.predict_proba(query)
    forest.copy().delete([str(i) for i in range(forest.n_samples_ // 2)])
    forest.predict_proba(problem.X_test[:100])
    forest.predict(problem.X_test[:100])
