"""scikit-learn's GradientBoosting and HistGradientBoosting models as views."""

from copy import copy
from typing import Any

import numpy as np

from oubli.core.array_types import Array, Bools, Reals
from oubli.core.errors import InputError
from oubli.core.influence.losses import USUAL_RULES, Loss, StartRule, start_scores
from oubli.core.influence.readers.rows import Given, Route, Training, checked, leaf_numbers, refuse
from oubli.core.influence.views import View, leaf_type


def read(model: Any, given: Given) -> View:
    """Make the view; InputError names what is not supported."""
    name = type(model).__name__
    if name in ("HistGradientBoostingClassifier", "HistGradientBoostingRegressor"):
        return _read_histogram_model(model, given)
    if name in ("GradientBoostingClassifier", "GradientBoostingRegressor"):
        return _read_presorted_model(model, given)
    raise InputError(f"{name} is not a boosted model that can be read: use GradientBoosting* or HistGradientBoosting*")


def _loss_of(model: Any) -> Loss | None:
    if model.loss == "squared_error":
        return Loss.SQUARED_ERROR
    if model.loss != "log_loss":
        return None
    return Loss.BINARY_LOG_LOSS if len(model.classes_) == 2 else Loss.SOFTMAX_LOG_LOSS


# -- GradientBoosting* ------------------------------------------------------------------------------


def _read_presorted_model(model: Any, given: Given) -> View:
    loss = _loss_of(model)
    refuse(
        type(model).__name__,
        {
            f"loss={model.loss!r}, only log_loss and squared_error are supported": loss is None,
            "subsample < 1 trains each tree on other rows": model.subsample != 1.0,
            "n_iter_no_change sets rows aside": model.n_iter_no_change is not None,
            "init is an estimator of its own": not (model.init is None or model.init == "zero"),
        },
    )
    assert loss is not None  # noqa: S101 - refused above
    trees = [estimator.tree_ for estimator in model.estimators_.ravel()]
    is_leaf = [tree.children_left == -1 for tree in trees]
    numbers = leaf_numbers(is_leaf)
    n_groups = model.estimators_.shape[1]

    def route(rows: Any) -> Array:
        cells = np.asarray(rows, np.float32)
        return np.stack([number[tree.apply(cells)] for tree, number in zip(trees, numbers, strict=True)])

    return _view(
        model, loss, given,
        route=route,
        values=[tree.value[leaf, 0, 0] for tree, leaf in zip(trees, is_leaf, strict=True)],
        n_groups=n_groups,
        l2=0.0,
        rule=StartRule.CONSTANT if model.init == "zero" else USUAL_RULES[loss],
        factor=(n_groups - 1) / n_groups if n_groups > 1 else 1.0,
    )  # fmt: skip


# -- HistGradientBoosting* --------------------------------------------------------------------------


def _read_histogram_model(model: Any, given: Given) -> View:
    loss = _loss_of(model)
    sets_aside = model.do_early_stopping_ and model.validation_fraction is not None
    bounds = model.monotonic_cst
    monotonic = bounds is not None and any(bounds.values() if isinstance(bounds, dict) else bounds)
    refuse(
        type(model).__name__,
        {
            f"loss={model.loss!r}, only log_loss and squared_error are supported": loss is None,
            "early stopping sets rows aside: fit with early_stopping=False": sets_aside,
            "monotonic_cst bounds leaf values": monotonic,
            "class_weight: pass sample_weight instead, here too": getattr(model, "class_weight", None) is not None,
        },
    )
    assert loss is not None  # noqa: S101 - refused above
    predictors = [predictor for iteration in model._predictors for predictor in iteration]
    n_groups = model.n_trees_per_iteration_
    is_leaf = [predictor.nodes["is_leaf"] != 0 for predictor in predictors]
    numbering = [_numbering(predictor, leaf) for predictor, leaf in zip(predictors, is_leaf, strict=True)]
    kind = leaf_type(max(int(leaf.sum()) for leaf in is_leaf))
    bitsets = model._bin_mapper.make_known_categories_bitsets()

    def route(rows: Any) -> Array:
        cells = model._preprocess_X(rows, reset=False)
        return np.stack([predictor.predict(cells, *bitsets, 1).astype(kind) for predictor in numbering])

    return _view(
        model, loss, given,
        route=route,
        values=[
            predictor.nodes["value"][leaf] / model.learning_rate
            for predictor, leaf in zip(predictors, is_leaf, strict=True)
        ],
        n_groups=n_groups,
        l2=float(model.l2_regularization),
        rule=USUAL_RULES[loss],
        factor=1.0,
    )  # fmt: skip


def _numbering(predictor: Any, is_leaf: Bools) -> Any:
    """The same tree with the numbers of its leaves as their values, so that the library itself finds leaves."""
    other = copy(predictor)
    other.nodes = predictor.nodes.copy()
    other.nodes["value"][is_leaf] = np.arange(int(is_leaf.sum()))
    return other


# -- both -------------------------------------------------------------------------------------------


def _view(
    model: Any, loss: Loss, given: Given, *, route: Route, values: list[Reals], n_groups: int, l2: float,
    rule: StartRule, factor: float,
) -> View:  # fmt: skip
    route = checked(route, model.n_features_in_, type(model).__name__)
    training = Training.read(given, route, loss, getattr(model, "classes_", ()))
    start = start_scores(rule, training.y, training.weights, n_groups)
    if rule is StartRule.LOG_SHARES:
        start = start - start.mean()
    return View(
        **training.fields(values, l2=l2),
        n_groups=n_groups,
        learning_rate=float(model.learning_rate),
        start=start,
        start_rule=rule,
        factor=factor,
    ).check()
