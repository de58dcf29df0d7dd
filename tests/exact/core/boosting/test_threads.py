"""Boosting in threads: the same bits for any number of them, and failures that leave the model sound."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import nullcontext
from typing import Any

import numpy as np
import pytest

from oubli.core import (
    IncrementalBoostingClassifier,
    IncrementalBoostingRegressor,
    OnlineBoostingClassifier,
    OnlineBoostingRegressor,
)
from oubli.core.boosting import engine as boosting
from oubli.core.boosting.online import blocks as online
from oubli.core.boosting.presorted import boost as presorted
from oubli.core.boosting.presorted.serialise import FIELDS
from oubli.core.boosting.quantised import blocks as quantised
from oubli.core.boosting.quantised import split
from oubli.core.boosting.quantised.invariants import differences
from oubli.core.boosting.rows import cut, most_alone, n_blocks, without_grain
from oubli.core.errors import UnusableModelError

N_THREADS = (2, 3, 7)
REGRESSION = 0
N = 300


@pytest.fixture(autouse=True)
def _cut_however_small() -> Iterator[None]:
    with without_grain():
        yield


def set_threads(model: Any, n_threads: int) -> Any:
    """Have all long work of a fitted model done by so many threads, also of more than there are cores."""
    model.engine_.n_threads = n_threads
    return model


def samples(task: int, n: int = N, seed: int = 0) -> tuple[list[list[Any]], list[Any]]:
    """Rows of numbers, missing values, mostly zeros and categories; targets, or classes 0 to task - 1."""
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((n, 4))
    x[:, 1] = np.round(x[:, 1])
    x[:, 3] = np.where(rng.random(n) < 0.9, 0.0, x[:, 3])
    score = x[:, 0] + x[:, 1] * x[:, 2] + rng.standard_normal(n)
    x[rng.random(n) < 0.2, 2] = np.nan
    words = np.array(["a", "b", "c", None], object)[rng.integers(0, 4, n)]
    rows = [[*values, word] for values, word in zip(x.tolist(), words.tolist(), strict=True)]
    if task == REGRESSION:
        return rows, score.tolist()
    return rows, np.digitize(score, np.quantile(score, np.linspace(0, 1, task + 1)[1:-1])).tolist()


def make(kind: str, task: int, **parameters: Any) -> Any:
    """An estimator, not fitted."""
    classes = {
        "quantised": (IncrementalBoostingRegressor, IncrementalBoostingClassifier),
        "presorted": (IncrementalBoostingRegressor, IncrementalBoostingClassifier),
        "online": (OnlineBoostingRegressor, OnlineBoostingClassifier),
    }
    if kind == "presorted":
        parameters["quantization"] = None
    return classes[kind][task > 0](random_state=1, **{"n_estimators": 6, **parameters})


def fitted(kind: str, task: int, n_threads: int = 1, n: int = N - 50, **parameters: Any) -> Any:
    """A model of the first samples, fitted in threads."""
    rows, labels = samples(task)
    model = make(kind, task, **parameters).fit(rows[:n], labels[:n])
    if n_threads > 1:
        set_threads(model, n_threads).refit()
    return model


def predicted(model: Any, rows: list[list[Any]]) -> bytes:
    """Bits of the predictions."""
    answers = model.query(rows)
    return bytes(np.asarray(answers.labels if answers.probabilities is None else answers.probabilities).tobytes())


def changed(model: Any, task: int) -> list[str]:
    """Digests after each step of a history: single changes, a large deletion, many new samples."""
    rows, labels = samples(task)
    digests = [model.digest()]
    model.delete(["5", "17"])
    digests.append(model.digest())
    model.add(rows[-50:-45], labels[-50:-45], ids=[f"new {i}" for i in range(5)])
    digests.append(model.digest())
    model.delete([str(i) for i in range(100, 200)])
    digests.append(model.digest())
    model.add(rows[-45:], labels[-45:], ids=[f"newer {i}" for i in range(45)])
    return [*digests, model.digest()]


def assert_same(model: Any, other: Any) -> None:
    """All that two engines keep of the same samples is the same."""
    engine, its = model.engine_, other.engine_
    slots = model.samples_.slots()
    assert np.array_equal(slots, other.samples_.slots())
    if hasattr(engine, "plans"):
        assert differences(engine.state(), its.state(), slots) == []
    elif hasattr(engine, "candidates"):
        for ours, theirs in zip(engine.forest, its.forest, strict=True):
            assert ours.tobytes() == theirs.tobytes()
    else:
        for field in FIELDS:
            assert engine.trees.nodes[field].tobytes() == its.trees.nodes[field].tobytes()
        assert engine.last_update == its.last_update
        assert engine.split_gains.tobytes() == its.split_gains.tobytes()


# With 3 classes and 7 threads the samples are cut, with 5 classes and 2 threads the trees grow side by side.
CASES: list[tuple[str, dict[str, Any], tuple[int, ...]]] = [
    ("quantised", {}, (REGRESSION, 2, 3, 5)),
    ("quantised", {"max_depth": 1}, (2, 3)),
    ("quantised", {"max_depth": 7, "split_sampling": 0.5}, (REGRESSION, 2)),
    ("quantised", {"early_stopping": 2, "validation_fraction": 0.3, "n_estimators": 30}, (REGRESSION, 2, 3)),
    ("presorted", {}, (REGRESSION, 2, 5)),
    ("presorted", {"early_stopping": 2, "validation_fraction": 0.3}, (3,)),
    ("online", {}, (REGRESSION, 2, 3, 5)),
    ("online", {"max_leaf_nodes": 2}, (2,)),
    ("online", {"split_sampling": 1.0, "robustness": 0.0}, (REGRESSION, 3)),
]


@pytest.mark.parametrize(
    ("kind", "parameters", "task"), [(kind, parameters, task) for kind, parameters, tasks in CASES for task in tasks]
)
def test_the_number_of_threads_changes_no_bit(kind: str, parameters: dict[str, Any], task: int) -> None:
    alone = fitted(kind, task, **parameters)
    rows, _ = samples(task)
    at_first, models = predicted(alone, rows), [fitted(kind, task, n, **parameters) for n in N_THREADS]
    for model in models:
        assert predicted(model, rows) == at_first
        assert_same(alone, model)
    digests = changed(alone, task)
    for model in models:
        assert changed(model, task) == digests
        assert_same(alone, model)
        assert predicted(model, rows) == predicted(alone, rows)
    models[-1].check_invariants()


@pytest.mark.parametrize("task", [REGRESSION, 3])
@pytest.mark.parametrize("parameters", [{}, {"early_stopping": 2, "validation_fraction": 0.3, "n_estimators": 20}])
def test_the_number_of_threads_changes_no_bit_in_regions(
    task: int, parameters: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(split, "LEAST_SIZE", 5)
    alone = fitted("quantised", task, **parameters)
    assert alone.engine_.regions.levels > 0
    expected = changed(alone.copy(), task)
    for n_threads in N_THREADS:
        model = fitted("quantised", task, n_threads, **parameters)
        assert_same(model, alone)
        assert changed(model, task) == expected


@pytest.mark.parametrize(
    ("kind", "task"), [("quantised", 2), ("quantised", 3), ("presorted", 3), ("online", REGRESSION)]
)
def test_a_model_verifies_itself_and_is_copied_and_wiped_in_threads(kind: str, task: int) -> None:
    model = fitted(kind, task, 3)
    assert model.verify().ok
    model.delete(["3"])
    model.wipe()
    model.delete(["4"])
    other = fitted(kind, task)
    other.delete(["3"])
    other.delete(["4"])
    assert model.digest() == other.digest()
    model.check_invariants()


@pytest.mark.parametrize("kind", ["quantised", "presorted", "online"])
@pytest.mark.parametrize("task", [2, 3])
def test_progress_is_told_of_every_tree(kind: str, task: int) -> None:
    told: list[tuple[int, int]] = []
    model = fitted(kind, task, 3)
    digest = model.digest()
    model.refit(lambda done, total: told.append((done, total)))
    n_trees = 6 * (task if task > 2 else 1)
    assert told[-1] == (n_trees, n_trees)
    assert told == sorted(told)
    assert model.digest() == digest


@pytest.mark.parametrize(
    ("kind", "task", "module", "name"),
    [
        ("quantised", 2, quantised, "grow_in_blocks"),
        ("quantised", 3, quantised, "grow_part"),
        ("online", 2, online, "grow_in_blocks"),
        ("online", 3, online, "grow_tree"),
        ("presorted", 3, presorted, "grow_group"),
    ],
)
def test_a_fit_that_fails_in_a_thread_changes_nothing(
    kind: str, task: int, module: Any, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any) -> None:
        raise MemoryError

    model = fitted(kind, task, 3)
    before = model.digest()
    monkeypatch.setattr(module, name, fail)
    with pytest.raises(MemoryError):
        model.refit()
    monkeypatch.undo()
    assert model.digest() == before
    model.check_invariants()
    model.refit()
    assert model.digest() == before


def test_an_update_that_fails_in_a_thread_is_made_anew_or_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    error: type[BaseException] = MemoryError

    def fail(*_: Any, **__: Any) -> None:
        raise error

    model, other = fitted("quantised", 2, 3), fitted("quantised", 2)
    gone = [str(i) for i in range(100, 200)]
    other.delete(gone)
    # Memory that is short for threads is enough for one.
    monkeypatch.setattr(quantised, "make_blocks", fail)
    model.delete(gone)
    assert model.digest() == other.digest()
    monkeypatch.undo()
    error = ZeroDivisionError
    monkeypatch.setattr(quantised, "grow_in_blocks", fail)
    with pytest.raises(ZeroDivisionError):
        model.delete([str(i) for i in range(1, 70)])
    with pytest.raises(UnusableModelError):
        model.digest()


def test_predictions_are_cut_by_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = []

    def run(pieces: Any, n_threads: int) -> Any:
        sizes.append((len(pieces), n_threads))
        return [piece() for piece in pieces]

    model = fitted("quantised", 2)
    rows, _ = samples(2)
    expected = predicted(model, rows)
    monkeypatch.setattr(boosting, "run", run)
    assert predicted(set_threads(model, 3), rows) == expected
    assert sizes == [(3, 3)]


@pytest.mark.parametrize("fails", [False, True])
def test_what_the_working_space_held_is_overwritten(fails: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    made = []

    def fail(*_: Any) -> None:
        assert made[0].slots.any()
        raise MemoryError

    def make_blocks(*arguments: Any, **others: Any) -> Any:
        made.append(real(*arguments, **others))
        return made[-1]

    real = quantised.make_blocks
    monkeypatch.setattr(quantised, "make_blocks", make_blocks)
    if fails:
        monkeypatch.setattr(quantised, "grow_in_blocks", fail)
    with pytest.raises(MemoryError) if fails else nullcontext():
        fitted("quantised", 2, 3)
    assert len(made) == 1
    assert not any(array.any() for array in made[0])


def test_little_work_is_not_cut() -> None:
    def inside() -> tuple[int, int, int, int]:
        return n_blocks(1000, 10, 4), n_blocks(1_000_000, 10, 4), n_blocks(1_000_000, 10, 1), n_blocks(0, 10, 4)

    assert inside() == (4, 4, 1, 1)
    assert most_alone(10, 4) == 1
    found: list[Any] = []
    thread = threading.Thread(target=lambda: found.append((inside(), most_alone(10, 4) > 1000)))
    thread.start()
    thread.join()
    assert found == [((1, 4, 1, 1), True)]


@pytest.mark.parametrize("n_rows", [1, 2, 7, 100])
@pytest.mark.parametrize("n", [1, 2, 3, 7])
def test_blocks_are_neighbours_and_about_equally_large(n_rows: int, n: int) -> None:
    bounds = cut(n_rows, n)
    sizes = np.diff(bounds)
    assert (bounds[0], bounds[-1], len(bounds)) == (0, n_rows, n + 1)
    assert sizes.max() - sizes.min() <= 1
