import pytest

from core.subjects import SubjectIndex
from tests.reach import texts


def index():
    subjects = SubjectIndex()
    subjects.link(3, "b", "ann")
    subjects.link(1, "a", "ann")
    subjects.link(2, "c", "bob")
    return subjects


def test_both_sides():
    subjects = index()
    assert subjects.get(1) == "ann"
    assert subjects.get(9) is None
    assert subjects.ids("ann") == ["b", "a"]
    assert subjects.ids("eve") == []
    assert subjects.links() == [("ann", "b"), ("ann", "a"), ("bob", "c")]
    assert (len(subjects), 3 in subjects, 9 in subjects) == (3, True, False)


def test_a_subject_leaves_with_its_last_sample():
    subjects = index()
    subjects.unlink(3, "b")
    assert subjects.ids("ann") == ["a"]
    subjects.unlink(1, "a")
    assert subjects.ids("ann") == []
    assert "ann" not in texts(subjects)
    subjects.unlink(1, "a")  # nothing to forget
    assert subjects.links() == [("bob", "c")]


def test_a_copy_is_independent():
    subjects = index()
    other = subjects.copy()
    subjects.unlink(3, "b")
    assert other.ids("ann") == ["b", "a"]
    other.check_invariants({3: "b", 1: "a", 2: "c"})


@pytest.mark.parametrize(
    "spoil",
    [
        lambda s: s._by_slot.update({4: "eve"}),
        lambda s: s._ids.update({"eve": {}}),
        lambda s: s._ids["ann"].pop("a"),
        lambda s: s._by_slot.update({1: "bob"}),
    ],
)
def test_broken_links_are_noticed(spoil):
    subjects = index()
    subjects.check_invariants({3: "b", 1: "a", 2: "c"})
    spoil(subjects)
    with pytest.raises(AssertionError):
        subjects.check_invariants({3: "b", 1: "a", 2: "c"})
