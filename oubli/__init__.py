"""Oubli: forests and boosted trees that learn and forget single samples, exactly, and others that do so nearly."""

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
