"""Compare settings of the forest by accuracy and by what they cost, beside scikit-learn's forests.

    python -m benchmarks.bench_defaults --data ../shared/data [--sets letter covtype] [--settings q=0.3]

Which defaults a forest should have is a question of both: the cheapest setting that is on no data set more than a
point below the better of RandomForest and ExtraTrees (100 trees, their defaults). Sets, peers and metrics are those of
`bench_accuracy`, and more sets; of large ones a random part is taken. A seed decides the part, the split and the
models.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.bench_accuracy import DATA, PEERS, evaluate, our_model, peer_model
from benchmarks.datasets import SOURCES, Data, Source, read
from benchmarks.results import Row, at_least, table, write_section
from benchmarks.timing import median, timed

_VACCINE = ("age_bracket", "qualification", "race", "sex", "income_level", "marital_status", "housing_status")
_BANK = ("job", "marital", "education", "default", "housing", "loan", "contact", "month", "day_of_week", "poutcome")
SETS: dict[str, Source] = {
    **SOURCES,
    "weather": Source(("weather.csv.gz",), "binary"),
    "bank": Source(("bank_additional.csv.gz",), "binary", _BANK),
    "noshow": Source(("noshow.csv.gz",), "binary", ("gender", "neighbourhood")),
    "vaccine": Source(("vaccine.csv.gz",), "binary", (*_VACCINE, "employment", "census_msa")),
    "optdigits": Source(("optdigits_train.csv.gz", "optdigits_test.csv.gz"), "multiclass"),
    "pendigits": Source(("pendigits_train.csv.gz", "pendigits_test.csv.gz"), "multiclass"),
    "poker": Source(("poker_train.csv.gz",), "multiclass", ("s1", "s2", "s3", "s4", "s5")),
    "wine": Source(("wine_quality_white.csv.gz",), "regression"),
}
WAS = "100 trees"  # the defaults before they were chosen by these tables
# What is said of a setting is what differs from these; a regression has settings of its own.
_FOR_CLASSES: dict[str, Any] = {"n_estimators": 100, "occurrence": 0.7, "n_thresholds": 20}
_FOR_NUMBERS: dict[str, Any] = {"n_estimators": 100, "occurrence": 0.5, "n_thresholds": 30, "max_features": 1.0}
CLASSES: dict[str, dict[str, Any]] = {
    name: {**_FOR_CLASSES, **others}
    for name, others in {
        WAS: {},
        "q=0.5": {"occurrence": 0.5},
        "q=0.3": {"occurrence": 0.3},
        "q=0.2": {"occurrence": 0.2},
        "q=0.1": {"occurrence": 0.1},
        "50 trees": {"n_estimators": 50},
        "50 trees, q=0.5": {"n_estimators": 50, "occurrence": 0.5},
        "50 trees, 10 thresholds": {"n_estimators": 50, "n_thresholds": 10},
        "50 trees, 5 thresholds": {"n_estimators": 50, "n_thresholds": 5},
        "30 trees, 10 thresholds": {"n_estimators": 30, "n_thresholds": 10},
        "10 thresholds": {"n_thresholds": 10},
    }.items()
}
NUMBERS: dict[str, dict[str, Any]] = {
    name: {**_FOR_NUMBERS, **others}
    for name, others in {
        WAS: {},
        "q=0.7": {"occurrence": 0.7},
        "q=0.3": {"occurrence": 0.3},
        "q=0.2": {"occurrence": 0.2},
        "q=0.1": {"occurrence": 0.1},
        "50 trees": {"n_estimators": 50},
        "50 trees, 10 thresholds": {"n_estimators": 50, "n_thresholds": 10},
        "50 trees, half of the attributes": {"n_estimators": 50, "max_features": 0.5},
        "30 trees": {"n_estimators": 30},
        "half of the attributes": {"max_features": 0.5},
    }.items()
}
TASKS = {"classes": CLASSES, "numbers": NUMBERS}
N_EAGER = 40  # deletions that are resolved at once
OWED_SHARE = 0.01  # of the samples, deleted before what they owe is resolved together
TEST_SHARE = 0.3
LEAST_GAP = at_least(-1)
COSTS = ("fit_seconds", "eager_seconds", "owed_seconds", "n_bytes")
TEXT = (
    "Each setting beside the defaults that the forest had before, `100 trees`: 20 thresholds and q = 0.7 for classes; "
    "30 thresholds, q = 0.5 and all attributes a node for numbers. *Gaps* are ours minus the better of RandomForest "
    "and ExtraTrees, in points of AUC, accuracy (more than two classes) or R2: the mean over the sets, and the worst "
    "with its set. The other columns are costs as shares of those of `100 trees`, geometric means over the sets: "
    "fitting, a deletion that is resolved at once, what a deletion owes when 1 % are deleted and resolved together "
    "(CPU time, medians), and the bytes of the model. The mark is about the worst gap."
)
HEAD = ("setting:", "mean gap", "on the set:", "fit", "eager deletion", "owed by one", "memory", "worst gap")
SETS_TEXT = "Gap of each setting on each set, in points, and the metric of the better peer."


@dataclass(frozen=True)
class Outcome:
    """What a setting came to on a set with a seed; costs are 0 of peers."""

    metric: float
    fit_seconds: float = 0.0
    eager_seconds: float = 0.0
    owed_seconds: float = 0.0
    n_bytes: float = 0.0


Outcomes = dict[str, dict[str, list[Outcome]]]  # by set and system


def split(data: Data, seed: int, n_rows: int) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """Rows to train on, at most `n_rows`, and to test on, at most as many; the given split where there is one."""
    random = np.random.default_rng(seed)
    if data.n_train is not None:
        train, test = random.permutation(data.n_train), data.n_train + random.permutation(len(data.y) - data.n_train)
    else:
        order = random.permutation(len(data.y))[: int(n_rows / (1.0 - TEST_SHARE))]
        train, test = np.split(order, [int(len(order) * (1.0 - TEST_SHARE))])
    return train[:n_rows], test[:n_rows]


def measure_ours(source: Source, parts: Sequence[Any], seed: int, parameters: Mapping[str, Any]) -> Outcome:
    """Fit, evaluate, and delete."""
    X, y, X_test, y_test = parts
    model = our_model(source, "oubli", seed, dict(parameters))
    fit_seconds, _ = timed(lambda: model.fit(X, y, ids=range(len(y)), categorical_features=list(source.categorical)))
    metric = evaluate(source, model, X_test, y_test)[source.metric]
    n_bytes = model.nbytes_
    ids = np.random.default_rng(seed).permutation(len(y)).tolist()
    eager, lazily = ids[:N_EAGER], ids[N_EAGER : N_EAGER + max(1, int(OWED_SHARE * len(ids)))]

    def delete_eagerly() -> None:
        for one in eager:
            model.delete(one)
            model.resolve()

    model.delete(ids[-1])
    model.resolve()  # whatever happens for the first time only has happened now
    eager_seconds, _ = timed(delete_eagerly)
    for one in lazily:
        model.delete(one)
    owed_seconds, _ = timed(model.resolve)
    return Outcome(metric, fit_seconds, eager_seconds / len(eager), owed_seconds / len(lazily), n_bytes)


def measure_peer(source: Source, parts: Sequence[Any], seed: int, name: str) -> Outcome:
    """Fit and evaluate."""
    X, y, X_test, y_test = parts
    model = peer_model(source, name, seed, list(X.columns)).fit(X, y)
    return Outcome(evaluate(source, model, X_test, y_test)[source.metric])


def warm_up(source: Source, data: Data) -> None:
    """Compile or load every kernel, and forget how long that took."""
    train, test = split(data, 0, 500)
    parts = data.X.iloc[train], data.y[train], data.X.iloc[test], data.y[test]
    measure_ours(source, parts, 0, {"n_estimators": 5})


def task_of(source: Source) -> str:
    """Which settings are for a set."""
    return "numbers" if source.task == "regression" else "classes"


def measure(options: argparse.Namespace) -> Outcomes:
    """Every setting that is wanted and both peers on every set with every seed."""
    found: Outcomes = {}
    for name in options.sets:
        source = SETS[name]
        data = read(source, options.data)
        warm_up(source, data)
        settings = {key: value for key, value in TASKS[task_of(source)].items() if key in options.settings}
        systems = found[name] = {key: [] for key in (*PEERS, *settings)}
        for seed in range(options.seeds):
            train, test = split(data, seed, options.rows)
            parts = data.X.iloc[train], data.y[train], data.X.iloc[test], data.y[test]
            for peer in PEERS:
                systems[peer].append(measure_peer(source, parts, seed, peer))
            for key, parameters in settings.items():
                systems[key].append(measure_ours(source, parts, seed, parameters))
        shown = " ".join(f"{key}: {gap:+.2f}" for key, gap in gaps(systems).items())
        print(f"{name:20}{better_peer(systems):.4f}  {shown}", flush=True)
        if options.json is not None:
            text = json.dumps({n: {s: [asdict(o) for o in os] for s, os in f.items()} for n, f in found.items()})
            options.json.write_text(text, encoding="utf-8")
    return found


def better_peer(systems: Mapping[str, Sequence[Outcome]]) -> float:
    """The metric of the better peer, on average over the seeds."""
    return max(float(np.mean([one.metric for one in systems[peer]])) for peer in PEERS)


def gaps(systems: Mapping[str, Sequence[Outcome]]) -> dict[str, float]:
    """Points between each setting and the better peer."""
    best = better_peer(systems)
    ours = {key: outcomes for key, outcomes in systems.items() if key not in PEERS}
    return {key: 100.0 * (float(np.mean([one.metric for one in outcomes])) - best) for key, outcomes in ours.items()}


def cost(outcomes: Sequence[Outcome], name: str) -> float:
    """What a setting costs on a set."""
    return median(getattr(one, name) for one in outcomes)


def summary_rows(found: Outcomes, settings: Sequence[str]) -> list[Row]:
    """One row a setting; `found` has sets of one task."""
    rows = []
    for key in settings:
        by_set = {name: gaps(systems)[key] for name, systems in found.items()}
        worst = min(by_set, key=by_set.__getitem__)
        shares = []
        for name in COSTS:
            ratios = [cost(systems[key], name) / cost(systems[WAS], name) for systems in found.values()]
            shares.append(f"{float(np.exp(np.mean(np.log(ratios)))):.2f}")
        rows.append(Row((key, f"{np.mean(list(by_set.values())):+.2f}", worst, *shares), by_set[worst], LEAST_GAP))
    return rows


def set_table(found: Outcomes, settings: Sequence[str]) -> str:
    """Gaps by set and setting."""
    lines = []
    for name, systems in found.items():
        by_setting = gaps(systems)
        shown = [f"{by_setting[key]:+.2f}" for key in settings]
        lines.append((name, SETS[name].metric, *shown, f"{better_peer(systems):.4f}"))
    head = ("data set", "metric", *settings, "better peer")
    rule = "|".join(["---", "---", *("---:" for _ in head[2:])])
    return "\n".join([f"| {' | '.join(head)} |", f"|{rule}|", *(f"| {' | '.join(line)} |" for line in lines)])


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    """Read the command line."""
    known = list(dict.fromkeys([*CLASSES, *NUMBERS]))
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--data", type=Path, default=DATA)
    parser.add_argument("--sets", nargs="+", choices=list(SETS), default=list(SETS))
    parser.add_argument("--settings", nargs="+", choices=known, default=known, help=f"`{WAS}` is always measured")
    parser.add_argument("--seeds", type=int, default=3, help="seeds 0 to N-1")
    parser.add_argument("--rows", type=int, default=10_000, help="most rows to train on, and to test on")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write every number here")
    parser.add_argument("--write-results", action="store_true", help="replace the sections in results/defaults.md")
    options = parser.parse_args(arguments)
    options.settings = [WAS, *(key for key in options.settings if key != WAS)]
    return options


def main(arguments: Sequence[str] | None = None) -> None:
    """Run, print the tables, and write what was asked for."""
    options = parse(arguments)
    everything = measure(options)
    about = f"{options.seeds} seeds, at most {options.rows:,} rows to train on."
    for task, table_of_settings in TASKS.items():
        found = {name: systems for name, systems in everything.items() if task_of(SETS[name]) == task}
        if not found:
            continue
        settings = [key for key in table_of_settings if key in options.settings]
        rows, sets = table(HEAD, summary_rows(found, settings)), set_table(found, settings)
        print(f"\n{task}\n\n{rows}\n\n{sets}")
        if options.write_results:
            write_section(f"defaults-{task}", f"Settings of a forest for {task}", f"{TEXT} {about}", rows)
            write_section(f"defaults-{task}-sets", f"By data set, {task}", SETS_TEXT, sets)


if __name__ == "__main__":
    main()
