"""After unlearning, resolving and wiping nothing of a sample is left in any array or container of a model."""

from __future__ import annotations

import numbers
import random
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest

from oubli.core import DynamicForestClassifier, DynamicForestRegressor
from oubli.core.data.schema import Column, ColumnType, LabelType, Schema, Task
from oubli.core.forest.engine import ForestEngine
from oubli.core.rng import hash_text
from oubli.core.samples.fixed_point import quantise
from tests.reach import array_bytes, reachable

COLUMNS = (
    Column("narrow", ColumnType.NUMERIC),
    Column("wide", ColumnType.NUMERIC, "float64"),
    Column("colour", ColumnType.CATEGORICAL),
    Column("rare", ColumnType.NUMERIC),
)
# The labels are numbers or texts of their own; regression targets stay on the scale of the others.
SCHEMAS = {
    "classification": Schema(COLUMNS, Task.CLASSIFICATION, LabelType.SCALAR),
    "regression": Schema(
        (COLUMNS[0], Column("wide", ColumnType.NUMERIC), *COLUMNS[2:]), Task.REGRESSION, LabelType.NUMBER
    ),
}


@pytest.fixture(autouse=True)
def _counters() -> Iterator[None]:
    """Let small nodes keep counters, and with them the ends of ranges."""
    with patch.object(ForestEngine, "_block_minimum", lambda self: self.smallest_block or 8):
        yield


@dataclass(frozen=True)
class Canary:
    """A sample all of whose values are its own, the largest of their columns or, at an odd number, the smallest."""

    number: int

    @property
    def id(self) -> str:
        return f"canary-{self.number}-id"

    @property
    def subject(self) -> str:
        return f"canary-{self.number}-subject"

    @property
    def expires_ms(self) -> int:
        return 4_102_444_812_345 + 7919 * self.number

    @property
    def row(self) -> list[Any]:
        sign = 1 if self.number % 2 == 0 else -1
        own = 1 + self.number / 61
        return [sign * 7654.321 * own, sign * 87654.3210987 * own, f"canary-{self.number}-colour", sign * 3.14e7 * own]

    def label(self, task: str) -> float | str:
        if task == "regression":
            return 61.61803398875 + self.number / 977
        return f"canary-{self.number}-class" if self.number % 3 else 271828.18284 + self.number

    def texts(self, model: Any) -> set[str]:
        """Every text that is its own."""
        label = self.label(model.task.value)
        return {self.id, self.subject, self.row[2]} | ({label} if isinstance(label, str) else set())

    def forms(self, model: Any) -> dict[str, list[bytes]]:
        """What to look for in memory, by what it is."""
        found = {f"hash of {text}": both_orders(np.uint64(hash_text(text))) for text in (self.id, self.row[2])}
        for name, value in (("narrow", self.row[0]), ("rare", self.row[3])):
            held = np.float32(value)
            found[name] = both_orders(held) + both_orders(np.float64(held))
        found["wide"] = both_orders(np.float64(self.row[1])) + both_orders(np.float32(self.row[1]))
        found["expiry"] = both_orders(np.int64(self.expires_ms))
        if model.task is Task.REGRESSION:
            label = np.array([self.label("regression")], np.float64)
            found["label"] = both_orders(label[0]) + both_orders(quantise(label, model.engine_.targets.exponent)[0])
        return found

    def traces(self, model: Any) -> set[str]:
        """All that is found of it while it is held."""
        return self.forms(model).keys() | self.texts(model)


def both_orders(number: np.generic) -> list[bytes]:
    return [number.tobytes(), number.tobytes()[::-1]]


class Search:
    """A look at all that a model can reach."""

    def __init__(self, model: Any) -> None:
        self._model = model
        self._memory = array_bytes(model)
        self._objects: set[Any] = {value for value in reachable(model) if isinstance(value, (str, numbers.Real))}
        self._texts = "\0".join(value for value in self._objects if isinstance(value, str))

    def remains(self, one: Canary) -> set[str]:
        """What is left of a canary: in arrays and bytes, in texts, as a number."""
        texts = one.texts(self._model)
        forms = one.forms(self._model).items()
        found = {what for what, looks in forms if any(look in self._memory for look in looks)}
        found |= {text for text in texts if text in self._texts or text.encode() in self._memory}
        cells = [np.float64(value) for value in (*one.row[:2], one.row[3])]
        own = {*cells, *map(np.float32, cells), one.expires_ms, one.label(self._model.task.value)} - texts
        return found | {f"object {value}" for value in own if value in self._objects}

    def is_whole(self, one: Canary) -> bool:
        """Whether all of a canary is found: it is held, and the search is not blind."""
        return one.traces(self._model) <= self.remains(one)

    def any_of(self, canaries: list[Canary]) -> set[str]:
        return set().union(*map(self.remains, canaries))


GONE = [Canary(i) for i in range(8)]
KEPT = Canary(40)
NEVER = Canary(50)


def ordinary(n: int, seed: int) -> list[list[Any]]:
    rng = random.Random(seed)
    colours = ["red", "green", "blue", None]
    return [
        [rng.choice([None, rng.gauss(0, 1)]), rng.random(), rng.choice(colours), float(rng.randrange(3))]
        for _ in range(n)
    ]


def ordinary_labels(task: str, n: int, seed: int) -> list[Any]:
    rng = random.Random(seed)
    return [rng.uniform(-100, 100) if task == "regression" else rng.choice(["yes", "no", 1]) for _ in range(n)]


def start(task: str, **parameters: Any) -> Any:
    """A model that holds ordinary samples."""
    kind = DynamicForestRegressor if task == "regression" else DynamicForestClassifier
    # All columns at every node: a canary is an end of a range wherever it is.
    defaults = {"n_estimators": 4, "occurrence": 0.7, "n_thresholds": 5, "max_features": 1.0, "random_state": 3}
    names = [f"sample {i}" for i in range(150)]
    model = kind(**{**defaults, **parameters})
    return model.fit(ordinary(150, 1), ordinary_labels(task, 150, 2), ids=names, schema=SCHEMAS[task])


def bring_in(model: Any, canaries: list[Canary]) -> None:
    """Add canaries, one by one and in a batch."""
    half = len(canaries) // 2
    for some in (*([one] for one in canaries[:half]), canaries[half:]):
        model.add([one.row for one in some], [one.label(model.task.value) for one in some], ids=[o.id for o in some])
    for one in canaries:
        model.samples_.set_subject(one.id, one.subject)
        model.samples_.set_expiry(one.id, one.expires_ms)


def ask(model: Any, *, frozen: bool = False) -> None:
    """Predict for the canaries: nothing that is asked for may stay."""
    for one in GONE:
        model.query([one.row], frozen=frozen)


def send_away(model: Any, canaries: list[Canary]) -> None:
    """Delete canaries in every way there is."""
    first, second, third, *rest = canaries
    model.delete(first.id)
    model.delete([second.id, "sample 17", "sample 3"])
    label = ordinary_labels(model.task.value, 1, 9)[0]
    model.replace(third.id, ordinary(1, 8)[0], label)
    model.delete(third.id)
    model.delete([one.id for one in rest])


@pytest.mark.parametrize("task", ["classification", "regression"])
@pytest.mark.parametrize("meanwhile", ["resolved", "tagged", "asked", "asked frozen", "copied", "eager"])
def test_nothing_can_be_reached_of_what_was_unlearned(task: str, meanwhile: str) -> None:
    model = start(task, lazy=meanwhile != "eager")
    bring_in(model, [*GONE, KEPT])
    if meanwhile == "resolved":
        model.resolve()
    elif meanwhile.startswith("asked"):
        ask(model, frozen=meanwhile == "asked frozen")
    elif meanwhile == "copied":
        model = model.copy()
    assert all(map(Search(model).is_whole, [*GONE, KEPT]))
    model.delete([f"sample {i}" for i in range(20, 60)])  # tags that are still there when the canaries go
    send_away(model, GONE)
    if meanwhile.startswith("asked"):
        ask(model, frozen=meanwhile == "asked frozen")
    digest = model.copy().digest()
    model.wipe()
    search = Search(model)
    assert search.any_of([*GONE, NEVER]) == set()
    assert search.is_whole(KEPT)
    assert model.n_lazy_tags_ == 0
    assert model.digest() == digest
    model.check_invariants()
    assert model.verify().ok


@pytest.mark.parametrize("task", ["classification", "regression"])
@pytest.mark.parametrize("share", ["most", "all"])
def test_nothing_can_be_reached_after_a_large_batch(task: str, share: str) -> None:
    """Large batches plant the trees again."""
    model = start(task)
    bring_in(model, GONE)
    model.resolve()
    names = model.samples_.ids()
    model.delete(names if share == "all" else [*names[30:150], *(one.id for one in GONE)])
    model.wipe()
    assert Search(model).any_of(GONE) == set()
    model.check_invariants()
    bring_in(model, [KEPT])
    assert model.verify().ok


def test_working_space_holds_values_until_it_is_wiped() -> None:
    """What the tests above would find if `wipe` did no more than resolve."""
    model = start("classification")
    bring_in(model, GONE)
    model.resolve()
    model.delete([one.id for one in GONE])
    model.resolve()
    assert Search(model).any_of(GONE)
    model.wipe()
    assert Search(model).any_of(GONE) == set()
