"""Oubli: models that learn and forget single samples. Forests and incremental boosting do so exactly."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from oubli.core import (
        DynamicForestClassifier,
        DynamicForestRegressor,
        DynamicTreeClassifier,
        IncrementalBoostingClassifier,
        IncrementalBoostingRegressor,
        OnlineBoostingClassifier,
        OnlineBoostingRegressor,
        load,
    )

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
    """Return what is asked for, imported when it is first: most programs use one kind."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from oubli import core

    return getattr(core, name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
