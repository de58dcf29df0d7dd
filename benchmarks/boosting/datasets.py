"""The data sets of the boosting benchmarks: a training and a test part each, as they are or one-hot.

* `adult` and the others with categories: a table with text and missing values, for libraries that take them natively
* `adult-one-hot`, and sets of numbers only: float32, one row after the other, the same for all
* `higgs-like`: 500,000 made rows of 28 numbers (`higgs_like.py`)

Labels are class codes, 0, 1, ... in the order of the classes, or numbers.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from benchmarks import higgs_like
from benchmarks.datasets import SOURCES, Source, read
from benchmarks.problems import Matrix, one_hot, one_row_tables

Indices = npt.NDArray[np.integer[Any]]
Table = Matrix | pd.DataFrame

HIGGS_LIKE = "higgs-like"
ONE_HOT = "-one-hot"
REGRESSION = "regression"
_DIABETES = (
    "race gender age weight admission_type_id discharge_disposition_id admission_source_id payer_code "
    "medical_specialty diag_1 diag_2 diag_3 max_glu_serum A1Cresult metformin repaglinide nateglinide "
    "chlorpropamide glimepiride acetohexamide glipizide glyburide tolbutamide pioglitazone rosiglitazone "
    "acarbose miglitol troglitazone tolazamide examide citoglipton insulin glyburide-metformin "
    "glipizide-metformin glimepiride-pioglitazone metformin-rosiglitazone metformin-pioglitazone change "
    "diabetesMed"
)
_BANK = "job marital education default housing loan contact month day_of_week poutcome"
_VACCINE = "age_bracket qualification race sex income_level marital_status housing_status employment census_msa"
_MORE_SOURCES = {
    "bank": Source(("bank_additional.csv.gz",), "binary", tuple(_BANK.split())),
    "covtype-first": Source(("covtype_first20k.csv.gz",), "multiclass"),
    "diabetes": Source(("diabetes130.csv.gz",), "multiclass", tuple(_DIABETES.split())),
    "kddcup99": Source(("kddcup99_10pct.csv.gz",), "multiclass", ("protocol_type", "service", "flag")),
    "noshow": Source(("noshow.csv.gz",), "binary", ("gender", "neighbourhood")),
    "optdigits": Source(("optdigits_train.csv.gz", "optdigits_test.csv.gz"), "multiclass"),
    "pendigits": Source(("pendigits_train.csv.gz", "pendigits_test.csv.gz"), "multiclass"),
    "poker": Source(("poker_train.csv.gz",), "multiclass", ("s1", "s2", "s3", "s4", "s5")),
    "vaccine": Source(("vaccine.csv.gz",), "binary", tuple(_VACCINE.split())),
    "weather": Source(("weather.csv.gz",), "binary"),
    "wine": Source(("wine_quality_white.csv.gz",), REGRESSION),
}
SETS = (
    "adult",
    "adult-one-hot",
    "heart",
    "purchase",
    "optdigits",
    "pendigits",
    "letter",
    "covtype",
    "poker",
    "abalone",
    "wine",
    "california_housing",
    HIGGS_LIKE,
)
# All of the data there are, where a question is about every set.
ALL_SETS = (*SETS, "bank", "covtype-first", "diabetes", "electricity", "kddcup99", "noshow", "vaccine", "weather")
_UNITS = {"california_housing": 100_000.0}  # targets are divided by these


@dataclass(frozen=True)
class Split:
    """A data set with its test part."""

    name: str
    task: str  # "binary", "multiclass" or "regression"
    X: Table
    y: npt.NDArray[Any]
    X_test: Table
    y_test: npt.NDArray[Any]  # -1: a class that is not in the training part
    categorical: list[str] = field(default_factory=list)

    def __len__(self) -> int:
        """Number of training rows."""
        return len(self.y)

    def table(self, indices: Indices) -> Table:
        """Some training rows."""
        return take(self.X, indices)

    def one_row_tables(self, indices: Indices) -> list[Any]:
        """Each of some training rows as a table of one row, as a user has it."""
        return one_row_tables(self.X, indices)

    def queries(self, indices: Indices) -> list[Any]:
        """Each of some test rows as a table of one row; indices beyond the last begin again."""
        return one_row_tables(self.X_test, indices % len(self.y_test))

    def first(self, n_rows: int) -> Split:
        """The first training rows only, and at most as many test rows."""
        return self._some(np.arange(min(n_rows, len(self))), np.arange(min(n_rows, len(self.y_test))))

    def drawn(self, n_rows: int, seed: int) -> Split:
        """So many training and test rows at most, drawn at random: files are sorted by time or by class."""
        rng = np.random.default_rng(seed)
        trained, tested = (np.sort(rng.permutation(n)[:n_rows]) for n in (len(self), len(self.y_test)))
        return self._some(trained, tested)

    def _some(self, trained: Indices, tested: Indices) -> Split:
        X, X_test = numbered(self.table(trained)), numbered(take(self.X_test, tested))
        return replace(self, X=X, y=self.y[trained], X_test=X_test, y_test=self.y_test[tested])

    def error(self, predicted: npt.NDArray[Any]) -> float:
        """Test error: the share of wrong classes, or the mean squared error."""
        if self.task == REGRESSION:
            return float(((predicted - self.y_test) ** 2).mean())
        return float((predicted != self.y_test).mean())

    def points(self, difference: float) -> float:
        """A difference of errors in points: 100 x share of wrong classes, or 100 x R2."""
        return 100 * difference / (float(self.y_test.var()) if self.task == REGRESSION else 1.0)


Load = Callable[[str, int], Split]


def numbered(X: Table) -> Table:
    """A table whose rows have their positions as ids."""
    return X.reset_index(drop=True) if isinstance(X, pd.DataFrame) else X


def take(X: Table, indices: Indices) -> Table:
    """Some rows of a table."""
    return X.iloc[indices] if isinstance(X, pd.DataFrame) else X[indices]


def load_split(name: str, data: Path, cache: Path, seed: int = 0, n_rows: int | None = None) -> Split:
    """Read a data set: the given split, or a fifth for testing that the seed decides (stratified by class).

    Parameters
    ----------
    name
        One of `SETS`.
    data, cache
        Directories of the files and of what is generated.
    seed
        Decides the split where none is given.
    n_rows
        Training rows to keep, the first ones; all when omitted.
    """
    if name == HIGGS_LIKE:
        held = higgs_like.load(cache, n_rows or higgs_like.N_TRAIN, min(n_rows or higgs_like.N_TEST, higgs_like.N_TEST))
        return Split(name, "binary", held.X, held.y.astype(np.int64), held.X_test, held.y_test.astype(np.int64))
    base = name.removesuffix(ONE_HOT)
    source = _MORE_SOURCES.get(base) or SOURCES[base]
    held_set = read(source, data)
    X: Table = held_set.X
    categorical = list(source.categorical)
    if name.endswith(ONE_HOT) or not categorical:
        X, categorical = one_hot(held_set.X), []
    train, test = next(held_set.splits(seed, 5))
    train = train[:n_rows]
    y_train, y_test = held_set.y[train], held_set.y[test]
    if source.task == REGRESSION:
        unit = _UNITS.get(name, 1.0)
        y_train, y_test = y_train / unit, y_test / unit
    else:
        classes, y_train = np.unique(y_train, return_inverse=True)
        y_test = np.array([dict(zip(classes, range(len(classes)), strict=True)).get(label, -1) for label in y_test])
    split = Split(name, source.task, numbered(take(X, train)), y_train, take(X, test), y_test, categorical)
    return split.first(n_rows) if n_rows else split
