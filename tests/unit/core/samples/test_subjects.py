import pytest

from oubli.core.samples.indexes import SubjectIndex
from tests.reach import texts


def index():
    subjects = SubjectIndex()
    subjects.link(3, "ann")
    subjects.link(1, "ann")
    subjects.link(2, "bob")
    return subjects


def links(subjects):
    texts, slots = subjects.links()
    return list(zip(texts, slots.tolist(), strict=True))


def test_both_sides():
    subjects = index()
    assert subjects.get(1) == "ann"
    assert subjects.get(9) is None
    assert subjects.slots("ann") == [3, 1]
    assert subjects.slots("eve") == []
    assert links(subjects) == [("ann", 3), ("ann", 1), ("bob", 2)]
    assert (len(subjects), 3 in subjects, 9 in subjects) == (3, True, False)


def test_a_subject_leaves_with_its_last_sample():
    subjects = index()
    subjects.unlink(3)
    assert subjects.slots("ann") == [1]
    subjects.unlink(1)
    assert subjects.slots("ann") == []
    assert "ann" not in texts(subjects)
    subjects.unlink(1)  # nothing to forget
    assert links(subjects) == [("bob", 2)]


@pytest.mark.parametrize(
    "spoil",
    [
        lambda s: s._index.by_slot.update({4: "eve"}),
        lambda s: s._index.slots.update({"eve": {}}),
        lambda s: s._index.slots["ann"].pop(1),
        lambda s: s._index.by_slot.update({1: "bob"}),
        lambda s: s.link(9, "eve"),
    ],
)
def test_broken_links_are_noticed(spoil):
    subjects = index()
    subjects.check_invariants({1, 2, 3})
    spoil(subjects)
    with pytest.raises(AssertionError):
        subjects.check_invariants({1, 2, 3})
