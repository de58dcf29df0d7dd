"""The algorithms: models that learn and forget single samples. Knows nothing of the service."""

from core.boosting.incremental.estimator import IncrementalBoostingClassifier, IncrementalBoostingRegressor
from core.boosting.online.estimator import OnlineBoostingClassifier, OnlineBoostingRegressor
from core.forest.estimator import DynamicForestClassifier, DynamicForestRegressor
from core.persistence import load
from core.tree.estimator import DynamicTreeClassifier

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
