"""`quantization=None` beside the paper's straightforward GBDT, in batches (iGBDT, Tables 7 to 10)."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from benchmarks.boosting.datasets import Load, Split
from benchmarks.boosting.kinds import UNQUANTISED, names, unfitted
from benchmarks.boosting.straightforward import StraightforwardTrees
from benchmarks.boosting.updating import OPERATIONS
from benchmarks.results import Row, at_least, at_most
from benchmarks.timing import cpu_seconds, median, rounds_of

NAME = "presorted"
TITLE = "deleting and adding batches, not quantised"
TEXT = (
    "`incremental-boosting` with `quantization=None`, 1,000 trees of depth 3, rate 0.1: CPU time to delete a random "
    "batch and to add it back. Beside it are the straightforward GBDT of the paper, which sorts every column at "
    "every node (compiled as ours is) and grows the same trees from scratch, and our own fit of the samples held. "
    "Medians of the rounds; the straightforward one is measured once on the same samples. Digests are compared with "
    "our fresh fit after a delete, and with the straightforward model after an add and the first delete of a batch: "
    "*different* counts those that were not the same. Where most samples come or go the trees are grown from "
    "scratch. The fit of the samples held is the strictest comparison: it neither stores nor releases samples, "
    "which takes 1 to 5 ms of the largest batches."
)
HEAD = ("data:", "operation:", "batch:", "rounds", "ms", "beside:", "its ms", "different", "what:", "figure")
SETS = ("abalone", "wine", "purchase")
BATCHES = (300, 1_000, 3_000)
PARAMETERS: dict[str, Any] = {"n_estimators": 1_000, "max_depth": 3}
LEAST_SPEEDUP = 2.0
MOST_OF_FRESH = 1.05


@dataclass
class Outcome:
    """What the rounds gave for an operation and a batch."""

    straightforward: float = 0.0  # seconds on the same samples, once
    seconds: list[float] = field(default_factory=list)
    fresh: list[float] = field(default_factory=list)
    different: int = 0


@dataclass
class Found:
    """All outcomes on a set."""

    split: Split
    outcomes: dict[tuple[str, int], Outcome]


def measure(
    load: Load, sets: Sequence[str], rounds: int, budget: float, n_estimators: int = PARAMETERS["n_estimators"]
) -> list[Found]:
    """Delete and add back; no further round on a set when `budget` CPU seconds are used up."""
    found = []
    for name in sets:
        started = time.perf_counter()
        split = load(name, 0)
        UNQUANTISED.warm_up(split, max_depth=PARAMETERS["max_depth"])
        grow_straightforward(UNQUANTISED.fit(split, n_estimators=2))
        model = UNQUANTISED.fit(split, **{**PARAMETERS, "n_estimators": n_estimators})
        seconds, digest = grow_straightforward(model)
        batches = [batch for batch in BATCHES if batch < 0.95 * len(split)]
        one = Found(split, {(operation, b): Outcome(seconds) for b in batches for operation in OPERATIONS})
        rng = np.random.default_rng(1)
        rounds_of(lambda _, o=one, m=model, d=digest, r=rng: _one_round(o, m, d, r), rounds, budget)
        found.append(one)
        print(f"{name}: presorted, {time.perf_counter() - started:.0f} s", flush=True)
    return found


def grow_straightforward(model: Any) -> tuple[float, str]:
    """CPU seconds in which the straightforward GBDT grows trees on a model's samples, and the digest of these."""
    other = unfitted(model)
    other.begin(model.schema_, model.settings_, model.samples_.copy())
    other.engine_ = StraightforwardTrees(model.settings_)
    problem, slots = other.problem(), other.samples_.slots()
    return cpu_seconds(lambda: other.engine_.fit(problem, slots)), other.digest()


def _fresh(model: Any) -> tuple[float, str]:
    fresh, store = unfitted(model), model.samples_.copy()
    return cpu_seconds(lambda: fresh.fit_held(store)), fresh.digest()


def _one_round(found: Found, model: Any, whole: str, rng: np.random.Generator) -> None:
    split = found.split
    for batch in sorted({batch for _, batch in found.outcomes}):
        rows = rng.choice(len(split), batch, replace=False)
        gone, X, y = names(rows), split.table(rows), split.y[rows]
        deletes, adds = found.outcomes["delete", batch], found.outcomes["add", batch]
        deletes.seconds.append(cpu_seconds(lambda gone=gone: model.delete(gone)))
        seconds, digest = _fresh(model)
        deletes.fresh.append(seconds)
        deletes.different += model.digest() != digest
        if len(deletes.seconds) == 1:
            deletes.straightforward, digest = grow_straightforward(model)
            deletes.different += model.digest() != digest
        adds.seconds.append(cpu_seconds(lambda X=X, y=y, gone=gone: model.add(X, y, ids=gone)))
        adds.fresh.append(_fresh(model)[0])
        adds.different += model.digest() != whole


def rows(found: Sequence[Found]) -> list[Row]:
    """Two rows a set, operation and batch: beside the straightforward GBDT, and our own fit; one for the digests."""
    listed = []
    for one in found:
        for (operation, batch), outcome in one.outcomes.items():
            ours, fresh = median(outcome.seconds), median(outcome.fresh)
            cells = (one.split.name, operation, f"{batch:,}", str(len(outcome.seconds)), f"{1e3 * ours:.0f}")
            different = str(outcome.different)
            other = ("straightforward", f"{1e3 * outcome.straightforward:.0f}", different, "times faster")
            listed.append(Row((*cells, *other), outcome.straightforward / ours, at_least(LEAST_SPEEDUP)))
            share = median(mine / theirs for mine, theirs in zip(outcome.seconds, outcome.fresh, strict=True))
            own = ("own fit", f"{1e3 * fresh:.0f}", different, "share of its time")
            listed.append(Row((*cells, *own), share, at_most(MOST_OF_FRESH)))
        total = sum(outcome.different for outcome in one.outcomes.values())
        listed.append(Row((one.split.name, *[""] * 7, "digests different"), total, at_most(0)))
    return listed
