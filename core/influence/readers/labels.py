"""Labels of rows as the numbers that losses are made of."""

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

import numpy as np

from oubli.core.array_types import Array, Reals
from oubli.core.data.targets import encode_labels, encode_targets
from oubli.core.data.values import normalise_id
from oubli.core.errors import InputError, shorten
from oubli.core.influence.losses import Loss

if TYPE_CHECKING:
    from oubli.core.model import Model

Reader = Callable[[Any, int], Reals]


def held_classes(model: "Model", unknown: int | None = None) -> Reader:
    """Read labels as places in the order of the classes that a model of ours holds.

    unknown : the place of a class that it does not hold; InputError when left out.
    """
    schema = model.schema_
    held = model.samples_.classes.values(model.class_order())
    places = {type_and_value(label): float(i) for i, label in enumerate(held)}

    def read(y: Any, n: int) -> Reals:
        labels = encode_labels(y, n, schema.label_type, schema.label_name)
        found = [places.get(type_and_value(label), unknown) for label in labels]
        if None in found:
            row = found.index(None)
            raise InputError("must be a class that the model holds", row=row, field="y", value=labels[row])
        return np.array(found, np.float64)

    return read


def type_and_value(label: Any) -> tuple[type, Any]:
    """What tells labels apart: 1, 1.0 and True are three."""
    return type(label), label


def held_targets(model: "Model") -> Reader:
    """Read the targets of a regression as a model of ours does."""
    name = model.schema_.label_name
    return lambda y, n: encode_targets(y, n, name)


def class_labels(classes: Array) -> Reader:
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


def labels_of(loss: Loss, classes: Any) -> Reader:
    """Read labels as a model of a loss holds them: numbers, or places in its distinct classes."""
    return numbers if loss is Loss.SQUARED_ERROR else class_labels(np.asarray(classes))


def numbers(y: Any, n: int) -> Reals:
    """Read targets that are numbers."""
    values = np.asarray(y, np.float64).ravel()
    _check_length(len(values), n, "y")
    if not np.isfinite(values).all():
        row = int(np.argmin(np.isfinite(values)))
        raise InputError("must be a finite number", row=row, field="y", value=values[row])
    return values


def read_weights(sample_weight: Any, n: int) -> Reals:
    """Read sample weights; 1 each when left out."""
    if sample_weight is None:
        return np.ones(n)
    weights = np.array(sample_weight, np.float64).ravel()
    _check_length(len(weights), n, "sample_weight")
    if not np.isfinite(weights).all() or (weights < 0).any() or not (weights > 0).any():
        raise InputError("must be finite, not below 0, and not all 0", field="sample_weight")
    return weights


def read_names(ids: Iterable[Any] | None, n: int) -> list[str]:
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


def refuse(library: str, problems: Iterable[str | None]) -> None:
    """Raise InputError when there is any reason why a model cannot be read."""
    found = [problem if len(problem) <= 200 else shorten(problem) for problem in problems if problem]
    if found:
        raise InputError(f"this {library} model cannot be read: {'; '.join(found)}")


def unless(is_so: bool, problem: str) -> str | None:
    """A reason, if something is not so."""
    return None if is_so else problem
