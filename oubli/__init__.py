"""Oubli: models that learn and forget single samples. Forests and incremental boosting do so exactly."""

from oubli.core import (
    DynamicForestClassifier,
    DynamicForestRegressor,
    DynamicTreeClassifier,
    IncrementalBoostingClassifier,
    IncrementalBoostingRegressor,
    OnlineBoostingClassifier,
    OnlineBoostingRegressor,
    load,
)

__all__ = [
    "DynamicForestClassifier",
    "DynamicForestRegressor",
    "DynamicTreeClassifier",
    "IncrementalBoostingClassifier",
    "IncrementalBoostingRegressor",
    "OnlineBoostingClassifier",
    "OnlineBoostingRegressor",
    "load",
]
