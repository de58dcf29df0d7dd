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
from benchmarks.results import Row, at_least
from core.influence import influence, view

NAME = "removal"
TITLE = "loss after removing the samples named"
TEXT = (
    "Labels are flipped as above; of the test rows those are taken whose loss has risen most. For each, training "
    "samples are ranked by their influence on it, and the most harmful are removed in batches of 50; the model is "
    "trained anew after each batch. The relative reductions of log-loss, on the row itself and on the whole test set,"
    " are the gains of a DCG over the batches, normalised by the sum of discounts (so it is a mean reduction); means "
    "over the test rows (Figure 3 of the paper; it takes 50 rows). *Detector* removes the samples whose labels the "
    "model believes least, whatever the row is. The mark: AllPoints better than SinglePoint on the whole test set, on"
    " Adult."
)
HEAD = ("data:", "ranked by:", "test rows:", "batches:", "DCG, the row:", "DCG, the test set, x 1000")
BATCH = 50


@dataclass(frozen=True)
class Found:
    """A row of the table, and its curves."""

    data: str
    method: str
    n_rows: int
    own: npt.NDArray[np.float64]  # relative reduction after each batch, mean over the rows
    whole: npt.NDArray[np.float64]
    least: float | None = None

    @property
    def dcg_own(self) -> float:
        """On the row itself."""
        return discounted(self.own)

    @property
    def dcg_whole(self) -> float:
        """On the whole test set."""
        return discounted(self.whole)


def discounted(gains: npt.NDArray[np.float64]) -> float:
    """DCG, normalised by the sum of discounts."""
    discounts = 1.0 / np.log2(np.arange(2, len(gains) + 2))
    return float((gains * discounts).sum() / discounts.sum())


def measure(problems: list[Problem], n_rows: int, n_batches: int) -> list[Found]:
    """Rank, remove, train anew."""
    found = []
    for clean in problems:
        problem, _ = clean.with_noise(seed=0)
        before = log_losses(clean.fit(), clean.X_test, clean.y_test)
        model = problem.fit()
        losses = log_losses(model, problem.X_test, problem.y_test)
        chosen = np.argsort(before - losses)[:n_rows].tolist()
        methods = _methods(problem, model)
        curves = {}
        for name, rank in methods.items():
            orders = [rank(row) for row in chosen]
            trained: dict[tuple[int, ...], list[npt.NDArray[np.float64]]] = {}
            for order in orders:
                # The same for all rows when the ranking does not depend on them.
                key = tuple(order[: n_batches * BATCH])
                if key not in trained:
                    trained[key] = _train_without(problem, order, n_batches)
            curves[name] = [
                _reductions(losses, trained[tuple(order[: n_batches * BATCH])], row)
                for order, row in zip(orders, chosen, strict=True)
            ]
        mine = [
            Found(
                problem.name,
                name,
                n_rows,
                np.mean([c[0] for c in curve], axis=0),
                np.mean([c[1] for c in curve], axis=0),
            )
            for name, curve in curves.items()
        ]
        found += [_marked(f, mine) if problem.name == "adult" else f for f in mine]
    return found


def _marked(found: Found, mine: list[Found]) -> Found:
    if found.method != "AllPoints":
        return found
    single = next(f for f in mine if f.method == "SinglePoint")
    return Found(found.data, found.method, found.n_rows, found.own, found.whole, single.dcg_whole)


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


def _train_without(problem: Problem, order: list[int], n_batches: int) -> list[npt.NDArray[np.float64]]:
    """Losses of all test rows after each batch."""
    found = []
    for batch in range(1, n_batches + 1):
        kept = np.ones(problem.n, np.bool_)
        kept[order[: batch * BATCH]] = False
        found.append(log_losses(problem.fit(np.flatnonzero(kept)), problem.X_test, problem.y_test))
    return found


def _reductions(
    losses: npt.NDArray[np.float64], after: list[npt.NDArray[np.float64]], row: int
) -> tuple[list[float], list[float]]:
    """Relative reductions of the loss of a row, and of the mean loss, after each batch."""
    own = [float(1.0 - batch[row] / losses[row]) for batch in after]
    return own, [float(1.0 - batch.mean() / losses.mean()) for batch in after]


def rows(found: list[Found]) -> list[Row]:
    """The table."""
    return [
        Row(
            (f.data, f.method, f"{f.n_rows}", f"{len(f.own)}", f"{f.dcg_own:.3f}"),
            1e3 * f.dcg_whole,
            None if f.least is None else at_least(round(1e3 * f.least, 3)),
        )
        for f in found
    ]


def draw(found: list[Found], path: Path) -> None:
    """Reductions by batch, on the row and on the test set."""
    titles = ("the row itself", "the whole test set")
    with figure(path, titles, "samples removed", "reduction of log-loss, %") as axes:
        lines = {"SinglePoint": "o--", "AllPoints": "s-", "Detector": "^:"}
        for f in found:
            batches = BATCH * np.arange(1, len(f.own) + 1)
            for axis, gains in zip(axes, (f.own, f.whole), strict=True):
                axis.plot(batches, 100 * gains, lines[f.method], color=COLOURS[f.data], label=f"{f.data}, {f.method}")
