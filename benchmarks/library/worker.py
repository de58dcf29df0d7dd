"""Measure what one commit's library takes, when asked: the interpreter of that commit executes this file as a script.

It imports nothing of the project but `oubli`, so that it runs with any commit whose estimators have these methods. The
argument is a pickled `Work` as a dictionary. Each line of the input names a question and a seed; each line of the
output has the CPU seconds of operations, by name. A seed chooses the same samples whatever the commit.
"""

from __future__ import annotations

import argparse
import gc
import hashlib
import json
import pickle
import sys
import time
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

import oubli

Seconds = dict[str, float]


class Worker:
    """A model and the questions that are asked of it; after each one it holds the samples that it held before."""

    def __init__(self, work: dict[str, Any]) -> None:
        self._work = work
        self._model = self._fitted()

    def fit(self, seed: int) -> Seconds:
        """Fit another model, whose seed differs."""
        return {"fit": _cpu(lambda: self._fitted(seed))}

    def one_by_one(self, seed: int) -> Seconds:
        """Deletions and additions, deferred and then not, of a forest."""
        chosen, model = self._choose(seed, self._work["n_lazy"] + self._work["n_eager"]), self._model
        lazy, eager = chosen[: self._work["n_lazy"]], chosen[self._work["n_lazy"] :]
        found = {
            "lazy delete": _cpu_each(self._delete, lazy),
            "owed by a delete": _cpu(model.resolve) / len(lazy),
            "lazy add": _cpu_each(self._add, lazy),
            "owed by an add": _cpu(model.resolve) / len(lazy),
        }
        found["eager delete"] = _cpu_each(self._delete_eagerly, eager)
        found["eager add"] = _cpu_each(self._add_eagerly, eager)
        return found

    def stream(self, seed: int) -> Seconds:
        """Queries between changes: delete, query, add, query."""
        chosen, queries, waited = self._choose(seed, self._work["n_lazy"]), self._queries(seed), 0.0
        for number, i in enumerate(chosen):
            for change, query in ((self._delete, queries[2 * number]), (self._add, queries[2 * number + 1])):
                change(i)
                waited += _cpu(partial(self._model.predict_proba, query), collect=False)
        self._model.resolve()
        return {"query in a stream": waited / len(queries)}

    def batch(self, seed: int) -> Seconds:
        """A hundredth of the samples deleted at once."""
        n = len(self._work["y"])
        chosen = self._choose(seed, n // 100)
        ids = [str(i) for i in chosen]
        found = {
            "1 % deleted at once": _cpu(lambda: self._model.delete(ids)),
            "owed by 1 %": _cpu(self._model.resolve),
        }
        self._model.add(self._work["X"][chosen], self._work["y"][chosen], ids=ids)
        self._model.resolve()
        return found

    def prediction(self, seed: int) -> Seconds:
        """The test rows at once, and one by one."""
        queries = self._queries(seed)
        return {
            "prediction, test rows": _cpu(lambda: self._model.predict_proba(self._work["X_test"])),
            "prediction, one row": _cpu_each(self._model.predict_proba, queries),
        }

    def deletion(self, seed: int) -> Seconds:
        """Single samples deleted from boosted trees, each of which is added back."""
        seconds = 0.0
        chosen = self._choose(seed, self._work["n_eager"])
        for i in chosen:
            seconds += _cpu(partial(self._delete, i), collect=False)
            self._add(i)
        return {"one deletion": seconds / len(chosen)}

    def answers(self, seed: int) -> str:
        """A hash of the predictions for the test rows, bit for bit."""
        return hashlib.sha256(self._model.predict_proba(self._work["X_test"]).tobytes()).hexdigest()

    def _fitted(self, seed: int = 0) -> Any:
        model = getattr(oubli, self._work["estimator"])(random_state=seed, **self._work["parameters"])
        return model.fit(self._work["X"], self._work["y"], categorical_features=self._work["categorical"] or None)

    def _choose(self, seed: int, n: int) -> list[int]:
        chosen: list[int] = np.random.default_rng(seed).choice(len(self._work["y"]), n, replace=False).tolist()
        return chosen

    def _queries(self, seed: int) -> list[Any]:
        X = self._work["X_test"]
        chosen = np.random.default_rng(seed + 1).integers(0, len(X), 2 * self._work["n_lazy"])
        return [self._row(X, i) for i in chosen.tolist()]

    def _delete(self, i: int) -> None:
        self._model.delete(str(i))

    def _add(self, i: int) -> None:
        self._model.add(self._row(self._work["X"], i), self._work["y"][i : i + 1], ids=[str(i)])

    def _delete_eagerly(self, i: int) -> None:
        self._delete(i)
        self._model.resolve()

    def _add_eagerly(self, i: int) -> None:
        self._add(i)
        self._model.resolve()

    @staticmethod
    def _row(X: Any, i: int) -> Any:
        return X.iloc[i : i + 1] if hasattr(X, "iloc") else X[i : i + 1]


def _cpu(work: Callable[[], object], *, collect: bool = True) -> float:
    """CPU seconds of a call, without a collection of garbage in between."""
    if collect:
        gc.collect()
    gc.disable()
    try:
        started = time.process_time()
        work()
        return time.process_time() - started
    finally:
        gc.enable()


def _cpu_each(work: Callable[[Any], object], arguments: Iterable[Any]) -> float:
    """CPU seconds of one of the calls, on average."""
    prepared = list(arguments)
    return _cpu(lambda: [work(argument) for argument in prepared]) / len(prepared)


def main() -> None:
    """Fit, then answer until the input ends."""
    parser = argparse.ArgumentParser()
    parser.add_argument("work", type=Path)
    worker = Worker(pickle.loads(parser.parse_args().work.read_bytes()))  # noqa: S301 - written by the process that started this one
    for line in sys.stdin:
        question, seed = json.loads(line)
        print(json.dumps(getattr(worker, question)(seed)), flush=True)


if __name__ == "__main__":
    main()
