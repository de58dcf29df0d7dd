"""The parameters of incremental boosting, checked and turned into numbers."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from oubli.core.boosting.parameters import LOSSES, MAX_TREES, BoostedSettings, hash_limit, read_shared, shared
from oubli.core.data.schema import Schema
from oubli.core.errors import InputError
from oubli.core.parameters import (
    Parameter,
    check_number,
    check_parameters,
    class_weight,
    n_jobs,
    random_state,
    scale_pos_weight,
    share,
    whole,
)

MAX_DEPTH = 8  # of a leaf, below regions; there are up to 2**(8 + 3) leaves, numbered by two bytes
MAX_BINS = 255
_STATISTICS = "Columns with more categories are read by statistics of labels, too; categories of fewer samples are one."

PARAMETERS = (
    shared("n_estimators", 100),
    shared("learning_rate", 0.1),
    whole("max_depth", 5, "Greatest depth of a tree; regions add up to three levels.", 1, MAX_DEPTH),
    shared("max_bins", 255, limit=MAX_BINS),
    shared("split_sampling", 1.0),
    shared("l2_regularization", 1.0),
    shared("min_child_weight", 1.0),
    Parameter(
        "quantization",
        [float, float],
        "auto",
        "Grids of gradients and leaf values of `incremental-boosting`: `auto`, `none`, or two numbers: `0.25,0.25`.",
        choices=("auto",),
        optional=True,
        none_word="none",
        chooses_kernels=True,
    ),
    whole(
        "early_stopping",
        None,
        "Iterations without a lower validation loss after which `incremental-boosting` stops; never when left out.",
        low=1,
        limit=MAX_TREES,
        optional=True,
    ),
    whole("category_statistics", 48, _STATISTICS, low=1, limit=2**24, optional=True, none_word="none"),
    share("validation_fraction", 0.1, "Share of the samples that validate; with `early_stopping`.", "low", high=0.5),
    *LOSSES,
    shared("monotone_constraints", None),
    class_weight(),
    scale_pos_weight(),
    random_state("Seed of every random choice; the same seed and samples give the same model."),
    n_jobs(),
)


# The grids of quantization="auto".
GRADIENT_GRID = 0.25
LEAF_GRID = 0.25


@dataclass(frozen=True, kw_only=True)
class IncrementalSettings(BoostedSettings):
    """The parameters in force.

    Attributes
    ----------
    max_depth : greatest depth of a leaf, from 1 to MAX_DEPTH.
    gradient_grid, leaf_grid : what gradients and leaf values are rounded to; 0.0 when there is no quantization.
    patience : iterations without a lower validation loss after which training ends; 0: there is no validation.
    validation_fraction : share of the samples that are kept for validation.
    category_statistics : categories above which a column has statistics, and samples that a category of such a column
        needs to have splits of its own; 0: there are no statistics.
    """

    max_depth: int
    gradient_grid: float
    leaf_grid: float
    patience: int
    validation_fraction: float
    category_statistics: int

    @property
    def is_quantised(self) -> bool:
        """Whether gradients and leaf values lie on grids."""
        return self.gradient_grid > 0.0

    @property
    def validation_limit(self) -> np.uint64:
        """The limit below which the hash of a sample is that validates."""
        return hash_limit(self.validation_fraction if self.patience else 0.0)

    def to_dict(self) -> dict[str, Any]:
        """The settings by the names of the parameters, as a model file has them."""
        values = super().to_dict()
        del values["seed"]
        values["category_statistics"] = self.category_statistics or None
        grids, patience = [values.pop("gradient_grid"), values.pop("leaf_grid")], values.pop("patience")
        return {**values, "quantization": grids if self.is_quantised else None, "early_stopping": patience or None}


def read_settings(params: Mapping[str, Any], schema: Schema) -> IncrementalSettings:
    """Check the parameters.

    Parameters
    ----------
    params : the constructor's parameters by name.
    schema : of the samples to come.

    Raises
    ------
    InputError
        Naming the parameter, its value and the rule.
    """
    values = check_parameters(PARAMETERS, params)
    gradient_grid, leaf_grid = _read_grids(values.pop("quantization"))
    patience = values.pop("early_stopping") or 0
    values["category_statistics"] = values["category_statistics"] or 0
    values = read_shared(values, schema)
    return IncrementalSettings(**values, gradient_grid=gradient_grid, leaf_grid=leaf_grid, patience=patience)


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
