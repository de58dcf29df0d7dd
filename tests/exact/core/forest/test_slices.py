"""A change that is made in slices: the same forest in the end, and the one before in between."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from oubli.core import DynamicForestClassifier, DynamicForestRegressor
from oubli.core.errors import UnusableModelError
from oubli.core.forest.engine import ForestEngine
from oubli.core.planning import Plan, Turn
from oubli.core.samples.records import Rows

N = 900
N_CHANGED = 60
A_SLICE = 7


def row(i: int) -> list[Any]:
    return [float(i * 37 % 101), "abcd"[i * i % 4], float(i % 3), None if i % 11 == 0 else i / 7]


def label(task: str, i: int) -> Any:
    return "xyz"[(i * 31 % 17 + i % 5) % 3] if task == "classification" else float(i * 53 % 97)


def fitted(task: str, **parameters: Any) -> Any:
    kind = DynamicForestClassifier if task == "classification" else DynamicForestRegressor
    model: Any = kind(n_estimators=6, random_state=3, **parameters)
    model.fit([row(i) for i in range(N)], [label(task, i) for i in range(N)], ids=[f"c{i}" for i in range(N)])
    model.resolve()
    return model


def added(model: Any, task: str, n: int = N_CHANGED, **changed: Any) -> Plan:
    numbers = range(N, N + n)
    rows, labels = [row(i) for i in numbers], [label(task, i) for i in numbers]
    if "category" in changed:
        rows[5][1] = changed["category"]
    if "label" in changed:
        labels[5] = changed["label"]
    subjects = ["ada" if i % 2 else None for i in numbers]
    plan: Plan = model.plan_add(Rows(rows, [f"n{i}" for i in numbers], subjects=subjects), labels)
    return plan


def planned(model: Any, task: str, change: str) -> Plan:
    plan: Plan = added(model, task) if change == "add" else model.plan_delete([f"c{7 * i}" for i in range(N_CHANGED)])
    return plan


def said(model: Any) -> list[Any]:
    """All that readers between two slices may ask."""
    store, many = model.samples_, [row(i) for i in range(0, N, 2)]
    answers = [model.query(rows, frozen=frozen) for rows in (many, many[:1]) for frozen in (True, False)]
    numbers = [part.tolist() for answer in answers for part in answer if part is not None]
    held = [store.get(name) for name in ("c7", "c8", f"n{N}") if store.contains(name)]
    return [numbers, len(store), store.ids(), store.ids_of_subject("ada"), held]


@pytest.fixture(autouse=True)
def small_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ForestEngine, "_slice_size", lambda engine, problem: A_SLICE)


@pytest.mark.parametrize("task", ["classification", "regression"])
@pytest.mark.parametrize("change", ["add", "delete"])
def test_readers_have_the_model_before_and_the_end_is_that_of_a_change_at_once(task: str, change: str) -> None:
    model, at_once = fitted(task), fitted(task)
    before, plan, n_slices = said(model), planned(model, task, change), 0
    assert model.can_be_sliced(plan)
    for reader in model.change_in_slices(plan):
        assert said(reader) == before
        assert reader.n_lazy_tags_ == 0
        n_slices += 1
    assert n_slices == 1 + -(-N_CHANGED // A_SLICE)  # the first makes room
    at_once.apply(planned(at_once, task, change))
    assert model.n_lazy_tags_ == at_once.n_lazy_tags_ > 0  # nothing was resolved
    assert said(model.copy()) == said(at_once)
    model.check_invariants()
    assert model.verify().ok
    assert model.digest() == at_once.digest()


def test_leaves_that_several_slices_reach_are_hidden_each_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """All samples of the change are in the same leaves, which move to larger rooms meanwhile."""
    model = fitted("classification", max_depth=1)
    before = said(model)
    for _ in range(2):
        for reader in model.change_in_slices(planned(model, "classification", "add")):
            assert said(reader) == before
        for reader in model.change_in_slices(model.plan_delete([f"n{i}" for i in range(N, N + N_CHANGED)])):
            assert reader.samples_.contains(f"n{N}")
        model.resolve()
    assert said(model) == before
    model.check_invariants()


def test_what_readers_would_not_know_is_made_at_once() -> None:
    model = fitted("classification")
    assert not model.can_be_sliced(added(model, "classification", category="new"))
    assert not model.can_be_sliced(added(model, "classification", label="new"))
    assert not model.can_be_sliced(added(model, "classification", 200))  # all trees are planted again
    assert not model.can_be_sliced(model.plan_delete(["c1"]))
    assert not model.can_be_sliced(model.plan_replace("c1", [row(5)], "x"))
    assert not fitted("classification", lazy=False).can_be_sliced(model.plan_delete(["c1", "c2"]))


def test_what_a_change_takes_is_estimated_from_counts() -> None:
    small, large = fitted("classification"), fitted("classification", occurrence=1.0)
    seconds = small.seconds_to_change
    assert 0 < seconds(1) == seconds(20) / 20 == pytest.approx(large.seconds_to_change(1) * 5 / 6, rel=0.2)
    assert seconds(N // 2) == seconds(N // 3) > seconds(N // 20)  # planting again takes as long for any number
    assert not small.plan_delete(["c1", "c2"], turn=Turn(longest_pause=seconds(2))).takes_long
    assert small.plan_delete(["c1", "c2"], turn=Turn(longest_pause=seconds(2), n_items=1)).takes_long


def test_few_tags_may_be_resolved_before_and_many_are_not() -> None:
    model = fitted("classification")
    plan = model.plan_delete(["c1", "c2"])
    assert model.can_be_sliced(plan)
    model.delete([f"c{i}" for i in range(100, 160)])
    assert not model.can_be_sliced(plan)


def test_a_scale_that_moves_has_all_targets_counted_again() -> None:
    model, at_once = fitted("regression"), fitted("regression")
    before, plan = said(model), added(model, "regression", label=1e9)
    for reader in model.change_in_slices(plan):
        assert said(reader) == before
    at_once.apply(added(at_once, "regression", label=1e9))
    assert model.digest() == at_once.digest()
    for reader in model.change_in_slices(model.plan_delete([f"n{N + i}" for i in range(20)])):
        assert reader.samples_.contains(f"n{N}")
    assert model.verify().ok


@pytest.mark.parametrize("task", ["classification", "regression"])
@pytest.mark.parametrize("change", ["add", "delete"])
def test_one_that_is_left_off_or_fails_leaves_no_model(monkeypatch: pytest.MonkeyPatch, task: str, change: str) -> None:
    model = fitted(task)
    before, slices = said(model), model.change_in_slices(planned(model, task, change))
    next(slices)
    slices.close()
    assert said(model) == before  # there was room, and nothing else yet
    model.check_invariants()
    slices = model.change_in_slices(planned(model, task, change))
    next(slices)
    next(slices)
    slices.close()
    with pytest.raises(UnusableModelError):
        model.query([row(1)])
    model, update, calls = fitted(task), ForestEngine.update, iter(range(9))

    def fail(engine: Any, *arguments: Any) -> None:
        if next(calls) == 2:
            raise MemoryError
        update(engine, *arguments)

    monkeypatch.setattr(ForestEngine, "update", fail)
    slices = model.change_in_slices(planned(model, task, change))
    for _ in range(3):
        next(slices)
    with pytest.raises(MemoryError):
        next(slices)
    with pytest.raises(UnusableModelError):
        model.samples_.get("c1")


def test_one_that_fails_before_its_first_slice_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    model = fitted("classification")
    before = said(model)

    def fail(engine: Any, slots: Any) -> None:
        raise MemoryError

    monkeypatch.setattr(ForestEngine, "_reserve", fail)
    with pytest.raises(MemoryError):
        next(model.change_in_slices(added(model, "classification")))
    assert said(model) == before
    model.check_invariants()
    assert model.lock.changer == 0


def test_another_thread_waits_for_the_last_slice() -> None:
    model = fitted("classification")
    begun, found = threading.Event(), []

    def predict() -> None:
        begun.set()
        found.append(model.query([row(1)]).probabilities.tolist())

    thread = threading.Thread(target=predict)
    for number, _ in enumerate(model.change_in_slices(planned(model, "classification", "delete"))):
        if number == 0:
            thread.start()
            begun.wait()
        thread.join(0.002)
        assert not found
    thread.join()
    assert found == [model.query([row(1)]).probabilities.tolist()]
