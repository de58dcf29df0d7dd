"""Our two kinds of boosting, and the trees that each is compared with."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from benchmarks.boosting.datasets import REGRESSION, Indices, Split
from oubli.core.boosting.incremental.estimator import IncrementalBoostingClassifier, IncrementalBoostingRegressor
from oubli.core.boosting.online.estimator import OnlineBoostingClassifier, OnlineBoostingRegressor

WARM_UP_ROWS = 2_000
N_ESTIMATORS = 100
LEARNING_RATE = 0.1


@dataclass(frozen=True)
class Shape:
    """The trees that all systems grow: so many leaves, best first, or all nodes down to a depth."""

    max_leaves: int | None = None
    max_depth: int | None = None
    n_estimators: int = N_ESTIMATORS
    learning_rate: float = LEARNING_RATE

    def __str__(self) -> str:
        """The size of a tree in words."""
        return f"{self.max_leaves} leaves" if self.max_leaves else f"depth {self.max_depth}"


@dataclass(frozen=True)
class Kind:
    """One of our kinds."""

    name: str
    classifier: Callable[..., Any]
    regressor: Callable[..., Any]
    shape: Shape
    is_exact: bool
    parameters: Mapping[str, Any] = field(default_factory=dict, hash=False)

    def estimator(self, task: str, seed: int = 0, **changed: Any) -> Any:
        """Our estimator, not fitted."""
        estimator = self.regressor if task == REGRESSION else self.classifier
        size = (
            {"max_leaf_nodes": self.shape.max_leaves} if self.shape.max_leaves else {"max_depth": self.shape.max_depth}
        )
        common = {"n_estimators": self.shape.n_estimators, "learning_rate": self.shape.learning_rate, **size}
        return estimator(random_state=seed, **{**common, **self.parameters, **changed})

    def fit(self, split: Split, rows: Indices | None = None, seed: int = 0, **changed: Any) -> Any:
        """Fit on some training rows, whose ids are their positions; all when omitted."""
        model = self.estimator(split.task, seed, **changed)
        if rows is None:
            return model.fit(split.X, split.y, categorical_features=split.categorical or None)
        return model.fit(
            split.table(rows), split.y[rows], ids=names(rows), categorical_features=split.categorical or None
        )

    def warm_up(self, split: Split, **changed: Any) -> None:
        """Compile every kernel that the measurements use, on a small model of the same parameters and types."""
        small = split.first(WARM_UP_ROWS)
        model = self.fit(small, **{"n_estimators": 10, **changed})
        n = len(small)
        rng = np.random.default_rng(0)
        for size in (1, 1, 1, 1, 1, n // 50, n // 3):
            rows = rng.choice(n, max(1, size), replace=False)
            model.delete(names(rows))
            model.add(small.table(rows), small.y[rows], ids=names(rows))
        row = rng.choice(n, 1)
        model.delete(names(row)[0])
        model.add(small.one_row_tables(row)[0], small.y[row], ids=names(row))
        model.digest()
        model.predict(small.X_test)
        model.predict(small.queries(row)[0])
        if small.task != REGRESSION:
            model.predict_proba(small.queries(row)[0])


_INCREMENTAL = ("incremental-boosting", IncrementalBoostingClassifier, IncrementalBoostingRegressor)
ONLINE = Kind(
    "online-boosting", OnlineBoostingClassifier, OnlineBoostingRegressor, Shape(max_leaves=20), is_exact=False
)
INCREMENTAL = Kind(*_INCREMENTAL, Shape(max_depth=5), is_exact=True)
UNQUANTISED = Kind(*_INCREMENTAL, Shape(max_depth=5), is_exact=True, parameters={"quantization": None})
KINDS = {kind.name: kind for kind in (ONLINE, INCREMENTAL)}


def names(rows: Indices) -> list[str]:
    """Ids of training rows."""
    return [str(row) for row in rows.tolist()]


def refit(model: Any) -> Any:
    """A fresh model of the same parameters, fitted on a copy of the samples that a model holds."""
    return unfitted(model).fit_held(model.samples_.copy())


def unfitted(model: Any) -> Any:
    """A model of the same parameters and seed, not fitted."""
    return type(model)(**{**model.get_params(), "random_state": model.seed_})
