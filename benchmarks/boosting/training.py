"""Test error and time of training from scratch, beside LightGBM, XGBoost and CatBoost (Table 6 of Online GBDT)."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial

from benchmarks.apart import in_a_process
from benchmarks.boosting.datasets import REGRESSION, Load, Split
from benchmarks.boosting.kinds import Kind
from benchmarks.boosting.peers import LIGHTGBM, Peer
from benchmarks.results import Row, at_most
from benchmarks.timing import cpu_seconds, median, rounds_of, timed

ERROR_NAME, TIME_NAME = "error", "training"
ERROR_TITLE = "test error, trained from scratch"
ERROR_TEXT = (
    "100 trees (per class where there are several classes), learning rate 0.1. `online-boosting` and the peers "
    "beside it grow 20 leaves best first; `incremental-boosting` and the peers beside it grow to depth 5; "
    "everything else is at everybody's defaults. Each library takes categories natively; in `adult-one-hot` they "
    "are one-hot for all. Test error is 1 - accuracy, or the mean squared error (house values in units of 100,000 "
    "dollars): the mean over the rounds, each with its own seed and, where no split is given, its own split, the "
    "same for all. *Gap* is our error minus that of the best peer, in points: 100 x share of wrong classes, or 100 "
    "x R2 for numbers."
)
TIME_TITLE = "training time"
TIME_TEXT = (
    "From the same runs: CPU seconds to fit, one thread, median of the rounds, compiled before. *Trees alone* is "
    "training on samples that are already held; our `fit` also checks and stores them, which a peer's does not. "
    "*Ratio* is our time divided by LightGBM's of the same round, median. Each fit comes after those of other "
    "libraries, with cold caches; each set has a process of its own."
)
MOST_GAP = 0.3
MOST_TIME = 1.5
OURS = "oubli"
TREES = "trees alone"


@dataclass
class Found:
    """What the rounds gave for a set and a kind: errors and seconds by system."""

    split: Split
    kind: Kind
    errors: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    seconds: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))

    def error(self, system: str) -> float:
        """The mean error."""
        return sum(self.errors[system]) / len(self.errors[system])

    def gap(self) -> float:
        """Our error less the best peer's, in points."""
        best = min(self.error(system) for system in self.errors if system != OURS)
        return self.split.points(self.error(OURS) - best)

    def ratio(self) -> float:
        """Our time by LightGBM's."""
        pairs = zip(self.seconds[OURS], self.seconds[LIGHTGBM.name], strict=True)
        return median(ours / theirs for ours, theirs in pairs)


def measure(
    load: Load, sets: Sequence[str], kinds: Sequence[Kind], peers: Sequence[Peer], rounds: int, budget: float
) -> list[Found]:
    """Train everybody in turn, each set in a process of its own; see `measure_set`."""
    found: list[Found] = []
    for name in sets:
        found += in_a_process(partial(measure_set, load, name, kinds, peers, rounds, budget))
    return found


def measure_set(
    load: Load, name: str, kinds: Sequence[Kind], peers: Sequence[Peer], rounds: int, budget: float
) -> list[Found]:
    """Train everybody in turn; no further round when `budget` CPU seconds are used up.

    Where that leaves fewer rounds than wanted, ours and LightGBM's are timed again within as much time.
    """
    started = time.perf_counter()
    split = load(name, 0)
    found = [Found(split, kind) for kind in kinds]
    for kind in kinds:
        kind.warm_up(split)

    def one_round(seed: int) -> None:
        held = load(name, seed) if seed else split
        for one in found:
            _one_round(held, one, peers, seed)

    done = len(rounds_of(one_round, rounds, budget))
    for one in found:
        rounds_of(lambda _, one=one: _time_again(one), rounds - done, budget / 2) if done < rounds else None
    print(f"{name}: trained, {time.perf_counter() - started:.0f} s", flush=True)
    return found


def _one_round(split: Split, found: Found, peers: Sequence[Peer], seed: int) -> None:
    for peer in peers:
        trained = peer.train(split, peer.view(split), found.kind.shape, seed=seed)
        found.seconds[peer.name].append(cpu_seconds(trained.fit))
        found.errors[peer.name].append(split.error(trained.predict()))
    seconds, model = timed(lambda: found.kind.fit(split, seed=seed))
    found.seconds[OURS].append(seconds)
    found.errors[OURS].append(split.error(model.predict(split.X_test)))
    found.seconds[TREES].append(cpu_seconds(model.refit))


def _time_again(found: Found) -> None:
    trained = LIGHTGBM.train(found.split, LIGHTGBM.view(found.split), found.kind.shape)
    found.seconds[LIGHTGBM.name].append(cpu_seconds(trained.fit))
    found.seconds[OURS].append(cpu_seconds(lambda: found.kind.fit(found.split)))


def error_head(peers: Sequence[Peer]) -> tuple[str, ...]:
    """Headings of the errors."""
    return ("data:", "kind:", "trees:", "rounds", OURS, *(peer.name for peer in peers), "gap")


def error_rows(found: Sequence[Found], peers: Sequence[Peer]) -> list[Row]:
    """One row a set and kind."""
    return [
        Row(
            (
                one.split.name + (", MSE" if one.split.task == REGRESSION else ""),
                one.kind.name,
                str(one.kind.shape),
                str(len(one.errors[OURS])),
                *(f"{one.error(system):.4f}" for system in (OURS, *(peer.name for peer in peers))),
            ),
            one.gap(),
            at_most(MOST_GAP),
        )
        for one in found
    ]


def time_head(peers: Sequence[Peer]) -> tuple[str, ...]:
    """Headings of the times."""
    return (
        "data:",
        "kind:",
        "trees:",
        "rounds",
        "oubli s",
        f"{TREES} s",
        *(f"{peer.name} s" for peer in peers),
        "ratio",
    )


def time_rows(found: Sequence[Found], peers: Sequence[Peer]) -> list[Row]:
    """One row a set and kind."""
    return [
        Row(
            (
                one.split.name,
                one.kind.name,
                str(one.kind.shape),
                str(len(one.seconds[OURS])),
                *(f"{median(one.seconds[system]):.3f}" for system in (OURS, TREES, *(peer.name for peer in peers))),
            ),
            one.ratio(),
            at_most(MOST_TIME),
        )
        for one in found
    ]
