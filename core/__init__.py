"""The algorithms: models that learn and forget single samples. Knows nothing of the service."""

from core.forest.estimator import DynamicForestClassifier, DynamicForestRegressor
from core.persistence import load
from core.tree.estimator import DynamicTreeClassifier

__all__ = ["DynamicForestClassifier", "DynamicForestRegressor", "DynamicTreeClassifier", "load"]
