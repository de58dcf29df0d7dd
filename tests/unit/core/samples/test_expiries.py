import numpy as np
import pytest

from oubli.core.data.values import NEVER
from oubli.core.samples.indexes import ExpiryIndex


def index():
    expiries = ExpiryIndex()
    expiries.set(4, 200)
    expiries.set_many(np.array([1, 7]), np.array([300, 100]))
    return expiries


def items(expiries):
    slots, moments = expiries.items()
    return dict(zip(slots.tolist(), moments.tolist(), strict=True))


def test_an_empty_one():
    expiries = ExpiryIndex()
    assert (len(expiries), expiries.get(3), expiries.soonest(), expiries.due(10**15, 5)) == (0, None, None, [])
    expiries.forget([0, 9])
    expiries.set_many(np.zeros(0, np.int64), np.zeros(0, np.int64))
    expiries.set(2, None)
    assert (len(expiries), expiries.nbytes) == (0, 0)
    expiries.check_invariants(np.zeros(3, bool))


def test_what_is_due_comes_soonest_first():
    expiries = index()
    assert (len(expiries), expiries.soonest(), items(expiries)) == (3, 100, {1: 300, 4: 200, 7: 100})
    assert expiries.due(99, 5) == []
    assert expiries.due(100, 5) == [7]
    assert expiries.due(1000, 5) == [7, 4, 1]
    assert expiries.due(1000, 2) == [7, 4]
    assert expiries.due(2**70, 5) == [7, 4, 1]


@pytest.mark.parametrize("gone", [1, 4, 7])
def test_one_that_leaves_is_forgotten(gone):
    expiries = index()
    kept = {slot: moment for slot, moment in items(expiries).items() if slot != gone}
    expiries.forget([gone, 0, 99])
    assert (expiries.get(gone), items(expiries), len(expiries)) == (None, kept, 2)
    assert expiries.soonest() == min(kept.values())
    expiries.check_invariants(np.ones(8, bool))


def test_a_moment_can_be_moved():
    expiries = index()
    for moment, soonest in ((50, 50), (500, 200), (None, 200), (150, 150)):
        expiries.set(7, moment)
        assert (expiries.get(7), expiries.soonest()) == (moment, soonest)
        expiries.check_invariants(np.ones(8, bool))


@pytest.mark.parametrize(
    "spoil",
    [
        lambda e: e.values.__setitem__(0, 5),
        lambda e: e.values.__setitem__(7, 90),
        lambda e: e.values.__setitem__(7, NEVER),
        lambda e: e.set(6, 1),
        lambda e: e.set(40, 1),
        lambda e: setattr(e, "_n", 2),
        lambda e: setattr(e, "_soonest", 90),
    ],
)
def test_a_broken_index_is_noticed(spoil):
    expiries, held = index(), np.ones(10, bool)
    held[6] = False
    expiries.check_invariants(held)
    spoil(expiries)
    with pytest.raises(AssertionError):
        expiries.check_invariants(held)
