from __future__ import annotations

from oubli.app.ledger.ledger import Tombstones


def make(period: int, now: list[int], erased=()):
    return Tombstones(period, lambda name: [f"new-{name}", f"old-{name}"], lambda: now[0], erased)


def test_an_id_is_known_for_a_period():
    now = [1000]
    grace = make(50, now)
    grace.add(["new-a", "new-b"], 1000)
    assert grace.holds("a")
    assert not grace.holds("c")
    now[0] = 1049
    assert grace.holds("b")
    now[0] = 1050
    assert not grace.holds("b")
    assert not grace._times, "nothing is kept longer"


def test_an_id_that_is_erased_again_is_known_again():
    now = [0]
    grace = make(50, now)
    grace.add(["new-a"], 0)
    grace.add(["new-a"], 40)
    now[0] = 60
    assert grace.holds("a")
    now[0] = 90
    assert not grace.holds("a")


def test_what_was_erased_before_a_start_is_known_under_any_key():
    grace = make(50, [60], [("new-b", 5), ("old-a", 20), ("new-c", 55)])
    assert [grace.holds(name) for name in ("a", "b", "c")] == [True, False, True]


def test_without_a_period_nothing_is_kept():
    grace = make(0, [0])
    grace.add(["new-a"], 0)
    assert not grace.holds("a")
    assert not grace._times
