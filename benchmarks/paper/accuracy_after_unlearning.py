"""Accuracy after unlearning 1 to 90 % of the samples, beside retraining on the rest (the paper's Figure 3)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from benchmarks.paper.figures import COLOURS, figure
from benchmarks.paper.sets import Split, accuracy
from benchmarks.results import Row, at_most

NAME = "accuracy-after-unlearning"
TITLE = "accuracy after unlearning"
TEXT = (
    "Test accuracy of our model after it has unlearned a growing random share of its samples, of our model "
    "retrained on the rest, and of scikit-learn's forests retrained on the rest; parameters of `fast`, mean over "
    "the seeds. *Different predictions* counts the test rows for which any probability differs between the "
    "unlearned and the retrained model, over all seeds. An exact model has none."
)
HEAD = (
    "data:",
    "unlearned",
    "seeds",
    "oubli",
    "oubli, retrained",
    "ExtraTrees",
    "RandomForest",
    "different predictions",
)
SETS = ("adult", "purchase")
SHARES = (0.01, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)
SYSTEMS = ("oubli", "oubli, retrained", "ExtraTrees", "RandomForest")


@dataclass(frozen=True)
class Found:
    """Accuracies of a data set by share and system, one a seed; and how many predictions differed by share."""

    name: str
    accuracies: dict[float, dict[str, list[float]]]
    different: dict[float, int]


def measure(load: Callable[[str, int], Split], sets: Sequence[str], seeds: int) -> list[Found]:
    """Unlearn step by step in one model, retrain the others at every step."""
    found = []
    for name in sets:
        one = Found(name, {share: {s: [] for s in SYSTEMS} for share in SHARES}, dict.fromkeys(SHARES, 0))
        for seed in range(seeds):
            _one_seed(load(name, seed), seed, one)
        found.append(one)
    return found


def _one_seed(split: Split, seed: int, found: Found) -> None:
    n = len(split.y)
    order = np.random.default_rng(seed).permutation(n)
    model = split.forest(seed).fit(split.X, split.y)
    gone = 0
    for share, accuracies in found.accuracies.items():
        upto = round(share * n)
        model.delete([str(i) for i in order[gone:upto].tolist()])
        gone = upto
        rest = np.sort(order[gone:])
        X, y, ids = split.X[rest], split.y[rest], [str(i) for i in rest.tolist()]
        retrained = split.forest(seed).fit(X, y, ids=ids)
        differs = (model.predict_proba(split.X_test) != retrained.predict_proba(split.X_test)).any(axis=1)
        found.different[share] += int(differs.sum())
        accuracies["oubli"].append(accuracy(model, split))
        accuracies["oubli, retrained"].append(accuracy(retrained, split))
        for peer, estimator in split.peers(seed).items():
            accuracies[peer].append(accuracy(estimator.fit(X, y), split))


def rows(found: Sequence[Found]) -> list[Row]:
    """One row a set and share."""
    return [
        Row(
            (
                one.name,
                f"{share:.0%}",
                str(len(accuracies["oubli"])),
                *(f"{np.mean(accuracies[system]):.4f}" for system in SYSTEMS),
            ),
            one.different[share],
            at_most(0),
        )
        for one in found
        for share, accuracies in one.accuracies.items()
    ]


def draw(found: Sequence[Found], path: Path) -> None:
    """Accuracy over the share unlearned."""
    with figure(path, [one.name for one in found], "unlearned, %", "test accuracy") as axes:
        for axis, one in zip(axes, found, strict=True):
            for system, style in zip(SYSTEMS, ("o-", "x:", "s--", "d--"), strict=True):
                means = [np.mean(accuracies[system]) for accuracies in one.accuracies.values()]
                axis.plot([100 * s for s in one.accuracies], means, style, color=COLOURS[system], label=system)
