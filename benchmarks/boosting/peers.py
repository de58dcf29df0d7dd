"""LightGBM, XGBoost and CatBoost as peers: the same trees, rate and number of rounds, otherwise their defaults.

Categories are given natively: as codes to LightGBM and XGBoost, as text to CatBoost; encoded beforehand, which does
not count in their times. A missing category is missing for the first two and a category of its own for CatBoost.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from benchmarks.boosting.datasets import REGRESSION, Indices, Split, Table, take
from benchmarks.boosting.kinds import Shape


@dataclass(frozen=True)
class View:
    """The rows of a set as a library takes them."""

    X: Table
    X_test: Table


@dataclass(frozen=True)
class Peer:
    """A library."""

    name: str
    module: str
    view: Callable[[Split], View]
    estimator: Callable[[Split, Shape, int], Any]
    fit_arguments: Callable[[Split], dict[str, Any]] = lambda _: {}

    @property
    def is_installed(self) -> bool:
        """Whether it can be imported."""
        return find_spec(self.module) is not None

    def train(self, split: Split, view: View, shape: Shape, rows: Indices | None = None, seed: int = 0) -> Trained:
        """Give what fits it on some rows, all when omitted; the rows are taken beforehand."""
        X, y = (view.X, split.y) if rows is None else (take(view.X, rows), split.y[rows])
        return Trained(self.estimator(split, shape, seed), X, y, view, self.fit_arguments(split))


@dataclass(frozen=True)
class Trained:
    """An estimator of a peer with its rows: `fit` is what is timed."""

    estimator: Any
    X: Table
    y: npt.NDArray[Any]
    view: View
    arguments: dict[str, Any]

    def fit(self) -> None:
        """Train from scratch."""
        self.estimator.fit(self.X, self.y, **self.arguments)

    def predict(self) -> npt.NDArray[Any]:
        """Predictions of the test part."""
        return np.ravel(self.estimator.predict(self.view.X_test))


def coded(split: Split) -> View:
    """Categories as codes in the order of their text; missing ones, and ones not in the training part, are missing."""
    if not isinstance(split.X, pd.DataFrame):
        return View(split.X, split.X_test)
    known = {column: pd.Index(sorted(split.X[column].dropna().unique())) for column in split.categorical}

    def code(frame: pd.DataFrame) -> npt.NDArray[np.float32]:
        codes = {column: values.get_indexer(frame[column]) for column, values in known.items()}
        numbers = frame.assign(**{column: np.where(found < 0, np.nan, found) for column, found in codes.items()})
        return np.ascontiguousarray(numbers.to_numpy(dtype=np.float32))

    return View(code(split.X), code(split.X_test))


def worded(split: Split) -> View:
    """Categories as text, a missing one as none at all."""
    if not isinstance(split.X, pd.DataFrame):
        return View(split.X, split.X_test)

    def word(frame: pd.DataFrame) -> pd.DataFrame:
        return frame.assign(**{column: frame[column].fillna("").astype(object) for column in split.categorical})

    return View(word(split.X), word(split.X_test))


def _positions(split: Split) -> list[int]:
    return [list(split.X).index(column) for column in split.categorical]


def _lightgbm(split: Split, shape: Shape, seed: int) -> Any:
    from lightgbm import LGBMClassifier, LGBMRegressor

    size = {"num_leaves": shape.max_leaves} if shape.max_leaves else _full_depth(shape)
    return (LGBMRegressor if split.task == REGRESSION else LGBMClassifier)(
        n_estimators=shape.n_estimators,
        learning_rate=shape.learning_rate,
        **size,
        n_jobs=1,
        num_threads=1,
        verbosity=-1,
        random_state=seed,
    )


def _full_depth(shape: Shape) -> dict[str, int]:
    depth = shape.max_depth or 0
    return {"num_leaves": 2**depth, "max_depth": depth}


def _xgboost(split: Split, shape: Shape, seed: int) -> Any:
    from xgboost import XGBClassifier, XGBRegressor

    if shape.max_leaves:
        size: dict[str, Any] = {"grow_policy": "lossguide", "max_leaves": shape.max_leaves, "max_depth": 0}
    else:
        size = {"max_depth": shape.max_depth}
    if split.categorical:
        kinds = ["c" if column in split.categorical else "q" for column in split.X]
        size |= {"feature_types": kinds, "enable_categorical": True}
    return (XGBRegressor if split.task == REGRESSION else XGBClassifier)(
        n_estimators=shape.n_estimators,
        learning_rate=shape.learning_rate,
        tree_method="hist",
        **size,
        n_jobs=1,
        verbosity=0,
        random_state=seed,
    )


def _catboost(split: Split, shape: Shape, seed: int) -> Any:
    from catboost import CatBoostClassifier, CatBoostRegressor

    if shape.max_leaves:
        size: dict[str, Any] = {"grow_policy": "Lossguide", "max_leaves": shape.max_leaves, "depth": 16}
    else:
        size = {"grow_policy": "Depthwise", "depth": shape.max_depth}
    return (CatBoostRegressor if split.task == REGRESSION else CatBoostClassifier)(
        iterations=shape.n_estimators,
        learning_rate=shape.learning_rate,
        **size,
        cat_features=_positions(split) or None,
        thread_count=1,
        verbose=False,
        allow_writing_files=False,
        random_seed=seed,
    )


def _categories_of_lightgbm(split: Split) -> dict[str, Any]:
    return {"categorical_feature": _positions(split)} if split.categorical else {}


LIGHTGBM = Peer("LightGBM", "lightgbm", coded, _lightgbm, _categories_of_lightgbm)
XGBOOST = Peer("XGBoost", "xgboost", coded, _xgboost)
CATBOOST = Peer("CatBoost", "catboost", worded, _catboost)
PEERS = (LIGHTGBM, XGBOOST, CATBOOST)
