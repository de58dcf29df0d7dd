"""Trees that are grown without the others are those of the whole fit, bit for bit."""

from collections.abc import Iterator
from contextlib import nullcontext
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest

from oubli.core import DynamicForestClassifier, DynamicForestRegressor
from oubli.core.data.schema import Column, ColumnType, LabelType, Schema, Task
from oubli.core.engine import model_digest
from oubli.core.errors import InputError
from oubli.core.estimators import KINDS
from oubli.core.forest.engine import ForestEngine
from oubli.core.model import SomeTrees, grow_some, separate_trees_of
from tests.threads import NUMBERS, many_threads

T = 11
LABELS = {
    "two classes": lambda i, x: "yes" if x > 0 else "no",
    "many classes": lambda i, x: f"class {i % 25}",
    "one class": lambda i, x: "yes",
    "numbers": lambda i, x: x * 1000 - 3,
}
Samples = tuple[list[Any], list[Any], list[str]]


@pytest.fixture(autouse=True)
def _counters() -> Iterator[None]:
    """Let small nodes of the whole fit keep counters; those of trees grown alone keep none."""
    with patch.object(ForestEngine, "_block_minimum", lambda self: self.smallest_block or 8):
        yield


def drawn_samples(n: int, labels: str, seed: int = 0) -> Samples:
    """Numbers, zeros and ones, and categories, some of them missing."""
    rng = np.random.default_rng(seed)
    rows: list[Any] = []
    for x, y, bit, code in zip(
        rng.normal(size=n), rng.exponential(size=n), rng.integers(0, 2, n), rng.integers(0, 9, n), strict=True
    ):
        row = [float(x), float(y) ** 9, float(bit), f"c{code}"]
        rows.append([None if rng.random() < 0.05 else cell for cell in row])
    return rows, [LABELS[labels](i, row[0] or 0.0) for i, row in enumerate(rows)], [f"id {i}" for i in range(n)]


def estimator(labels: str, **parameters: Any) -> Any:
    kind = DynamicForestRegressor if labels == "numbers" else DynamicForestClassifier
    return kind(**{"n_estimators": T, "random_state": 3, **parameters})


def schema_of(labels: str) -> Schema:
    columns = (*(Column(name, ColumnType.NUMERIC) for name in "xyb"), Column("c", ColumnType.CATEGORICAL))
    if labels == "numbers":
        return Schema(columns, Task.REGRESSION, LabelType.NUMBER)
    return Schema(columns, Task.CLASSIFICATION, LabelType.STRING)


def whole(labels: str, samples: Samples, **parameters: Any) -> Any:
    X, y, ids = samples
    return estimator(labels, **parameters).fit(X, y, ids=ids, schema=schema_of(labels))


def some(labels: str, samples: Samples, trees: list[int], **parameters: Any) -> SomeTrees:
    X, y, ids = samples
    return grow_some(estimator(labels, **parameters).start(schema_of(labels)), trees, X, y, ids=ids)


def require_same(found: SomeTrees, model: Any, trees: list[int]) -> None:
    expected = model.tree_digests()
    assert (found.digests, list(found.digests)) == ({tree: expected[tree] for tree in trees}, trees)
    assert model_digest(found.header, expected) == model.digest()


@pytest.mark.parametrize("labels", LABELS)
@pytest.mark.parametrize("n", [0, 1, 2, 30, 700])
def test_they_are_those_of_the_whole_fit(labels: str, n: int) -> None:
    """Of no samples trees are empty."""
    samples = drawn_samples(n, labels)
    model = whole(labels, samples) if n else estimator(labels).start(schema_of(labels))
    for trees in ([*range(T)], [T - 1], [7, 0, 4]):
        require_same(some(labels, samples, trees), model, trees)


PARAMETERS: list[dict[str, Any]] = [
    *({"occurrence": 1.0}, {"occurrence": 0.01}, {"n_estimators": 1}, {"max_depth": 3}, {"max_depth": 1}),
    *({"min_samples_split": 40}, {"max_features": 1.0, "n_thresholds": 1}, {"random_state": 2**32 - 1}),
    *({"lazy": False}, *({"n_jobs": n_jobs} for n_jobs in NUMBERS)),
]


@pytest.mark.parametrize("parameters", PARAMETERS, ids=str)
@pytest.mark.parametrize("labels", ["two classes", "numbers", "many classes"])
def test_whatever_the_parameters_and_the_number_of_threads_are(labels: str, parameters: dict[str, Any]) -> None:
    samples = drawn_samples(300, labels, 1)
    model = whole(labels, samples, **{**parameters, "n_jobs": None})
    trees = [*range(0, parameters.get("n_estimators", T), 3)]
    with many_threads():
        require_same(some(labels, samples, trees[::-1], **parameters), model, trees[::-1])


def test_progress_is_told_of_each_tree() -> None:
    told: list[tuple[int, int]] = []
    X, y, ids = drawn_samples(50, "two classes")
    model = estimator("two classes").start(schema_of("two classes"))
    grow_some(model, [1, 2, 3], X, y, ids=ids, progress=lambda done, total: told.append((done, total)))
    assert sorted({*told}) == [(1, 3), (2, 3), (3, 3)]
    assert told[-1] == (3, 3)


@pytest.mark.parametrize("trees", [[T], [-1], [1, 1]])
def test_trees_that_there_are_not_are_refused(trees: list[int]) -> None:
    with pytest.raises(InputError, match=f"different numbers from 0 to {T - 1}"):
        some("two classes", drawn_samples(20, "two classes"), trees)


@pytest.mark.parametrize(("kind", "task"), [one for one in KINDS if one[0] != "forest"])
def test_kinds_whose_trees_depend_on_each_other_refuse(kind: str, task: Task) -> None:
    labels = "numbers" if task is Task.REGRESSION else "two classes"
    model = KINDS[kind, task]().start(schema_of(labels))
    assert separate_trees_of(model) == 0
    X, y, ids = drawn_samples(20, labels)
    with pytest.raises(InputError, match="depend on each other"):
        grow_some(model, [0], X, y, ids=ids)
    with pytest.raises(InputError, match="depend on each other"):
        model.engine_.fit_some(model.problem(), np.zeros(0, np.int64), [0], model.class_order())
    assert model.n_samples_ == 0


def is_written(array: Any) -> bool:
    return bool(array.tobytes().strip(b"\0"))


@pytest.mark.parametrize("labels", ["two classes", "numbers"])
@pytest.mark.parametrize("fails", [False, True])
def test_arrays_that_held_samples_are_overwritten(labels: str, fails: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    model = estimator(labels).start(schema_of(labels))
    X, y, ids = drawn_samples(120, labels)
    seen: list[Any] = []
    beside, digest = ForestEngine.beside, ForestEngine.digest_of

    def kept(forest: Any) -> Any:
        seen.append(beside(forest))
        return seen[-1]

    def held(*arguments: Any) -> str:
        seen[-1].kept = [*seen[-1].trees, *(one for one in seen[-1].scratch if isinstance(one, np.ndarray))]
        assert any(map(is_written, seen[-1].kept))
        if fails and len(seen) == 2:
            raise MemoryError
        return digest(*arguments)

    monkeypatch.setattr(ForestEngine, "beside", kept)
    monkeypatch.setattr(ForestEngine, "digest_of", held)
    shared = [model.samples_, model.engine_]
    with pytest.raises(MemoryError) if fails else nullcontext():
        grow_some(model, [1, 2, 3], X, y, ids=ids)
    assert len(seen) == (2 if fails else 3)
    assert not any(is_written(one) for engine in seen for one in engine.kept)
    store, engine = shared
    arrays = [*store._arrays(), *engine.bits, *([] if engine.targets is None else [engine.targets.numbers])]
    assert not any(map(is_written, arrays))
