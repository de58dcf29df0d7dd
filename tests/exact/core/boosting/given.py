"""Estimators whose trees are given to them: what is tested is everything but the growing."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from oubli.core.boosting.engine import BoostedEngine
from oubli.core.boosting.estimator import BoostedModel
from oubli.core.boosting.state import Trees, no_trees
from oubli.core.estimators import Classifier, Regressor


@dataclass(frozen=True)
class Settings:
    """Nothing to set."""

    seed: int = 0

    def to_dict(self) -> dict[str, Any]:
        """What decides the trees."""
        return {"random_state": self.seed}


class GivenTrees(BoostedEngine):
    """An engine that never grows anything."""

    trees: Trees = no_trees()  # type: ignore[assignment]

    def fit(self, *_: Any, **__: Any) -> None:
        """Leave the trees as they are."""

    add = delete = fit


GivenTrees.__abstractmethods__ = frozenset()  # type: ignore[attr-defined]


class _Given(BoostedModel):
    kind = "given"
    guarantee = "exact"

    def __init__(self, *, random_state: Any = 0) -> None:
        self.random_state = random_state

    @classmethod
    def read_settings(cls, parameters: Mapping[str, Any], schema: Any) -> Settings:
        return Settings(parameters["random_state"])

    @staticmethod
    def engine_type(settings: Any) -> type[GivenTrees]:
        return GivenTrees

    def with_trees(self, trees: Trees) -> _Given:
        """Predict from these trees from now on."""
        self.engine_.trees = trees
        return self


class GivenClassifier(_Given, Classifier):
    """For classes."""


class GivenRegressor(_Given, Regressor):
    """For numbers."""
