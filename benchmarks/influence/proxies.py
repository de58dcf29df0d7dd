"""How well update sets rank samples as the truth does (Table 2 of the paper)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from benchmarks.influence.problems import UPDATE_SETS, Problem, log_losses
from benchmarks.results import Row
from oubli.core.influence import influence, view

NAME = "proxies"
TITLE = "rankings by update set, against the truth"
TEXT = (
    "NDCG@100 (Table 2 of the paper). Random training samples are ranked by their influence on each of ten test "
    "rows; the sample at place r of the true ranking has a relevance of 1 / r up to 100, and 0 beyond; means over "
    "the test rows. The truth for FastLeafRefit is leave-one-out: the model unlearns the sample (exactly: the trees "
    "are those of retraining), and the loss on the row is taken again. A sample is *same* where all trees still "
    "divide the other samples and the test rows as before, *changed* where any does not. The truth for "
    "FastLeafInfluence is the derivative of the refitted leaves, which LeafInfluence computes (tests compare it "
    "with central differences of refits). *Random* is a ranking without information, which shows what the size of a "
    "group gives away. The paper has 2,000 samples in each group, from 100 oblivious trees of depth 6 with 600 "
    "splits; ours of depth 6 have up to 6,300 splits, and nearly every sample decides one of them. So there are "
    "trees of depth 3 as well, with up to 700 splits. Groups of fewer than five are left out."
)
HEAD = (
    "data:",
    "depth:",
    "same, changed:",
    "update set:",
    "refit, same:",
    "refit, changed:",
    "derivative, same:",
    "derivative, changed",
)
DEPTH = 100
LEAST = 5  # samples of a group


@dataclass(frozen=True)
class Found:
    """A row of the table."""

    data: str
    depth: int
    sizes: tuple[int, int]
    update_set: str
    figures: tuple[float, float, float, float]


def ndcg(truth: npt.NDArray[np.float64], scores: npt.NDArray[np.float64]) -> float:
    """NDCG@100 of a ranking by falling scores; the gain of the sample in place r of the true one is 1 / r."""
    n = min(DEPTH, len(truth))
    relevance = np.zeros(len(truth))
    relevance[np.argsort(-truth, kind="stable")[:n]] = 1.0 / np.arange(1, n + 1)
    discounts = 1.0 / np.log2(np.arange(2, n + 2))
    gained = relevance[np.argsort(-scores, kind="stable")[:n]]
    return float((gained * discounts).sum() / (np.sort(relevance)[::-1][:n] * discounts).sum())


def _parts_alike(a: npt.NDArray[Any], b: npt.NDArray[Any]) -> bool:
    """Whether two assignments of samples to leaves are the same up to the leaves' names."""
    name = np.full(int(a.max()) + 1, -1, np.int64)
    name[a] = b
    used = name[name >= 0]
    return bool((name[a] == b).all()) and len(np.unique(used)) == len(used)


def measure(problems: list[Problem], n_samples: dict[int, int], n_rows: int) -> list[Found]:
    """Rank samples and compare; the number of samples depends on the depth of the trees."""
    found: list[Found] = []
    for problem in problems:
        for depth, n in n_samples.items():
            model = problem.fit(depth=depth)
            X, y = problem.test_rows(n_rows, seed=1)
            samples = np.random.default_rng(2).choice(problem.n, min(n, problem.n), replace=False)
            truth, is_same = _leave_out(model, samples, X, y)
            found += _compare(problem.name, depth, model, X, y, samples, truth, is_same)
    return found


def _leave_out(model: Any, samples: Any, X: Any, y: Any) -> tuple[Any, npt.NDArray[np.bool_]]:
    """What unlearning each sample does to the loss of each row, and whether all trees part all others as before."""
    before, losses = _leaves(model, X), log_losses(model, X, y)
    truth, is_same = np.zeros((len(samples), len(y))), np.zeros(len(samples), np.bool_)
    for place, sample in enumerate(samples.tolist()):
        other = model.copy()
        slot = other.samples_.find([sample])
        # In the engine alone, so that the places of the samples stay.
        other.engine_.delete(other.problem(), slot)
        truth[place] = log_losses(other, X, y) - losses
        after = _leaves(other, X)
        others = np.arange(before.shape[1]) != slot[0]
        is_same[place] = after.shape == before.shape and all(
            _parts_alike(a[others], b[others]) for a, b in zip(before, after, strict=True)
        )
    return truth, is_same


def _leaves(model: Any, X: Any) -> npt.NDArray[Any]:
    """Leaves of all training samples, and of rows, [T, n + m]."""
    seen = view(model)
    return np.concatenate([seen.leaves, seen.route(X)], axis=1)


def _compare(name: str, depth: int, model: Any, X: Any, y: Any, samples: Any, truth: Any, is_same: Any) -> list[Found]:
    groups = [np.flatnonzero(is_same), np.flatnonzero(~is_same)]
    sizes = (len(groups[0]), len(groups[1]))
    seen = view(model)
    ids = [str(sample) for sample in samples.tolist()]
    asked = {"reduce": None, "ids": ids}
    exact = influence(seen, X, y, **asked).scores
    found = []

    def mean(ideal: Any, scores: Any, group: Any) -> float:
        if len(group) < LEAST:
            return float("nan")
        return float(np.mean([ndcg(ideal[group, j], scores[group, j]) for j in range(truth.shape[1])]))

    for label, update_set in UPDATE_SETS.items():
        refitted = influence(seen, X, y, method="leaf-refit", update_set=update_set, **asked).scores
        derived = influence(seen, X, y, update_set=update_set, **asked).scores
        figures = [mean(truth, refitted, group) for group in groups] + [mean(exact, derived, group) for group in groups]
        found.append(Found(name, depth, sizes, label, tuple(figures)))  # type: ignore[arg-type]
    rng = np.random.default_rng(3)
    noise = rng.normal(size=truth.shape)
    figures = [mean(truth, noise, group) for group in groups] + [mean(exact, noise, group) for group in groups]
    return [*found, Found(name, depth, sizes, "random", tuple(figures))]  # type: ignore[arg-type]


def rows(found: list[Found]) -> list[Row]:
    """The table."""
    return [
        Row(
            (f.data, f"{f.depth}", f"{f.sizes[0]}, {f.sizes[1]}", f.update_set, *map(_shown, f.figures[:3])),
            round(f.figures[3], 2),
        )
        for f in found
    ]


def _shown(figure: float) -> str:
    return "" if np.isnan(figure) else f"{figure:.2f}"
