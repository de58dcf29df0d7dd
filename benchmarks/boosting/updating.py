"""Adding and deleting with `online-boosting`, beside retraining (Tables 3, 6 and 8 of the Online GBDT paper)."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from benchmarks.boosting.datasets import HIGGS_LIKE, REGRESSION, Indices, Load, Split
from benchmarks.boosting.kinds import ONLINE, names
from benchmarks.boosting.peers import LIGHTGBM
from benchmarks.paper.figures import figure
from benchmarks.results import Mark, Row, at_least, at_most
from benchmarks.timing import cpu_seconds, median, rounds_of, timed

TIME_NAME, ERROR_NAME, SIMILARITY_NAME = "update", "update-error", "similarity"
TIME_TITLE = "adding and deleting in place"
TIME_TEXT = (
    "`online-boosting`, 100 trees of 20 leaves: CPU time of one `add` or `delete` of the given number of random "
    "samples, and of LightGBM training from scratch; in turn, medians of the rounds. A batch is deleted from a "
    "model of all samples, and added to a model fitted without it; each round has its own seed. Single samples: the "
    "mean over the number in the table, each deleted and added back in one and the same model. *Retraining* is our "
    "own fit on what remains. *Times faster* is LightGBM's time divided by ours."
)
TIME_HEAD = (
    "data:",
    "operation:",
    "batch:",
    "rounds",
    "mean over",
    "ms",
    "LightGBM ms",
    "retraining ms",
    "times faster",
)
ERROR_TITLE = "error after adding and deleting"
ERROR_TEXT = (
    "From the same runs: test error of the updated model and of one fitted from scratch on the same samples, mean "
    "over the rounds, and their difference in points (100 x share of wrong classes, 100 x R2 for numbers). *Back "
    "and forth*: after the given number of single deletes and adds in one model. Each round has its own seed, "
    "because one model may be better than another by luck: retraining without a sample loses that luck, an update "
    "keeps it."
)
ERROR_HEAD = ("data:", "operation:", "batch:", "rounds", "updated", "retrained", "difference")
SIMILARITY_TITLE = "functional similarity"
SIMILARITY_TEXT = (
    "From the same runs (Table 8 of the paper): the share of test rows that retraining gets right and the update "
    "wrong (C2W), wrong and right (W2C), and both wrong in different ways (W2W), mean over the rounds. Functional "
    "similarity is what remains of 100 %. The mark is the paper's figure for its own method, where it has the set."
)
SIMILARITY_HEAD = ("data:", "operation:", "batch:", "rounds", "C2W %", "W2C %", "W2W %", "similarity %")

OPERATIONS = ("delete", "add")
BATCHES = (0.0, 0.001, 0.005, 0.01)  # shares of the training part; 0: one sample
SIMILARITY_BATCHES = (0.0, 0.001)
LARGE_SETS = ("adult", "adult-one-hot", HIGGS_LIKE)
MOST_DIFFERENCE = 0.3
PAPER_SIMILARITY = {
    ("adult-one-hot", "add", 0.0): 99.66,
    ("adult-one-hot", "add", 0.001): 98.83,
    ("adult-one-hot", "delete", 0.0): 98.88,
    ("adult-one-hot", "delete", 0.001): 98.82,
    ("optdigits", "add", 0.0): 99.50,
    ("optdigits", "add", 0.001): 99.22,
    ("optdigits", "delete", 0.0): 99.22,
    ("optdigits", "delete", 0.001): 98.94,
    ("pendigits", "add", 0.0): 99.69,
    ("pendigits", "add", 0.001): 99.63,
    ("pendigits", "delete", 0.0): 99.49,
    ("pendigits", "delete", 0.001): 99.49,
    ("letter", "add", 0.0): 98.28,
    ("letter", "add", 0.001): 98.22,
    ("letter", "delete", 0.0): 97.26,
    ("letter", "delete", 0.001): 96.94,
    ("covtype", "add", 0.0): 96.38,
    ("covtype", "add", 0.001): 96.38,
    ("covtype", "delete", 0.0): 96.20,
    ("covtype", "delete", 0.001): 96.26,
}
_COLOURS = {"delete": "#0b6e4f", "add": "#7bc8a4"}


@dataclass
class Outcome:
    """What the rounds gave for an operation and a batch: seconds, errors, and shares of test rows that differ."""

    seconds: list[float] = field(default_factory=list)
    errors: list[tuple[float, float]] = field(default_factory=list)  # updated, retrained
    differing: list[tuple[float, float, float]] = field(default_factory=list)  # C2W, W2C, W2W

    def compare(self, split: Split, updated: npt.NDArray[Any], retrained: npt.NDArray[Any]) -> None:
        """Record how the predictions of the updated and of the retrained model differ."""
        self.errors.append((split.error(updated), split.error(retrained)))
        if split.task != REGRESSION:
            right, was_right = updated == split.y_test, retrained == split.y_test
            both_wrong = ~right & ~was_right & (updated != retrained)
            self.differing.append(((was_right & ~right).mean(), (~was_right & right).mean(), both_wrong.mean()))


@dataclass
class Found:
    """All outcomes on a set."""

    split: Split
    outcomes: dict[tuple[str, float], Outcome] = field(default_factory=lambda: defaultdict(Outcome))
    lightgbm: list[float] = field(default_factory=list)
    refits: dict[float, list[float]] = field(default_factory=lambda: defaultdict(list))
    singles: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))  # seconds of one, a round each
    n_singles: int = 0  # samples deleted and added back
    drifted: Outcome = field(default_factory=Outcome)

    def seconds(self, operation: str, batch: float) -> float:
        """The median time of an operation."""
        return median(self.outcomes[operation, batch].seconds if batch else self.singles[operation])

    def speedup(self, operation: str, batch: float) -> float:
        """LightGBM's time by ours."""
        return median(self.lightgbm) / self.seconds(operation, batch)


def measure(load: Load, sets: Sequence[str], rounds: int, n_singles: int, budget: float) -> list[Found]:
    """Update and retrain.

    Parameters
    ----------
    load, sets
        Where the sets come from, and which.
    rounds
        Of each measurement; no further one on a set when `budget` CPU seconds are used up.
    n_singles
        Updates of one sample back and forth, over all rounds; fewer when `budget` is used up.
    """
    found = []
    for name in sets:
        started = time.perf_counter()
        one = Found(load(name, 0))
        ONLINE.warm_up(one.split)
        rng = np.random.default_rng(1)
        rounds_of(lambda seed, one=one, rng=rng: _batches(one, seed, rng), rounds, budget)
        model = ONLINE.fit(one.split)
        predicted = model.predict(one.split.X_test)
        _back_and_forth(one, model, rng, rounds, n_singles // (2 * rounds), budget)
        one.drifted.compare(one.split, model.predict(one.split.X_test), predicted)
        found.append(one)
        print(f"{name}: updated, {time.perf_counter() - started:.0f} s", flush=True)
    return found


def batch_size(split: Split, batch: float) -> int:
    """Samples in a batch."""
    return max(1, round(batch * len(split)))


def _batches(found: Found, seed: int, rng: np.random.Generator) -> None:
    """Delete each batch from a copy of the model of all samples, and add it to one fitted without it."""
    split = found.split
    model = ONLINE.fit(split, seed=seed)
    predicted = model.predict(split.X_test)
    found.lightgbm.append(cpu_seconds(LIGHTGBM.train(split, LIGHTGBM.view(split), ONLINE.shape).fit))
    for batch in BATCHES:
        rows = rng.choice(len(split), batch_size(split, batch), replace=False)
        rest = np.setdiff1d(np.arange(len(split)), rows)
        less, gone = model.copy(), names(rows)
        found.outcomes["delete", batch].seconds.append(cpu_seconds(lambda less=less, gone=gone: less.delete(gone)))
        after = less.predict(split.X_test)
        del less
        seconds, retrained = timed(lambda rest=rest: ONLINE.fit(split, rest, seed))
        found.refits[batch].append(seconds)
        found.outcomes["delete", batch].compare(split, after, retrained.predict(split.X_test))
        X, y = split.table(rows), split.y[rows]
        found.outcomes["add", batch].seconds.append(
            cpu_seconds(lambda m=retrained, X=X, y=y, ids=gone: m.add(X, y, ids=ids))
        )
        found.outcomes["add", batch].compare(split, retrained.predict(split.X_test), predicted)


def _back_and_forth(found: Found, model: Any, rng: np.random.Generator, rounds: int, n: int, budget: float) -> None:
    """Delete samples one at a time and add each back, `n` a round; stops when the time is used up."""
    split = found.split
    started = time.process_time()
    for _ in range(rounds):
        found.lightgbm.append(cpu_seconds(LIGHTGBM.train(split, LIGHTGBM.view(split), ONLINE.shape).fit))
        seconds: dict[str, list[float]] = {operation: [] for operation in OPERATIONS}
        for row, table in _one_by_one(split, rng.choice(len(split), n, replace=n > len(split))):
            if time.process_time() - started > budget and seconds["delete"]:
                break
            (name,), label = names(row), split.y[row]
            seconds["delete"].append(cpu_seconds(lambda name=name: model.delete(name), collect=False))
            seconds["add"].append(
                cpu_seconds(lambda X=table, y=label, name=name: model.add(X, y, ids=[name]), collect=False)
            )
        found.n_singles += len(seconds["delete"])
        for operation, values in seconds.items():
            found.singles[operation].append(sum(values) / len(values))


def _one_by_one(split: Split, rows: Indices) -> list[tuple[Indices, Any]]:
    return [(rows[i : i + 1], table) for i, table in enumerate(split.one_row_tables(rows))]


def batch_name(split: Split, batch: float) -> str:
    """A batch as the tables show it."""
    return f"{batch:.1%} ({batch_size(split, batch):,})" if batch else "1"


def _speed_mark(split: Split, batch: float) -> Mark | None:
    if batch == 0.0:
        return at_least(30 if split.name in LARGE_SETS else 10)
    return at_least(2) if batch == BATCHES[-1] else None


def time_rows(found: Sequence[Found]) -> list[Row]:
    """One row a set, operation and batch."""
    return [
        Row(
            (
                one.split.name,
                operation,
                batch_name(one.split, batch),
                str(len(one.outcomes[operation, batch].seconds if batch else one.singles[operation])),
                "" if batch else f"{one.n_singles:,}",
                f"{1e3 * one.seconds(operation, batch):.3f}",
                f"{1e3 * median(one.lightgbm):.0f}",
                f"{1e3 * median(one.refits[batch]):.0f}",
            ),
            one.speedup(operation, batch),
            _speed_mark(one.split, batch),
        )
        for one in found
        for batch in BATCHES
        for operation in OPERATIONS
    ]


def error_rows(found: Sequence[Found]) -> list[Row]:
    """One row a set, operation and batch, and one for the updates back and forth."""
    rows = []
    for one in found:
        listed = [(operation, batch_name(one.split, b), o) for (operation, b), o in one.outcomes.items()]
        listed.append(("back and forth", f"{2 * one.n_singles:,} x 1", one.drifted))
        for operation, batch, outcome in listed:
            updated, retrained = np.mean(outcome.errors, axis=0)
            cells = (one.split.name, operation, batch, str(len(outcome.errors)), f"{updated:.4f}", f"{retrained:.4f}")
            rows.append(Row(cells, abs(one.split.points(updated - retrained)), at_most(MOST_DIFFERENCE)))
    return rows


def similarity_rows(found: Sequence[Found]) -> list[Row]:
    """One row a set of classes, operation and batch of the paper."""
    rows = []
    for one in found:
        for batch in SIMILARITY_BATCHES if one.split.task != REGRESSION else ():
            for operation in OPERATIONS:
                differing = one.outcomes[operation, batch].differing
                shares = 100 * np.mean(differing, axis=0)
                w2w = f"{shares[2]:.2f}" if one.split.task == "multiclass" else ""
                cells = (one.split.name, operation, batch_name(one.split, batch), str(len(differing)))
                paper = PAPER_SIMILARITY.get((one.split.name, operation, batch))
                mark = None if paper is None else at_least(paper)
                rows.append(Row((*cells, f"{shares[0]:.2f}", f"{shares[1]:.2f}", w2w), 100 - shares.sum(), mark))
    return rows


def draw(found: Sequence[Found], path: Path) -> None:
    """How many times faster than LightGBM, by batch."""
    with figure(path, ["times faster than LightGBM retraining"], "", "LightGBM's time by ours") as axes:
        places = np.arange(len(found))
        for place, batch in enumerate(BATCHES):
            for operation in OPERATIONS:
                shift = (place - 1.5) / 5 + (0.04 if operation == "add" else -0.04)
                label = operation if place == 0 else None
                heights = [one.speedup(operation, batch) for one in found]
                axes[0].bar(places + shift, heights, 0.08, color=_COLOURS[operation], label=label)
        axes[0].axhline(1.0, color="black", linewidth=0.8)
        axes[0].set_yscale("log")
        axes[0].set_xticks(places, [one.split.name for one in found], rotation=40, ha="right", fontsize=8)
        axes[0].set_xlabel("in each group: 1 sample, 0.1 %, 0.5 %, 1 %")
