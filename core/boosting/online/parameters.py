"""The parameters of online boosting, checked and turned into numbers."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from oubli.core.boosting.parameters import shared
from oubli.core.parameters import Parameter, check_parameters, draw_seed, random_state

MAX_LEAVES = 256  # the leaves of a tree are numbered by one byte
MAX_BINS = 4096
MAX_SAMPLES = 2**24  # what sums of derivatives in fixed point have room for

PARAMETERS = (
    shared("n_estimators", 100),
    shared("learning_rate", 0.1),
    Parameter("max_leaf_nodes", int, 20, "Leaves of a tree of `online-boosting` (J).", low=2, limit=MAX_LEAVES),
    shared("max_bins", 1024, limit=MAX_BINS),
    shared("split_sampling", 0.1, regression={"default": 0.3}),
    Parameter(
        "robustness",
        float,
        0.1,
        "Share of the candidates among which a split of `online-boosting` may rank and stay (sigma).",
        low=0,
        high=1,
    ),
    shared("l2_regularization", 0.3, regression={"default": 1.0}),
    shared("min_child_weight", 0.03, regression={"default": 20.0}),
    random_state("Seed of every random choice; the same seed and samples give the same model."),
)


@dataclass(frozen=True)
class OnlineSettings:
    """The parameters in force.

    Attributes
    ----------
    n_estimators : iterations, M.
    learning_rate : shrinkage, in (0, 1].
    max_leaf_nodes : leaves of a tree, J.
    max_bins : bins of a numeric column, B.
    split_sampling : share of the candidate splits that a tree looks at, alpha, in (0, 1].
    robustness : share of the candidates among which a split may rank and stay, sigma, in [0, 1].
    l2_regularization : what is added to the hessian of a leaf and of a side.
    min_child_weight : hessian that each side of a split has to have.
    seed : what everything is drawn from.
    """

    n_estimators: int
    learning_rate: float
    max_leaf_nodes: int
    max_bins: int
    split_sampling: float
    robustness: float
    l2_regularization: float
    min_child_weight: float
    seed: int

    def to_dict(self) -> dict[str, Any]:
        """What `read_settings` makes these settings of, as a model file has it."""
        values = asdict(self)
        return {**values, "random_state": values.pop("seed")}


def read_settings(params: Mapping[str, Any]) -> OnlineSettings:
    """Check the parameters.

    Parameters
    ----------
    params : the constructor's parameters by name.

    Raises
    ------
    InputError
        Naming the parameter, its value and the rule.
    """
    values = check_parameters(PARAMETERS, params)
    seed = draw_seed(values.pop("random_state"))
    return OnlineSettings(**values, seed=seed)
