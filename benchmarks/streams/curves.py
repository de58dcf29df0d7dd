"""F1 and time of an update as functions of epsilon and of the depth h: the paper's Figures 1 and 2 and its Table 2."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.paper.figures import figure
from benchmarks.results import Mark, Row, at_least
from benchmarks.streams.figures import GREENS, logarithmic, style_of
from benchmarks.streams.learners import EFDT, HAT, PREVIOUS, Learner, RandomUpdates, Tree
from benchmarks.streams.prequential import WARM_UP, Peers, Run, run
from benchmarks.streams.sets import Stream

EPSILONS = (2.0, 1.0, 0.5, 0.3, 0.2, 0.15, 0.1, 0.05, 0.03, 0.01, 0.0)
HEAD = ("stream:", "model:", "h", "epsilon", "us a sample", "F1")
MODELS: dict[str, Callable[[dict[str, Any]], Learner]] = {
    "incremental": Tree,
    "window 100": lambda parameters: Tree({**parameters, "window": 100}),
    "window 300": lambda parameters: Tree({**parameters, "window": 300}),
    "window 1000": lambda parameters: Tree({**parameters, "window": 1_000}),
    "random updates": RandomUpdates,
}


@dataclass(frozen=True)
class Question:
    """A family of curves: for each of these models and depths, a curve over epsilon on each stream."""

    name: str
    title: str
    streams: tuple[str, ...]
    models: tuple[str, ...]
    depths: tuple[int, ...]
    text: str


COMMON = (
    " Prequential F1, and CPU time to predict and learn a sample; `alpha=0`, `pruning_size=1`. A curve begins at the "
    "largest epsilon and ends where a point takes longer than its limit."
)
INCREMENTAL = Question(
    "incremental",
    "incremental, by epsilon and depth",
    ("electricity", "weather"),
    ("incremental",),
    (5, 10, 20),
    "Samples are only added. The plot shows F1 over time, with epsilon falling from left to right, and the "
    f"peers.{COMMON}",
)
WINDOWS = Question(
    "windows",
    "sliding windows, by epsilon and depth",
    ("electricity", "covtype, first 20,000"),
    ("window 100", "window 1000"),
    (5, 10),
    f"Figure 1 of the paper: the oldest sample leaves when a new one comes.{COMMON}",
)
RANDOM_UPDATES = Question(
    "random-updates",
    "random updates, by epsilon",
    ("electricity", "weather"),
    ("random updates",),
    (5, 10),
    "Figure 2 of the paper: after 1,000 samples, either the next sample of the stream is added or one of those held is "
    f"deleted, with equal probability. A sample that is not added is predicted too.{COMMON}",
)


@dataclass
class Curve:
    """One model at one depth on one stream, by epsilon."""

    stream: Stream
    model: str
    depth: int
    points: dict[float, Run] = field(default_factory=dict)


@dataclass(frozen=True)
class Found:
    """The curves, and the peers on the same streams."""

    curves: list[Curve]
    others: dict[str, dict[str, Run]]


def measure(question: Question, streams: Iterable[Stream], peers: Peers, budget: float) -> Found:
    """Measure curve by curve, each from the largest epsilon down until a point takes more than `budget` seconds."""
    curves, others = [], {}
    for stream in streams:
        for model in question.models:
            run(MODELS[model]({"max_depth": 5, "epsilon": 0.1}), stream.first(WARM_UP), budget)
            curves += [_curve(stream, model, depth, budget) for depth in question.depths]
        if question is INCREMENTAL:
            others[stream.name] = {name: peers(name, stream) for name in (EFDT, HAT, PREVIOUS)}
    return Found(curves, others)


def _curve(stream: Stream, model: str, depth: int, budget: float) -> Curve:
    curve = Curve(stream, model, depth)
    for epsilon in EPSILONS:
        one = run(MODELS[model]({"max_depth": depth, "epsilon": epsilon}), stream, budget)
        if not one.is_whole:
            break
        curve.points[epsilon] = one
        if one.seconds > budget / 6:  # the next one could take more than it has, and be measured for nothing
            break
    return curve


def rows(found: Found) -> list[Row]:
    """One row a point; then the peers, and how far the points below HAT's time come."""
    table = [
        Row((curve.stream.name, curve.model, str(curve.depth), f"{epsilon:g}", f"{one.microseconds:.1f}"), one.f1())
        for curve in found.curves
        for epsilon, one in curve.points.items()
    ]
    for stream, runs in found.others.items():
        for name, one in runs.items():
            time = "" if name == PREVIOUS else f"{one.microseconds:.1f}"
            table.append(Row((stream, name, "", "", time), one.f1()))
        table.append(best_below(found, stream, runs[HAT]))
    return table


def best_below(found: Found, stream: str, hat: Run) -> Row:
    """The best of our points that are faster than HAT; on Electricity it should be better, too."""
    points = [
        (one.f1(), one.microseconds, curve.depth, epsilon)
        for curve in found.curves
        for epsilon, one in curve.points.items()
        if curve.stream.name == stream and one.microseconds < hat.microseconds
    ]
    mark: Mark | None = at_least(hat.f1()) if stream == "electricity" else None
    if not points:
        return Row((stream, "none of ours is faster than HAT", "", "", ""), 0.0, mark)
    score, time, depth, epsilon = max(points)
    return Row((stream, "best of ours faster than HAT", str(depth), f"{epsilon:g}", f"{time:.1f}"), score, mark)


def draw(found: Found, path: Path) -> None:
    """With peers: F1 over time. Without: F1 over epsilon and time over epsilon, side by side."""
    streams = list(dict.fromkeys(curve.stream.name for curve in found.curves))
    if found.others:
        _draw_trade(found, streams, path)
        return
    titles = [title for stream in streams for title in (stream, f"{stream}: us a sample")]
    with figure(path, titles, "epsilon", "F1, %") as axes:
        for number, stream in enumerate(streams):
            for colour, curve in enumerate(curve for curve in found.curves if curve.stream.name == stream):
                label = f"{curve.model}, h = {curve.depth}"
                epsilons = list(curve.points)
                style = {"marker": "o", "color": COLOURS[colour % len(COLOURS)], "label": label}
                axes[2 * number].plot(epsilons, [one.f1() for one in curve.points.values()], **style)
                axes[2 * number + 1].plot(epsilons, [one.microseconds for one in curve.points.values()], **style)
            axes[2 * number + 1].set_yscale("log")
            for axis in axes[2 * number : 2 * number + 2]:
                axis.set_xscale("symlog", linthresh=0.01)
                axis.set_xlim(-0.002, 1.5 * max(EPSILONS))


COLOURS = (GREENS[0], GREENS[2], "#d1495b", "#edae49")


def _draw_trade(found: Found, streams: Sequence[str], path: Path) -> None:
    with figure(path, streams, "us a sample (CPU)", "F1, %") as axes:
        for axis, stream in zip(axes, streams, strict=True):
            for colour, curve in enumerate(curve for curve in found.curves if curve.stream.name == stream):
                times = [one.microseconds for one in curve.points.values()]
                scores = [one.f1() for one in curve.points.values()]
                axis.plot(times, scores, marker="o", color=GREENS[colour], label=f"oubli, h = {curve.depth}")
                for epsilon, time, score in zip(curve.points, times, scores, strict=True):
                    axis.annotate(f"{epsilon:g}", (time, score), fontsize=6, xytext=(2, 3), textcoords="offset points")
            for name, one in found.others[stream].items():
                if name == PREVIOUS:
                    axis.axhline(one.f1(), color="grey", linestyle=":", label=name)
                else:
                    axis.plot(one.microseconds, one.f1(), linestyle="none", markersize=9, label=name, **style_of(name))
            logarithmic(axis)
