"""Accuracy by the share q of the trees that learn a sample (the paper's Figure 3)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from benchmarks.paper.figures import COLOURS, figure
from benchmarks.paper.sets import Split, accuracy
from benchmarks.results import Row

NAME = "accuracy-by-q"
TITLE = "accuracy by q"
TEXT = (
    "Test accuracy by `occurrence` (q), otherwise with the parameters of `fast`: the mean over the seeds, beside "
    "scikit-learn's forests with as many trees of the same depth and minimum split. *Gap* is ours minus the better "
    "peer, in points."
)
HEAD = ("data:", "q", "seeds", "oubli", "± sd", "ExtraTrees", "RandomForest", "gap")
SETS = ("adult", "purchase", "electricity")
SHARES = (0.01, 0.02, 0.05, 0.1, 0.2, 0.3, 0.5, 0.7, 1.0)


@dataclass(frozen=True)
class Found:
    """Accuracies on a data set, one a seed."""

    name: str
    ours: dict[float, list[float]]  # by q
    peers: dict[str, list[float]]


def measure(load: Callable[[str, int], Split], sets: Sequence[str], seeds: int) -> list[Found]:
    """Fit and predict; `load` gives the split of a set for a seed."""
    found = []
    for name in sets:
        ours: dict[float, list[float]] = {q: [] for q in SHARES}
        peers: dict[str, list[float]] = {}
        for seed in range(seeds):
            split = load(name, seed)
            for q, values in ours.items():
                forest = split.forest(seed, occurrence=q).fit(split.X, split.y)
                values.append(accuracy(forest, split))
            for peer, estimator in split.peers(seed).items():
                peers.setdefault(peer, []).append(accuracy(estimator.fit(split.X, split.y), split))
        found.append(Found(name, ours, peers))
    return found


def rows(found: Sequence[Found]) -> list[Row]:
    """One row a set and q."""
    table = []
    for one in found:
        peers = {name: float(np.mean(values)) for name, values in one.peers.items()}
        for q, values in one.ours.items():
            mean, spread = float(np.mean(values)), float(np.std(values))
            cells = (one.name, f"{q:g}", str(len(values)), f"{mean:.4f}", f"{spread:.4f}")
            theirs = tuple(f"{peers[name]:.4f}" for name in ("ExtraTrees", "RandomForest"))
            table.append(Row((*cells, *theirs), 100 * (mean - max(peers.values()))))
    return table


def draw(found: Sequence[Found], path: Path) -> None:
    """Ours as a curve over q, the peers as level lines."""
    with figure(path, [one.name for one in found], "q (occurrence)", "test accuracy") as axes:
        for axis, one in zip(axes, found, strict=True):
            means = [np.mean(values) for values in one.ours.values()]
            spreads = [np.std(values) for values in one.ours.values()]
            axis.errorbar(list(one.ours), means, spreads, marker="o", color=COLOURS["oubli"], label="oubli")
            for peer, values in one.peers.items():
                axis.axhline(np.mean(values), color=COLOURS[peer], linestyle="--", label=f"scikit-learn {peer}")
            axis.set_xscale("log")
