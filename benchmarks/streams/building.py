"""BUILD on 500,000 rows of 28 numbers, beside scikit-learn's DecisionTreeClassifier of the same depth."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from benchmarks import higgs_like
from benchmarks.results import Row, at_most
from benchmarks.timing import cpu_seconds, median, rounds_of
from oubli.core import DynamicTreeClassifier
from oubli.core.jit.nodes import NIL
from oubli.core.tree.state import ROOT

NAME = "build"
TITLE = "BUILD"
TEXT = (
    "higgs-like, `max_depth=10`, `alpha=0`, `pruning_size=1`. BUILD is `scrub()`, which builds the tree from the "
    "samples held; `fit` also checks and stores 500,000 samples. CPU time of one thread, medians of the rounds, "
    "ours and scikit-learn's in turn. The two trees are compared from the root down. Two nodes are the same when "
    "they divide the same samples in the same way. Others differ in a tie (both splits gain the same, and "
    "scikit-learn draws one of them) or in values too close (ours gains more, between two values that scikit-learn "
    "takes for equal: less than 1e-7 apart in float32). Below such a node the samples differ and nothing is "
    "compared."
)
HEAD = ("what:", "ours s", "scikit-learn s", "figure")
DEPTH = 10
ROUNDING = 1e-12  # of sums of squares over sizes


@dataclass
class Likeness:
    """How two trees of the same samples compare, node by node from the root."""

    same: int = 0
    ties: int = 0
    too_close: int = 0
    others: int = 0


@dataclass(frozen=True)
class Found:
    """CPU seconds of each round, and how alike the trees are."""

    builds: list[float]
    fits: list[float]
    theirs: list[float]
    likeness: Likeness
    n_rows: int


def measure(held: higgs_like.HiggsLike, rounds: int, budget: float) -> Found:
    """Ours and theirs in turn; no further round when `budget` CPU seconds are used up."""
    from sklearn.tree import DecisionTreeClassifier

    tree = DynamicTreeClassifier(max_depth=DEPTH)
    peer = DecisionTreeClassifier(max_depth=DEPTH, random_state=0)
    tree.fit(held.X[:2_000], held.y[:2_000]).scrub()

    def one(_: int) -> tuple[float, float, float]:
        fit = cpu_seconds(partial(tree.fit, held.X, held.y))
        return fit, cpu_seconds(tree.scrub), cpu_seconds(partial(peer.fit, held.X, held.y))

    found = rounds_of(one, rounds, budget)
    fits, builds, theirs = (list(times) for times in zip(*found, strict=True))
    return Found(builds, fits, theirs, compare(tree, peer, held), len(held.y))


def compare(tree: DynamicTreeClassifier, peer: Any, held: higgs_like.HiggsLike) -> Likeness:
    """Walk down both trees as long as they part the samples in the same way."""
    nodes, theirs, found = tree.engine_.tree.nodes, peer.tree_, Likeness()
    waiting = [(ROOT, 0, np.arange(len(held.y)))]
    while waiting:
        mine, other, rows = waiting.pop()
        child = int(nodes["child"][mine])
        if child == NIL or theirs.feature[other] < 0:
            alike = bool(child == NIL and theirs.feature[other] < 0)
            found.same, found.others = found.same + alike, found.others + (not alike)
            continue
        left = held.X[rows, nodes["attribute"][mine]] <= nodes["threshold"][mine]
        their_left = held.X[rows, theirs.feature[other]] <= theirs.threshold[other]
        if np.array_equal(left, their_left):
            found.same += 1
            waiting += [
                (child, int(theirs.children_left[other]), rows[left]),
                (child + 1, int(theirs.children_right[other]), rows[~left]),
            ]
            continue
        advantage = worth(held.y[rows], left) / worth(held.y[rows], their_left) - 1
        if abs(advantage) < ROUNDING:
            found.ties += 1
        elif advantage > 0 and are_taken_for_equal(held.X[rows, nodes["attribute"][mine]], left):
            found.too_close += 1
        else:
            found.others += 1
    return found


def are_taken_for_equal(values: np.ndarray[Any, Any], left: np.ndarray[Any, Any]) -> bool:
    """Whether scikit-learn sees no gap between the values left and right (its FEATURE_THRESHOLD)."""
    return bool(values[left].max() + np.float32(1e-7) >= values[~left].min())


def worth(labels: np.ndarray[Any, Any], left: np.ndarray[Any, Any]) -> float:
    """Squared class counts over the size, of both sides: what splits of the same samples are compared by."""
    sides = [np.bincount(labels[side], minlength=2).astype(np.float64) for side in (left, ~left)]
    return float(sum((counts**2).sum() / counts.sum() for counts in sides))


def rows(found: Found) -> list[Row]:
    """BUILD with its mark, the whole fit, and how alike the trees are."""
    ours, fit, theirs = median(found.builds), median(found.fits), median(found.theirs)

    def ratio(times: list[float]) -> float:
        return median(a / b for a, b in zip(times, found.theirs, strict=True))

    name, same = f"{found.n_rows:,} x {higgs_like.N_FEATURES}, h = {DEPTH}", found.likeness
    return [
        Row(
            (f"BUILD / DecisionTreeClassifier, {name}", f"{ours:.2f}", f"{theirs:.2f}"),
            ratio(found.builds),
            at_most(0.25),
        ),
        Row((f"fit / DecisionTreeClassifier, {name}", f"{fit:.2f}", f"{theirs:.2f}"), ratio(found.fits)),
        Row(("nodes that are the same", "", ""), same.same),
        Row(("nodes that differ in a tie", "", ""), same.ties),
        Row(("nodes that differ in values too close", "", ""), same.too_close),
        Row(("nodes that differ otherwise", "", ""), same.others, at_most(0)),
    ]
