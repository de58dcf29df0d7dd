"""What is kept beside samples, by slot: subjects, expiries and nonces. Their use is in `tests/exact/core/samples`."""

import numpy as np
import pytest

from oubli.core.data.values import NEVER
from oubli.core.samples.indexes import NONCE_BYTES, ExpiryIndex, NonceIndex, SubjectIndex


def subjects():
    index = SubjectIndex()
    for slot, subject in ((3, "ann"), (1, "ann"), (2, "bob")):
        index.link(slot, subject)
    return index


def expiries():
    index = ExpiryIndex()
    index.set(4, 200)
    index.set_many(np.array([1, 7]), np.array([300, 100]))
    return index


def test_slots_of_a_subject_are_in_the_order_of_the_links():
    index = subjects()
    texts, slots = index.links()
    assert list(zip(texts, slots.tolist(), strict=True)) == [("ann", 3), ("ann", 1), ("bob", 2)]
    assert (index.slots("ann"), index.slots("eve"), index.get(9)) == ([3, 1], [], None)
    assert (len(index), 3 in index, 9 in index) == (3, True, False)
    for _ in range(2):  # the second time there is nothing to forget
        index.unlink(2)
        assert index.slots("bob") == []


@pytest.mark.parametrize(
    "spoil",
    [
        lambda s: s._index.by_slot.update({4: "eve"}), lambda s: s._index.slots.update({"eve": {}}),
        lambda s: s._index.slots["ann"].pop(1), lambda s: s._index.by_slot.update({1: "bob"}),
        lambda s: s.link(9, "eve"),
    ],
)  # fmt: skip
def test_broken_links_are_noticed(spoil):
    index = subjects()
    index.check_invariants({1, 2, 3})
    spoil(index)
    with pytest.raises(AssertionError):
        index.check_invariants({1, 2, 3})


def test_an_empty_index_of_expiries_takes_no_memory():
    index = ExpiryIndex()
    index.forget([0, 9])
    index.set_many(np.zeros(0, np.int64), np.zeros(0, np.int64))
    index.set(2, None)
    assert (len(index), index.get(3), index.soonest(), index.due(10**15, 5), index.nbytes) == (0, None, None, [], 0)
    index.check_invariants(np.zeros(3, bool))


def test_an_expiry_can_be_moved_and_forgotten():
    index, held = expiries(), np.ones(8, bool)
    assert (index.due(2**70, 5), index.due(1000, 2), index.due(99, 5)) == ([7, 4, 1], [7, 4], [])
    for moment, soonest in ((50, 50), (500, 200), (None, 200), (150, 150)):
        index.set(7, moment)
        assert (index.get(7), index.soonest()) == (moment, soonest)
        index.check_invariants(held)
    index.forget([7, 0, 99])
    assert (index.get(7), len(index), index.soonest()) == (None, 2, 200)
    index.check_invariants(held)


@pytest.mark.parametrize(
    "spoil",
    [
        lambda e: e.values.__setitem__(0, 5), lambda e: e.values.__setitem__(7, 90),
        lambda e: e.values.__setitem__(7, NEVER), lambda e: e.set(6, 1), lambda e: e.set(40, 1),
        lambda e: setattr(e, "_n", 2), lambda e: setattr(e, "_soonest", 90),
    ],
)  # fmt: skip
def test_a_broken_index_of_expiries_is_noticed(spoil):
    index, held = expiries(), np.ones(10, bool)
    held[6] = False
    index.check_invariants(held)
    spoil(index)
    with pytest.raises(AssertionError):
        index.check_invariants(held)


def test_room_is_made_for_nonces_and_what_was_there_is_overwritten():
    index = NonceIndex()
    index.note([1], b"1" * NONCE_BYTES)
    old = index.values
    index.note(np.array([9]), b"9" * NONCE_BYTES)
    assert not old.any()
    assert (index.get(1), index.get(500)) == (b"1" * NONCE_BYTES, None)
    assert index.slots().tolist() == [1, 9]
    with pytest.raises(AssertionError, match="a free slot has a nonce"):
        index.check_invariants(np.zeros(20, np.bool_))
