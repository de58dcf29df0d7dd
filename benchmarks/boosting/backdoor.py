"""A backdoor injected and removed (Table 4 and Appendix J of the Online GBDT paper)."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from benchmarks.boosting.datasets import Load, Matrix, Split
from benchmarks.boosting.kinds import Kind, names
from benchmarks.results import Row, at_most
from benchmarks.timing import rounds_of

NAME = "backdoor"
TITLE = "a backdoor injected and removed"
TEXT = (
    "A random 2 % of the training samples get a trigger (their first features are set to the greatest values there "
    "are) and the label of the first class. *Attack* is the share of all test rows with the trigger that get the "
    "first class. *Clean*: trained without those samples. *Joint*: trained with them. *Added*: they are added to "
    "the clean model. *Removed*: they are deleted from it again. Mean over the rounds, each with its own seed. "
    "*Left* is the attack's success after the removal minus that of the clean model, in points; for "
    "`incremental-boosting` one more row counts the digests that differ from the clean model's. On `pendigits`, "
    "`letter` and `covtype` 2 % are more than 100 samples and more than a sixtieth, so `online-boosting` rebuilds "
    "all trees: its rows there are those of retraining. On `optdigits` it updates in place."
)
STAGES = ("clean", "joint", "added", "removed")
HEAD = (
    "data:",
    "kind:",
    "rounds",
    *(f"{stage}: accuracy %" for stage in STAGES),
    *(f"{stage}: attack %" for stage in STAGES),
    "what:",
    "figure",
)
SETS = ("optdigits", "pendigits", "letter", "covtype")
POISONED = 0.02
N_TRIGGERS = 4
TARGET = 0
MOST_LEFT = 2.0


@dataclass
class Found:
    """Accuracy and attack success by stage, one a round."""

    split: Split
    kind: Kind
    accuracies: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    successes: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    different: int = 0  # digests after the removal

    def look(self, stage: str, model: Any, triggered: Matrix) -> None:
        """Record the accuracy of a model and the success of the attack."""
        self.accuracies[stage].append(1 - self.split.error(model.predict(self.split.X_test)))
        self.successes[stage].append(float((model.predict(triggered) == TARGET).mean()))

    def left(self) -> float:
        """Attack success after the removal minus that of the clean model, in points."""
        return 100 * float(np.mean(self.successes["removed"]) - np.mean(self.successes["clean"]))


def measure(load: Load, sets: Sequence[str], kinds: Sequence[Kind], rounds: int, budget: float) -> list[Found]:
    """Inject and remove; no further round of a kind on a set when `budget` CPU seconds are used up."""
    found = []
    for name in sets:
        started = time.perf_counter()
        split = load(name, 0)
        for kind in kinds:
            kind.warm_up(split)
            one = Found(split, kind)
            rounds_of(lambda seed, one=one: _one_round(one, seed), rounds, budget)
            found.append(one)
        print(f"{name}: backdoor, {time.perf_counter() - started:.0f} s", flush=True)
    return found


def with_trigger(split: Split, X: Matrix) -> Matrix:
    """Rows with the trigger."""
    triggered = X.copy()
    triggered[:, :N_TRIGGERS] = split.X.max(axis=0)[:N_TRIGGERS]
    return triggered


def _one_round(found: Found, seed: int) -> None:
    split, kind = found.split, found.kind
    n = len(split)
    rows = np.random.default_rng(seed).choice(n, max(1, round(POISONED * n)), replace=False)
    clean_rows = np.setdiff1d(np.arange(n), rows)
    poison, labels = with_trigger(split, split.X[rows]), np.full(len(rows), TARGET, split.y.dtype)
    triggered = with_trigger(split, split.X_test)
    model = kind.fit(split, clean_rows, seed)
    clean_digest = model.digest()
    found.look("clean", model, triggered)
    found.look("joint", _joint(kind, split, clean_rows, rows, poison, labels, seed), triggered)
    model.add(poison, labels, ids=names(rows))
    found.look("added", model, triggered)
    model.delete(names(rows))
    found.look("removed", model, triggered)
    found.different += model.digest() != clean_digest


def _joint(
    kind: Kind,
    split: Split,
    clean_rows: npt.NDArray[Any],
    rows: npt.NDArray[Any],
    poison: Matrix,
    labels: npt.NDArray[Any],
    seed: int,
) -> Any:
    X, y = np.concatenate([split.X[clean_rows], poison]), np.concatenate([split.y[clean_rows], labels])
    return kind.estimator(split.task, seed).fit(X, y, ids=names(np.concatenate([clean_rows, rows])))


def rows(found: Sequence[Found]) -> list[Row]:
    """One row a set and kind; two where the guarantee is exactness."""
    listed = []
    for one in found:
        cells = (
            one.split.name,
            one.kind.name,
            str(len(one.accuracies["clean"])),
            *(f"{100 * np.mean(one.accuracies[stage]):.2f}" for stage in STAGES),
            *(f"{100 * np.mean(one.successes[stage]):.2f}" for stage in STAGES),
        )
        listed.append(Row((*cells, "attack left, points"), one.left(), at_most(MOST_LEFT)))
        if one.kind.is_exact:
            listed.append(Row((*cells, "digests different"), one.different, at_most(0)))
    return listed
