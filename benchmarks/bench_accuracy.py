"""Measure how accurate the forest is, beside scikit-learn's RandomForest and ExtraTrees.

    python -m benchmarks.bench_accuracy --data ../shared/data

Eight data sets; the given split where there is one, else shuffled 5-fold cross-validation; five
seeds, each seeding both the folds and the model. All systems see the same folds in the same run.

* `oubli`        our defaults; columns as they are (categories as text, missing values as missing)
* `oubli q=0.1`  the same with `occurrence=0.1`
* `RandomForest`, `ExtraTrees`  scikit-learn, 100 trees, defaults; categories one-hot (a missing one
  is a category of its own, an unseen one is all zeros), missing numbers replaced by the median

AUC for two classes, accuracy for more, R2 for regression; accuracy is recorded for two classes as
well. A value is the mean over folds; mean and standard deviation are over seeds. A gap is ours minus
the better of the two peers, in points (100 x metric).
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from benchmarks.datasets import SOURCES, Data, Source, load
from benchmarks.results import machine, write_section

OURS = ("oubli", "oubli q=0.1")
PEERS = ("RandomForest", "ExtraTrees")
HERE = Path(__file__).parent
DATA = Path("../shared/data")


@dataclass(frozen=True)
class Job:
    """One fit and its evaluation."""

    set_name: str
    system: str
    seed: int
    fold: int
    n_folds: int
    parameters: tuple[tuple[str, Any], ...] = ()

    @property
    def key(self) -> str:
        """What identifies a peer's result among the same data and versions."""
        return f"{self.set_name}/{self.system}/{self.seed}/{self.fold}/{self.n_folds}"


@dataclass
class Outcome:
    """What a job measured."""

    metrics: dict[str, float]
    fit_seconds: float
    predict_seconds: float
    reused: bool = field(default=False)


@lru_cache(maxsize=1)
def _data(name: str, directory: str) -> Data:
    return load(name, Path(directory))


def our_model(source: Source, system: str, seed: int, parameters: dict[str, Any]) -> Any:
    """Make our estimator with its defaults, `occurrence` and the parameters to try aside."""
    from oubli.core import DynamicForestClassifier, DynamicForestRegressor

    regression = source.task == "regression"
    estimator = DynamicForestRegressor if regression else DynamicForestClassifier
    chosen = dict(parameters)
    if system == "oubli q=0.1":
        chosen["occurrence"] = 0.1
    return estimator(random_state=seed, **chosen)


def peer_model(source: Source, system: str, seed: int, columns: Sequence[str]) -> Any:
    """Make scikit-learn's forest with 100 trees and defaults, behind the usual encoding."""
    from sklearn.compose import make_column_transformer
    from sklearn.ensemble import (
        ExtraTreesClassifier,
        ExtraTreesRegressor,
        RandomForestClassifier,
        RandomForestRegressor,
    )
    from sklearn.impute import SimpleImputer
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import OneHotEncoder

    regression = source.task == "regression"
    estimator = {
        ("RandomForest", False): RandomForestClassifier,
        ("RandomForest", True): RandomForestRegressor,
        ("ExtraTrees", False): ExtraTreesClassifier,
        ("ExtraTrees", True): ExtraTreesRegressor,
    }[system, regression]
    numeric = [column for column in columns if column not in source.categorical]
    encoder = make_column_transformer(
        (SimpleImputer(strategy="median"), numeric),
        (OneHotEncoder(handle_unknown="ignore", sparse_output=False), list(source.categorical)),
    )
    return make_pipeline(encoder, estimator(n_estimators=100, random_state=seed, n_jobs=1))


def evaluate(source: Source, model: Any, X: pd.DataFrame, y: Any) -> dict[str, float]:
    """Compute the metrics of a fitted model on the test rows."""
    from sklearn.metrics import accuracy_score, r2_score, roc_auc_score

    if source.task == "regression":
        return {"R2": float(r2_score(y, model.predict(X)))}
    probabilities = np.asarray(model.predict_proba(X))
    classes = np.asarray(model.classes_)
    predicted = classes[probabilities.argmax(axis=1)]
    metrics = {"accuracy": float(accuracy_score(y, predicted))}
    if source.task == "binary":
        metrics["AUC"] = float(roc_auc_score(y == classes[1], probabilities[:, 1]))
    return metrics


def run(job: Job, directory: str) -> Outcome:
    """Fit and evaluate."""
    data = _data(job.set_name, directory)
    train, test = list(data.splits(job.seed, job.n_folds))[job.fold]
    X, X_test = data.X.iloc[train], data.X.iloc[test]
    if job.system in OURS:
        model = our_model(data.source, job.system, job.seed, dict(job.parameters))
        arguments = {"categorical_features": list(data.source.categorical)}
    else:
        model = peer_model(data.source, job.system, job.seed, list(data.X.columns))
        arguments = {}
    start = time.perf_counter()
    model.fit(X, data.y[train], **arguments)
    fitted = time.perf_counter()
    metrics = evaluate(data.source, model, X_test, data.y[test])
    return Outcome(metrics, fitted - start, time.perf_counter() - fitted)


def jobs_of(
    sets: Sequence[str],
    systems: Sequence[str],
    seeds: Sequence[int],
    n_folds: int,
    parameters: dict[str, Any],
) -> Iterator[Job]:
    """All jobs, data set by data set, so that each file is read once by each process."""
    for name in sets:
        folds = range(1 if len(SOURCES[name].files) == 2 else n_folds)
        for seed in seeds:
            for fold in folds:
                for system in systems:
                    chosen = tuple(sorted(parameters.items())) if system in OURS else ()
                    yield Job(name, system, seed, fold, len(folds), chosen)


def summarise(results: dict[Job, Outcome]) -> dict[str, dict[str, dict[str, Any]]]:
    """{set: {system: {metric: {"mean", "sd", "seeds"}, "fit_seconds": ...}}}."""
    summary: dict[str, dict[str, dict[str, Any]]] = {}
    for name in dict.fromkeys(job.set_name for job in results):
        summary[name] = {}
        for system in dict.fromkeys(job.system for job in results):
            mine = {j: o for j, o in results.items() if (j.set_name, j.system) == (name, system)}
            if not mine:
                continue
            entry: dict[str, Any] = {}
            for metric in next(iter(mine.values())).metrics:
                by_seed = {
                    seed: float(np.mean([o.metrics[metric] for j, o in mine.items() if j.seed == seed]))
                    for seed in dict.fromkeys(j.seed for j in mine)
                }
                values = list(by_seed.values())
                entry[metric] = {
                    "mean": float(np.mean(values)),
                    "sd": float(np.std(values, ddof=1)) if len(values) > 1 else 0.0,
                    "seeds": by_seed,
                }
            entry["fit_seconds"] = float(np.median([o.fit_seconds for o in mine.values()]))
            entry["predict_seconds"] = float(np.median([o.predict_seconds for o in mine.values()]))
            entry["reused"] = any(o.reused for o in mine.values())
            summary[name][system] = entry
    return summary


def gaps(summary: dict[str, dict[str, dict[str, Any]]], system: str, metric: str | None = None) -> dict[str, float]:
    """Points between a system and the better peer, by data set."""
    result = {}
    for name, entries in summary.items():
        chosen = metric or SOURCES[name].metric
        peers = [entries[p][chosen]["mean"] for p in PEERS if p in entries and chosen in entries[p]]
        if peers and system in entries and chosen in entries[system]:
            result[name] = 100.0 * (entries[system][chosen]["mean"] - max(peers))
    return result


def _cell(entry: dict[str, Any] | None, metric: str) -> str:
    if entry is None or metric not in entry:
        return ""
    return f"{entry[metric]['mean']:.4f} ± {entry[metric]['sd']:.4f}"


def table(summary: dict[str, dict[str, dict[str, Any]]]) -> str:
    """Lay out the result in Markdown: the metric of each set, then accuracy of the two-class sets."""
    systems = [s for s in (*OURS, *PEERS) if any(s in entries for entries in summary.values())]
    ours = [s for s in systems if s in OURS]
    head = ["data set", "metric", *systems, *(f"gap {s}" for s in ours)]
    lines = ["| " + " | ".join(head) + " |", "|---|---|" + "---:|" * (len(head) - 2)]
    rows: list[tuple[str, str, str | None]] = [(name, SOURCES[name].metric, None) for name in summary]
    rows += [(n, "accuracy", "accuracy") for n in summary if SOURCES[n].task == "binary"]
    for name, metric, override in rows:
        cells = [_cell(summary[name].get(s), metric) for s in systems]
        for s in ours:
            gap = gaps(summary, s, override).get(name)
            cells.append("" if gap is None else f"{gap:+.2f}")
        lines.append("| " + " | ".join([name, metric, *cells]) + " |")
    for title, reduce in (("mean gap", np.mean), ("worst gap", np.min)):
        values = [list(gaps(summary, s).values()) for s in ours]
        cells = [f"**{reduce(v):+.2f}**" if v else "" for v in values]
        blanks = [""] * (len(systems) + 1)
        lines.append("| " + " | ".join([f"**{title}** (first metric)", *blanks, *cells]) + " |")
    return "\n".join(lines)


def parse_value(text: str) -> Any:
    """Read a parameter's value: JSON if it is JSON (0.2, 12, null, true), else text."""
    try:
        return json.loads(text)
    except json.JSONDecodeError:
        return text


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--data", type=Path, default=DATA)
    parser.add_argument("--sets", nargs="+", choices=list(SOURCES), default=list(SOURCES))
    parser.add_argument("--systems", nargs="+", choices=OURS + PEERS, default=OURS + PEERS)
    parser.add_argument("--seeds", type=int, default=5, help="seeds 0 to N-1")
    parser.add_argument("--folds", type=int, default=5)
    parser.add_argument("--n-jobs", type=int, default=1, help="fits at a time, one process each")
    parser.add_argument(
        "--param",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="a parameter of our estimators to try; may be repeated",
    )
    parser.add_argument(
        "--peer-results",
        type=Path,
        metavar="FILE",
        help="take scikit-learn's results from this file where it has them, and add the others",
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write every number here")
    parser.add_argument("--write-results", action="store_true", help="replace the section in results/accuracy.md")
    return parser.parse_args(arguments)


def execute(jobs: Sequence[Job], options: argparse.Namespace) -> dict[Job, Outcome]:
    """Run the jobs, taking peers' results from the file that was named, if any."""
    stored: dict[str, Any] = {}
    path: Path | None = options.peer_results
    if path is not None and path.exists():
        stored = json.loads(path.read_text(encoding="utf-8"))
    results: dict[Job, Outcome] = {}
    todo = []
    for job in jobs:
        if job.system in PEERS and job.key in stored:
            results[job] = Outcome(**{**stored[job.key], "reused": True})
        else:
            todo.append(job)
    directory = str(options.data)
    with ProcessPoolExecutor(options.n_jobs) as pool:
        inline = options.n_jobs == 1
        outcomes = (run(job, directory) for job in todo) if inline else pool.map(run, todo, [directory] * len(todo))
        for job, outcome in zip(todo, outcomes, strict=True):
            results[job] = outcome
            shown = " ".join(f"{k}={v:.4f}" for k, v in outcome.metrics.items())
            print(
                f"{job.set_name:20}{job.system:14}seed {job.seed} fold {job.fold}  {shown}  "
                f"fit {outcome.fit_seconds:.2f}s predict {outcome.predict_seconds:.2f}s",
                flush=True,
            )
            if path is not None and job.system in PEERS:
                stored[job.key] = asdict(outcome)
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(json.dumps(stored), encoding="utf-8")
    return {job: results[job] for job in jobs}


def main(arguments: Sequence[str] | None = None) -> None:
    """Run, print the table, and write what was asked for."""
    options = parse(arguments)
    parameters = {name: parse_value(v) for name, v in (p.split("=", 1) for p in options.param)}
    jobs = list(jobs_of(options.sets, options.systems, range(options.seeds), options.folds, parameters))
    summary = summarise(execute(jobs, options))
    text = table(summary)
    facts = machine()
    print(f"\n{text}\n")
    if options.json is not None:
        document = {"machine": facts, "parameters": parameters, "sets": summary}
        options.json.write_text(json.dumps(document, indent=1), encoding="utf-8")
    if options.write_results:
        if any(entry["reused"] for entries in summary.values() for entry in entries.values()):
            raise SystemExit("results are written from one run only: leave out --peer-results")
        settings = ", ".join(f"{k}={v}" for k, v in parameters.items()) or "defaults"
        about = f"{options.seeds} seeds, {options.folds} folds, oubli parameters: {settings}."
        write_section("accuracy", "Forests beside scikit-learn's", about, text)


if __name__ == "__main__":
    main()
