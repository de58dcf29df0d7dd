"""Oubli, a random forest that learns and forgets single samples, exactly."""

from core import DynamicForestClassifier, DynamicForestRegressor, load

__all__ = ["DynamicForestClassifier", "DynamicForestRegressor", "load"]
