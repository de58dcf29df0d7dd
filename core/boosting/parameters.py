"""The parameters that both kinds of boosting have, and the number of trees and nodes that they lead to."""

from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from oubli.core.errors import CapacityError
from oubli.core.parameters import Parameter, share, whole
from oubli.core.samples.arrays import Problem

MAX_TREES = 100_000
VALIDATION = np.uint64(9)  # what a seed is combined with to choose the samples that validate

_SHARED = {
    parameter.name: parameter
    for parameter in (
        whole("n_estimators", None, "Number of trees of a forest, or of iterations of boosting.", 1, MAX_TREES),
        share("learning_rate", None, "Shrinkage of each boosted tree.", "low"),
        whole("max_bins", None, "Maximum number of bins of a numeric column in boosting (B).", 2),
        share("split_sampling", None, "Share of the candidate splits that a boosted tree looks at (alpha).", "low"),
        Parameter("l2_regularization", float, None, "Number added to the hessian of a boosted leaf.", low=0, limit=1e9),
        Parameter(
            "min_child_weight", float, None, "Minimum hessian of each side of a boosted split.", low=0, limit=1e9
        ),
    )
}


def shared(name: str, default: Any, **others: Any) -> Parameter:
    """A parameter that both kinds have, with a default and perhaps a limit of the kind's own."""
    return replace(_SHARED[name], default=default, **others)


@dataclass(frozen=True)
class BoostedSettings:
    """The parameters in force that both kinds have.

    Attributes
    ----------
    n_estimators : iterations, at least 1; M.
    learning_rate : shrinkage, in (0, 1].
    max_bins : bins of a numeric column; B.
    split_sampling : share of the candidate splits that a tree looks at, alpha, in (0, 1].
    l2_regularization : what is added to the hessian of a leaf and of a side.
    min_child_weight : hessian that each side of a split has to have.
    seed : what everything is drawn from.
    """

    n_estimators: int
    learning_rate: float
    max_bins: int
    split_sampling: float
    l2_regularization: float
    min_child_weight: float
    seed: int

    def to_dict(self) -> dict[str, Any]:
        """The settings as a model file has them, with the seed by the name of its parameter as well."""
        return {**asdict(self), "random_state": self.seed}


def hash_limit(part: float) -> np.uint64:
    """The limit below which hashes are that make up a part of all, from 0 to 1."""
    return np.uint64(min(int(part * 2.0**64), 2**64 - 1))


def n_groups(problem: Problem, n_samples: int) -> int:
    """Trees an iteration: one for a regression and for two classes, one a class for more, none without a choice."""
    if n_samples == 0 or problem.n_classes == 1:
        return 0
    return problem.n_classes if problem.n_classes > 2 else 1


MAX_NODES = 2**31 - 1  # rows of nodes are int32


def check_size(n_estimators: int, groups: int, nodes_a_tree: int) -> None:
    """CapacityError when the nodes of all trees cannot be numbered."""
    if n_estimators * groups * nodes_a_tree > MAX_NODES:
        raise CapacityError(
            f"{n_estimators} iterations of {groups} trees with up to {nodes_a_tree} nodes each exceed {MAX_NODES} "
            "nodes: lower `n_estimators` or the size of the trees, or put classes together"
        )
