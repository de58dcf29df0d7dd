"""Weights of samples in boosting: any history ends in a fresh fit, and a whole weight is so many equal samples."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from oubli.core import (
    IncrementalBoostingClassifier,
    IncrementalBoostingRegressor,
    OnlineBoostingClassifier,
    OnlineBoostingRegressor,
)
from oubli.core.boosting.quantised.split import parting_few
from oubli.core.boosting.rows import without_grain

TASKS = ("two classes", "four classes", "numbers")
WEIGHTS = (1.0, 1.0, 2.0, 0.3, 7.0, 1 / 256, 900.5)
EXACT: dict[str, dict[str, Any]] = {
    "grids": {},
    "statistics": {"category_statistics": 4},
    "stopping": {"early_stopping": 2, "validation_fraction": 0.3},
    "threads": {"n_jobs": 2},
    "presorted": {"quantization": None},
    "presorted and stopping": {"quantization": None, "early_stopping": 2, "validation_fraction": 0.3},
}
N_ROWS = 160


def row(i: int) -> list[Any]:
    return [float(i * 37 % 101), "abcdefgh"[i * i % 8], float(i % 3), None if i % 11 == 0 else i / 7]


def label(task: str, i: int) -> Any:
    if task == "numbers":
        return float(i * 53 % 97) + (40.0 if i % 3 else 0.0)
    return "wxyz"[(i * 31 % 17 + i % 5) % (2 if task == "two classes" else 4)]


def new(task: str, **parameters: Any) -> Any:
    kind = IncrementalBoostingRegressor if task == "numbers" else IncrementalBoostingClassifier
    return kind(n_estimators=6, max_depth=3, random_state=3, min_child_weight=0.1, **parameters)


def fitted(model: Any, task: str, held: dict[str, tuple[int, float]]) -> Any:
    rows, labels = [row(i) for i, _ in held.values()], [label(task, i) for i, _ in held.values()]
    return model.fit(rows, labels, ids=list(held), sample_weight=[weight for _, weight in held.values()])


def play(model: Any, task: str, draw: random.Random, *, first: float | None) -> Iterator[dict[str, tuple[int, float]]]:
    """Fit samples, all of one weight unless that is None, then change some; yields those held after each change."""
    held = {f"c{i}": (i, first or draw.choice(WEIGHTS)) for i in range(N_ROWS)}
    fitted(model, task, held)
    for step in range(18):
        change, (i, weight) = draw.choice(("add", "delete", "replace")), (draw.randrange(400), draw.choice(WEIGHTS))
        some = draw.sample(sorted(held), 3)
        if change == "add":
            model.add([row(i), row(i + 1)], [label(task, i), label(task, i + 1)], ids=[f"n{step}", f"o{step}"],
                      sample_weight=[weight, 1.0])  # fmt: skip
            held |= {f"n{step}": (i, weight), f"o{step}": (i + 1, 1.0)}
        elif change == "delete":
            model.delete(some)
            held = {name: one for name, one in held.items() if name not in some}
        else:
            model.replace(some[0], row(i), label(task, i), sample_weight=weight)
            held[some[0]] = i, weight
        yield held
    others = [name for name, (_, weight) in held.items() if weight != 1.0]
    model.delete(others)
    yield {name: one for name, one in held.items() if name not in others}


@contextmanager
def settings_of(name: str) -> Iterator[None]:
    with parting_few() if name == "grids" else without_grain() if name == "threads" else nullcontext():
        yield


@pytest.mark.parametrize("task", TASKS)
@pytest.mark.parametrize("name", EXACT)
def test_a_history_of_weighted_samples_ends_in_a_fresh_fit(name: str, task: str) -> None:
    with settings_of(name):
        for seed, first in enumerate((1.0, None)):
            model = new(task, **EXACT[name])
            for step, held in enumerate(play(model, task, random.Random(seed), first=first)):
                if step % 6 == 5 or step == 18:
                    assert model.digest() == fitted(new(task, **EXACT[name]), task, held).digest()
                    model.check_invariants()
            assert model.verify().ok
            rows, labels = [row(i) for i, _ in held.values()], [label(task, i) for i, _ in held.values()]
            without = new(task, **EXACT[name]).fit(rows, labels, ids=list(held))
            assert model.digest() == without.digest()  # all that are left have weight 1


@pytest.mark.parametrize("task", TASKS)
def test_a_sample_of_weight_two_is_two_samples(task: str) -> None:
    weights = [1 + i * 7 % 4 for i in range(N_ROWS)]
    held = {f"c{i}": (i, float(weight)) for i, weight in enumerate(weights)}
    repeated = {f"c{i}-{k}": (i, 1.0) for i, weight in enumerate(weights) for k in range(weight)}
    one, other = (fitted(new(task, quantization=None), task, some) for some in (held, repeated))
    assert one.digest() == other.digest()


@pytest.mark.parametrize("task", TASKS)
def test_where_boosting_on_grids_begins_and_what_the_roots_hold(task: str) -> None:
    held = {f"c{i}": (i, WEIGHTS[i % len(WEIGHTS)]) for i in range(N_ROWS)}
    engine = fitted(new(task), task, held).engine_
    units = [round(weight * 256) for _, weight in held.values()]
    labels = [label(task, i) for i, _ in held.values()]
    if task == "numbers":
        assert engine.sums.n == sum(units)
        step = 2.0 ** (engine.sums.exponent - 38)
        fixed = [round(value / step) for value in labels]
        assert engine.sums.first == sum(x * u for x, u in zip(fixed, units, strict=True))
        assert engine.sums.second == sum(x * x * u for x, u in zip(fixed, units, strict=True))
        roots = engine.forest.nodes["total"][:, 0] & (2**28 - 1)
        assert np.allclose(roots / 16, sum(units) / 256, rtol=0, atol=N_ROWS / 16)
    else:
        of_class = [sum(u for x, u in zip(labels, units, strict=True) if x == one) for one in sorted(set(labels))]
        assert engine.class_counts.tolist() == of_class


def answers(model: Any, task: str) -> Any:
    """What a model makes of two rows; samples like the first are of a class, or a number, with weight 9 to 1."""
    rows, labels = [[0.0]] * 40 + [[1.0]] * 40, [0, 1] * 20 + [1, 0] * 20
    weights = [9.0 if i % 2 == 0 else 1.0 for i in range(80)]
    model.fit(rows, [4.0 * x for x in labels] if task == "numbers" else labels, sample_weight=weights)
    found = model.predict([[0.0], [1.0]]) if task == "numbers" else model.predict_proba([[0.0], [1.0]])[:, 1]
    return np.asarray(found) / (4.0 if task == "numbers" else 1.0)


@pytest.mark.parametrize("task", ["two classes", "numbers"])
@pytest.mark.parametrize("name", ["grids", "presorted", "online"])
def test_predictions_are_those_of_weighted_means(name: str, task: str) -> None:
    parameters = {"n_estimators": 200, "learning_rate": 0.1, "random_state": 1, "min_child_weight": 0.1}
    if name == "online":
        model: Any = (OnlineBoostingRegressor if task == "numbers" else OnlineBoostingClassifier)(**parameters)
    else:
        kind = IncrementalBoostingRegressor if task == "numbers" else IncrementalBoostingClassifier
        model = kind(**parameters, **({"quantization": None} if name == "presorted" else {}))
    assert np.allclose(answers(model, task), [0.1, 0.9], atol=0.04)


@pytest.mark.parametrize("task", TASKS)
def test_a_history_of_weighted_samples_online(task: str, tmp_path: Path) -> None:
    kind = OnlineBoostingRegressor if task == "numbers" else OnlineBoostingClassifier
    for seed, first in enumerate((1.0, None)):
        model: Any = kind(n_estimators=4, max_leaf_nodes=6, random_state=2, min_child_weight=0.1)
        for step, _ in enumerate(play(model, task, random.Random(seed), first=first)):
            if step % 6 == 0:
                model.check_invariants()
                assert model.verify().ok
                model.save(tmp_path / "model")
                assert kind.load(tmp_path / "model").digest() == model.digest()
