"""Sets, intervals and data values, beside what is counted by hand from each tree's leaves."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from oubli import core
from oubli.core.errors import EmptyModelError, InputError, UnavailableError
from oubli.core.unseen.scoring import quality_of

N, K = 400, 3


def data(seed: int, n: int = N) -> tuple[Any, Any]:
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 4))
    return X, X[:, 0] + 0.5 * X[:, 1] + rng.normal(size=n)


def classes(y: Any) -> Any:
    return np.digitize(y, [-0.7, 0.7])


def forest(**parameters: Any) -> core.DynamicForestClassifier:
    X, y = data(0)
    return core.DynamicForestClassifier(40, random_state=0, **parameters).fit(X, classes(y))


def by_hand(distances: list[float], coverage: float) -> float:
    """The smallest distance that at least so many of the samples and one more, the new one, do not exceed."""
    allowed = [limit for limit in distances if sum(d <= limit for d in distances) >= coverage * (len(distances) + 1)]
    return min(allowed, default=math.inf)


def held_answers(model: Any) -> dict[str, Any]:
    """What trees that have not learned a sample say of it, by id."""
    store = model.samples_
    answers, known = model.engine_.predict_unseen(model.problem(), store.slots(), model.class_order())
    return {name: answers[i] for i, name in enumerate(store.names(store.slots())) if known[i]}


@pytest.mark.parametrize("coverage", [0.5, 0.9, 0.999])
@pytest.mark.parametrize("by_class", [False, True])
def test_a_set_has_each_class_that_is_as_likely_as_most_held_labels_are(coverage: float, by_class: bool) -> None:
    model = forest(occurrence=0.6)
    model.delete([str(i) for i in range(0, N, 9)])
    model.resolve()
    answers, (X, _) = held_answers(model), data(1, 50)
    labels = {name: int(model.samples_.get(name).label) for name in answers}
    limits = [
        by_hand([1 - row[labels[name]] for name, row in answers.items() if not by_class or labels[name] == k], coverage)
        for k in range(K)
    ]
    expected = [[1 - p <= limits[k] for k, p in enumerate(row)] for row in model.predict_proba(X).tolist()]
    assert model.predict_set(X, coverage, by_class=by_class).tolist() == expected


def test_an_interval_reaches_as_far_as_most_held_targets_are_off() -> None:
    X, y = data(0)
    model = core.DynamicForestRegressor(40, random_state=0).fit(X, y)
    X_new, _ = data(1, 50)
    answers, predictions = held_answers(model), model.predict(X_new)
    for coverage in (0.5, 0.9):
        reach = by_hand([abs(model.samples_.get(name).label - x) for name, x in answers.items()], coverage)
        found = model.predict_interval(X_new, coverage)
        assert found.tolist() == [[x - reach, x + reach] for x in predictions.tolist()]
    assert np.isinf(model.predict_interval(X_new, 0.999)).all(), "400 samples do not tell"


@pytest.mark.parametrize("task", ["classification", "regression"])
def test_boosting_asks_the_samples_that_it_validates_on(task: str) -> None:
    (X, y), (X_new, y_new) = data(0, 2000), data(1, 2000)
    make: Callable[..., Any] = core.IncrementalBoostingRegressor
    if task == "classification":
        make, y, y_new = core.IncrementalBoostingClassifier, classes(y), classes(y_new)
    model = make(60, early_stopping=10, validation_fraction=0.3, random_state=0).fit(X, y)
    assert 500 < len(held_answers(model)) < 700
    if task == "classification":
        inside = model.predict_set(X_new)[np.arange(len(y_new)), y_new]
    else:
        low, high = model.predict_interval(X_new).T
        inside = (low <= y_new) & (y_new <= high)
    assert 0.86 < inside.mean() < 0.94
    for name, row in held_answers(model).items():
        asked = [model.samples_.get(name).features]
        expected = model.predict_proba(asked)[0].tolist() if task == "classification" else model.predict(asked)[0]
        assert (row.tolist() if task == "classification" else row) == expected


def test_wrong_labels_have_the_lowest_values() -> None:
    X, y = data(0)
    labels = classes(X[:, 0])
    wrong = np.arange(0, N, 20)
    labels[wrong] = (labels[wrong] + 1) % K
    model = core.DynamicForestClassifier(60, random_state=0).fit(X, labels)
    found = model.data_values()
    answers = held_answers(model)
    assert dict(zip(found.ids, found.values.tolist(), strict=True)) == {
        name: row[int(model.samples_.get(name).label)] for name, row in answers.items()
    }
    worst = {name for name, _ in found.lowest(len(wrong))}
    assert len(worst & {str(i) for i in wrong}) >= 0.9 * len(wrong)
    regressor = core.DynamicForestRegressor(20, random_state=0).fit(X, y)
    values = dict(zip(regressor.data_values().ids, regressor.data_values().values.tolist(), strict=True))
    squares = {name: (regressor.samples_.get(name).label - x) ** 2 for name, x in held_answers(regressor).items()}
    assert values == pytest.approx({name: -square for name, square in squares.items()})


def test_the_score_is_that_of_answers_by_trees_that_have_not_learned() -> None:
    model = forest()
    answers = held_answers(model)
    hits = [row.argmax() == int(model.samples_.get(name).label) for name, row in answers.items()]
    assert model.oob_score_ == pytest.approx(np.mean(hits))
    assert model.oob_decision_function_.tolist() == [answers[name].tolist() for name in model.data_values().ids]
    X, y = data(0)
    regressor = core.DynamicForestRegressor(20, random_state=0).fit(X, y)
    assert regressor.oob_prediction_.tolist() == list(held_answers(regressor).values())
    assert math.isnan(core.DynamicForestClassifier(20, random_state=0).fit(X[:5], classes(y)[:5]).oob_score_)


def test_with_low_disclosure_held_samples_are_answered_as_anybody_s_rows_are() -> None:
    model = forest(disclosure="low")
    rows = [model.samples_.get(name).features for name in model.data_values().ids]
    assert model.oob_decision_function_.tolist() == model.predict_proba(rows).tolist()
    quality = quality_of(model, N)
    assert quality is not None
    assert all(value == round(value, 2) for value in quality.values() if isinstance(value, float))
    exact = quality_of(forest(), N)
    assert exact is not None
    assert exact["log_loss"] != round(exact["log_loss"], 2)


def test_what_is_kept_for_one_version_is_overwritten_by_the_next_change() -> None:
    model = forest()
    X, y = data(2, 3)
    changes = (
        lambda: model.delete("3"), lambda: model.add(X, classes(y)), lambda: model.replace("4", X[0], 1), model.shred,
    )  # fmt: skip
    for change in changes:
        model.predict_set(X)
        model.shap_values(X)
        derived = model.samples_.changes.derived
        assert {"weights of nodes", "values of leaves", "sizes of trees"} < derived.keys()
        kept = list(derived.values())
        assert all(array.any() for array in kept)
        before = model.samples_.changes
        change()
        assert not before.derived
        assert not any(array.any() for array in kept)


def test_models_that_cannot_tell_say_what_to_use() -> None:
    (X, y) = data(0)
    labels = classes(y)
    for model in (
        core.DynamicForestClassifier(4, occurrence=1.0).fit(X, labels), core.DynamicTreeClassifier().fit(X, labels),
        core.IncrementalBoostingClassifier(3).fit(X, labels), core.OnlineBoostingClassifier(3).fit(X, labels),
    ):  # fmt: skip
        with pytest.raises(UnavailableError, match="use a forest with occurrence < 1, or incremental-boosting"):
            model.predict_set(X)
        assert not hasattr(model, "oob_score_")
        with pytest.raises(UnavailableError):
            model.data_values()
    validating = core.IncrementalBoostingClassifier(3, early_stopping=2).fit(X, labels)
    assert not hasattr(validating, "oob_score_")
    for coverage in (0, 1, 1.5, float("nan"), True, "0.9", None):
        with pytest.raises(InputError, match="coverage must be a number between 0 and 1"):
            forest().predict_set(X[:1], coverage)
    model = forest()
    model.delete(model.samples_.ids())
    with pytest.raises(EmptyModelError):
        model.predict_set(X)
