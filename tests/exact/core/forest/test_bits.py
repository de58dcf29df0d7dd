"""Bit rows: columns that hold only 0 and 1, that begin to, and that stop."""

import random
from typing import Any

import numpy as np
import pytest
from numba import config

from oubli.core import DynamicForestClassifier, DynamicForestRegressor
from oubli.core.forest import workspace
from oubli.core.forest.layout import cells
from tests.histories.kinds import BY_NAME, MANY
from tests.histories.player import play
from tests.histories.worlds import History, World
from tests.oracles.common import Column
from tests.tiers import covering

ODD = (2.0, -1.0, 0.5, None)
LABELS = {"two classes": [0, 1], "classes": ["a", "b", "c", "d"], "regression": [-2.5, 0.0, 1.25, 7.0]}
OPERATIONS = (
    *("add", "add", "add batch", "delete", "delete", "delete batch", "add again", "replace", "add and delete"),
    *("predict", "predict frozen", "resolve", "resolve", "verify", "save and load", "copy", "scrub", "wipe"),
)


def world_of(n_columns: int, task: str, dtype: str, seed: int) -> World:
    """Rows of 0 and 1. Now and then there is another value: its column is no bit column while it is held."""
    rng = random.Random(seed)
    shares = [rng.choice([0.5, 0.5, 0.1, 0.9, 0.02]) for _ in range(n_columns)]
    columns = [Column("numeric", dtype)] * n_columns
    if n_columns > 2:
        columns[1] = Column("categorical")
        columns[2] = Column("boolean")

    def cell(column: int) -> Any:
        if columns[column].type == "categorical":
            return rng.choice(["0", "1", "red", None])
        odd = columns[column].type == "numeric" and rng.random() < 0.15 / n_columns
        return rng.choice(ODD) if odd else float(rng.random() < shares[column])

    rows = [tuple(cell(column) for column in range(n_columns)) for _ in range(60)]
    parameters = {
        "n_estimators": 3, "occurrence": rng.choice([1.0, 0.5]), "max_depth": None, "min_samples_split": 2,
        "n_thresholds": rng.choice([1, 3, 6]), "max_features": rng.randint(1, max(1, n_columns // 3)),
        "criterion": "squared_error" if task == "regression" else rng.choice(["gini", "entropy"]),
        "lazy": rng.random() < 0.7, "random_state": rng.randrange(100),
    }  # fmt: skip
    return World(
        columns=tuple(columns), task="regression" if task == "regression" else "classification",
        label_type={"two classes": "integer", "classes": "string", "regression": "number"}[task], parameters=parameters,
        rows=tuple((row, rng.choice(LABELS[task])) for row in rows), queries=tuple(rows[:8]),
        tuning={"counters_from": rng.choice([2, MANY])},
    )  # fmt: skip


@pytest.mark.parametrize("seeds", [range(2), pytest.param(range(2, 6), marks=pytest.mark.long)], ids=["few", "more"])
@pytest.mark.parametrize(("task", "n_columns"), covering(LABELS, [1, 63, 64, 65, 130]))
def test_histories_with_columns_that_begin_and_cease_to_be_bits(task: str, n_columns: int, seeds: range) -> None:
    """Compared with the oracle, which knows cells only; the check of the invariants reads the words."""
    for seed in seeds[:1] if config.DISABLE_JIT else seeds:
        is_wide = seed % 2 and (task != "regression" or seeds.start > 0)
        world = world_of(n_columns, task, "float64" if is_wide else "float32", seed)
        rng = random.Random(1000 + seed)
        operations = [("fit", 40)] + [(rng.choice(OPERATIONS), rng.randint(1, 6)) for _ in range(10)]
        play(BY_NAME["forest"], History(world, tuple(operations), seed))


def larger(task: str, n: int, d: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    X = (rng.random((n, d)) < rng.random(d)).astype(np.float32)
    X[:, :2] = rng.normal(size=(n, 2))
    score = X @ np.linspace(-1, 1, d) + rng.normal(size=n)
    return X, score if task == "regression" else np.digitize(
        score, [0.0] if task == "two classes" else [-1.0, 0.0, 1.0]
    )


def live(task: str, X: np.ndarray, y: np.ndarray) -> Any:
    """A model after a history in which a bit column ceases to be one, and is one again."""
    kind = DynamicForestRegressor if task == "regression" else DynamicForestClassifier
    n = len(X) - 20
    model = kind(n_estimators=4, occurrence=0.5, random_state=5).fit(X[:n], y[:n])
    odd = X[n:].copy()
    odd[:, 7] = 3.0
    ids = model.add(odd, y[n:])
    model.resolve()
    model.delete(ids[:10])
    model.delete([str(i) for i in range(40)])
    model.resolve()
    model.delete(ids[10:])
    model.add(X[:3], y[:3])
    model.resolve()
    return model


@pytest.mark.parametrize(("task", "d"), covering(LABELS, [64, 100]))
def test_large_forests_are_the_same_with_bits_and_without(task: str, d: int, monkeypatch: pytest.MonkeyPatch) -> None:
    X, y = larger(task, 200 if config.DISABLE_JIT else 3000, d, d)
    with_bits = live(task, X, y)
    rows = with_bits.engine_.bits
    assert sum(map(int.bit_count, rows.columns.tolist())) == d - 2
    monkeypatch.setattr(cells, "_LEAST_SHARE", 2.0)
    without = live(task, X, y)
    assert without.engine_.bits.words.shape[1] == 0
    assert with_bits.digest() == without.digest()
    for model in (with_bits, without):
        model.wipe()
    for name in ("nodes", "statistics", "members", "meta"):
        assert np.array_equal(getattr(with_bits.engine_.trees, name), getattr(without.engine_.trees, name)), name
    kept = with_bits.engine_.trees.meta[6]
    assert kept > 4, "some nodes keep counters"
    assert np.array_equal(with_bits.engine_.blocks.longs[:kept], without.engine_.blocks.longs[:kept])
    assert with_bits.verify().ok


def test_nothing_is_left_of_a_sample_in_the_words() -> None:
    """Its word is its own, and is found while it is held, in copies and beside the trees of a file."""
    rng = np.random.default_rng(3)
    X = (rng.random((50, 64)) < 0.5).astype(np.float32)
    model = DynamicForestClassifier(n_estimators=3, random_state=0).fit(X[:49], np.arange(49) % 2)
    (name,) = model.add(X[49:], [1])
    own = sum(int(x) << c for c, x in enumerate(X[49].tolist()))
    other = type(model).read_parts(*model.to_parts())[0]
    for one in (model, model.copy(), other):
        engine = one.engine_
        assert own in engine.bits.words
        one.resolve()
        one.delete(name)
        one.query(X[:1])
        one.wipe()
        arrays = [*engine.bits, *engine.scratch, *engine.trees, engine.blocks.longs]
        found = [a for a in arrays if isinstance(a, np.ndarray) and a.dtype == np.uint64 and own in a]
        assert found == []
        one.engine_.shred()
        assert not any(array.any() for array in engine.bits)


@pytest.mark.parametrize("task", LABELS)
def test_small_subtrees_are_copied_where_the_tree_is_too_large(task: str, monkeypatch: pytest.MonkeyPatch) -> None:
    X, y = larger(task, 300 if config.DISABLE_JIT else 3000, 12, 1)
    X[:, 3:8] = np.random.default_rng(2).normal(size=(len(X), 5))
    expected = live(task, X, y)
    n_small = len(X) // 8
    monkeypatch.setattr(workspace, "MAX_COPIED_CELLS", 12 * n_small)
    kind = DynamicForestRegressor if task == "regression" else DynamicForestClassifier
    scratch = kind(n_estimators=1, occurrence=1.0, random_state=5).fit(X, y).engine_.scratch
    assert len(scratch.order) > scratch.columns.shape[1] >= n_small
    assert scratch.entries[len(scratch.order) :].any(), "the cells of some subtrees are copied"
    found = live(task, X, y)
    assert found.digest() == expected.digest()
    assert np.array_equal(found.engine_.trees.members, expected.engine_.trees.members)
    found.check_invariants()
