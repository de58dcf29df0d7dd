"""The estimators by scikit-learn's own checks, and by what its users expect."""

import inspect
import pickle
import re
import sys
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pandas as pd
import pytest
import sklearn.exceptions
from sklearn.base import ClassifierMixin, RegressorMixin, clone
from sklearn.metrics import accuracy_score, r2_score
from sklearn.utils import get_tags
from sklearn.utils.estimator_checks import estimator_checks_generator
from sklearn.utils.validation import check_is_fitted

from oubli import core
from oubli.core.data.schema import Task
from oubli.core.errors import DataConversionWarning, InputError, NotFittedError
from oubli.core.estimators import KINDS
from tests.serving import output_of

ESTIMATORS = tuple(KINDS[key] for key in KINDS)
ONLINE_REGRESSOR = KINDS["online-boosting", Task.REGRESSION]
NAMES = {
    "classification": core.DynamicForestClassifier, "regression": core.DynamicForestRegressor,
    "tree": core.DynamicTreeClassifier, "online": core.OnlineBoostingClassifier,
    "incremental": core.IncrementalBoostingClassifier,
}  # fmt: skip
CLASSIFIERS = ("classification", "tree", "online", "incremental")
FAST = {"n_estimators": 20, "learning_rate": 0.3}
PARAMETERS: dict[str, list[dict[str, Any]]] = {
    "forest": [{"n_estimators": 5}, {"n_estimators": 4, "occurrence": 0.5, "lazy": False}],
    "tree": [{}, {"alpha": 0.1, "beta": 0.3, "epsilon": None, "lazy": True}],
    "online-boosting": [FAST],
    "incremental-boosting": [FAST, {**FAST, "quantization": None, "early_stopping": 5}],
}


def expected_to_fail(model: Any) -> dict[str, str]:
    """scikit-learn's checks that ask for what a kind cannot have, with the reasons; docs/how-to/python.md has them."""
    expected = {}
    # An online regressor does not split the few samples of these checks, nor does iGBDT draw anything.
    if model.kind != "tree" and getattr(model, "quantization", "") is not None and type(model) is not ONLINE_REGRESSOR:
        reason = "ids decide what samples are learned by: one of weight 2 is not two equal ones"
        for data in ("dense", "sparse"):
            expected[f"check_sample_weight_equivalence_on_{data}_data"] = reason
    if getattr(model, "alpha", 0) == 0 and model.kind in ("forest", "tree"):
        expected["check_class_weight_classifiers"] = (
            "trees that grow until their leaves are pure answer the same whatever their classes weigh; those of "
            "scikit-learn stop sooner in this check, by a parameter that these do not have"
        )
    return expected


def all_checks() -> Iterator[Any]:
    """Every check that scikit-learn has for these estimators."""
    for estimator in ESTIMATORS:
        for parameters in PARAMETERS[estimator.kind]:
            expected = expected_to_fail(estimator(**parameters))
            with warnings.catch_warnings():
                # The estimators have no base class of scikit-learn's, because they work without it.
                warnings.filterwarnings("ignore", message=".*does not inherit from `sklearn.base.BaseEstimator`")
                checks = list(estimator_checks_generator(estimator(**parameters)))
            for model, check in checks:
                options = ",".join(f"{name}={value}" for name, value in check.keywords.items())
                reason = expected.get(check.func.__name__)
                marks = [] if reason is None else [pytest.mark.xfail(strict=True, reason=reason, raises=AssertionError)]
                if check.func.__name__ != "check_array_api_input":  # below
                    yield pytest.param(model, check, id=f"{model}-{check.func.__name__}({options})", marks=marks)


@pytest.mark.parametrize(("estimator", "check"), list(all_checks()))
def test_scikit_learns_checks(estimator: Any, check: Callable[[Any], None]) -> None:
    check(estimator)


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_estimators_are_scikit_learns_for_who_asks_by_isinstance_or_by_tags(estimator: Any) -> None:
    mixin, other = (ClassifierMixin, RegressorMixin)[:: 1 if estimator.task.value == "classification" else -1]
    assert isinstance(estimator(), mixin)
    assert not isinstance(estimator(), other)
    assert estimator.score is not mixin.score
    tags = get_tags(estimator()).input_tags
    assert (tags.allow_nan, tags.categorical, tags.string) == (True, True, True)


@pytest.mark.long
def test_scikit_learns_check_with_array_api_dispatch() -> None:
    """It is only made when SciPy was imported with this variable set, hence in a process of its own."""
    script = """
from oubli.core import DynamicForestClassifier, DynamicForestRegressor, DynamicTreeClassifier
from sklearn.utils.estimator_checks import check_array_api_input
for model in (DynamicForestClassifier(n_estimators=5), DynamicForestRegressor(n_estimators=5)):
    check_array_api_input(
        type(model).__name__, model, array_namespace="numpy", expect_only_array_outputs=False, check_values=True
    )
"""
    output_of(sys.executable, "-c", script, SCIPY_ARRAY_API="1")


def samples(task: str = "classification", n: int = 60) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, 4)).astype(np.float32)
    signal = X[:, 0] + 2.0 * X[:, 1]
    return X, signal.astype(np.float64) if task == "regression" else np.where(signal > 0, "yes", "no")


def make(task: str = "classification", **parameters: Any) -> Any:
    defaults = {"random_state": 0} if task == "tree" else {"n_estimators": 5, "random_state": 0}
    return NAMES[task](**{**defaults, **parameters})


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_every_parameter_and_fitted_attribute_is_documented(estimator: type[Any]) -> None:
    text = inspect.getdoc(estimator)  # indented alike in all versions of Python
    assert text is not None
    parameters = text.partition("Parameters\n")[2].partition("Attributes\n")[0]
    documented = set(re.findall(r"\w+", "\n".join(re.findall(r"^(\w.*?)(?: :.*)?$", parameters, re.MULTILINE))))
    assert set(estimator().get_params()) <= documented
    defaults = {} if estimator is core.DynamicTreeClassifier else {"n_estimators": 5}
    fitted = estimator(**defaults).fit(*samples(estimator.task.value))
    public = {name for name in vars(fitted) if not name.startswith("_")} - set(fitted.get_params())
    assert all(name.endswith("_") for name in public)


# Errors and warnings are scikit-learn's, too.


@pytest.mark.parametrize("task", CLASSIFIERS)
def test_not_fitted_is_scikit_learns_error_and_ours(task: str) -> None:
    X, y = samples()
    empty = make(task)
    named = ("resolve", "wipe", "scrub", "digest", "verify", "copy")
    for call in (
        *calls(empty, X, y)[:5], *(getattr(empty, name) for name in named), lambda: empty.query(X),
        lambda: empty.delete("0"), lambda: empty.replace("0", X[:1], y[0]), lambda: empty.save("never written"),
        lambda: empty.feature_importances_, lambda: empty.nbytes_,
    ):  # fmt: skip
        with pytest.raises(sklearn.exceptions.NotFittedError, match="call 'fit' with samples") as caught:
            call()
        assert isinstance(caught.value, NotFittedError)
    with pytest.raises(sklearn.exceptions.NotFittedError):
        check_is_fitted(empty)
    check_is_fitted(make(task).fit(X, y))
    assert not hasattr(empty, "classes_")
    assert not hasattr(empty, "feature_importances_")
    copied = pickle.loads(pickle.dumps(caught.value))  # noqa: S301 - passes between processes
    assert (type(copied), str(copied)) == (type(caught.value), str(caught.value))


@pytest.mark.parametrize("task", NAMES)
def test_a_column_vector_is_taken_with_one_warning_that_is_scikit_learns_and_ours(task: str) -> None:
    X, y = samples(task)
    expected = make(task).fit(X, y).digest()
    with pytest.warns(sklearn.exceptions.DataConversionWarning) as caught:
        model = make(task).fit(X, y.reshape(-1, 1))
    assert len(caught) == 1
    assert issubclass(caught[0].category, DataConversionWarning)
    assert caught[0].filename == __file__
    assert model.digest() == expected
    with pytest.warns(DataConversionWarning):
        assert model.score(X, y.reshape(-1, 1)) == model.score(X, y)
    with pytest.warns(DataConversionWarning) as caught:
        model.add(X[:2], y[:2].reshape(-1, 1))
    assert caught[0].filename == __file__


# Feature names. Columns of a DataFrame are matched by name, so their order may differ.


def frame() -> tuple[pd.DataFrame, np.ndarray]:
    X, y = samples()
    return pd.DataFrame(X, columns=["age", "height", "weight", "pulse"]), y


def calls(model: Any, X: Any, y: Any) -> list[Callable[[], Any]]:
    """Every method that takes features, score and partial_fit included."""
    return [
        lambda: model.predict(X), lambda: model.predict_proba(X), lambda: model.predict_log_proba(X),
        lambda: model.score(X, y), lambda: model.add(X, y), lambda: model.partial_fit(X, y),
    ]  # fmt: skip


@pytest.mark.parametrize("task", CLASSIFIERS)
def test_names_without_names_at_fit_and_the_reverse_are_warned_of_where_the_caller_is(task: str) -> None:
    X, y = frame()
    named, unnamed = make(task).fit(X, y), make(task).fit(X.to_numpy(), y)
    for model, other, words in (
        (named, X.to_numpy(), f"X does not have valid feature names, but {NAMES[task].__name__} was"),
        (unnamed, X, f"X has feature names, but {NAMES[task].__name__} was fitted without"),
    ):
        for call in calls(model, other, y):
            with pytest.warns(UserWarning, match=words) as caught:
                call()
            assert caught[0].filename == __file__
    # Lists of rows are in the order of the features; that is what they are for.
    for call in [*calls(named, X, y), *calls(unnamed, X.to_numpy(), y), *calls(named, X.to_numpy().tolist(), y)]:
        call()  # warnings are errors


# Parameters


def test_set_params_sets_all_or_nothing_and_anything_until_the_fit() -> None:
    model = core.DynamicForestClassifier(n_estimators=3)
    with pytest.raises(ValueError, match=r"Invalid parameter 'trees' for estimator .*Valid parameters are: \["):
        model.set_params(n_estimators=99, trees=1)
    assert model.n_estimators == 3
    assert model.set_params(lazy=3).lazy == 3
    with pytest.raises(InputError, match="lazy=3 must be True or False"):
        model.fit(*samples())
    assert not model.__sklearn_is_fitted__()


@pytest.mark.parametrize(("model", "text"), [
    (core.DynamicForestClassifier(), "DynamicForestClassifier()"),
    (core.DynamicForestClassifier(5, lazy=False), "DynamicForestClassifier(lazy=False, n_estimators=5)"),
    (core.DynamicForestRegressor(max_features=0.5), "DynamicForestRegressor()"),
    # One feature is not all of them.
    (core.DynamicForestRegressor(max_features=1), "DynamicForestRegressor(max_features=1)"),
    (core.DynamicTreeClassifier(epsilon=0.1, alpha=0.2), "DynamicTreeClassifier(alpha=0.2)"),
    (core.DynamicForestRegressor(max_features=np.arange(2)), "DynamicForestRegressor(max_features=array([0, 1]))"),
])  # fmt: skip
def test_repr_shows_what_is_not_at_its_default(model: Any, text: str) -> None:
    assert repr(model) == text
    if "array" not in text:
        names = {estimator.__name__: estimator for estimator in ESTIMATORS}
        assert eval(text, names).get_params() == model.get_params()  # noqa: S307 - a repr can be evaluated


def test_clones_and_copies_do_not_share_a_random_state() -> None:
    X, y = samples()
    first, second = (make(random_state=np.random.RandomState(3)).fit(X, y) for _ in range(2))
    assert first.seed_ == second.seed_
    clone(first).fit(X, y)
    first.copy().fit(X, y)
    assert first.fit(X, y).seed_ == second.fit(X, y).seed_


# Scores


@pytest.mark.parametrize("labels", [None, ["a", "b", "c"], [3, 1, 2], [0.0, 1.0, 2.0], [True, False, True]])
def test_scores_are_scikit_learns(labels: list[Any] | None) -> None:
    X, y = samples("regression")
    task, score = "regression", r2_score
    if labels is not None:
        y, task, score = np.array(labels)[np.digitize(X[:, 0], [-0.5, 0.5])], "classification", accuracy_score
    model = make(task, max_depth=1 if labels else None).fit(X[:40], y[:40])
    weights = np.linspace(0.1, 2.0, 60)
    assert 0.3 < model.score(X, y) < 1.0
    assert model.score(X, y) == pytest.approx(score(y, model.predict(X)), rel=1e-12)
    assert model.score(X, y.tolist()) == model.score(X, pd.Series(y)) == model.score(X, y)
    expected = score(y, model.predict(X), sample_weight=weights)
    assert model.score(X, y, sample_weight=weights) == pytest.approx(expected, rel=1e-12)
    for labels_of_others, text in ((y[1:], "X has 60 rows, y has 59 labels"), (np.column_stack([y, y]), "1d array")):
        with pytest.raises(InputError, match=text):
            model.score(X, labels_of_others)


def test_accuracy_compares_labels_as_they_are_held() -> None:
    X, _ = samples()
    y = np.where(X[:, 0] > 0, "1", "2")
    model = make(n_estimators=20).fit(X, y)
    assert model.score(X, y) == 1.0
    assert model.score(X, np.where(X[:, 0] > 0, 1, 2)) == 1.0  # an integer is taken as its text
    assert model.score(X, ["never seen"] * len(X)) == 0.0
    with pytest.raises(InputError, match="must not be missing"):
        model.score(X, [None] * len(X))


def test_r2_of_constant_targets_is_scikit_learns() -> None:
    X, y = samples("regression")
    model = make("regression").fit(X[:40], y[:40])
    constant = np.full(60, 2.5)
    assert model.score(X, constant) == r2_score(constant, model.predict(X)) == 0.0
    assert model.fit(X, constant).score(X, constant) == r2_score(constant, model.predict(X)) == 1.0
    assert np.isnan(model.score(X[:1], constant[:1]))  # where r2_score gives NaN and a warning
