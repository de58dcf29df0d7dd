"""How well update sets rank samples as the truth does (Table 2 of the paper)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from benchmarks.influence.problems import UPDATE_SETS, Problem, log_losses
from benchmarks.results import Row
from core.influence import influence, view

NAME = "proxies"
TITLE = "rankings by update set, against the truth"
TEXT = (
    "NDCG@100 (Table 2 of the paper). Training samples drawn at random are ranked by their influence on each of some "
    "test rows; the relevance of the 100 first of the true ranking is 100, 99, ..., 1, that of all others 0; means "
    "over the test rows. The truth for FastLeafRefit is leave-one-out: the model unlearns the sample (exactly: the "
    "trees are those of retraining), and the loss on the row is taken again. It is *same* where all trees still part "
    "the other samples as before, *changed* where any does not. The truth for FastLeafInfluence is the derivative, "
    "which LeafInfluence is (tests compare it with central differences of refits). *Random*: a ranking that knows "
    "nothing. The paper draws 2,000 samples of each group, from oblivious trees with 600 splits in all, of which far "
    "fewer hang on one sample than of our 6,000; as many of both groups are ranked here as there are of the smaller "
    "one."
)
HEAD = (
    "data:",
    "samples of a group:",
    "update set:",
    "refit, same:",
    "refit, changed:",
    "derivative, same:",
    "derivative, changed",
)
DEPTH = 100


@dataclass(frozen=True)
class Found:
    """A row of the table."""

    data: str
    n: int
    update_set: str
    figures: tuple[float, float, float, float]


def ndcg(truth: npt.NDArray[np.float64], scores: npt.NDArray[np.float64]) -> float:
    """NDCG@100 with linear gains of a ranking by falling scores."""
    relevance = np.zeros(len(truth))
    first = np.argsort(-truth, kind="stable")[:DEPTH]
    relevance[first] = np.arange(DEPTH, DEPTH - len(first), -1)
    discounts = 1.0 / np.log2(np.arange(2, min(DEPTH, len(truth)) + 2))
    gained = relevance[np.argsort(-scores, kind="stable")[: len(discounts)]]
    best = np.sort(relevance)[::-1][: len(discounts)]
    return float((gained * discounts).sum() / (best * discounts).sum())


def _parts_alike(a: npt.NDArray[Any], b: npt.NDArray[Any]) -> bool:
    """Whether two assignments of samples to leaves are the same up to the leaves' names."""
    pairs = len(np.unique(a.astype(np.int64) * (int(b.max()) + 1) + b))
    return pairs == len(np.unique(a)) == len(np.unique(b))


def measure(problems: list[Problem], n_samples: int, n_rows: int) -> list[Found]:
    """Rank, and compare."""
    found: list[Found] = []
    for problem in problems:
        model = problem.fit()
        X, y = problem.test_rows(n_rows, seed=1)
        samples = np.random.default_rng(2).choice(problem.n, min(n_samples, problem.n), replace=False)
        before, losses = view(model).leaves, log_losses(model, X, y)
        other, truth, is_same = model.copy(), np.zeros((len(samples), len(y))), np.zeros(len(samples), np.bool_)
        everything = other.problem()
        for place, sample in enumerate(samples.tolist()):
            slot = other.samples_.find([sample])
            other.engine_.delete(everything, slot)
            truth[place] = log_losses(other, X, y) - losses
            after = view(other).leaves
            others = np.arange(problem.n) != slot[0]
            is_same[place] = after.shape == before.shape and all(
                _parts_alike(a[others], b[others]) for a, b in zip(before, after, strict=True)
            )
            other.engine_.add(everything, slot)
        found += _compare(problem.name, model, X, y, samples, truth, is_same)
    return found


def _compare(name: str, model: Any, X: Any, y: Any, samples: Any, truth: Any, is_same: Any) -> list[Found]:
    size = min(int(is_same.sum()), int((~is_same).sum()))
    groups = [np.flatnonzero(is_same)[:size], np.flatnonzero(~is_same)[:size]]
    seen = view(model)
    ids = [str(sample) for sample in samples.tolist()]
    asked = {"reduce": None, "ids": ids}
    exact = influence(seen, X, y, **asked).scores
    found = []

    def mean(ideal: Any, scores: Any, group: Any) -> float:
        if size == 0:
            return float("nan")
        return float(np.mean([ndcg(ideal[group, j], scores[group, j]) for j in range(truth.shape[1])]))

    for label, update_set in UPDATE_SETS.items():
        refitted = influence(seen, X, y, method="leaf-refit", update_set=update_set, **asked).scores
        derived = influence(seen, X, y, update_set=update_set, **asked).scores
        figures = [mean(truth, refitted, group) for group in groups] + [mean(exact, derived, group) for group in groups]
        found.append(Found(name, size, label, tuple(figures)))  # type: ignore[arg-type]
    rng = np.random.default_rng(3)
    noise = rng.normal(size=truth.shape)
    figures = [mean(truth, noise, group) for group in groups] + [mean(exact, noise, group) for group in groups]
    return [*found, Found(name, size, "random", tuple(figures))]  # type: ignore[arg-type]


def rows(found: list[Found]) -> list[Row]:
    """The table."""
    return [Row((f.data, f"{f.n:,}", f.update_set, *(f"{x:.2f}" for x in f.figures[:3])), f.figures[3]) for f in found]
