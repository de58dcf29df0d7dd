"""What every kind of model does, whatever its trees are."""

import copy
import pickle
import random
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from oubli.core import errors, load, persistence
from oubli.core.data.schema import LabelType, Schema, Task
from oubli.core.estimators import KINDS
from oubli.core.influence import influence, view
from tests.histories.cases import Case, small
from tests.tiers import ordinary

N = 70
CLASSES = Task.CLASSIFICATION
MORE: dict[str, list[dict[str, Any]]] = {
    "forest": [{"lazy": False}, {"lazy": True}],
    "tree": [{"lazy": False}, {"lazy": True}],
    "online-boosting": [{}, {"robustness": 0.0}],
    "incremental-boosting": [{}, {"quantization": None}, {"early_stopping": 2}, {"category_statistics": 2}],
}
CASES = [small(kind, task, **more) for kind, task in KINDS for more in MORE[kind]]
TWO_CLASSES = [replace(small(kind), n_classes=2) for kind in ("online-boosting", "incremental-boosting")]
FEASIBLE = small("tree", alpha=0.1, beta=0.3, epsilon=None, pruning_size=3, lazy=False)


# Kernels are compiled for each type of cells and labels: of these, numbers in float64 are left to the long tests.
WIDE = [pytest.param(replace(case, is_wide=True), marks=pytest.mark.long) for case in CASES if case.task is not CLASSES]


@pytest.fixture(params=[*CASES, *TWO_CLASSES, FEASIBLE, *WIDE], ids=str)
def case(request: pytest.FixtureRequest) -> Case:
    found: Case = request.param
    return found


def answers(model: Any, case: Case) -> list[Any]:
    """All predictions for rows that are not held, comparable."""
    result = model.query(case.samples(25, seed=9)[0])
    return [None if part is None else part.tolist() for part in result]


def facts(model: Any) -> list[Any]:
    """Everything that a refused call must leave alone."""
    store = model.samples_
    held = [store.get(name) for name in store.ids()]
    return [held, store.next_id, store.slots_in_order().tolist(), model.digest(), model.class_order().tolist()]


def same(model: Any, other: Any, case: Case) -> None:
    assert (model.digest(), answers(model, case)) == (other.digest(), answers(other, case))
    assert model.samples_.ids() == other.samples_.ids()


def history(model: Any, case: Case, seed: int = 3) -> None:
    """Adds, deletes and replacements, with queries in between."""
    rng = random.Random(seed)
    X, y = case.samples(60, seed)
    model.add(X[:20], y[:20])
    for i in range(20, 40):
        model.add([X[i]], [y[i]], ids=[f"one {i} of {seed}"])
        if i % 5 == 0:
            model.query([X[i]])
    for name in rng.sample(model.samples_.ids(), 30):
        model.delete(name)
    model.delete(rng.sample(model.samples_.ids(), 12))
    for i, name in enumerate(rng.sample(model.samples_.ids(), 8)):
        model.replace(name, X[40 + i], y[40 + i])
    model.add([X[55]], [y[55]])


# Learning and unlearning


def test_after_any_history_a_scrub_gives_the_fresh_fit(case: Case) -> None:
    model = case.fitted()
    history(model, case)
    model.scrub()
    fresh = case.make().fit_held(model.samples_.copy())
    same(fresh, model, case)
    model.delete([])
    same(fresh, model, case)
    assert model.feature_importances_.shape == (4,)
    assert model.feature_importances_.sum() == pytest.approx(1.0)
    assert (model.feature_importances_ >= 0).all()


def test_a_model_that_starts_empty_learns_all_the_same(case: Case) -> None:
    X, y = case.samples()
    model = case.make().start(case.schema())
    assert model.add(X, y, ids=[f"id {i}" for i in range(N)]) == [f"id {i}" for i in range(N)]
    model.delete(model.samples_.ids())
    with pytest.raises(errors.EmptyModelError):
        model.query(X)
    assert model.add(X[:1], y[:1]) == ["0"]
    answered = model.query(X).labels.tolist()
    assert answered == (pytest.approx([y[0]] * N) if case.task is Task.REGRESSION else [y[0]] * N)


def test_partial_fit_fits_and_adds(case: Case) -> None:
    X, y = np.random.default_rng(0).normal(size=(60, 3)), case.samples(60)[1]
    model = case.make().partial_fit(X[:40], y[:40])
    assert model.partial_fit(X[40:], y[40:]) is model
    assert model.n_samples_ == 60
    model.scrub()
    assert model.digest() == case.make().fit(X, y).digest()
    with pytest.raises(errors.InputError, match="must be one of `classes`"):
        model.partial_fit(X[:1], y[:1], classes=["never"] if case.task is Task.CLASSIFICATION else [1e9])


def test_what_is_refused_changes_nothing(case: Case) -> None:
    model = case.fitted()
    history(model, case)
    model.resolve()
    before = facts(model)
    X, y = case.samples(3, seed=5)
    known = model.samples_.ids()[0]
    bad = [X[0], [float("inf"), *X[1][1:]], X[2]]
    other_task = Task.REGRESSION if case.task is CLASSES else CLASSES
    attempts: list[tuple[type[Exception], Callable[[], object]]] = [
        (errors.InputError, lambda: model.add(bad, y)),
        (errors.InputError, lambda: model.add([bad[1]], y[:1])),
        (errors.InputError, lambda: model.add([[*X[0], 1.0]], y[:1])),
        (errors.InputError, lambda: model.add(X, [y[0], None, y[2]])),
        (errors.InputError, lambda: model.add(X[:1], [None])),
        (errors.InputError, lambda: model.add(X, y[:2])),
        (errors.DuplicateIdError, lambda: model.add(X, y, ids=["x", "y", "x"])),
        (errors.DuplicateIdError, lambda: model.add(X, y, ids=["x", "y", known])),
        (errors.UnknownIdError, lambda: model.delete([known, "never"])),
        (errors.DuplicateIdError, lambda: model.delete([known, known])),
        (errors.UnknownIdError, lambda: model.replace("never", X[0], y[0])),
        (errors.InputError, lambda: model.replace(known, bad[1], y[0])),
        (errors.InputError, lambda: model.query(bad)),
        (errors.InputError, lambda: model.fit(bad, y)),
        (errors.InputError, lambda: model.start(Schema(case.schema().columns, other_task, LabelType.NUMBER))),
    ]
    for error, attempt in attempts:
        with pytest.raises(error):
            attempt()
        assert facts(model) == before
    model.check_invariants()


def test_progress_is_told_of_every_tree_in_the_callers_thread(case: Case) -> None:
    model, (X, y) = case.fitted(), case.samples()
    told: list[tuple[int, int, int]] = []
    digest = model.digest()
    model.fit(
        X, y, ids=[f"id {i}" for i in range(N)], schema=case.schema(),
        progress=lambda done, total: told.append((done, total, threading.get_ident())),
    )  # fmt: skip
    done = [number for number, *_ in told]
    assert {thread for *_, thread in told} <= {threading.get_ident()}
    assert done == sorted(set(done))
    assert model.digest() == digest
    if case.kind != "tree":
        groups = 1 if case.kind == "forest" or case.task is not CLASSES or case.n_classes == 2 else case.n_classes
        assert {total for _, total, _ in told} == {groups * case.parameters["n_estimators"]}
        assert done[-1] == told[-1][1] or "early_stopping" in case.parameters


# Reading


def test_a_row_is_answered_as_in_a_batch_and_frozen_as_otherwise(case: Case) -> None:
    model = case.fitted()
    history(model, case)
    n_tags = model.n_lazy_tags_
    assert (n_tags > 0) == case.parameters.get("lazy", False)
    X, _ = case.samples(25, seed=9)
    frozen = [model.query(X, frozen=True), *(model.query([row], frozen=True) for row in X)]
    assert model.n_lazy_tags_ == n_tags  # nothing was written
    whole = model.query(X)
    assert [label for result in frozen for label in result.labels.tolist()] == 2 * whole.labels.tolist()
    if whole.probabilities is not None:
        assert [row for result in frozen for row in result.probabilities.tolist()] == 2 * whole.probabilities.tolist()
    assert model.predict(X).tolist() == whole.labels.tolist()
    assert [model.predict([row])[0] for row in X] == whole.labels.tolist()
    assert model.predict([X[0]]).dtype == whole.labels.dtype
    model.predict([X[0]])[0] = whole.labels[0]  # is the caller's to change


def test_resolving_step_by_step_resolves_everything(case: Case) -> None:
    model = case.fitted()
    history(model, case)
    other = model.copy()
    for _ in range(10_000):
        if not model.n_lazy_tags_:
            break
        assert model.resolve(max_tags=1) == 1
    assert model.resolve() == 0
    same(model, other, case)


# Keeping


@pytest.mark.parametrize("way", ordinary(["save", "pickle", "copy", "deepcopy"], "save"))
def test_what_is_kept_goes_on_as_the_original_would(case: Case, way: str, tmp_path: Path) -> None:
    model = case.fitted()
    history(model, case)
    model.samples_.set_subject("id 1" if "id 1" in model.samples_ else model.samples_.ids()[0], "ada")
    ways: dict[str, Callable[[], Any]] = {
        "save": lambda: (model.save(tmp_path / "model", {"note": "text"}), load(tmp_path / "model"))[1],
        "pickle": lambda: pickle.loads(pickle.dumps(model)),  # noqa: S301 - ours
        "copy": model.copy,
        "deepcopy": lambda: copy.deepcopy(model),
    }
    kept = ways[way]()
    assert type(kept) is type(model)
    assert kept.get_params() == {**model.get_params(), "random_state": kept.random_state}
    assert kept.guarantee == model.guarantee
    same(kept, model, case)
    for one in (model, kept):
        history(one, case, seed=8)
    same(kept, model, case)
    assert [kept.samples_.get(i) for i in kept.samples_.ids()] == [model.samples_.get(i) for i in model.samples_.ids()]
    kept.check_invariants()


def test_a_file_says_what_it_holds(case: Case, tmp_path: Path) -> None:
    model = case.fitted()
    assert {**model.get_params(), **case.parameters} == model.get_params()
    assert model.nbytes_ > model.samples_.nbytes > 0
    model.save(tmp_path / "model", {"note": "text"})
    document = persistence.read_metadata(tmp_path / "model")
    told = {"kind": case.kind, "task": case.task.value, "guarantee": model.guarantee, "digest": model.digest()}
    assert document == {**document, **told, "n_samples": N, "extra": {"note": "text"}}
    assert type(model).load(tmp_path / "model").digest() == model.digest()
    others = [estimator for estimator in KINDS.values() if estimator is not type(model)]
    with pytest.raises(errors.FileError, match=f"holds a {type(model).__name__}"):
        others[0].load(tmp_path / "model")


def test_a_file_without_its_trees_is_grown_anew(case: Case) -> None:
    model = case.fitted()
    model.scrub()
    document, arrays = model.to_parts()
    if case.kind == "forest":
        arrays = {**arrays, "forest.links": arrays["forest.places"]}
    grown = type(model).read_parts(document, arrays, regrow="asked for")[0]
    grown.check_invariants()
    same(grown, model, case)


def test_a_model_that_is_let_go_of_is_overwritten_and_copies_answers_and_views_are_whole(case: Case) -> None:
    model, (X, y) = case.fitted(), case.samples()
    model.delete(["id 3", "id 4"])
    answer = [part for part in model.query(X[:9]) if part is not None]
    expected = [part.copy() for part in answer]
    kept, digest = model.copy(), model.copy().digest()
    copied, store = kept.copy(), model.samples_
    arrays = (store.cells, store.y, store.class_codes, store.id_hashes, store.origins)
    is_followed = model.is_boosted and "category_statistics" not in case.parameters
    seen = view(model) if is_followed else None
    if is_followed:
        assert influence(model, X[:2], y[:2], method="leaf-influence").scores.any()
    model.shred()
    assert not any(array.any() for array in arrays)
    with pytest.raises(errors.NotFittedError):
        model.query(X[:1])
    assert all(np.array_equal(part, before) for part, before in zip(answer, expected, strict=True))
    assert seen is None or seen.values.any()
    copied.shred()
    assert kept.digest() == digest
    assert kept.verify().ok
    kept.add(X[:2], y[:2])
    kept.delete(["id 5", "id 6"])
    kept.check_invariants()
    model.shred()  # again: nothing is left to do
    type(model)().shred()  # nor where nothing was fitted
