"""The marks: reverse mode beside retraining and beside the forward form; leave-one-out beside a fresh fit."""

from __future__ import annotations

from typing import Any

import lightgbm
import numpy as np
import pandas as pd

from benchmarks.influence.problems import Problem
from benchmarks.results import Mark, Row, at_least, at_most
from benchmarks.timing import cpu_seconds, median, timed
from oubli.core import DynamicForestClassifier, IncrementalBoostingClassifier
from oubli.core.influence import FastLeafInfluence, influence, view

NAME = "marks"
TITLE = "what a question costs"
TEXT = (
    "Adult with its categories, 100 trees of depth 6, learning rate 0.2; CPU seconds of one thread, medians of the "
    "rounds, both times of a row in the same run. LightGBM has the same number of trees, depth and rate with at "
    "most 64 leaves, and takes categories natively. *All influences*: LeafInfluence of all 32,561 samples in "
    "reverse mode, from the model as it is: every sample is routed through every tree, then one pass forward and "
    "one backward. *The forward form* is AllPoints for each sample, with its derivatives computed once beforehand "
    "and the time of all samples extrapolated from some. Leave-one-out: the loss on one test row after unlearning "
    "each of some random samples, and how many could be done in the time of one fresh fit of the forest; the digest "
    "is taken before and after. The row is the first one that the forest is unsure about."
)
HEAD = ("question:", "this, s:", "beside:", "that, s:", "figure")
N_MEAN = 1_000


def measure(problem: Problem, rounds: int, n_forward: int, n_left_out: int) -> list[Row]:
    """Measure all marks."""
    return [*_reverse_marks(problem, rounds, n_forward), *_leave_one_out_marks(problem, n_left_out)]


def row(question: str, mine: float, beside: str, other: float, figure: float, mark: Mark | None = None) -> Row:
    """A row of the table."""
    return Row((question, f"{mine:.4g}", beside, f"{other:.4g}"), figure, mark)


def _reverse_marks(problem: Problem, rounds: int, n_forward: int) -> list[Row]:
    models = {
        "incremental-boosting": IncrementalBoostingClassifier(100, max_depth=6, learning_rate=0.2, random_state=0),
        "incremental-boosting, quantization=None": problem.fit(),
    }
    models["incremental-boosting"].fit(problem.X, problem.y, categorical_features=problem.categorical)
    frame = problem.X.copy()
    frame[problem.categorical] = frame[problem.categorical].astype("category")
    one = (problem.X_test.head(1), problem.y_test[:1])
    many = (problem.X_test.head(N_MEAN), problem.y_test[:N_MEAN])
    found = []
    for name, model in models.items():
        influence(model, *one)
        times: dict[str, list[float]] = {"peer": [], "one": [], "many": [], "routing": []}
        for _ in range(rounds):
            times["peer"].append(cpu_seconds(lambda: _light(frame, problem.y)))
            times["one"].append(cpu_seconds(lambda model=model: influence(model, *one)))  # type: ignore[misc]
            times["many"].append(cpu_seconds(lambda model=model: influence(model, *many)))  # type: ignore[misc]
            seen = view(model)
            times["routing"].append(cpu_seconds(lambda seen=seen: seen.route(many[0])))  # type: ignore[misc]
        peer, first, mean, routing = (median(times[key]) for key in ("peer", "one", "many", "routing"))
        found.append(
            row(f"all influences on one row, {name}", first, "LightGBM retrains", peer, first / peer, at_most(0.5))
        )
        found.append(
            row(
                f"on the mean of {len(many[1]):,} rows, {name}",
                mean,
                "one row, and routing them",
                first + routing,
                mean / (first + routing),
                at_most(1.5),
            )
        )
    found.append(_forward_mark(problem, view(model), first, one, n_forward))
    return found


def _light(frame: pd.DataFrame, y: Any) -> None:
    peer = lightgbm.LGBMClassifier(
        n_estimators=100, max_depth=6, num_leaves=64, learning_rate=0.2, n_jobs=1, verbose=-1
    )
    peer.fit(frame, y)


def _forward_mark(problem: Problem, seen: Any, reverse: float, one: Any, n_forward: int) -> Row:
    form, leaves = FastLeafInfluence(seen, "all"), seen.route(one[0])
    form.change(0).of_rows(seen, leaves)
    samples = np.random.default_rng(0).choice(problem.n, n_forward, replace=False).tolist()
    seconds = cpu_seconds(lambda: [form.change(i).of_rows(seen, leaves) for i in samples])
    total = seconds / n_forward * problem.n
    return row(
        "all influences on one row, reverse", reverse, "the forward form", total, total / reverse, at_least(1000)
    )


def _leave_one_out_marks(problem: Problem, n_left_out: int) -> list[Row]:
    found = []
    settings = {"occurrence=0.1": {"occurrence": 0.1, "max_depth": 20, "min_samples_split": 10}, "defaults": {}}
    for name, parameters in settings.items():

        def fit(parameters: dict[str, Any] = parameters, n: int | None = None) -> DynamicForestClassifier:
            forest = DynamicForestClassifier(random_state=0, **parameters)
            return forest.fit(problem.X[:n], problem.y[:n], categorical_features=problem.categorical)

        fit(n=2_000)
        fitting, forest = timed(fit)
        unsure = int(np.argmax(np.abs(forest.predict_proba(problem.X_test)[:, 1] - 0.5) < 0.2))
        ask = (problem.X_test.iloc[[unsure]], problem.y_test[[unsure]])
        digest = forest.digest()
        ids = np.random.default_rng(0).choice(problem.n, n_left_out, replace=False).tolist()
        influence(forest, *ask, method="leave-one-out", ids=ids[:10])
        seconds = cpu_seconds(lambda: influence(forest, *ask, method="leave-one-out", ids=ids))  # noqa: B023
        same = "digest unchanged" if forest.digest() == digest else "**digest changed**"
        figure = n_left_out / seconds * fitting
        question = f"leave-one-out of {n_left_out:,} samples, forest, {name}, {same}"
        found.append(row(question, seconds, "fresh fit; samples in its time", fitting, figure, at_least(1000)))
    return found
