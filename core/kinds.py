"""Every kind of model there is: the one place to add another."""

from core.boosting.incremental.estimator import IncrementalBoostingClassifier, IncrementalBoostingRegressor
from core.boosting.online.estimator import OnlineBoostingClassifier, OnlineBoostingRegressor
from core.forest.estimator import DynamicForestClassifier, DynamicForestRegressor
from core.model import Model
from core.schema import Task
from core.tree.estimator import DynamicTreeClassifier

KINDS: dict[tuple[str, Task], type[Model]] = {
    (estimator.kind, estimator.task): estimator
    for estimator in (
        DynamicForestClassifier,
        DynamicForestRegressor,
        DynamicTreeClassifier,
        OnlineBoostingClassifier,
        OnlineBoostingRegressor,
        IncrementalBoostingClassifier,
        IncrementalBoostingRegressor,
    )
}
"""The estimator of every kind and task."""
