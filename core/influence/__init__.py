"""Which training samples made a prediction, and what if they were gone."""

from core.influence.clean import Cleaning, clean
from core.influence.influence import influence
from core.influence.leaf_influence import FastLeafInfluence, LeafInfluence
from core.influence.leaf_refit import FastLeafRefit, LeafRefit
from core.influence.readers import view
from core.influence.result import Influence
from core.influence.update_sets import AllPoints, SinglePoint, TopKLeaves
from core.influence.view import View

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
