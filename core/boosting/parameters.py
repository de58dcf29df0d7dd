"""What can be set of both kinds of boosting."""

from dataclasses import replace
from typing import Any

from oubli.core.parameters import Parameter

MAX_TREES = 100_000

_SHARED = {
    parameter.name: parameter
    for parameter in (
        Parameter(
            "n_estimators",
            int,
            None,
            "Number of trees of a forest, or of iterations of boosting.",
            low=1,
            limit=MAX_TREES,
        ),
        Parameter("learning_rate", float, None, "Shrinkage of each boosted tree.", low=0, high=1, opens="low"),
        Parameter("max_bins", int, None, "Bins that boosting puts the values of a numeric column into (B).", low=2),
        Parameter(
            "split_sampling",
            float,
            None,
            "Share of the candidate splits that a boosted tree looks at (alpha).",
            low=0,
            high=1,
            opens="low",
        ),
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
