"""How long do attributions take, beside LightGBM's `pred_contrib` and shap's TreeExplainer.

python -m benchmarks.bench_shap [--data DIR] [--quick] [--only boosting forest] [--write-results]

The question `forest` needs the package shap, which nothing else here does.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

import numpy as np
import pandas as pd
from lightgbm import LGBMClassifier
from sklearn.ensemble import RandomForestClassifier

from benchmarks import sections
from benchmarks.boosting.datasets import Split, load_split
from benchmarks.results import Row, at_most
from benchmarks.sections import Bench, Section
from benchmarks.timing import cpu_seconds, median
from oubli.core import DynamicForestClassifier, IncrementalBoostingClassifier, OnlineBoostingClassifier

SETS = ("adult", "electricity", "bank")
SIZES = 50_000, 1_000, 100, 10
ROUNDS = 5


@dataclass(frozen=True)
class Explaining(Bench):
    """How many rows are learned, and explained: of boosted trees, of a forest, and of scikit-learn's."""

    group: ClassVar[str] = "shap"
    learned: int
    boosted: int
    forest: int
    by_shap: int


def _rows(split: Split, most: int) -> tuple[pd.DataFrame, Any, pd.DataFrame]:
    X, others = (pd.DataFrame(one).reset_index(drop=True) for one in (split.X, split.X_test))
    chosen = np.random.default_rng(0).permutation(len(X))[:most]
    return X.iloc[chosen].reset_index(drop=True), np.asarray(split.y)[chosen], others


def _coded(frame: pd.DataFrame, like: pd.DataFrame) -> pd.DataFrame:
    """Categories as LightGBM takes them."""
    found = frame.copy()
    for name in like:
        if like[name].dtype.kind not in "fiub":
            found[name] = pd.Categorical(frame[name], categories=sorted(map(str, like[name].dropna().unique())))
    return found


def _numbers(frame: pd.DataFrame, like: pd.DataFrame) -> Any:
    """Everything as numbers."""
    coded = _coded(frame, like)
    return coded.apply(lambda one: one.cat.codes if one.dtype == "category" else one).fillna(-1).to_numpy(np.float64)


def _seconds(*works: Callable[[], object]) -> list[float]:
    """The middle CPU seconds of each of some works, which take turns."""
    rounds = [[cpu_seconds(work) for work in works] for _ in range(ROUNDS)]
    return [median(found) for found in zip(*rounds, strict=True)]


def ask_boosting(bench: Explaining) -> Section:
    """Boosted trees, beside LightGBM's with as many trees and leaves."""
    rows = []
    for name in SETS:
        split = load_split(name, bench.data, bench.cache)
        X, y, others = _rows(split, bench.learned)
        asked = others.iloc[: bench.boosted]
        for title, make in (("exact", IncrementalBoostingClassifier), ("online", OnlineBoostingClassifier)):
            model: Any = make(random_state=0, n_jobs=1)
            model.fit(X, y, ids=X.index)
            trees = model.engine_.trees
            n_trees, n_leaves = len(trees.roots), _leaves(model)
            leaves_each = max(2, round(n_leaves / n_trees))
            peer = LGBMClassifier(
                n_estimators=n_trees, num_leaves=leaves_each, min_child_samples=1, verbose=-1, n_jobs=1
            )
            peer.fit(_coded(X, X), y)
            coded = _coded(asked, X)
            model.shap_values(asked[:1])
            model.delete(X.index[0])
            first = cpu_seconds(partial(model.shap_values, asked[:1]))
            ours, its = _seconds(
                partial(model.shap_values, asked), partial(peer.predict, coded, pred_contrib=True, num_threads=1)
            )
            its_leaves = sum(tree["num_leaves"] for tree in peer.booster_.dump_model()["tree_info"])
            times = (f"{1e3 * seconds:.1f}" for seconds in (first, ours, its))
            cells = name, title, f"{n_trees}", f"{n_leaves:,}", f"{its_leaves:,}", *times
            rows.append(Row(cells, ours / its, at_most(1.5) if title == "exact" else None))
    text = (
        f"Attributions of {bench.boosted:,} rows on one thread, CPU milliseconds, medians of {ROUNDS} rounds in turn; "
        f"models of {bench.learned:,} rows at most. LightGBM has as many trees and about as many leaves. *First*: one "
        "row after a change, when the samples are counted again."
    )
    head = ("data:", "boosting:", "trees", "leaves", "LightGBM's", "first, ms", "ours, ms", "pred_contrib, ms", "ratio")
    return Section("Boosted trees beside pred_contrib", text, head, rows)


def _leaves(model: Any) -> int:
    """Leaves of the trees that predictions read."""
    trees = model.engine_.weighted_trees(model.problem(), model.class_order())
    child, level, n = trees.nodes["child"], trees.roots, 0
    while len(level):
        left = child[level].astype(np.int64)
        n += int((left < 0).sum())
        left = left[left >= 0]
        level = np.concatenate([left, left + 1])
    return n


def ask_forest(bench: Explaining) -> Section:
    """The default forest, beside shap's TreeExplainer on scikit-learn's forest with as many leaves."""
    import shap

    rows = []
    for name in SETS:
        split = load_split(name, bench.data, bench.cache)
        X, y, others = _rows(split, bench.learned)
        asked = others.iloc[: bench.forest]
        model: Any = DynamicForestClassifier(random_state=0, n_jobs=1).fit(X, y, ids=X.index)
        n_leaves = _leaves(model)
        learned, some = (_numbers(one, X) for one in (X, asked))
        peer = RandomForestClassifier(100, max_leaf_nodes=round(n_leaves / 100), random_state=0).fit(learned, y)
        explainer = shap.TreeExplainer(peer)
        its_leaves = sum(tree.get_n_leaves() for tree in peer.estimators_)
        model.shap_values(asked[:1])
        ours, alone = _seconds(partial(model.shap_values, asked), partial(model.shap_values, asked[:1]))
        some = some[: bench.by_shap]
        its = cpu_seconds(partial(explainer.shap_values, some, check_additivity=False))
        ours, its = 1e3 * ours / len(asked), 1e3 * its / bench.by_shap
        cells = name, f"{n_leaves:,}", f"{its_leaves:,}", f"{1e3 * alone:.1f}", f"{ours:.2f}", f"{its:.1f}"
        rows.append(Row(cells, ours / its, at_most(0.2)))
    text = (
        f"The default forest on {bench.learned:,} rows at most, {bench.forest} rows explained on one thread; CPU "
        "milliseconds a row. scikit-learn's forest has about as many leaves, and categories as numbers. *Alone*: a row "
        "that is explained by itself."
    )
    head = ("data:", "leaves", "scikit-learn's", "alone, ms", "ours, ms a row", "TreeExplainer, ms a row", "ratio")
    return Section("The forest beside TreeExplainer", text, head, rows)


QUESTIONS = {"boosting": ask_boosting, "forest": ask_forest}


def main(arguments: Sequence[str] | None = None) -> None:
    """Ask the questions, print the tables, and write them when asked."""
    options = sections.parse(__doc__, list(QUESTIONS), arguments)
    sizes = (2_000, 50, 32, 2) if options.quick else SIZES
    sections.ask(QUESTIONS, Explaining(*sections.folders(options), *sizes), options)


if __name__ == "__main__":
    main()
