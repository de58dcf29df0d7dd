"""Estimators whose trees are given to them: what is tested is everything but the growing."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from oubli.core.boosting.model import BoostedClassifier, BoostedModel, BoostedRegressor
from oubli.core.boosting.state import Trees, no_trees


@dataclass(frozen=True)
class Settings:
    """Nothing to set."""

    seed: int = 0

    def parameters(self) -> dict[str, Any]:
        """What decides the trees."""
        return {"random_state": self.seed}


class GivenTrees:
    """An engine that never grows anything."""

    def __init__(self, *_: Any) -> None:
        self.trees: Trees = no_trees()

    def grow(self, *_: Any) -> None:
        """Leave the trees as they are."""

    add = delete = grow


class _Given(BoostedModel):
    kind = "given"
    guarantee = "exact"

    def __init__(self, *, random_state: Any = 0) -> None:
        self.random_state = random_state

    @classmethod
    def read_parameters(cls, parameters: Mapping[str, Any]) -> Settings:
        return Settings(parameters["random_state"])

    @staticmethod
    def _engine_type(settings: Any) -> type[GivenTrees]:
        return GivenTrees

    def _is_grown_with(self, slots: Any) -> bool:
        return False

    def _is_grown_without(self, slots: Any) -> bool:
        return False

    def _seconds_of(self, n_changed: int) -> float:
        return 0.0

    def scrub(self) -> None:
        """Leave the trees as they are."""

    def with_trees(self, trees: Trees) -> _Given:
        """Predict from these trees from now on."""
        self.engine_.trees = trees
        return self


class GivenClassifier(_Given, BoostedClassifier):
    """For classes."""


class GivenRegressor(_Given, BoostedRegressor):
    """For numbers."""
