"""The estimators as their users call them: what is accepted, refused, answered and left unchanged.

That the model is the right one after all this is for `forest/test_exactness.py`.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import pytest
from numba import config

from oubli.core import DynamicForestClassifier, DynamicForestRegressor
from oubli.core.data.schema import Column, ColumnType, LabelType, Schema, Task
from oubli.core.errors import (
    CapacityError,
    DuplicateIdError,
    EmptyModelError,
    InputError,
    NotFittedError,
    UnknownIdError,
)
from oubli.core.forest import parameters as limits
from oubli.core.forest.parameters import count_features, count_occurrences
from tests.oracles import forest as oracle

TASKS = ["classification", "regression"]


def estimator_for(task: str) -> type[Any]:
    return DynamicForestClassifier if task == "classification" else DynamicForestRegressor


def samples(task: str = "classification", n: int = 60) -> tuple[np.ndarray, np.ndarray]:
    """The second of four features decides."""
    X = np.random.default_rng(0).normal(size=(n, 4)).astype(np.float32)
    return X, (np.where(X[:, 1] > 0, "yes", "no") if task == "classification" else 3.0 * X[:, 1].astype(np.float64))


def make(task: str = "classification", **parameters: Any) -> Any:
    return estimator_for(task)(**{"n_estimators": 4, "random_state": 0, **parameters})


def fitted(task: str = "classification", n: int = 60, **parameters: Any) -> Any:
    X, y = samples(task, n)
    return make(task, **parameters).fit(X, y, ids=[f"s{i}" for i in range(n)])


def unchanged(model: Any, call: Callable[[], Any], error: type[Exception], match: str) -> Any:
    """The call is refused, and no bit of the model has changed; returns the error."""
    digest, ids, n_bytes = model.digest(), model.samples_.ids(), model.samples_.nbytes
    with pytest.raises(error, match=match) as caught:
        call()
    assert model.digest() == digest
    assert model.samples_.ids() == ids
    assert model.samples_.nbytes == n_bytes
    model.check_invariants()
    return caught.value


# Parameters


@pytest.mark.parametrize(
    ("name", "value", "rule"),
    [
        ("n_estimators", 0, "must be an integer in [1, 32768]"),
        ("n_estimators", 2**15 + 1, "must be an integer in [1, 32768]"),
        ("n_estimators", 10.0, "must be an integer"),
        ("n_estimators", True, "must be an integer"),
        ("n_estimators", None, "must be an integer"),
        ("occurrence", 0, "must be a number in (0, 1]"),
        ("occurrence", -0.1, "must be a number in (0, 1]"),
        ("occurrence", 1.1, "must be a number in (0, 1]"),
        ("occurrence", math.nan, "must be a number in (0, 1]"),
        ("occurrence", "0.5", "must be a number in (0, 1]"),
        ("max_depth", 0, "must be an integer in [1, 2147483647]"),
        ("max_depth", 3.0, "must be an integer"),
        ("min_samples_split", 1, "must be an integer in [2, 2147483647]"),
        ("min_samples_split", 0.1, "must be an integer"),
        ("n_thresholds", 0, "must be an integer in [1, 32768]"),
        ("n_thresholds", "many", "must be an integer"),
        ("max_features", 0, "None, a share in (0.0, 1.0] or a number of features of at least 1"),
        ("max_features", 0.0, "must be 'sqrt', 'log2', None"),
        ("max_features", 1.01, "must be 'sqrt', 'log2', None"),
        ("max_features", True, "must be 'sqrt', 'log2', None"),
        ("max_features", "auto", "must be 'sqrt', 'log2', None"),
        ("criterion", "mse", "must be one of"),
        ("criterion", None, "must be one of"),
        ("criterion", np.array(["gini", "entropy"]), "must be one of"),
        ("lazy", 1, "must be True or False"),
        ("lazy", "no", "must be True or False"),
        ("random_state", -1, "must be in [0, 2**63): choose another"),
        ("random_state", 2**63, "must be in [0, 2**63): choose another"),
        ("random_state", 0.5, "must be None, an integer, a RandomState or a Generator"),
        ("random_state", True, "must be None, an integer, a RandomState or a Generator"),
    ],
)
@pytest.mark.parametrize("task", TASKS)
def test_a_wrong_parameter_is_named_with_its_rule_when_fitting(task: str, name: str, value: Any, rule: str) -> None:
    model = make(task, **{name: value})
    schema = Schema((Column("x0", ColumnType.NUMERIC),), Task(task), LabelType.NUMBER)
    for call in (lambda: model.fit(*samples(task)), lambda: model.start(schema)):
        with pytest.raises(InputError) as caught:
            call()
        assert str(caught.value).startswith(name)
        assert rule in str(caught.value)
        with pytest.raises(NotFittedError):
            model.digest()


def test_each_task_has_its_criteria() -> None:
    with pytest.raises(InputError, match="criterion='squared_error' must be one of 'gini', 'entropy'"):
        make(criterion="squared_error").fit(*samples())
    with pytest.raises(InputError, match="criterion='gini' must be one of 'squared_error'"):
        make("regression", criterion="gini").fit(*samples("regression"))


@pytest.mark.parametrize(
    ("parameters", "expected"),
    [
        ({"n_estimators": np.int64(3), "max_features": np.float64(0.5)}, {"n_trees": 3, "max_features": 2}),
        ({"max_features": "sqrt"}, {"max_features": 2}),
        ({"max_features": "log2"}, {"max_features": 2}),
        ({"max_features": None}, {"max_features": 4}),
        ({"max_features": 99}, {"max_features": 4}),
        ({"max_features": 1}, {"max_features": 1}),
        ({"max_features": 1.0}, {"max_features": 4}),
        ({"occurrence": 1}, {"occurrences": 4}),
        ({"occurrence": 1e-9}, {"occurrences": 1}),
        ({"occurrence": 0.5, "n_estimators": 5}, {"occurrences": 3}),
        ({"max_depth": None}, {"max_depth": 2**31 - 1}),
        ({"lazy": np.bool_(False)}, {}),
        ({"random_state": 2**63 - 1}, {"seed": 2**63 - 1}),
        ({"random_state": np.int32(7)}, {"seed": 7}),
    ],
)
def test_what_parameters_come_to(parameters: dict[str, Any], expected: dict[str, Any]) -> None:
    settings = fitted(**parameters).settings_.to_dict()
    assert {name: settings[name] for name in expected} == expected
    assert all(type(settings[name]) in {int, bool} for name in settings)


def test_occurrences_are_not_rounded_up_by_floating_point() -> None:
    assert 0.07 * 100 > 7
    assert count_occurrences(0.07, 100) == 7
    assert count_occurrences(0.071, 100) == 8
    assert count_occurrences(1e-12, 100) == 1
    assert count_occurrences(1.0, 100) == 100
    assert all(count_occurrences(k / t, t) == k for t in range(1, 120) for k in range(1, t + 1))


def test_a_single_feature_is_a_feature() -> None:
    assert [count_features(p, 1) for p in ("sqrt", "log2", None, 0.1, 1.0, 1, 5)] == [1] * 7


# Seeds


@pytest.mark.parametrize("source", [lambda: 5, lambda: np.random.RandomState(5), lambda: np.random.default_rng(5)])
def test_a_seed_makes_a_model_that_can_be_had_again(source: Callable[[], Any]) -> None:
    first, second = fitted(random_state=source()), fitted(random_state=source())
    assert first.seed_ == second.seed_
    assert 0 <= first.seed_ < 2**63
    assert first.digest() == second.digest()


def test_random_state_none_draws_a_seed_that_is_kept() -> None:
    first, second = fitted(random_state=None), fitted(random_state=None)
    assert first.seed_ != second.seed_
    assert first.random_state is None
    assert fitted(random_state=first.seed_).digest() == first.digest()
    assert first.verify().ok


def test_a_generator_goes_on_from_fit_to_fit() -> None:
    for source in (np.random.RandomState(5), np.random.default_rng(5)):
        model = fitted(random_state=source)
        seed = model.seed_
        assert model.fit(*samples()).seed_ != seed
        assert model.random_state is source


# Fit


@pytest.mark.parametrize("task", TASKS)
def test_fit_gives_back_the_estimator_and_forgets_what_it_held(task: str) -> None:
    X, y = samples(task)
    model = fitted(task)
    assert model.fit(X[:9], y[:9]) is model
    assert model.samples_.ids() == [str(i) for i in range(9)]
    assert model.digest() == make(task).fit(X[:9], y[:9]).digest()


@pytest.mark.parametrize("task", TASKS)
@pytest.mark.parametrize(
    ("change", "match"),
    [
        ({"X": [[1.0, math.inf, 0.0, 0.0]] * 60}, "row 0, 'x1': must be a finite number"),
        ({"y": None}, "requires y to be passed"),
        ({"y": [None] * 60}, "must not be missing"),
        ({"y": [1] * 59}, "X has 60 rows, y has 59 labels"),
        ({"X": []}, "X has no rows"),
        ({"X": np.zeros((60, 0))}, r"0 feature\(s\)"),
        ({"ids": ["a"] * 60}, "'id'"),
        ({"ids": range(59)}, "X has 60 rows, but 59 ids"),
        ({"ids": [1.5] * 60}, "row 0, 'id': must be text"),
        ({"categorical_features": [9]}, "from 0 to 3"),
    ],
)
def test_a_fit_that_is_refused_leaves_the_model_it_would_have_replaced(
    task: str, change: dict[str, Any], match: str
) -> None:
    X, y = samples(task)
    model = fitted(task)
    arguments = {"X": X, "y": y, **change}
    unchanged(model, lambda: model.fit(**arguments), InputError, match)
    model.set_params(n_thresholds=0)
    unchanged(model, lambda: model.fit(X, y), InputError, "n_thresholds")


def test_a_schema_for_the_other_task_is_refused() -> None:
    schema = Schema((Column("x0", ColumnType.NUMERIC),), Task.REGRESSION, LabelType.NUMBER)
    with pytest.raises(InputError, match="the schema is for regression, DynamicForestClassifier is for classification"):
        make().start(schema)
    with pytest.raises(InputError, match="use the other estimator"):
        make().fit([[1.0]], [1], schema=schema)


def test_fractions_are_no_classes_unless_a_schema_says_so() -> None:
    X = [[float(i)] for i in range(4)]
    for y in ([0.5, 1.5, 0.5, 1.5], np.array([0.5, 1.5, 0.5, 1.5]), pd.Series([0.5, 1.5, 0.5, 1.5])):
        with pytest.raises(InputError, match="Unknown label type: continuous"):
            make().fit(X, y)
        schema = Schema((Column("x0", ColumnType.NUMERIC),), Task.CLASSIFICATION, LabelType.NUMBER)
        assert make().fit(X, y, schema=schema).classes_.tolist() == [0.5, 1.5]


def test_progress_is_told_of_every_tree() -> None:
    X, y = samples()
    told: list[tuple[int, int]] = []
    make().fit(X, y, progress=lambda done, total: told.append((done, total)))
    assert told == [(1, 4), (2, 4), (3, 4), (4, 4)]


def test_an_interrupted_fit_leaves_the_model_as_it_was() -> None:
    X, y = samples()
    model, unfitted = fitted(), make()
    before = model.digest()

    def interrupt(done: int, total: int) -> None:
        raise KeyboardInterrupt

    for estimator in (model, unfitted):
        with pytest.raises(KeyboardInterrupt):
            estimator.fit(X[:20], y[:20], progress=interrupt)
    assert model.digest() == before
    with pytest.raises(NotFittedError):
        unfitted.predict(X)


def test_limits_of_the_data_structures_are_checked_before_anything_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    X, y = samples()
    model = fitted(occurrence=1.0)
    monkeypatch.setattr("oubli.core.forest.engine.MAX_ENTRIES", limits.places_of(model.settings_, 60))
    unchanged(model, lambda: model.add(X[:1], y[:1]), CapacityError, "61 samples in 4 trees .* lower `occurrence`")
    unchanged(model, lambda: model.fit(np.vstack([X, X]), [*y, *y]), CapacityError, "lower `occurrence`")
    model.replace("s0", X[1], y[1])
    assert limits.MAX_ENTRIES == 2**31 - 1
    monkeypatch.setattr("oubli.core.forest.quantisation.MAX_SAMPLES", 60)
    regression = fitted("regression", occurrence=0.1)
    unchanged(regression, lambda: regression.add(X[:1], [1.0]), CapacityError, "a regression holds at most 60 samples")


# Add


@pytest.mark.parametrize("task", TASKS)
def test_add_gives_back_the_ids(task: str) -> None:
    X, y = samples(task)
    model = fitted(task)
    assert model.add(X[:2], y[:2]) == ["0", "1"]
    assert model.add(X[:2], y[:2], ids=["eve", 7]) == ["eve", "7"]
    assert model.add(X[:1], y[:1]) == ["8"]  # past every number that was ever an id
    model.delete("8")
    assert model.add(X[:1], y[:1]) == ["9"]
    assert model.add(X[:1], y[:1], ids=["8"]) == ["8"]  # by name an id may return
    assert model.n_samples_ == 66
    assert model.verify().ok


@pytest.mark.parametrize(
    ("change", "error", "match"),
    [
        ({"X": np.zeros((2, 3))}, InputError, "X has 3 features, but DynamicForestClassifier is expecting 4 features"),
        ({"X": [[1.0, 2.0, 3.0, 4.0], [1.0, 2.0, 3.0]]}, InputError, "row 1 of X has 3 features"),
        ({"X": [[1.0, 2.0, 3.0, 4.0], [1.0, "two", 3.0, 4.0]]}, InputError, "row 1, 'x1': must be a number"),
        ({"X": [[0.0] * 4, [0.0, 0.0, 0.0, 2**24 + 1]]}, InputError, "row 1, 'x3': .*declare the column float64"),
        ({"X": np.zeros(4)}, InputError, "Expected 2D array, got 1D array instead"),
        ({"X": np.zeros((2, 4)) * 1j}, InputError, "Complex data not supported"),
        ({"X": "text"}, InputError, "X must be a 2-d array"),
        ({"y": ["yes"]}, InputError, "X has 2 rows, y has 1 labels"),
        ({"y": ["yes", 1.5]}, InputError, "row 1, 'label': must be text"),
        ({"y": ["yes", math.nan]}, InputError, "row 1, 'label': must not be missing"),
        ({"ids": ["new", "s3"]}, DuplicateIdError, "s3"),
        ({"ids": ["new", "new"]}, DuplicateIdError, "new"),
        ({"ids": ["7", 7]}, DuplicateIdError, "7"),
        ({"ids": ["new"]}, InputError, "X has 2 rows, but 1 ids"),
        ({"ids": "ab"}, InputError, r"pass \[id\] for a single one"),
        ({"ids": {"a", "b"}}, InputError, "not a set"),
        ({"ids": ["", "b"]}, InputError, "row 0, 'id': must be text of 1 to 256 characters"),
    ],
)
def test_an_add_that_is_refused_changes_nothing(change: dict[str, Any], error: type[Exception], match: str) -> None:
    X, y = samples()
    model = fitted()
    arguments = {"X": X[:2], "y": y[:2], **change}
    caught = unchanged(model, lambda: model.add(**arguments), error, match)
    assert isinstance(caught, ValueError)


def test_new_classes_and_categories_come_with_an_add() -> None:
    model = make().fit([[1.0, "a"], [2.0, "b"], [3.0, "a"]], ["x", "y", "x"])
    model.add([[9.0, "c"]] * 5, ["w", "z", "v", "u", "t"])
    assert model.classes_.tolist() == ["t", "u", "v", "w", "x", "y", "z"]
    assert model.predict_proba([[1.0, "d"]]).shape == (1, 7)
    assert model.verify().ok


# Delete


@pytest.mark.parametrize(
    ("ids", "gone"),
    [
        ("3", {3}),
        (3, {3}),
        (np.int64(3), {3}),
        (["3"], {3}),
        ([3, "4"], {3, 4}),
        (("3", 4), {3, 4}),
        ({3, 4}, {3, 4}),
        (np.array([3, 4]), {3, 4}),
        (np.array(["3", "4"]), {3, 4}),
        (range(3, 6), {3, 4, 5}),
        (iter(["3", "4"]), {3, 4}),
        (pd.Series([3, 4]), {3, 4}),
        ([], set()),
    ],
    ids=lambda value: type(value).__name__,
)
def test_delete_takes_one_id_or_many(ids: Any, gone: set[int]) -> None:
    X, y = samples()
    model = make().fit(X, y)
    assert model.delete(ids) is None
    assert set(model.samples_.ids()) == {str(i) for i in set(range(60)) - gone}
    kept = [i for i in range(60) if i not in gone]
    assert model.digest() == make().fit(X[kept], y[kept], ids=kept).digest()


@pytest.mark.parametrize("ids", ["never", ["s1", "never"], ["never", "s1", "nor this"], 5, "s01"])
def test_unknown_ids_are_key_errors_that_list_them(ids: Any) -> None:
    model = fitted()
    error = unchanged(model, lambda: model.delete(ids), KeyError, "no sample with this id is held")
    assert isinstance(error, UnknownIdError)
    assert error.ids == [str(i) for i in (ids if isinstance(ids, list) else [ids]) if str(i) != "s1"]
    assert str(error).endswith("nothing was changed")


@pytest.mark.parametrize("ids", [["s1", "s1"], ["s2", "s1", "s2"]])
def test_an_id_named_twice_is_refused(ids: list[str]) -> None:
    model = fitted()
    unchanged(model, lambda: model.delete(ids), DuplicateIdError, "s")


@pytest.mark.parametrize("ids", [5.0, None, b"s1", True, [None], [1.5], [["s1"]], "", {"s1": 1}, np.array(3)])
def test_what_is_no_id_is_refused(ids: Any) -> None:
    model = fitted()
    unchanged(model, lambda: model.delete(ids), InputError, "'id'")


def test_deleting_twice_is_refused() -> None:
    model = fitted()
    model.delete("s1")
    unchanged(model, lambda: model.delete("s1"), UnknownIdError, "'s1'")


# With nothing left


@pytest.mark.parametrize("task", TASKS)
@pytest.mark.parametrize("lazy", [True, False])
def test_a_model_with_no_samples_left_says_so_and_starts_again(task: str, lazy: bool) -> None:
    X, y = samples(task)
    model = fitted(task, lazy=lazy)
    model.delete(model.samples_.ids())
    assert model.n_samples_ == 0
    for call in (lambda: model.predict(X), lambda: model.query(X), lambda: model.query(X, frozen=True)):
        with pytest.raises(EmptyModelError, match="no samples: add some before predicting"):
            call()
    with pytest.raises(InputError):  # what is wrong with the input is said first
        model.predict(X[:, :2])
    assert model.resolve() >= 0
    assert model.verify().ok
    assert model.feature_importances_.tolist() == [0.0] * 4
    if task == "classification":
        assert model.classes_.tolist() == []
    assert model.delete([]) is None
    started = make(task, lazy=lazy).start(model.schema_)
    assert started.digest() == model.digest()
    for empty in (model, started):
        empty.add(X, y, ids=[f"s{i}" for i in range(60)])
        assert empty.digest() == fitted(task).digest()


# Replace


@pytest.mark.parametrize("task", TASKS)
def test_replace_is_a_delete_and_an_add_under_the_same_id(task: str) -> None:
    X, y = samples(task)
    model, other = fitted(task), fitted(task)
    model.samples_.set_subject("s3", "somebody")
    model.samples_.set_expiry("s3", 1700)
    model.samples_.set_origins(["s3"], 2)
    model.replace("s3", X[9], y[9])
    other.delete("s3")
    other.add(X[9:10], y[9:10], ids=["s3"])
    assert model.digest() == other.digest()
    assert model.samples_.subject("s3") == "somebody"
    assert (model.samples_.expiry("s3"), model.samples_.origin("s3")) == (1700, 2)
    assert model.samples_.get("s3").features == [float(x) for x in X[9]]


def test_replace_takes_a_row_in_any_shape() -> None:
    X, y = samples()
    expected = fitted()
    expected.replace("s3", X[9].tolist(), y[9])
    frame = pd.DataFrame(X)
    for row in (X[9], X[9:10], tuple(X[9].tolist()), frame.iloc[9], frame.iloc[9:10]):
        model = fitted()
        model.replace("s3", row, y[9])
        assert model.digest() == expected.digest()


@pytest.mark.parametrize(
    ("x", "y", "match"),
    [
        ([1.0, 2.0, 3.0], "yes", "expecting 4 features"),
        ([1.0, 2.0, 3.0, "four"], "yes", "'x3': must be a number"),
        ([1.0, 2.0, 3.0, math.inf], "yes", "'x3': must be a finite number"),
        ([1.0, 2.0, 3.0, 4.0], None, "'label': must not be missing"),
        ([1.0, 2.0, 3.0, 4.0], ["yes"], "y should be a 1d array"),
        (np.zeros((2, 4)), "yes", "X has 2 rows, y has 1 labels"),
    ],
)
def test_replace_with_what_is_refused_changes_nothing(x: Any, y: Any, match: str) -> None:
    model = fitted()
    model.samples_.set_subject("s3", "somebody")
    unchanged(model, lambda: model.replace("s3", x, y), InputError, match)
    assert model.samples_.subject("s3") == "somebody"


def test_replace_of_what_is_not_held_is_refused() -> None:
    X, y = samples()
    model = fitted()
    unchanged(model, lambda: model.replace("never", X[0], y[0]), UnknownIdError, "'never'")


# partial_fit


@pytest.mark.parametrize("task", TASKS)
def test_partial_fit_fits_and_then_adds(task: str) -> None:
    X, y = samples(task)
    model = make(task)
    for start in range(0, 60, 20):
        assert model.partial_fit(X[start : start + 20], y[start : start + 20]) is model
    assert model.digest() == make(task).fit(X, y).digest()


def test_partial_fit_checks_labels_against_the_classes_that_are_given() -> None:
    X, y = samples()
    model = make().partial_fit(X[:9], y[:9], classes=["no", "yes"])
    known = np.array(["no", "yes"])
    error = unchanged(
        model, lambda: model.partial_fit(X[:2], ["yes", "maybe"], classes=known), InputError, "one of `classes`"
    )
    assert (error.row, error.field, error.value) == (1, "label", "maybe")
    for y_wrong in ([["yes"], ["no"]], None, "yes"):
        unchanged(model, lambda y=y_wrong: model.partial_fit(X[:2], y, classes=["no", "yes"]), InputError, "y ")
    with pytest.warns(UserWarning, match="column-vector"):
        model.partial_fit(X[9:11], y[9:11].reshape(-1, 1), classes=["no", "yes"])
    assert model.n_samples_ == 11
    numbers = make().partial_fit(X[:3], np.array([1, 2, 1]), classes=[1, 2, 3])
    assert numbers.classes_.tolist() == [1, 2]  # the classes follow the samples


# Copies


@pytest.mark.parametrize("task", TASKS)
@pytest.mark.parametrize("copy_of", [lambda m: m.copy(), copy.copy, copy.deepcopy])
def test_copies_are_independent(task: str, copy_of: Callable[[Any], Any]) -> None:
    X, y = samples(task)
    model = fitted(task)
    model.delete("s9")
    expected = fitted(task)
    expected.delete("s9")
    tags = model.n_lazy_tags_
    other = copy_of(model)
    if copy_of is not copy.copy:  # whose protocol is that of pickles, which have no tags
        assert other.n_lazy_tags_ == model.n_lazy_tags_ == tags
    other.delete(["s0", "s1"])
    other.add(X[:9], y[:9])
    other.replace("s5", X[8], y[8])
    other.samples_.set_subject("s7", "somebody")
    other.set_params(n_estimators=99)
    assert model.n_estimators == 4
    assert model.samples_.subject("s7") is None
    assert model.digest() == expected.digest()
    digest = other.digest()
    model.delete(model.samples_.ids())
    assert other.digest() == digest
    for changed in (model, other):
        changed.check_invariants()
        assert changed.verify().ok


def test_a_copy_of_a_model_that_is_not_fitted() -> None:
    with pytest.raises(NotFittedError):
        make().copy()
    assert not copy.deepcopy(make()).__sklearn_is_fitted__()


# Answers


def test_shapes_and_types_of_predictions() -> None:
    X, _ = samples()
    model = fitted()
    result = model.query(X[:5])
    assert result.labels.tolist() == model.predict(X[:5]).tolist()
    assert result.labels.shape == (5,)
    assert result.labels.dtype.kind == "U"
    assert result.probabilities.shape == (5, 2)
    assert result.probabilities.dtype == np.float64
    assert result.classes.tolist() == model.classes_.tolist() == ["no", "yes"]
    assert np.array_equal(model.predict_proba(X[:5]), result.probabilities)
    with np.errstate(divide="ignore"):
        assert np.array_equal(model.predict_log_proba(X[:5]), np.log(result.probabilities))
    assert np.allclose(result.probabilities.sum(axis=1), 1.0, atol=1e-15)
    values = fitted("regression").query(X[:5])
    assert values.labels.shape == (5,)
    assert values.labels.dtype == np.float64
    assert values.probabilities is None
    assert values.classes is None


@pytest.mark.parametrize("task", TASKS)
def test_queries_change_nothing_but_tags(task: str) -> None:
    X, _ = samples(task)
    model, other = fitted(task), fitted(task)
    for changed in (model, other):
        changed.delete(["s1", "s2"])
    tags = model.n_lazy_tags_
    frozen = [model.query(X[i : i + 1], frozen=True).labels[0] for i in range(60)]
    assert model.n_lazy_tags_ == tags
    single = [model.predict(X[i : i + 1])[0] for i in range(60)]
    assert frozen == single == model.predict(X).tolist()
    before = X.copy()
    model.predict(X)
    assert np.array_equal(X, before)
    assert model.digest() == other.digest()


def test_a_model_does_not_change_with_the_array_it_was_fitted_to() -> None:
    X, y = samples()
    model = make().fit(X, y)
    digest = model.digest()
    X[:] = 0.0
    y[:] = "no"
    assert model.digest() == digest
    assert model.verify().ok


@pytest.mark.parametrize("task", TASKS)
def test_what_a_model_says_of_itself(task: str) -> None:
    model = fitted(task)
    assert (model.kind, model.guarantee, model.task.value) == ("forest", "exact", task)
    assert model.n_samples_ == 60
    assert model.n_features_in_ == 4
    assert model.schema_.n_features == 4
    assert model.n_lazy_tags_ == 0


# Tags


def test_resolve_in_steps_and_at_once() -> None:
    model = fitted(n_estimators=10)
    for i in range(9):
        model.delete(f"s{i}")
    all_at_once = model.copy()
    tags = all_at_once.n_lazy_tags_
    assert tags > 10
    assert all_at_once.resolve() == tags
    assert all_at_once.n_lazy_tags_ == 0
    assert all_at_once.resolve() == 0
    assert model.resolve(0) == 0
    assert model.n_lazy_tags_ == tags
    steps = 0
    while model.n_lazy_tags_:
        assert 1 <= model.resolve(2) <= 2
        model.check_invariants()
        steps += 1
    assert steps > 5
    assert model.resolve(2) == 0
    assert model.digest() == all_at_once.digest()


@pytest.mark.parametrize("task", TASKS)
def test_an_eager_model_never_has_tags(task: str) -> None:
    X, y = samples(task)
    model = fitted(task, lazy=False)
    lazy = fitted(task)
    for changed in (model, lazy):
        changed.delete("s1")
        changed.delete([f"s{i}" for i in range(20, 50)])
        changed.add(X[:3], y[:3])
        changed.replace("s9", X[4], y[4])
    assert lazy.n_lazy_tags_
    assert model.n_lazy_tags_ == 0
    assert model.digest() == lazy.digest()


# Importances


@pytest.mark.parametrize("task", TASKS)
def test_importances_sum_to_one_and_find_the_feature_that_decides(task: str) -> None:
    model = fitted(task, n_estimators=20, max_features=2)
    importances = model.feature_importances_
    assert importances.shape == (4,)
    assert importances.dtype == np.float64
    assert (importances >= 0).all()
    assert importances.sum() == pytest.approx(1.0, abs=1e-12)
    assert importances.argmax() == 1
    assert importances[1] > 0.5


def test_importances_are_those_of_the_oracle_and_resolve_tags() -> None:
    X, y = samples()
    model = fitted(occurrence=0.5, max_features=2, n_thresholds=3, min_samples_split=5)
    model.delete(["s1", "s2"])
    assert model.n_lazy_tags_
    rows = [oracle.Row(f"s{i}", tuple(X[i].tolist()), str(y[i])) for i in range(60) if i not in {1, 2}]
    parameters = oracle.Parameters(
        n_estimators=4, occurrence=0.5, min_samples_split=5, n_thresholds=3, n_attributes=2, criterion="gini"
    )
    expected = oracle.feature_importances(oracle.fit(rows, parameters, (oracle.Column(),) * 4, "classification"))
    assert model.feature_importances_.tolist() == list(expected)
    assert model.n_lazy_tags_ == 0


def test_importances_are_zero_without_a_split() -> None:
    assert make().fit([[1.0, 2.0]] * 3, ["a", "b", "a"]).feature_importances_.tolist() == [0.0, 0.0]


# Memory


@pytest.mark.parametrize("task", TASKS)
@pytest.mark.parametrize("lazy", [True, False])
def test_memory_does_not_grow_with_the_history(task: str, lazy: bool) -> None:
    """2,000 samples come and go, one at a time, each with a category of its own."""
    rng = np.random.default_rng(0)
    X = [[float(x), f"c{i % 5}"] for i, x in enumerate(rng.normal(size=150))]
    y = [float(x) for x in rng.normal(size=150)] if task == "regression" else [f"k{i % 3}" for i in range(150)]
    model = make(task, lazy=lazy, n_thresholds=4).fit(X, y)
    sizes = []
    for step in range(200 if config.DISABLE_JIT else 2000):
        label = float(step % 17) / 8 - 1 if task == "regression" else f"own {step % 5}"
        (name,) = model.add([[float(rng.normal()), f"own {step}"]], [label])
        model.delete(name if step % 2 else str(step // 2) if step < 300 else name)
        if step % 50 == 0:
            model.predict(X[:3])
        if step % 20 == 19:
            model.resolve()
            sizes.append(model.nbytes_)
    half = len(sizes) // 2
    assert max(sizes[half:]) <= 1.2 * max(sizes[:half])
    assert max(sizes) <= 2 * make(task, n_thresholds=4).fit(X, y).nbytes_
    assert model.n_samples_ == 150
    assert model.verify().ok
    model.check_invariants()


def test_nbytes_counts_samples_and_trees() -> None:
    small, large = fitted(n=20).nbytes_, fitted(n=60).nbytes_
    assert small < large
    model = fitted()
    arrays = [*model.engine_.trees, model.samples_.cells, model.samples_.id_hashes]
    assert model.nbytes_ >= sum(array.nbytes for array in arrays)
