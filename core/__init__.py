"""The algorithms: models that learn and forget single samples exactly. Knows nothing of the service."""

from core.forest.estimator import DynamicForestClassifier, DynamicForestRegressor
from core.persistence import load

__all__ = ["DynamicForestClassifier", "DynamicForestRegressor", "load"]
