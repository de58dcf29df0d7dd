"""Boosting on presorted columns beside the straightforward GBDT: Tables 7 to 11 of the iGBDT paper.

    python -m benchmarks.bench_igbdt --data ../shared/data [--quick] [--only depth checking]

`quantization=None` adds batches; the straightforward GBDT (`boosting/straightforward.py`) and our own fit grow the
same trees from scratch. CPU time of one thread, everything compiled before, all three in the same run and in turn. The
trees of all three are compared every time. Class values are regressed with least squares, as in the paper.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from benchmarks import sections
from benchmarks.boosting.datasets import load_split
from benchmarks.boosting.straightforward import StraightforwardTrees
from benchmarks.problems import one_hot
from benchmarks.results import Row, at_least, at_most
from benchmarks.sections import Section, ask, folders, parse
from benchmarks.timing import cpu_seconds, median, rounds_of
from oubli.core import IncrementalBoostingRegressor
from oubli.core.boosting.engine import tree_digests
from oubli.core.boosting.incremental.parameters import IncrementalSettings, read_settings
from oubli.core.boosting.predict import raw_scores
from oubli.core.boosting.presorted.engine import PresortedTrees
from oubli.core.boosting.state import Trees
from oubli.core.data.schema import Schema
from oubli.core.samples.arrays import Data, Problem

SETS = ("abalone", "wine", "optdigits", "pendigits", "letter")
LARGE = ("letter",)  # larger batches, as in the paper
SMALL_BATCHES = (300, 400, 500)
LARGE_BATCHES = (1_000, 2_000, 3_000)
N_TREES = 1_000
DEPTH = 3
RATE = 0.1
SHARE_BEFORE = 0.6  # of the training rows that are held before a batch comes
LEAST_SPEEDUP = 2.0
MOST_OF_FRESH = 1.05

HEAD = ("data:", "rows", "columns", "R2", "what:", "batch ms", "straightforward ms", "own fit ms", "different",
        "beside:", "figure")  # fmt: skip
TEXT = (
    "60 % of the training rows are held and a batch is added: CPU time of the update, of the straightforward GBDT "
    "and of our own fit on all of them, sorting included. {what} Medians of up to {rounds} rounds with other rows. "
    "*Different* counts the rounds in which the three did not grow the same trees, bit for bit. R2 is that of the "
    "test part."
)
CHECKING_HEAD = ("data:", "batch:", "nodes kept", "nodes changed", "rebuild position", "update ms",
                 "straightforward ms", "different", "times faster")  # fmt: skip
CHECKING_TEXT = (
    "A fifth of the training rows is held, and batches are added one after the other (300 rows; 1,000 of letter). "
    "Of 1,000 trees of depth 3: the nodes whose best column is the same as before, below other such nodes (*kept*); "
    "the nodes below them where it is another (*changed*); and the number of the first tree whose root changed "
    "(*rebuild position*). The times are those of the trees before it: ours to merge the batch and check the trees, "
    "the straightforward GBDT's to build them."
)


@dataclass(frozen=True)
class Rows:
    """A data set as numbers."""

    name: str
    problem: Problem
    X_test: npt.NDArray[np.float32]
    y_test: npt.NDArray[np.float64]

    def __len__(self) -> int:
        """Number of training rows."""
        return len(self.problem.y)

    @property
    def batches(self) -> tuple[int, ...]:
        """Sizes of batches."""
        return LARGE_BATCHES if self.name in LARGE else SMALL_BATCHES

    def explained(self, trees: Trees) -> float:
        """R2 of the test part."""
        scores = np.empty((len(self.y_test), 1))
        raw_scores(trees.nodes, trees.roots, trees.base, trees.unit, self.X_test, np.zeros(0, np.uint64), scores)
        return float(1 - ((scores[:, 0] - self.y_test) ** 2).sum() / ((self.y_test - self.y_test.mean()) ** 2).sum())


@dataclass
class Outcome:
    """What the rounds gave for some parameters."""

    seconds: list[tuple[float, float, float]] = field(default_factory=list)  # update, straightforward, own fit
    different: int = 0
    explained: float = 0.0


def load_rows(name: str, data: Path, cache: Path, n_rows: int | None) -> Rows:
    """Read a data set; categories one-hot, classes as numbers."""
    split = load_split(name, data, cache, 0, n_rows)
    n = len(split)
    both = pd.concat([split.X, split.X_test]) if isinstance(split.X, pd.DataFrame) else None
    X, X_test = (split.X, split.X_test) if both is None else np.split(one_hot(both), [n])
    cells = np.ascontiguousarray(X, np.float32)
    nothing = np.zeros(cells.shape[1], np.bool_)
    held = Data(cells, np.zeros(n, np.int64), np.arange(n, dtype=np.uint64), np.zeros(0, np.uint64), nothing)
    y = np.asarray(split.y, np.float64)
    none = np.zeros(0, np.int64)
    ranks, all_held, units = np.zeros(1, np.int32), np.ones(n, np.bool_), np.zeros(0, np.int32)
    problem = Problem(held, ranks, 0, y, all_held, n, np.zeros(1, np.int64), none, units, is_whole=True)
    return Rows(name, problem, np.ascontiguousarray(X_test, np.float32), np.asarray(split.y_test, np.float64))


def settings_of(n_trees: int, depth: int = DEPTH, rate: float = RATE) -> IncrementalSettings:
    """The paper's parameters: no regularisation, every row weighs one."""
    model = IncrementalBoostingRegressor(
        n_trees, learning_rate=rate, max_depth=depth, l2_regularization=0.0, quantization=None, random_state=0
    )
    return read_settings(model.get_params(), Schema.infer(np.zeros((2, 1)), [0.0, 1.0], task=model.task))


def engine_of(rows: Rows, settings: IncrementalSettings) -> PresortedTrees:
    """Ours, without samples."""
    cells = rows.problem.data.cells
    return PresortedTrees(settings, cells.shape[1], cells.dtype, rows.problem.data.categorical, False)


def digest_of(trees: Trees) -> Any:
    """The digest, base and unit, which tell trees apart."""
    return tree_digests(trees), trees.base.tolist(), trees.unit


def one_round(rows: Rows, settings: IncrementalSettings, batch: int, seed: int, outcome: Outcome) -> None:
    """One batch, and the same trees grown from scratch twice."""
    order = np.random.default_rng(seed).permutation(len(rows))
    n_before = min(int(SHARE_BEFORE * len(rows)), len(rows) - batch)
    before, slots = order[:n_before], order[: n_before + batch]
    ours, fresh, theirs = engine_of(rows, settings), engine_of(rows, settings), StraightforwardTrees(settings)
    ours.fit(rows.problem, before)
    update = cpu_seconds(lambda: ours.add(rows.problem, slots[n_before:]))
    own = cpu_seconds(lambda: fresh.fit(rows.problem, slots))
    straightforward = cpu_seconds(lambda: theirs.fit(rows.problem, slots))
    outcome.seconds.append((update, straightforward, own))
    outcome.different += len({str(digest_of(engine.trees)) for engine in (ours, fresh, theirs)}) > 1
    outcome.explained = rows.explained(ours.trees)


def table_rows(rows: Rows, what: str, outcome: Outcome) -> list[Row]:
    """Two rows: beside the straightforward GBDT, and beside our own fit."""
    update, straightforward, own = (median(times) for times in zip(*outcome.seconds, strict=True))
    faster = median(theirs / mine for mine, theirs, _ in outcome.seconds)
    share = median(mine / fresh for mine, _, fresh in outcome.seconds)
    cells = (rows.name, f"{len(rows):,}", str(rows.problem.data.cells.shape[1]), f"{outcome.explained:.3f}", what)
    times = tuple(f"{1e3 * seconds:,.0f}" for seconds in (update, straightforward, own))
    return [
        Row((*cells, *times, str(outcome.different), "times faster"), faster, at_least(LEAST_SPEEDUP)),
        Row((*cells, *times, str(outcome.different), "share of own fit"), share, at_most(MOST_OF_FRESH)),
    ]


@dataclass(frozen=True)
class Sizes:
    """How much is measured."""

    n_rows: int | None  # of a set; None: all
    n_trees: int
    rounds: int
    budget: float  # CPU seconds after which no further round of a measurement begins


FULL = Sizes(None, N_TREES, 5, 20.0)
QUICK = Sizes(2_000, 20, 1, 5.0)


@dataclass(frozen=True)
class Bench(sections.Bench):
    """The questions."""

    group = "igbdt"

    sizes: Sizes

    def sets(self) -> Iterable[Rows]:
        """Read the sets, one after the other, compile what they need."""
        for name in SETS:
            rows = load_rows(name, self.data, self.cache, self.sizes.n_rows)
            one_round(rows, settings_of(2), rows.batches[0] // 2, 0, Outcome())
            yield rows

    def compare(self, title: str, what: str, cases: Callable[[Rows], Sequence[tuple[str, int, Any]]]) -> Section:
        """Measure each set with each of some cases: what it is called, the batch, the settings."""
        listed: list[Row] = []
        for rows in self.sets():
            for name, batch, settings in cases(rows):
                outcome = Outcome()
                rounds_of(
                    lambda seed, b=batch, s=settings, o=outcome, r=rows: one_round(r, s, b, seed, o),
                    self.sizes.rounds,
                    self.sizes.budget,
                )
                listed += table_rows(rows, name, outcome)
                print(f"{rows.name}, {name}: {len(outcome.seconds)} rounds", flush=True)
        return Section(title, TEXT.format(what=what, rounds=self.sizes.rounds), HEAD, listed)

    def batch_size(self) -> Section:
        """Tables 7 and 8."""
        n_trees = self.sizes.n_trees

        def cases(rows: Rows) -> list[tuple[str, int, Any]]:
            return [(f"batch {batch:,}", batch, settings_of(n_trees)) for batch in rows.batches]

        return self.compare("the size of batches", f"{n_trees:,} trees of depth {DEPTH}, rate {RATE}.", cases)

    def rate(self) -> Section:
        """Table 9."""
        n_trees = self.sizes.n_trees

        def cases(rows: Rows) -> list[tuple[str, int, Any]]:
            return [(f"rate {rate}", rows.batches[-1], settings_of(n_trees, rate=rate)) for rate in (0.1, 0.2, 0.3)]

        return self.compare(
            "the learning rate", f"{n_trees:,} trees of depth {DEPTH}; batches of 500, of letter 3,000.", cases
        )

    def depth(self) -> Section:
        """Table 10."""
        n_trees = self.sizes.n_trees

        def cases(rows: Rows) -> list[tuple[str, int, Any]]:
            return [(f"depth {depth}", rows.batches[-1], settings_of(n_trees, depth)) for depth in (3, 4, 5)]

        return self.compare("the depth", f"{n_trees:,} trees, rate {RATE}; batches of 500, of letter 3,000.", cases)

    def trees(self) -> Section:
        """The number of trees, in Tables 7 to 10."""

        def cases(rows: Rows) -> list[tuple[str, int, Any]]:
            counts = [self.sizes.n_trees // 2, self.sizes.n_trees, 2 * self.sizes.n_trees]
            return [(f"{count:,} trees", rows.batches[0], settings_of(count)) for count in counts]

        return self.compare(
            "the number of trees", f"Depth {DEPTH}, rate {RATE}; batches of 300, of letter 1,000.", cases
        )

    def checking(self) -> Section:
        """Table 11."""
        listed: list[Row] = []
        for rows in self.sets():
            listed += checked(rows, self.sizes.n_trees)
            print(f"{rows.name}: checking", flush=True)
        return Section("what a batch changes", CHECKING_TEXT, CHECKING_HEAD, listed)


def checked(rows: Rows, n_trees: int) -> list[Row]:
    """The first, the middle and the last batch but one: what they changed, and the time of the trees before that."""
    settings, batch = settings_of(n_trees), rows.batches[0]
    order = np.random.default_rng(0).permutation(len(rows))
    edges = list(range(len(rows) // 5, len(rows), batch))
    shown = {0: "first", len(edges) // 2: "middle", max(len(edges) - 3, 0): "last but one"}
    engine, listed = engine_of(rows, settings), []
    engine.fit(rows.problem, order[: edges[0]])
    for number, (start, end) in enumerate(pairwise(edges)):
        engine.add(rows.problem, order[start:end])
        if number in shown:
            update = engine.last_update
            n_checked = n_trees if update.first_tree_changed < 0 else update.first_tree_changed
            mine, theirs, different = time_of(rows, max(n_checked, 1), order[:start], order[:end])
            kept = (f"{update.nodes_kept:,}", f"{update.nodes_changed:,}", str(n_checked + 1))
            times = (f"{1e3 * mine:,.1f}", f"{1e3 * theirs:,.0f}", str(int(different)))
            listed.append(Row((rows.name, shown[number], *kept, *times), theirs / mine))
    return listed


def time_of(rows: Rows, n_trees: int, before: Any, slots: Any) -> tuple[float, float, bool]:
    """Seconds in which we update the first trees and the straightforward GBDT builds them; whether these differ."""
    settings = settings_of(n_trees)
    engine, other = engine_of(rows, settings), StraightforwardTrees(settings)
    engine.fit(rows.problem, before)
    mine = cpu_seconds(lambda: engine.add(rows.problem, slots[len(before) :]))
    theirs = cpu_seconds(lambda: other.fit(rows.problem, slots))
    return mine, theirs, digest_of(engine.trees) != digest_of(other.trees)


QUESTIONS: dict[str, Callable[[Bench], Section]] = {
    "batch-size": Bench.batch_size,
    "rate": Bench.rate,
    "depth": Bench.depth,
    "trees": Bench.trees,
    "checking": Bench.checking,
}


def main(arguments: Sequence[str] | None = None) -> None:
    """Run, print the tables, and write them when asked."""
    options = parse(__doc__, list(QUESTIONS), arguments)
    bench = Bench(*folders(options), QUICK if options.quick else FULL)
    ask(QUESTIONS, bench, options)


if __name__ == "__main__":
    main()
