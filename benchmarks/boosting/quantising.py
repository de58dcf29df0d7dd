"""What quantisation costs in accuracy: `incremental-boosting` with and without it."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from benchmarks.boosting.datasets import REGRESSION, Load, Split
from benchmarks.boosting.kinds import INCREMENTAL, UNQUANTISED
from benchmarks.results import Row, at_most
from benchmarks.timing import median, rounds_of, timed

NAME = "quantisation"
TITLE = "quantised and not"
TEXT = (
    '`incremental-boosting` with `quantization="auto"` and with `None`, 100 trees of depth 5: accuracy (R2 for '
    "numbers) and AUC on the test part, mean over the rounds, each with its own seed and, where no split is given, "
    "its own split. *Lost* is what quantisation costs, in points: of AUC for two classes, of accuracy for more, of "
    "R2 for numbers."
)
HEAD = (
    "data:",
    "rounds",
    "accuracy, auto",
    "accuracy, None",
    "AUC, auto",
    "AUC, None",
    "fit s, auto",
    "fit s, None",
    "lost",
)
MOST_LOST = 0.2
MODES = {"auto": INCREMENTAL, "None": UNQUANTISED}


@dataclass
class Found:
    """Scores and seconds of a set by mode."""

    split: Split
    scores: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    aucs: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    seconds: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))

    def lost(self) -> float:
        """Points lost by quantisation."""
        values = self.aucs if self.split.task == "binary" else self.scores
        return 100 * (mean(values["None"]) - mean(values["auto"]))


def mean(values: Sequence[float]) -> float:
    """The mean."""
    return sum(values) / len(values)


def measure(load: Load, sets: Sequence[str], rounds: int, budget: float) -> list[Found]:
    """Fit both in turn; no further round on a set when `budget` CPU seconds are used up."""
    found = []
    for name in sets:
        started = time.perf_counter()
        one = Found(load(name, 0))
        for kind in MODES.values():
            kind.warm_up(one.split)

        def one_round(seed: int, one: Found = one) -> None:
            split = load(one.split.name, seed) if seed else one.split
            for mode, kind in MODES.items():
                seconds, model = timed(lambda kind=kind: kind.fit(split, seed=seed))
                one.seconds[mode].append(seconds)
                one.scores[mode].append(1 - split.points(split.error(model.predict(split.X_test))) / 100)
                if split.task == "binary":
                    one.aucs[mode].append(auc(model, split))

        rounds_of(one_round, rounds, budget)
        found.append(one)
        print(f"{name}: quantised and not, {time.perf_counter() - started:.0f} s", flush=True)
    return found


def auc(model: Any, split: Split) -> float:
    """Area under the curve on the test part, of two classes."""
    from sklearn.metrics import roc_auc_score

    return float(roc_auc_score(split.y_test, model.predict_proba(split.X_test)[:, 1]))


def rows(found: Sequence[Found]) -> list[Row]:
    """One row a set."""
    return [
        Row(
            (
                one.split.name + (", R2" if one.split.task == REGRESSION else ""),
                str(len(one.scores["auto"])),
                *(f"{mean(one.scores[mode]):.4f}" for mode in MODES),
                *(f"{mean(one.aucs[mode]):.4f}" if one.aucs else "" for mode in MODES),
                *(f"{median(one.seconds[mode]):.3f}" for mode in MODES),
            ),
            one.lost(),
            at_most(MOST_LOST),
        )
        for one in found
    ]
