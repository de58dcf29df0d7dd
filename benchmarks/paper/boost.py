"""Sequential boost: samples unlearned in the time of one naive retraining (the paper's Figure 4)."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np

from benchmarks.paper.figures import COLOURS, figure
from benchmarks.paper.sets import Split
from benchmarks.results import Row
from benchmarks.timing import cpu_seconds, median, rounds_of

NAME = "boost"
TITLE = "sequential boost"
TEXT = (
    "Samples unlearned one by one, without laziness (`lazy=False`), in the CPU time of one naive retraining. As in "
    "the paper, naive retraining is our own forest with q = 1 and otherwise the parameters of `fast`. *ExtraTrees*, "
    "*RandomForest*: the same in the time in which scikit-learn's forests retrain (100 trees of the same depth and "
    "minimum split; 10 on higgs-like). At most half of the samples are deleted; the count is extrapolated from "
    "there. Medians of the rounds."
)
HEAD = (
    "data:",
    "rows",
    "q",
    "rounds",
    "one retraining s",
    "one delete ms",
    "in ExtraTrees'",
    "in RandomForest's",
    "boost",
)
SETS = ("purchase", "adult", "electricity", "heart", "covtype", "higgs-like")
HIGGS_ROWS = 100_000
SHARES = (0.1, 0.2)


@dataclass(frozen=True)
class Found:
    """Medians on a data set: seconds of retraining by system, and of one delete by q."""

    name: str
    n_rows: int
    retraining: float
    peers: dict[str, float]
    deletes: dict[float, float]
    n_rounds: int

    def boost(self, q: float) -> float:
        """Samples unlearned in the time of one retraining."""
        return self.retraining / self.deletes[q]


def measure(load: Callable[[str, int], Split], sets: Sequence[str], rounds: int, budget: float) -> list[Found]:
    """Retrain and delete; no further round of a set begins when `budget` CPU seconds are used up."""
    return [_one_set(load(name, 0), rounds, budget) for name in sets]


def _one_set(split: Split, rounds: int, budget: float) -> Found:
    _warm_up(split)
    measured = rounds_of(partial(_one_round, split), rounds, budget)
    return Found(
        split.name,
        len(split.y),
        median(one.retraining for one in measured),
        {name: median(one.peers[name] for one in measured) for name in measured[0].peers},
        {q: median(one.deletes[q] for one in measured) for q in SHARES},
        len(measured),
    )


def _one_round(split: Split, seed: int) -> Found:
    retraining = cpu_seconds(partial(split.forest(seed, occurrence=1.0).fit, split.X, split.y))
    peers = {
        name: cpu_seconds(partial(estimator.fit, split.X, split.y)) for name, estimator in split.peers(seed).items()
    }
    deletes = {q: _one_delete(split, q, seed, retraining) for q in SHARES}
    return Found(split.name, len(split.y), retraining, peers, deletes, 1)


def _warm_up(split: Split) -> None:
    for q in (*SHARES, 1.0):
        small = split.forest(occurrence=q, lazy=False).fit(split.X[:1000], split.y[:1000])
        small.delete("0")


def _one_delete(split: Split, q: float, seed: int, limit: float) -> float:
    """CPU seconds of one delete, averaged over as many as take `limit` seconds, at most half of the samples."""
    forest = split.forest(seed, occurrence=q, lazy=False).fit(split.X, split.y)
    order = np.random.default_rng(seed).permutation(len(split.y))[: len(split.y) // 2]
    started = time.process_time()
    done = 0
    for i in map(str, order.tolist()):
        forest.delete(i)
        done += 1
        if time.process_time() - started >= limit:
            break
    return (time.process_time() - started) / done


def rows(found: Sequence[Found]) -> list[Row]:
    """One row a set and q."""
    return [
        Row(
            (
                one.name,
                f"{one.n_rows:,}",
                f"{q:g}",
                str(one.n_rounds),
                f"{one.retraining:.2f}",
                f"{1e3 * seconds:.3f}",
                *(f"{one.peers[peer] / seconds:,.0f}" for peer in ("ExtraTrees", "RandomForest")),
            ),
            one.boost(q),
        )
        for one in found
        for q, seconds in one.deletes.items()
    ]


def draw(found: Sequence[Found], path: Path) -> None:
    """Bars of the boost, by set and by what is retrained."""
    titles = [f"q = {q:g}" for q in SHARES]
    with figure(path, titles, "", "samples unlearned in one retraining") as axes:
        for axis, q in zip(axes, SHARES, strict=True):
            places = np.arange(len(found))
            bars = {
                "oubli, q = 1": ([one.boost(q) for one in found], COLOURS["oubli"]),
                **{
                    f"scikit-learn {peer}": ([one.peers[peer] / one.deletes[q] for one in found], COLOURS[peer])
                    for peer in ("ExtraTrees", "RandomForest")
                },
            }
            for number, (label, (values, colour)) in enumerate(bars.items()):
                axis.bar(places + 0.27 * (number - 1), values, 0.25, color=colour, label=f"retraining: {label}")
            axis.set_yscale("log")
            axis.set_ylim(bottom=1)
            axis.set_xticks(places, [one.name for one in found], rotation=30, ha="right")
