"""What can be set of both kinds of boosting."""

from dataclasses import asdict, dataclass, replace
from typing import Any

from oubli.core.parameters import Parameter, share, whole

MAX_TREES = 100_000

_SHARED = {
    parameter.name: parameter
    for parameter in (
        whole("n_estimators", None, "Number of trees of a forest, or of iterations of boosting.", 1, MAX_TREES),
        share("learning_rate", None, "Shrinkage of each boosted tree.", "low"),
        whole("max_bins", None, "Bins that boosting puts the values of a numeric column into (B).", 2),
        share("split_sampling", None, "Share of the candidate splits that a boosted tree looks at (alpha).", "low"),
        Parameter(
            "l2_regularization", float, None, "What is added to the hessian of a boosted leaf.", low=0, limit=1e9
        ),
        Parameter(
            "min_child_weight", float, None, "Hessian that each side of a boosted split has to have.", low=0, limit=1e9
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
