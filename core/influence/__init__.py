"""Which training samples influence a prediction, and what changes without them."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from oubli.core.influence.cleaning import Cleaning, clean
    from oubli.core.influence.forward import FastLeafInfluence, FastLeafRefit
    from oubli.core.influence.methods import Influence, influence
    from oubli.core.influence.readers import view
    from oubli.core.influence.views import View

_PLACES = {
    "Cleaning": "cleaning",
    "FastLeafInfluence": "forward",
    "FastLeafRefit": "forward",
    "Influence": "methods",
    "View": "views",
    "clean": "cleaning",
    "influence": "methods",
    "view": "readers",
}
__all__ = ["Cleaning", "FastLeafInfluence", "FastLeafRefit", "Influence", "View", "clean", "influence", "view"]


def __getattr__(name: str) -> Any:
    """Import a name when it is first used: the kernels take long to import."""
    if name not in _PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_PLACES[name]}"), name)
