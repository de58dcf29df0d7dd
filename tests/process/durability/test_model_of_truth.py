"""The model of truth itself: what it must notice, and what it must not complain about."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

import pytest

from tests.process.durability.model_of_truth import Operation, Sent, Truth
from tests.process.durability.people import Content


def content(mark: int, subject: str | None = None) -> Content:
    return Content((1, None, mark), "yes", subject)


A, B, C, D = (content(mark, subject) for mark, subject in ((1, "s"), (2, "s"), (3, None), (4, None)))


def add(*samples: tuple[str | None, Content], version: int | None = None, ids: list[str] | None = None) -> Operation:
    operation = Operation("add", samples=tuple(Sent(*one) for one in samples))
    if version is not None:
        operation.status = 201
        operation.answer = {"ids": ids or [name for name, _ in samples], "model_version": version}
    return operation


def delete(*ids: str, version: int | None = None, unlearned: int = 1, absent: int = 0) -> Operation:
    operation = Operation("delete", ids=ids)
    if version is not None:
        operation.status = 200
        operation.answer = {"unlearned": unlearned, "absent": absent, "model_version": version}
    return operation


@pytest.fixture
def truth() -> Truth:
    return Truth({"a": A, "b": B}, 5)


def test_acknowledged_changes_are_made_in_the_order_of_their_versions(truth):
    operations = [delete("c", version=8), add(("c", C), version=7), delete("a", version=6)]
    assert not truth.settle(operations, {"b": B}, 8)
    assert truth.version == 8


def test_a_lost_addition_is_noticed(truth):
    found = truth.settle([add(("c", C), version=6)], {"a": A, "b": B}, 6)
    assert found.lost == ("c",)


def test_a_deletion_that_came_back_is_noticed(truth):
    found = truth.settle([delete("a", version=6)], {"a": A, "b": B}, 6)
    assert found.resurrected == ("a",)


def test_content_that_is_not_what_was_sent_is_noticed(truth):
    assert truth.settle([], {"a": A, "b": C}, 5).altered == ("b",)


def test_what_was_in_flight_may_be_there_or_not(truth):
    operations = [add(("c", C), ("d", D))]
    assert not truth.copy().settle(operations, {"a": A, "b": B}, 5)
    assert not truth.copy().settle(operations, {"a": A, "b": B, "c": C, "d": D}, 6)


def test_half_of_what_was_in_flight_is_noticed(truth):
    assert truth.settle([add(("c", C), ("d", D))], {"a": A, "b": B, "c": C}, 6).lost == ("d",)


def test_half_of_a_household_is_noticed(truth):
    erasure = Operation("delete", subjects=("s",))
    assert not truth.copy().settle([erasure], {}, 6)
    assert truth.settle([erasure], {"b": B}, 6).resurrected == ("b",)


def test_a_change_that_nobody_asked_for_is_noticed(truth):
    assert truth.settle([], {"a": A, "b": B}, 6).misreported


def test_a_change_in_flight_needs_a_version(truth):
    found = truth.settle([add(("c", C))], {"a": A, "b": B, "c": C}, 5)
    assert found.resurrected == ("c",)


def test_versions_that_go_back_or_come_twice_are_noticed(truth):
    late = [add(("c", C), version=7), delete("a", version=7)]
    assert truth.copy().settle(late, {"b": B, "c": C}, 7).misreported
    assert truth.copy().settle([add(("c", C), version=6)], {"a": A, "b": B, "c": C}, 5).misreported


def test_several_in_flight_are_tried_in_every_order(truth):
    operations = [delete("c"), add(("c", C)), add(("d", D), version=7)]
    assert not truth.settle(operations, {"a": A, "b": B, "d": D}, 8)


def test_erased_ids_come_back_only_when_it_is_meant(truth):
    back = add(("a", A), version=7)
    assert truth.copy().settle([delete("a", version=6), back], {"a": A, "b": B}, 7).misreported
    back.readd = True
    assert not truth.settle([delete("a", version=6), back], {"a": A, "b": B}, 7)


def test_counts_in_receipts_are_compared(truth):
    found = truth.settle([delete("a", "x", version=6, unlearned=1, absent=0)], {"b": B}, 6)
    assert found.misreported


def test_generated_ids_are_never_issued_again(truth):
    first = add((None, C), version=6, ids=["300"])
    assert not truth.settle([first, delete("300", version=7)], {"a": A, "b": B}, 7)
    second = add((None, D), version=8, ids=["300"])
    second.readd = True
    assert truth.settle([second], {"a": A, "b": B, "300": D}, 8).misreported


def test_a_generated_id_in_flight_is_known_by_its_mark(truth):
    operations = [add((None, C), (None, D))]
    assert not truth.copy().settle(operations, {"a": A, "b": B, "300": C, "301": D}, 6)
    assert truth.copy().settle(operations, {"a": A, "b": B, "300": C}, 6)


def test_an_answer_that_nothing_changed_is_compared(truth):
    again = add(("a", A), version=5)
    again.status = 200
    assert not truth.copy().settle([again], {"a": A, "b": B}, 5)
    other = add(("c", C), version=5)
    other.status = 200
    assert truth.settle([other], {"a": A, "b": B}, 5).misreported


def test_a_receipt_that_is_given_again_is_no_second_change(truth):
    first, again = (delete("a", version=6) for _ in range(2))
    for one in (first, again):
        one.answer["id"] = "r1"
    late = delete("x", version=4)
    late.answer["id"] = "r0"
    assert not truth.copy().settle([again, first, late], {"b": B}, 6)
    # It cannot stand for a change that was not made.
    again.answer["id"] = "r2"
    assert truth.copy().settle([first, again], {"b": B}, 6).misreported
    assert truth.settle([delete("a", version=5)], {"b": B}, 6).misreported


def restriction(kind: Literal["restrict", "release"], version: int | None = None, samples: int = 2) -> Operation:
    operation = Operation(kind, subjects=("s", "nobody"))
    if version is not None:
        operation.status = 200
        operation.answer = {"samples": samples, "absent": 1, "model_version": version}
    return operation


def marked(one: Content) -> Content:
    return replace(one, is_restricted=True)


def test_a_restriction_that_was_lost_is_noticed(truth):
    operations = [restriction("restrict", 6)]
    assert not truth.copy().settle(operations, {"a": marked(A), "b": marked(B)}, 6)
    assert truth.copy().settle(operations, {"a": A, "b": B}, 6).altered == ("a", "b")
    assert truth.settle(operations, {"a": marked(A), "b": B}, 6).altered == ("b",)


def test_a_restriction_in_flight_may_be_there_or_not(truth):
    operations = [restriction("restrict")]
    assert not truth.copy().settle(operations, {"a": A, "b": B}, 5)
    assert not truth.settle(operations, {"a": marked(A), "b": marked(B)}, 6)


def test_a_release_brings_all_back(truth):
    operations = [restriction("restrict", 6), restriction("release", 7)]
    assert not truth.copy().settle(operations, {"a": A, "b": B}, 7)
    assert truth.settle([operations[0], restriction("release", 7, 1)], {"a": A, "b": B}, 7).misreported


def test_an_addition_to_a_restricted_subject_is_noticed(truth):
    more = content(9, "s")
    operations = [restriction("restrict", 6), add(("c", more), version=7)]
    assert truth.settle(operations, {"a": marked(A), "b": marked(B), "c": more}, 7).misreported
