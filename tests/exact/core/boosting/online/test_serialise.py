"""Trees as arrays and back, and arrays that are no trees."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from oubli.core.boosting.online.engine import OnlineTrees
from oubli.core.samples.arrays import Problem
from tests.exact.core.boosting.online.direct import digest, grown, make_engine, make_problem, with_classes
from tests.exact.core.boosting.reading import taken_over

N = 100


def _restored(engine: OnlineTrees, problem: Problem, arrays: dict[str, Any], slots: Any) -> OnlineTrees:
    arguments = engine.n_features, engine.cell_dtype, engine.categorical, engine.is_classification
    restored: OnlineTrees = taken_over(OnlineTrees(engine.settings, *arguments), arrays, problem, slots)
    return restored


def _updated(n_classes: int) -> tuple[OnlineTrees, Problem, Any]:
    problem = make_problem(1, N, n_classes=n_classes)
    engine = grown(problem, np.arange(N - 30), robustness=0.0)
    engine.add(problem, np.arange(N - 30, N - 10))
    engine.delete(problem, np.arange(0, N - 10, 7))
    return engine, problem, np.flatnonzero(engine.held)


@pytest.mark.parametrize("n_classes", [0, 2, 4])
def test_a_restored_engine_is_the_same_and_goes_on_in_the_same_way(n_classes: int) -> None:
    engine, problem, slots = _updated(n_classes)
    other = _restored(engine, problem, engine.arrays(), slots)
    assert digest(other) == digest(engine)
    for name in ("nodes", "states", "stats", "values"):
        assert np.array_equal(getattr(other.forest, name), getattr(engine.forest, name))
    other.check_invariants(problem, slots)
    for some in (engine, other):
        some.add(problem, np.arange(N - 10, N))
        some.delete(problem, slots[::3])
    assert digest(other) == digest(engine)
    other.check_invariants(problem, np.flatnonzero(engine.held))


def test_arrays_hold_nothing_of_samples_that_have_left() -> None:
    engine, _, slots = _updated(2)
    assert engine.arrays()["gh"].shape == (6, len(slots))


def test_engines_without_trees() -> None:
    problem = make_problem(2, N)
    empty = make_engine(problem)
    nothing = np.zeros(0, np.int64)
    assert _restored(empty, with_classes(problem, nothing, 2), empty.arrays(), nothing).n_trees == 0
    slots = np.flatnonzero(problem.data.targets == 0)
    one = grown(with_classes(problem, slots, 2), slots)
    other = _restored(one, with_classes(problem, slots, 2), one.arrays(), slots)
    other.add(problem, np.flatnonzero(problem.data.targets == 1))
    assert digest(other) == digest(grown(problem))


def _poke(name: str, place: Any, value: Any) -> Any:
    def change(arrays: dict[str, Any]) -> None:
        arrays[name] = arrays[name].copy()
        arrays[name][place] = value

    change.__name__ = f"{name}[{place}]={value}"
    return change


def _cut(name: str) -> Any:
    def change(arrays: dict[str, Any]) -> None:
        arrays[name] = arrays[name][..., :-1]

    change.__name__ = f"{name} cut"
    return change


def _retype(name: str) -> Any:
    def change(arrays: dict[str, Any]) -> None:
        arrays[name] = arrays[name].astype(np.float32)

    change.__name__ = f"{name} retyped"
    return change


NAMES = (
    *("n_grown", "scale", "limit", "ranks", "first", "edges", "hashes", "n_inner", "n_outer", "n_taken"),
    *("sizes", "place", "parent", "feature", "bin", "missing_left", "gh"),
)

BROKEN = [
    *(_cut(name) for name in NAMES),
    *(_retype(name) for name in NAMES),
    _poke("n_grown", 0, 0),
    _poke("n_grown", 0, 3),
    _poke("n_grown", 0, 2**40),
    _poke("scale", 0, np.nan),
    _poke("scale", 2, 1.0),
    _poke("limit", 0, 5),
    _poke("ranks", 0, 1),
    _poke("first", 0, 1),
    _poke("first", 1, 2**32 - 1),
    _poke("first", 2, 0),
    _poke("edges", 0, np.nan),
    _poke("edges", 1, np.inf),
    _poke("n_inner", 0, -1),
    _poke("n_inner", 0, 2**62),
    _poke("n_outer", 0, 2**62),
    _poke("n_inner", 4, 2),
    _poke("n_taken", 0, 1),
    _poke("n_taken", 4, 9),
    _poke("sizes", 0, 2),
    _poke("sizes", 0, 2**31 - 1),
    _poke("sizes", 0, 1),
    _poke("sizes", slice(0, 2), 5),
    _poke("place", 0, 1),
    _poke("place", 1, 99),
    _poke("place", 1, 0),
    _poke("place", 1, -3),
    _poke("place", 2, 1),
    _poke("parent", 0, 0),
    _poke("parent", 1, 1),
    _poke("parent", 1, -1),
    _poke("parent", 2, 77),
    _poke("feature", 0, -1),
    _poke("feature", 0, 5),
    _poke("feature", 0, -2),
    _poke("bin", 0, -1),
    _poke("bin", 0, 10**6),
    _poke("missing_left", 0, 2),
    _poke("missing_left", slice(None), 1),
]


@pytest.mark.parametrize("change", BROKEN, ids=lambda change: change.__name__)
def test_arrays_that_are_no_trees_of_these_samples(change: Any) -> None:
    engine, problem, slots = _updated(2)
    arrays = engine.arrays()
    change(arrays)
    with pytest.raises(ValueError, match=r"\w"):
        _restored(engine, problem, arrays, slots)


@pytest.mark.parametrize(
    "change",
    [
        _poke("scale", 2, 0.0),
        _poke("scale", 3, 0.0),
        _poke("scale", 1, np.inf),
        _poke("limit", 0, 0),
        _poke("gh", 0, 2**31 - 1),
    ],
    ids=lambda change: change.__name__,
)
def test_arrays_that_are_no_trees_for_these_numbers(change: Any) -> None:
    engine, problem, slots = _updated(0)
    arrays = engine.arrays()
    change(arrays)
    with pytest.raises(ValueError, match=r"out of range"):
        _restored(engine, problem, arrays, slots)


def test_trees_of_other_samples() -> None:
    engine, problem, slots = _updated(2)
    with pytest.raises(ValueError, match="gh has another type or shape"):
        _restored(engine, problem, engine.arrays(), slots[1:])
    missing = engine.arrays()
    del missing["bin"]
    with pytest.raises(ValueError, match="there is no bin"):
        _restored(engine, problem, missing, slots)
