"""Predictions without tags pending, one row at a time and in batches, beside ExtraTrees and LightGBM."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np

from benchmarks.operations.training import Trained
from benchmarks.problems import Problem
from benchmarks.results import Mark, Row, at_least
from benchmarks.timing import cpu_seconds, median, per_call
from oubli.core import DynamicForestClassifier

TITLE = "Predicting one row"
TEXT = (
    "CPU time of one `predict_proba` of one row from Python when no work is deferred: the mean over the queries "
    "(test rows), the median of the rounds, all systems in turn. *Kernel alone*: the trees are called directly with "
    "an encoded row. LightGBM has 100 trees of 31 leaves: its scikit-learn estimator and, as *Booster*, its own "
    "interface. *Times ours* is the system's time divided by that of our `predict_proba`."
)
HEAD = ("data:", "setting:", "system:", "us a row", "times ours")
BATCH_TITLE = "Predicting a batch"
BATCH_TEXT = (
    "`predict_proba` of the whole test set at once: rows per CPU second, and our rate divided by the system's. The "
    "peers get `adult-native` one-hot, encoded beforehand; ours encodes text, which takes a quarter of its time."
)
BATCH_HEAD = ("data:", "setting:", "system:", "test rows", "rows a second", "our rate by theirs")
LIGHTGBM = "LightGBM(100)"
MARKS: dict[tuple[str, str], Mark] = {
    ("adult-one-hot", "ExtraTrees(100)"): at_least(150),
    ("adult-one-hot", LIGHTGBM): at_least(12),
    ("higgs-like", LIGHTGBM): at_least(5),
}
BATCH_MARKS: dict[tuple[str, str], Mark] = {
    ("adult-one-hot", LIGHTGBM): at_least(1),
    ("adult-native", LIGHTGBM): at_least(1),
}


def lightgbm(problem: Problem) -> Any:
    """LightGBM's estimator, fitted."""
    from lightgbm import LGBMClassifier

    estimator = LGBMClassifier(n_estimators=100, n_jobs=1, num_threads=1, verbosity=-1, random_state=0)
    return estimator.fit(problem.encoded, problem.y)


def kernel(forest: DynamicForestClassifier) -> Callable[[Any], object]:
    """What asks the trees with a row that is encoded already; the model must not change meanwhile."""

    def ask(encoded: Any) -> object:
        cells, category_hashes = encoded
        return forest.engine_.sum_leaves(cells, category_hashes)

    return ask


def rows(trained: Trained, booster: Any, n_queries: int, rounds: int) -> list[Row]:
    """One row a setting and system."""
    problem = trained.problem
    indices = np.random.default_rng(2).integers(0, len(problem.y_test), n_queries)
    ours, theirs = problem.queries(indices), [problem.encoded_test[i : i + 1] for i in indices.tolist()]
    few = theirs[: max(1, n_queries // 20)]  # a forest of scikit-learn takes milliseconds a row
    systems: dict[str, Callable[[], float]] = {}
    for setting, forest in trained.forests.items():
        forest.resolve()
        encoded = [forest.samples_.encode_queries(row) for row in ours]
        systems[f"oubli {setting}"] = partial(per_call, forest.predict_proba, ours)
        systems[f"kernel {setting}"] = partial(per_call, kernel(forest), encoded)
    peers: dict[str, Callable[[], float]] = {
        problem.peer_name: partial(per_call, trained.peer.predict_proba, few),
        LIGHTGBM: partial(per_call, booster.predict_proba, theirs),
        f"{LIGHTGBM}, Booster": partial(per_call, booster.booster_.predict, theirs),
    }
    seconds = by_turns({**systems, **peers}, rounds)
    found = []
    for setting in trained.forests:
        base = seconds[f"oubli {setting}"]
        listed = {"oubli": base, "oubli, kernel alone": seconds[f"kernel {setting}"], **{n: seconds[n] for n in peers}}
        for name, value in listed.items():
            mark = MARKS.get((problem.name, name)) if setting == "fast" else None
            found.append(Row((problem.name, setting, name, f"{1e6 * value:.1f}"), value / base, mark))
    return found


def batch_rows(trained: Trained, booster: Any, rounds: int) -> list[Row]:
    """One row a setting and system."""
    problem = trained.problem
    ours = {
        setting: partial(cpu_seconds, partial(forest.predict_proba, problem.X_test))
        for setting, forest in trained.forests.items()
    }
    peers = {
        name: partial(cpu_seconds, partial(estimator.predict_proba, problem.encoded_test))
        for name, estimator in ((problem.peer_name, trained.peer), (LIGHTGBM, booster))
    }
    for forest in trained.forests.values():
        forest.resolve()
    seconds = by_turns({**ours, **peers}, rounds)
    found = []
    for setting in trained.forests:
        base = seconds[setting]
        for name, value in {"oubli": base, **{peer: seconds[peer] for peer in peers}}.items():
            mark = BATCH_MARKS.get((problem.name, name)) if setting == "fast" else None
            n_rows = len(problem.y_test)
            cells = (problem.name, setting, name, f"{n_rows:,}", f"{n_rows / value:,.0f}")
            found.append(Row(cells, value / base, mark))
    return found


def by_turns(systems: Mapping[str, Callable[[], float]], rounds: int) -> dict[str, float]:
    """The median of each measurement, taken in turn after one that does not count."""
    found: dict[str, list[float]] = {name: [] for name in systems}
    for number in range(rounds + 1):
        for name, measure in systems.items():
            value = measure()
            if number:
                found[name].append(value)
    return {name: median(values) for name, values in found.items()}
