"""Measure what a second thread saves: wall times of long work with `n_jobs=2` and with one thread, in turn.

    python -m benchmarks.bench_threads [--data DIR] [--quick] [--rounds 7] [--only loop forest] [--write-results]

Two CPUs may be threads of one core, or busy: a loop of plain arithmetic, alone and in two processes, tells what two of
them can save at most.
"""

from __future__ import annotations

import gc
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np

from benchmarks import sections
from benchmarks.boosting.datasets import Split, load_split
from benchmarks.boosting.kinds import KINDS, Kind
from benchmarks.boosting.peers import LIGHTGBM, View
from benchmarks.problems import Problem, load_problem, warm_up
from benchmarks.results import Mark, Row, at_most, shown
from benchmarks.sections import Bench, Section
from benchmarks.timing import median
from oubli.core import IncrementalBoostingClassifier

PROBLEMS = ("adult-one-hot", "higgs-like")
HEAD = ("data:", "work:", "1 thread s", "2 threads s", "CPU s of 1", "CPU s of 2", "2 by 1")
ABOUT = (
    "Wall times with `n_jobs=2` and with `n_jobs=None`, in turn on the same model, medians of {rounds} rounds, setting "
    "`fast`. The CPU times are those of all threads. Predictions and digests are the same, which is checked."
)
BATCH = 100_000  # rows
LOOP = "s=0\nfor i in range({n}): s+=i*i%7"
PEER_HEAD = ("data:", "kind:", "rounds", "ours s", "LightGBM s", "ours by LightGBM")
PEER_TEXT = (
    "Wall times of a fit with `n_jobs=2` on both sides, in turn, medians of the rounds: 100 trees of the same size, as "
    "on the page of [boosting](boosting.md), categories natively. Our fit also checks and stores the samples. The "
    "ratio is formed within a round."
)
PEER_MARKS = {"adult": 1.2, "higgs-like": 1.0}
MARKS = {"fit": 0.55, "resolve": 0.55, "verify": 0.6, "batch": 0.55, "boosting": 0.7, "short": 1.1}


@dataclass(frozen=True)
class Times:
    """Seconds of one piece of work."""

    wall: float
    cpu: float


def timed(work: Callable[[], object]) -> Times:
    """Seconds of a call."""
    gc.collect()
    wall, cpu = time.perf_counter(), time.process_time()
    work()
    return Times(time.perf_counter() - wall, time.process_time() - cpu)


@dataclass(frozen=True)
class Threads(Bench):
    """What is measured."""

    group: ClassVar[str] = "threads"

    rounds: int
    n_rows: int | None

    @cached_property
    def loop_ratio(self) -> float:
        """Wall time of two processes with half of a loop each, by that of one with all of it."""
        n = 20_000_000 if self.n_rows is None else 1_000_000

        def run(n_processes: int) -> float:
            started = time.perf_counter()
            script = LOOP.format(n=n // n_processes)
            processes = [subprocess.Popen([sys.executable, "-c", script]) for _ in range(n_processes)]
            for process in processes:
                process.wait()
            return time.perf_counter() - started

        return median(run(2) / run(1) for _ in range(self.rounds))

    def mark(self, name: str) -> Mark:
        """The limit of a ratio: what it should be on two cores, or a tenth more than the loop shows."""
        return at_most(max(MARKS[name], round(1.1 * self.loop_ratio, 2)))

    def problem(self, name: str) -> Problem:
        """A data set, with every kernel compiled that is used here."""
        problem = load_problem(name, self.data, self.cache, self.n_rows)
        warm_up(problem, "fast")
        return problem

    def row(self, data: str, name: str, work: str, pairs: Sequence[tuple[Times, Times]]) -> Row:
        """Medians of work done with one thread and with two."""
        cells = [median(getattr(pair[side], field) for pair in pairs) for field in ("wall", "cpu") for side in (0, 1)]
        ratio = median(two.wall / one.wall for one, two in pairs)
        return Row((data, work, *map(shown, cells)), ratio, self.mark(name))


def in_turn(
    rounds: int, one_round: Callable[[Any], Times], sides: tuple[Any, Any] = (None, 2)
) -> list[tuple[Times, Times]]:
    """Times of both sides, of one thread and of two unless said otherwise; which goes first changes every time."""
    found = []
    for number in range(rounds):
        times = {side: one_round(side) for side in (sides[::-1] if number % 2 else sides)}
        found.append((times[sides[0]], times[sides[1]]))
    return found


def loop(bench: Threads) -> Section:
    """What two CPUs can save."""
    text = (
        "A loop of plain arithmetic in Python: wall time of two processes with half of it each, by that of one process "
        "with all of it. Marks of two threads on this page are a tenth more than this, where that is more than they "
        "would be on two cores of their own."
    )
    row = Row(("plain arithmetic",), bench.loop_ratio)
    return Section("What two processes gain", text, ("work:", "two processes by one"), [row])


def forest(bench: Threads) -> Section:
    """Fit, resolve, verify and batches of the forest."""
    rows = []
    for name in PROBLEMS:
        problem = bench.problem(name)
        rows += [
            bench.row(name, kind, work, in_turn(bench.rounds, one_round))
            for kind, work, one_round in _forest_works(problem)
        ]
    return Section("Forest", ABOUT.format(rounds=bench.rounds), HEAD, rows)


def _forest_works(problem: Problem) -> list[tuple[str, str, Callable[[int | None], Times]]]:
    held = problem.fit(problem.forest("fast"))
    digest = held.digest()
    repeats = -(-BATCH // len(problem.X_test))
    batch: Any = np.concatenate([problem.X_test] * repeats)[:BATCH]
    expected = held.predict_proba(batch)
    doomed = held.samples_.ids()[: min(1000, held.n_samples_ // 20)]
    after = held.copy()
    after.delete(doomed)
    digest_after = after.digest()

    def fit(n_jobs: int | None) -> Times:
        model = problem.forest("fast").set_params(n_jobs=n_jobs)
        times = timed(lambda: problem.fit(model))
        _require(model.digest() == digest)
        return times

    def resolve(n_jobs: int | None) -> Times:
        model = held.copy().set_params(n_jobs=n_jobs)
        model.delete(doomed)
        times = timed(model.resolve)
        _require(model.digest() == digest_after)
        return times

    def verify(n_jobs: int | None) -> Times:
        held.set_params(n_jobs=n_jobs)
        times = timed(lambda: _require(held.verify().ok))
        held.set_params(n_jobs=None)
        return times

    def predict(n_jobs: int | None) -> Times:
        held.set_params(n_jobs=n_jobs)
        times = timed(lambda: _require(np.array_equal(held.predict_proba(batch), expected)))
        held.set_params(n_jobs=None)
        return times

    return [
        ("fit", "fit", fit),
        ("resolve", f"resolve what {len(doomed):,} deletions owe", resolve),
        ("verify", "verify", verify),
        ("batch", f"predict {BATCH:,} rows", predict),
    ]


def boosting(bench: Threads) -> Section:
    """Fit of the boosted kind that is exact."""
    rows = []
    for name in PROBLEMS:
        problem = bench.problem(name)
        digests: set[str] = set()

        def fit(n_jobs: int | None, problem: Problem = problem, digests: set[str] = digests) -> Times:
            model = IncrementalBoostingClassifier(random_state=0, n_jobs=n_jobs)
            times = timed(lambda: model.fit(problem.X, problem.y))
            digests.add(model.digest())
            _require(len(digests) == 1)
            return times

        fit(None)
        rows.append(bench.row(name, "boosting", "fit `incremental-boosting`", in_turn(bench.rounds, fit)))
    return Section("Boosting", ABOUT.format(rounds=bench.rounds), HEAD, rows)


def short(bench: Threads) -> Section:
    """Work that one thread does alone."""
    rows = []
    for name in PROBLEMS:
        problem = bench.problem(name)
        held = problem.fit(problem.forest("fast"))
        held.predict_proba(problem.X_test[:1])
        queries = problem.queries(np.arange(2000))
        doomed = iter(held.samples_.ids())

        def predict(n_jobs: int | None, held: Any = held, queries: list[Any] = queries) -> Times:
            held.set_params(n_jobs=n_jobs)
            held.resolve()
            return timed(lambda: [held.predict_proba(query) for query in queries])

        def delete(n_jobs: int | None, held: Any = held, doomed: Any = doomed) -> Times:
            held.set_params(n_jobs=n_jobs)
            some = [next(doomed) for _ in range(50)]
            return timed(lambda: [held.delete(one) for one in some])

        rows.append(bench.row(name, "short", "predict 2,000 rows one by one", in_turn(bench.rounds, predict)))
        rows.append(bench.row(name, "short", "50 lazy deletes", in_turn(bench.rounds, delete)))
    return Section("Short work", ABOUT.format(rounds=bench.rounds), HEAD, rows)


def peer(bench: Threads) -> Section:
    """Fits of boosted trees beside LightGBM's."""
    rows = []
    for name, limit in PEER_MARKS.items():
        split = load_split(name, bench.data, bench.cache, n_rows=bench.n_rows)
        view = LIGHTGBM.view(split)
        for kind in KINDS.values():
            kind.warm_up(split, n_jobs=2)

            def fit(system: str, kind: Kind = kind, split: Split = split, view: View = view) -> Times:
                if system == "ours":
                    return timed(lambda: kind.fit(split, n_jobs=2))
                trained = LIGHTGBM.train(split, view, kind.shape)
                trained.estimator.set_params(n_jobs=2, num_threads=2)
                return timed(trained.fit)

            pairs = in_turn(bench.rounds, fit, ("ours", LIGHTGBM.name))
            cells = [shown(median(pair[side].wall for pair in pairs)) for side in (0, 1)]
            ratio = median(ours.wall / theirs.wall for ours, theirs in pairs)
            rows.append(Row((name, kind.name, str(len(pairs)), *cells), ratio, at_most(limit)))
    return Section("Boosting beside LightGBM", PEER_TEXT, PEER_HEAD, rows)


def _require(holds: bool) -> None:
    if not holds:
        raise AssertionError("two threads do not give what one gives")


QUESTIONS = {"loop": loop, "forest": forest, "boosting": boosting, "peer": peer, "short": short}


def main(arguments: Sequence[str] | None = None) -> None:
    """Ask the questions."""
    options = sections.parse(
        __doc__, list(QUESTIONS), arguments, lambda parser: parser.add_argument("--rounds", type=int, default=7)
    )
    rounds, n_rows = (1, 2_000) if options.quick else (options.rounds, None)
    sections.ask(QUESTIONS, Threads(*sections.folders(options), rounds, n_rows), options)


if __name__ == "__main__":
    main()
