"""What samples say that trees have not learned: sets and intervals beside split conformal, and wrong labels.

python -m benchmarks.bench_unseen [--data DIR] [--quick] [--only coverage labels] [--write-results]
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pandas as pd

from benchmarks import sections
from benchmarks.boosting.datasets import REGRESSION, Split, load_split
from benchmarks.results import Row, at_least, at_most, shown
from benchmarks.sections import Bench, Section
from benchmarks.timing import timed
from oubli.core import DynamicForestClassifier, DynamicForestRegressor, IncrementalBoostingClassifier
from oubli.core.influence.methods import influence

SETS = ("adult", "heart", "purchase", "electricity", "bank", "letter", "california_housing", "abalone")
LABELED = ("adult", "heart", "electricity", "bank", "letter")
ROWS, LABELED_ROWS, JUDGES = 20_000, 2_000, 300
COVERAGE, CALIBRATING = 0.9, 0.2
DELETED = (0.1, 0.5, 0.9)
FLIPPED = 0.05


@dataclass(frozen=True)
class Questions(Bench):
    """How many rows there are."""

    group: ClassVar[str] = "unseen"
    rows: int
    labeled: int


def _frame(table: Any) -> pd.DataFrame:
    frame = table if isinstance(table, pd.DataFrame) else pd.DataFrame(np.asarray(table))
    return frame.reset_index(drop=True)


def _forest(split: Split) -> Any:
    return (DynamicForestRegressor if split.task == REGRESSION else DynamicForestClassifier)(random_state=0)


# -- coverage ---------------------------------------------------------------------------------------


def _reach(model: Any, X: Any, y: Any) -> tuple[Any, Any]:
    """How wide a set or an interval has to be to hold the truth of each row, and the distances of all answers."""
    if model.task == "regression":
        return np.abs(y - model.predict(X)), None
    distances = 1.0 - model.predict_proba(X)
    return distances[np.arange(len(y)), np.searchsorted(model.classes_, y)], distances


def covered(model: Any, X: Any, y: Any) -> tuple[float, float]:
    """The share of rows whose set or interval holds the truth, and the mean size of these."""
    if model.task == "regression":
        low, high = model.predict_interval(X, COVERAGE).T
        return float(np.mean((low <= y) & (y <= high))), float(np.mean(high - low))
    inside = model.predict_set(X, COVERAGE)
    known = np.isin(y, model.classes_)
    places = np.searchsorted(model.classes_, y[known])
    return float(inside[np.flatnonzero(known), places].sum() / len(y)), float(inside.sum(axis=1).mean())


def split_size(split: Split, X: Any, y: Any, X_test: Any, y_test: Any, coverage: float) -> float:
    """The mean size of split conformal's sets or intervals that hold the truth of as many rows."""
    order = np.random.default_rng(0).permutation(len(X))
    learned = order[int(CALIBRATING * len(X)) :]
    model = _forest(split).fit(X.iloc[learned], y[learned], ids=learned)
    own, distances = _reach(model, X_test, y_test)
    limit = np.sort(own)[min(len(own) - 1, round(coverage * len(own)) - 1)]
    return float(2 * limit if distances is None else (distances <= limit).sum(axis=1).mean())


def coverage_of(split: Split, n: int) -> Iterator[Row]:
    """Rows of one data set, of which n are learned."""
    chosen = np.random.default_rng(2).permutation(len(split.X))[:n]
    X, y = _frame(split.X).iloc[chosen].reset_index(drop=True), np.asarray(split.y)[chosen]
    X_test, y_test = _frame(split.X_test), np.asarray(split.y_test)
    model = _forest(split).fit(X, y, ids=X.index)
    share, size = covered(model, X_test, y_test)
    ratio = size / split_size(split, X, y, X_test, y_test, share)
    yield Row((split.name, "all samples", shown(size), f"{ratio:.3f}"), 100 * share, at_least(89.0))
    rng = np.random.default_rng(1)
    left = rng.permutation(len(X))
    for part in DELETED:
        n = len(X) - round(part * len(X))
        model.delete(left[n:])
        left = left[:n]
        share, size = covered(model, X_test, y_test)
        yield Row((split.name, f"{part:.0%} deleted at random", shown(size), ""), 100 * share, at_least(89.0))
    column = next(name for name in X if name not in split.categorical)
    middle = X[column].median()
    model = _forest(split).fit(X, y, ids=X.index)
    model.delete(X.index[X[column] > middle])
    is_left = (X_test[column] <= middle).to_numpy()
    for words, some in (("rows like those left", is_left), ("rows like those deleted", ~is_left)):
        share, size = covered(model, X_test[some], y_test[some])
        yield Row((split.name, f"a region deleted: {words}", shown(size), ""), 100 * share)


def ask_coverage(bench: Questions) -> Section:
    """What is covered."""
    rows: list[Row] = []
    for name in SETS:
        rows += coverage_of(load_split(name, bench.data, bench.cache), bench.rows)
    text = (
        f"`coverage={COVERAGE}` of forests with their defaults, on {bench.rows:,} training rows at most, drawn at "
        "random. *Size*: classes in a set, or the width of an interval, on average. *By split*: the size divided by "
        f"that of split conformal whose forest learns {1 - CALIBRATING:.0%} of the rows, with the limit that holds "
        "the truth of as many rows of the test. *Region*: all rows with more than the median of a column are deleted."
    )
    return Section("Sets and intervals", text, ("data:", "held:", "size", "by split", "covered %"), rows)


# -- wrong labels -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Labeled:
    """Training rows, some with wrong labels, and rows to judge by."""

    X: pd.DataFrame
    y: Any
    is_wrong: Any
    X_judge: pd.DataFrame
    y_judge: Any


def by_values(data: Labeled) -> Any:
    """Data-OOB of ours."""
    return DynamicForestClassifier(random_state=0).fit(data.X, data.y, ids=data.X.index).data_values().values


def by_leaving_out(data: Labeled) -> Any:
    """Exact leave-one-out: the forest unlearns each sample."""
    model = DynamicForestClassifier(random_state=0).fit(data.X, data.y, ids=data.X.index)
    return influence(model, data.X_judge, data.y_judge, method="leave-one-out").scores


def by_refitting(data: Labeled) -> Any:
    """The forest's leaves are refitted without each sample."""
    model = DynamicForestClassifier(random_state=0).fit(data.X, data.y, ids=data.X.index)
    return influence(model, data.X_judge, data.y_judge, method="leaf-refit").scores


def by_leaf_influence(data: Labeled) -> Any:
    """LeafInfluence in exact boosting."""
    model = IncrementalBoostingClassifier(random_state=0).fit(data.X, data.y, ids=data.X.index)
    return influence(model, data.X_judge, data.y_judge).scores


def by_bagging(data: Labeled) -> Any:
    """Data-OOB as published, with scikit-learn's bagged trees: the share of right ones among those that lack a row."""
    from sklearn.ensemble import BaggingClassifier

    codes = pd.get_dummies(data.X).to_numpy(np.float64)
    model = BaggingClassifier(n_estimators=100, random_state=0).fit(np.nan_to_num(codes), data.y)
    right, n_asked = np.zeros(len(codes)), np.zeros(len(codes))
    for tree, drawn in zip(model.estimators_, model.estimators_samples_, strict=True):
        unseen = np.setdiff1d(np.arange(len(codes)), drawn)
        found = model.classes_[tree.predict(np.nan_to_num(codes[unseen])).astype(int)]
        right[unseen] += found == data.y[unseen]
        n_asked[unseen] += 1
    return right / np.maximum(n_asked, 1)


METHODS: dict[str, Callable[[Labeled], Any]] = {
    "Data-OOB": by_values,
    "exact leave-one-out": by_leaving_out,
    "leaf-refit of the forest": by_refitting,
    "LeafInfluence": by_leaf_influence,
    "Data-OOB, scikit-learn": by_bagging,
}


def labels_of(split: Split, n: int) -> Iterator[Row]:
    """Rows of one data set."""
    from sklearn.metrics import roc_auc_score

    rng = np.random.default_rng(0)
    chosen = rng.permutation(len(split.X))[:n]
    X, y = _frame(split.X).iloc[chosen].reset_index(drop=True), np.asarray(split.y)[chosen].copy()
    wrong = rng.permutation(len(X))[: round(FLIPPED * len(X))]
    classes = np.unique(y)
    y[wrong] = classes[(np.searchsorted(classes, y[wrong]) + rng.integers(1, len(classes), len(wrong))) % len(classes)]
    judges = rng.permutation(len(split.X_test))[:JUDGES]
    y_judge = np.asarray(split.y_test)[judges]
    judges, y_judge = judges[np.isin(y_judge, classes)], y_judge[np.isin(y_judge, classes)]
    data = Labeled(X, y, np.isin(np.arange(len(X)), wrong), _frame(split.X_test).iloc[judges], y_judge)
    found = {name: timed(lambda method=method: method(data)) for name, method in METHODS.items()}
    aucs = {name: roc_auc_score(data.is_wrong, -values) for name, (_, values) in found.items()}
    best = max(auc for name, auc in aucs.items() if name != "Data-OOB")
    for name, (seconds, _) in found.items():
        mark = at_most(0.02) if name == "Data-OOB" else None
        yield Row((split.name, name, shown(seconds), f"{aucs[name]:.3f}"), best - aucs[name], mark)


def ask_labels(bench: Questions) -> Section:
    """How wrong labels are found."""
    rows: list[Row] = []
    for name in LABELED:
        rows += labels_of(load_split(name, bench.data, bench.cache), bench.labeled)
    text = (
        f"{FLIPPED:.0%} of the labels of {bench.labeled:,} rows are changed to another class; samples are ranked by "
        "value, or by what they do for the loss on 300 rows with right labels. CPU seconds with the fit. *Behind*: the "
        "best AUC of the others less this one. Data-OOB in scikit-learn is the published one: bagged trees, and the "
        "share of right ones."
    )
    return Section("Wrong labels", text, ("data:", "method:", "s", "AUC", "behind"), rows)


QUESTIONS: dict[str, Callable[[Questions], Section]] = {"coverage": ask_coverage, "labels": ask_labels}


def main(arguments: Sequence[str] | None = None) -> None:
    """Ask the questions, print the tables, and write them when asked."""
    options = sections.parse(__doc__, list(QUESTIONS), arguments)
    rows, labeled = (1_000, 200) if options.quick else (ROWS, LABELED_ROWS)
    sections.ask(QUESTIONS, Questions(*sections.folders(options), rows, labeled), options)


if __name__ == "__main__":
    main()
