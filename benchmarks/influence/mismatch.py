"""A group that is under-represented on purpose (Table 3 of the paper)."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import pandas as pd

from benchmarks.influence.problems import UPDATE_SETS, Problem
from benchmarks.results import Row
from oubli.core.influence import influence, view

NAME = "mismatch"
TITLE = "a group that is under-represented on purpose"
TEXT = (
    "Nine in ten of the positive training samples of a group are left out, and the influence of the rest on the "
    "test rows of the group is computed (Table 3 of the paper, where the group is patients from 40 to 50 years of "
    "age). Groups: on Adult, ages from 40 to 50; on purchase, new visitors; on Electricity, the evening from 17:00 "
    "to 19:00. Mean score of up to 100 samples of each of four parts, in 1e-6; positive samples help. *Refit*: "
    "FastLeafRefit, mean change of log-loss. *Derivative*: FastLeafInfluence. The samples of the kind that was left "
    "out should help most by far, the negative ones of the group least."
)
HEAD = ("data:", "method:", "update set:", "group, y=1:", "group, y=0:", "others, y=1:", "others, y=0")


@dataclass(frozen=True)
class Found:
    """A row of the table."""

    data: str
    method: str
    update_set: str
    means: tuple[float, ...]


def group_of(name: str, X: pd.DataFrame) -> npt.NDArray[np.bool_]:
    """Which rows are of the group."""
    if name == "adult":
        chosen = (X["age"] >= 40) & (X["age"] < 50)
    elif name == "purchase":
        chosen = X["VisitorType"] == "New_Visitor"
    else:
        chosen = (X["period"] * 24 >= 17) & (X["period"] * 24 < 19)
    return np.asarray(chosen, np.bool_)


def measure(problems: list[Problem], n_part: int, n_rows: int) -> list[Found]:
    """Leave out samples, train, and compute influence."""
    found = []
    for whole in problems:
        rng = np.random.default_rng(0)
        positive = np.flatnonzero(group_of(whole.name, whole.X) & (whole.y == 1))
        gone = rng.choice(positive, int(0.9 * len(positive)), replace=False)
        kept = np.setdiff1d(np.arange(whole.n), gone)
        problem = replace(whole, X=whole.X.iloc[kept].reset_index(drop=True), y=whole.y[kept])
        seen = view(problem.fit())
        in_group = group_of(problem.name, problem.X)
        parts = [
            np.flatnonzero((in_group == inside) & (problem.y == label)) for inside in (True, False) for label in (1, 0)
        ]
        drawn = [rng.choice(part, min(n_part, len(part)), replace=False) for part in parts]
        asked = np.flatnonzero(group_of(problem.name, problem.X_test))
        asked = asked if len(asked) <= n_rows else rng.choice(asked, n_rows, replace=False)
        X, y = problem.X_test.iloc[asked], problem.y_test[asked]
        ids = [str(i) for i in np.concatenate(drawn).tolist()]
        ends = np.cumsum([len(part) for part in drawn])[:-1]
        for method, name in (("leaf-refit", "refit"), ("leaf-influence", "derivative")):
            for label, update_set in UPDATE_SETS.items():
                scores = influence(seen, X, y, method=method, update_set=update_set, ids=ids).scores
                means = tuple(1e6 * float(part.mean()) for part in np.split(scores, ends))
                found.append(Found(problem.name, name, label, means))
    return found


def rows(found: list[Found]) -> list[Row]:
    """The table."""
    return [
        Row((f.data, f.method, f.update_set, *(f"{x:.1f}" for x in f.means[:3])), round(f.means[3], 1)) for f in found
    ]
