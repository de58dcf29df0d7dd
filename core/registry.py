"""Every kind of model there is: the one place to add another."""

from collections.abc import Iterator, Mapping
from importlib import import_module
from typing import TYPE_CHECKING, NamedTuple

from oubli.core.data.values import Task
from oubli.core.parameters import Parameter

if TYPE_CHECKING:
    from oubli.core.model import Model


class Kind(NamedTuple):
    """Where a kind of model is; what takes long to import, such as its kernels, is imported when it is asked for.

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


class _Kinds(Mapping[tuple[str, Task], "type[Model]"]):
    """Estimators by kind and task, imported when they are looked up."""

    def __getitem__(self, key: tuple[str, Task]) -> "type[Model]":
        kind, task = key
        module, name = PLACES[kind].estimators[task]
        estimator: type[Model] = getattr(import_module(module), name)
        return estimator

    def __contains__(self, key: object) -> bool:
        return isinstance(key, tuple) and len(key) == 2 and key[0] in PLACES and key[1] in PLACES[key[0]].estimators

    def __iter__(self) -> Iterator[tuple[str, Task]]:
        return ((kind, task) for kind, place in PLACES.items() for task in place.estimators)

    def __len__(self) -> int:
        return sum(len(place.estimators) for place in PLACES.values())


KINDS: "Mapping[tuple[str, Task], type[Model]]" = _Kinds()
"""The estimator of every kind and task."""


ESTIMATORS = {name: module for place in PLACES.values() for module, name in place.estimators.values()}
"""The module of each estimator, by its name."""
