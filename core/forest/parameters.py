"""The forest's constructor parameters, checked and turned into numbers."""

import math
from typing import Any

import numpy as np

from oubli.core.base import check_number, draw_seed
from oubli.core.errors import InputError
from oubli.core.forest.engine import ForestSettings
from oubli.core.forest.scores import CRITERIA
from oubli.core.forest.workspace import UNLIMITED_DEPTH

MAX_TREES = 2**15


def count_occurrences(occurrence: float, n_estimators: int) -> int:
    """Trees a sample: k = min(T, max(1, ceil(q T - 1e-9))).

    A bare ceil would give 8 for q = 0.07 and T = 100, since 0.07 * 100 > 7 in floating point.
    """
    return min(n_estimators, max(1, math.ceil(occurrence * n_estimators - 1e-9)))


def count_features(max_features: Any, n_features: int) -> int:
    """Attributes a node from the `max_features` parameter, as scikit-learn's forests read it.

    Raises
    ------
    InputError
        When it is neither a known word, nor a share in (0, 1], nor a count of at least 1.
    """
    if max_features is None:
        return n_features
    if isinstance(max_features, str):
        if max_features == "sqrt":
            return max(1, int(math.sqrt(n_features)))
        if max_features == "log2":
            return max(1, int(math.log2(n_features)))
    elif isinstance(max_features, int | np.integer) and not isinstance(max_features, bool):
        if max_features >= 1:
            return min(int(max_features), n_features)
    elif isinstance(max_features, float | np.floating) and 0.0 < max_features <= 1.0:
        return max(1, int(max_features * n_features))
    raise InputError(
        f"max_features={max_features!r} must be 'sqrt', 'log2', None, a share in (0.0, 1.0] or a "
        "number of features of at least 1"
    )


def read_settings(params: dict[str, Any], n_features: int, criteria: tuple[str, ...]) -> ForestSettings:
    """Check a forest's parameters.

    Parameters
    ----------
    params : the constructor's parameters by name.
    n_features : number of columns.
    criteria : the criteria that the estimator offers.

    Raises
    ------
    InputError
        Naming the parameter, its value and the rule.
    """
    check_number("n_estimators", params["n_estimators"], low=1, high=MAX_TREES)
    occurrence = params["occurrence"]
    check_number("occurrence", occurrence, low=0.0, high=1.0, integral=False, is_open=True)
    if params["max_depth"] is not None:
        check_number("max_depth", params["max_depth"], low=1, high=UNLIMITED_DEPTH)
    check_number("min_samples_split", params["min_samples_split"], low=2, high=2**31 - 1)
    check_number("n_thresholds", params["n_thresholds"], low=1, high=2**15)
    criterion = params["criterion"]
    if not isinstance(criterion, str) or criterion not in criteria:
        raise InputError(f"criterion={criterion!r} must be one of {', '.join(map(repr, criteria))}")
    return ForestSettings(
        n_trees=int(params["n_estimators"]),
        occurrences=count_occurrences(float(occurrence), int(params["n_estimators"])),
        max_depth=UNLIMITED_DEPTH if params["max_depth"] is None else int(params["max_depth"]),
        min_samples_split=int(params["min_samples_split"]),
        n_thresholds=int(params["n_thresholds"]),
        max_features=count_features(params["max_features"], n_features),
        criterion=CRITERIA[criterion],
        seed=draw_seed(params["random_state"]),
        is_regression=criterion == "squared_error",
    )
