"""Samples that are gathered once for a whole path, and cells of grids that are marked because few have samples."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest
from numba import config

from oubli.core import DynamicForestClassifier, DynamicForestRegressor
from oubli.core.forest.workspace import WORKED
from tests.exact.core.forest.pitfalls import FOREST
from tests.histories.kinds import MANY
from tests.histories.player import play
from tests.histories.worlds import History, World
from tests.oracles.common import Column

TASKS = ("two classes", "classes", "regression")
N_SAMPLES = 250 if config.DISABLE_JIT else 2500


def table(task: str, seed: int, n_bits: int = 30) -> tuple[np.ndarray, Any]:
    rng = np.random.default_rng(seed)
    X = np.hstack([rng.normal(size=(N_SAMPLES, 5)), rng.random((N_SAMPLES, n_bits)) < rng.random(n_bits)])
    score = X @ np.linspace(-1, 1, X.shape[1]) + rng.normal(size=N_SAMPLES)
    edges = [0.0] if task == "two classes" else [-1.0, 0.0, 1.0]
    return X.astype(np.float32), score if task == "regression" else np.digitize(score, edges)


def model_of(task: str, X: np.ndarray, y: Any, **parameters: Any) -> Any:
    kind = DynamicForestRegressor if task == "regression" else DynamicForestClassifier
    return kind(**{"min_samples_split": 10, "lazy": True, "random_state": 1, **parameters}).fit(X, y)


def path_of(model: Any, row: np.ndarray) -> list[Any]:
    """The inner nodes on the way of a row in the first tree: their numbers, splits and sizes."""
    nodes, node, found = model.engine_.trees.nodes, 0, []
    while nodes[node]["child"] >= 0:
        one = nodes[node]
        found.append((node, *(one[name].item() for name in ("attribute", "threshold", "kind")), int(one["n_samples"])))
        node = int(one["child"]) + int(row[one["attribute"]] > one["threshold"])
    return found


@pytest.mark.parametrize("task", TASKS)
@pytest.mark.parametrize("asks", [False, True])
def test_the_samples_of_a_path_are_gathered_once(task: str, asks: bool) -> None:
    """Where splits stand each node's samples are counted, and only the root's are collected from the leaves."""
    X, y = table(task, 2)
    with FOREST.tuned(MANY):
        model = model_of(task, X, y, n_estimators=1, occurrence=1.0)
    work = model.engine_.scratch.work
    stood = 0
    for sample in range(60):
        before = path_of(model, X[sample])
        model.delete(str(sample))
        work[WORKED] = 0
        if asks:
            model.query(X[sample : sample + 1])
        else:
            model.resolve()
        after = path_of(model, X[sample])
        if [split[:-1] for split in before] == [split[:-1] for split in after]:
            assert [n for *_, n in before] == [n + 1 for *_, n in after]
            assert work[WORKED] == after[0][-1] + sum(n for *_, n in after)
            stood += 1
    assert stood >= 5
    assert model.verify().ok


@pytest.mark.parametrize("task", TASKS)
def test_forests_without_counters_are_those_with_them(task: str) -> None:
    """Samples come and go with queries between; subtrees are grown anew below nodes whose samples were at hand."""
    X, y = table(task, 3)
    n = N_SAMPLES - N_SAMPLES // 5
    made = []
    for counters_from in (2, MANY):
        rng = random.Random(4)
        with FOREST.tuned(counters_from):
            model = model_of(task, X[:n], y[:n], n_estimators=4, occurrence=0.5)
        held = [str(i) for i in range(n)]
        for step in range(40):
            for _ in range(rng.choice([1, 1, 4])):
                model.delete(held.pop(rng.randrange(len(held))))
            new = n + step
            (name,) = model.add(X[new : new + 1], y[new : new + 1], ids=[f"new {step}"])
            held.append(name)
            model.query(X[rng.randrange(n) :][:1])
            if step % 4 == 0:
                model.resolve()
        model.resolve()
        model.check_invariants()
        made.append(model)
    assert made[0].digest() == made[1].digest()
    assert made[1].verify().ok


@pytest.mark.parametrize("n_thresholds", [4, 51, 52])
@pytest.mark.parametrize("task", ["two classes", "classes", "regression"])
def test_grids_of_many_cells(n_thresholds: int, task: str) -> None:
    """Compared with the oracle, which knows of no marks: a word has room for so many cells, or it has not."""
    for seed in range(1 if config.DISABLE_JIT else 2):
        rng = random.Random(10 * n_thresholds + seed)
        spread = rng.choice([2, 9, 1000])
        rows = [
            tuple(None if rng.random() < 0.03 * seed else rng.randrange(-spread, spread) / 8 for _ in range(3))
            for _ in range(70)
        ]
        labels = {"two classes": [0, 1], "classes": ["a", "b", "c"], "regression": [-2.5, 0.0, 1.25, 7.0]}[task]
        world = World(
            columns=(Column("numeric", "float32"),) * 3,
            task="regression" if task == "regression" else "classification",
            label_type={"two classes": "integer", "classes": "string", "regression": "number"}[task],
            parameters={
                "n_estimators": 3,
                "occurrence": 0.7,
                "max_depth": None,
                "min_samples_split": 2,
                "n_thresholds": n_thresholds,
                "max_features": 2,
                "criterion": "squared_error" if task == "regression" else rng.choice(["gini", "entropy"]),
                "lazy": True,
                "random_state": seed,
            },
            rows=tuple((row, rng.choice(labels)) for row in rows),
            queries=tuple(rows[:8]),
            tuning={"counters_from": [2, MANY][seed]},
        )
        operations = [("fit", 50)] + [
            (rng.choice(("add", "delete", "predict", "resolve", "predict frozen", "verify")), rng.randint(1, 4))
            for _ in range(8)
        ]
        play(FOREST, History(world, tuple(operations), seed))
