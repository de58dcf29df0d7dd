"""A warm-up in another thread, as a server runs it while a model learns, changes nothing of that model."""

import threading
from contextlib import ExitStack

import numpy as np
import pytest

from oubli.core import IncrementalBoostingClassifier
from oubli.core.boosting.quantised.split import parting_few
from oubli.core.boosting.rows import is_without_grain, without_grain
from oubli.core.concurrency.threads import is_long, sharing_all
from oubli.core.data.values import Task
from oubli.core.estimators import KINDS
from oubli.core.warmup import call_kernels

N_HISTORIES = 6


def digest_of_history(kind: str, task: Task) -> str:
    estimator = KINDS[kind, task]
    rng = np.random.default_rng(0)
    X = rng.integers(0, 9, (90, 3)).astype(np.float32)
    y = (X[:, 0] + rng.integers(0, 5, 90)) // 4
    model = estimator(**{**estimator.small_parameters[0], "random_state": 0})
    model.fit(X[:60], y[:60] if task is Task.REGRESSION else y[:60].astype(int))
    model.delete(["3", "7"])
    model.add(X[60:], y[60:] if task is Task.REGRESSION else y[60:].astype(int))
    model.delete([str(i) for i in range(10, 20)])
    return model.digest()


@pytest.mark.parametrize(("kind", "task"), KINDS)
def test_a_warm_up_beside_changes_no_model(kind: str, task: Task) -> None:
    expected, is_over = digest_of_history(kind, task), threading.Event()

    def warm() -> None:
        while not is_over.is_set():
            call_kernels(task, np.dtype(np.float32), kind=kind)

    thread = threading.Thread(target=warm)
    thread.start()
    try:
        found = {digest_of_history(kind, task) for _ in range(N_HISTORIES)}
    finally:
        is_over.set()
        thread.join()
    assert found == {expected}


def test_what_a_warm_up_does_otherwise_is_for_its_thread() -> None:
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(60, 3)), np.arange(60) % 3

    def facts() -> tuple[str, bool, bool]:
        model = IncrementalBoostingClassifier(n_estimators=3, random_state=0).fit(X, y)
        return model.digest(), is_without_grain(), is_long(1e-9)

    before, after = facts(), []
    with ExitStack() as stack:
        for one in (parting_few(), without_grain(), sharing_all()):
            stack.enter_context(one)
        thread = threading.Thread(target=lambda: after.append(facts()))
        thread.start()
        thread.join()
        assert facts() != before
    assert [before] == after
    assert facts() == before
