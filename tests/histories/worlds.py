"""Small awkward data, and histories of operations on a model: from a seed, or as Hypothesis strategies.

A `World` is everything that stays fixed during a history: column types, task, parameters, and a pool
of rows to draw samples and queries from. Rows are drawn from a few values a column, so duplicates,
ties, constants and vanishing extremes, categories and classes are the rule and not the exception.
In a *learnable* world the labels follow the features. Each row has one label a *phase*: when a stream drifts, the
phase changes, and the same row comes with another label.
A `History` is a world and a list of operations; which ids and rows an operation touches is decided
by the history's own seed, so that an operation always fits what is held when it is reached.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any
from zlib import crc32

import numpy as np
from hypothesis import strategies as st

from tests.oracles.common import Column

FLOAT32_MAX = float(np.finfo(np.float32).max)
FLOAT64_MAX = float(np.finfo(np.float64).max)


def neighbours(value: float, n: int, kind: type[Any]) -> list[float]:
    """Return `n` adjacent floats of the kind, from `value` upwards."""
    result = [kind(value)]
    while len(result) < n:
        result.append(np.nextafter(result[-1], kind(np.inf)))
    return [float(x) for x in result]


FLOAT32_VALUES: dict[str, list[Any]] = {
    "few": [0.0, 1.0, 2.0], "integers": [-3, -1, 0, 1, 2, 4, 2**24], "constant": [7.25],
    "nearly constant": [3.5] * 7 + [4.5], "nearly always missing": [None] * 6 + [3.5, 3.5, 4.5],
    "signed zeros": [-0.0, 0.0, -1.5], "adjacent at 1": neighbours(1.0, 4, np.float32),
    "adjacent at 2^24": neighbours(2.0**24, 3, np.float32), "adjacent below 0": neighbours(-3e-45, 5, np.float32),
    "extreme": [-FLOAT32_MAX, FLOAT32_MAX, 0.0, 1.0], "largest": neighbours(-FLOAT32_MAX, 3, np.float32),
    "denormal": [float(np.float32(1.4e-45 * i)) for i in (-2, 0, 1, 3)],
    "spread": [float(np.float32(x)) for x in (-2.7, -0.31, 0.04, 0.5, 0.77, 1.9, 3.3, 150.0)],
    "rounded at the door": [0.1, 0.10000000149011612, 0.2, 1 / 3],
}  # fmt: skip
FLOAT64_VALUES: dict[str, list[Any]] = {
    "integers beyond float32": [2**24 + 1, 2**24 + 2, 2**53 - 1, -(2**53) + 1],
    "adjacent at 1": neighbours(1.0, 4, np.float64),
    "extreme": [-FLOAT64_MAX, FLOAT64_MAX, 0.0, 1.0, 5e-324],
    "tenths": [0.1, 0.2, 0.3, 0.1 + 0.2],
}
CATEGORIES: dict[str, list[Any]] = {
    "one": ["only"], "nearly one": ["usual"] * 7 + ["odd"], "two": ["yes", "no"], "few": ["a", "b", "c", "d"],
    "many": [f"shop {i}" for i in range(40)], "codes": [1, 2, 3.0, "4", 10],
    "awkward": [" ", "1", 1, 1.5, True, "True", "None", "nan", "é", "e\u0301", "\U0001f600"],
}  # fmt: skip
BOOLEANS: dict[str, list[Any]] = {"both": [True, False], "numbers": [0, 1], "constant": [True]}

# label type -> values
CLASSES: dict[str, tuple[str, list[Any]]] = {
    "one class": ("integer", [3]), "two": ("integer", [0, 1]), "unbalanced": ("integer", [0] * 11 + [1]),
    "words": ("string", ["no", "yes"]), "many": ("integer", list(range(7))), "booleans": ("boolean", [True, False]),
    "numbers": ("number", [-1.5, 0.0, 2.0]), "mixed": ("scalar", ["a", 1, 2.5, True, "1", 0]),
    "rare words": ("string", ["b"] * 6 + ["a", "c", "ä", "Z"]),
}  # fmt: skip
TARGETS: dict[str, list[float]] = {
    "ties": [1.0, 2.0, 3.0], "zeros": [0.0, -0.0], "mostly zero": [0.0] * 5 + [1.0, -1.0], "one value": [2.5],
    "negative": [-3.5, -2.0, -0.25, 1.0], "outlier": [0.1, 0.2, 0.35, 0.5, 0.7, 1e9],
    "at the scale's edge": [15.9, 16.0, 16.000000000000004, -16.0, 1.0, 300.0], "tiny": [1e-310, 3e-310, 0.0, 5e-324],
    "huge": [1e300, -1.7e308, 5.0], "spread": [round(0.37 * i * i - 2 * i, 3) for i in range(12)],
}  # fmt: skip

N_PHASES = 3
UNSEEN: dict[str, Any] = {"categorical": "never seen", "numeric": 0.75, "boolean": False}
DULL = {"one", "constant", "one class", "unbalanced", "zeros", "mostly zero", "one value"}


@dataclass(frozen=True)
class World:
    """What stays fixed during a history.

    Attributes
    ----------
    columns, task, label_type : the schema.
    parameters : arguments of the estimator.
    rows : pool of (features, label).
    queries : rows without labels.
    drifted : for each phase but the first the labels of the rows.
    tuning : arguments of the kind's `tuned`, which lets small sets be treated as large ones are.
    weights : of which each sample has one, by its content; empty: all samples count the same.
    """

    columns: tuple[Column, ...]
    task: str
    label_type: str
    parameters: dict[str, Any]
    rows: tuple[tuple[tuple[Any, ...], Any], ...]
    queries: tuple[tuple[Any, ...], ...]
    drifted: tuple[tuple[Any, ...], ...] = ()
    tuning: dict[str, Any] = field(default_factory=dict)
    weights: tuple[float, ...] = ()

    def weight(self, row: tuple[Sequence[Any], Any]) -> float:
        """The weight of a sample with these features and label."""
        features, label = row
        return self.weights[crc32(repr((tuple(features), label)).encode()) % len(self.weights)] if self.weights else 1.0

    def weights_of(self, rows: Iterable[tuple[Sequence[Any], Any]]) -> list[float] | None:
        """Those of several samples; None when there are none."""
        return list(map(self.weight, rows)) if self.weights else None

    def row(self, number: int, phase: int = 0) -> tuple[tuple[Any, ...], Any]:
        """A row of the pool with the label of a phase."""
        features, label = self.rows[number]
        return features, self.drifted[phase - 1][number] if phase and self.drifted else label


def without_signs(world: World) -> World:
    """The same with targets of 0 and more."""
    rows = tuple((features, abs(label)) for features, label in world.rows)
    return replace(world, rows=rows, drifted=tuple(tuple(map(abs, labels)) for labels in world.drifted))


@dataclass(frozen=True)
class History:
    """A world and what happens in it."""

    world: World
    operations: tuple[tuple[str, int], ...]  # (operation of `Player`, size)
    seed: int


class Chooser:
    """Makes choices: Hypothesis can shrink its own, a random generator's are richer and faster."""

    def __init__(self, one: Callable[[Sequence[Any]], Any], integer: Callable[[int, int], int]) -> None:
        self.one = one  # one of these
        self.integer = integer  # between these, both included

    @classmethod
    def of_hypothesis(cls, draw: st.DrawFn) -> Chooser:
        """Choose by Hypothesis."""
        return cls(lambda options: draw(st.sampled_from(options)), lambda a, b: draw(st.integers(a, b)))

    @classmethod
    def of_seed(cls, seed: int) -> Chooser:
        """Choose by a random generator."""
        rng = random.Random(seed)
        return cls(rng.choice, rng.randint)


def choose_column(choose: Chooser, wide: bool, deep: bool) -> tuple[Column, list[Any]]:
    """Choose a column and the values that its cells take, missing ones included."""
    kind = choose.one(["numeric", "numeric", "categorical", "boolean"])
    if kind == "categorical":
        column, table = Column(kind), CATEGORIES
    elif kind == "boolean":
        column, table = Column(kind), BOOLEANS
    elif wide and choose.one([False, True]):
        column, table = Column(kind, "float64"), FLOAT64_VALUES
    else:
        column, table = Column(kind), FLOAT32_VALUES
    values = list(table[choose.one([name for name in table if not (deep and name in DULL)])])
    missing = choose.one([*["none"] * 6, *["some"] * 4, *([] if deep else ["most", "all"])])
    if missing == "some":
        values += [None] * max(1, len(values) // 4)
    elif missing == "most":
        values += [None, float("nan")] * (2 * len(values))
    elif missing == "all":
        values = [None]
    return column, values


def awkward_world(
    choose: Chooser, max_rows: int, tasks: Sequence[str], *, deep: bool, wide_tasks: Sequence[str] = ()
) -> World:
    """Choose a world of degenerate data, or one in which trees are deep; its parameters are left out."""
    task = choose.one(tasks)
    wide = choose.one([False, False, True]) and task in wide_tasks
    n_columns = choose.integer(3, 6) if deep else choose.integer(1, 4)
    chosen = [choose_column(choose, wide, deep) for _ in range(n_columns)]
    if task == "classification":
        label_type, labels = CLASSES[choose.one([name for name in CLASSES if not (deep and name in DULL)])]
    else:
        label_type = "number"
        labels = TARGETS[choose.one([name for name in TARGETS if not (deep and name in DULL)])]
    n_rows = choose.integer(max_rows // 2 if deep else 1, max_rows)
    # The cells come from a seed: drawing hundreds of them one by one is slow, and shrinking them
    # seldom helps where shrinking the number of rows, columns and operations does not.
    rng = random.Random(choose.integer(0, 2**16))
    rows = tuple((tuple(rng.choice(values) for _, values in chosen), rng.choice(labels)) for _ in range(n_rows))
    queries = [tuple(rng.choice([*values, UNSEEN[c.type], None]) for c, values in chosen) for _ in range(6)]
    queries += [rng.choice(rows)[0] for _ in range(2)]
    drifted = tuple(tuple(rng.choice(labels) for _ in rows) for _ in range(N_PHASES - 1))
    return World(tuple(column for column, _ in chosen), task, label_type, {}, rows, tuple(queries), drifted)


def learnable_world(choose: Chooser, max_rows: int, tasks: Sequence[str]) -> World:
    """Labels follow the features with some noise, so that trees are deep and leaves hold samples."""
    rng = random.Random(choose.integer(0, 2**16))
    levels, noise, share = choose.one([3, 12, 1000]), choose.one([0.0, 0.1, 0.3]), choose.one([0.0, 0.1])
    columns = [Column()] * choose.integer(1, 3) + [Column("categorical")] * choose.integer(0, 1)
    task, n_classes = choose.one(tasks), choose.one([2, 2, 3, 5])

    def value(column: Column) -> Any:
        if rng.random() < share:
            return None
        return rng.choice("abcd") if column.type == "categorical" else rng.randrange(levels) / 8

    def label(row: tuple[Any, ...], phase: int) -> Any:
        """By the sum of all cells; when the stream has drifted, by one cell."""
        cells = row if phase == 0 else row[phase % len(row) :][:1]
        height = sum(("abcd".index(x) / 4 if isinstance(x, str) else x * 8 / levels) for x in cells if x is not None)
        height += rng.gauss(0, noise)
        if task == "regression":
            return round(height, 4)
        return max(0, min(n_classes - 1, int(height / len(cells) * n_classes)))

    features = [tuple(value(column) for column in columns) for _ in range(choose.integer(max_rows // 2, max_rows))]
    queries = tuple(tuple(value(column) for column in columns) for _ in range(8))
    labels = [tuple(label(row, phase) for row in features) for phase in range(N_PHASES)]
    label_type = "integer" if task == "classification" else "number"
    rows = tuple(zip(features, labels[0], strict=True))
    return World(tuple(columns), task, label_type, {}, rows, queries, tuple(labels[1:]))
