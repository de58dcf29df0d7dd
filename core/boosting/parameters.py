"""The parameters that both kinds of boosting have, and the number of trees and nodes that they lead to."""

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from oubli.core.data.schema import Schema, Task
from oubli.core.data.values import ColumnType
from oubli.core.errors import CapacityError, InputError
from oubli.core.parameters import Parameter, share, whole
from oubli.core.samples.arrays import Problem

MAX_TREES = 100_000
VALIDATION = np.uint64(9)  # what a seed is combined with to choose the samples that validate

SQUARED_ERROR, POISSON, QUANTILE, HUBER = "squared_error", "poisson", "quantile", "huber"
_LOSS = "Loss of a boosted regression: `squared_error`, `quantile`, `huber`, or `poisson` (targets of 0 and more)."
_DELTA = "Error from which on `loss=huber` is linear; about the standard deviation of the targets when left out."
_CONSTRAINTS = "Numeric columns in which boosted predictions rise (1) or fall (-1): `income:1,age:-1`."
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
        Parameter("monotone_constraints", dict, None, _CONSTRAINTS, optional=True),
    )
}
LOSSES = (
    Parameter("loss", str, SQUARED_ERROR, _LOSS, choices=(SQUARED_ERROR, QUANTILE, HUBER, POISSON)),
    Parameter("quantile", float, 0.5, "The quantile that `loss=quantile` predicts.", low=0.001, high=0.999),
    Parameter("huber_delta", float, None, _DELTA, low=0, opens="low", limit=1e300, optional=True),
)
_MOST_CONSTRAINED = 100


def shared(name: str, default: Any, **others: Any) -> Parameter:
    """A parameter that both kinds have, with a default and perhaps a limit of the kind's own."""
    return replace(_SHARED[name], default=default, **others)


@dataclass(frozen=True, kw_only=True)
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
    loss, level : of a regression: its name, and the quantile or Huber's delta (0.0: a spread).
    monotone : 1, -1 or 0 of each column; empty when there is no constraint.
    """

    n_estimators: int
    learning_rate: float
    max_bins: int
    split_sampling: float
    l2_regularization: float
    min_child_weight: float
    seed: int
    loss: str = SQUARED_ERROR
    level: float = 0.0
    monotone: tuple[int, ...] = ()

    @property
    def least_target(self) -> float:
        """The smallest target that the loss is for."""
        return 0.0 if self.loss == POISSON else -math.inf

    @property
    def most_classes(self) -> int:
        """Classes that there may be: scores of more than two, which constraints are about, are not probabilities."""
        return 2 if self.monotone else 2**31 - 1

    def to_dict(self) -> dict[str, Any]:
        """The settings as a model file has them, with the seed by the name of its parameter as well."""
        values = {**asdict(self), "monotone": list(self.monotone), "random_state": self.seed}
        defaults = {"loss": SQUARED_ERROR, "level": 0.0, "monotone": []}  # which older programs do not know
        return {name: value for name, value in values.items() if defaults.get(name, self) != value}


def read_shared(values: dict[str, Any], schema: Schema) -> dict[str, Any]:
    """Put `level` in place of what belongs to the loss but its name, and `monotone` in place of constraints.

    Raises
    ------
    InputError
        When a parameter belongs to another loss, or to a regression, or a constraint does not fit the columns.
    """
    monotone = read_constraints(values.pop("monotone_constraints"), schema)
    loss, quantile, delta = values["loss"], values.pop("quantile"), values.pop("huber_delta")
    if schema.task is not Task.REGRESSION and loss != SQUARED_ERROR:
        raise InputError(f"loss={loss!r} is for numbers: a classifier learns by log-loss, leave it out")
    for name, owner, is_given in (("quantile", QUANTILE, quantile != 0.5), ("huber_delta", HUBER, delta is not None)):
        if is_given and loss != owner:
            raise InputError(f"{name} goes with loss={owner!r}: set that, or leave it out")
    return {**values, "level": quantile if loss == QUANTILE else delta or 0.0, "monotone": monotone}


def read_constraints(given: Any, schema: Schema) -> tuple[int, ...]:
    """Read monotone constraints: 1, -1 or 0 for each column; empty when there is none.

    Parameters
    ----------
    given : 1 or -1 by name or position, or a list of texts like "income:1".

    Raises
    ------
    InputError
        When a column is not known or has categories, or a direction is none.
    """
    name, directions = "monotone_constraints", [0] * schema.n_features
    try:
        pairs = _pairs_of(given)
    except (AttributeError, TypeError, ValueError):
        raise InputError(f"{name} must be 1 or -1 by column, or a list of texts like 'income:1'") from None
    if len(pairs) > _MOST_CONSTRAINED:
        raise InputError(f"{name} may name {_MOST_CONSTRAINED} columns at most: leave some out")
    places = {**{str(i): i for i in range(schema.n_features)}, **{c.name: i for i, c in enumerate(schema.columns)}}
    for i, (column, direction) in enumerate(pairs, 1):
        place = places.get(str(column))
        if place is None:
            raise InputError(f"{name} names no column in entry {i}: use names or positions of features")
        if schema.columns[place].type is ColumnType.CATEGORICAL:
            raise InputError(f"{name} names categories, which have no order, in entry {i}: leave that out")
        if type(direction) is bool or direction not in (1, -1) or directions[place]:
            raise InputError(f"{name} must say 1 (rising) or -1 (falling), once a column: see entry {i}")
        directions[place] = int(direction)
    return tuple(directions) if any(directions) else ()


def _pairs_of(given: Any) -> list[tuple[Any, Any]]:
    if given is None or isinstance(given, Mapping):
        return list((given or {}).items())
    parts = [one.rpartition(":") for one in (given if isinstance(given, list | tuple) else [given.missing])]
    return [(column, int(direction)) for column, _, direction in parts]


def as_texts(given: Any) -> list[str] | None:
    """Monotone constraints as a file has them, of any form in which they were given."""
    return [f"{column}:{int(direction)}" for column, direction in _pairs_of(given)] or None


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
