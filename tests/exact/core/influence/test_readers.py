"""Views of other libraries' models, and of ours: raw scores are the model's, and the samples give the leaf values."""

from typing import Any

import numpy as np
import pandas as pd
import pytest

from oubli.core.boosting.incremental.estimator import IncrementalBoostingClassifier, IncrementalBoostingRegressor
from oubli.core.boosting.online.estimator import OnlineBoostingClassifier, OnlineBoostingRegressor
from oubli.core.errors import EmptyModelError, FeatureCountError, InputError
from oubli.core.influence import influence, view
from oubli.core.influence.losses import Loss, StartRule
from oubli.core.tree.estimator import DynamicTreeClassifier

lightgbm = pytest.importorskip("lightgbm")
ensemble = pytest.importorskip("sklearn.ensemble")

N = 300
TASKS = ("regression", "binary", "multiclass")
NAMES = {"regression": "Regressor", "binary": "Classifier", "multiclass": "Classifier"}
LOSSES = dict(zip(TASKS, Loss, strict=True))
RULES = {"regression": StartRule.MEAN, "binary": StartRule.LOG_ODDS, "multiclass": StartRule.LOG_SHARES}


@pytest.fixture(scope="module")
def data() -> dict[str, Any]:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(N, 5))
    signal = X[:, 0] + X[:, 1] ** 2 + 0.3 * rng.normal(size=N)
    missing = X.copy()
    missing[rng.random(X.shape) < 0.05] = np.nan
    return {
        "X": X, "missing": missing, "regression": signal, "binary": (signal > 1).astype(int),
        "multiclass": np.digitize(signal, [0.3, 1.5]), "weights": rng.uniform(0.5, 2.0, N),
    }  # fmt: skip


def light(task: str, **parameters: Any) -> Any:
    kind = getattr(lightgbm, f"LGBM{NAMES[task]}")
    return kind(n_estimators=6, learning_rate=0.3, reg_lambda=0.7, num_leaves=8, verbose=-1, n_jobs=1, **parameters)


def extreme(task: str, **parameters: Any) -> Any:
    kind = getattr(pytest.importorskip("xgboost"), f"XGB{NAMES[task]}")
    return kind(n_estimators=6, learning_rate=0.3, max_depth=3, n_jobs=1, **parameters)


def histogram(task: str, **parameters: Any) -> Any:
    kind = getattr(ensemble, f"HistGradientBoosting{NAMES[task]}")
    return kind(max_iter=6, learning_rate=0.3, l2_regularization=0.5, max_leaf_nodes=8, **parameters)


def presorted(task: str, **parameters: Any) -> Any:
    kind = getattr(ensemble, f"GradientBoosting{NAMES[task]}")
    return kind(n_estimators=6, learning_rate=0.3, random_state=0, **parameters)


def raw_scores_of(model: Any, X: Any) -> np.ndarray:
    module = type(model).__module__
    if module.startswith("lightgbm"):
        raw = model.predict(X, raw_score=True)
    elif module.startswith("xgboost"):
        raw = model.predict(X, output_margin=True)
    else:
        raw = model.decision_function(X) if hasattr(model, "classes_") else model.predict(X)
    return np.asarray(raw, np.float64).reshape(len(X), -1)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("task", TASKS)
@pytest.mark.parametrize("make", [light, extreme, histogram, presorted])
def test_raw_scores_are_the_librarys_and_leaves_are_those_of_the_samples(make, task, weighted, data):
    X = data["X"] if make is presorted else data["missing"]
    weights = data["weights"] if weighted else None
    model = make(task).fit(X, data[task], sample_weight=weights)
    seen = view(model, X, data[task], sample_weight=weights)
    np.testing.assert_allclose(seen.raw_scores(X), raw_scores_of(model, X), atol=2e-6)
    np.testing.assert_allclose(seen.trace.scores.T, raw_scores_of(model, X), atol=2e-6)
    np.testing.assert_allclose(seen.refitted_values, seen.values, atol=5e-6)
    assert (seen.start_rule, seen.loss) == (RULES[task], LOSSES[task])
    assert seen.ids[:2] == ["0", "1"]
    rows = X[:4]
    scores = influence(seen, rows, data[task][:4]).scores
    assert scores.shape == (N,)
    assert np.abs(scores).max() > 1e-5


def categories(rng: np.random.Generator) -> tuple[pd.DataFrame, np.ndarray]:
    frame = pd.DataFrame({"few": rng.integers(0, 3, N), "many": rng.integers(0, 12, N)}).astype("category")
    frame["number"] = rng.normal(size=N)
    return frame, ((frame["many"].cat.codes % 3 == 0).to_numpy() ^ (rng.random(N) < 0.2)).astype(int)


@pytest.mark.parametrize("make", [
    lambda: light("binary", min_child_samples=5),
    lambda: extreme("binary", enable_categorical=True),
    lambda: histogram("binary", categorical_features="from_dtype"),
], ids=["lightgbm", "xgboost", "histogram"])  # fmt: skip
def test_categorical_splits(make):
    X, y = categories(np.random.default_rng(0))
    model = make().fit(X, y)
    seen = view(model, X, y, ids=[f"row-{i}" for i in range(N)])
    np.testing.assert_allclose(seen.raw_scores(X), raw_scores_of(model, X), atol=2e-6)
    np.testing.assert_allclose(seen.refitted_values, seen.values, atol=5e-6)
    assert seen.ids[3] == "row-3"


def test_boosters_without_their_wrappers(data):
    X, y = data["missing"], data["binary"]
    parameters = {"objective": "binary", "verbose": -1, "num_threads": 1, "boost_from_average": False}
    booster = lightgbm.train(parameters, lightgbm.Dataset(X, y), 4)
    seen = view(booster, X, y)
    np.testing.assert_allclose(seen.raw_scores(X)[:, 0], booster.predict(X, raw_score=True), atol=1e-9)
    assert seen.start_rule is StartRule.CONSTANT
    xgboost = pytest.importorskip("xgboost")
    matrix = xgboost.DMatrix(X, y)
    booster = xgboost.train(
        {"objective": "multi:softprob", "num_class": 3, "base_score": 0.5}, xgboost.DMatrix(X, data["multiclass"]), 4
    )
    seen = view(booster, X, data["multiclass"])
    np.testing.assert_allclose(seen.raw_scores(matrix), booster.predict(matrix, output_margin=True), atol=2e-6)
    assert seen.start_rule is StartRule.CONSTANT


def test_training_that_stopped_early_counts_up_to_the_best(data):
    X, y = data["X"], data["binary"]
    noise = np.random.default_rng(1).integers(0, 2, N)
    training = lightgbm.Dataset(X, y, free_raw_data=False)
    booster = lightgbm.train(
        {"objective": "binary", "verbose": -1, "num_threads": 1}, training, 8,
        [lightgbm.Dataset(X, noise, reference=training)], callbacks=[lightgbm.early_stopping(2, verbose=False)],
    )  # fmt: skip
    assert booster.best_iteration < 8
    np.testing.assert_allclose(view(booster, X, y).raw_scores(X)[:, 0], booster.predict(X, raw_score=True), atol=1e-9)
    model = extreme("binary", early_stopping_rounds=2).fit(X, y, eval_set=[(X, noise)], verbose=False)
    assert model.best_iteration < 5
    np.testing.assert_allclose(view(model, X, y).raw_scores(X), raw_scores_of(model, X), atol=2e-6)


REFUSED = {
    "LightGBM's bagging": (lambda: light("binary", subsample=0.5, subsample_freq=1), "bagging"),
    "LightGBM's dart": (lambda: light("binary", boosting_type="dart"), "dart"),
    "LightGBM's objective": (lambda: light("regression", objective="l1"), "objective='regression_l1'"),
    "LightGBM's l1": (lambda: light("binary", reg_alpha=1.0), "lambda_l1"),
    "LightGBM's class weights": (lambda: light("binary", class_weight="balanced"), "class_weight"),
    "XGBoost's subsample": (lambda: extreme("binary", subsample=0.5), "subsample"),
    "XGBoost's objective": (lambda: extreme("regression", objective="reg:absoluteerror"), "reg:absoluteerror"),
    "XGBoost's l1": (lambda: extreme("binary", reg_alpha=1.0), "reg_alpha"),
    "XGBoost's positive weight": (lambda: extreme("binary", scale_pos_weight=2.0), "scale_pos_weight"),
    "XGBoost's dart": (lambda: extreme("binary", booster="dart"), "dart"),
    "XGBoost's forest": (lambda: extreme("binary", num_parallel_tree=2), "num_parallel_tree"),
    "presorted subsample": (lambda: presorted("binary", subsample=0.5), "subsample"),
    "presorted loss": (lambda: presorted("regression", loss="huber"), "huber"),
    "presorted early stopping": (lambda: presorted("binary", n_iter_no_change=3), "n_iter_no_change"),
    "histogram early stopping": (lambda: histogram("binary", early_stopping=True), "early_stopping=False"),
    "histogram loss": (lambda: histogram("regression", loss="absolute_error"), "absolute_error"),
    "histogram class weights": (lambda: histogram("binary", class_weight="balanced"), "class_weight"),
    "histogram constraints": (lambda: histogram("binary", monotonic_cst=[1, 0, 0, 0, 0]), "monotonic_cst"),
    "a forest": (lambda: ensemble.RandomForestClassifier(3), "RandomForestClassifier"),
}


@pytest.mark.parametrize(("make", "text"), REFUSED.values(), ids=REFUSED)
def test_what_influence_is_not_defined_for_is_refused_by_name(make, text, data):
    model = make()
    y = data["regression"] if "Regressor" in type(model).__name__ else data["binary"]
    model.fit(data["X"], y)
    with pytest.raises(InputError, match=text):
        view(model, data["X"], y)


@pytest.mark.parametrize("make", [light, extreme, histogram, presorted])
def test_other_samples_than_the_models_and_rows_of_another_shape_are_refused(make, data):
    X, y = data["X"], data["binary"]
    model = make("binary").fit(X, y)
    for others, labels in ((X, 1 - y), (X[::-1].copy(), y)):
        with pytest.raises(InputError, match="not those of these samples"):
            view(model, others, labels)
    seen = view(model, X, y)
    for rows, text in (
        (X[:2, :4], "X has 4 features, but .* is expecting 5"),
        (np.zeros((2, 6)), "X has 6 features, but .* is expecting 5"), (X[:0], "X has no rows"), ([], "X has no rows"),
        (X[0], "X must be a table"), ([[1.0, 2.0], [3.0]], "X must be a table"),
    ):  # fmt: skip
        with pytest.raises(InputError, match=text):
            influence(seen, rows, y[: len(rows)])
    with pytest.raises(FeatureCountError):
        view(model, X[:, :4], y)


def test_arguments_are_checked(data):
    X, y = data["X"], data["binary"]
    model = presorted("binary").fit(X, y)
    twice = ["a", "b", "c", "a", *map(str, range(N - 4))]
    for ask, text in (
        (lambda: view(model), "pass the X and y"),
        (lambda: view(model, X, y[1:]), "'y': has 299"),
        (lambda: view(model, X, y, ids=["a"]), "'ids': has 1 "),
        (lambda: view(model, X, y, ids=twice), "row 3, 'id': stands there twice"),
        (lambda: view(model, X, y, sample_weight=-data["weights"]), "sample_weight"),
        (lambda: influence(view(model, X, y), X[:1], ["other"]), "row 0, 'y': must be a class of the model"),
        (lambda: view([]), "list is not a boosted model"),
        (lambda: view(DynamicTreeClassifier().fit(X, y)), "DynamicTreeClassifier is not a boosted model"),
    ):
        with pytest.raises(InputError, match=text):
            ask()


OURS = {
    "online": (OnlineBoostingClassifier, OnlineBoostingRegressor, {}),
    "quantised": (IncrementalBoostingClassifier, IncrementalBoostingRegressor, {}),
    "presorted": (IncrementalBoostingClassifier, IncrementalBoostingRegressor, {"quantization": None}),
}


@pytest.mark.parametrize("task", TASKS)
@pytest.mark.parametrize("kind", OURS)
def test_our_kinds_are_refitted_near_where_they_are(kind, task, data):
    classifier, regressor, parameters = OURS[kind]
    X, y = data["missing"], data[task]
    model = (regressor if task == "regression" else classifier)(12, random_state=0, **parameters).fit(X, y)
    seen = view(model)
    # As the values say, without refitting: the model's own scores.
    leaves, values = seen.route(X), seen.values
    found = seen.start + seen.learning_rate * seen.sum_in(leaves, values)
    np.testing.assert_allclose(found, model.raw_scores(X), atol=1e-9)
    np.testing.assert_array_equal(leaves, seen.leaves)
    tolerance = 1e-5 if kind == "presorted" else 0.2
    np.testing.assert_allclose(seen.raw_scores(X), model.raw_scores(X), atol=tolerance)
    assert bool(seen.note) is (kind != "presorted")
    is_presorted_rule = kind == "presorted" and task != "multiclass"
    assert seen.start_rule is (RULES[task] if is_presorted_rule else StartRule.CONSTANT)
    assert seen.factor == (2 / 3 if task == "multiclass" else 1.0)


@pytest.mark.parametrize("kind", OURS)
def test_our_kinds_with_categories_missing_values_and_deletions(kind):
    """The same categories are in several columns."""
    classifier, _, parameters = OURS[kind]
    rng = np.random.default_rng(5)
    frame = pd.DataFrame({name: rng.integers(0, 6, N).astype(str).astype(object) for name in ("a", "b", "c")})
    frame["x"] = rng.normal(size=N)
    y = np.where((frame["a"] == "1") ^ (frame["b"] == "2") ^ (frame["x"] > 0), "yes", "no")
    frame.loc[::17, "x"] = np.nan
    frame.loc[::13, "c"] = None
    model = classifier(10, random_state=0, **parameters).fit(frame, y, ids=[f"s{i}" for i in range(N)])
    model.delete(["s0", "s5", "s17"])
    assert (model.engine_.trees.nodes["is_categorical"] != 0).any()
    seen = view(model)
    numbers = [int(name[1:]) for name in seen.ids]
    assert set(range(N)) - set(numbers) == {0, 5, 17}
    held = frame.iloc[numbers]
    for rows in (frame.head(30), held, frame.assign(b=frame["b"].where(frame.index != 7, "never seen"))):
        found = seen.start + seen.learning_rate * seen.sum_in(seen.route(rows), seen.values)
        np.testing.assert_allclose(found, model.raw_scores(rows), atol=1e-9)
    np.testing.assert_array_equal(seen.route(held), seen.leaves)
    np.testing.assert_array_equal(seen.y, y[numbers] == "yes")
    tolerance = 1e-5 if kind == "presorted" else 0.2
    np.testing.assert_allclose(seen.raw_scores(held), model.raw_scores(held), atol=tolerance)


@pytest.mark.parametrize("quantization", ["auto", None])
def test_samples_that_only_validate_have_no_influence(quantization, data):
    X, y = data["X"], data["binary"]
    model = IncrementalBoostingClassifier(
        40, early_stopping=3, validation_fraction=0.3, quantization=quantization, random_state=0
    ).fit(X, y)
    seen = view(model)
    validates = seen.weights == 0
    assert 0.2 < validates.mean() < 0.4
    scores = influence(model, X[:5], y[:5]).scores
    assert not scores[validates].any()
    assert np.count_nonzero(scores[~validates]) > 0.9 * (~validates).sum()
    if quantization is None:
        # The values are those of the samples that train, and of no others.
        np.testing.assert_allclose(seen.trace.values, seen.values, atol=1e-5)


@pytest.mark.parametrize("task", ["binary", "regression"])
def test_a_sample_of_weight_2_has_the_influence_of_two_equal_samples(task, data):
    X, y = data["X"][:80], data[task][:80]
    make = IncrementalBoostingRegressor if task == "regression" else IncrementalBoostingClassifier
    twice = np.arange(80) % 3 == 0
    weighed = make(10, quantization=None, random_state=0).fit(X, y, sample_weight=1.0 + twice)
    ids = [str(i) for i in range(80)] + [f"{i} again" for i in np.flatnonzero(twice)]
    doubled = make(10, quantization=None, random_state=0)
    doubled.fit(np.concatenate([X, X[twice]]), np.concatenate([y, y[twice]]), ids=ids)
    np.testing.assert_array_equal(weighed.predict(X), doubled.predict(X))
    expected, found = (influence(model, X[:9], y[:9], ids=ids[:80]) for model in (doubled, weighed))
    np.testing.assert_allclose(found.scores, expected.scores, rtol=1e-6, atol=1e-12)


def test_there_must_be_trees():
    model = IncrementalBoostingClassifier(5).fit([[0.0], [1.0]], ["a", "a"])
    with pytest.raises(InputError, match="one class"):
        view(model)
    model.delete(["0", "1"])
    with pytest.raises(EmptyModelError, match="no samples"):
        view(model)
    with pytest.raises(InputError, match="holds its samples"):
        view(model, [[0.0]], ["a"])
