"""Boosting in threads: failures leave the model sound; for the same bits see `contracts/test_threads.py`."""

from collections.abc import Iterator
from contextlib import nullcontext
from typing import Any

import numpy as np
import pytest

from oubli.core import IncrementalBoostingClassifier, OnlineBoostingClassifier
from oubli.core.boosting.online import blocks as online
from oubli.core.boosting.presorted import boost as presorted
from oubli.core.boosting.quantised import blocks as quantised
from oubli.core.boosting.rows import without_grain
from oubli.core.errors import UnusableModelError
from tests.threads import many_threads


@pytest.fixture(autouse=True)
def _cut_however_small() -> Iterator[None]:
    with without_grain():
        yield


def fitted(kind: str, n_classes: int, n_jobs: int | None = None) -> Any:
    """A model of numbers and missing values, fitted in threads, also in more than there are cores."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((300, 4))
    X[:, 1] = np.round(X[:, 1])
    y = np.digitize(X[:, 0] + X[:, 1] * X[:, 2] + rng.standard_normal(300), np.linspace(-1, 1, n_classes + 1)[1:-1])
    X[rng.random(300) < 0.2, 2] = np.nan
    estimator = OnlineBoostingClassifier if kind == "online" else IncrementalBoostingClassifier
    parameters = {"quantization": None} if kind == "presorted" else {}
    with many_threads():
        return estimator(6, random_state=1, n_jobs=n_jobs, **parameters).fit(X, y)


@pytest.mark.parametrize(("kind", "n_classes", "module", "name"), [
    ("quantised", 2, quantised, "grow_in_blocks"), ("quantised", 3, quantised, "grow_part"),
    ("online", 2, online, "grow_in_blocks"), ("online", 3, online, "grow_tree"),
    ("presorted", 3, presorted, "grow_group"),
])  # fmt: skip
def test_a_fit_that_fails_in_a_thread_changes_nothing(
    kind: str, n_classes: int, module: Any, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any) -> None:
        raise MemoryError

    model = fitted(kind, n_classes, 3)
    before = model.digest()
    monkeypatch.setattr(module, name, fail)
    with pytest.raises(MemoryError):
        model.refit()
    monkeypatch.undo()
    assert model.digest() == before
    model.check_invariants()
    model.refit()
    assert model.digest() == before


def test_an_update_that_fails_in_a_thread_is_made_anew_or_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    error: type[BaseException] = MemoryError

    def fail(*_: Any, **__: Any) -> None:
        raise error

    model, other = fitted("quantised", 2, 3), fitted("quantised", 2)
    gone = [str(i) for i in range(100, 200)]
    other.delete(gone)
    # Memory that is short for threads is enough for one.
    monkeypatch.setattr(quantised, "make_blocks", fail)
    model.delete(gone)
    assert model.digest() == other.digest()
    monkeypatch.undo()
    error = ZeroDivisionError
    monkeypatch.setattr(quantised, "grow_in_blocks", fail)
    with pytest.raises(ZeroDivisionError):
        model.delete([str(i) for i in range(1, 70)])
    with pytest.raises(UnusableModelError):
        model.digest()


@pytest.mark.parametrize("fails", [False, True])
def test_what_the_working_space_held_is_overwritten(fails: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    made = []

    def fail(*_: Any) -> None:
        assert made[0].slots.any()
        raise MemoryError

    def make_blocks(*arguments: Any, **others: Any) -> Any:
        made.append(real(*arguments, **others))
        return made[-1]

    real = quantised.make_blocks
    monkeypatch.setattr(quantised, "make_blocks", make_blocks)
    if fails:
        monkeypatch.setattr(quantised, "grow_in_blocks", fail)
    with pytest.raises(MemoryError) if fails else nullcontext():
        fitted("quantised", 2, 3)
    assert len(made) == 1
    assert not any(array.any() for array in made[0])
