"""XGBoost's models as views."""

import json
from typing import Any

import numpy as np

from oubli.core.array_types import Array, Reals
from oubli.core.influence.losses import Loss, StartRule, find_rule
from oubli.core.influence.readers.rows import Given, Training, checked, leaf_numbers, refuse
from oubli.core.influence.views import View

_LOSSES = {
    "reg:squarederror": Loss.SQUARED_ERROR,
    "binary:logistic": Loss.BINARY_LOG_LOSS,
    "multi:softprob": Loss.SOFTMAX_LOG_LOSS,
    "multi:softmax": Loss.SOFTMAX_LOG_LOSS,
}
_RULES = {
    Loss.SQUARED_ERROR: (StartRule.MEAN,),
    Loss.BINARY_LOG_LOSS: (StartRule.LOG_ODDS, StartRule.NEWTON_STEP),
    Loss.SOFTMAX_LOG_LOSS: (StartRule.LOG_SHARES,),
}


def read(model: Any, given: Given) -> View:
    """Make the view of a Booster, XGBClassifier or XGBRegressor; InputError names what is not supported."""
    import xgboost

    booster = model.get_booster() if hasattr(model, "get_booster") else model
    parameters = json.loads(booster.save_config())["learner"]
    description = json.loads(bytes(booster.save_raw("json")))["learner"]
    _refuse_unsupported(parameters, description)
    loss = _LOSSES[parameters["objective"]["name"]]
    rate = float(parameters["gradient_booster"]["tree_train_param"]["eta"])
    trees = description["gradient_booster"]["model"]["trees"]
    n_groups = max(1, int(description["learner_model_param"]["num_class"]))
    best = getattr(model, "best_iteration", None) if booster.attr("best_iteration") is not None else None
    n_iterations = len(trees) // n_groups if best is None else int(best) + 1
    trees = trees[: n_iterations * n_groups]
    is_leaf = [np.array(tree["left_children"]) == -1 for tree in trees]
    numbers = leaf_numbers(is_leaf)
    values = [np.array(tree["split_conditions"])[leaf] / rate for tree, leaf in zip(trees, is_leaf, strict=True)]
    missing = getattr(model, "missing", np.nan)

    def find_leaves(rows: Any) -> Array:
        if not isinstance(rows, xgboost.DMatrix):
            rows = xgboost.DMatrix(rows, missing=missing, enable_categorical=True)
        found = booster.predict(rows, pred_leaf=True, iteration_range=(0, n_iterations))
        nodes = found.reshape(len(found), -1).astype(np.int64)
        return np.stack([number[nodes[:, tree]] for tree, number in enumerate(numbers)])

    route = checked(find_leaves, booster.num_features(), type(model).__name__)
    training = Training.read(given, route, loss, getattr(model, "classes_", np.arange(max(2, n_groups))))
    start = _start_of(description["learner_model_param"]["base_score"], loss, n_groups)
    return View(
        **training.fields(values, l2=float(parameters["gradient_booster"]["tree_train_param"]["lambda"])),
        n_groups=n_groups,
        learning_rate=rate,
        start=start,
        start_rule=find_rule(_RULES[loss], start, training.y, training.weights),
        hessian_scale=2.0 if loss is Loss.SOFTMAX_LOG_LOSS else 1.0,
    ).check()


def _start_of(base_score: str, loss: Loss, n_groups: int) -> Reals:
    """F_0 from the text of base_score: a number or a list; of two classes a probability."""
    start = np.atleast_1d(np.array(json.loads(base_score), np.float64))
    if loss is Loss.BINARY_LOG_LOSS:
        start = np.log(start) - np.log1p(-start)
    return np.broadcast_to(start, n_groups).astype(np.float64)


def _refuse_unsupported(parameters: Any, description: Any) -> None:
    objective, booster = parameters["objective"], parameters["gradient_booster"]
    name = objective["name"]
    is_tree = description["gradient_booster"]["name"] == "gbtree"
    training = booster.get("tree_train_param", {})
    counts = description["gradient_booster"].get("model", {}).get("gbtree_model_param", {})
    weight = objective.get("reg_loss_param", {}).get("scale_pos_weight", "1")
    refuse(
        "XGBoost",
        {
            f"booster={description['gradient_booster']['name']!r}, only gbtree is supported": not is_tree,
            f"objective={name!r}, only {', '.join(_LOSSES)} are supported": name not in _LOSSES,
            "num_parallel_tree > 1": int(counts.get("num_parallel_tree", 1)) != 1,
            "more than one target": int(description["learner_model_param"].get("num_target", 1)) != 1,
            "subsample < 1 trains each tree on other rows": float(training.get("subsample", 1)) != 1.0,
            "reg_alpha > 0": float(training.get("alpha", 0)) != 0.0,
            "max_delta_step > 0": float(training.get("max_delta_step", 0)) != 0.0,
            "monotone_constraints": any(c in "123456789" for c in training.get("monotone_constraints", "")),
            "scale_pos_weight: pass sample_weight instead, here too": float(weight) != 1.0,
        },
    )
