"""The engine of online boosting: every count after every step, and what may not matter."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numba import config

from oubli.core import OnlineBoostingRegressor
from oubli.core.samples.arrays import Problem
from tests.exact.core.boosting.online.direct import (
    digest,
    goes_right,
    grown,
    make_engine,
    make_problem,
    sums_by_hand,
    with_classes,
)
from tests.oracles.boosting.leaf_scores import leaf_score_error

N = 40 if config.DISABLE_JIT else 120
MANY = 120  # where there is something to be learned

KINDS: list[dict[str, Any]] = [{"n_classes": 2}, {"n_classes": 4}, {"n_classes": 0}]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("robustness", [0.0, 0.1, 1.0])
def test_every_sum_is_right_after_every_step(kind: dict[str, Any], robustness: float) -> None:
    problem = make_problem(1, N, **kind)
    rng = np.random.default_rng(2)
    slots = rng.permutation(N)
    engine = grown(problem, slots[: N // 2], robustness=robustness)
    held, others = set(slots[: N // 2].tolist()), set(slots[N // 2 :].tolist())
    retrained = 0
    for step in range(8):
        source, target = (held, others) if step % 2 else (others, held)
        batch = rng.choice(sorted(source), [3, 5, 12, 2][step % 4], replace=False)
        source.difference_update(batch.tolist())
        target.update(batch.tolist())
        (engine.delete if step % 2 else engine.add)(problem, batch)
        retrained += engine.last_update.nodes_retrained
        sums_by_hand(engine, problem)
        engine.check_invariants(problem, np.array(sorted(held)))
    assert (retrained == 0) == (robustness == 1.0)


def test_sigma_0_keeps_only_the_best_split_and_1_all() -> None:
    problem = make_problem(7, N)
    strict, lax = (grown(problem, np.arange(N - N // 8), robustness=sigma) for sigma in (0.0, 1.0))
    structure = lax.forest.nodes["feature"].copy()
    for engine in (strict, lax):
        engine.add(problem, np.arange(N - N // 8, N))
    assert strict.last_update.nodes_retrained > 0 == lax.last_update.nodes_retrained
    assert strict.last_update.samples_retrained >= strict.last_update.nodes_retrained
    assert np.array_equal(lax.forest.nodes["feature"], structure)


def test_the_model_is_grown_anew_when_the_samples_are_more_than_twice_as_many() -> None:
    problem = make_problem(8, N)
    engine = grown(problem, np.arange(N // 4))
    for slot in range(N // 4, N // 2):
        engine.add(problem, np.array([slot]))
        assert not engine.last_update.grown
    engine.add(problem, np.array([N // 2]))
    assert engine.last_update.grown
    assert digest(engine) == digest(grown(problem, np.arange(N // 2 + 1)))


@pytest.mark.parametrize("kind", KINDS)
def test_the_model_is_grown_anew_when_more_than_a_fifth_of_it_comes_or_goes(kind: dict[str, Any]) -> None:
    problem = make_problem(8, 72, **kind)

    def first(n: int) -> Problem:
        return with_classes(problem, np.arange(n), len(problem.ranks))

    engine = grown(first(48), np.arange(48))
    for start, end, is_grown in ((48, 60, False), (60, 72, False)):
        engine.add(first(end), np.arange(start, end))
        assert engine.last_update.grown == is_grown
    engine.delete(first(72), np.arange(60, 72))
    assert not engine.last_update.grown
    engine.delete(first(60), np.arange(48, 60))
    assert engine.last_update.grown
    assert digest(engine) == digest(grown(first(48), np.arange(48)))
    engine.add(first(61), np.arange(48, 61))
    assert engine.last_update.grown
    assert digest(engine) == digest(grown(first(61), np.arange(61)))


def test_so_is_a_large_model_when_many_samples_come_or_go() -> None:
    n = 600
    problem = make_problem(8, n)
    engine = grown(problem)
    engine.delete(problem, np.arange(500, n))
    assert not engine.last_update.grown
    engine.add(problem, np.arange(500, n))
    assert not engine.last_update.grown
    engine.delete(problem, np.arange(499, n))
    assert engine.last_update.grown
    assert digest(engine) == digest(grown(problem, np.arange(499)))


def test_a_new_class_is_learned_without_growing_the_others_anew() -> None:
    problem = make_problem(12, MANY, n_classes=4)
    new = np.flatnonzero(problem.data.targets == 1)
    old, new = np.setdiff1d(np.arange(MANY), new), new[: MANY // 8]
    engine = grown(with_classes(problem, old, 4), old, robustness=1.0, n_estimators=20)
    splits = engine.forest.nodes["threshold"].reshape(20, 3, -1).copy()
    engine.add(problem, new)
    assert not engine.last_update.grown
    after = engine.forest.nodes["threshold"].reshape(20, 4, -1)
    assert np.array_equal(after[:, [0, 2, 3]], splits)
    right = [_score_of(engine, problem, slot).argmax() == 1 for slot in new.tolist()]
    assert np.mean(right) > 0.5


def _score_of(engine: Any, problem: Problem, slot: int) -> np.ndarray:
    trees = engine.trees
    scores = np.zeros(trees.n_groups)
    for number, root in enumerate(trees.roots.tolist()):
        row = root
        while trees.nodes["feature"][row] >= 0:
            row = int(trees.nodes["left"][row]) + int(goes_right(trees.nodes[row], problem.data, slot))
        scores[number % trees.n_groups] += trees.nodes["value"][row]
    return scores


def test_new_categories_take_spare_bins_and_can_be_split_off() -> None:
    problem = make_problem(13, N, n_categories=4)
    data = problem.data
    cells = data.cells.copy()
    late = np.arange(N // 2, N)
    cells[late, -1] = 4 + np.arange(len(late)) % 4
    hashes = np.concatenate([data.category_hashes, np.arange(2, 10, 2, dtype=np.uint64)])
    problem = problem._replace(data=data._replace(cells=cells, category_hashes=hashes))
    engine = grown(problem, np.arange(N // 2), robustness=0.0, split_sampling=1.0)
    feature = cells.shape[1] - 1
    for slot in late.tolist():
        engine.add(problem, np.array([slot]))
    assert not engine.last_update.grown
    # Two spare bins for four new categories: the others are held together.
    assert engine.bins.n_taken[feature] == engine.bins.n_outer[feature] == 2
    width = int(engine.bins.first[feature + 1] - engine.bins.first[feature])
    assert set(engine.codes[late, feature].tolist()) == {width - 3, width - 2, width - 1}
    sums_by_hand(engine, problem)
    engine.check_invariants(problem, np.arange(N))


def test_values_beyond_the_range_get_bins_of_their_own() -> None:
    problem = make_problem(14, MANY, n_values=None, missing=0.0)
    cells = problem.data.cells.copy()
    late = np.arange(MANY // 2, MANY)
    cells[late, 0] = np.where(problem.data.targets[late] == 0, 100.0, 1000.0)
    problem = problem._replace(data=problem.data._replace(cells=cells))
    engine = grown(problem, np.arange(MANY // 2), robustness=0.0)
    high = float(cells[: MANY // 2, 0].max())
    for slot in late.tolist():
        engine.add(problem, np.array([slot]))
    assert not engine.last_update.grown
    is_split = engine.forest.nodes["feature"] == 0
    assert (engine.forest.nodes["threshold"][is_split] >= high).any()
    engine.check_invariants(problem, np.arange(MANY))


def test_a_target_out_of_reach_makes_everything_grow_anew() -> None:
    problem = make_problem(15, N, n_classes=0)
    y = problem.y.copy()
    y[N - 1] = 1e6
    problem = problem._replace(y=y)
    engine = grown(problem, np.arange(N - 2))
    engine.add(problem, np.array([N - 2]))
    assert not engine.last_update.grown
    engine.add(problem, np.array([N - 1]))
    assert engine.last_update.grown
    assert digest(engine) == digest(grown(problem))


def test_what_a_recount_does_not_confirm_is_named() -> None:
    problem = make_problem(19, N)
    engine = grown(problem)
    everything = np.arange(N)
    assert engine.find_differences(problem, everything) == []
    assert engine.find_differences(problem, everything[1:]) == ["the trees do not hold the samples"]
    stats, sums = int(engine.forest.stats[2, 0, 0]), int(engine.forest.states["sums"][3 * engine.forest.n_places])
    engine.forest.stats[2, 0, 0] += 1
    engine.forest.states["sums"][3 * engine.forest.n_places] += 1
    assert engine.find_differences(problem, everything) == [
        f"stats, tree 2, place 0: {stats + 1} kept, {stats} recounted; wrong places: 1",
        f"sums, tree 3, place 0: {sums + 1} kept, {sums} recounted; wrong places: 1",
    ]
    with pytest.raises(AssertionError, match="stats, tree 2"):
        engine.check_invariants(problem, everything)


def test_progress_is_told_after_each_tree() -> None:
    problem = make_problem(20, 40, n_classes=3)
    told: list[tuple[int, int]] = []
    make_engine(problem).fit(problem, np.arange(40), lambda done, total: told.append((done, total)))
    assert told == [(i, 18) for i in range(1, 19)]


def test_importances_and_bytes() -> None:
    problem = make_problem(21, N)
    engine = grown(problem)
    gains = engine.gains()
    assert gains.shape == (5,)
    assert (gains >= 0).all()
    assert gains.sum() > 0
    unused = np.setdiff1d(np.arange(5), np.unique(engine.forest.nodes["feature"]))
    assert not gains[unused].any()
    assert engine.nbytes > sum(array.nbytes for array in engine.forest)


def test_leaves_are_behind_only_after_updates() -> None:
    problem = make_problem(22, N)
    engine = grown(problem, np.arange(N - N // 8), robustness=1.0)
    assert leaf_score_error(engine, problem) == 0.0
    engine.add(problem, np.arange(N - N // 8, N))
    assert 0.0 < leaf_score_error(engine, problem) < 0.5
    assert leaf_score_error(make_engine(problem), problem) == 0.0


@pytest.mark.parametrize("weight", [1.0, 2.0])
def test_a_leaf_has_as_many_samples_as_it_must(weight: float) -> None:
    """One sample far from all others gets a leaf of its own, where it may."""
    X = np.array([[0.0], [1.0], [2.0], [3.0], [30.0]])
    y = np.array([0.0, 0.0, 0.0, 0.0, 100.0])
    settings = {"learning_rate": 1.0, "l2_regularization": 0.0, "max_leaf_nodes": 2, "random_state": 0}
    model = OnlineBoostingRegressor(1, min_child_weight=weight, **settings).fit(X, y)
    alone = model.predict(X)[-1]
    assert (abs(alone - 100) < 5) == (weight == 1.0), alone
