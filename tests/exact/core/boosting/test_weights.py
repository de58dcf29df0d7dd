"""Weights of samples in boosting: what one is worth. Histories of weighted samples are in `tests/histories`."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from oubli.core import (
    IncrementalBoostingClassifier,
    IncrementalBoostingRegressor,
    OnlineBoostingClassifier,
    OnlineBoostingRegressor,
)

TASKS = ("two classes", "four classes", "numbers")
WEIGHTS = (1.0, 1.0, 2.0, 0.3, 7.0, 1 / 256, 900.5)
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
