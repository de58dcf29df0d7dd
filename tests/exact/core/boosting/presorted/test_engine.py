"""Boosting on presorted columns: after any history it is a fresh fit, and every split is the best one."""

from __future__ import annotations

from fractions import Fraction
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from oubli.core.boosting.presorted import state as presorted_table
from oubli.core.boosting.presorted.engine import LastUpdate
from oubli.core.boosting.state import LEAF
from tests.exact.core.boosting.presorted.problems import (
    are_same,
    numeric_pool,
    random_pool,
    settings_of,
)


def random_settings(rng: np.random.Generator) -> Any:
    return settings_of(
        n_estimators=int(rng.integers(1, 6)),
        learning_rate=float(rng.choice([0.1, 0.3, 1.0])),
        max_depth=int(rng.choice([1, 2, 3, 5, 8])),
        l2_regularization=float(rng.choice([0.0, 0.5, 1.0])),
        min_child_weight=float(rng.choice([0.0, 0.2, 1.0, 3.0])),
        early_stopping=[None, None, None, 1, 2][rng.integers(5)],
        validation_fraction=float(rng.choice([0.1, 0.5])),
        random_state=int(rng.integers(0, 2**31)),
    )


@pytest.mark.parametrize("seed", range(12))
def test_narrow_and_wide_columns_find_the_same_splits(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(seed)
    pool = random_pool(rng, 120, [0, 2, 4][seed % 3])
    settings = random_settings(rng)
    slots = np.arange(120)
    narrow = pool.grown(settings, slots)
    monkeypatch.setattr(presorted_table, "MOST_BINS", 0)
    assert are_same(narrow, pool.grown(settings, slots))


# -- the best split ---------------------------------------------------------------------------------


def best_by_hand(X: Any, residuals: list[Fraction]) -> tuple[Fraction, int, float] | None:
    """The least squares over all columns and thresholds: gain, column, threshold; nothing is sorted or summed up."""
    n = len(residuals)
    best = None
    for column in range(X.shape[1]):
        values = sorted(set(X[:, column].tolist()))
        for low, high in pairwise(values):
            left = [r for r, x in zip(residuals, X[:, column], strict=True) if x <= low]
            right = [r for r, x in zip(residuals, X[:, column], strict=True) if x > low]
            gain = sum(left) ** 2 / len(left) + sum(right) ** 2 / len(right) - sum(residuals) ** 2 / Fraction(n)
            if gain > 0 and (best is None or gain > best[0]):
                best = (gain, column, (low + high) / 2)
    return best


@pytest.mark.parametrize("seed", range(15))
def test_the_first_tree_has_the_least_squares_everywhere(seed: int) -> None:
    """Small whole numbers: fixed point and fractions are both exact, but for the mean."""
    rng = np.random.default_rng(seed)
    n = int(rng.integers(2, 40))
    X = rng.integers(0, 8, (n, 3)).astype(np.float64)
    y = rng.integers(-8, 9, n).astype(np.float64)
    y[0] -= y.sum() - n * round(y.sum() / n)  # the mean is a whole number
    trees = numeric_pool(X, y).grown(settings_of(n_estimators=1, max_depth=3), np.arange(n)).trees
    mean = Fraction(int(y.sum()), n)
    waiting = [(int(trees.roots[0]), np.arange(n), 0)]
    while waiting:
        node, members, depth = waiting.pop()
        record = trees.nodes[node]
        best = best_by_hand(X[members], [Fraction(int(v)) - mean for v in y[members]]) if depth < 3 else None
        if best is None:
            assert record["feature"] == LEAF
            step = 0.3 * (y[members].mean() - float(mean))
            assert record["value"] * trees.unit == pytest.approx(step, abs=1e-9)
            continue
        assert (record["feature"], record["threshold"]) == best[1:]
        goes_left = X[members, record["feature"]] <= record["threshold"]
        waiting.append((int(record["left"]), members[goes_left], depth + 1))
        waiting.append((int(record["left"]) + 1, members[~goes_left], depth + 1))


# -- odd cases --------------------------------------------------------------------------------------


def test_a_pure_node_is_not_split_by_rounding() -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(1000, 3))
    y = (X[:, 0] > 0) * 0.1 + 0.1
    trees = numeric_pool(X, y).grown(settings_of(n_estimators=1, max_depth=4), np.arange(1000)).trees
    assert (trees.nodes["feature"] >= 0).sum() == 1


# -- what an update says ----------------------------------------------------------------------------


def test_an_update_counts_what_it_keeps() -> None:
    X = np.zeros((8, 2))
    X[:, 0], X[:, 1] = np.arange(8) // 4, np.arange(8) % 2
    y = 10.0 * X[:, 0] + X[:, 1]
    more = np.vstack([X, [[0.0, 1.0]], np.tile([[0.0, 1.0], [1.0, 0.0]], (60, 1))])
    pool = numeric_pool(more, np.concatenate([y, [1.0], np.tile([50.0, 0.0], 60)]))
    settings = settings_of(n_estimators=1, max_depth=2, learning_rate=1.0)
    engine = pool.grown(settings, np.arange(8))
    assert engine.last_update == LastUpdate()
    assert engine.trees.nodes["feature"].tolist() == [0, 1, 1, LEAF, LEAF, LEAF, LEAF]
    engine.add(pool.problem(np.arange(9)), np.array([8]))
    assert engine.last_update == LastUpdate(nodes_kept=3, nodes_changed=0, first_tree_changed=-1)
    engine.add(pool.problem(np.arange(129)), np.arange(9, 129))
    assert engine.trees.nodes["feature"][0] == 1
    assert engine.last_update == LastUpdate(nodes_kept=0, nodes_changed=1, first_tree_changed=0)


def test_progress_is_told_after_each_tree() -> None:
    pool = numeric_pool([[0.0], [1.0], [2.0]], [0, 1, 2], n_codes=3)
    told: list[tuple[int, int]] = []
    engine = pool.engine(settings_of(n_estimators=2))
    engine.fit(pool.problem(np.arange(3)), np.arange(3), lambda done, total: told.append((done, total)))
    assert told == [(i, 6) for i in range(1, 7)]
    assert are_same(engine, pool.grown(settings_of(n_estimators=2), np.arange(3)))


@pytest.mark.parametrize("early_stopping", [None, 3])
def test_when_most_samples_come_or_go_it_begins_from_nothing(early_stopping: int | None) -> None:
    rng = np.random.default_rng(1)
    pool = numeric_pool(rng.normal(size=(900, 3)).round(1), rng.normal(size=900).round(2))
    settings = settings_of(n_estimators=4, early_stopping=early_stopping, validation_fraction=0.25)
    few, all_of_them = np.arange(300), np.arange(900)
    engine = pool.grown(settings, few)
    engine.add(pool.problem(all_of_them), all_of_them[300:])
    assert engine.last_update == LastUpdate()
    assert are_same(engine, pool.grown(settings, all_of_them))
    engine.check_invariants(pool.problem(all_of_them), all_of_them)
    engine.delete(pool.problem(all_of_them), all_of_them[300:])
    assert engine.last_update == LastUpdate()
    assert are_same(engine, pool.grown(settings, few))
    engine.check_invariants(pool.problem(few), few)


# -- early stopping ---------------------------------------------------------------------------------


def test_noise_ends_training() -> None:
    rng = np.random.default_rng(0)
    pool = numeric_pool(rng.normal(size=(200, 3)), rng.integers(0, 2, 200), n_codes=2)
    settings = settings_of(n_estimators=50, learning_rate=1.0, early_stopping=3, validation_fraction=0.5)
    engine = pool.grown(settings, np.arange(200))
    assert 0 < engine.n_trees < 20
    fewer = settings_of(n_estimators=engine.n_trees, learning_rate=1.0, early_stopping=50, validation_fraction=0.5)
    assert are_same(engine, pool.grown(fewer, np.arange(200)))
