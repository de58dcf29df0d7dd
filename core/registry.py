"""Every kind of model there is: the one place to add another."""

from collections.abc import Mapping
from importlib import import_module
from typing import Any, NamedTuple

from oubli.core.data.values import Task
from oubli.core.parameters import Parameter


class Kind(NamedTuple):
    """Where a kind of model is; what takes long to import, such as its kernels, is imported when it is needed.

    Attributes
    ----------
    parameters : module of its table, `PARAMETERS`.
    estimators : module and name of the estimator of each task.
    """

    parameters: str
    estimators: Mapping[Task, tuple[str, str]]


def _kind(folder: str, **estimators: str) -> Kind:
    module = f"oubli.core.{folder}"
    places = {Task(task): (f"{module}.estimator", name) for task, name in estimators.items()}
    return Kind(f"{module}.parameters", places)


PLACES: dict[str, Kind] = {
    "forest": _kind("forest", classification="DynamicForestClassifier", regression="DynamicForestRegressor"),
    "tree": _kind("tree", classification="DynamicTreeClassifier"),
    "online-boosting": _kind(
        "boosting.online", classification="OnlineBoostingClassifier", regression="OnlineBoostingRegressor"
    ),
    "incremental-boosting": _kind(
        "boosting.incremental",
        classification="IncrementalBoostingClassifier",
        regression="IncrementalBoostingRegressor",
    ),
}
"""Every kind, by its name in settings and model files."""


def parameters_of(kind: str) -> tuple[Parameter, ...]:
    """Return the table of what can be set of a kind."""
    table: tuple[Parameter, ...] = import_module(PLACES[kind].parameters).PARAMETERS
    return table


def variant_of(kind: str, parameters: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return those of a model's parameters that decide which kernels it uses."""
    names = [parameter.name for parameter in parameters_of(kind) if parameter.chooses_kernels]
    return {name: None for name in names if parameters is not None and parameters.get(name, "auto") is None}


def is_known(kind: str, task: str) -> bool:
    """Whether there is a kind of model for a task."""
    return kind in PLACES and task in PLACES[kind].estimators


ESTIMATORS = {name: module for place in PLACES.values() for module, name in place.estimators.values()}
"""The module of each estimator, by its name."""
