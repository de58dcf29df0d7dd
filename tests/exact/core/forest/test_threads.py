"""Threads at one forest: what they borrow comes back, whatever happens meanwhile."""

import pickle
import random
import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from sklearn.base import clone

from oubli.core import DynamicForestClassifier, DynamicForestRegressor
from oubli.core.forest import leases, storage
from oubli.core.forest.engine import ForestEngine
from oubli.core.forest.leases import Sharing
from oubli.core.forest.state import N_MEMBERS, POOLS
from tests.threads import many_threads

N, D = 600, 5
FORESTS = [DynamicForestClassifier, DynamicForestRegressor]


@pytest.fixture(autouse=True)
def _many() -> Iterator[None]:
    with many_threads():
        yield


def data(n: int = N, seed: int = 0) -> tuple[Any, Any]:
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, D)).astype(np.float32)
    return X, (X[:, 0] + rng.normal(size=n) > 0).astype(int)


def fitted(kind: Any = DynamicForestClassifier, n_jobs: int | None = 3, **parameters: Any) -> Any:
    X, y = data()
    model = kind(n_estimators=12, random_state=0, n_jobs=n_jobs, **parameters)
    model.fit(X, y.astype(float) if kind is DynamicForestRegressor else y)
    return model


@pytest.mark.parametrize("kind", FORESTS)
def test_trees_are_sound_when_little_can_be_borrowed_at_a_time(kind: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Threads stop again and again, and continue with larger pools."""
    expected = fitted(kind, None)
    monkeypatch.setattr(leases, "_FEW_ROWS", np.array([4, 70, 2]))
    monkeypatch.setattr(leases, "_MANY_ROWS", np.array([6, 80, 3]))
    monkeypatch.setattr(leases, "members_of_a_lease", lambda forest: 2 * forest.largest_tree() + 2)
    model = fitted(kind, 7)
    model.check_invariants()
    assert model.digest() == expected.digest()
    X, y = data(300, 1)
    for one in (model, expected):
        one.set_params(lazy=True)
        one.delete([str(i) for i in range(40)])
        one.add(X[:30], y[:30].astype(float) if kind is DynamicForestRegressor else y[:30])
        one.resolve()
        one.check_invariants()
    assert model.digest() == expected.digest()


def test_pools_do_not_grow_with_every_call() -> None:
    X, y = data(1600, 2)
    used = []
    for n_jobs in (None, 7):
        model, rng = fitted(n_jobs=n_jobs, lazy=False), random.Random(0)
        for start in range(0, len(X), 20):
            model.delete(rng.sample(model.samples_.ids(), 20))
            model.add(X[start : start + 20], y[start : start + 20])
        model.check_invariants()
        used.append(model.engine_.trees.meta[[*POOLS, N_MEMBERS]])
    alone, together = used
    assert (together <= 5 * alone + 1000).all()


@pytest.mark.parametrize("error", [MemoryError, KeyboardInterrupt, ZeroDivisionError])
@pytest.mark.parametrize("in_caller", [True, False])
def test_an_error_harms_no_tree(error: type[BaseException], in_caller: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    model = fitted()
    model.delete([str(i) for i in range(40)])
    expected, caller, finish = model.copy().digest(), threading.get_ident(), Sharing._finish
    has_failed = threading.Event()

    def failing(self: Sharing, *arguments: Any) -> bool:
        if (threading.get_ident() == caller) is in_caller and not has_failed.is_set():
            has_failed.set()
            raise error
        has_failed.wait(5)  # so that the other kind of thread gets its turn
        return finish(self, *arguments)

    with monkeypatch.context() as patch:
        patch.setattr(Sharing, "_finish", failing)
        with pytest.raises(error):
            model.resolve()
    assert has_failed.is_set()
    assert model.is_usable
    model.check_invariants()
    assert model.n_lazy_tags_ == int(model.engine_.trees.tree_tags.sum()) > 0
    assert model.digest() == expected
    assert model.verify().ok


def test_without_memory_or_places_for_more_threads_one_does_it(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*arguments: Any) -> Any:
        raise MemoryError

    for of, name, value in ((ForestEngine, "empty_scratch", fails), (storage, "MAX_ENTRIES", None)):
        model = fitted()
        model.delete([str(i) for i in range(40)])
        expected = model.copy().set_params(n_jobs=None).digest()
        monkeypatch.setattr(of, name, value or len(model.engine_.trees.members))
        assert model.resolve() > 0
        assert model.digest() == expected
        monkeypatch.undo()


def test_threads_that_have_not_come_to_their_end_make_the_model_unusable(monkeypatch: pytest.MonkeyPatch) -> None:
    """What only an error between two lines of `run` can do."""
    model = fitted()
    model.delete([str(i) for i in range(40)])
    running, go_on = threading.Event(), threading.Event()
    finish = Sharing._finish

    def slow(self: Sharing, *arguments: Any) -> bool:
        running.set()
        go_on.wait(20)
        return finish(self, *arguments)

    def left(pieces: Any, n_threads: int) -> Any:
        threading.Thread(target=pieces[0]).start()
        running.wait(20)
        raise MemoryError

    monkeypatch.setattr(Sharing, "_finish", slow)
    monkeypatch.setattr(leases, "run", left)
    with pytest.raises(MemoryError):
        model.resolve()
    assert not model.is_usable
    go_on.set()
    monkeypatch.undo()
    X, y = data()
    with many_threads():
        assert model.fit(X, y).is_usable


def test_who_copies_a_model_that_is_being_fitted_has_what_it_was() -> None:
    model = fitted()
    before, copies = model.digest(), []

    def keep(done: int, total: int) -> None:
        if 0 < done < total and len(copies) < 4:
            copies.extend([model.copy(), pickle.loads(pickle.dumps(model)), clone(model)])  # noqa: S301 - ours

    X, y = data(900, 3)
    model.fit(X, y, progress=keep)
    for copied, pickled, cloned in zip(copies[::3], copies[1::3], copies[2::3], strict=True):
        assert copied.digest() == pickled.digest() == before
        assert cloned.get_params() == model.get_params()
        assert cloned.fit(X, y).digest() == model.digest() != before
    assert copies


def test_what_threads_worked_in_is_overwritten(monkeypatch: pytest.MonkeyPatch) -> None:
    kept: list[Any] = []
    empty = ForestEngine.empty_scratch

    def keeping(self: Any, *arguments: Any) -> Any:
        kept.append(empty(self, *arguments))
        return kept[-1]

    model = fitted()
    model.delete([str(i) for i in range(40)])
    monkeypatch.setattr(ForestEngine, "empty_scratch", keeping)
    model.resolve()
    spare = [scratch for scratch in kept if scratch.entries is not model.engine_.scratch.entries]
    assert len(spare) == 2
    for scratch in spare:
        for name, array in scratch._asdict().items():
            assert name == "bit_constants" or not np.asarray(array).view(np.uint8).any(), name
    model.wipe()
    assert not model.engine_.blocks.longs[0].any()


@pytest.mark.parametrize("kind", FORESTS)
def test_a_signal_that_is_set_stops_before_the_first_tag_and_without_one_none_is_left(kind: Any) -> None:
    model = fitted(kind)
    model.delete([str(i) for i in range(0, N, 10)])
    other, n_tags = model.copy(), model.n_lazy_tags_
    assert n_tags > 0
    assert model.resolve_until(np.ones(1, np.int64)) == 0
    assert model.n_lazy_tags_ == n_tags
    assert model.resolve_until(np.zeros(1, np.int64)) > 0
    assert model.n_lazy_tags_ == 0
    model.check_invariants()
    assert model.digest() == other.digest()
