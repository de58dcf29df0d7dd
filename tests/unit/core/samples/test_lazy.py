"""What is made when it is first read, read by several threads at once: each gets all of it."""

import ast
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

import oubli.core.samples.indexes
import oubli.core.samples.slots
from oubli.core.concurrency.slices import MadeOf, cut
from oubli.core.data.schema import Column, ColumnType, LabelType, Schema, Task
from oubli.core.samples.store import SampleStore
from tests.imports import modules, nodes

N_SAMPLES = 600
IDS = [str(i) for i in range(N_SAMPLES)]
N_THREADS = 4


@pytest.fixture(autouse=True)
def _switch_often() -> Iterator[None]:
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(interval)


@pytest.fixture
def store() -> SampleStore:
    columns = (Column("x", ColumnType.NUMERIC), Column("c", ColumnType.CATEGORICAL))
    store = SampleStore(Schema(columns, Task.CLASSIFICATION, LabelType.STRING))
    rows = [[float(i), str(i % 7)] for i in range(N_SAMPLES)]
    store.commit(store.prepare(rows, [f"class {i % 3}" for i in range(N_SAMPLES)], None))
    for i in range(0, N_SAMPLES, 2):
        store.set_subject(str(i), f"subject {i % 50}")
        store.set_expiry(str(i), 10**12 + i)
    return store


def in_step(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make every thread that builds wait in the middle of it until others have come as far, or a moment is over."""
    meeting = threading.Barrier(N_THREADS)

    def slowly(n: int) -> Iterator[slice]:
        for part in cut(n):
            middle = (part.start + part.stop) // 2
            yield slice(part.start, middle)
            try:
                meeting.wait(0.05)
            except threading.BrokenBarrierError:
                meeting.reset()
            yield slice(middle, part.stop)

    monkeypatch.setattr(oubli.core.samples.slots, "cut", slowly)
    monkeypatch.setattr(oubli.core.samples.indexes, "cut", slowly)


# Everything that is read through an index.
LOOK_UPS: dict[str, Callable[[SampleStore], Any]] = {
    "find": lambda s: s.find(IDS).tolist(),
    "samples of a subject": lambda s: sorted(s.ids_of_subject("subject 2")),
    "contains": lambda s: [s.contains(name) for name in IDS],
    "ids": lambda s: s.ids(),
    "slots in order": lambda s: s.slots_in_order().tolist(),
    "next ids": lambda s: s.next_ids(3),
    "subjects": lambda s: [s.subject(name) for name in IDS],
    "state": lambda s: {name: array.tolist() for name, array in s.state().items()},
    "copy": lambda s: s.copy().ids(),
    "classes": lambda s: s.classes.classes_array().tolist(),
    "nbytes": lambda s: s.nbytes > 0,
    "due": lambda s: s.due(10**12 + 9, 100),
}


@pytest.mark.parametrize("name", LOOK_UPS)
def test_threads_see_all_of_a_fresh_copy(monkeypatch: pytest.MonkeyPatch, store: SampleStore, name: str) -> None:
    expected = LOOK_UPS[name](store)
    in_step(monkeypatch)
    for _ in range(3):
        fresh = store.copy()
        start = threading.Barrier(N_THREADS)

        def work(beside: str | None, fresh: SampleStore = fresh, start: threading.Barrier = start) -> Any:
            start.wait()
            if beside is not None:
                LOOK_UPS[beside](fresh)
            return LOOK_UPS[name](fresh)

        with ThreadPoolExecutor(N_THREADS) as pool:
            found = list(pool.map(work, [None, None, "find", "samples of a subject"]))
        assert found == [expected] * N_THREADS
        fresh.check_invariants()
        assert fresh.ids() == store.ids()


class _Made:
    value = MadeOf("source", lambda made, source: made.make(source), lambda: ())

    def __init__(self, make: Callable[[Any], Any]) -> None:
        self.source: Any = (1, 2)
        self.make = make


def test_all_threads_get_the_one_that_was_published_first() -> None:
    meeting = threading.Barrier(N_THREADS)

    def make(source: Any) -> list[int]:
        meeting.wait()
        return list(source)

    made = _Made(make)
    with ThreadPoolExecutor(N_THREADS) as pool:
        values = list(pool.map(lambda _: made.value, range(N_THREADS)))
    assert values[0] == [1, 2]
    assert all(value is values[0] for value in values)
    assert made.source == ()


def test_it_is_made_again_after_a_failure_and_then_only_read() -> None:
    failures, calls = [MemoryError()], list[Any]()

    def make(source: Any) -> list[int]:
        if failures:
            raise failures.pop()
        calls.append(source)
        return list(source)

    made = _Made(make)
    with pytest.raises(MemoryError):
        _ = made.value
    assert made.value == [1, 2]
    assert made.value is made.value
    assert calls == [(1, 2)]
    assert isinstance(_Made.value, MadeOf)


def test_no_cached_property_is_made_of_what_changes() -> None:
    """`functools.cached_property` has no lock from 3.12 on: only what is the same for each thread may be one."""
    allowed = {"Schema.names", "Schema.cell_dtype", "Schema.categorical_mask", "Schema.weight_of_class",
               "View.trace", "View.refitted_values",
               "Retraining.slots"}  # fmt: skip
    found = {
        f"{owner.name}.{node.name}"
        for package in ("core", "app")
        for path in modules(package).values()
        for owner in nodes(path)
        if isinstance(owner, ast.ClassDef)
        for node in owner.body
        if isinstance(node, ast.FunctionDef) and any("cached_property" in ast.unparse(d) for d in node.decorator_list)
    }
    assert found == allowed
