"""The algorithms: models that learn and forget single samples. Knows nothing of the service."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from core.persistence import load

if TYPE_CHECKING:
    from core.boosting.incremental.estimator import IncrementalBoostingClassifier, IncrementalBoostingRegressor
    from core.boosting.online.estimator import OnlineBoostingClassifier, OnlineBoostingRegressor
    from core.forest.estimator import DynamicForestClassifier, DynamicForestRegressor
    from core.tree.estimator import DynamicTreeClassifier

__all__ = [
    "DynamicForestClassifier",
    "DynamicForestRegressor",
    "DynamicTreeClassifier",
    "IncrementalBoostingClassifier",
    "IncrementalBoostingRegressor",
    "OnlineBoostingClassifier",
    "OnlineBoostingRegressor",
    "load",
]


def __getattr__(name: str) -> Any:
    """Return an estimator, imported when it is first asked for: most programs use one kind."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from core.kinds import ESTIMATORS

    globals()[name] = getattr(import_module(ESTIMATORS[name]), name)
    return globals()[name]


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
