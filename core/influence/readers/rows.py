"""The rows of other libraries' models: checked before they are routed, and those that a model was trained on."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np

from oubli.core.array_types import Array, Reals
from oubli.core.errors import FeatureCountError, InputError
from oubli.core.influence.losses import Loss
from oubli.core.influence.readers.labels import Reader, labels_of, read_names, read_weights

Route = Callable[[Any], Array]


class Given(NamedTuple):
    """What a model of another library was fitted on, as the user passes it."""

    X: Any
    y: Any
    sample_weight: Any
    ids: Iterable[Any] | None


class Training(NamedTuple):
    """The samples that a model of another library was trained on."""

    loss: Loss
    route: Route
    leaves: Array
    read_labels: Reader
    y: Reals
    weights: Reals
    ids: list[str]

    @classmethod
    def read(cls, given: Given, route: Route, loss: Loss, classes: Any) -> "Training":
        """Check the samples and find their leaves; classes: those of the model, for a classifier."""
        leaves, read_labels = route(given.X), labels_of(loss, classes)
        n = leaves.shape[1]
        y, weights = read_labels(given.y, n), read_weights(given.sample_weight, n)
        return cls(loss, route, leaves, read_labels, y, weights, read_names(given.ids, n))

    def fields(self, values: Sequence[Array], *, l2: float) -> dict[str, Any]:
        """Return the fields of the view that the samples and the leaf values, by tree, decide."""
        all_values = np.concatenate(values).astype(np.float64)
        return {
            **self._asdict(),
            "values": all_values,
            "offsets": np.concatenate([[0], np.cumsum([len(part) for part in values])]).astype(np.int64),
            "l2": np.full(len(all_values), l2),
        }


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
