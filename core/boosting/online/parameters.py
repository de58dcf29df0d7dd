"""The parameters of online boosting, checked and turned into numbers."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from oubli.core.base import check_number, draw_seed

MAX_LEAVES = 256  # the leaves of a tree are numbered by one byte
MAX_BINS = 4096
MAX_SAMPLES = 2**24  # what sums of derivatives in fixed point have room for
MAX_TREES = 100_000


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

    def parameters(self) -> dict[str, Any]:
        """What `read_settings` makes these settings of; JSON-able."""
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
    check_number("n_estimators", params["n_estimators"], low=1, high=MAX_TREES)
    check_number("learning_rate", params["learning_rate"], low=0, high=1, integral=False, is_open=True)
    check_number("max_leaf_nodes", params["max_leaf_nodes"], low=2, high=MAX_LEAVES)
    check_number("max_bins", params["max_bins"], low=2, high=MAX_BINS)
    check_number("split_sampling", params["split_sampling"], low=0, high=1, integral=False, is_open=True)
    check_number("robustness", params["robustness"], low=0, high=1, integral=False)
    check_number("l2_regularization", params["l2_regularization"], low=0, high=1e9, integral=False)
    check_number("min_child_weight", params["min_child_weight"], low=0, high=1e9, integral=False)
    return OnlineSettings(
        n_estimators=int(params["n_estimators"]),
        learning_rate=float(params["learning_rate"]),
        max_leaf_nodes=int(params["max_leaf_nodes"]),
        max_bins=int(params["max_bins"]),
        split_sampling=float(params["split_sampling"]),
        robustness=float(params["robustness"]),
        l2_regularization=float(params["l2_regularization"]),
        min_child_weight=float(params["min_child_weight"]),
        seed=draw_seed(params["random_state"]),
    )
