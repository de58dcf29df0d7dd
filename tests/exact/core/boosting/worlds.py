"""Small awkward data for boosted trees, and histories of operations on them."""

from __future__ import annotations

import math
import random
from dataclasses import replace
from typing import Any

from hypothesis import strategies as st

from tests.oracles.forest import Column
from tests.strategies import Chooser, History, World, choose_world

OPERATIONS = (
    *("add", "add", "add", "add batch", "add batch"),
    *("delete", "delete", "delete", "delete batch", "delete batch"),
    *("add again", "replace", "replace", "a class comes and goes"),
)
RARE = (
    *("delete everything", "refuse", "predict", "predict", "predict frozen"),
    *("save and load", "copy", "scrub", "wipe", "verify", "fit"),
)


def incremental_parameters(choose: Chooser) -> dict[str, Any]:
    """Arguments of IncrementalBoosting*."""
    return {
        "n_estimators": choose.integer(1, 6),
        "learning_rate": choose.one([0.1, 0.3, 1.0]),
        "max_depth": choose.one([1, 2, 3, 3, 5, 8]),
        "l2_regularization": choose.one([0.0, 0.5, 1.0]),
        "min_child_weight": choose.one([0.0, 0.2, 1.0, 3.0]),
        "split_sampling": choose.one([0.1, 0.5, 1.0]),
        "max_bins": choose.one([2, 4, 17, 255]),
        "quantization": choose.one(["auto", "auto", (0.25, 0.125), (0.00390625, 0.00390625), (1.0, 1.0)]),
        "early_stopping": choose.one([None, None, None, 1, 2]),
        "validation_fraction": choose.one([0.1, 0.5]),
        "random_state": choose.integer(0, 2 ** choose.one([2, 32, 62])),
    }


def presorted_parameters(choose: Chooser) -> dict[str, Any]:
    """The same without quantization."""
    return {**incremental_parameters(choose), "quantization": None}


def online_parameters(choose: Chooser) -> dict[str, Any]:
    """Arguments of OnlineBoosting*."""
    return {
        "n_estimators": choose.integer(1, 5),
        "learning_rate": choose.one([0.1, 0.3, 1.0]),
        "max_leaf_nodes": choose.one([2, 3, 5, 20]),
        "max_bins": choose.one([2, 4, 17, 1024]),
        "split_sampling": choose.one([0.1, 0.5, 1.0]),
        "robustness": choose.one([0.0, 0.1, 0.3, 1.0]),
        "l2_regularization": choose.one([0.0, 0.5, 1.0]),
        "min_child_weight": choose.one([0.0, 0.2, 1.0]),
        "random_state": choose.integer(0, 2 ** choose.one([2, 32, 62])),
    }


PARAMETERS = {"presorted": presorted_parameters, "quantised": incremental_parameters, "online": online_parameters}


def learnable_world(choose: Chooser, max_rows: int) -> World:
    """Labels follow the features with some noise, so that trees are deep and leaves hold samples."""
    rng = random.Random(choose.integer(0, 2**16))
    levels, noise, share = choose.one([3, 12, 1000]), choose.one([0.0, 0.1, 0.3]), choose.one([0.0, 0.1])
    columns = [Column()] * choose.integer(1, 3) + [Column("categorical")] * choose.integer(0, 1)
    n_classes = choose.one([0, 2, 2, 3, 5])

    def value(column: Column) -> Any:
        if rng.random() < share:
            return None
        return rng.choice("abcd") if column.type == "categorical" else rng.randrange(levels) / 8

    def label(row: tuple[Any, ...]) -> Any:
        height = sum(("abcd".index(x) / 4 if isinstance(x, str) else x * 8 / levels) for x in row if x is not None)
        height += rng.gauss(0, noise)
        return round(height, 4) if n_classes == 0 else max(0, min(n_classes - 1, int(height / len(row) * n_classes)))

    rows = [tuple(value(column) for column in columns) for _ in range(choose.integer(max_rows // 2, max_rows))]
    queries = tuple(tuple(value(column) for column in columns) for _ in range(8))
    task, label_type = ("classification", "integer") if n_classes else ("regression", "number")
    pool = tuple((row, label(row)) for row in rows)
    return World(tuple(columns), task, label_type, {}, pool, queries)


def choose_boosted_world(choose: Chooser, kind: str, max_rows: int) -> World:
    """A world of awkward columns and any labels, or one that can be learned, with many samples or few.

    Batches of a larger share of the samples than `replant_share` are not learned in place by the online kind.
    """
    which = choose.one(["awkward", "learnable", "many"])
    if which == "awkward":
        world = choose_world(choose, max_rows)
    else:
        world = learnable_world(choose, max_rows if which == "learnable" else 4 * max_rows)
    share = choose.one([math.inf, math.inf, 0.2])
    return replace(world, parameters=PARAMETERS[kind](choose), replant_share=share)


def choose_history(choose: Chooser, kind: str, max_operations: int, max_rows: int) -> History:
    """Choose a history; it starts with a fit (of size 0: an empty model)."""
    world = choose_boosted_world(choose, kind, max_rows)
    fit = ("fit", choose.one([0, len(world.rows) // 2, len(world.rows)]))
    operations = choose.one([OPERATIONS, (*OPERATIONS, *RARE)])
    rest = [(choose.one(operations), choose.integer(1, 8)) for _ in range(choose.integer(1, max_operations))]
    return History(world, (fit, *rest), choose.integer(0, 2**16))


def random_history(kind: str, seed: int, max_operations: int, max_rows: int) -> History:
    """Make the history of a seed."""
    return choose_history(Chooser.of_seed(seed), kind, max_operations, max_rows)


@st.composite
def histories(draw: st.DrawFn, kind: str) -> History:
    """Draw a history that Hypothesis can shrink."""
    return choose_history(Chooser.of_hypothesis(draw), kind, 6, 24)
