"""The estimators as their users call them: what is accepted, refused, answered and left unchanged.

That the model is the right one after all this is for `tests/exact/core/test_histories.py`.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import pytest
from numba import config

from oubli.core import load
from oubli.core.data.schema import Task
from oubli.core.errors import CapacityError, InputError
from oubli.core.estimators import KINDS
from oubli.core.forest import parameters as limits
from oubli.core.forest.parameters import count_features, count_occurrences
from oubli.core.forest.unseen import banded
from tests.oracles import forest as oracle

TASKS = ["classification", "regression"]


def samples(task: str = "classification", n: int = 60) -> tuple[np.ndarray, np.ndarray]:
    """The second of four features decides."""
    X = np.random.default_rng(0).normal(size=(n, 4)).astype(np.float32)
    return X, (np.where(X[:, 1] > 0, "yes", "no") if task == "classification" else 3.0 * X[:, 1].astype(np.float64))


def make(task: str = "classification", **parameters: Any) -> Any:
    return KINDS["forest", Task(task)](**{"n_estimators": 4, "random_state": 0, **parameters})


def fitted(task: str = "classification", n: int = 60, **parameters: Any) -> Any:
    X, y = samples(task, n)
    return make(task, **parameters).fit(X, y, ids=[f"s{i}" for i in range(n)])


def unchanged(model: Any, call: Callable[[], Any], error: type[Exception], match: str) -> None:
    """The call is refused, and no bit of the model has changed."""
    digest, ids, n_bytes = model.digest(), model.samples_.ids(), model.samples_.nbytes
    with pytest.raises(error, match=match):
        call()
    assert (model.digest(), model.samples_.ids(), model.samples_.nbytes) == (digest, ids, n_bytes)
    model.check_invariants()


# Parameters


def test_each_task_has_its_criteria() -> None:
    with pytest.raises(InputError, match="criterion='squared_error' must be one of 'gini', 'entropy'"):
        make(criterion="squared_error").fit(*samples())
    with pytest.raises(InputError, match="criterion='gini' must be one of 'squared_error'"):
        make("regression", criterion="gini").fit(*samples("regression"))


@pytest.mark.parametrize(("parameters", "expected"), [
    ({"n_estimators": np.int64(3), "max_features": np.float64(0.5)}, {"n_trees": 3, "max_features": 2}),
    ({"max_features": "sqrt"}, {"max_features": 2}), ({"max_features": "log2"}, {"max_features": 2}),
    ({"max_features": None}, {"max_features": 4}), ({"max_features": 99}, {"max_features": 4}),
    ({"max_features": 1}, {"max_features": 1}), ({"max_features": 1.0}, {"max_features": 4}),
    ({"occurrence": 1}, {"occurrences": 4}), ({"occurrence": 1e-9}, {"occurrences": 1}),
    ({"occurrence": 0.5, "n_estimators": 5}, {"occurrences": 3}), ({"max_depth": None}, {"max_depth": 2**31 - 1}),
    ({"lazy": np.bool_(False)}, {}), ({"random_state": 2**63 - 1}, {"seed": 2**63 - 1}),
    ({"random_state": np.int32(7)}, {"seed": 7}),
])  # fmt: skip
def test_what_parameters_come_to(parameters: dict[str, Any], expected: dict[str, Any]) -> None:
    settings = fitted(**parameters).settings_.to_dict()
    assert {name: settings[name] for name in expected} == expected
    assert all(type(settings[name]) in {int, bool} for name in settings)


def test_occurrences_are_not_rounded_up_by_floating_point() -> None:
    assert 0.07 * 100 > 7
    assert [count_occurrences(share, 100) for share in (0.07, 0.071, 1e-12, 1.0)] == [7, 8, 1, 100]
    assert all(count_occurrences(k / t, t) == k for t in range(1, 120) for k in range(1, t + 1))
    assert [count_features(p, 1) for p in ("sqrt", "log2", None, 0.1, 1.0, 1, 5)] == [1] * 7


# Seeds


@pytest.mark.parametrize("source", [lambda: 5, lambda: np.random.RandomState(5), lambda: np.random.default_rng(5)])
def test_a_seed_makes_a_model_that_can_be_had_again(source: Callable[[], Any]) -> None:
    first, second = fitted(random_state=source()), fitted(random_state=source())
    assert first.seed_ == second.seed_
    assert 0 <= first.seed_ < 2**63
    assert first.digest() == second.digest()
    if not isinstance(first.random_state, int):
        assert second.fit(*samples()).seed_ != first.seed_, "a generator goes on from fit to fit"
    drawn = fitted(random_state=None)
    assert drawn.seed_ != fitted(random_state=None).seed_
    assert drawn.random_state is None
    assert fitted(random_state=drawn.seed_).digest() == drawn.digest()


# Fit


def test_limits_of_the_data_structures_are_checked_before_anything_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    X, y = samples()
    model = fitted(occurrence=1.0)
    monkeypatch.setattr("oubli.core.forest.engine.MAX_ENTRIES", limits.places_of(model.settings_, 60))
    unchanged(model, lambda: model.add(X[:1], y[:1]), CapacityError, "61 samples in 4 trees .* lower `occurrence`")
    unchanged(model, lambda: model.fit(np.vstack([X, X]), [*y, *y]), CapacityError, "lower `occurrence`")
    model.replace("s0", X[1], y[1])
    assert limits.MAX_ENTRIES == 2**31 - 1
    monkeypatch.setattr("oubli.core.samples.fixed_point.MAX_SAMPLES", 60)
    regression = fitted("regression", occurrence=0.1)
    unchanged(regression, lambda: regression.add(X[:1], [1.0]), CapacityError, "a regression holds at most 60 samples")


# Replace


def test_replace_takes_a_row_in_any_shape() -> None:
    X, y = samples()
    expected = fitted()
    expected.replace("s3", X[9].tolist(), y[9])
    frame = pd.DataFrame(X)
    for row in (X[9], X[9:10], tuple(X[9].tolist()), frame.iloc[9], frame.iloc[9:10]):
        model = fitted()
        model.replace("s3", row, y[9])
        assert model.digest() == expected.digest()


# Memory


@pytest.mark.parametrize("task", TASKS)
@pytest.mark.parametrize("lazy", [True, False])
def test_memory_does_not_grow_with_the_history(task: str, lazy: bool) -> None:
    """Samples come and go, one at a time, each with a category of its own."""
    rng = np.random.default_rng(0)
    X = [[float(x), f"c{i % 5}"] for i, x in enumerate(rng.normal(size=150))]
    y = [float(x) for x in rng.normal(size=150)] if task == "regression" else [f"k{i % 3}" for i in range(150)]
    model = make(task, lazy=lazy, n_thresholds=4).fit(X, y)
    first, sizes = model.nbytes_, []
    for step in range(200 if config.DISABLE_JIT else 400):
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
    assert max(sizes) <= 2 * first
    assert model.n_samples_ == 150
    assert model.verify().ok
    model.check_invariants()


def test_only_the_working_space_grows_when_trees_have_outgrown_it(monkeypatch: pytest.MonkeyPatch) -> None:
    model = fitted(n=200, lazy=True)
    engine = model.engine_
    engine.scratch = engine.empty_scratch(8, 0)
    monkeypatch.setattr(engine, "grow_pools", lambda: pytest.fail("it copies all trees"))
    model.delete("s0")
    model.predict(samples()[0][:1])
    assert len(engine.scratch.order) >= engine.largest_tree()
    assert model.verify().ok


# Bands of class probabilities ---------------------------------------------------------------------


@pytest.mark.parametrize("n_classes", [1, 2, 3, 4, 5, 9])
def test_bands_are_those_of_the_oracle_to_the_bit(n_classes: int) -> None:
    drawn = np.random.default_rng(0).dirichlet(np.full(n_classes, 0.5), size=500)
    ends = np.round(4 * drawn) / 4
    same, none = np.full((1, n_classes), 1 / n_classes), np.zeros((1, n_classes))
    for rows in (drawn, ends, np.nextafter(ends, 2), np.nextafter(ends, 0), np.eye(n_classes), same, none):
        assert banded(rows).tolist() == [oracle.banded(row.tolist()) for row in rows]


# Numbers that float32 cannot hold ------------------------------------------------------------------


def test_a_dtype_is_declared_or_inferred_and_not_given_beside_a_schema():
    X, y = (1.7e9 + np.arange(200) + 0.25).reshape(-1, 1), np.arange(200) // 25 % 2
    forest = make().fit(X, y)
    assert forest.schema_.columns[0].dtype == "float64"
    assert forest.score(X, y) > 0.95
    with pytest.raises(InputError, match="not both"):
        forest.fit(X, y, dtype="float32", schema=forest.schema_)
    assert forest.fit(X, y, dtype="float32").schema_.columns[0].dtype == "float32"


def test_later_numbers_are_rounded_and_the_model_stays_exact(tmp_path, caplog):
    forest = make().fit([[float(i), i % 3] for i in range(30)], ["a", "b", "c"] * 10)
    forest.add([[16_777_217, 1e39], [2**70 + 1, -1e39]], ["a", "b"], ids=["p", "q"])
    forest.add([[16_777_217, 1.0]], ["a"])
    forest.replace("3", [10**400, 1e-60], "c")
    largest = float(np.finfo(np.float32).max)
    assert [forest.samples_.get(name).features for name in "p3"] == [[2.0**24, largest], [largest, 0.0]]
    assert forest.verify().ok
    forest.save(tmp_path / "model")
    queries, rounded = [[16_777_217, 1e39], [-(10**30), 0.5]], np.float64([[2**24, 3.5e38], [-1e30, 0.5]])
    for model in (forest, forest.copy(), load(tmp_path / "model")):
        assert np.array_equal(model.predict_proba(queries), model.predict_proba(rounded))
    said = [record.getMessage() for record in caplog.records if record.name == "oubli.numbers"]
    assert [text.split("'")[1] for text in said] == ["x0", "x1", "x0", "x1"]  # the copy is the same model
