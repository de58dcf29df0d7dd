"""Measure how dear one sample can be made: an attacker who adds and deletes, beside deletions of random samples.

    python -m benchmarks.bench_attacks [--data DIR] [--quick] [--rounds 20] [--only forest fast] [--write-results]

The attacker knows the data, chooses which samples leave, and what is added under which ids. Each change is timed with
the work that it defers (`resolve`), in CPU seconds of one thread. The model is the same, but for what was changed.

    extremes      samples with the smallest or largest value of a column leave
    one column    a sample beyond the range of a column comes, and leaves
    all columns   the same beyond the range of every numeric column
    duplicates    copies of one sample come
    boundaries    samples come whose values are the next floats above those of another sample
    new category  a sample with categories that no other sample has comes, and leaves
    target        a regression's sample comes with a target a thousand times the largest, and leaves
    ids           the dearest of many ids for the same outlier, found by trying
    climbing      the dearest samples of some that left are put back, changed a little, and taken again
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

import numpy as np
import pandas as pd

from benchmarks import sections
from benchmarks.boosting.datasets import REGRESSION, Split, load_split
from benchmarks.results import Mark, Row, at_most, shown
from benchmarks.sections import Bench, Section
from benchmarks.timing import cpu_seconds
from oubli.core import (
    DynamicForestClassifier,
    DynamicForestRegressor,
    DynamicTreeClassifier,
    IncrementalBoostingClassifier,
    IncrementalBoostingRegressor,
)

SETS = ("adult", "heart", "purchase", "electricity", "bank", "letter", "california_housing", "abalone")
ROWS = 20_000
FAR = 3.0  # ranges of a column that an outlier is beyond it, at most
TRIES = 10  # ids, or steps of climbing, for one that is measured
HEAD = ("data:", "attack:", "random ms", "mean ms", "dearest by a fit", "mean by random")
TEXT = (
    "CPU milliseconds of a change with what it defers, on {rows:,} rows at most, {rounds} changes of each sort. "
    "*Random*: deletions of samples drawn at random, after which the others are compared. *Dearest by a fit*: the "
    "dearest change by a fit of the model."
)
OUTLIERS = ("one column", "all columns")
MARKED = ("extremes", *OUTLIERS, "duplicates", "boundaries", "new category")


@dataclass(frozen=True)
class Target:
    """A kind of model under attack."""

    title: str
    classifier: Callable[..., Any]
    regressor: Callable[..., Any] | None
    parameters: dict[str, Any]
    mark: Mark | None = None  # of the mean by random deletions
    marked: Sequence[str] = MARKED  # the attacks that it is for


TARGETS = {
    "forest": Target(
        "The forest, defaults", DynamicForestClassifier, DynamicForestRegressor, {"random_state": 0}, at_most(5.0)
    ),
    "fast": Target(
        "The forest, a sample in a tenth of the trees",
        DynamicForestClassifier,
        DynamicForestRegressor,
        {"random_state": 0, "occurrence": 0.1},
        at_most(5.0),
    ),
    "tree": Target("The tree", DynamicTreeClassifier, None, {"random_state": 0, "lazy": True}),
    "boosting": Target(
        "Exact boosting",
        IncrementalBoostingClassifier,
        IncrementalBoostingRegressor,
        {"random_state": 0},
        at_most(3.0),
        OUTLIERS,
    ),
}


@dataclass(frozen=True)
class Attacks(Bench):
    """What the attacker has: data, and how many changes of each sort."""

    group: ClassVar[str] = "attacks"
    rounds: int
    rows: int


class Attacker:
    """Changes one model, and times each change."""

    def __init__(self, target: Target, split: Split, seed: int) -> None:
        self.X = split.X if isinstance(split.X, pd.DataFrame) else pd.DataFrame(np.asarray(split.X))
        self.X = self.X.reset_index(drop=True)
        self.y = split.y
        self.rng = np.random.default_rng(seed)
        self.is_regression = split.task == REGRESSION
        make = target.regressor if self.is_regression else target.classifier
        if make is None:
            raise ValueError(f"{target.title} has no regression")
        self.model = make(**target.parameters)
        self.fit_seconds = cpu_seconds(lambda: self.model.fit(self.X, self.y, ids=self.X.index))
        self.numeric: list[Any] = [name for name in self.X if name not in split.categorical]
        self.categorical: list[Any] = [name for name in self.X if name in split.categorical]
        self.low, self.high = self.X[self.numeric].min(), self.X[self.numeric].max()
        self.left = np.zeros(len(self.X), np.bool_)
        self.n_added = 0
        self.model.resolve()

    def timed(self, change: Callable[[], object]) -> float:
        """Seconds of a change and of the work that it defers."""

        def work() -> None:
            change()
            self.model.resolve()

        return cpu_seconds(work, collect=False)

    def delete(self, row: int) -> float:
        """Seconds to delete a row."""
        self.left[row] = True
        return self.timed(lambda: self.model.delete(str(row)))

    def come_and_go(self, table: pd.DataFrame, label: Any, name: str | None = None) -> list[float]:
        """Seconds to add a sample, and to delete it again."""
        self.n_added += 1
        name = name or f"added {self.n_added}"
        added = self.timed(lambda: self.model.add(table, np.array([label]), ids=[name]))
        return [added, self.timed(lambda: self.model.delete(name))]

    def some_row(self) -> int:
        """A row that is held."""
        return int(self.rng.choice(np.flatnonzero(~self.left)))

    def copy(self, row: int) -> pd.DataFrame:
        """A table with a row, to be changed."""
        table = self.X.iloc[[row]].reset_index(drop=True)
        return table.astype(dict.fromkeys(self.numeric, np.float64))

    def outlier(self, columns: Sequence[Any]) -> pd.DataFrame:
        """A row beyond the range of some columns."""
        table = self.copy(self.some_row())
        for name in columns:
            span = float(self.high[name] - self.low[name]) or 1.0
            step = span * self.rng.uniform(0.2, FAR)
            table[name] = self.high[name] + step if self.rng.random() < 0.5 else self.low[name] - step
        return table

    # -- attacks --------------------------------------------------------------------------------

    def random(self) -> Iterator[float]:
        """Delete rows at random."""
        while True:
            yield self.delete(self.some_row())

    def extremes(self) -> Iterator[float]:
        """Delete the row at an end of a column."""
        while True:
            name = self.rng.choice(self.numeric)
            values = self.X[name].where(~self.left)
            yield self.delete(int(values.idxmax() if self.rng.random() < 0.5 else values.idxmin()))

    def one_column(self) -> Iterator[float]:
        """Add an outlier in one column, and delete it."""
        while True:
            yield from self.come_and_go(self.outlier([self.rng.choice(self.numeric)]), self.y[self.some_row()])

    def all_columns(self) -> Iterator[float]:
        """Add an outlier in all columns, and delete it."""
        while True:
            yield from self.come_and_go(self.outlier(self.numeric), self.y[self.some_row()])

    def duplicates(self) -> Iterator[float]:
        """Add the same row again and again."""
        row = self.some_row()
        while True:
            self.n_added += 1
            names = [f"copy {self.n_added}"]
            yield self.timed(partial(self.model.add, self.copy(row), self.y[[row]], ids=names))

    def boundaries(self) -> Iterator[float]:
        """Add rows whose values are the next floats above those of a row, and delete them."""
        while True:
            row = self.some_row()
            table = self.copy(row)
            for name in self.numeric:
                table[name] = np.nextafter(table[name].to_numpy(np.float32), np.float32(np.inf)).astype(np.float64)
            yield from self.come_and_go(table, self.y[row])

    def new_category(self) -> Iterator[float]:
        """Add a row with categories that no other row has, and delete it."""
        while self.categorical:
            row = self.some_row()
            table = self.copy(row)
            for name in self.categorical:
                table[name] = f"new {self.n_added}"
            yield from self.come_and_go(table, self.y[row])

    def target(self) -> Iterator[float]:
        """Add a row with a very large target, and delete it."""
        while self.is_regression:
            row = self.some_row()
            yield from self.come_and_go(self.copy(row), 1000.0 * float(np.abs(self.y).max()))

    def ids(self) -> Iterator[float]:
        """Try ids for one outlier, and use the dearest again."""
        while True:
            table, label = self.outlier(self.numeric), self.y[self.some_row()]
            tried = {f"try {self.n_added} {i}": 0.0 for i in range(TRIES)}
            for name in tried:
                tried[name] = sum(self.come_and_go(table, label, name))
            yield from self.come_and_go(table, label, max(tried, key=tried.__getitem__))

    def climbing(self) -> Iterator[float]:
        """Change an outlier in one column at a time, and keep what is dearer."""
        while True:
            best, label = self.outlier(self.numeric), self.y[self.some_row()]
            dearest = sum(self.come_and_go(best, label, "climber"))
            for _ in range(TRIES):
                other = best.copy()
                name = self.rng.choice(self.numeric)
                drawn = self.outlier([name]) if self.rng.random() < 0.5 else self.copy(self.some_row())
                other[name] = drawn[name]
                seconds = sum(self.come_and_go(other, label, "climber"))
                if seconds > dearest:
                    best, dearest = other, seconds
            yield from self.come_and_go(best, label, "climber")


ATTACKS: dict[str, Callable[[Attacker], Iterator[float]]] = {
    "extremes": Attacker.extremes,
    "one column": Attacker.one_column,
    "all columns": Attacker.all_columns,
    "duplicates": Attacker.duplicates,
    "boundaries": Attacker.boundaries,
    "new category": Attacker.new_category,
    "target": Attacker.target,
    "ids": Attacker.ids,
    "climbing": Attacker.climbing,
}


def first(n: int, costs: Iterator[float]) -> list[float]:
    """The first n of the costs; fewer when an attack does not apply."""
    return [cost for _, cost in zip(range(n), costs, strict=False)]


def attacked(target: Target, split: Split, rounds: int) -> Iterator[Row]:
    """Rows of the table of one data set."""
    attacker = Attacker(target, split, seed=0)
    first(3, attacker.random())  # caches and kernels
    common = float(np.mean(first(2 * rounds, attacker.random())))
    for name, attack in ATTACKS.items():
        costs = first(rounds, attack(attacker))
        if costs:
            mean = float(np.mean(costs))
            cells = shown(1e3 * common), shown(1e3 * mean), f"{max(costs) / attacker.fit_seconds:.1%}"
            yield Row((split.name, name, *cells), mean / common, target.mark if name in target.marked else None)


def section(name: str) -> Callable[[Attacks], Section]:
    """What attacks one kind of model."""

    def asked(bench: Attacks) -> Section:
        rows: list[Row] = []
        for data in SETS:
            split = load_split(data, bench.data, bench.cache, n_rows=bench.rows)
            if split.task == REGRESSION and TARGETS[name].regressor is None:
                continue
            rows += attacked(TARGETS[name], split, bench.rounds)
        text = TEXT.format(rows=bench.rows, rounds=bench.rounds)
        return Section(TARGETS[name].title, text, HEAD, rows)

    return asked


QUESTIONS = {name: section(name) for name in TARGETS}


def _add_rounds(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--rounds", type=int, default=20)


def main(arguments: Sequence[str] | None = None) -> None:
    """Ask the questions, print the tables, and write them when asked."""
    options = sections.parse(__doc__, list(QUESTIONS), arguments, _add_rounds)
    rounds, rows = (2, 500) if options.quick else (options.rounds, ROWS)
    sections.ask(QUESTIONS, Attacks(*sections.folders(options), rounds, rows), options)


if __name__ == "__main__":
    main()
