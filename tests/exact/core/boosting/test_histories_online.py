"""Online boosting: after every step of any history all that is counted is right, and nothing else decides the trees."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from numba import config

from tests.exact.core.boosting.player import OnlinePlayer, play, play_all
from tests.exact.core.boosting.worlds import OPERATIONS, RARE, histories, random_history
from tests.strategies import History

KIND = "online"
N = 2 if config.DISABLE_JIT else 25
OUTCOMES = set() if config.DISABLE_JIT else {"splits kept", "subtrees retrained", "all grown anew"}


@pytest.mark.parametrize("part", range(2))
def test_random_histories(part: int) -> None:
    numbers = range(N * part, N * part + N)
    played = (random_history(KIND, number, max_operations=12, max_rows=60) for number in numbers)
    play_all(OnlinePlayer, played, OUTCOMES)


@settings(max_examples=20)
@given(histories(KIND))
def test_histories_that_shrink(history: History) -> None:
    """Fewer and simpler than the random ones; what fails here comes as its smallest example."""
    play(OnlinePlayer, history)


def test_every_operation_is_known() -> None:
    """A history names operations by text."""
    for operation in (*OPERATIONS, *RARE):
        assert callable(getattr(OnlinePlayer, operation.replace(" ", "_")))


def everything(engine: Any) -> list[bytes]:
    """All sums and values of the trees."""
    forest = engine.forest
    return [array.tobytes() for array in (forest.states, forest.stats, forest.values)]


@pytest.mark.parametrize("task", ["classification", "regression"])
def test_a_sample_that_comes_and_goes_leaves_all_sums_as_they_were(task: str) -> None:
    """As long as no split lost its place on the way: what is taken out is exactly what was put in."""
    rng = np.random.default_rng(0)
    X = np.column_stack([rng.integers(0, 30, (240, 2)).astype(float), rng.normal(size=240)])
    X[rng.random(X.shape) < 0.05] = np.nan
    y = np.nan_to_num(X[:, 0]) > 12 if task == "classification" else np.nan_to_num(X[:, 0]) + rng.normal(size=240)
    model: Any = OnlinePlayer.estimators[task](4, max_leaf_nodes=6, robustness=0.3, random_state=1).fit(
        X[:200], y[:200]
    )
    n_restored = 0
    for row, label in zip(X[200:], y[200:], strict=True):
        before, digest = everything(model.engine_), model.digest()
        other = model.copy()
        names = other.add([row.tolist()], [label])
        changed = other.digest() != digest
        updates = [other.engine_.last_update]
        other.delete(names)
        updates.append(other.engine_.last_update)
        if not any(update.nodes_retrained or update.grown for update in updates):
            assert changed
            assert everything(other.engine_) == before
            assert other.digest() == digest
            n_restored += 1
    assert n_restored > 20
