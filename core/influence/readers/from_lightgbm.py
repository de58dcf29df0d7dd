"""LightGBM's models as views."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from oubli.core.array_types import Array, Ints
from oubli.core.influence.losses import USUAL_RULES, Loss, StartRule, start_scores
from oubli.core.influence.readers.rows import Given, Training, checked, refuse
from oubli.core.influence.views import View, leaf_type

_LOSSES = {
    "regression": Loss.SQUARED_ERROR,
    "binary": Loss.BINARY_LOG_LOSS,
    "multiclass": Loss.SOFTMAX_LOG_LOSS,
}


def read(model: Any, given: Given) -> View:
    """Make the view of a Booster, LGBMClassifier or LGBMRegressor; InputError names what is not supported."""
    booster = getattr(model, "booster_", model)
    n_iterations = booster.best_iteration if booster.best_iteration > 0 else None
    description = booster.dump_model(num_iteration=n_iterations)
    parameters = _parameters_of(booster)
    objective = description.get("objective", "none").split(" ")
    _refuse_unsupported(model, objective, parameters, description)
    loss = _LOSSES[objective[0]]
    trees = description["tree_info"]
    n_groups = int(description["num_tree_per_iteration"])
    leaves_of = [sorted(_leaves(tree["tree_structure"], None), key=lambda leaf: leaf[0]) for tree in trees]
    kind = leaf_type(max(map(len, leaves_of)))

    def find_leaves(rows: Any) -> Array:
        found = booster.predict(rows, pred_leaf=True, num_iteration=n_iterations)
        return np.ascontiguousarray(np.asarray(found).reshape(-1, len(trees)).T.astype(kind))

    route = checked(find_leaves, booster.num_feature(), type(model).__name__)
    training = Training.read(given, route, loss, getattr(model, "classes_", np.arange(max(2, n_groups))))
    # Targets of a regression are held as float32 there.
    training = training._replace(y=training.y.astype(np.float32).astype(np.float64))
    rule = USUAL_RULES[loss] if int(parameters.get("boost_from_average", 1)) else StartRule.CONSTANT
    start = start_scores(rule, training.y, training.weights, n_groups)
    rate = float(parameters["learning_rate"])
    values = [np.array([value for _, value, _ in found]) for found in leaves_of]
    for k in range(n_groups):
        values[k] -= start[k]  # F_0 is part of the leaves of the first iteration
    view = View(
        **training.fields([part / rate for part in values], l2=float(parameters.get("lambda_l2", 0))),
        n_groups=n_groups,
        learning_rate=rate,
        start=start,
        start_rule=rule,
        hessian_scale=n_groups / (n_groups - 1) if n_groups > 1 else 1.0,
    )
    split_features = np.array([feature for found in leaves_of for _, _, feature in found])
    return _with_category_regulariser(view, split_features, float(parameters.get("cat_l2", 10))).check()


def _leaves(node: dict[str, Any], split_feature: int | None) -> Iterator[tuple[int, float, int]]:
    """Yield number, value, and column of the categorical split right above (-1: none) of each leaf below a node."""
    stack: list[tuple[dict[str, Any], int]] = [(node, -1 if split_feature is None else split_feature)]
    while stack:
        node, above = stack.pop()
        if "left_child" not in node:
            yield int(node.get("leaf_index", 0)), float(node["leaf_value"]), above
            continue
        here = int(node["split_feature"]) if node["decision_type"] == "==" else -1
        stack += [(node["left_child"], here), (node["right_child"], here)]


def _with_category_regulariser(view: View, split_features: Ints, cat_l2: float) -> View:
    """Add cat_l2 to the leaves under categorical splits where that is what LightGBM has done.

    It does unless a column has few categories, which a model does not tell: what fits a column's leaves better is it.
    """
    columns = np.unique(split_features[split_features >= 0])
    if len(columns) == 0 or cat_l2 == 0.0:
        return view
    counts = view.trace.counts
    regularised = replace(view, l2=view.l2 + np.where(split_features >= 0, cat_l2, 0.0))
    error = np.abs(view.refitted_values - view.values) * counts
    other_error = np.abs(regularised.refitted_values - view.values) * counts
    l2 = view.l2.copy()
    for column in columns:
        here = split_features == column
        if other_error[here].sum() < error[here].sum():
            l2[here] += cat_l2
    return replace(view, l2=l2)


def _parameters_of(booster: Any) -> dict[str, str]:
    """The training parameters as the model's text lists them."""
    text = booster.model_to_string().rpartition("\nparameters:")[2]
    lines = [line[1:-1].partition(": ") for line in text.splitlines() if line.startswith("[") and line.endswith("]")]
    return {name: value for name, _, value in lines}


def _refuse_unsupported(model: Any, objective: list[str], parameters: dict[str, str], description: Any) -> None:
    def number(name: str, default: float) -> float:
        return float(parameters.get(name) or default)

    bags = number("bagging_freq", 0) > 0 and number("bagging_fraction", 1) < 1
    kind = parameters.get("boosting", "gbdt")
    shrinkages = {
        round(tree["shrinkage"], 9) for tree in description["tree_info"][int(description["num_tree_per_iteration"]) :]
    }
    constrained = any(description.get("monotone_constraints") or [])
    refuse(
        "LightGBM",
        {
            "it has no trees": len(description["tree_info"]) <= 0,
            f"objective={objective[0]!r}, only {', '.join(_LOSSES)} are supported": objective[0] not in _LOSSES,
            "reg_sqrt": "sqrt" in objective,
            f"boosting={kind!r}, only gbdt is supported": kind not in ("gbdt", "gbrt"),
            "data_sample_strategy='goss'": parameters.get("data_sample_strategy", "bagging") != "bagging",
            "bagging trains each tree on other rows": bags,
            "lambda_l1 > 0": number("lambda_l1", 0) != 0,
            "max_delta_step > 0": number("max_delta_step", 0) != 0,
            "path_smooth > 0": number("path_smooth", 0) != 0,
            "linear_tree": number("linear_tree", 0) != 0,
            "sigmoid other than 1": number("sigmoid", 1) != 1,
            "scale_pos_weight: pass sample_weight instead, here too": number("scale_pos_weight", 1) != 1,
            "is_unbalance: pass sample_weight instead, here too": number("is_unbalance", 0) != 0,
            "class_weight: pass sample_weight instead, here too": getattr(model, "class_weight", None) is not None,
            "monotone_constraints": constrained,
            "the learning rate has changed during training": len(shrinkages - {1.0}) > 1,
        },
    )
