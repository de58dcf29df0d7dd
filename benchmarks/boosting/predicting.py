"""Predictions one row at a time and in batches, beside LightGBM, XGBoost and CatBoost."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from benchmarks.boosting.datasets import REGRESSION, Load, Split, take
from benchmarks.boosting.kinds import Kind
from benchmarks.boosting.peers import CATBOOST, LIGHTGBM, Peer, Trained
from benchmarks.operations.prediction import by_turns
from benchmarks.results import Row, at_least
from benchmarks.timing import cpu_seconds, per_call

ROW_NAME, BATCH_NAME = "prediction", "batch-prediction"
ROW_TITLE = "predicting one row"
ROW_TEXT = (
    "CPU time of one prediction of one row from Python (`predict_proba`; `predict` for numbers), 100 trees per "
    "class: the mean over random test rows, the median of the rounds, all systems in turn, each with rows as it "
    "takes them. *Booster* is LightGBM's own interface instead of its estimator. *Times ours* is the system's time "
    "divided by ours."
)
ROW_HEAD = ("data:", "kind:", "system:", "us a row", "times ours")
BATCH_TITLE = "predicting a batch"
BATCH_TEXT = "The whole test part at once: rows per CPU second, and our rate divided by the system's."
BATCH_HEAD = ("data:", "kind:", "system:", "test rows", "rows a second", "our rate by theirs")
SETS = ("adult", "adult-one-hot", "pendigits", "california_housing", "higgs-like")
OURS = "oubli"
BOOSTER = "LightGBM, Booster"
MOST_TRAINING_ROWS = 50_000  # more would only make the fits longer
FASTER_BY = 10


@dataclass(frozen=True)
class Found:
    """Seconds of one row and of the whole test part, by system."""

    split: Split
    kind: Kind
    one_row: dict[str, float]
    batch: dict[str, float]


def measure(
    load: Load, sets: Sequence[str], kinds: Sequence[Kind], peers: Sequence[Peer], rounds: int, n_queries: int
) -> list[Found]:
    """Time the predictions of all systems in turn."""
    found = []
    for name in sets:
        started = time.perf_counter()
        split = load(name, 0)
        trained_on = np.arange(min(len(split), MOST_TRAINING_ROWS))
        for kind in kinds:
            kind.warm_up(split)
            model = kind.fit(split, trained_on)
            trained = {peer: peer.train(split, peer.view(split), kind.shape, trained_on) for peer in peers}
            for one in trained.values():
                one.fit()
            found.append(_measure(split, kind, model, trained, rounds, n_queries))
        print(f"{name}: predicted, {time.perf_counter() - started:.0f} s", flush=True)
    return found


def _ask(estimator: Any, split: Split) -> Callable[[Any], Any]:
    asked: Callable[[Any], Any] = estimator.predict if split.task == REGRESSION else estimator.predict_proba
    return asked


def _measure(split: Split, kind: Kind, model: Any, trained: dict[Peer, Trained], rounds: int, n_queries: int) -> Found:
    indices = np.random.default_rng(2).integers(0, len(split.y_test), n_queries)
    one_row = {OURS: partial(per_call, _ask(model, split), split.queries(indices))}
    batch = {OURS: partial(cpu_seconds, partial(_ask(model, split), split.X_test))}
    for peer, one in trained.items():
        # A table of text would be taken apart at each call: CatBoost has a list of lists.
        queries: list[Any] = [take(one.view.X_test, indices[i : i + 1]) for i in range(n_queries)]
        if peer is CATBOOST and split.categorical:
            queries = [query.to_numpy(dtype=object).tolist() for query in queries]
        one_row[peer.name] = partial(per_call, _ask(one.estimator, split), queries)
        batch[peer.name] = partial(cpu_seconds, partial(_ask(one.estimator, split), one.view.X_test))
        if peer is LIGHTGBM:
            one_row[BOOSTER] = partial(per_call, one.estimator.booster_.predict, queries)
    return Found(split, kind, by_turns(one_row, rounds), by_turns(batch, rounds))


def one_row_rows(found: Sequence[Found]) -> list[Row]:
    """One row a set, kind and system."""
    return [
        Row(
            (one.split.name, one.kind.name, system, f"{1e6 * seconds:.1f}"),
            seconds / one.one_row[OURS],
            at_least(FASTER_BY) if system == LIGHTGBM.name else None,
        )
        for one in found
        for system, seconds in one.one_row.items()
    ]


def batch_rows(found: Sequence[Found]) -> list[Row]:
    """One row a set, kind and system."""
    return [
        Row(
            (
                one.split.name,
                one.kind.name,
                system,
                f"{len(one.split.y_test):,}",
                f"{len(one.split.y_test) / seconds:,.0f}",
            ),
            seconds / one.batch[OURS],
        )
        for one in found
        for system, seconds in one.batch.items()
    ]
