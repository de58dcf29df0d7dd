"""Finding flipped labels (Figure 2 of the paper)."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from benchmarks.influence.problems import COLOURS, UPDATE_SETS, Problem, area_under_curve, log_losses
from benchmarks.paper.figures import figure
from benchmarks.results import Row, at_least
from oubli.core.influence import influence, view

NAME = "noise"
TITLE = "finding flipped labels"
TEXT = (
    "Of Adult's training labels 4,000 are flipped, of the other sets' the same share. Then training samples are "
    "ranked by their average influence on test rows, the most harmful first (Figure 2 of the paper). The figure is "
    "the ROC-AUC of the flipped ones being ranked first. *Detector* ranks by the model's probability against the "
    "label that a sample has. It ranks all training samples by all test rows (*all samples*), as do LeafInfluence "
    "with AllPoints and SinglePoint. The forms that go sample by sample rank half flipped and half other random "
    "ones by some test rows (*drawn*), and Detector ranks these too. *LeaveOneOut* unlearns each of the first of "
    "them, exactly. The marks are for Adult."
)
HEAD = ("data:", "ranked:", "by:", "samples:", "test rows:", "ROC-AUC")


@dataclass(frozen=True)
class Found:
    """A bar of the figure."""

    data: str
    ranked: str
    method: str
    n: int
    n_rows: int
    auc: float
    least: float | None = None


def measure(problems: list[Problem], n_drawn: int, n_left_out: int, n_rows: int) -> list[Found]:
    """Rank by all methods."""
    found: list[Found] = []
    for clean in problems:
        problem, is_flipped = clean.with_noise(seed=0)
        model = problem.fit()
        everything = _whole(problem, model, is_flipped)
        found += everything
        X, y = problem.test_rows(n_rows, seed=1)
        rng = np.random.default_rng(2)
        half = min(n_drawn // 2, int(is_flipped.sum()))
        pairs = [rng.choice(np.flatnonzero(part), half, replace=False) for part in (is_flipped, ~is_flipped)]
        drawn = np.column_stack(pairs).ravel()  # in turn, so that the first ones are half and half, too
        found += _drawn(problem, model, is_flipped, drawn, X, y, n_left_out)
    return found


def _detector(problem: Problem, model: Any, rows: Any = slice(None)) -> npt.NDArray[np.float64]:
    return log_losses(model, problem.X.iloc[rows], problem.y[rows])


def _whole(problem: Problem, model: Any, is_flipped: npt.NDArray[np.bool_]) -> list[Found]:
    seen = view(model)
    order = np.array([int(name) for name in seen.ids])
    flipped = is_flipped[order]
    aucs = {"Detector": area_under_curve(_detector(problem, model), is_flipped)}
    for label in ("SinglePoint", "AllPoints"):
        found = influence(seen, problem.X_test, problem.y_test, update_set=UPDATE_SETS[label])
        aucs[f"LeafInfluence, {label}"] = area_under_curve(-found.scores, flipped)
    marked = problem.name == "adult"
    least = {
        "LeafInfluence, AllPoints": max(aucs["Detector"] - 0.02, aucs["LeafInfluence, SinglePoint"]),
    }
    n_rows = len(problem.y_test)
    return [
        Found(problem.name, "all samples", name, problem.n, n_rows, auc, least.get(name) if marked else None)
        for name, auc in aucs.items()
    ]


def _drawn(problem: Problem, model: Any, is_flipped: Any, drawn: Any, X: Any, y: Any, n_left_out: int) -> list[Found]:
    seen, ids, flipped = view(model), [str(row) for row in drawn.tolist()], is_flipped[drawn]
    aucs = {"Detector": area_under_curve(_detector(problem, model, drawn), flipped)}
    for method, name in (("leaf-refit", "FastLeafRefit"), ("leaf-influence", "FastLeafInfluence")):
        for label, update_set in UPDATE_SETS.items():
            scores = influence(seen, X, y, method=method, update_set=update_set, ids=ids).scores
            aucs[f"{name}, {label}"] = area_under_curve(-scores, flipped)
    found = [Found(problem.name, "drawn", name, len(drawn), len(y), auc) for name, auc in aucs.items()]
    scores = influence(model, X, y, method="leave-one-out", ids=ids[:n_left_out]).scores
    auc = area_under_curve(-scores, flipped[:n_left_out])
    return [*found, Found(problem.name, "drawn", "LeaveOneOut", len(scores), len(y), auc)]


def rows(found: list[Found]) -> list[Row]:
    """The table."""
    return [
        Row(
            (f.data, f.ranked, f.method, f"{f.n:,}", f"{f.n_rows:,}"),
            f.auc,
            None if f.least is None else at_least(round(f.least, 4)),
        )
        for f in found
    ]


def draw(found: list[Found], path: Path) -> None:
    """A bar for each method and data set."""
    mine = [f for f in found if f.ranked == "drawn"]
    methods = list(dict.fromkeys(f.method for f in mine))
    sets = list(dict.fromkeys(f.data for f in mine))
    with figure(path, [TITLE], "ROC-AUC", "") as (axis,):
        width = 0.8 / len(sets)
        for i, data in enumerate(sets):
            heights = [next(f.auc for f in mine if f.data == data and f.method == method) for method in methods]
            axis.barh(np.arange(len(methods)) + i * width, heights, width, color=COLOURS[data], label=data)
        axis.set_yticks(np.arange(len(methods)) + 0.4 - width / 2, methods, fontsize=7)
        axis.invert_yaxis()
        axis.set_xlim(0.4, 1.0)
