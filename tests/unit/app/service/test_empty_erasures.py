"""The counter of erasures that find nothing."""

from __future__ import annotations

from oubli.app.service.evidence.receipts import HOUR_MS, EmptyErasures


def test_each_caller_has_so_many_an_hour():
    now = 1000
    empty = EmptyErasures(3, lambda: now)
    assert [empty.admits("a") for _ in range(5)] == [True, True, True, False, False]
    assert empty.admits("b")
    now += HOUR_MS - 1
    assert not empty.admits("a")
    now += 1
    assert [empty.admits("a") for _ in range(4)] == [True, True, True, False]


def test_none_may_be_admitted():
    assert not EmptyErasures(0, lambda: 0).admits("a")


def test_callers_that_have_gone_are_forgotten():
    now = 0
    empty = EmptyErasures(3, lambda: now)
    for i in range(100):
        empty.admits(f"key{i}")
    now = HOUR_MS
    empty.admits("another")
    assert len(empty._counts) == 1
