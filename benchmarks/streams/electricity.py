"""Electricity: the marks. One `predict` and one `add` call a sample, beside HAT, EFDT, ARF and the previous label."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from benchmarks.results import Mark, Row, at_least, at_most
from benchmarks.streams.learners import HAT, Tree, peer
from benchmarks.streams.prequential import WARM_UP, Peers, Run, run, update_only
from benchmarks.streams.sets import Stream
from benchmarks.timing import median

NAME = "electricity"
STREAM = "electricity"
TITLE = "Electricity, with marks"
TEXT = (
    "Prequential: each sample is predicted with one call and learned with another. *Update* is the same without the "
    "predictions, for both. `alpha=0`, `pruning_size=1`. CPU time per sample, ours and HAT's in turn, medians of "
    "the rounds; a ratio is the median of the rounds' ratios. The peers are river's with their defaults; `day` is "
    "nominal for all. Beside our F1 stands the largest F1 of EFDT, HAT, ARF(10) and the previous label."
)
HEAD = ("what:", "setting, h = 10, epsilon = 0.1:", "ours", "beside", "figure")
WINDOW_100 = {"max_depth": 10, "epsilon": 0.1, "window": 100}
WINDOW_1000 = {"max_depth": 10, "epsilon": 0.1, "window": 1000}
SETTINGS: dict[str, dict[str, Any]] = {"window 100": WINDOW_100, "window 1000": WINDOW_1000}


@dataclass(frozen=True)
class Found:
    """The runs of ours by setting and of HAT, round by round, with predictions and without; and the others'."""

    ours: dict[str, list[Run]]
    updates: list[Run]  # window 1000
    hat: list[Run]
    hat_updates: list[Run]
    others: dict[str, Run]


def measure(stream: Stream, peers: Peers, rounds: int) -> Found:
    """Ours and HAT in turn."""
    ours: dict[str, list[Run]] = {name: [] for name in SETTINGS}
    hat: list[Run] = []
    updates: list[Run] = []
    hat_updates: list[Run] = []
    for parameters in SETTINGS.values():
        run(Tree(parameters), stream.first(WARM_UP), peers.budget)
    for _ in range(rounds):
        for name, parameters in SETTINGS.items():
            ours[name].append(run(Tree(parameters), stream, peers.budget))
        hat.append(run(peer(HAT), stream, peers.budget))
        updates.append(update_only(Tree(WINDOW_1000), stream, peers.budget))
        hat_updates.append(update_only(peer(HAT), stream, peers.budget))
    others = {name: one for name, one in peers.all(stream).items() if name != HAT}
    return Found(ours, updates, hat, hat_updates, others)


def rows(found: Found) -> list[Row]:
    """F1 beside the best other, time beside HAT's."""
    scores = {HAT: found.hat[0].f1(), **{name: one.f1() for name, one in found.others.items()}}
    best = max(scores, key=scores.__getitem__)
    table = []
    for name in SETTINGS:
        score = found.ours[name][0].f1()
        mark = at_least(scores[best]) if name == "window 100" else None
        table.append(Row(("F1", name, f"{score:.2f}", f"{best} {scores[best]:.2f}"), score, mark))
        limit = at_most(0.5 if name == "window 100" else 0.25)
        table.append(_time("predict and update / HAT's", name, found.ours[name], found.hat, limit))
    table.append(_time("update / HAT's", "window 1000", found.updates, found.hat_updates, at_most(0.25)))
    return table


def _time(what: str, name: str, ours: list[Run], theirs: list[Run], mark: Mark | None) -> Row:
    ratio = median(one.microseconds / other.microseconds for one, other in zip(ours, theirs, strict=True))
    times = (f"{median(one.microseconds for one in runs):.1f} us" for runs in (ours, theirs))
    return Row((what, name, *times), ratio, mark)
