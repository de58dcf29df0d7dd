"""Measure forests of millions of samples: what a sample takes there, and what the largest model in memory goes through.

    python -m benchmarks.bench_limits [--only growth labels prediction largest] [--rows N] [--quick] [--write-results]

Data: higgs-like, the setting `fast`; with many labels the defaults. `largest` fills the memory of the machine, 4 GiB
less, unless `--rows` says how many samples to take: run it when no other program needs the memory.
"""

from __future__ import annotations

import gc
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import ClassVar, NamedTuple

import numpy as np

from benchmarks import higgs_like, sections
from benchmarks.apart import in_a_process
from benchmarks.operations.prediction import by_turns
from benchmarks.problems import FAST, WARM_UP_ROWS
from benchmarks.results import Mark, Row, at_most, shown
from benchmarks.sections import Bench, Section
from benchmarks.timing import per_call
from oubli.core import DynamicForestClassifier
from oubli.core.estimators import load_own

SMALL, LARGE = 300_000, 3_000_000
N_CHANGES = 1_000
BYTES_A_SAMPLE = at_most(650)
TIME_A_SAMPLE = at_most(1.3)
GROWTH_TITLE = "What a sample takes"
GROWTH_TEXT = (
    "One fit by one thread in a process of its own. *Trees* are all arrays of the forest, counters, bit rows and "
    "working space included; *samples* are cells, labels and ids. The peak is that of the process, with the data and "
    "the interpreter."
)
GROWTH_HEAD = ("rows", "samples MB", "trees MB", "CPU s of fit", "peak GB", "what:", "figure")
FEW_LABELS, MANY_LABELS = 10, 2_000
ROWS_WITH_LABELS = 30_000
MEMORY_BY_LABELS = at_most(1.5)
LABELS_TITLE = "Many labels"
LABELS_TEXT = (
    "One fit of the defaults, in a process of its own. A label is a share of the rows in the order of a sum of their "
    "first three columns. *Trees* and *samples* are as above; the figure is the sum of both by that with {few} labels."
)
LABELS_HEAD = ("rows", "labels:", "samples MB", "trees MB", "CPU s of fit", "by few labels")
ASKED = (180_000, 3_000_000, 10_000_000)  # rows of the models that are asked for one row
TIME_OF_LARGER = (None, at_most(3), at_most(5))  # by the smallest
PREDICTION_TITLE = "One row of a large model"
PREDICTION_TEXT = (
    "CPU time of one `predict_proba` of one row from Python, when no work is deferred: the mean over {queries:,} rows "
    "that were not learned, the median of {rounds} rounds, all models in turn in one process. The figure is the time "
    "by that of the smallest model."
)
PREDICTION_HEAD = ("rows", "GB of trees", "us a row", "by the smallest")
N_QUERIES, ROUNDS = 5_000, 5
LARGEST_TITLE = "The largest model in memory"
LARGEST_TEXT = (
    "A model is fitted, {changes:,} samples are deleted and as many added, their deferred work is done, and the model "
    "is saved; another process reads the file as a server does that recovers, and compares the digest. Memory is what "
    "is resident, the data and the interpreter included: after each step, and the peak during it. The number of rows "
    "of the second model comes from the memory that was free, less {reserve:.0f} GiB, and the peak of the first."
)
LARGEST_HEAD = ("rows", "step:", "s", "CPU s", "GB after", "peak GB", "GB on the disk", "peak, bytes a sample")
RESERVE = 4 * 2**30  # bytes that are left to others
_MARGIN = 1.05  # of the peak: rooms and pools are not of the same share at all sizes
_ROUND = 100_000  # rows
_MANY_STEPS = 50  # of changes, so that none is planted again


class Growth(NamedTuple):
    """What one fit took, in bytes and CPU seconds."""

    samples: int
    trees: int
    peak: int
    cpu: float


class Step(NamedTuple):
    """What a step of a model's life took: seconds, and resident bytes after it and at most."""

    name: str
    wall: float
    cpu: float
    after: int
    peak: int
    on_disk: int = 0


@dataclass(frozen=True)
class Limits(Bench):
    """What is measured: numbers of rows, and how many of the largest model (None: as many as there is room for)."""

    group: ClassVar[str] = "limits"

    small: int
    large: int
    asked: tuple[int, ...]
    n_rows: int | None


# --- memory


def resident(name: str = "VmRSS") -> int:
    """Resident bytes of this process; `VmHWM`: the most since `forget_peak`."""
    status = Path("/proc/self/status").read_text(encoding="utf-8")
    return int(status.partition(f"{name}:")[2].split()[0]) * 1024


def forget_peak() -> None:
    """Begin to measure the peak again."""
    Path("/proc/self/clear_refs").write_text("5", encoding="ascii")


def available() -> int:
    """Bytes of memory that programs can have without that others are moved out."""
    facts = Path("/proc/meminfo").read_text(encoding="utf-8")
    return int(facts.partition("MemAvailable:")[2].split()[0]) * 1024


def step(name: str, work: Callable[[], object]) -> Step:
    """Do something, and say what it took."""
    gc.collect()
    forget_peak()
    wall, cpu = time.perf_counter(), time.process_time()
    work()
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    return Step(name, wall, cpu, resident(), resident("VmHWM"))


# --- growth


def forest() -> DynamicForestClassifier:
    """Our estimator, not fitted."""
    return DynamicForestClassifier(random_state=0, **FAST["higgs-like"])


def warm_up() -> None:
    """Have the kernels compiled or loaded that follow."""
    held = higgs_like.generate(WARM_UP_ROWS, 0)
    model = forest().fit(held.X, held.y)
    _change(model, held.X[:_MANY_STEPS], held.y[:_MANY_STEPS], 1)


def grown(n: int) -> Growth:
    """Fit on so many rows."""
    warm_up()
    held = higgs_like.generate(n, 0)
    model = forest()
    made = step("fit", partial(model.fit, held.X, held.y))
    return Growth(model.samples_.nbytes, model.engine_.nbytes, made.peak, made.cpu)


def growth(bench: Limits) -> Section:
    """What a sample takes among many, beside what it takes among a tenth of them."""
    found = {n: in_a_process(partial(grown, n)) for n in (bench.small, bench.large)}
    few, many = found[bench.small], found[bench.large]

    def row(n: int, what: str, figure: float, mark: Mark | None) -> Row:
        one = found[n]
        cells = (f"{one.samples / 1e6:.0f}", f"{one.trees / 1e6:.0f}", shown(one.cpu), f"{one.peak / 1e9:.2f}")
        return Row((f"{n:,}", *cells, what), figure, mark)

    ratio = (many.cpu / bench.large) / (few.cpu / bench.small)
    rows = [
        row(bench.small, "bytes a sample in the trees", few.trees / bench.small, None),
        row(bench.large, "bytes a sample in the trees", many.trees / bench.large, BYTES_A_SAMPLE),
        row(bench.large, f"CPU time a sample, by that of {bench.small:,}", ratio, TIME_A_SAMPLE),
    ]
    return Section(GROWTH_TITLE, GROWTH_TEXT, GROWTH_HEAD, rows)


# --- labels


def labelled(n: int, n_labels: int) -> Growth:
    """Fit on so many rows, with so many labels of the same number of rows each."""
    held = higgs_like.generate(n, 0)
    ranks = held.X[:, :3].sum(axis=1).argsort().argsort()
    model = DynamicForestClassifier(random_state=0)
    made = step("fit", partial(model.fit, held.X, ranks * n_labels // n, max_classes=n_labels))
    return Growth(model.samples_.nbytes, model.engine_.nbytes, made.peak, made.cpu)


def labels(bench: Limits) -> Section:
    """What a model with many labels takes, beside one with few."""
    n = min(ROWS_WITH_LABELS, bench.small)
    found = {n_labels: in_a_process(partial(labelled, n, n_labels)) for n_labels in (FEW_LABELS, MANY_LABELS)}
    few, rows = found[FEW_LABELS], []
    for n_labels, one in found.items():
        cells = (f"{n_labels:,}", f"{one.samples / 1e6:.0f}", f"{one.trees / 1e6:.0f}", shown(one.cpu))
        share = (one.samples + one.trees) / (few.samples + few.trees)
        rows.append(Row((f"{n:,}", *cells), share, MEMORY_BY_LABELS if one is not few else None))
    return Section(LABELS_TITLE, LABELS_TEXT.format(few=FEW_LABELS), LABELS_HEAD, rows)


# --- predictions


def asked(sizes: Sequence[int], n_queries: int) -> list[tuple[float, int]]:
    """Fit a model of each size, and ask all of them in turn: CPU seconds a row, and bytes of the trees."""
    warm_up()
    models = {}
    for n in sizes:
        held = higgs_like.generate(n, n_queries)
        models[n] = forest().fit(held.X, held.y)
    queries = [held.X_test[i : i + 1].copy() for i in range(n_queries)]
    del held
    seconds = by_turns({n: partial(per_call, one.predict_proba, queries) for n, one in models.items()}, ROUNDS)
    return [(seconds[n], one.engine_.nbytes) for n, one in models.items()]


def prediction(bench: Limits) -> Section:
    """What one row costs a model of many samples, beside a model of few."""
    found = in_a_process(partial(asked, bench.asked, min(N_QUERIES, bench.small)))
    least = found[0][0]
    rows = [
        Row((f"{n:,}", f"{nbytes / 1e9:.2f}", f"{1e6 * seconds:.1f}"), seconds / least, mark)
        for n, mark, (seconds, nbytes) in zip(bench.asked, TIME_OF_LARGER, found, strict=True)
    ]
    text = PREDICTION_TEXT.format(queries=N_QUERIES, rounds=ROUNDS)
    return Section(PREDICTION_TITLE, text, PREDICTION_HEAD, rows)


# --- the largest


def _change(model: DynamicForestClassifier, X: higgs_like.Floats, y: np.ndarray, n_steps: int) -> None:
    """Delete as many samples as there are new ones, add these, and resolve all that this owes."""
    doomed = model.samples_.ids()[:: max(1, model.n_samples_ // len(y))][: len(y)]
    size = -(-len(y) // n_steps)
    for start in range(0, len(y), size):
        part = slice(start, start + size)
        model.delete(doomed[part])
        model.add(X[part], y[part])
    model.resolve()


def lived(n: int, path: Path) -> list[Step]:
    """Fit a model on so many rows, change it, and save it."""
    warm_up()
    n_changes = min(N_CHANGES, n // 20)
    held = higgs_like.generate(n, n_changes)
    model = forest()
    steps = [step("fit", partial(model.fit, held.X, held.y))]
    X, y = held.X_test.copy(), held.y_test.copy()
    del held
    steps.append(step(f"{n_changes:,} deleted and added, resolved", lambda: _change(model, X, y, _MANY_STEPS)))
    saved = step("saved", lambda: model.save(path))
    return [*steps, saved._replace(on_disk=path.stat().st_size)]


def recovered(path: Path) -> Step:
    """Read a model as a server does that recovers; it compares the digest with the one in the file."""
    warm_up()
    kept: list[object] = []
    return step("recovered", lambda: kept.append(load_own(path)))


def life(n: int, folder: Path) -> list[Step]:
    """All steps of the life of a model of so many rows."""
    with tempfile.TemporaryDirectory(dir=folder) as place:
        path = Path(place) / "model.oubli"
        return [*in_a_process(partial(lived, n, path)), in_a_process(partial(recovered, path))]


def most_rows(steps: Sequence[Step], n: int, free: int) -> int:
    """How many rows there is room for in so many bytes, from what those of a smaller model took."""
    peak = max(one.peak for one in steps)
    base = resident()
    return max(n, int((free - RESERVE - base) / (_MARGIN * (peak - base) / n)) // _ROUND * _ROUND)


def largest(bench: Limits) -> Section:
    """The life of a small model, and that of the largest."""
    bench.cache.mkdir(parents=True, exist_ok=True)
    found = {bench.small: life(bench.small, bench.cache)}
    n = bench.n_rows or most_rows(found[bench.small], bench.small, available())
    print(f"{n:,} rows", flush=True)
    if n not in found:
        found[n] = life(n, bench.cache)
    rows = [
        Row(
            (
                f"{n:,}",
                one.name,
                shown(one.wall),
                shown(one.cpu),
                f"{one.after / 1e9:.2f}",
                f"{one.peak / 1e9:.2f}",
                f"{one.on_disk / 1e9:.2f}" if one.on_disk else "",
            ),
            one.peak / n,
        )
        for n, steps in found.items()
        for one in steps
    ]
    return Section(LARGEST_TITLE, LARGEST_TEXT.format(changes=N_CHANGES, reserve=RESERVE / 2**30), LARGEST_HEAD, rows)


QUESTIONS = {"growth": growth, "labels": labels, "prediction": prediction, "largest": largest}


def main(arguments: Sequence[str] | None = None) -> None:
    """Ask the questions."""
    options = sections.parse(
        __doc__,
        list(QUESTIONS),
        arguments,
        lambda parser: parser.add_argument("--rows", type=int, help="of the largest model"),
    )
    quick = (1_000, 4_000, (500, 1_000, 4_000), 4_000)
    sizes = quick if options.quick else (SMALL, LARGE, ASKED, options.rows)
    sections.ask(QUESTIONS, Limits(*sections.folders(options), *sizes), options)


if __name__ == "__main__":
    main()
