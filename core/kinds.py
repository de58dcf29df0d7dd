"""Every kind of model there is: the one place to add another."""

from collections.abc import Iterator, Mapping
from importlib import import_module

from core.model import Model
from core.schema import Task

# Where an estimator is, and its name. Its kernels are many: they are imported when the kind is first asked for.
_PLACES = {
    ("forest", Task.CLASSIFICATION): ("core.forest.estimator", "DynamicForestClassifier"),
    ("forest", Task.REGRESSION): ("core.forest.estimator", "DynamicForestRegressor"),
    ("tree", Task.CLASSIFICATION): ("core.tree.estimator", "DynamicTreeClassifier"),
    ("online-boosting", Task.CLASSIFICATION): ("core.boosting.online.estimator", "OnlineBoostingClassifier"),
    ("online-boosting", Task.REGRESSION): ("core.boosting.online.estimator", "OnlineBoostingRegressor"),
    ("incremental-boosting", Task.CLASSIFICATION): (
        "core.boosting.incremental.estimator",
        "IncrementalBoostingClassifier",
    ),
    ("incremental-boosting", Task.REGRESSION): ("core.boosting.incremental.estimator", "IncrementalBoostingRegressor"),
}


class _Kinds(Mapping[tuple[str, Task], type[Model]]):
    """Estimators by kind and task, imported when they are looked up."""

    def __getitem__(self, key: tuple[str, Task]) -> type[Model]:
        module, name = _PLACES[key]
        estimator: type[Model] = getattr(import_module(module), name)
        return estimator

    def __contains__(self, key: object) -> bool:
        return key in _PLACES

    def __iter__(self) -> Iterator[tuple[str, Task]]:
        return iter(_PLACES)

    def __len__(self) -> int:
        return len(_PLACES)


KINDS: Mapping[tuple[str, Task], type[Model]] = _Kinds()
"""The estimator of every kind and task."""

ESTIMATORS = {name: module for module, name in _PLACES.values()}
"""The module of each estimator, by its name."""
