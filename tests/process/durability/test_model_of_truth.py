"""The model of truth itself: what it must notice, and what it must not complain about."""

from dataclasses import replace
from typing import Any, Literal

import pytest

from tests.process.durability.model_of_truth import Operation, Sent, Truth
from tests.process.durability.people import Content


def content(mark: int, subject: str | None = None) -> Content:
    return Content((1, None, mark), "yes", subject)


A, B, C, D = (content(mark, subject) for mark, subject in ((1, "s"), (2, "s"), (3, None), (4, None)))
MARKED = {"a": replace(A, is_restricted=True), "b": replace(B, is_restricted=True)}
HELD = {"a": A, "b": B}  # at version 5


def answered(operation: Operation, version: int | None, status: int, **answer: Any) -> Operation:
    """An operation with its answer; without a version it was in flight when the server died."""
    if version is not None:
        operation.status, operation.answer = status, {"model_version": version, **answer}
    return operation


def add(*samples: tuple[str | None, Content], version: int | None = None, status: int = 201, **more: Any) -> Operation:
    ids = more.pop("ids", [name for name, _ in samples])
    return answered(Operation("add", tuple(Sent(*one) for one in samples), **more), version, status, ids=ids)


def delete(*ids: str, version: int | None = None, unlearned: int = 1, receipt: str | None = None) -> Operation:
    more = {} if receipt is None else {"id": receipt}
    return answered(Operation("delete", ids=ids), version, 200, unlearned=unlearned, absent=0, **more)


def mark(kind: Literal["restrict", "release"], version: int | None = None, samples: int = 2) -> Operation:
    return answered(Operation(kind, subjects=("s", "nobody")), version, 200, samples=samples, absent=1)


OWN = content(9, "s")

CASES: list[tuple[list[Operation], dict[str, Content], int, dict[str, Any]]] = [
    # Acknowledged changes are made in the order of their versions.
    ([delete("c", version=8), add(("c", C), version=7), delete("a", version=6)], {"b": B}, 8, {}),
    ([add(("c", C), version=6)], HELD, 6, {"lost": ("c",)}),
    ([delete("a", version=6)], HELD, 6, {"resurrected": ("a",)}),
    ([], {"a": A, "b": C}, 5, {"altered": ("b",)}),
    # What was in flight is there or not, as a whole, with a version of its own, in any order.
    ([add(("c", C), ("d", D))], HELD, 5, {}),
    ([add(("c", C), ("d", D))], {**HELD, "c": C, "d": D}, 6, {}),
    ([add(("c", C), ("d", D))], {**HELD, "c": C}, 6, {"lost": ("d",)}),
    ([], HELD, 6, {"misreported": None}),
    ([delete("c"), add(("c", C)), add(("d", D), version=7)], {**HELD, "d": D}, 8, {}),
    # Versions that go back or come twice.
    ([add(("c", C), version=7), delete("a", version=7)], {"b": B, "c": C}, 7, {"misreported": None}),
    # Erased ids come back only when it is meant.
    ([delete("a", version=6), add(("a", A), version=7)], HELD, 7, {"misreported": None}),
    ([delete("a", version=6), add(("a", A), version=7, readd=True)], HELD, 7, {}),
    # Counts, and that nothing has changed.
    ([delete("a", "x", version=6)], {"b": B}, 6, {"misreported": None}),
    ([add(("c", C), version=5, status=200)], HELD, 5, {"misreported": None}),
    # A generated id in flight is known by its mark.
    ([add((None, C), (None, D))], {**HELD, "300": C, "301": D}, 6, {}),
    # A receipt that is given again is no second change, and cannot stand for one that was not made.
    ([*[delete("a", version=6, receipt="r1")] * 2, delete("x", version=4, receipt="r0")], {"b": B}, 6, {}),
    ([delete("a", version=6, receipt="r1"), delete("a", version=6, receipt="r2")], {"b": B}, 6, {"misreported": None}),
    # Restrictions.
    ([mark("restrict", 6)], MARKED, 6, {}),
    ([mark("restrict", 6)], {**MARKED, "b": B}, 6, {"altered": ("b",)}),
    ([mark("restrict")], MARKED, 6, {}),
    ([mark("restrict", 6), mark("release", 7, 1)], HELD, 7, {"misreported": None}),
    ([mark("restrict", 6), add(("c", OWN), version=7)], {**MARKED, "c": OWN}, 7, {"misreported": None}),
]


@pytest.mark.parametrize(("operations", "held", "version", "wrong"), CASES, ids=range(len(CASES)))
def test_what_fits_and_what_does_not(operations, held, version, wrong):
    truth = Truth(HELD, 5)
    found = truth.settle(operations, held, version)
    assert found.keys() >= wrong.keys()
    assert all(names is None or found[how] == names for how, names in wrong.items())
    if not wrong:
        assert not found
        assert truth.version == version


def test_generated_ids_are_never_issued_again():
    truth = Truth(HELD, 5)
    assert not truth.settle([add((None, C), version=6, ids=["300"]), delete("300", version=7)], HELD, 7)
    second = add((None, D), version=8, ids=["300"], readd=True)
    assert truth.settle([second], {**HELD, "300": D}, 8)["misreported"]
