"""The cost of deletes and adds one at a time, lazily and eagerly, and how many fit into one training of the peer."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from benchmarks.problems import Problem
from benchmarks.results import Mark, Row, at_least, at_most
from benchmarks.timing import cpu_seconds, median, per_call, rounds_of
from oubli.core import DynamicForestClassifier

TITLE = "One delete, one add"
TEXT = (
    "CPU time of one `delete(id)` or `add(X, y, ids=[id])` of one random sample from Python. *Lazily*: the mean "
    "over the number of samples in the table, one after the other. *Owed*: the `resolve()` that follows, which does "
    "the deferred work, divided by their number. *Eagerly*: each is followed by its own `resolve()`. *In a peer "
    "fit*: how many operations fit into the time in which the peer of the training table fits once. Medians of the "
    "rounds. The samples added are those deleted before."
)
HEAD = ("data:", "setting:", "operation:", "rounds", "mean over", "ms", "in a peer fit")
SHARES_TITLE = "What laziness saves"
SHARES_TEXT = (
    "From the same rounds: lazy deletes together with the deferred work, as a share of the same number of eager "
    "deletes; and the eager rate as a share of the lazy rate."
)
SHARES_HEAD = ("data:", "setting:", "figure:", "share")
LAZY_IN_PEER_FIT = {"higgs-like": 100_000, "adult-one-hot": 50_000}
EAGER_SHARE_OF_LAZY_RATE = 0.05
SHARE_OWED = {"higgs-like": 0.2, "adult-one-hot": 0.5}
FEWEST_EAGER = 20


@dataclass(frozen=True)
class Round:
    """Seconds of one operation of each kind, in one round; `n_eager` deletes were made eagerly."""

    lazy_delete: float
    owed_by_delete: float
    lazy_add: float
    owed_by_add: float
    eager_delete: float
    eager_add: float
    n_eager: int


@dataclass(frozen=True)
class Mutations:
    """The rounds on one model, of `n` lazy operations each."""

    rounds: tuple[Round, ...]
    n: int

    def seconds(self, operation: str) -> float:
        """The median of an operation."""
        return median(getattr(found, operation) for found in self.rounds)

    @property
    def n_eager(self) -> int:
        """The fewest eager operations of a round."""
        return min(found.n_eager for found in self.rounds)

    @property
    def delete_share(self) -> float:
        """Lazy deletes with what they owe, by eager ones."""
        return median((r.lazy_delete + r.owed_by_delete) / r.eager_delete for r in self.rounds)

    @property
    def add_share(self) -> float:
        """Lazy adds with what they owe, by eager ones."""
        return median((r.lazy_add + r.owed_by_add) / r.eager_add for r in self.rounds)

    @property
    def eager_rate_share(self) -> float:
        """The rate of eager deletes by that of lazy ones."""
        return median(r.lazy_delete / r.eager_delete for r in self.rounds)


def measure(problem: Problem, forest: DynamicForestClassifier, n: int, rounds: int, budget: float) -> Mutations:
    """Delete and add; the model ends with the samples it had.

    Parameters
    ----------
    n
        Operations a round.
    rounds
        Rounds; no further one begins when `budget` CPU seconds are used up. Eager deletes and eager adds stop after
        half of a round's share each.
    """
    random = np.random.default_rng(1)

    def one_round(_: int) -> Round:
        indices = random.choice(len(problem.y), 2 * n, replace=False)
        return _round(problem, forest, indices[:n], indices[n:], budget / rounds / 2)

    return Mutations(tuple(rounds_of(one_round, rounds, budget)), n)


def _round(problem: Problem, forest: DynamicForestClassifier, lazily: Any, eagerly: Any, eager_budget: float) -> Round:
    forest.resolve()
    deletes, adds = deletes_of(forest, lazily), adds_of(problem, forest, lazily)
    lazy_delete = per_call(_call, deletes)
    owed_by_delete = cpu_seconds(forest.resolve) / len(deletes)
    lazy_add = per_call(_call, adds)
    owed_by_add = cpu_seconds(forest.resolve) / len(adds)
    deletes, adds = deletes_of(forest, eagerly), adds_of(problem, forest, eagerly)
    eager_delete, n_eager = _eagerly(forest, deletes, eager_budget)
    eager_add, n_added = _eagerly(forest, adds[:n_eager], eager_budget)
    for add in adds[n_added:n_eager]:
        add()
    forest.resolve()
    return Round(lazy_delete, owed_by_delete, lazy_add, owed_by_add, eager_delete, eager_add, n_eager)


def _call(work: Callable[[], object]) -> None:
    work()


def deletes_of(forest: DynamicForestClassifier, indices: Any) -> list[Callable[[], object]]:
    """One call for each training row, that deletes it."""
    return [partial(forest.delete, str(i)) for i in indices.tolist()]


def adds_of(problem: Problem, forest: DynamicForestClassifier, indices: Any) -> list[Callable[[], object]]:
    """One call for each training row, that adds it again under its id."""
    rows = problem.rows(indices)
    return [
        partial(forest.add, row, problem.y[i : i + 1], ids=[str(i)])
        for row, i in zip(rows, indices.tolist(), strict=True)
    ]


def _eagerly(
    forest: DynamicForestClassifier, operations: Sequence[Callable[[], object]], budget: float
) -> tuple[float, int]:
    """Seconds of an operation with its `resolve`, on average, and how many were done."""
    done = 0
    started = time.process_time()
    for operation in operations:
        operation()
        forest.resolve()
        done += 1
        if done >= FEWEST_EAGER and time.process_time() - started > budget:
            break
    return (time.process_time() - started) / done, done


def rows(problem: Problem, setting: str, mutations: Mutations, peer_fit: float) -> list[Row]:
    """One row an operation."""
    lazy: Mark | None = None
    eager: Mark | None = None
    if setting == "fast" and problem.name in LAZY_IN_PEER_FIT:
        lazy = at_least(LAZY_IN_PEER_FIT[problem.name])
        eager = at_least(EAGER_SHARE_OF_LAZY_RATE * LAZY_IN_PEER_FIT[problem.name])
    found = []
    for label, operation, n, mark in (
        ("delete, lazily", "lazy_delete", mutations.n, lazy),
        ("owed by a delete", "owed_by_delete", mutations.n, None),
        ("add, lazily", "lazy_add", mutations.n, lazy),
        ("owed by an add", "owed_by_add", mutations.n, None),
        ("delete, eagerly", "eager_delete", mutations.n_eager, eager),
        ("add, eagerly", "eager_add", mutations.n_eager, eager),
    ):
        seconds = mutations.seconds(operation)
        cells = (problem.name, setting, label, str(len(mutations.rounds)), f"{n:,}", f"{1e3 * seconds:.4f}")
        found.append(Row(cells, peer_fit / seconds, mark))
    return found


def share_rows(problem: Problem, setting: str, mutations: Mutations) -> list[Row]:
    """What lazy deletes and adds save."""
    owed: Mark | None = None
    rate: Mark | None = None
    if setting == "fast" and problem.name in SHARE_OWED:
        owed, rate = at_most(SHARE_OWED[problem.name]), at_least(EAGER_SHARE_OF_LAZY_RATE)
    return [
        Row((problem.name, setting, "(lazy + owed) / eager, delete"), mutations.delete_share, owed),
        Row((problem.name, setting, "(lazy + owed) / eager, add"), mutations.add_share),
        Row((problem.name, setting, "eager rate / lazy rate, delete"), mutations.eager_rate_share, rate),
    ]
