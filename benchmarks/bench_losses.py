"""Compare the losses of boosted regressions with those of LightGBM, by the loss that each minimises.

    python -m benchmarks.bench_losses --data ../shared/data [--sets abalone] [--folds 2]

Three sets, shuffled 5-fold cross-validation, the same folds for all; both libraries with their defaults of 100
iterations with a learning rate of 0.1. The error is the pinball loss, Huber's loss or the Poisson deviance of the test
folds; Huber's delta is half the standard deviation of the training targets. Categories are columns of the type
`category` for LightGBM.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.bench_accuracy import DATA
from benchmarks.datasets import SOURCES, Data, Source, read
from benchmarks.results import Row, at_most, table, write_report

SETS = {
    "abalone": SOURCES["abalone"],
    "california_housing": SOURCES["california_housing"],
    "wine_quality_white": Source(("wine_quality_white.csv.gz",), "regression"),
}
SYSTEMS = ("incremental", "incremental, no grids", "online", "LightGBM")


@dataclass(frozen=True)
class Question:
    """A loss, and what it asks of both libraries."""

    name: str
    ours: dict[str, Any]
    peers: dict[str, Any]
    error: Callable[[Any, Any], float]


def pinball(level: float) -> Callable[[Any, Any], float]:
    """The mean pinball loss of predictions."""
    return lambda y, p: float(np.mean(np.maximum(level * (y - p), (level - 1.0) * (y - p))))


def huber(delta: float) -> Callable[[Any, Any], float]:
    """The mean Huber loss of predictions."""

    def error(y: Any, p: Any) -> float:
        size = np.abs(y - p)
        return float(np.mean(np.where(size <= delta, 0.5 * size**2, delta * (size - 0.5 * delta))))

    return error


def deviance(y: Any, p: Any) -> float:
    """The mean Poisson deviance of predictions."""
    own = np.where(y > 0, y * np.log(np.maximum(y, 1e-300) / p), 0.0)
    return float(2.0 * np.mean(own - y + p))


def questions(y: Any) -> list[Question]:
    """All losses; y: the targets of the training fold."""
    delta = float(0.5 * np.std(y))
    asked = [
        Question(
            f"quantile {level}",
            {"loss": "quantile", "quantile": level},
            {"objective": "quantile", "alpha": level},
            pinball(level),
        )
        for level in (0.1, 0.5, 0.9)
    ]
    own = {"loss": "huber", "huber_delta": delta}
    asked.append(Question("Huber", own, {"objective": "huber", "alpha": delta}, huber(delta)))
    asked.append(Question("Poisson", {"loss": "poisson"}, {"objective": "poisson"}, deviance))
    return asked


def predict(system: str, question: Question, data: Data, train: Any, test: Any) -> Any:
    """Fit on the training fold and predict the test fold."""
    X, y = data.X, data.y
    if system == "LightGBM":
        from lightgbm import LGBMRegressor

        frame = X.astype(dict.fromkeys(data.source.categorical, "category"))
        model: Any = LGBMRegressor(random_state=0, n_jobs=1, verbose=-1, **question.peers)
        return model.fit(frame.iloc[train], y[train]).predict(frame.iloc[test])
    from oubli import IncrementalBoostingRegressor, OnlineBoostingRegressor

    if system == "online":
        online = OnlineBoostingRegressor(random_state=0, **question.ours)
        return online.fit(X.iloc[train], y[train]).predict(X.iloc[test])
    grids = "auto" if system == "incremental" else None
    ours = IncrementalBoostingRegressor(random_state=0, quantization=grids, **question.ours)
    return ours.fit(X.iloc[train], y[train]).predict(X.iloc[test])


def measure(data: Data, n_folds: int) -> dict[tuple[str, str], float]:
    """The mean error over folds by loss and system."""
    parts = np.array_split(np.random.default_rng(0).permutation(len(data.y)), n_folds)
    found: dict[tuple[str, str], list[float]] = {}
    for i, test in enumerate(parts):
        train = np.concatenate(parts[:i] + parts[i + 1 :])
        for question in questions(data.y[train]):
            for system in SYSTEMS:
                error = question.error(data.y[test], predict(system, question, data, train, test))
                found.setdefault((question.name, system), []).append(error)
    return {key: float(np.mean(values)) for key, values in found.items()}


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure and write the section."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=DATA)
    parser.add_argument("--sets", nargs="+", choices=list(SETS), default=list(SETS))
    parser.add_argument("--folds", type=int, default=5)
    parser.add_argument("--write-results", action="store_true")
    options = parser.parse_args(arguments)
    rows = []
    for name in options.sets:
        found = measure(read(SETS[name], options.data), options.folds)
        for loss in dict.fromkeys(loss for loss, _ in found):
            errors = [found[loss, system] for system in SYSTEMS]
            online = f"{errors[2] / errors[-1]:.3g}"
            cells = (name, loss, *(f"{error:,.4g}" for error in errors), online)
            rows.append(Row(cells, errors[0] / errors[-1], at_most(1.05)))
    shown = table(("set:", "loss:", *SYSTEMS, "online / LightGBM", "incremental / LightGBM"), rows)
    text = (__doc__ or "").partition("Three sets")[2]
    report = {"boosting-losses": ("Test error by the loss", f"Three sets{text}".strip(), shown)}
    write_report(report, write=options.write_results)


if __name__ == "__main__":
    main()
