"""Measure what each operation of the forest costs, beside scikit-learn, LightGBM and dare-rf in the same run.

    python -m benchmarks.bench_operations --data ../shared/data [--quick] [--only training stream]

CPU time of one thread, medians of five rounds, compiled and warmed up before on a small model of the same parameters.
The questions are the files of `benchmarks/operations`; each has sections in `results/`.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from benchmarks import higgs_like, sections
from benchmarks.operations import batches, dare_rf, memory, mutations, prediction, starting, stream, training
from benchmarks.problems import ET10, FAST, PROBLEMS, SETTINGS, Problem, load_problem
from benchmarks.results import Row, table, write_section

QUESTIONS = ("training", "memory", "mutations", "dare", "prediction", "stream", "batches", "start")
NEED_MODELS = {"training", "mutations", "dare", "prediction", "stream", "batches"}
ABOUT_MARKS = "Marks are for the setting `fast`; `defaults` is shown beside it."


@dataclass(frozen=True)
class Section:
    """A section without its rows; with an empty head it has text only."""

    name: str
    title: str
    text: str
    head: tuple[str, ...] = ()


# In the order of the pages.
TRAINING = Section("training", training.TITLE, training.TEXT, training.HEAD)
MEMORY = Section("memory", memory.TITLE, memory.TEXT, memory.HEAD)
MUTATIONS = Section("mutations", mutations.TITLE, mutations.TEXT, mutations.HEAD)
SHARES = Section("shares", mutations.SHARES_TITLE, mutations.SHARES_TEXT, mutations.SHARES_HEAD)
DARE = Section("dare", dare_rf.TITLE, dare_rf.TEXT, dare_rf.HEAD)
NO_DARE = Section("dare", dare_rf.TITLE, dare_rf.MISSING)
ONE_ROW = Section("prediction", prediction.TITLE, prediction.TEXT, prediction.HEAD)
BATCH = Section("batch-prediction", prediction.BATCH_TITLE, prediction.BATCH_TEXT, prediction.BATCH_HEAD)
STREAM = Section("stream", stream.TITLE, stream.TEXT, stream.HEAD)
BATCHES = Section("batches", batches.TITLE, batches.TEXT, batches.HEAD)
START = Section("start", starting.TITLE, starting.TEXT, starting.HEAD)
SECTIONS = (TRAINING, MEMORY, MUTATIONS, SHARES, DARE, NO_DARE, ONE_ROW, BATCH, STREAM, BATCHES, START)


@dataclass(frozen=True)
class Sizes:
    """How much is measured."""

    n_rows: int | None  # training rows; None: all
    rounds: int
    n_mutations: int
    n_queries: int
    n_cycles: int  # of the stream; half as many with idle time
    n_dare: int
    budget: float  # CPU seconds after which no further round of a measurement begins


FULL = Sizes(None, 5, 1_000, 1_000, 1_000, 100, 60.0)
QUICK = Sizes(5_000, 1, 50, 50, 50, 5, 10.0)


def sizes_of(problem: Problem, setting: str, sizes: Sizes) -> Sizes:
    """Measure less where it takes long: with `defaults` a sample is in seven times as many trees, deeper ones."""
    if setting == "fast":
        return sizes
    sizes = replace(sizes, budget=sizes.budget / 3)
    if problem.is_adult:
        return sizes
    return replace(sizes, n_mutations=min(200, sizes.n_mutations), n_cycles=min(100, sizes.n_cycles))


class Report:
    """The rows of the sections as they come."""

    def __init__(self) -> None:
        self._rows: dict[Section, list[Row]] = {}

    def add(self, section: Section, rows: Sequence[Row] = ()) -> None:
        """Add rows to a section, and print them."""
        self._rows.setdefault(section, []).extend(rows)
        print(f"\n{section.title}\n{table(section.head, rows) if rows else section.text}", flush=True)

    def write(self) -> None:
        """Replace the sections that were measured."""
        for section in SECTIONS:
            if section not in self._rows:
                continue
            text = f"{section.text} {ABOUT_MARKS}" if "setting:" in section.head else section.text
            rows = table(section.head, self._rows[section]) if section.head else ""
            write_section(f"operations-{section.name}", section.title, text, rows)


def measure_models(problem: Problem, options: argparse.Namespace, sizes: Sizes, report: Report) -> None:
    """Everything that is asked of fitted models of one problem."""
    only = options.only
    budgets = {setting: sizes_of(problem, setting, sizes).budget for setting in options.settings}
    trained = training.train(problem, budgets, sizes.rounds)
    if "training" in only:
        report.add(TRAINING, training.rows(trained))
    for setting, forest in trained.forests.items():
        n = sizes_of(problem, setting, sizes)
        compared = "dare" in only and is_for_dare(problem, setting)
        if "mutations" in only or compared:
            found = mutations.measure(problem, forest, n.n_mutations, n.rounds, n.budget)
            if "mutations" in only:
                report.add(MUTATIONS, mutations.rows(problem, setting, found, trained.peer_fit))
                report.add(SHARES, mutations.share_rows(problem, setting, found))
            if compared:
                measure_dare(problem, found, options.dare_python, n.n_dare, report)
        if "stream" in only:
            for name, idle in (("back to back", False), ("with idle time", True)):
                n_cycles = n.n_cycles // 2 if idle else n.n_cycles
                waits = stream.measure(problem, forest, n_cycles, n.rounds, n.budget, idle=idle)
                report.add(STREAM, stream.rows(problem, setting, name, waits))
        if "batches" in only and problem.is_adult:
            report.add(BATCHES, batches.rows(problem, setting, forest, n.rounds, n.budget))
    if "prediction" in only:
        booster = prediction.lightgbm(problem)
        report.add(ONE_ROW, prediction.rows(trained, booster, sizes.n_queries, sizes.rounds))
        report.add(BATCH, prediction.batch_rows(trained, booster, sizes.rounds))


def is_for_dare(problem: Problem, setting: str) -> bool:
    """Whether this is what `dare-rf` is compared on."""
    return (problem.name, setting) == ("adult-one-hot", "fast")


def measure_dare(problem: Problem, ours: mutations.Mutations, python: Path | None, n: int, report: Report) -> None:
    """Compare with `dare-rf`, or say why not."""
    if python is None:
        report.add(NO_DARE)
        return
    with tempfile.TemporaryDirectory() as folder:
        npz = Path(folder) / "adult.npz"
        positive = problem.y == np.unique(problem.y)[1]
        np.savez(npz, X=problem.encoded, y=positive.astype(np.int32))
        measured = {name: dare_rf.measure(python, npz, p, n) for name, p in dare_rf.PARAMETERS.items()}
    report.add(DARE, dare_rf.rows(measured, ours))


def measure_memory(options: argparse.Namespace, sizes: Sizes, report: Report) -> None:
    """Fit higgs-like in fresh processes."""
    npz = higgs_like.cached(options.cache, sizes.n_rows or higgs_like.N_TRAIN, sizes.n_rows or higgs_like.N_TEST)
    rows = [
        memory.row("higgs-like", setting, memory.measure(npz, FAST["higgs-like"] if setting == "fast" else {}))
        for setting in options.settings
    ]
    rows.append(memory.row("higgs-like", "peer: ET10", memory.measure(npz, ET10, peer=True)))
    report.add(MEMORY, rows)


def measure_start(options: argparse.Namespace, sizes: Sizes, report: Report) -> None:
    """Start servers."""
    held = higgs_like.load(options.cache, sizes.n_rows or higgs_like.N_TRAIN, sizes.n_rows or higgs_like.N_TEST)
    report.add(START, [starting.adult_row(sizes.rounds), starting.recovery_row(held.X, held.y, sizes.rounds)])


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add what this script has beyond the others."""
    parser.add_argument("--problems", nargs="+", choices=PROBLEMS, default=PROBLEMS)
    parser.add_argument("--settings", nargs="+", choices=SETTINGS, default=SETTINGS)
    parser.add_argument("--dare-python", type=Path, metavar="FILE", help="an interpreter that has dare-rf")


def main(arguments: Sequence[str] | None = None) -> None:
    """Run, print the tables, and write them when asked."""
    options = sections.parse(__doc__, QUESTIONS, arguments, add_options)
    sizes = QUICK if options.quick else FULL
    report = Report()
    if "start" in options.only:
        measure_start(options, sizes, report)
    if "memory" in options.only:
        measure_memory(options, sizes, report)
    if NEED_MODELS.intersection(options.only):
        for name in options.problems:
            measure_models(load_problem(name, options.data, options.cache, sizes.n_rows), options, sizes, report)
    if options.write_results:
        report.write()


if __name__ == "__main__":
    main()
