"""After unlearning nothing of a sample is left in any array or container of a model, nor in its file."""

import numbers
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from oubli.core.data.schema import Task
from oubli.core.rng import hash_text
from oubli.core.samples.fixed_point import quantise
from tests.exact.core.contracts.test_contract import CASES
from tests.histories.cases import Case
from tests.histories.kinds import tuned_forest
from tests.reach import array_bytes, reachable

WAYS = ["tagged", "asked", "asked frozen", "copied", "large batch"]
CHECKED = [(case, way) for case in CASES for way in (WAYS if case.kind == "forest" else WAYS[:1])]


@pytest.fixture(autouse=True)
def _counters() -> Iterator[None]:
    """Let small nodes of forests keep counters, and with them the ends of ranges."""
    with tuned_forest(counters_from=8):
        yield


def _forms(value: float) -> list[np.generic]:
    """A number as columns of both types hold it."""
    return [np.float64(value), np.float32(value), np.float64(np.float32(value))]


@dataclass(frozen=True)
class Canary:
    """A sample all of whose values are its own, the largest of their columns or, at an odd number, the smallest."""

    number: int
    task: Task

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
        own = (1 if self.number % 2 == 0 else -1) * (1 + self.number / 61)
        return [7654.321 * own, f"canary-{self.number}-colour", 8765432.10987 * own, True]

    @property
    def label(self) -> float | str:
        is_numbers = self.task is Task.REGRESSION
        return 61.61803398875 + self.number / 977 if is_numbers else f"canary-{self.number}-class"

    @property
    def texts(self) -> set[str]:
        return {value for value in (self.id, self.subject, self.row[1], self.label) if isinstance(value, str)}

    def numbers(self, model: Any) -> dict[str, list[np.generic]]:
        """What to look for in memory, by what it is."""
        found: dict[str, list[np.generic]] = {
            "hash of its id": [np.uint64(hash_text(self.id))],
            "hash of its category": [np.uint64(hash_text(self.row[1]))],
            **{f"cell {j}": _forms(self.row[j]) for j in (0, 2)},
            "expiry": [np.int64(self.expires_ms)],
        }
        if self.task is Task.REGRESSION:
            found["label"] = [np.float64(self.label)]
            if model.kind == "forest":
                label = np.array([self.label], np.float64)
                found["label"].append(quantise(label, model.engine_.targets.exponent)[0])
        return found


class Search:
    """A look at all that a model can reach, and at a file."""

    def __init__(self, model: Any, written: bytes = b"") -> None:
        self._model = model
        self._memory = array_bytes(model) + written
        self._objects: set[Any] = {value for value in reachable(model) if isinstance(value, (str, numbers.Real))}
        self._texts = "\0".join(value for value in self._objects if isinstance(value, str))

    def remains(self, one: Canary) -> set[str]:
        """What is left of a canary: in arrays, bytes and files, in texts, as a number of Python."""
        found = {text for text in one.texts if text in self._texts or text.encode() in self._memory}
        for what, values in one.numbers(self._model).items():
            forms = [form for value in values for form in (value.tobytes(), value.tobytes()[::-1])]
            if any(form in self._memory for form in forms) or any(value in self._objects for value in values):
                found.add(what)
        return found

    def misses(self, one: Canary) -> set[str]:
        """What is not found of a canary that is held: nothing, or the search is blind."""
        return (one.numbers(self._model).keys() | one.texts) - self.remains(one)

    def any_of(self, canaries: list[Canary]) -> set[str]:
        return set().union(*map(self.remains, canaries))


def send_away(model: Any, case: Case, canaries: list[Canary], way: str) -> None:
    """Delete canaries in every way there is."""
    first, second, third, *rest = canaries
    if way == "large batch":
        model.delete([*model.samples_.ids()[5:50], *(one.id for one in canaries)])
        return
    model.delete(first.id)
    model.delete([second.id, "id 17", "id 3"])
    rows, labels = case.samples(1, seed=8)
    model.replace(third.id, rows[0], labels[0])
    model.delete(third.id)
    model.delete([one.id for one in rest])


@pytest.mark.parametrize(("case", "way"), CHECKED, ids=str)
def test_nothing_is_left_of_what_was_unlearned(case: Case, way: str, tmp_path: Path) -> None:
    model = case.fitted()
    gone, kept = [Canary(i, case.task) for i in range(6)], Canary(40, case.task)

    def ask() -> None:
        for one in gone if way.startswith("asked") else ():
            model.query([one.row], frozen=way == "asked frozen")

    for some in (*([one] for one in gone[:3]), [*gone[3:], kept]):
        model.add([one.row for one in some], [one.label for one in some], ids=[one.id for one in some])
    for one in (*gone, kept):
        model.samples_.set_subject(one.id, one.subject)
        model.samples_.set_expiry(one.id, one.expires_ms)
    ask()
    if way == "copied":
        model = model.copy()
    search = Search(model)
    assert set().union(*map(search.misses, [*gone, kept])) == set()
    model.delete([f"id {i}" for i in range(50, 65)])  # tags that are still there when the canaries go
    send_away(model, case, gone, way)
    ask()
    if model.guarantee != "exact":
        model.scrub()
    digest = model.copy().digest()
    model.save(tmp_path / "model")
    model.wipe()
    search = Search(model, (tmp_path / "model").read_bytes())
    assert search.any_of([*gone, Canary(50, case.task)]) == set()
    assert search.misses(kept) == set()
    assert (model.n_lazy_tags_, model.digest()) == (0, digest)
    model.check_invariants()
    assert model.verify().ok
