from __future__ import annotations

from hashlib import sha256

from oubli.app.ledger.ledger import Tombstones


def code(text: str) -> str:
    return sha256(text.encode()).hexdigest()


def make(period: int, now: list[int], erased=()):
    known = [(code(text), at) for text, at in erased]
    return Tombstones(period, lambda name: [code(f"new-{name}"), code(f"old-{name}")], lambda: now[0], known)


def test_an_id_is_known_for_a_period():
    now = [1000]
    grace = make(50, now)
    grace.add([code("new-a"), code("new-b")], 1000)
    assert grace.holds("a")
    assert not grace.holds("c")
    now[0] = 1049
    assert grace.holds("b")
    now[0] = 1050
    assert not grace.holds("b")
    assert not grace._times, "nothing is kept longer"


def test_what_is_erased_again_keeps_nothing_else():
    now = [0]
    grace = make(50, now)
    grace.add([code("new-a"), code("new-b")], 0)
    grace.add([code("new-a")], 49)
    grace.add([code("new-a"), code("new-a")], 51)
    for at, known in ((49, "ab"), (50, "a"), (100, "a"), (101, "")):
        now[0] = at
        assert [name for name in "ab" if grace.holds(name)] == [*known]
    assert not [*grace._times, *grace._order, *grace._n_stale], "nothing is kept longer"


def test_what_was_erased_before_a_start_is_known_under_any_key():
    grace = make(50, [60], [("new-b", 5), ("old-a", 20), ("new-c", 55)])
    assert [grace.holds(name) for name in ("a", "b", "c")] == [True, False, True]


def test_without_a_period_nothing_is_kept():
    grace = make(0, [0])
    grace.add([code("new-a")], 0)
    assert not grace.holds("a")
    assert not grace._times
