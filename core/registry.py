"""Every kind of model there is: the one place to add another."""

from collections.abc import Iterator, Mapping
from importlib import import_module

from oubli.core.data.schema import Task
from oubli.core.model import Model

# Where an estimator is, and its name. Its kernels are many: they are imported when the kind is first asked for.
_PLACES = {
    ("forest", Task.CLASSIFICATION): ("oubli.core.forest.estimator", "DynamicForestClassifier"),
    ("forest", Task.REGRESSION): ("oubli.core.forest.estimator", "DynamicForestRegressor"),
    ("tree", Task.CLASSIFICATION): ("oubli.core.tree.estimator", "DynamicTreeClassifier"),
    ("online-boosting", Task.CLASSIFICATION): ("oubli.core.boosting.online.estimator", "OnlineBoostingClassifier"),
    ("online-boosting", Task.REGRESSION): ("oubli.core.boosting.online.estimator", "OnlineBoostingRegressor"),
    ("incremental-boosting", Task.CLASSIFICATION): (
        "oubli.core.boosting.incremental",
        "IncrementalBoostingClassifier",
    ),
    ("incremental-boosting", Task.REGRESSION): ("oubli.core.boosting.incremental", "IncrementalBoostingRegressor"),
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
