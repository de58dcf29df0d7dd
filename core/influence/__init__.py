"""Which training samples made a prediction, and what if they were gone."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from oubli.core.influence.cleaning import Cleaning, clean
    from oubli.core.influence.leaf_influence import FastLeafInfluence, LeafInfluence
    from oubli.core.influence.leaf_refit import FastLeafRefit, LeafRefit
    from oubli.core.influence.methods import influence
    from oubli.core.influence.readers import view
    from oubli.core.influence.result import Influence
    from oubli.core.influence.update_sets import AllPoints, SinglePoint, TopKLeaves
    from oubli.core.influence.views import View

_MODULES = {
    "cleaning": ("Cleaning", "clean"),
    "leaf_influence": ("FastLeafInfluence", "LeafInfluence"),
    "leaf_refit": ("FastLeafRefit", "LeafRefit"),
    "methods": ("influence",),
    "readers": ("view",),
    "result": ("Influence",),
    "update_sets": ("AllPoints", "SinglePoint", "TopKLeaves"),
    "views": ("View",),
}
_PLACES = {name: module for module, names in _MODULES.items() for name in names}

__all__ = [
    "AllPoints",
    "Cleaning",
    "FastLeafInfluence",
    "FastLeafRefit",
    "Influence",
    "LeafInfluence",
    "LeafRefit",
    "SinglePoint",
    "TopKLeaves",
    "View",
    "clean",
    "influence",
    "view",
]


def __getattr__(name: str) -> Any:
    """Return what is asked for, imported when it is first: its kernels take long to import."""
    if name not in _PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_PLACES[name]}"), name)
