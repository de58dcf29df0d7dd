"""Quantised `incremental-boosting`: one sample or a batch less or more, the digest compared with a fresh fit."""

from __future__ import annotations

import math
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np

from benchmarks.boosting.datasets import HIGGS_LIKE, Load, Split
from benchmarks.boosting.kinds import INCREMENTAL, names, refit, unfitted
from benchmarks.boosting.peers import LIGHTGBM
from benchmarks.boosting.updating import OPERATIONS, batch_name, batch_size
from benchmarks.results import Mark, Row, at_least, at_most
from benchmarks.timing import cpu_seconds, median, timed

TIME_NAME, TOUCHED_NAME = "exact", "exact-touched"
TIME_TITLE = "exact updates"
TIME_TEXT = (
    "Quantised `incremental-boosting`, 100 trees of depth 5: CPU time of one `delete` or `add`. Single samples: the "
    "mean over random ones, each deleted and then added back, in four models with their own seeds, in turn. "
    "Batches: the median, each batch deleted and then added back. Beside it, medians: LightGBM of the same depth "
    "training from scratch, in turn with the updates; our own `fit(X, y)`; and our fit of the samples already held, "
    "which need not be checked and stored again. The last one is the strictest comparison. *Times faster* is the "
    "other's time divided by that of the update."
)
TIME_HEAD = ("data:", "operation:", "batch:", "mean over", "ms", "than:", "its ms", "times faster")
TOUCHED_TITLE = "what an exact update touches"
TOUCHED_TEXT = (
    "From the same updates. *Unchanged*: the share of the updates after which no leaf had another value. *First "
    "tree*: the first of all trees in which something changed, mean over the other updates. *Samples touched*: "
    "samples held whose gradients changed or that were in a rebuilt tree, as a share of samples x trees, mean. "
    "*Digests compared*: with a fresh fit on the same samples after the update. *Different*: how many of these were "
    "not the same."
)
TOUCHED_HEAD = (
    "data:",
    "operation:",
    "batch:",
    "updates",
    "unchanged %",
    "first tree",
    "of trees",
    "samples touched %",
    "digests compared",
    "different",
)
BATCHES = (0.0, 0.001, 0.01)  # shares of the training part; 0: one sample
MARKS: dict[str, tuple[Mark | None, Mark]] = {  # than LightGBM, than a fresh fit; one sample
    "adult": (at_least(4), at_least(8)),
    "adult-one-hot": (at_least(4), at_least(8)),
    HIGGS_LIKE: (at_least(10), at_least(20)),
    "california_housing": (None, at_least(8)),
    "letter": (None, at_least(5)),
    "covtype": (None, at_least(5)),
    "poker": (None, at_least(5)),
}
NO_MARKS: tuple[Mark | None, Mark] = (None, at_least(1))  # of all other sets: never slower than a fresh fit
COMPARED_EACH_TIME = ("adult", "adult-one-hot")
N_MODELS = 4


@dataclass
class Outcome:
    """What the updates of one kind gave; `touched` counts samples, once a tree."""

    seconds: list[float] = field(default_factory=list)
    unchanged: int = 0
    first_trees: list[int] = field(default_factory=list)
    touched: list[int] = field(default_factory=list)
    compared: int = 0
    different: int = 0

    def update(self, model: Any, work: Callable[[], object]) -> None:
        """Make an update and record its time and what it has touched."""
        self.seconds.append(cpu_seconds(work, collect=False))
        last = model.engine_.last_update
        n_grown = model.n_estimators - last.grown_from if last.grown_from >= 0 else 0  # iterations grown again
        self.touched.append(last.n_touched + n_grown * model.n_trees_ // model.n_estimators * model.n_samples_)
        if last.nothing_changed:
            self.unchanged += 1
        else:
            self.first_trees.append(last.first_tree)

    def compare(self, digest: str, expected: str) -> None:
        """Record a comparison."""
        self.compared += 1
        self.different += digest != expected


@dataclass
class Found:
    """All outcomes on a set."""

    split: Split
    n_trees: int
    outcomes: dict[tuple[str, float], Outcome] = field(default_factory=lambda: defaultdict(Outcome))
    lightgbm: list[float] = field(default_factory=list)
    fits: list[float] = field(default_factory=list)
    fresh: list[float] = field(default_factory=list)  # fits of the samples held

    def seconds(self, operation: str, batch: float) -> float:
        """Time of an operation: the mean of single samples, the median of batches."""
        values = self.outcomes[operation, batch].seconds
        return median(values) if batch else sum(values) / len(values)


def measure(
    load: Load, sets: Sequence[str], rounds: int, n_singles: int, budget: float, digest_every: int | None = None
) -> list[Found]:
    """Update and compare.

    Parameters
    ----------
    load, sets
        Where the sets come from, and which.
    rounds
        Of batches, and fits of LightGBM.
    n_singles
        Samples deleted and added back one at a time.
    budget
        CPU seconds that fresh fits of a set may take about; and after which no further single update begins.
    digest_every
        After how many deletes of one sample the digest is compared with a fresh fit; as many as `budget` has room
        for when omitted. After each add it is compared with that of the fit on all samples.
    """
    found = []
    for name in sets:
        started = time.perf_counter()
        split = load(name, 0)
        INCREMENTAL.warm_up(split)
        seconds, model = timed(lambda split=split: INCREMENTAL.fit(split))
        models = [model, *(INCREMENTAL.fit(split, seed=seed) for seed in range(1, N_MODELS))]
        one = Found(split, model.n_trees_, fits=[seconds])
        one.fresh += [fresh_seconds(model) for _ in range(min(rounds, 2))]
        affordable = max(1, math.ceil(n_singles * median(one.fresh) / budget))
        every = digest_every or (1 if name in COMPARED_EACH_TIME else affordable)
        rng = np.random.default_rng(1)
        _singles(one, models, rng, rounds, n_singles, every, budget)
        _batches(one, model, rng, rounds, budget)
        found.append(one)
        print(f"{name}: exact updates, {time.perf_counter() - started:.0f} s", flush=True)
    return found


def fresh_seconds(model: Any) -> float:
    """CPU seconds of a fit of the samples that a model holds."""
    store, fresh = model.samples_.copy(), unfitted(model)
    return cpu_seconds(lambda: fresh.fit_held(store))


def _singles(
    found: Found, models: Sequence[Any], rng: np.random.Generator, rounds: int, n: int, every: int, budget: float
) -> None:
    split, digests = found.split, [model.digest() for model in models]
    rows = rng.choice(len(split), min(n, len(split)), replace=False)
    updating = 0.0
    for number, table in enumerate(split.one_row_tables(rows)):
        if number % max(1, n // rounds) == 0:
            found.lightgbm.append(cpu_seconds(LIGHTGBM.train(split, LIGHTGBM.view(split), INCREMENTAL.shape).fit))
        row = rows[number : number + 1]
        model, whole = models[number % len(models)], digests[number % len(models)]
        (name,), label = names(row), split.y[row]
        deletes, adds = found.outcomes["delete", 0.0], found.outcomes["add", 0.0]
        deletes.update(model, partial(model.delete, name))
        if number % every == 0:
            deletes.compare(model.digest(), refit(model).digest())
        adds.update(model, partial(model.add, table, label, ids=[name]))
        adds.compare(model.digest(), whole)
        updating += deletes.seconds[-1] + adds.seconds[-1]
        if updating > budget:
            break


def _batches(found: Found, model: Any, rng: np.random.Generator, rounds: int, budget: float) -> None:
    split, whole = found.split, model.digest()
    started = time.process_time()
    for number in range(rounds):
        if number and time.process_time() - started > budget:
            break
        found.fits.append(cpu_seconds(lambda: INCREMENTAL.fit(split)))
        found.fresh.append(fresh_seconds(model))
        for batch in BATCHES[1:]:
            rows = rng.choice(len(split), batch_size(split, batch), replace=False)
            gone, X, y = names(rows), split.table(rows), split.y[rows]
            deletes, adds = found.outcomes["delete", batch], found.outcomes["add", batch]
            deletes.update(model, lambda gone=gone: model.delete(gone))
            deletes.compare(model.digest(), refit(model).digest())
            adds.update(model, lambda X=X, y=y, gone=gone: model.add(X, y, ids=gone))
            adds.compare(model.digest(), whole)


def time_rows(found: Sequence[Found]) -> list[Row]:
    """Three rows a set, operation and batch: beside LightGBM, and beside both ways of our own fit."""
    rows = []
    for one in found:
        for batch in BATCHES:
            lightgbm, fresh = MARKS.get(one.split.name, NO_MARKS) if batch == 0.0 else NO_MARKS
            others = (
                ("LightGBM", median(one.lightgbm), lightgbm),
                ("fit(X, y)", median(one.fits), None),
                ("fit of the samples held", median(one.fresh), fresh),
            )
            for operation in OPERATIONS:
                seconds = one.seconds(operation, batch)
                n_updates = len(one.outcomes[operation, batch].seconds)
                cells = (one.split.name, operation, batch_name(one.split, batch), f"{n_updates}")
                rows += [
                    Row((*cells, f"{1e3 * seconds:.2f}", other, f"{1e3 * theirs:.0f}"), theirs / seconds, mark)
                    for other, theirs, mark in others
                ]
    return rows


def touched_rows(found: Sequence[Found]) -> list[Row]:
    """One row a set, operation and batch."""
    rows = []
    for one in found:
        for (operation, batch), outcome in one.outcomes.items():
            n = len(outcome.seconds)
            share = sum(outcome.touched) / n / one.n_trees / len(one.split)
            first = sum(outcome.first_trees) / len(outcome.first_trees) if outcome.first_trees else None
            cells = (
                one.split.name,
                operation,
                batch_name(one.split, batch),
                str(n),
                f"{100 * outcome.unchanged / n:.0f}",
                "" if first is None else f"{first:.0f}",
                str(one.n_trees),
                f"{100 * share:.2f}",
                str(outcome.compared),
            )
            rows.append(Row(cells, outcome.different, at_most(0)))
    return rows
