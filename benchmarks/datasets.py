"""The data sets of the accuracy benchmark, and how each is split.

Files are gzip CSV with the label in the last column, an empty field for a missing value, and
categorical columns as text or codes. Nothing else is a missing value: `None` and `unknown` are
categories, so pandas' own list of missing-value words is switched off.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
from numpy.typing import NDArray

Indices = NDArray[np.intp]


@dataclass(frozen=True)
class Source:
    """A data set: its files, its task, and the columns whose values are categories."""

    files: tuple[str, ...]  # one file: cross-validation; two: the given train and test parts
    task: str  # "binary", "multiclass" or "regression"
    categorical: tuple[str, ...] = ()

    @property
    def metric(self) -> str:
        """The metric that the gaps are stated in."""
        return {"binary": "AUC", "multiclass": "accuracy", "regression": "R2"}[self.task]


SOURCES = {
    "adult": Source(
        ("adult_train.csv.gz", "adult_test.csv.gz"),
        "binary",
        (
            "workclass",
            "education",
            "marital_status",
            "occupation",
            "relationship",
            "race",
            "sex",
            "native_country",
        ),
    ),
    "heart": Source(("heart.csv.gz",), "binary", ("gender", "cholesterol", "gluc")),
    "purchase": Source(
        ("purchase.csv.gz",),
        "binary",
        (
            "Month",
            "OperatingSystems",
            "Browser",
            "Region",
            "TrafficType",
            "VisitorType",
            "Weekend",
        ),
    ),
    "electricity": Source(("electricity.csv.gz",), "binary", ("day",)),
    "letter": Source(("letter.csv.gz",), "multiclass"),
    "covtype": Source(("covtype.csv.gz",), "multiclass"),
    "abalone": Source(("abalone.csv.gz",), "regression", ("sex",)),
    "california_housing": Source(("california_housing.csv.gz",), "regression", ("ocean_proximity",)),
}


@dataclass(frozen=True)
class Data:
    """A data set in memory."""

    source: Source
    X: pd.DataFrame  # categorical columns: text or None; the others: float64
    y: NDArray[np.generic]  # text for classification, float64 for regression
    n_train: int | None  # rows of the given training part, which come first; None: no given split

    def splits(self, seed: int, n_folds: int) -> Iterator[tuple[Indices, Indices]]:
        """Yield (train, test) row indices: the given split once, or shuffled folds.

        Folds of a classification task are stratified.
        """
        from sklearn.model_selection import KFold, StratifiedKFold

        if self.n_train is not None:
            yield np.arange(self.n_train), np.arange(self.n_train, len(self.y))
            return
        kind = KFold if self.source.task == "regression" else StratifiedKFold
        yield from kind(n_folds, shuffle=True, random_state=seed).split(self.X, self.y)


def load(name: str, directory: Path) -> Data:
    """Read one data set."""
    return read(SOURCES[name], directory)


def read(source: Source, directory: Path) -> Data:
    """Read the files of a data set."""
    text = dict.fromkeys(source.categorical, str)
    if source.task != "regression":
        text["label"] = str
    parts = [pd.read_csv(directory / file, dtype=text, keep_default_na=False, na_values=[""]) for file in source.files]
    frame = pd.concat(parts, ignore_index=True)
    X = frame.drop(columns="label")
    for column in X:
        if column in source.categorical:
            X[column] = X[column].astype(object).where(X[column].notna(), None)
        else:
            X[column] = X[column].astype(np.float64)
    y = frame["label"].to_numpy()
    y = y.astype(np.float64) if source.task == "regression" else y.astype(str)
    return Data(source, X, y, len(parts[0]) if len(parts) == 2 else None)
