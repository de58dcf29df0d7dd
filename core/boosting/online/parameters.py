"""The parameters of online boosting, checked and turned into numbers."""

from dataclasses import dataclass

from oubli.core.boosting.parameters import LOSSES, BoostedSettings, shared
from oubli.core.parameters import class_weight, n_jobs, random_state, scale_pos_weight, share, whole

MAX_LEAVES = 256  # the leaves of a tree are numbered by one byte
MAX_BINS = 4096
MAX_SAMPLES = 2**24  # what sums of derivatives in fixed point have room for

PARAMETERS = (
    shared("n_estimators", 100),
    shared("learning_rate", 0.1),
    whole("max_leaf_nodes", 20, "Leaves of a tree of `online-boosting` (J).", 2, MAX_LEAVES),
    shared("max_bins", 1024, limit=MAX_BINS),
    shared("split_sampling", 0.1, regression={"default": 0.3}),
    share(
        "robustness", 0.1, "Share of the candidates among which a split of `online-boosting` may rank and stay (sigma)."
    ),
    shared("l2_regularization", 0.3, regression={"default": 1.0}),
    shared("min_child_weight", 0.03, regression={"default": 20.0}),
    *LOSSES,
    shared("monotone_constraints", None),
    class_weight(),
    scale_pos_weight(),
    random_state("Seed of every random choice; the same seed and samples give the same model."),
    n_jobs(),
)


@dataclass(frozen=True, kw_only=True)
class OnlineSettings(BoostedSettings):
    """The parameters in force.

    Attributes
    ----------
    max_leaf_nodes : leaves of a tree, J.
    robustness : share of the candidates among which a split may rank and stay, sigma, in [0, 1].
    """

    max_leaf_nodes: int
    robustness: float
