"""Oubli: models that learn and forget single samples. Forests and incremental boosting do so exactly."""

import typing as _typing

if _typing.TYPE_CHECKING:
    from oubli.client import AsyncClient as AsyncClient
    from oubli.client import Client as Client
    from oubli.core import (
        DynamicForestClassifier,
        DynamicForestRegressor,
        DynamicTreeClassifier,
        IncrementalBoostingClassifier,
        IncrementalBoostingRegressor,
        OnlineBoostingClassifier,
        OnlineBoostingRegressor,
        lightgbm_rows,
        load,
        warm_up,
    )

    __version__: str

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
# Not in `__all__`: they need an extra, without which `from oubli import *` works as well.
_CLIENTS = ("AsyncClient", "Client")


def __getattr__(name: str) -> _typing.Any:
    """Return what is asked for, imported when it is first: most programs use one kind."""
    if name in _CLIENTS:
        from oubli import client

        return getattr(client, name)
    if name == "__version__":
        from oubli.app.version import VERSION

        return VERSION
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from oubli import core

    globals()[name] = getattr(core, name)
    return globals()[name]


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__, *_CLIENTS, "__version__"})
