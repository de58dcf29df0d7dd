"""The data sets of the influence benchmark, and the model on them.

The paper takes Adult, Amazon and Upselling; Adult is here, and two more sets of two classes that are at hand: purchase
and Electricity. Labels are 0 and 1. The model has the paper's parameters for Adult: 100 trees of depth 6, learning rate
0.2, Newton leaves; it is incremental boosting without quantization, which is what gradient boosting is elsewhere.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from benchmarks.datasets import load
from oubli.core import IncrementalBoostingClassifier

SETS = ("adult", "purchase", "electricity")
COLOURS = {"adult": "#0b6e4f", "purchase": "#d1495b", "electricity": "#30638e"}
UPDATE_SETS: dict[str, Any] = {
    "SinglePoint": "single",
    "Top1Leaves": 1,
    "Top2Leaves": 2,
    "Top8Leaves": 8,
    "Top22Leaves": 22,
    "AllPoints": "all",
}
FLIPPED_SHARE = 4_000 / 32_561  # the paper flips 4,000 labels of Adult
_N_ELECTRICITY = 20_000  # rows that train; they are in the order of time
_TEST_SHARE = 0.25
_N_FOLDS = 10

Labels = npt.NDArray[np.int64]
Reals = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Problem:
    """A data set of two classes, split."""

    name: str
    X: pd.DataFrame
    y: Labels
    X_test: pd.DataFrame
    y_test: Labels
    categorical: list[str]

    @property
    def n(self) -> int:
        """Training samples."""
        return len(self.y)

    def fit(self, rows: npt.NDArray[np.intp] | None = None, *, depth: int = 6) -> IncrementalBoostingClassifier:
        """The model on some of the training rows, all when omitted; ids are the rows' positions."""
        model = IncrementalBoostingClassifier(
            100, max_depth=depth, learning_rate=0.2, quantization=None, random_state=0
        )
        rows = np.arange(self.n) if rows is None else rows
        return model.fit(self.X.iloc[rows], self.y[rows], ids=rows.tolist(), categorical_features=self.categorical)

    def with_noise(self, seed: int) -> tuple[Problem, npt.NDArray[np.bool_]]:
        """The same with flipped labels, and which they are."""
        rng = np.random.default_rng(seed)
        is_flipped = np.zeros(self.n, np.bool_)
        is_flipped[rng.choice(self.n, round(FLIPPED_SHARE * self.n), replace=False)] = True
        return replace(self, y=np.where(is_flipped, 1 - self.y, self.y)), is_flipped

    def with_rates(self) -> Problem:
        """The same with numbers for categories, as the code that goes with the paper has them.

        Each becomes the mean label of the training samples of its category, for a training sample of those in the
        other nine of ten folds; one that these do not have, and a missing value, become that of a category of its own
        or the mean of all.
        """
        X, X_test = self.X.copy(), self.X_test.copy()
        fold = np.random.default_rng(0).integers(0, _N_FOLDS, self.n)
        mean = float(self.y.mean())
        for name in self.categorical:
            values, asked = (frame[name].astype(object).fillna("") for frame in (self.X, self.X_test))
            rates = np.empty(self.n)
            for k in range(_N_FOLDS):
                known = _rates(values[fold != k], self.y[fold != k])
                rates[fold == k] = values[fold == k].map(known).fillna(mean)
            X[name], X_test[name] = rates, asked.map(_rates(values, self.y)).fillna(mean).astype(np.float64)
        return replace(self, X=X.astype(np.float32), X_test=X_test.astype(np.float32), categorical=[])

    def test_rows(self, n: int, seed: int) -> tuple[pd.DataFrame, Labels]:
        """Some test rows at random, or all."""
        if n >= len(self.y_test):
            return self.X_test, self.y_test
        rows = np.random.default_rng(seed).choice(len(self.y_test), n, replace=False)
        return self.X_test.iloc[rows], self.y_test[rows]


def _rates(values: pd.Series, y: Labels) -> pd.Series:
    """Mean label of each value."""
    return pd.Series(y, index=values.index).groupby(values).mean()


def load_problem(name: str, data: Path, n_rows: int | None = None) -> Problem:
    """Read a data set; only so many training and test rows when that is said."""
    found = load(name, data)
    y = np.unique(found.y.astype(str), return_inverse=True)[1].astype(np.int64)
    if found.n_train is not None:
        train, test = np.arange(found.n_train), np.arange(found.n_train, len(y))
    else:
        order = np.random.default_rng(0).permutation(len(y))
        n_test = int(_TEST_SHARE * len(y))
        train, test = order[n_test:], order[:n_test]
        if name == "electricity":
            train = train[:_N_ELECTRICITY]
    train, test = train[:n_rows], test[:n_rows]
    return Problem(
        name,
        found.X.iloc[train].reset_index(drop=True),
        y[train],
        found.X.iloc[test].reset_index(drop=True),
        y[test],
        list(found.source.categorical),
    )


def log_losses(model: Any, X: pd.DataFrame, y: Labels) -> Reals:
    """Log-loss of each row, probabilities clipped to [1e-15, 1]; a label that the model does not hold has none."""
    shares = np.zeros((len(y), 2))
    shares[:, np.asarray(model.classes_, np.int64)] = model.predict_proba(X)
    losses: Reals = -np.log(np.clip(shares[np.arange(len(y)), y], 1e-15, 1.0))
    return losses


def area_under_curve(scores: Reals, is_positive: npt.NDArray[np.bool_]) -> float:
    """ROC-AUC of scores that should be high for the positive ones."""
    from sklearn.metrics import roc_auc_score

    return float(roc_auc_score(is_positive, scores))
