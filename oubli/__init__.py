"""Oubli: a random forest that learns and forgets single samples, exactly, and a decision tree that does so nearly."""

from core import DynamicForestClassifier, DynamicForestRegressor, DynamicTreeClassifier, load

__all__ = ["DynamicForestClassifier", "DynamicForestRegressor", "DynamicTreeClassifier", "load"]
