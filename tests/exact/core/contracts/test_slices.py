"""A change that is made in slices: the model of a change at once in the end, and the one before for readers between."""

import threading
from typing import Any

import pytest

from oubli import core
from oubli.core.boosting.quantised import engine as quantised
from oubli.core.boosting.quantised.engine import QuantisedTrees
from oubli.core.errors import UnusableModelError
from oubli.core.forest.engine import ForestEngine
from oubli.core.planning import FIRST, Plan, Turn
from oubli.core.samples.records import Rows

N, N_CHANGED = 600, 12
A_SLICE = 5  # samples; of boosting a slice is an iteration
FOREST: dict[str, Any] = {"n_estimators": 6, "random_state": 3}
BOOSTED: dict[str, Any] = {"n_estimators": 12, "max_depth": 3, "random_state": 3}
# Estimator, number of classes (0: numbers), parameters.
CASES: dict[str, tuple[Any, int, dict[str, Any]]] = {
    "forest": (core.DynamicForestClassifier, 3, FOREST),
    "forest of few leaves": (core.DynamicForestClassifier, 3, {**FOREST, "max_depth": 1}),  # which several slices reach
    "forest of numbers": (core.DynamicForestRegressor, 0, FOREST),
    "two classes": (core.IncrementalBoostingClassifier, 2, BOOSTED),
    "three classes": (core.IncrementalBoostingClassifier, 3, BOOSTED),
    "numbers": (core.IncrementalBoostingRegressor, 0, BOOSTED),
    "stopping": (core.IncrementalBoostingClassifier, 2, {**BOOSTED, "early_stopping": 2}),
    "threads": (core.IncrementalBoostingClassifier, 2, {**BOOSTED, "n_jobs": 2}),
}


def row(i: int) -> list[Any]:
    return [float(i * 37 % 101), "abcd"[i * i % 4], float(i % 3), None if i % 11 == 0 else i / 7]


def label(case: str, i: int) -> Any:
    n_classes = CASES[case][1]
    return "xyz"[(i * 31 % 17 + i % 5) % n_classes] if n_classes else float(i * 53 % 97)


def fitted(case: str, **changed: Any) -> Any:
    estimator, _, parameters = CASES[case]
    model = estimator(**{**parameters, **changed})
    model.fit([row(i) for i in range(N)], [label(case, i) for i in range(N)], ids=[f"c{i}" for i in range(N)])
    model.resolve()
    return model


def planned(model: Any, case: str, change: str, n: int = N_CHANGED) -> Plan:
    """Add samples, every other one of Ada, or delete some."""
    if change == "delete":
        plan: Plan = model.plan_delete([f"c{7 * i}" for i in range(n)])
        return plan
    numbers = range(N, N + n)
    return added(model, [row(i) for i in numbers], [label(case, i) for i in numbers])


def added(model: Any, rows: list[Any], labels: list[Any], turn: Turn = FIRST) -> Plan:
    ids = [f"n{i}" for i in range(len(rows))]
    subjects = ["ada" if i % 2 == 0 else None for i in range(len(rows))]
    plan: Plan = model.plan_add(Rows(rows, ids, subjects=subjects), labels, turn=turn)
    return plan


def said(model: Any) -> list[Any]:
    """All that readers between two slices may ask."""
    store, many = model.samples_, [row(i) for i in range(0, N, 5)]
    answers = [model.query(rows, frozen=frozen) for rows in (many, many[:1]) for frozen in (True, False)]
    numbers = [part.tolist() for answer in answers for part in answer if part is not None]
    held = [store.get(name) for name in ("c7", "c8", "n0") if store.contains(name)]
    return [numbers, model.n_samples_, store.ids(), store.ids_of_subject("ada"), held]


@pytest.fixture(autouse=True)
def small_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ForestEngine, "_slice_size", lambda *_: A_SLICE)
    monkeypatch.setattr(QuantisedTrees, "_slice_size", lambda *_: 1)


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("change", ["add", "delete"])
@pytest.mark.parametrize("n", [1, N_CHANGED])
def test_readers_have_the_model_before_and_the_end_is_that_of_a_change_at_once(case: str, change: str, n: int) -> None:
    model, at_once = fitted(case), fitted(case)
    before, plan, n_slices = said(model), planned(model, case, change, n), 0
    if n == 1 and model.kind == "forest":
        assert not model.can_be_sliced(plan), "one sample is one slice"
        return
    assert model.can_be_sliced(plan)
    for reader in model.change_in_slices(plan):
        assert (said(reader), reader.n_lazy_tags_) == (before, 0)
        n_slices += 1
    # In a forest the first slice makes room.
    assert n_slices >= (1 + -(-n // A_SLICE) if model.kind == "forest" else model.engine_.n_iterations)
    at_once.apply(planned(at_once, case, change, n))
    assert model.n_lazy_tags_ == at_once.n_lazy_tags_, "nothing was resolved"
    assert said(model.copy()) == said(at_once) != before
    assert model.digest() == at_once.digest()
    model.check_invariants()
    assert model.verify().ok


@pytest.mark.parametrize("case", ["forest", "forest of numbers", "two classes"])
@pytest.mark.parametrize("change", ["add", "delete"])
@pytest.mark.parametrize("how", ["left off", "fails"])
def test_one_that_does_not_come_to_its_end_leaves_no_model(case: str, change: str, how: str) -> None:
    model = fitted(case)
    slices: Any = model.change_in_slices(planned(model, case, change))
    for _ in range(3):
        next(slices)
    if how == "left off":
        slices.close()
    else:
        with pytest.raises(ZeroDivisionError):
            slices.throw(ZeroDivisionError)
    with pytest.raises(UnusableModelError, match="'fit' or 'start', or use a model from 'load'"):
        model.query([row(1)])
    with pytest.raises(UnusableModelError):
        model.samples_.get("c1")


def test_another_thread_waits_for_the_last_slice() -> None:
    model = fitted("forest")
    begun, found = threading.Event(), []

    def predict() -> None:
        begun.set()
        found.append(model.query([row(1)]).probabilities.tolist())

    thread = threading.Thread(target=predict)
    for number, _ in enumerate(model.change_in_slices(planned(model, "forest", "delete"))):
        if number == 0:
            thread.start()
            begun.wait()
        thread.join(0.002)
        assert not found
    thread.join()
    assert found == [model.query([row(1)]).probabilities.tolist()]


# -- forests -----------------------------------------------------------------------------------------


def test_a_forest_makes_what_readers_would_not_know_at_once() -> None:
    model = fitted("forest")
    assert not model.can_be_sliced(added(model, [row(1), [0.0, "new", 1.0, 2.0]], ["x", "y"]))
    assert not model.can_be_sliced(added(model, [row(1), row(2)], ["x", "new"]))
    assert not model.can_be_sliced(planned(model, "forest", "add", 140))  # all trees are planted again
    assert not model.can_be_sliced(model.plan_replace("c1", [row(5)], "x"))
    assert not fitted("forest", lazy=False).can_be_sliced(model.plan_delete(["c1", "c2"]))
    plan = model.plan_delete(["c1", "c2"])
    assert model.can_be_sliced(plan)
    model.delete(["c99"])
    assert model.can_be_sliced(plan)
    assert not model.can_be_sliced(plan, is_queried=False), "nobody waits for a copy"
    model.delete([f"c{i}" for i in range(100, 140)])
    assert not model.can_be_sliced(plan), "many tags are not resolved before"


def test_what_a_change_takes_is_estimated_from_counts() -> None:
    small, large = fitted("forest"), fitted("forest", occurrence=1.0)
    seconds = small.seconds_to_change
    assert 0 < seconds(1) == seconds(20) / 20 == pytest.approx(large.seconds_to_change(1) * 5 / 6, rel=0.2)
    assert seconds(N // 2) == seconds(N // 3) > seconds(N // 20)  # planting again takes as long for any number
    assert not small.plan_delete(["c1", "c2"], turn=Turn(longest_pause=seconds(2))).takes_long
    assert small.plan_delete(["c1", "c2"], turn=Turn(longest_pause=seconds(2), n_items=1)).takes_long


def test_what_is_short_enough_for_one_piece_is_sliced_where_that_helps(monkeypatch: pytest.MonkeyPatch) -> None:
    lazy, eager, turn = fitted("forest"), fitted("forest", lazy=False), Turn(longest_pause=1.0)
    monkeypatch.setattr(core.planning, "_SLICED_FROM", lazy.seconds_to_change(3))
    for n, is_sliced in ((3, False), (5, True)):
        names = [f"c{i}" for i in range(n)]
        assert lazy.plan_delete(names, turn=turn).takes_long is is_sliced
        rows = [row(i) for i in range(n)]
        assert added(lazy, rows, ["x"] * n, turn=turn).takes_long is is_sliced
        assert not eager.plan_delete(names, turn=turn).takes_long, "a copy costs more than a short wait"
    assert not lazy.plan_delete([f"c{i}" for i in range(5)]).takes_long, "no request waits"
    waiting = Turn(longest_pause=1.0, n_items=3)
    assert lazy.plan_delete(["c1", "c2"], turn=waiting).takes_long
    lazy.delete(["c9"])
    assert not lazy.plan_delete(["c1", "c2"], turn=waiting).takes_long, "tags would have to be resolved before"


def test_a_scale_that_moves_has_all_targets_counted_again() -> None:
    rows, labels = [row(i) for i in range(N, N + 20)], [1e9, *map(float, range(19))]
    model, at_once = fitted("forest of numbers"), fitted("forest of numbers")
    before = said(model)
    for reader in model.change_in_slices(added(model, rows, labels)):
        assert said(reader) == before
    at_once.apply(added(at_once, rows, labels))
    assert model.digest() == at_once.digest()
    for reader in model.change_in_slices(model.plan_delete([f"n{i}" for i in range(20)])):
        assert reader.samples_.contains("n0")
    assert model.verify().ok


def test_one_that_ends_before_its_first_write_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    model = fitted("forest")
    before, slices = said(model), model.change_in_slices(planned(model, "forest", "add"))
    next(slices)
    slices.close()
    assert said(model) == before  # there was room, and nothing else yet

    def fail(engine: Any, slots: Any) -> None:
        raise MemoryError

    monkeypatch.setattr(ForestEngine, "_reserve", fail)
    with pytest.raises(MemoryError):
        next(model.change_in_slices(planned(model, "forest", "add")))
    assert said(model) == before
    model.check_invariants()
    assert model.lock.changer == 0


# -- exact boosting ----------------------------------------------------------------------------------


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


def test_boosting_makes_what_readers_would_not_know_and_long_binning_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    model = fitted("two classes")
    assert not model.can_be_sliced(added(model, [row(1)], ["new"]))
    assert not model.can_be_sliced(added(model, [[0.0, "new", 1.0, 2.0]], ["x"]))
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


def test_without_memory_on_the_way_all_trees_are_grown_again(monkeypatch: pytest.MonkeyPatch) -> None:
    model, update, calls = fitted("two classes"), quantised.update_iterations, iter(range(100))

    def fail(*arguments: Any) -> Any:
        if next(calls) == 3:
            raise MemoryError
        return update(*arguments)

    monkeypatch.setattr(quantised, "update_iterations", fail)
    before = said(model)
    for reader in model.change_in_slices(planned(model, "two classes", "add", 1)):
        assert said(reader) == before
    assert next(calls) == 4
    assert model.verify().ok
