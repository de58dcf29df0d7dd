"""A model that is let go of: its arrays are overwritten, and nothing that is still used is."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from oubli.core.data.schema import Task
from oubli.core.errors import NotFittedError
from oubli.core.estimators import KINDS
from oubli.core.influence import influence, view

SMALL: dict[str, Any] = {"n_estimators": 3, "random_state": 0}


def fitted(kind: str, task: Task, **parameters: Any) -> tuple[Any, list[list[Any]], list[Any]]:
    rows = [[float(i), "abc"[i % 3]] for i in range(90)]
    y = [i % 2 for i in range(90)] if task is Task.CLASSIFICATION else [i / 8 for i in range(90)]
    model: Any = KINDS[kind, task](**({} if kind == "tree" else SMALL), **parameters)
    model.fit(rows, y)
    return model, rows, y


CASES = [(kind, task, {}) for kind, task in KINDS]
CASES += [("incremental-boosting", Task.REGRESSION, {"quantization": None})]
CASES += [("incremental-boosting", Task.CLASSIFICATION, {"category_statistics": 2})]


@pytest.mark.parametrize(("kind", "task", "parameters"), CASES)
def test_it_is_empty_and_copies_answers_and_views_are_whole(kind: str, task: Task, parameters: dict[str, Any]) -> None:
    model, rows, y = fitted(kind, task, **parameters)
    model.delete(["3", "4"])
    answer = model.query(rows[:9])
    expected = [np.array(part, copy=True) for part in answer if part is not None]
    copy, digest = model.copy(), model.copy().digest()
    copied = copy.copy()
    store, cells = model.samples_, model.samples_.cells
    is_followed = kind.endswith("boosting") and "category_statistics" not in parameters
    seen = view(model) if is_followed else None
    scores = None if seen is None else influence(model, rows[:2], y[:2], method="leaf-influence").scores
    model.shred()
    for array in (cells, store.y, store.class_codes, store.id_hashes, store.origins):
        assert not array.any()
    with pytest.raises(NotFittedError):
        model.query(rows[:1])
    for part, before in zip([part for part in answer if part is not None], expected, strict=True):
        assert np.array_equal(part, before)
    copied.shred()
    assert copy.digest() == digest
    assert copy.verify().ok
    copy.add(rows[:2], y[:2])
    copy.delete(["5", "6"])
    copy.check_invariants()
    if seen is not None:
        routed = view(fitted(kind, task, **parameters)[0]).route(rows[:2])
        assert routed.shape[1] == 2
        assert np.isfinite(scores).all()
        assert seen.values.any()
    model.shred()  # again: nothing is left to do
    type(model)().shred()  # nor where nothing was fitted
