"""Training time, beside scikit-learn's extremely randomized trees."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from benchmarks.problems import Labels, Problem, warm_up
from benchmarks.results import Mark, Row, at_most
from benchmarks.timing import cpu_seconds, median
from oubli.core import DynamicForestClassifier

TITLE = "Training"
TEXT = (
    "CPU seconds to fit; ours and the peer's are measured in turn, medians of the rounds. *Ratio* is our time "
    "divided by the peer's. ET10 is scikit-learn's ExtraTrees with 10 trees of depth 20 and a minimum split of 10; "
    "ExtraTrees(100) has its defaults. The accuracies are those of the first fits on the test set."
)
HEAD = ("data:", "setting:", "peer:", "rounds", "ours s", "peer s", "our accuracy", "peer accuracy", "ratio")
MARKS: dict[tuple[str, str], Mark] = {
    ("higgs-like", "fast"): at_most(0.9),
    ("adult-one-hot", "fast"): at_most(0.15),
}


@dataclass
class Trained:
    """A problem with a fitted model a setting and the fitted peer, and what fitting took, round by round."""

    problem: Problem
    forests: dict[str, DynamicForestClassifier]
    seconds: dict[str, list[float]]
    peer: Any
    peer_seconds: list[float]

    @property
    def peer_fit(self) -> float:
        """CPU seconds of one fit of the peer, the unit that operations are counted in."""
        return median(self.peer_seconds)


def train(problem: Problem, budgets: Mapping[str, float], rounds: int) -> Trained:
    """Fit all in turn; a setting drops out once its fits have used up their CPU seconds.

    A round has a seed of its own. The models kept are those of the first.
    """
    trained = Trained(problem, {}, {setting: [] for setting in budgets}, None, [])
    for setting in budgets:
        warm_up(problem, setting)
    for seed in range(rounds):
        for setting, seconds in trained.seconds.items():
            if sum(seconds) < budgets[setting]:
                forest = problem.forest(setting, seed)
                seconds.append(cpu_seconds(partial(problem.fit, forest)))
                trained.forests.setdefault(setting, forest)
        peer = problem.peer(seed)
        trained.peer_seconds.append(cpu_seconds(partial(peer.fit, problem.encoded, problem.y)))
        trained.peer = peer if trained.peer is None else trained.peer
    return trained


def rows(trained: Trained) -> list[Row]:
    """One row a setting."""
    problem = trained.problem
    peer_accuracy = accuracy(trained.peer.predict(problem.encoded_test), problem.y_test)
    found = []
    for setting, seconds in trained.seconds.items():
        ours = median(seconds)
        cells = (
            problem.name,
            setting,
            problem.peer_name,
            str(len(seconds)),
            f"{ours:.3f}",
            f"{trained.peer_fit:.3f}",
            f"{accuracy(trained.forests[setting].predict(problem.X_test), problem.y_test):.4f}",
            f"{peer_accuracy:.4f}",
        )
        found.append(Row(cells, ours / trained.peer_fit, MARKS.get((problem.name, setting))))
    return found


def accuracy(predicted: Labels, y: Labels) -> float:
    """Share of right predictions."""
    return float((predicted == y).mean())
