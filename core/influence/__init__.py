"""Which training samples made a prediction, and what if they were gone."""

from oubli.core.influence.clean import Cleaning, clean
from oubli.core.influence.influence import influence
from oubli.core.influence.leaf_influence import FastLeafInfluence, LeafInfluence
from oubli.core.influence.leaf_refit import FastLeafRefit, LeafRefit
from oubli.core.influence.readers import view
from oubli.core.influence.result import Influence
from oubli.core.influence.update_sets import AllPoints, SinglePoint, TopKLeaves
from oubli.core.influence.view import View

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
