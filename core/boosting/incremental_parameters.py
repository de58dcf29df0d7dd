"""The parameters of incremental boosting, checked and turned into numbers."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from oubli.core.base import check_number, draw_seed
from oubli.core.errors import InputError

MAX_DEPTH = 8  # of a leaf: the leaves of a tree are numbered by one byte
MAX_BINS = 255
MAX_SAMPLES = 2**24  # what sums of derivatives in fixed point have room for
MAX_TREES = 100_000

# The grids of quantization="auto".
GRADIENT_GRID = 0.25
LEAF_GRID = 0.25


@dataclass(frozen=True)
class IncrementalSettings:
    """The parameters in force.

    Attributes
    ----------
    n_estimators : iterations, at least 1.
    learning_rate : shrinkage, in (0, 1].
    max_depth : greatest depth of a leaf, from 1 to MAX_DEPTH.
    l2_regularization : what is added to the hessian of a leaf and of a side.
    min_child_weight : hessian that each side of a split has to have.
    split_sampling : share of the candidate splits that a tree looks at, in (0, 1].
    max_bins : bins of a numeric column.
    gradient_grid, leaf_grid : what gradients and leaf values are rounded to; 0.0 when there is no quantization.
    patience : iterations without a lower validation loss after which training ends; 0: there is no validation.
    validation_fraction : share of the samples that are kept for validation.
    seed : what everything is drawn from.
    """

    n_estimators: int
    learning_rate: float
    max_depth: int
    l2_regularization: float
    min_child_weight: float
    split_sampling: float
    max_bins: int
    gradient_grid: float
    leaf_grid: float
    patience: int
    validation_fraction: float
    seed: int

    @property
    def is_quantised(self) -> bool:
        """Whether gradients and leaf values lie on grids."""
        return self.gradient_grid > 0.0

    def parameters(self) -> dict[str, Any]:
        """What `read_settings` makes these settings of; JSON-able."""
        values = asdict(self)
        grids = (values.pop("gradient_grid"), values.pop("leaf_grid"))
        patience, seed = values.pop("patience"), values.pop("seed")
        return {
            **values,
            "quantization": list(grids) if self.is_quantised else None,
            "early_stopping": patience or None,
            "random_state": seed,
        }


def read_settings(params: Mapping[str, Any]) -> IncrementalSettings:
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
    check_number("max_depth", params["max_depth"], low=1, high=MAX_DEPTH)
    check_number("l2_regularization", params["l2_regularization"], low=0, high=1e9, integral=False)
    check_number("min_child_weight", params["min_child_weight"], low=0, high=1e9, integral=False)
    check_number("split_sampling", params["split_sampling"], low=0, high=1, integral=False, is_open=True)
    check_number("max_bins", params["max_bins"], low=2, high=MAX_BINS)
    check_number("validation_fraction", params["validation_fraction"], low=0, high=0.5, integral=False, is_open=True)
    patience = params["early_stopping"]
    if patience is not None:
        check_number("early_stopping", patience, low=1, high=MAX_TREES)
    gradient_grid, leaf_grid = _read_grids(params["quantization"])
    return IncrementalSettings(
        n_estimators=int(params["n_estimators"]),
        learning_rate=float(params["learning_rate"]),
        max_depth=int(params["max_depth"]),
        l2_regularization=float(params["l2_regularization"]),
        min_child_weight=float(params["min_child_weight"]),
        split_sampling=float(params["split_sampling"]),
        max_bins=int(params["max_bins"]),
        gradient_grid=gradient_grid,
        leaf_grid=leaf_grid,
        patience=0 if patience is None else int(patience),
        validation_fraction=float(params["validation_fraction"]),
        seed=draw_seed(params["random_state"]),
    )


def _read_grids(quantization: Any) -> tuple[float, float]:
    """The grids of gradients and of leaf values; zeros for none."""
    if quantization is None:
        return 0.0, 0.0
    if isinstance(quantization, str):
        if quantization == "auto":
            return GRADIENT_GRID, LEAF_GRID
    elif isinstance(quantization, tuple | list) and len(quantization) == 2:
        for grid in quantization:
            check_number("quantization", grid, low=2.0**-8, high=1, integral=False)
        return float(quantization[0]), float(quantization[1])
    raise InputError(
        f"quantization={quantization!r} must be 'auto', None, or the grids of gradients and of leaf values, "
        "such as (0.25, 0.25)"
    )
