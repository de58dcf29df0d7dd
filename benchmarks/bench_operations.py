"""Measure what one operation costs, beside fitting scikit-learn's ExtraTrees on the same data.

    python -m benchmarks.bench_operations --data ../shared/data

Adult's training part, columns as they are for us, one-hot for ExtraTrees (100 trees, defaults), the
defaults and `occurrence=0.1`. CPU time of one thread, median of the rounds, compile time apart. A
deletion is never shown without the work it owes: `resolve` after the deletions is a row of its own.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from benchmarks.bench_accuracy import DATA
from benchmarks.datasets import load
from benchmarks.results import machine, write_section
from core import DynamicForestClassifier

N_MUTATIONS = 500
N_QUERIES = 500


def seconds(work: Callable[[], object]) -> float:
    """CPU seconds of one call."""
    started = time.process_time()
    work()
    return time.process_time() - started


def measure(forest: DynamicForestClassifier, X: pd.DataFrame, y: Any) -> dict[str, float]:
    """Seconds of each operation: per fit, or per sample."""
    rows = X.iloc[:N_MUTATIONS].values.tolist()

    def delete_all() -> None:
        for i in range(N_MUTATIONS):
            forest.delete(i)

    def add_all() -> None:
        for i, row in enumerate(rows):
            forest.add([row], y[i : i + 1], ids=[i])

    def predict_all() -> None:
        for row in rows[:N_QUERIES]:
            forest.predict_proba([row])

    result = {"fit": seconds(lambda: forest.fit(X, y))}
    result["delete one"] = seconds(delete_all) / N_MUTATIONS
    result["resolve, per deletion"] = seconds(forest.resolve) / N_MUTATIONS
    result["add one"] = seconds(add_all) / N_MUTATIONS
    forest.resolve()
    result["predict one row"] = seconds(predict_all) / N_QUERIES
    return result


def main(arguments: Sequence[str] | None = None) -> None:
    """Run, print the table, and write it when asked."""
    from sklearn.ensemble import ExtraTreesClassifier

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, default=DATA)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--write-results", action="store_true")
    options = parser.parse_args(arguments)
    data = load("adult", options.data)
    X, y = data.X.iloc[: data.n_train], data.y[: data.n_train]
    one_hot = pd.get_dummies(X, dummy_na=True).fillna(0.0)
    systems = {"defaults": {}, "occurrence=0.1": {"occurrence": 0.1}}
    rounds: dict[str, list[dict[str, float]]] = {name: [] for name in systems}
    peer = []
    for number in range(options.rounds + 1):
        for name, parameters in systems.items():
            found = measure(DynamicForestClassifier(random_state=number, **parameters), X, y)
            if number:  # the first round compiles
                rounds[name].append(found)
        if number:
            peer.append(seconds(lambda seed=number: ExtraTreesClassifier(random_state=seed).fit(one_hot, y)))
    retraining = statistics.median(peer)
    lines = ["| operation | setting | ms | in the time of one ExtraTrees fit |", "|---|---|---:|---:|"]
    for operation in rounds["defaults"][0]:
        for name in systems:
            value = statistics.median(r[operation] for r in rounds[name])
            lines.append(f"| {operation} | {name} | {1e3 * value:.3f} | {retraining / value:,.1f} |")
    lines.append(f"| fit | ExtraTrees(100) | {1e3 * retraining:.3f} | 1.0 |")
    text = "\n".join(lines)
    facts = ", ".join(f"{name} {value}" for name, value in machine().items())
    print(text)
    if options.write_results:
        header = f"Adult, 32,561 rows, CPU time of one thread, median of {options.rounds} rounds. Machine: {facts}."
        write_section("operations", f"\n{header}\n\n{text}\n")


if __name__ == "__main__":
    main()
