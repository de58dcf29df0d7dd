"""One model in many threads: see `tests/stress.py`."""

import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import joblib
import numpy as np
import pytest
from sklearn.model_selection import GridSearchCV, cross_val_predict

from oubli import DynamicForestClassifier, DynamicTreeClassifier, IncrementalBoostingClassifier
from oubli.core.concurrency.locks import ModelLock
from oubli.core.errors import InputError, UnusableModelError
from tests.stress import Crowd, crowds, run_round
from tests.threads import many_threads
from tests.tiers import covering

CROWDS = {(crowd.name, n_jobs): crowd for n_jobs in (1, 2) for crowd in crowds(n_jobs)}
NAMES = sorted({name for name, _ in CROWDS})


@pytest.fixture(autouse=True)
def _switches() -> Iterator[None]:
    """Let threads take turns often."""
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-4)
    yield
    sys.setswitchinterval(interval)


@pytest.mark.parametrize(("name", "n_jobs", "n_readers", "seed"), covering(NAMES, (1, 2), (2, 8), range(6)))
def test_each_thread_sees_the_model_between_two_changes(
    name: str, n_jobs: int, n_readers: int, seed: int, tmp_path: Path
) -> None:
    crowd: Crowd = CROWDS[name, n_jobs]
    with many_threads():
        assert run_round(crowd, seed, n_readers, n_changes=4, folder=tmp_path) >= n_readers


def numbers(n: int) -> tuple[Any, Any]:
    rng = np.random.default_rng(0)
    X = rng.random((n, 6))
    return X, (X[:, 0] + X[:, 1] > 1).astype(int)


def test_models_are_fitted_and_searched_in_thread_pools() -> None:
    X, y = numbers(120)
    search = GridSearchCV(DynamicForestClassifier(3, random_state=0), {"occurrence": [0.4, 1.0]}, cv=3)
    alone = search.fit(X, y).cv_results_["mean_test_score"]
    forest = DynamicForestClassifier(3, random_state=0)
    expected = cross_val_predict(forest, X, y, cv=3)
    with joblib.parallel_backend("threading", n_jobs=4):
        assert np.array_equal(search.fit(X, y).cv_results_["mean_test_score"], alone)
        assert np.array_equal(cross_val_predict(forest, X, y, cv=3, n_jobs=4), expected)
    forest.fit(X, y).delete("3")
    answers = joblib.Parallel(n_jobs=4, backend="threading")(
        joblib.delayed(forest.predict)(X[start : start + 5]) for start in range(0, 120, 5)
    )
    assert np.array_equal(np.concatenate(answers), forest.predict(X))


def test_fits_and_partial_fits_of_one_model_follow_each_other() -> None:
    X, y = numbers(60)
    forest = DynamicForestClassifier(3, random_state=0)
    with joblib.parallel_backend("threading", n_jobs=6):
        joblib.Parallel()(joblib.delayed(forest.partial_fit)(X[i : i + 10], y[i : i + 10]) for i in range(0, 60, 10))
    assert forest.n_samples_ == 60
    assert forest.verify().ok
    with joblib.parallel_backend("threading", n_jobs=6):
        joblib.Parallel()(joblib.delayed(forest.fit)(X[:n], y[:n]) for n in range(40, 60))
    assert forest.n_samples_ in range(40, 60)
    assert forest.verify().ok


def small_forest() -> tuple[Any, Any, Any]:
    X, y = numbers(50)
    return DynamicForestClassifier(3, random_state=0).fit(X, y), X, y


# -- who waits for whom ------------------------------------------------------------------------------


def in_thread(work: Callable[[], object]) -> threading.Thread:
    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    return thread


def read_for_long(forest: Any) -> tuple[threading.Thread, threading.Event]:
    """Begin a long read; returns its thread, and what lets it end."""
    reads, may_end = threading.Event(), threading.Event()

    def read() -> None:
        reads.set()
        may_end.wait()

    reader = in_thread(lambda: forest.unchanged(read))
    reads.wait()
    return reader, may_end


def test_predictions_go_on_while_a_change_waits_for_a_long_read() -> None:
    forest, X, _ = small_forest()
    reader, may_end = read_for_long(forest)
    writer = in_thread(lambda: forest.delete("7"))
    while not forest.lock.long.is_closed:
        time.sleep(0.001)
    assert (forest.n_samples_, len(forest.predict(X))) == (50, 50)
    late = in_thread(forest.digest)  # after the change: it does not wait for ever
    may_end.set()
    for thread in (reader, writer, late):
        thread.join(20)
        assert not thread.is_alive()
    assert forest.n_samples_ == 49


def test_a_change_within_a_read_of_the_same_thread_is_refused() -> None:
    forest, X, y = small_forest()
    for change in (lambda: forest.delete("1"), lambda: forest.fit(X, y), lambda: forest.add(X[:1], y[:1])):
        with pytest.raises(InputError, match="this thread reads the model: change it after that has returned"):
            forest.unchanged(change)
    assert forest.n_samples_ == 50
    forest.delete("1")


def test_a_gate_or_a_mark_that_an_interrupted_call_has_left_keeps_nobody_out() -> None:
    forest, X, _ = small_forest()
    forest.lock.close()
    assert len(forest.predict(X)) == 50
    forest.lock.short.inside[threading.get_ident()] = None
    forest.delete("1")
    assert forest.n_samples_ == 49
    assert threading.get_ident() not in forest.lock.short.inside


def test_a_section_waits_until_readers_are_out_and_ctrl_c_ends_the_waiting() -> None:
    forest, _, _ = small_forest()
    reader, may_end = read_for_long(forest)
    in_thread(lambda: (time.sleep(0.2), signal.raise_signal(signal.SIGINT)))
    with pytest.raises(KeyboardInterrupt):
        forest.delete("7")
    may_end.set()
    reader.join(20)
    assert forest.is_usable
    assert forest.n_samples_ == 50
    forest.delete("7")
    assert forest.verify().ok


def test_what_was_broken_off_is_unusable_for_every_thread() -> None:
    X, y = numbers(50)
    tree = DynamicTreeClassifier().fit(X, y)
    with pytest.raises(ZeroDivisionError), tree.samples_.changes:
        raise ZeroDivisionError
    seen: list[type[BaseException]] = []

    def ask() -> None:
        try:
            tree.predict(X)
        except UnusableModelError as error:
            seen.append(type(error))

    for thread in [in_thread(ask) for _ in range(4)]:
        thread.join(20)
    assert seen == [UnusableModelError] * 4
    assert len(tree.fit(X, y).predict(X)) == 50


# -- fork --------------------------------------------------------------------------------------------


def is_true_in_a_child(work: Callable[[], bool]) -> bool:
    """Whether a forked process says so."""
    child = os.fork()
    if not child:
        status = 1
        try:
            status = 0 if work() else 2
        finally:
            os._exit(status)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork")
@pytest.mark.parametrize("kind", [DynamicForestClassifier, DynamicTreeClassifier, IncrementalBoostingClassifier])
def test_a_child_that_is_forked_while_threads_work_has_a_whole_model(kind: type[Any]) -> None:
    X, y = numbers(150)
    parameters = {} if kind is DynamicTreeClassifier else {"n_estimators": 5}
    model = kind(**parameters, random_state=0).fit(X, y)
    assert model.verify().ok  # with all kernels loaded
    is_over = threading.Event()

    def change() -> None:
        while not is_over.is_set():
            model.delete("7")
            model.add(X[7:8], y[7:8], ids=["7"])

    def read() -> None:
        while not is_over.is_set():
            model.predict(X[:3])

    def is_whole() -> bool:
        model.check_invariants()
        model.add(X[:1], y[:1], ids=["new"])
        model.predict(X[:2])
        return bool(model.is_usable and model.verify().ok)

    threads = [in_thread(change), in_thread(read), in_thread(read)]
    try:
        for _ in range(5):
            time.sleep(0.005)
            assert is_true_in_a_child(is_whole)
    finally:
        is_over.set()
    for thread in threads:
        thread.join(20)
    assert model.verify().ok


def test_a_fork_waits_for_a_change() -> None:
    lock = ModelLock()
    seen: list[str] = []

    def change() -> None:
        with lock.changing:
            seen.append("begun")
            time.sleep(0.2)
            seen.append("ended")

    thread = in_thread(change)
    while not seen:
        time.sleep(0.001)
    assert is_true_in_a_child(lambda: lock.changing.acquire(blocking=False) and seen == ["begun", "ended"])
    thread.join(20)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork")
def test_a_thread_that_reads_may_fork_while_a_change_waits_for_it() -> None:
    forest, X, _ = small_forest()
    writers: list[threading.Thread] = []

    def read_and_fork() -> bool:
        writers.append(in_thread(lambda: forest.delete("7")))
        while not forest.lock.long.is_closed:
            time.sleep(0.001)
        return is_true_in_a_child(lambda: len(forest.predict(X)) == 50)

    assert forest.unchanged(read_and_fork)
    writers[0].join(20)
    assert forest.n_samples_ == 49
