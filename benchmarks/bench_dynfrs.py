"""The forest beside the published program of the DynFrs paper: training, eager deletions and a mixed stream.

    git clone https://github.com/shurongwang/DynFrs && cd DynFrs && g++ main.cpp -o dynfrs -std=c++17 -O3
    python -m benchmarks.bench_dynfrs --program DynFrs/dynfrs --data DIR [--quick]

Both have the program's own parameters, the same samples, and one core. The program is not exact: its splits depend on
the order of what came and left. It counts whole microseconds of each request, so it is measured a little too fast.
"""

from __future__ import annotations

import argparse
import os
import random
import re
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import sections
from benchmarks.paper.sets import Split, load_split
from benchmarks.results import Row, at_least
from benchmarks.sections import Section, ask, folders, parse
from benchmarks.timing import median
from oubli.core import DynamicForestClassifier

HEAD = ("data", "operation", "unit", "program", "ours", "program / ours")
TEXT = (
    "Time of the program by ours, medians over the rounds, in turn on one core. The program's own parameters: T, k, d "
    "and s of its `-auto`. *Eager deletion*: each is complete when it returns. *Stream*: additions, deletions and "
    "queries 1:1:2 in random order, lazily, on the model from before. The program counts whole microseconds."
)
# T, k, d and s by data set, as the program's `-auto` has them.
AUTO = {"adult": (100, 10, 20, 30), "heart": (150, 10, 15, 5), "purchase": (250, 10, 10, 30)}
MARKED = ("eager deletion", "stream, query")
Times = dict[str, float]


@dataclass(frozen=True)
class Sizes:
    """How much is measured."""

    rounds: int
    n_deletions: int
    n_changes: int  # additions of the stream, and deletions; there are twice as many queries
    n_rows: int | None = None


@dataclass(frozen=True)
class Bench(sections.Bench):
    """One question a data set."""

    group = "dynfrs"

    program: Path
    sizes: Sizes

    def beside_the_program(self) -> Section:
        """All data sets."""
        rows = [row for name in AUTO for row in self._rows(name)]
        return Section("Beside the published program", TEXT, HEAD, rows)

    def _rows(self, name: str) -> Iterator[Row]:
        split = load_split(name, self.data, self.cache, n_rows=self.sizes.n_rows)
        theirs, ours = [], []
        with on_one_core():
            measure_ours(split, AUTO[name], self.sizes, 0)  # kernels are loaded
            for number in range(self.sizes.rounds):
                theirs.append(measure_program(self.program, split, AUTO[name], self.sizes))
                ours.append(measure_ours(split, AUTO[name], self.sizes, number))
        for operation in theirs[0]:
            their, own = (median(one[operation] for one in each) for each in (theirs, ours))
            mark = at_least(1.3) if operation in MARKED else None
            unit, scale = ("s", 1.0) if operation == "training" else ("us", 1e6)
            cells = (name, operation, unit, f"{their * scale:.4g}", f"{own * scale:.4g}")
            yield Row(cells, their / own, mark)


@contextmanager
def on_one_core() -> Iterator[None]:
    """Use one core, also in the processes that are started."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(before)})
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def measure_program(program: Path, split: Split, auto: tuple[int, int, int, int], sizes: Sizes) -> Times:
    """Seconds of training, and of one request of each kind, as the program tells them."""
    trees, occurrences, depth, thresholds = auto
    n = sizes.n_changes
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder) / "Datasets" / "Other"
        place.mkdir(parents=True)
        for part, X, y in (("train", split.X, split.y), ("test", split.X_test, split.y_test)):
            rows = np.column_stack([np.asarray(X, np.float64), y])
            header = f"{rows.shape[0]} {rows.shape[1]}"
            np.savetxt(place / f"{part}.txt", rows, fmt="%.17g", header=header, comments="")
        asked = f"-data Other -T {trees} -k {occurrences} -d {depth} -s {thresholds}".split()

        def run(*more: str) -> str:
            command = [str(program.resolve()), *asked, *more]
            return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True).stdout

        eager = run("-dly", "0", "-unl_cnt", str(sizes.n_deletions))
        stream = run("-stream", str(n), str(n), str(2 * n))
    found = {"training": _number(r"Build time:\s+(\d+)ms", stream) / 1e3}
    found["eager deletion"] = _number(r"Unlearned:\s+(\d+) ms", eager) / 1e3 / sizes.n_deletions
    for word, operation in (("qry", "query"), ("add", "addition"), ("del", "deletion")):
        found[f"stream, {operation}"] = _number(rf"{word} request:\s+mean ([\d.e+]+)", stream) / 1e6
    return found


def _number(pattern: str, text: str) -> float:
    found = re.search(pattern, text)
    if found is None:
        raise SystemExit(f"the program does not say {pattern!r}:\n{text}")
    return float(found[1])


def measure_ours(split: Split, auto: tuple[int, int, int, int], sizes: Sizes, seed: int) -> Times:
    """The same of our forest."""
    trees, occurrences, depth, thresholds = auto

    parameters = {
        "n_estimators": trees, "occurrence": occurrences / trees, "max_depth": depth, "n_thresholds": thresholds,
    }  # fmt: skip

    def fit(*, lazy: bool) -> DynamicForestClassifier:
        return split.forest(seed, **parameters, lazy=lazy).fit(split.X, split.y)

    draw = random.Random(seed)
    forest = fit(lazy=False)
    eager = sum(_seconds(forest.delete, str(one)) for one in draw.sample(range(len(split.y)), sizes.n_deletions))
    found = {"training": _seconds(fit, lazy=True), "eager deletion": eager / sizes.n_deletions}
    forest = fit(lazy=True)
    leaving = iter(draw.sample(range(len(split.y)), sizes.n_changes))
    operations = ["addition", "deletion", "query", "query"] * sizes.n_changes
    draw.shuffle(operations)
    times: dict[str, float] = dict.fromkeys(("query", "addition", "deletion"), 0.0)
    for number, operation in enumerate(operations):
        place = number % len(split.y_test)
        row, label = split.X_test[place : place + 1], split.y_test[place : place + 1]
        if operation == "addition":
            times[operation] += _seconds(forest.add, row, label)
        elif operation == "deletion":
            times[operation] += _seconds(forest.delete, str(next(leaving)))
        else:
            times[operation] += _seconds(forest.predict_proba, row)
    for operation, seconds in times.items():
        found[f"stream, {operation}"] = seconds / operations.count(operation)
    return found


def _seconds(work: Callable[..., object], *arguments: Any, **named: Any) -> float:
    started = time.perf_counter()
    work(*arguments, **named)
    return time.perf_counter() - started


def main(arguments: Sequence[str] | None = None) -> None:
    """Run, print the table, and write it when asked."""

    def add_options(parser: argparse.ArgumentParser) -> None:
        parser.add_argument("--program", type=Path, required=True, help="the compiled program")

    options = parse(__doc__, ["program"], arguments, add_options)
    sizes = Sizes(1, 20, 20, 2_000) if options.quick else Sizes(3, 200, 500)
    bench = Bench(*folders(options), options.program, sizes)
    ask({"program": Bench.beside_the_program}, bench, options)


if __name__ == "__main__":
    main()
