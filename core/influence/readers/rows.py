"""Rows for other libraries' models: checked before they are routed, for some libraries do not look at their number."""

from collections.abc import Callable
from typing import Any

import numpy as np

from oubli.core.array_types import Array
from oubli.core.errors import FeatureCountError, InputError

Route = Callable[[Any], Array]


def checked(route: Route, n_features: int, owner: str) -> Route:
    """Wrap what finds the leaves of rows, so that it only sees tables of one row or more with all features."""

    def route_checked(X: Any) -> Array:
        n_rows, n_columns = _shape_of(X)
        if n_rows == 0:
            raise InputError("X has no rows: pass at least one")
        if n_columns != n_features:
            raise FeatureCountError(n_columns, n_features, owner=owner)
        return route(X)

    return route_checked


def _shape_of(X: Any) -> tuple[int, int]:
    """Rows and columns; of XGBoost's matrices too, which have no shape."""
    if hasattr(X, "num_row") and hasattr(X, "num_col"):
        return int(X.num_row()), int(X.num_col())
    try:
        shape = X.shape if hasattr(X, "shape") else np.asarray(X).shape
    except ValueError:  # rows of several lengths
        shape = ()
    if len(shape) == 1 and shape[0] == 0:
        return 0, 0
    if len(shape) != 2:
        raise InputError("X must be a table: a row for each sample, a column for each feature")
    return int(shape[0]), int(shape[1])
