"""Histories of a tree, from a seed: which samples there are, and what happens to them.

A `World` is what stays fixed: column types, the estimator's parameters, and a pool of rows, each with one label a
*phase*. When the stream drifts the phase changes, and the same row comes with another label. A `History` is a world
and a list of operations; which samples an operation touches is decided by the history's own seed.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Any

from hypothesis import strategies as st

from tests.oracles.forest import Column
from tests.strategies import CLASSES, Chooser, choose_column

N_PHASES = 3


@dataclass(frozen=True)
class World:
    """What stays fixed during a history."""

    columns: tuple[Column, ...]
    label_type: str
    parameters: dict[str, Any]  # of DynamicTreeClassifier
    rebuild_size: int  # a batch of more samples, and of a tenth of those held, builds the tree anew
    rows: tuple[tuple[tuple[Any, ...], tuple[Any, ...]], ...]  # (features, a label a phase)
    queries: tuple[tuple[Any, ...], ...]


@dataclass(frozen=True)
class History:
    """A world and what happens in it."""

    world: World
    operations: tuple[tuple[str, int], ...]  # (operation, size); see `player.py`
    seed: int


MANY = 10**9

# Any order at all, and orders that an adversary would choose.
RANDOM = ("add", "add", "add", "delete", "delete", "add batch", "delete batch", "replace")
ADVERSARIAL = (
    *("add sorted", "add one class", "add one row", "add and delete"),
    *("delete one class", "delete one leaf", "delete oldest", "delete newest", "delete sorted"),
)
DRIFTING = ("slide", "slide", "slide", "slide", "drift", "add", "delete oldest")
IN_BETWEEN = ("query", "query", "query frozen", "resolve")
RARE = ("delete everything", "save and load", "copy", "verify", "scrub", "refuse")
MIXTURES = (RANDOM, ADVERSARIAL, DRIFTING, (*RANDOM, *ADVERSARIAL, *DRIFTING))


def any_parameters(choose: Chooser) -> dict[str, Any]:
    """Parameters of all kinds, most of them outside of Theorem 3.2."""
    return {
        "max_depth": choose.one([None, 10, 10, 4, 2, 1, 0]),
        "pruning_size": choose.one([1, 1, 1, 2, 5]),
        "alpha": choose.one([0.0, 0.0, 0.0, 0.1, 0.4]),
        "beta": choose.one([0.0, 0.0, 0.2]),
        "epsilon": choose.one([0.0, 0.05, 0.1, 0.1, 0.3, 1.0, 2.0]),
        "lazy": choose.one([False, False, True]),
        "window": choose.one([None, None, None, 1, 8, 30]),
    }


def feasible_parameters(choose: Chooser) -> dict[str, Any]:
    """Parameters that meet Theorem 3.2, epsilon as large as it may be or a part of that."""
    k, alpha, beta = choose.one([1, 1, 2, 5, 20]), choose.one([0.05, 0.1, 0.2, 0.4]), choose.one([0.1, 0.2, 0.3, 0.45])
    bound = min(1 / (k + 1), alpha / 5, beta / 12.5)
    return {
        "max_depth": choose.one([None, 10, 4, 2, 1]),
        "pruning_size": k,
        "alpha": alpha,
        "beta": beta,
        "epsilon": choose.one([None, None, 0.999 * bound, 0.5 * bound]),
        "lazy": choose.one([False, False, True]),
        "window": choose.one([None, None, None, 100]),
    }


def choose_world(choose: Chooser, max_rows: int, *, feasible: bool) -> World:
    """Choose a world: awkward columns with random labels, or columns that the labels depend on."""
    rng = random.Random(choose.integer(0, 2**16))
    parameters = feasible_parameters(choose) if feasible else any_parameters(choose)
    n_rows, rebuild_size = choose.integer(max_rows // 2, max_rows), choose.one([MANY, MANY, 1, 4])
    if choose.one([False, True]):
        return _learnable(choose, rng, n_rows, parameters, rebuild_size)
    wide = choose.one([False, False, True])
    chosen = [choose_column(choose, wide, deep=False) for _ in range(choose.integer(1, 4))]
    label_type, labels = CLASSES[choose.one(list(CLASSES))]
    rows = tuple(
        (tuple(rng.choice(values) for _, values in chosen), tuple(rng.choice(labels) for _ in range(N_PHASES)))
        for _ in range(n_rows)
    )
    unseen = {"categorical": "never seen", "numeric": 0.75, "boolean": False}
    queries = [tuple(rng.choice([*values, unseen[c.type], None]) for c, values in chosen) for _ in range(6)]
    columns = tuple(column for column, _ in chosen)
    return World(columns, label_type, parameters, rebuild_size, rows, tuple(queries))


def _learnable(
    choose: Chooser, rng: random.Random, n_rows: int, parameters: dict[str, Any], rebuild_size: int
) -> World:
    """A world whose labels follow one or two columns, other ones in each phase, with some noise."""
    columns = [Column() for _ in range(choose.integer(2, 3))]
    columns += [Column("categorical")] * choose.integer(0, 1)
    n_classes, noise, share = choose.one([2, 2, 3]), choose.one([0.0, 0.1, 0.3]), choose.one([0.0, 0.1])
    levels = choose.one([4, 12, 1000])

    def value(column: Column) -> Any:
        if rng.random() < share:
            return None
        return rng.choice("abcd") if column.type == "categorical" else rng.randrange(levels) / 8

    def label(features: tuple[Any, ...], phase: int) -> int:
        if rng.random() < noise:
            return rng.randrange(n_classes)
        x, other = features[phase % len(features)], features[(phase + 1) % len(features)]
        high = x is not None and (x in "ab" if isinstance(x, str) else x > levels / 16)
        second = other is not None and (other in "bc" if isinstance(other, str) else other > levels / 24)
        return (int(high) + int(second and n_classes > 2)) % n_classes

    features = [tuple(value(column) for column in columns) for _ in range(n_rows)]
    rows = tuple((row, tuple(label(row, phase) for phase in range(N_PHASES))) for row in features)
    queries = tuple(tuple(value(column) for column in columns) for _ in range(6))
    return World(tuple(columns), "integer", parameters, rebuild_size, rows, queries)


def choose_history(choose: Chooser, max_operations: int, max_rows: int, *, feasible: bool) -> History:
    """Choose a history; it starts with a fit (of size 0: an empty model)."""
    world = choose_world(choose, max_rows, feasible=feasible)
    operations = (*choose.one(MIXTURES), *choose.one([IN_BETWEEN, (*IN_BETWEEN, *RARE)]))
    n_operations = choose.integer(1, max_operations)
    fit = ("fit", choose.one([0, len(world.rows) // 2, len(world.rows)]))
    rest = [(choose.one(operations), choose.integer(1, 10)) for _ in range(n_operations)]
    return History(world, (fit, *rest), choose.integer(0, 2**16))


def random_history(seed: int, max_operations: int, max_rows: int, *, feasible: bool = False) -> History:
    """Make the history of a seed."""
    return choose_history(Chooser.of_seed(seed), max_operations, max_rows, feasible=feasible)


@st.composite
def histories(draw: st.DrawFn, *, feasible: bool = False) -> History:
    """Draw a history that Hypothesis can shrink."""
    return choose_history(Chooser.of_hypothesis(draw), 8, 30, feasible=feasible)
