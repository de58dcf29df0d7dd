"""Resolving that is told to stop: what is left are tags, and the forest is that of a fresh fit all the same."""

from __future__ import annotations

import random
import threading
import time
from typing import Any

import numpy as np
import pytest

from oubli.core import DynamicForestClassifier, DynamicForestRegressor, DynamicTreeClassifier
from tests.exact.core.forest.test_threads import FORESTS, data


def stop_after(seconds: float, stop: Any) -> threading.Thread:
    def press() -> None:
        time.sleep(seconds)
        stop[0] = 1

    thread = threading.Thread(target=press)
    thread.start()
    return thread


def tagged(kind: Any, n: int = 4000) -> Any:
    X, y = data(n)
    model = kind(n_estimators=12, random_state=0)
    model.fit(X, y.astype(float) if kind is DynamicForestRegressor else y)
    model.delete([str(i) for i in range(0, n, 40)])
    assert model.n_lazy_tags_ > 50
    return model


@pytest.mark.parametrize("kind", FORESTS)
def test_a_signal_that_is_set_stops_before_the_first_tag_and_without_one_none_is_left(kind: Any) -> None:
    model, other = tagged(kind, 1000), tagged(kind, 1000)
    n_tags = model.n_lazy_tags_
    assert model.resolve_until(np.ones(1, np.int64)) == 0
    assert model.n_lazy_tags_ == n_tags
    assert model.resolve_until(np.zeros(1, np.int64)) > 0
    assert model.n_lazy_tags_ == 0
    model.check_invariants()
    assert model.digest() == other.digest()


@pytest.mark.parametrize("kind", FORESTS)
def test_stopped_at_any_moment_the_trees_are_sound(kind: Any) -> None:
    model, rng, n_stopped = tagged(kind), random.Random(0), 0
    expected, (X, y) = model.copy().digest(), data(4000)
    for turn in range(20):
        stop = np.zeros(1, np.int64)
        press = stop_after(rng.random() * 1e-3, stop)
        model.resolve_until(stop)
        press.join()
        n_stopped += model.n_lazy_tags_ > 0
        if turn % 7 == 0:
            model.check_invariants()
        if turn == 10:  # in the middle of it, others come
            model.delete(model.add(X[:40], y[:40].astype(float) if kind is DynamicForestRegressor else y[:40]))
        if not model.n_lazy_tags_:
            ids = rng.sample(model.samples_.ids(), 60)
            model.delete(ids)
            model.add(*_again(model, X, y, ids), ids=ids)
    assert n_stopped > 2
    model.resolve()
    model.check_invariants()
    assert model.digest() == expected
    assert model.verify().ok


def _again(model: Any, X: Any, y: Any, ids: list[str]) -> tuple[Any, Any]:
    numbers = [int(name) for name in ids]
    return X[numbers], y[numbers].astype(float) if isinstance(model, DynamicForestRegressor) else y[numbers]


def test_only_forests_say_that_they_stop_soon() -> None:
    X, y = data(200)
    forest = DynamicForestClassifier(3, random_state=0).fit(X, y)
    assert forest.yields_
    tree = DynamicTreeClassifier(lazy=True).fit(X, y)
    assert not tree.yields_
    tree.delete([str(i) for i in range(60)])
    tree.resolve_until(np.zeros(1, np.int64))
    assert tree.n_lazy_tags_ == 0
