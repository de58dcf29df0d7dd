"""A batch is answered as the oracle answers its rows, one by one: to the bit, whatever the pieces it is cut into."""

import random
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

from oubli.core.forest import engine, predict
from tests.histories.kinds import BY_NAME
from tests.histories.player import Player
from tests.histories.worlds import World
from tests.oracles import forest as oracle
from tests.oracles.common import Column

NUMERIC, WIDE, CATEGORY, BOOLEAN = Column(), Column("numeric", "float64"), Column("categorical"), Column("boolean")
PARAMETERS = {
    "occurrence": 1.0, "max_depth": None, "min_samples_split": 2, "n_thresholds": 3, "lazy": True, "random_state": 0,
}  # fmt: skip
Sample = tuple[tuple[Any, ...], Any]
N_SAMPLES, N_QUERIES = 120, 700
WORDS = [f"word {i}" for i in range(30)]


def value_of(column: Column, rng: random.Random, words: Sequence[str]) -> Any:
    """A value, now and then a missing one; numbers are coarse, so that many rows end where a threshold is."""
    if rng.random() < 0.1:
        return None
    if column.type == "categorical":
        return rng.choice(words)
    return rng.random() < 0.5 if column.type == "boolean" else rng.randrange(-8, 8) / 4


def start(columns: Sequence[Column], samples: Sequence[Sample], task: str = "classification", **changed: Any) -> Player:
    """A player whose model was fitted to these samples."""
    criterion, label_type = ("gini", "integer") if task == "classification" else ("squared_error", "number")
    values = {**PARAMETERS, "criterion": criterion, **changed}
    player = Player(BY_NAME["forest"], World(tuple(columns), task, label_type, values, tuple(samples), ()))
    player.hold({f"s{i}": sample for i, sample in enumerate(samples)})
    return player


def samples_of(columns: Sequence[Column], label: Callable[[random.Random], Any], seed: int) -> list[Sample]:
    rng = random.Random(seed)
    return [(tuple(value_of(c, rng, WORDS[:20]) for c in columns), label(rng)) for _ in range(N_SAMPLES)]


def answers(player: Player, X: Any) -> Any:
    """What the model says of rows: probabilities or values."""
    result = player.model.query(X)
    return (result.labels if result.probabilities is None else result.probabilities).tolist()


MIXED, NUMBERS, WIDER, WORDS_ALONE = [NUMERIC, CATEGORY, BOOLEAN, CATEGORY], [NUMERIC] * 3, [WIDE, CATEGORY], [CATEGORY]


@pytest.mark.parametrize(("n_classes", "columns"), [
    *((n_classes, columns) for n_classes in (2, 5, None) for columns in (MIXED, NUMBERS, WORDS_ALONE)),
    *((2, WIDER), (5, WIDER), pytest.param(None, WIDER, marks=pytest.mark.long)),
])  # fmt: skip
def test_batches_are_the_oracles(columns: list[Column], n_classes: int | None, monkeypatch: pytest.MonkeyPatch) -> None:
    task = "regression" if n_classes is None else "classification"
    label = (lambda rng: rng.randrange(100) / 4) if n_classes is None else (lambda rng: rng.randrange(n_classes))
    samples = samples_of(columns, label, seed=n_classes or 0)
    player = start(
        columns, samples, task=task, n_estimators=4, occurrence=0.7, max_features=len(columns), random_state=3
    )
    rng = random.Random(1)
    queries = [[value_of(c, rng, WORDS) for c in columns] for _ in range(N_QUERIES)]  # some categories no sample has
    forest = player.beside.expected()
    if task == "regression":
        expected: Any = oracle.predict(forest, queries)
    else:
        expected = oracle.predict_proba(forest, queries)
    assert answers(player, queries) == expected
    for many, at_a_time in ((1, 64), (1, 65_536), (10**9, 64)):
        monkeypatch.setattr(engine, "MANY_ROWS", many)
        monkeypatch.setattr(predict, "ROWS_AT_A_TIME", at_a_time)
        for n in (1, 2, 65, N_QUERIES):
            assert answers(player, queries[:n]) == expected[:n]


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_trees_without_samples_and_deep_ones(dtype: type[np.floating[Any]]) -> None:
    """A chain of nodes that each take one sample off, beside trees that no one is in."""
    rng = np.random.default_rng(0)
    X = np.sort(rng.normal(size=(300, 1)), axis=0).astype(dtype)
    samples: list[Sample] = [((float(X[i, 0]),), i % 2) for i in range(60)]
    column = WIDE if dtype is np.float64 else NUMERIC
    for n_trees in (1, 150):  # with so many trees and one sample in one of them each, some are empty
        player = start([column], samples, n_estimators=n_trees, occurrence=1e-6, max_features=1, n_thresholds=1)
        together = answers(player, X)
        assert together == [answers(player, X[i : i + 1])[0] for i in range(len(X))]
        assert together == oracle.predict_proba(player.beside.expected(), X.tolist())
