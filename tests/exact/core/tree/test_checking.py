"""What `verify` computes again agrees with the oracle, which computes it in another way."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest

from oubli.core import DynamicTreeClassifier
from oubli.core.data.schema import Column, ColumnType, LabelType, Schema, Task
from oubli.core.tree.invariants import _gains, find_broken_promises
from tests.exact.core.tree.reading import read
from tests.histories.comparisons import tree_parameters
from tests.oracles import tree as oracle
from tests.oracles.common import Column as OracleColumn

TYPES = (("numeric", "float32"), ("numeric", "float64"), ("categorical", "float32"), ("boolean", "float32"))
COLUMNS = tuple(OracleColumn(*types) for types in TYPES)
SCHEMA = Schema(
    tuple(Column(f"x{j}", ColumnType(kind), dtype) for j, (kind, dtype) in enumerate(TYPES)),
    Task.CLASSIFICATION,
    LabelType.STRING,
)


BROKEN: list[str] = []


def rows(rng: random.Random, n: int) -> list[list[Any]]:
    """Few values, so that there are ties, and missing ones."""
    values: list[list[Any]] = [
        [0.5, 1.0, 2.5, None],
        [1e9, 1e9 + 1, -3.0, None],
        ["u", "v", "w", None],
        [True, False, None],
    ]
    return [[rng.choice(some) for some in values] for _ in range(n)]


def held(model: Any) -> dict[str, oracle.Sample]:
    samples = map(model.samples_.get, model.samples_.ids())
    return {one.id: oracle.sample_of(one.features, one.label, COLUMNS) for one in samples}


@pytest.mark.parametrize("seed", range(30))
def test_the_best_gain_is_the_oracles(seed: int) -> None:
    rng = random.Random(seed)
    X = rows(rng, rng.choice([1, 2, 3, 8, 40]))
    y = [rng.choice("abc"[: 1 + seed % 3]) for _ in X]
    model = DynamicTreeClassifier().fit(X, y, schema=SCHEMA)
    data, slots = model.data(), model.samples_.slots()
    mine = max((gain for column in range(4) for gain in _gains(data, column, slots)), default=0.0)
    assert mine == pytest.approx(oracle.best_gain(list(held(model).values()), COLUMNS), abs=1e-12)


@pytest.mark.parametrize("seed", range(30))
def test_promises_are_broken_where_the_oracle_says_so(seed: int) -> None:
    """Trees that have drifted, judged by bounds that they were not grown for."""
    rng = random.Random(seed)
    parameters: dict[str, Any] = {
        "alpha": 0.1,
        "beta": rng.choice([0.01, 0.05, 0.2]),
        "pruning_size": rng.choice([1, 4]),
    }
    model = DynamicTreeClassifier(max_depth=4, epsilon=rng.choice([0.1, 1.0, 2.0]), **parameters)
    X = rows(rng, 90)
    first = rng.choice(["a", "ab"])
    model.fit(X[:30], [rng.choice(first) for _ in range(30)], schema=SCHEMA)
    model.add(X[30:], ["a" if row[0] == 0.5 else "c" if row[2] == "u" else "b" for row in X[30:]])
    for name in rng.sample(model.samples_.ids(), 25):
        model.delete(name)
    model.check_invariants()
    mine = find_broken_promises(model.engine_.tree, model.settings_, model.data(), model.samples_.slots())
    samples = held(model)
    settings = tree_parameters({**model.get_params(), "lazy": False})
    theirs = oracle.violations(read(model, samples), samples, settings, COLUMNS)
    assert len(mine) == len(theirs)
    assert np.all([text.startswith(("a node", "a leaf", "the split")) for text in mine])
    BROKEN.extend(mine)


def test_some_promises_were_broken() -> None:
    """So that the comparison above compares something; each condition is among them."""
    BROKEN.clear()
    for seed in range(30):
        test_promises_are_broken_where_the_oracle_says_so(seed)
    assert {text.split()[1] for text in BROKEN} == {"node", "leaf", "split"}
