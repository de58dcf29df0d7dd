"""LightGBM reads the text of a model, and answers as the model does."""

import json
from typing import Any

import lightgbm
import numpy as np
import pandas as pd
import pytest

from oubli import core, lightgbm_rows
from oubli.core.data.schema import Task
from oubli.core.errors import EmptyModelError, FeatureCountError, InputError, UnavailableError
from oubli.core.estimators import KINDS
from tests.exact.core.test_look import CLASSES, MODELS, labels, rows
from tests.tiers import covering

CLOSE = 1e-12  # of answers that are sums of other terms, and of exponentials by other functions


def answers(model: Any, X: Any) -> np.ndarray:
    """What LightGBM's form of a model should answer."""
    found = model.query(X)
    expected = found.labels[:, np.newaxis] if found.probabilities is None else found.probabilities
    return np.asarray(expected[:, 1:] if expected.shape[1] == 2 else expected)


def read(text: str, X: Any) -> np.ndarray:
    """What LightGBM answers, of numbers made of rows."""
    found = np.asarray(lightgbm.Booster(model_str=text).predict(lightgbm_rows(text, X)))
    return found.reshape(len(found), -1)


@pytest.mark.parametrize("name", MODELS)
def test_each_row_is_answered_alike(name: str) -> None:
    model, queries = MODELS[name](), rows(150)
    text, expected = model.to_lightgbm(), answers(model, queries)
    assert read(text, queries) == pytest.approx(expected, rel=CLOSE, abs=CLOSE)
    booster, X = lightgbm.Booster(model_str=text), lightgbm_rows(text, queries)
    # SHAP values of LightGBM, for which it reads the counts of samples too, sum up to its raw score.
    parts = np.asarray(booster.predict(X, pred_contrib=True)).reshape(len(X), -1, X.shape[1] + 1)
    raw = np.asarray(booster.predict(X, raw_score=True)).reshape(len(X), -1)
    assert parts.sum(axis=2) == pytest.approx(raw, abs=1e-9)
    assert text == model.to_lightgbm()
    assert model.verify().ok


def test_a_class_of_many_can_be_asked_for() -> None:
    model = MODELS["forest"]()
    for place, label in enumerate(model.classes_.tolist()):
        text = model.to_lightgbm(of_class=label)
        assert "\nobjective=regression\n" in text
        shares = model.predict_proba(rows(60))[:, place]
        assert read(text, rows(60))[:, 0] == pytest.approx(shares, rel=CLOSE, abs=CLOSE)


@pytest.mark.parametrize("name", ["forest", "tree", "incremental with statistics", "online"])
def test_a_dataframe_with_categories_is_read_by_lightgbm_itself(name: str) -> None:
    model = MODELS[name]()
    booster = lightgbm.Booster(model_str=model.to_lightgbm())
    frame = pd.DataFrame(rows(80), columns=["size", "place", "new", "age"])
    expected = answers(model, frame)
    for categories in (list("uvwxyz"), list("zyxwvu")):
        given = frame.assign(place=pd.Categorical(frame["place"], categories), new=frame["new"].astype(float))
        assert np.asarray(booster.predict(given)).reshape(expected.shape) == pytest.approx(expected, abs=CLOSE)


# Numbers. Ours are rounded to float32 before they are compared, LightGBM's are not.


def around(thresholds: list[float]) -> np.ndarray:
    """Doubles at and next to thresholds, to the float32 next to them, and to what lies between."""
    found = []
    for threshold in thresholds:
        held = np.float32(threshold)
        with np.errstate(over="ignore"):
            near = [held, np.nextafter(held, np.float32(np.inf)), np.nextafter(held, np.float32(-np.inf))]
        exact = [threshold, *(float(one) for one in near if np.isfinite(one))]
        exact += [(exact[0] + other) / 2 for other in exact[1:]]
        for value in exact:
            found += [value, np.nextafter(value, np.inf), np.nextafter(value, -np.inf)]
    return np.array(found)


@pytest.mark.parametrize(("estimator", "scale", "dtype"), covering(
    [core.DynamicForestRegressor, core.IncrementalBoostingRegressor, core.OnlineBoostingRegressor], [1.0, 1e-20, 3e37],
    ["float32", {0: "float32", 1: "float64"}, "float64"],
))  # fmt: skip
def test_numbers_next_to_thresholds_go_the_same_way(estimator: Any, scale: float, dtype: Any) -> None:
    draw = np.random.default_rng(1)
    X = draw.normal(size=(300, 2)) * scale
    y = np.sign(X[:, 0]) + X[:, 1] / scale
    model = estimator(n_estimators=10, random_state=0).fit(X, y, dtype=dtype)
    text = model.to_lightgbm()
    splits = [one for one in model.trees_to_dataframe().itertuples() if one.threshold == one.threshold]
    values = np.unique(around([one.threshold for one in splits if one.feature == "x0"][:200]))
    assert len(values) > 20
    queries = np.column_stack([values, np.full(len(values), scale)])
    assert read(text, queries) == pytest.approx(answers(model, queries), rel=CLOSE, abs=CLOSE)
    found = np.asarray(lightgbm.Booster(model_str=text).predict(queries))
    assert found == pytest.approx(model.predict(queries), rel=CLOSE, abs=CLOSE)


def test_numbers_beyond_float32_are_held_as_the_largest_one() -> None:
    largest = float(np.finfo(np.float32).max)
    X = np.array([[0.0], [largest / 2], [largest], [None]], float).repeat(5, axis=0)
    model = core.DynamicForestRegressor(n_estimators=9, random_state=0).fit(X, X[:, 0] > 1, dtype="float32")
    queries = np.array([[largest], [largest * 1.5], [1e308], [-1e308], [0.0], [-0.0], [np.nan]])
    assert read(model.to_lightgbm(), queries) == pytest.approx(answers(model, queries), abs=CLOSE)


def test_what_lightgbm_takes_for_zero_is_refused_as_a_threshold() -> None:
    X = np.arange(40.0)[:, np.newaxis] * 1e-37
    model = core.DynamicForestRegressor(n_estimators=2, random_state=0).fit(X, X[:, 0] * 1e37)
    with pytest.raises(InputError, match="'x0': is split at a number so small that LightGBM takes it for 0"):
        model.to_lightgbm()
    counts = core.DynamicForestRegressor(n_estimators=3, random_state=0)
    counts.fit([[-1.0], [0.0], [1.0]] * 9, [0.0, 1.0, 2.0] * 9)
    queries = np.array([[-1.0], [-0.0], [0.0], [1.0]])
    assert read(counts.to_lightgbm(), queries) == pytest.approx(answers(counts, queries), abs=CLOSE)


def test_targets_whose_sums_are_no_numbers_are_refused() -> None:
    X = np.arange(40.0)[:, np.newaxis]
    model = core.IncrementalBoostingRegressor(n_estimators=30, learning_rate=1.0, quantization=None)
    model.fit(X, np.where(X[:, 0] % 2, 1.6e308, -1.6e308))
    with pytest.raises(InputError, match="'label': is so large that sums of leaves are no numbers"):
        model.to_lightgbm()


@pytest.mark.parametrize("loss", ["poisson", "quantile", "huber"])
@pytest.mark.parametrize("estimator", [core.IncrementalBoostingRegressor, core.OnlineBoostingRegressor])
def test_other_losses_of_numbers(estimator: Any, loss: str) -> None:
    X = np.random.default_rng(4).normal(size=(200, 2))
    parameters = {"loss": loss, "min_child_weight": 1.0, "random_state": 0}
    model = estimator(n_estimators=8, **parameters).fit(X, np.floor(np.exp(X[:, 0])))
    assert read(model.to_lightgbm(), X) == pytest.approx(answers(model, X), rel=CLOSE, abs=CLOSE)


# Categories


def shops(n: int, n_shops: int = 90) -> tuple[list[list[Any]], list[str]]:
    draw = np.random.default_rng(5)
    X: list[list[Any]] = [
        [f"shop {draw.integers(n_shops)}" if draw.random() < 0.95 else None, float(draw.normal())] for _ in range(n)
    ]
    return X, ["yes" if hash_of(row[0]) + draw.normal() > 0 else "no" for row in X]


def hash_of(shop: str | None) -> float:
    return 0.3 if shop is None else (int(shop.split()[1]) * 37 % 11 - 5) / 3


@pytest.mark.parametrize("model", [
    core.DynamicForestClassifier(n_estimators=5, random_state=0), core.DynamicTreeClassifier(),
    core.OnlineBoostingClassifier(n_estimators=10, random_state=0),
    core.IncrementalBoostingClassifier(n_estimators=10, random_state=0),
    core.IncrementalBoostingClassifier(n_estimators=10, random_state=0, category_statistics=None),
], ids=["forest", "tree", "online", "statistics", "incremental"])  # fmt: skip
def test_more_categories_than_a_word_has_bits(model: Any) -> None:
    X, y = shops(900)
    model.fit(X, y)
    assert read(model.to_lightgbm(), X) == pytest.approx(answers(model, X), abs=CLOSE)


def test_a_category_that_no_sample_has_goes_the_same_way_or_is_refused() -> None:
    queries = [[3.0, "new here", True, 1.0], [None, "another", None, 2.0]]
    known = core.IncrementalBoostingClassifier(n_estimators=4, random_state=0, min_child_weight=0.1)
    known.fit(rows(), labels(120, 2), schema=CLASSES)
    text = known.to_lightgbm()
    assert lightgbm_rows(text, queries)[:, 1].tolist() == [6.0, 6.0]
    assert read(text, queries) == pytest.approx(answers(known, queries), abs=CLOSE)
    forest = MODELS["forest"]()
    with pytest.raises(InputError, match="row 1, 'place': is a category that no sample had when the model was expor"):
        lightgbm_rows(forest.to_lightgbm(), [rows(1)[0], queries[0]])
    # Rare categories, and those that no sample has, are read as one.
    X, y = shops(900, 300)
    model = core.IncrementalBoostingClassifier(n_estimators=10, random_state=0).fit(X, y)
    assert model.engine_.statistics
    with pytest.raises(InputError, match="'x0': is a category that no sample had"):
        lightgbm_rows(model.to_lightgbm(), [["shop 1000", 0.0]])


def test_a_category_that_has_gone_is_refused_where_a_split_still_asks_for_it() -> None:
    tree = core.DynamicTreeClassifier(epsilon=2.0).fit([["u"]] * 3 + [["v"]] * 3 + [["w"]] * 3, ["a"] * 3 + ["b"] * 6)
    assert lightgbm_rows(tree.to_lightgbm(), [["new"]]).tolist() == [[3.0]]
    tree.delete(["0", "1", "2"])
    text = tree.to_lightgbm()
    assert '"u"' not in text
    assert read(text, [["v"], ["w"], [None]]) == pytest.approx(answers(tree, [["v"], ["w"], [None]]))
    with pytest.raises(InputError, match="is a category that no sample had"):
        lightgbm_rows(text, [["u"]])


def test_missing_against_the_rest_tells_unknown_categories_apart() -> None:
    model = core.DynamicTreeClassifier().fit([["u"], [None], ["v"]] * 3, ["a", "b", "a"] * 3)
    text = model.to_lightgbm()
    missing = pytest.approx(np.nan, nan_ok=True)
    assert lightgbm_rows(text, [["u"], [None], ["new"]]).tolist() == [[0.0], [missing], [2.0]]
    assert read(text, [["u"], [None], ["new"]])[:, 0].tolist() == [0.0, 1.0, 0.0]


# The text


def test_names_are_without_what_lightgbm_refuses_and_rows_are_matched_by_their_own() -> None:
    frame = pd.DataFrame({'a "b"': [1.0, 2.0], "a_b_": [0.0, 1.0], "é = 1": ["x", "y"]})
    model = core.DynamicForestClassifier(n_estimators=2, random_state=0).fit(frame, [0, 1])
    text = model.to_lightgbm()
    assert lightgbm.Booster(model_str=text).feature_name() == ["a_b_", "a_b__", "é_1"]
    assert lightgbm_rows(text, frame[["é = 1", "a_b_", 'a "b"']]).tolist() == [[1.0, 0.0, 0.0], [2.0, 1.0, 1.0]]
    with pytest.raises(FeatureCountError, match="2 features"):
        lightgbm_rows(text, [[1.0, 2.0]])
    with pytest.raises(InputError, match="not a model that to_lightgbm has written"):
        lightgbm_rows("tree\nversion=v4\n", frame)


def test_the_text_names_classes_and_no_sample() -> None:
    model = core.DynamicForestClassifier(n_estimators=2, random_state=0)
    text = model.fit([[1.0], [2.0], [3.0]], [7, 8, 9], ids=["ada", "bob", "cy"]).to_lightgbm()
    (own,) = [line.removeprefix("oubli=") for line in text.splitlines() if line.startswith("oubli=")]
    assert json.loads(own)["classes"] == [7, 8, 9]
    assert not any(name in text for name in ("ada", "bob", '"cy"'))
    for bad in (6, 7.5, [7]):
        with pytest.raises(InputError, match="of_class"):
            model.to_lightgbm(of_class=bad)


@pytest.mark.parametrize("estimator", [one for (_, task), one in KINDS.items() if task is Task.CLASSIFICATION])
def test_one_class_is_certain_and_no_sample_is_no_model(estimator: Any) -> None:
    model = estimator().fit([[1.0], [2.0]], ["a", "a"])
    text = model.to_lightgbm()
    assert read(text, [[1.5], [None]]) == pytest.approx(np.ones((2, 1)))
    model.delete(["0", "1"])
    with pytest.raises(EmptyModelError, match="holds no samples"):
        model.to_lightgbm()


def test_trees_without_samples_are_left_out_and_low_disclosure_is_refused() -> None:
    model = core.DynamicForestClassifier(n_estimators=20, occurrence=0.1, random_state=0)
    model.fit([[1.0], [2.0], [3.0]], ["a", "b", "b"])
    text = model.to_lightgbm()
    assert 0 < lightgbm.Booster(model_str=text).num_trees() < 20
    assert read(text, [[1.0], [2.5]]) == pytest.approx(answers(model, [[1.0], [2.5]]), abs=CLOSE)
    model.set_params(disclosure="low").fit([[1.0], [2.0], [3.0]], ["a", "b", "b"])
    with pytest.raises(UnavailableError, match="disclosure='low' answers each row by other trees"):
        model.to_lightgbm()


def test_weights_and_tags_are_in_the_text() -> None:
    X = np.arange(30.0)[:, np.newaxis]
    model = core.DynamicForestClassifier(n_estimators=4, random_state=0, min_samples_split=10)
    model.fit(X, X[:, 0] > 12, sample_weight=np.linspace(0.1, 3.0, 30))
    model.delete(["3", "4", "5"])
    assert model.n_lazy_tags_
    text = model.to_lightgbm()
    assert read(text, X) == pytest.approx(answers(model, X), abs=CLOSE)
