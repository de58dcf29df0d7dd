"""A change of exact boosting that is made in slices: the same trees in the end, and those before in between."""

from __future__ import annotations

from typing import Any

import pytest

from oubli.core import IncrementalBoostingClassifier, IncrementalBoostingRegressor
from oubli.core.boosting.quantised import engine as quantised
from oubli.core.boosting.quantised.engine import QuantisedTrees
from oubli.core.errors import UnusableModelError
from oubli.core.planning import Plan, Turn
from oubli.core.samples.records import Rows

N, N_CHANGED = 600, 12
CASES: dict[str, dict[str, Any]] = {
    "two classes": {},
    "three classes": {},
    "numbers": {},
    "stopping": {"early_stopping": 2},
    "threads": {"n_jobs": 2},
}


def row(i: int) -> list[Any]:
    return [float(i * 37 % 101), "abcd"[i * i % 4], float(i % 3), None if i % 11 == 0 else i / 7]


def label(case: str, i: int) -> Any:
    if case == "numbers":
        return float(i * 53 % 97)
    return "xyz"[(i * 31 % 17 + i % 5) % (3 if case == "three classes" else 2)]


def fitted(case: str, **parameters: Any) -> Any:
    kind = IncrementalBoostingRegressor if case == "numbers" else IncrementalBoostingClassifier
    model: Any = kind(n_estimators=12, max_depth=3, random_state=3, **{**CASES[case], **parameters})
    return model.fit([row(i) for i in range(N)], [label(case, i) for i in range(N)], ids=[f"c{i}" for i in range(N)])


def planned(model: Any, case: str, change: str, n: int = N_CHANGED) -> Plan:
    numbers = range(N, N + n)
    plan: Plan
    if change == "add":
        rows, labels = [row(i) for i in numbers], [label(case, i) for i in numbers]
        plan = model.plan_add(Rows(rows, [f"n{i}" for i in numbers], subjects=["ada"] * n), labels)
    else:
        plan = model.plan_delete([f"c{7 * i}" for i in range(n)])
    return plan


def said(model: Any) -> list[Any]:
    """What readers between two slices may ask."""
    rows = [row(i) for i in range(0, N, 5)]
    answers = [model.query(some) for some in (rows, rows[:1])]
    numbers = [part.tolist() for answer in answers for part in answer if part is not None]
    return [numbers, model.n_samples_, model.samples_.ids(), model.samples_.ids_of_subject("ada")]


@pytest.fixture(autouse=True)
def small_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(QuantisedTrees, "_slice_size", lambda *_: 1)


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("change", ["add", "delete"])
@pytest.mark.parametrize("n", [1, N_CHANGED])
def test_readers_have_the_trees_before_and_the_end_is_that_of_a_change_at_once(case: str, change: str, n: int) -> None:
    model, at_once = fitted(case), fitted(case)
    before, plan, n_slices = said(model), planned(model, case, change, n), 0
    assert model.can_be_sliced(plan)
    for reader in model.change_in_slices(plan):
        assert said(reader) == before
        n_slices += 1
    assert n_slices >= model.engine_.n_iterations
    at_once.apply(planned(at_once, case, change, n))
    assert said(model) == said(at_once) != before
    assert model.digest() == at_once.digest()
    model.check_invariants()
    assert model.verify().ok


@pytest.mark.parametrize("gone", ["a class", "all", "all but one"])
def test_what_has_all_trees_grown_again_is_made_in_slices_as_well(gone: str) -> None:
    model = fitted("three classes")
    names = [f"c{i}" for i in range(N) if gone != "a class" or label("three classes", i) == "z"]
    before, plan = said(model), model.plan_delete(names[1:] if gone == "all but one" else names)
    for reader in model.change_in_slices(plan):
        assert said(reader) == before
    fresh = fitted("three classes")
    fresh.delete(plan.learned)
    assert model.digest() == fresh.digest()
    model.check_invariants()


def test_what_readers_would_not_know_and_what_takes_long_to_bin_again_is_not_sliced(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    model = fitted("two classes")
    assert not model.can_be_sliced(model.plan_add(Rows([row(1)], ["n"]), ["new"]))
    assert not model.can_be_sliced(model.plan_add(Rows([[0.0, "new", 1.0, 2.0]], ["n"]), ["x"]))
    assert not model.can_be_sliced(model.plan_replace("c1", [row(5)], "x"))
    assert not fitted("two classes", quantization=None).can_be_sliced(model.plan_delete(["c1"]))
    monkeypatch.setattr(quantised, "_LONGEST_BINNING", 0.0)
    assert model.can_be_sliced(model.plan_delete(["c1"]))
    assert not model.can_be_sliced(model.plan_delete(["c1", "c2"]))


def test_a_single_sample_of_a_large_set_takes_long_and_is_no_reason_for_a_copy(monkeypatch: pytest.MonkeyPatch) -> None:
    model = fitted("two classes")
    monkeypatch.setattr(QuantisedTrees, "seconds_to_fit", lambda *_: 1.0)
    plan = model.plan_delete(["c1"], turn=Turn(longest_pause=0.05))
    assert plan.takes_long
    assert model.can_be_sliced(plan)


@pytest.mark.parametrize("change", ["add", "delete"])
def test_without_memory_on_the_way_all_trees_are_grown_again(monkeypatch: pytest.MonkeyPatch, change: str) -> None:
    model, update, calls = fitted("two classes"), quantised.update_iterations, iter(range(100))

    def fail(*arguments: Any) -> Any:
        if next(calls) == 3:
            raise MemoryError
        return update(*arguments)

    monkeypatch.setattr(quantised, "update_iterations", fail)
    before = said(model)
    for reader in model.change_in_slices(planned(model, "two classes", change, 1)):
        assert said(reader) == before
    assert next(calls) == 4
    assert model.verify().ok


@pytest.mark.parametrize("change", ["add", "delete"])
@pytest.mark.parametrize("how", ["left off", "fails"])
def test_one_that_does_not_come_to_its_end_leaves_no_model(change: str, how: str) -> None:
    model = fitted("two classes")
    slices: Any = model.change_in_slices(planned(model, "two classes", change, 1))
    for _ in range(3):
        next(slices)
    if how == "left off":
        slices.close()
    else:
        with pytest.raises(ZeroDivisionError):
            slices.throw(ZeroDivisionError)
    with pytest.raises(UnusableModelError):
        model.query([row(1)])
    with pytest.raises(UnusableModelError):
        model.samples_.get("c1")
