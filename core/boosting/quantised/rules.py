"""The numbers that decide splits and leaves, and how derivatives are made, from the settings and from F_0."""

import numpy as np

from oubli.core.array_types import Ints
from oubli.core.boosting.incremental.parameters import IncrementalSettings
from oubli.core.boosting.quantised import state as s
from oubli.core.boosting.quantised.gradients import BINARY, HESSIAN_STEPS, MULTICLASS, REGRESSION, Loss, make_loss
from oubli.core.boosting.quantised.start import Start
from oubli.core.boosting.quantised.steadiness import Steadiness

_LEAF_LIMIT = 8.0  # greatest size of a leaf's value, before the learning rate; of a regression in spreads
_LEAST_GAIN = 2.0**-40
_FINEST = 2.0**-8  # grid that is made by dividing
_COARSEST = 0.5  # grid of gradients that is made by doubling


def loss_of_classes(settings: IncrementalSettings, n_groups: int, steadiness: Steadiness) -> Loss:
    """The loss of so many groups of trees."""
    grid = min(settings.gradient_grid * 2**steadiness.coarsening, max(settings.gradient_grid, _COARSEST))
    return make_loss(BINARY if n_groups == 1 else MULTICLASS, grid, settings.learning_rate * settings.leaf_grid)


def grids_of_numbers(settings: IncrementalSettings, levels: int) -> tuple[float, float]:
    """The grids of gradients and leaf values of a regression: a fourth within regions, which have few samples."""
    if not levels:
        return settings.gradient_grid, settings.leaf_grid
    return max(0.25 * settings.gradient_grid, _FINEST), max(0.25 * settings.leaf_grid, _FINEST)


def loss_of_numbers(settings: IncrementalSettings, start: Start, levels: int) -> Loss:
    """The loss of a regression below so many levels of regions."""
    gradient_grid, leaf_grid = grids_of_numbers(settings, levels)
    return make_loss(
        REGRESSION, gradient_grid, settings.learning_rate * leaf_grid * start.spread, start.base, start.spread
    )


def make_rules(
    settings: IncrementalSettings, loss: Loss, n_groups: int, start: Start, steadiness: Steadiness, cuts: Ints
) -> s.Rules:
    """The numbers that decide splits and leaves."""
    if loss.kind == REGRESSION:
        hessian_steps, gradient = 1, 1.0 / (loss.inverse_grid * start.spread)
        _, leaf_grid = grids_of_numbers(settings, steadiness.levels)
    else:
        hessian_steps, gradient, leaf_grid = HESSIAN_STEPS, 1.0 / loss.steps, settings.leaf_grid
    share = (n_groups - 1) / n_groups if n_groups > 1 else 1.0
    return s.Rules(
        depth=steadiness.depth,
        levels=steadiness.levels,
        top=steadiness.top,
        least_weight=settings.min_child_weight * hessian_steps,
        regularisation=settings.l2_regularization * hessian_steps,
        leaf_scale=share * gradient * hessian_steps / leaf_grid,
        leaf_limit=float(np.floor(_LEAF_LIMIT / leaf_grid)),
        least_gain=_LEAST_GAIN,
        cuts=cuts,
        weights=steadiness.weights,
    )
