"""What removing the samples named does to the loss (Figure 3 of the paper)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from benchmarks.influence.problems import COLOURS, Problem, log_losses
from benchmarks.paper.figures import figure
from benchmarks.results import Mark, Row, at_least
from oubli.core.influence import influence, view

NAME = "removal"
TITLE = "loss after removing the samples named"
TEXT = (
    "Labels are flipped as above. Of the test rows, the 50 whose loss has risen most are taken. For each, training "
    "samples are ranked by their influence on it, and the most harmful are removed in batches of 50, up to 80 "
    "batches: 4,000 samples, as many as are flipped on Adult. The model is trained again after 2, 6, 20, 45 and 80 "
    "batches; lines are drawn between them. The relative reductions of log-loss, on the row itself and on the whole "
    "test set, are the gains of a DCG over the batches, normalised by the sum of discounts (so it is a mean "
    "reduction). The table has means over the test rows, on the test set x 1000, and in brackets how much more "
    "AllPoints has than SinglePoint, by test row, ± its standard error (Figure 3 of the paper). *Detector* removes "
    "the samples whose labels the model believes least, whatever the row is. *As rates*: every category is a "
    "number, the rate of the label among its samples, as in the code that goes with the paper. *As they are*: "
    "splits on categories. The mark asks that AllPoints is better than SinglePoint on the whole test set, on Adult."
)
HEAD = (
    "data:",
    "categories:",
    "ranked by:",
    "test rows:",
    "DCG, the row:",
    "test set, 6 batches:",
    "20 batches:",
    "all batches, more than SinglePoint:",
    "test set, all batches",
)
BATCH = 50
MOST = 80  # batches: 4,000 samples, as many as are flipped on Adult
TRAINED = (2, 6, 20, 45, 80)  # batches after which a model is trained
SHOWN = (6, 20)

Reals = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Found:
    """A row of the table, and its curves: relative reductions by test row and batch, float64[rows, batches]."""

    data: str
    categories: str
    method: str
    own: Reals
    whole: Reals
    single: Reals | None = None  # `whole` of SinglePoint, for AllPoints


def discounted(gains: Reals) -> Reals:
    """DCG of gains [..., batches], normalised by the sum of discounts."""
    discounts = 1.0 / np.log2(np.arange(2, gains.shape[-1] + 2))
    found: Reals = (gains * discounts).sum(axis=-1) / discounts.sum()
    return found


def measure(problems: list[Problem], n_rows: int, trained: tuple[int, ...] = TRAINED) -> list[Found]:
    """Rank, remove, train again."""
    found = []
    for problem in problems:
        found += _measure(problem.with_rates(), "as rates", n_rows, trained)
        if problem.name == "adult":
            found += _measure(problem, "as they are", n_rows, trained)
    return found


def _measure(clean: Problem, categories: str, n_rows: int, trained: tuple[int, ...]) -> list[Found]:
    problem, _ = clean.with_noise(seed=0)
    before = log_losses(clean.fit(), clean.X_test, clean.y_test)
    model = problem.fit()
    losses = log_losses(model, problem.X_test, problem.y_test)
    chosen = np.argsort(before - losses)[:n_rows].tolist()
    batches = tuple(batch for batch in trained if batch * BATCH <= problem.n // 2)
    found: list[Found] = []
    for name, rank in _methods(problem, model).items():
        known: dict[tuple[int, ...], list[Reals]] = {}
        curves = []
        for row in chosen:
            order = rank(row)
            # The same for all rows when the ranking does not depend on them.
            key = tuple(order[: batches[-1] * BATCH])
            if key not in known:
                known = {key: _train_without(problem, order, batches)}
            curves.append(_reductions(losses, known[key], row, batches))
        own, whole = (np.array([curve[i] for curve in curves]) for i in range(2))
        single = next((f.whole for f in found if f.method == "SinglePoint"), None) if name == "AllPoints" else None
        found.append(Found(clean.name, categories, name, own, whole, single))
    return found


def _methods(problem: Problem, model: Any) -> dict[str, Callable[[int], list[int]]]:
    seen = view(model)

    def by_influence(update_set: str) -> Callable[[int], list[int]]:
        def rank(row: int) -> list[int]:
            asked = influence(seen, problem.X_test.iloc[[row]], problem.y_test[[row]], update_set=update_set)
            return [int(asked.ids[i]) for i in np.argsort(asked.scores, kind="stable").tolist()]

        return rank

    by_detector = np.argsort(-log_losses(model, problem.X, problem.y), kind="stable").tolist()
    return {
        "SinglePoint": by_influence("single"),
        "AllPoints": by_influence("all"),
        "Detector": lambda row: by_detector,
    }


def _train_without(problem: Problem, order: list[int], batches: tuple[int, ...]) -> list[Reals]:
    """Losses of all test rows after some numbers of batches."""
    found = []
    for batch in batches:
        kept = np.ones(problem.n, np.bool_)
        kept[order[: batch * BATCH]] = False
        found.append(log_losses(problem.fit(np.flatnonzero(kept)), problem.X_test, problem.y_test))
    return found


def _reductions(losses: Reals, after: list[Reals], row: int, batches: tuple[int, ...]) -> tuple[Reals, Reals]:
    """Relative reductions of a row's loss, and of the mean loss, after every batch: lines between those trained."""
    own = [0.0, *(float(1.0 - batch[row] / losses[row]) for batch in after)]
    whole = [0.0, *(float(1.0 - batch.mean() / losses.mean()) for batch in after)]
    every = np.arange(1, batches[-1] + 1)
    return np.interp(every, (0, *batches), own), np.interp(every, (0, *batches), whole)


def rows(found: list[Found]) -> list[Row]:
    """The table."""
    return [
        Row(
            (
                f.data,
                f.categories,
                f.method,
                f"{len(f.own)}",
                f"{discounted(f.own).mean():.3f}",
                *(_after(f, n) for n in SHOWN),
                _more(f, f.whole.shape[1]),
            ),
            1e3 * float(discounted(f.whole).mean()),
            _mark(f),
        )
        for f in found
    ]


def _mark(found: Found) -> Mark | None:
    if found.data != "adult" or found.single is None:
        return None
    return at_least(round(1e3 * float(discounted(found.single).mean()), 3))


def _after(found: Found, n_batches: int) -> str:
    """DCG on the test set over the first batches, and how much more that is than SinglePoint's."""
    mean = f"{1e3 * discounted(found.whole[:, :n_batches]).mean():.2f}"
    return mean if found.single is None else f"{mean} ({_more(found, n_batches)})"


def _more(found: Found, n_batches: int) -> str:
    """How much more than SinglePoint's: the mean of the differences by test row, and its standard error."""
    if found.single is None:
        return ""
    mine, single = (1e3 * discounted(gains[:, :n_batches]) for gains in (found.whole, found.single))
    differences = mine - single
    if len(differences) < 2:
        return f"{differences[0]:+.2f}"
    return f"{differences.mean():+.2f} ± {differences.std(ddof=1) / np.sqrt(len(differences)):.2f}"


def draw(found: list[Found], path: Path) -> None:
    """Reductions by batch, on the row and on the test set; categories as rates."""
    titles = ("the row itself", "the whole test set")
    with figure(path, titles, "samples removed", "reduction of log-loss, %") as axes:
        # One data set loses many times what the others do.
        axes[1].set_yscale("symlog", linthresh=10)
        lines = {"SinglePoint": "--", "AllPoints": "-", "Detector": ":"}
        for f in found:
            if f.categories != "as rates":
                continue
            removed = BATCH * np.arange(1, f.own.shape[1] + 1)
            for axis, gains in zip(axes, (f.own, f.whole), strict=True):
                label = f"{f.data}, {f.method}"
                axis.plot(removed, 100 * gains.mean(axis=0), lines[f.method], color=COLOURS[f.data], label=label)
