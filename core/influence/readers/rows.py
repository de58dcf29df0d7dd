"""Readers of rows and of what comes with them: labels as the numbers that losses take, weights, names.

The rows of other libraries' models are checked before they are routed.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from oubli.core.array_types import Array, Bools, Reals
from oubli.core.data.schema import Schema
from oubli.core.data.targets import encode_labels, encode_targets
from oubli.core.data.values import normalise_id
from oubli.core.errors import FeatureCountError, InputError, shorten
from oubli.core.influence.losses import Loss
from oubli.core.influence.views import leaf_type
from oubli.core.samples.labels import ClassTable

Route = Callable[[Any], Array]
Reader = Callable[[Any, int], Reals]


def held_labels(schema: Schema, classes: ClassTable | None, unknown: int | None = None) -> Reader:
    """Read labels as a model of ours does: as places in the order of the classes that it holds, or as numbers.

    Parameters
    ----------
    classes : those held; None of a regression.
    unknown : the place of a class that is not held; InputError when left out.
    """
    if classes is None:
        return lambda y, n: encode_targets(y, n, schema.label_name)
    places = {_type_and_value(label): float(i) for i, label in enumerate(classes.values(classes.order()))}

    def read(y: Any, n: int) -> Reals:
        labels = encode_labels(y, n, schema.label_type, schema.label_name)
        found = [places.get(_type_and_value(label), unknown) for label in labels]
        if None in found:
            row = found.index(None)
            raise InputError("must be a class that the model holds", row=row, field="y", value=labels[row])
        return np.array(found, np.float64)

    return read


def _type_and_value(label: Any) -> tuple[type, Any]:
    """What tells labels apart: 1, 1.0 and True are three."""
    return type(label), label


def _class_labels(classes: Array) -> Reader:
    """Read labels as places in an array of distinct classes."""
    places = {value: float(i) for i, value in enumerate(classes.tolist())}

    def read(y: Any, n: int) -> Reals:
        labels = np.asarray(y).ravel().tolist()
        _check_length(len(labels), n, "y")
        missing = [row for row, label in enumerate(labels) if label not in places]
        if missing:
            raise InputError("must be a class of the model", row=missing[0], field="y", value=labels[missing[0]])
        return np.array([places[label] for label in labels], np.float64)

    return read


def _numbers(y: Any, n: int) -> Reals:
    """Read targets that are numbers."""
    values = np.asarray(y, np.float64).ravel()
    _check_length(len(values), n, "y")
    if not np.isfinite(values).all():
        row = int(np.argmin(np.isfinite(values)))
        raise InputError("must be a finite number", row=row, field="y", value=values[row])
    return values


def _read_weights(sample_weight: Any, n: int) -> Reals:
    """Read sample weights; 1 each when left out."""
    if sample_weight is None:
        return np.ones(n)
    weights = np.array(sample_weight, np.float64).ravel()
    _check_length(len(weights), n, "sample_weight")
    if not np.isfinite(weights).all() or (weights < 0).any() or not (weights > 0).any():
        raise InputError("must be finite, not below 0, and not all 0", field="sample_weight")
    return weights


def _read_names(ids: Iterable[Any] | None, n: int) -> list[str]:
    """Read ids; "0", "1", ... when left out."""
    if ids is None:
        return [str(i) for i in range(n)]
    names = [normalise_id(value) for value in ids]
    _check_length(len(names), n, "ids")
    if len(set(names)) < n:
        first = {name: i for i, name in reversed(list(enumerate(names)))}
        row = next(i for i, name in enumerate(names) if first[name] < i)
        raise InputError(
            "stands there twice: give every sample an id of its own", row=row, field="id", value=names[row]
        )
    return names


def _check_length(found: int, n: int, field: str) -> None:
    if found != n:
        raise InputError(f"has {found} entries for {n} rows: give one for each", field=field)


def refuse(library: str, problems: Mapping[str, bool]) -> None:
    """Raise InputError when there is any reason why a model cannot be read; problems: reasons, and which hold."""
    found = [problem if len(problem) <= 200 else shorten(problem) for problem, holds in problems.items() if holds]
    if found:
        raise InputError(f"this {library} model cannot be read: {'; '.join(found)}")


# -- other libraries ---------------------------------------------------------------------------------


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
        leaves = route(given.X)
        n = leaves.shape[1]
        read_labels = _numbers if loss is Loss.SQUARED_ERROR else _class_labels(np.asarray(classes))
        y, weights = read_labels(given.y, n), _read_weights(given.sample_weight, n)
        return cls(loss, route, leaves, read_labels, y, weights, _read_names(given.ids, n))

    def fields(self, values: Sequence[Array], *, l2: float) -> dict[str, Any]:
        """Return the fields of the view that the samples and the leaf values, by tree, decide."""
        all_values = np.concatenate(values).astype(np.float64)
        return {
            **self._asdict(),
            "values": all_values,
            "offsets": np.concatenate([[0], np.cumsum([len(part) for part in values])]).astype(np.int64),
            "l2": np.full(len(all_values), l2),
        }


def leaf_numbers(is_leaf: Sequence[Bools]) -> list[Array]:
    """Number the leaves of each tree by its nodes, in the smallest type that numbers those of all trees.

    is_leaf : which nodes of each tree are leaves.
    """
    kind = leaf_type(max(int(leaf.sum()) for leaf in is_leaf))
    return [(np.cumsum(leaf) - 1).astype(kind) for leaf in is_leaf]


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
