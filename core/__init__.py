"""The algorithms: models that learn and forget single samples. Knows nothing of the service."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if __name__ != "oubli.core":
    raise ImportError(
        "the package is oubli: write `from oubli import ...` or `import oubli.core`; "
        f"{__name__!r} would be a second one of every class"
    )

if TYPE_CHECKING:
    from oubli.core.boosting.incremental.estimator import IncrementalBoostingClassifier, IncrementalBoostingRegressor
    from oubli.core.boosting.online.estimator import OnlineBoostingClassifier, OnlineBoostingRegressor
    from oubli.core.estimators import load
    from oubli.core.export.lightgbm import lightgbm_rows
    from oubli.core.forest.estimator import DynamicForestClassifier, DynamicForestRegressor
    from oubli.core.tree.estimator import DynamicTreeClassifier
    from oubli.core.warmup import warm_up

__all__ = [
    "DynamicForestClassifier",
    "DynamicForestRegressor",
    "DynamicTreeClassifier",
    "IncrementalBoostingClassifier",
    "IncrementalBoostingRegressor",
    "OnlineBoostingClassifier",
    "OnlineBoostingRegressor",
    "lightgbm_rows",
    "load",
    "warm_up",
]


def __getattr__(name: str) -> Any:
    """Import a name when it is first used: most programs use one kind."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from oubli.core.registry import ESTIMATORS

    functions = {"lightgbm_rows": "export.lightgbm", "load": "estimators", "warm_up": "warmup"}
    module = ESTIMATORS.get(name) or f"oubli.core.{functions[name]}"
    globals()[name] = getattr(import_module(module), name)
    return globals()[name]


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
