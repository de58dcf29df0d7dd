"""How far the leaves of an updated `online-boosting` model are behind (Table 13, Appendix N of Online GBDT)."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from benchmarks.boosting.datasets import Load, Split
from benchmarks.boosting.kinds import ONLINE, names
from benchmarks.boosting.updating import OPERATIONS, batch_name, batch_size
from benchmarks.results import Mark, Row, at_most
from benchmarks.timing import rounds_of
from oubli.core.boosting.online.derivatives import make_labels, make_rules
from oubli.core.boosting.online.engine import OnlineTrees
from oubli.core.boosting.online.state import unpack, value_of
from oubli.core.boosting.online.update import derive_all
from oubli.core.boosting.state import LEAF
from oubli.core.jit.policy import kernel
from oubli.core.samples.arrays import Problem

NAME = "leaf-scores"
TITLE = "leaf score error"
TEXT = (
    "A random batch is deleted from a model of all samples, or added to one fitted without it. The error is the sum "
    "of |leaf value - value from up-to-date derivatives| over all leaves of all trees, divided by the sum of the "
    "absolute values of the latter, in per cent; mean over the rounds. The structure of the trees is kept. Batches "
    "of 10 % and more are larger than a sixtieth of the samples held, so all trees are rebuilt: their error "
    "of 0 is that of retraining. The mark is the paper's figure; where it prints 0.00 the mark is 0.005."
)
HEAD = ("data:", "operation:", "batch:", "rounds", "error %")
SETS = ("adult-one-hot", "optdigits", "pendigits", "letter", "covtype")
BATCHES = (0.0, 0.001, 0.005, 0.01, 0.1, 0.5, 0.8)  # shares of the training part; 0: one sample
PAPER = {  # by set and operation, in the order of the batches
    ("adult-one-hot", "add"): (2.42, 4.59, 5.10, 5.30, 4.25, 3.55, 0.0),
    ("adult-one-hot", "delete"): (1.21, 3.63, 3.58, 3.40, 0.27, 0.0, 0.0),
    ("optdigits", "add"): (2.69, 3.48, 5.12, 5.92, 4.64, 0.0, 0.0),
    ("optdigits", "delete"): (0.01, 1.40, 2.52, 3.07, 1.67, 0.0, 0.0),
    ("pendigits", "add"): (2.23, 4.12, 4.50, 4.70, 4.42, 0.0, 0.0),
    ("pendigits", "delete"): (0.19, 0.50, 1.15, 1.73, 0.97, 0.0, 0.0),
    ("letter", "add"): (1.31, 5.78, 10.45, 11.75, 13.34, 6.26, 0.0),
    ("letter", "delete"): (0.57, 1.88, 3.49, 3.74, 1.35, 0.0, 0.0),
    ("covtype", "add"): (0.17, 9.47, 11.68, 10.01, 4.96, 0.01, 0.0),
    ("covtype", "delete"): (0.28, 4.31, 6.04, 4.48, 0.46, 0.0, 0.0),
}
SHOWN_AS_NOUGHT = 0.005


@kernel
def value_anew(forest, rules, derived, tree, slots, sums, values, errors):
    """Write the leaf values, by leaf number, that other derivatives of a tree's samples give, and compare.

    derived  int16/32[S]: as `gh` of the tree
    sums     int64[J], working space
    values   float64[J], written
    errors   float64[2]: sums of |value - other value| and |other value|, added to
    """
    for i in range(sums.shape[0]):
        sums[i] = 0
        values[i] = 0.0
    for i in range(slots.shape[0]):
        sums[forest.leaf_of[tree, slots[i]]] += unpack(derived[slots[i]], rules)
    n_places = 2 * forest.stats.shape[1] + 1
    for row in range(tree * n_places, (tree + 1) * n_places):
        if forest.states[row]["in_use"] == 0 or forest.nodes[row]["feature"] != LEAF:
            continue
        leaf = forest.states[row]["leaf"]
        other = value_of(sums[leaf], rules)
        values[leaf] = other
        errors[0] += abs(forest.nodes[row]["value"] - other)
        errors[1] += abs(other)


def leaf_score_error(engine: OnlineTrees, problem: Problem) -> float:
    """How far leaf values are from those of derivatives that are up to date (Appendix N, Table 13).

    The sum over all leaves of |value - value of up-to-date derivatives|, as a share of the sum of the latter's sizes.
    The structure is the same; derivatives are up to date when every tree's are made from the values, thus recomputed,
    of the trees before.
    """
    forest, slots = engine.forest, np.flatnonzero(engine.held)
    rules = make_rules(engine.settings, engine.groups, engine.scale)
    labels = make_labels(problem, engine.settings, engine.ranks, engine.groups, engine.scale)
    n_groups = len(labels.base)
    if n_groups == 0:
        return 0.0
    derived = np.zeros((n_groups, forest.gh.shape[1]), forest.gh.dtype)
    sums, probabilities = np.zeros((n_groups, len(slots))), np.zeros(n_groups)
    leaf_sums, errors = np.zeros(forest.values.shape[1], np.int64), np.zeros(2)
    values = np.zeros(forest.values.shape[1])
    for iteration in range(forest.n_trees // n_groups):
        derive_all(labels, sums, slots, 0, len(slots), iteration, 0, derived, 0, n_groups, probabilities)
        for k in range(n_groups):
            tree = iteration * n_groups + k
            value_anew(forest, rules, derived[k], tree, slots, leaf_sums, values, errors)
            sums[k] += values[forest.leaf_of[tree, slots]]
    return float(errors[0] / errors[1]) if errors[1] > 0 else 0.0


@dataclass
class Found:
    """Errors of a set by operation and batch, one a round."""

    split: Split
    errors: dict[tuple[str, float], list[float]] = field(default_factory=lambda: defaultdict(list))


def measure(load: Load, sets: Sequence[str], rounds: int, budget: float) -> list[Found]:
    """Update and ask; no further round on a set when `budget` CPU seconds are used up."""
    found = []
    for name in sets:
        started = time.perf_counter()
        one = Found(load(name, 0))
        model = ONLINE.fit(one.split)
        rng = np.random.default_rng(3)
        rounds_of(lambda _, one=one, model=model, rng=rng: _one_round(one, model, rng), rounds, budget)
        found.append(one)
        print(f"{name}: leaf scores, {time.perf_counter() - started:.0f} s", flush=True)
    return found


def _one_round(found: Found, model: Any, rng: np.random.Generator) -> None:
    split = found.split
    for batch in BATCHES:
        rows = rng.choice(len(split), batch_size(split, batch), replace=False)
        less = model.copy()
        less.delete(names(rows))
        found.errors["delete", batch].append(_error(less))
        more = ONLINE.fit(split, np.setdiff1d(np.arange(len(split)), rows))
        more.add(split.table(rows), split.y[rows], ids=names(rows))
        found.errors["add", batch].append(_error(more))


def _error(model: Any) -> float:
    return 100 * float(leaf_score_error(model.engine_, model.problem()))


def _mark(split: Split, operation: str, batch: float) -> Mark:
    return at_most(max(PAPER[split.name, operation][BATCHES.index(batch)], SHOWN_AS_NOUGHT))


def rows(found: Sequence[Found]) -> list[Row]:
    """One row a set, operation and batch."""
    return [
        Row(
            (one.split.name, operation, batch_name(one.split, batch), str(len(one.errors[operation, batch]))),
            float(np.mean(one.errors[operation, batch])),
            _mark(one.split, operation, batch),
        )
        for one in found
        for operation in OPERATIONS
        for batch in BATCHES
    ]
