"""Models, and everything that can be done to them, for `test_all_or_nothing.py`."""

import contextlib
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from oubli.core.data.schema import Task
from oubli.core.errors import UnavailableError
from oubli.core.samples.owners import Mark
from oubli.core.samples.records import Rows
from tests.histories import cases

N = 90
_BOOSTED: dict[str, Any] = {"n_estimators": 5, "min_child_weight": 0.25, "random_state": 0}
_SHALLOW = {**_BOOSTED, "max_depth": 3}
_FOREST: dict[str, Any] = {"n_estimators": 5, "random_state": 0}
_TREE: dict[str, Any] = {"max_depth": 6, "epsilon": 0.2}
CLASSES, NUMBERS = Task.CLASSIFICATION, Task.REGRESSION


@dataclass(frozen=True)
class Case(cases.Case):
    """A kind with parameters, under a name."""

    name: str = ""

    def label(self, kind: str) -> Any:
        """A label that is held often, held once, or new."""
        if self.task is Task.REGRESSION:
            return {"often": 1.0, "once": 1e4, "new": 1e9}[kind]
        return {"often": "b", "once": "rare", "new": "fresh"}[kind]

    def fitted(self) -> Any:
        """A model with a history: tags, free slots, a class and a category of one sample, subjects, restricted ones."""
        rows, labels = self.samples(N)
        rows[7], labels[7] = [0.5, "odd", 0.5, None], self.label("once")
        model = self.make().fit(rows, labels, ids=[f"id {i}" for i in range(N)], schema=self.schema())
        model.samples_.set_subject("id 3", "somebody")
        model.samples_.set_expiry("id 3", 10**12)
        model.samples_.set_origins(["id 4"], 5)
        more = self.samples(3, seed=1)
        model.add(*more, ids=["x", "y", "z"])
        model.delete(["id 80", "id 11", "y"])
        for name in ("id 61", "id 62", "id 70"):
            model.samples_.set_subject(name, "kept" if name == "id 70" else "keen")
        model.samples_.note_additions(["id 61", "id 70"], 9, "a request")
        model.samples_.note_nonces(["id 3", "id 61", "id 70"], bytes(range(1, 49)))
        for subject in ("keen", "kept", "somebody"):
            model.samples_.set_retention(subject, 1000, 8)
        model.restrict(["id 70"], {"kept": Mark(7, True)})
        return model


CASES = [
    Case("forest", CLASSES, _FOREST, "forest"), Case("forest", CLASSES, {**_FOREST, "lazy": False}, "forest eager"),
    Case("forest", NUMBERS, _FOREST, "forest numbers"),
    Case("forest", CLASSES, {**_FOREST, "lazy": False, "n_jobs": 2}, "forest threads"),
    Case("forest", NUMBERS, {**_FOREST, "n_jobs": 2}, "forest numbers threads"),
    Case("incremental-boosting", CLASSES, {**_SHALLOW, "n_jobs": 2}, "quantised threads"),
    Case("tree", CLASSES, _TREE, "tree"), Case("tree", CLASSES, {**_TREE, "lazy": True}, "tree lazy"),
    Case("tree", CLASSES, {**_TREE, "window": N}, "tree window"),
    Case("tree", CLASSES, {**_TREE, "epsilon": 0.0}, "tree again"),
    Case("online-boosting", CLASSES, {**_BOOSTED, "max_leaf_nodes": 6}, "online"),
    Case("online-boosting", NUMBERS, {**_BOOSTED, "max_leaf_nodes": 6}, "online numbers"),
    Case("incremental-boosting", CLASSES, _SHALLOW, "quantised"),
    Case("incremental-boosting", NUMBERS, _SHALLOW, "quantised numbers"),
    Case("incremental-boosting", NUMBERS, {**_SHALLOW, "early_stopping": 2}, "stopping"),
    Case("incremental-boosting", CLASSES, {**_SHALLOW, "category_statistics": 2}, "statistics"),
    Case("incremental-boosting", CLASSES, {**_SHALLOW, "quantization": None}, "presorted"),
    Case("incremental-boosting", NUMBERS, {**_SHALLOW, "quantization": None}, "presorted numbers"),
]  # fmt: skip
BY_NAME = {case.name: case for case in CASES}

_HELD = [f"id {i}" for i in range(60) if i not in (3, 7, 11)]


def _save(model: Any, case: Case) -> None:
    with tempfile.TemporaryDirectory() as folder:
        model.save(Path(folder) / "model")


def _add(
    n: int, *, label: str | None = None, category: str | None = None, weights: Sequence[float] | None = None
) -> Callable[[Any, Case], None]:
    def add(model: Any, case: Case) -> None:
        rows, labels = case.samples(n, seed=2)
        if label is not None:
            labels[-1] = case.label(label)
        if category is not None:
            rows[-1][1] = category
        model.add(rows, labels, ids=[f"new {i}" for i in range(n)], sample_weight=weights)

    return add


def _delete(*ids: str) -> Callable[[Any, Case], None]:
    def delete(model: Any, case: Case) -> None:
        # A sliding window has let go of some.
        model.delete([name for name in ids if model.samples_.contains(name)])

    return delete


def _in_slices(change: str) -> Callable[[Any, Case], None]:
    """Make a change one sample after the other, where that can be."""

    def make(model: Any, case: Case) -> None:
        model.resolve()
        rows, labels = case.samples(3, seed=2)
        ids = [f"new {i}" for i in range(3)]
        names = [name for name in ("id 20", "id 3", "id 61", "id 70") if model.samples_.holding(name)]
        plan = model.plan_add(Rows(rows, ids), labels) if change == "add" else model.plan_delete(names)
        if not model.can_be_sliced(plan):
            model.apply(plan)
            return
        model.engine_._slice_size = lambda problem: 1
        for before in model.change_in_slices(plan):
            before.query(rows)

    return make


def _fit(model: Any, case: Case) -> None:
    rows, labels = case.samples(40, seed=3)
    model.fit(rows, labels, ids=[f"other {i}" for i in range(40)], schema=case.schema())


def _ask_unseen(model: Any, case: Case) -> None:
    """Ask what trees say that have not learned samples, where a model has such; then it has to be asked again."""
    rows, _ = case.samples(2, seed=2)
    ask = model.predict_interval if case.task is Task.REGRESSION else model.predict_set
    with contextlib.suppress(UnavailableError):
        first = ask(rows, 0.5).tolist()
        assert ask(rows, 0.5).tolist() == first


OPERATIONS: dict[str, Callable[[Any, Case], Any]] = {
    "add one": lambda model, case: model.add([[0.1, "red", 0.2, True]], [case.label("often")]),
    "ask the unseen": _ask_unseen, "add a few": _add(4),
    "add one of a new class": _add(1, label="new", category="strange"),
    "add some of a new class": _add(5, label="new", category="strange"), "add many": _add(70, category="strange"),
    "add one of another weight": _add(1, weights=[0.5]), "add some of other weights": _add(4, weights=[2, 0.5, 1, 3]),
    "weigh": lambda model, case: model.replace(
        "id 3", [0.3, "strange", 0.1, True], case.label("often"), sample_weight=0.5,
    ),
    "delete one": _delete("id 20"), "delete the rare one": _delete("id 7"),
    "delete a few": _delete("id 20", "id 3", "id 7", "x"), "delete many": _delete(*_HELD),
    "add a few in slices": _in_slices("add"), "delete a few in slices": _in_slices("delete"),
    "replace": lambda model, case: model.replace("id 3", [0.3, "strange", 0.1, True], case.label("often")),
    "replace the rare one": lambda model, case: model.replace("id 7", [0.3, "red", 0.1, False], case.label("often")),
    "partial_fit": lambda model, case: model.partial_fit(
        [[0.1, "red", 0.2, True], [0.2, "odd", 0.3, None]], [case.label("often")] * 2,
    ),
    "fit": _fit, "start": lambda model, case: model.start(case.schema()),
    "fit_held": lambda model, case: model.fit_held(model.samples_.copy()),
    "resolve": lambda model, case: model.resolve(), "resolve some": lambda model, case: model.resolve(max_tags=2),
    "resolve until": lambda model, case: model.resolve_until(np.zeros(1, np.int64)),
    "resolve until stopped": lambda model, case: model.resolve_until(np.ones(1, np.int64)),
    "predict one": lambda model, case: model.predict(case.samples(1, seed=4)[0]),
    "predict some": lambda model, case: model.query(case.samples(20, seed=4)[0]),
    "query frozen": lambda model, case: model.query(case.samples(3, seed=4)[0], frozen=True),
    "digest": lambda model, case: model.digest(), "verify": lambda model, case: model.verify(),
    "copy": lambda model, case: model.copy(), "save": _save, "to_parts": lambda model, case: model.to_parts(),
    "scrub": lambda model, case: model.scrub(), "wipe": lambda model, case: model.wipe(),
    "subject": lambda model, case: model.samples_.set_subject("id 3", "another"),
    "no subject": lambda model, case: model.samples_.set_subject("id 3", None),
    "retention": lambda model, case: model.samples_.set_retention("keen", 50, 9),
    "no retention": lambda model, case: model.samples_.set_retention("keen", None, 9),
    "expiry": lambda model, case: model.samples_.set_expiry("id 5", 5),
    "no expiry": lambda model, case: model.samples_.set_expiry("id 3", None),
    "restrict": lambda model, case: model.restrict(["id 61", "id 62"], {"keen": Mark(8, False)}),
    "release": lambda model, case: model.release(["id 70"]),
    "rectify": lambda model, case: model.apply(
        model.plan_replace("id 70", [[0.3, "strange", 0.1, True]], case.label("new")),
    ),
    "erase": lambda model, case: model.apply(model.plan_delete(["id 70"])),
    "addition": lambda model, case: model.samples_.note_additions(["id 5", "id 61"], 8, "another"),
    "origins": lambda model, case: model.samples_.set_origins(["id 5", "id 6"], 1),
    "nonces": lambda model, case: model.samples_.note_nonces(["id 5", "id 61"], bytes(range(9, 41))),
}  # fmt: skip
