"""Arrays from a file become an engine, or are refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from oubli.core.boosting.presorted.engine import PresortedTrees
from tests.exact.core.boosting.presorted.problems import Pool, are_same, random_pool, settings_of
from tests.exact.core.boosting.reading import taken_over

SLOTS = np.arange(50)


def pool_of(n_codes: int = 0) -> Pool:
    return random_pool(np.random.default_rng(4), 50, n_codes)


def restored(pool: Pool, arrays: Any, **parameters: Any) -> PresortedTrees:
    data = pool.data
    columns = data.cells.shape[1], data.cells.dtype, data.categorical, pool.n_codes > 0
    engine: PresortedTrees = taken_over(
        PresortedTrees(settings_of(**parameters), *columns), arrays, pool.problem(SLOTS), SLOTS
    )
    return engine


@pytest.mark.parametrize("n_codes", [0, 2, 3])
@pytest.mark.parametrize("patience", [None, 1])
def test_arrays_give_the_engine_back(n_codes: int, patience: int | None) -> None:
    pool = pool_of(n_codes)
    engine = pool.grown(settings_of(early_stopping=patience, validation_fraction=0.5), SLOTS)
    other = restored(pool, engine.arrays(), early_stopping=patience, validation_fraction=0.5)
    assert are_same(engine, other)
    for each in (engine, other):
        each.delete(pool.problem(SLOTS), SLOTS[:7])
    assert are_same(engine, other)
    assert engine.last_update == other.last_update


def break_one(arrays: dict[str, Any], name: str, place: int, value: Any) -> dict[str, Any]:
    broken = {key: array.copy() for key, array in arrays.items()}
    broken[name][place] = value
    return broken


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("left", 10**6, "do not form trees"),
        ("left", 0, "do not form trees"),
        ("left", -1, "do not form trees"),
        ("feature", 99, "column not there"),
        ("feature", -2, "column not there"),
        ("missing_left", 2, "no direction"),
        ("value", 1.0, "no direction"),
        ("is_categorical", 7, "does not fit"),
        ("gains", np.nan, "gain"),
        ("gains", -1.0, "gain"),
        ("roots", 1, "do not form trees"),
    ],
)
def test_a_broken_root_is_refused(name: str, value: Any, message: str) -> None:
    pool = pool_of()
    arrays = pool.grown(settings_of(), SLOTS).arrays()
    assert arrays["feature"][0] >= 0
    with pytest.raises(ValueError, match=message):
        restored(pool, break_one(arrays, name, 0, value))


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("value", np.nan, "out of range"),
        ("value", 1e300, "out of range"),
        ("value", 0.5, "whole number"),
        ("category", 3, "leaf has a split"),
        ("left", 1, "leaf has a split"),
        ("gains", 1.0, "leaf has a gain"),
        ("feature", 0, "do not form trees"),
    ],
)
def test_a_broken_leaf_is_refused(name: str, value: Any, message: str) -> None:
    pool = pool_of()
    arrays = pool.grown(settings_of(), SLOTS).arrays()
    leaf = int(np.flatnonzero(arrays["feature"] == -1)[-1])
    with pytest.raises(ValueError, match=message):
        restored(pool, break_one(arrays, name, leaf, value))


def test_thresholds_are_numbers() -> None:
    pool = pool_of()
    arrays = pool.grown(settings_of(), SLOTS).arrays()
    numeric = int(np.flatnonzero((arrays["feature"] >= 0) & (arrays["is_categorical"] == 0))[0])
    for bits, message in ((np.float64(np.nan), "no number"), (np.float64(-np.inf), "below all")):
        with pytest.raises(ValueError, match=message):
            restored(pool, break_one(arrays, "category", numeric, bits.view(np.uint64)))


def test_trees_are_as_many_and_as_deep_as_the_settings_say() -> None:
    pool = pool_of()
    arrays = pool.grown(settings_of(), SLOTS).arrays()
    for parameters in ({"n_estimators": 3}, {"n_estimators": 5}):
        with pytest.raises(ValueError, match="number of trees"):
            restored(pool, arrays, **parameters)
    with pytest.raises(ValueError, match="do not form trees"):
        restored(pool, arrays, max_depth=2)


def test_arrays_have_their_types_and_lengths() -> None:
    pool = pool_of()
    arrays = pool.grown(settings_of(), SLOTS).arrays()
    for name, array in arrays.items():
        with pytest.raises(ValueError, match=f"{name} is missing"):
            restored(pool, {key: value for key, value in arrays.items() if key != name})
        with pytest.raises(ValueError, match=f"{name} has another type or shape"):
            restored(pool, {**arrays, name: array.astype(np.complex128)})
        with pytest.raises(ValueError, match=f"{name} has another type or shape"):
            restored(pool, {**arrays, name: array[np.newaxis]})
    with pytest.raises(ValueError, match="differ in length"):
        restored(pool, {**arrays, "left": arrays["left"][:-1]})


def test_what_is_broken_is_named() -> None:
    pool = pool_of()
    problem = pool.problem(SLOTS)
    engine = pool.grown(settings_of(), SLOTS)
    assert engine.find_differences(problem, SLOTS) == []
    engine.orders.order[0, :2] = engine.orders.order[0, 0]
    assert engine.find_differences(problem, SLOTS) == ["column 0: not every sample is in the presorted column once"]
    engine = pool.grown(settings_of(), SLOTS)
    engine.trees.base[0] += 1.0
    assert engine.find_differences(problem, SLOTS) == ["boosting should begin elsewhere"]
    engine = pool.grown(settings_of(), SLOTS)
    engine.trees.nodes["left"][0] = 0
    with pytest.raises(AssertionError, match="do not form trees"):
        engine.check_invariants(problem, SLOTS)
