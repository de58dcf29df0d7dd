import math

import numpy as np
import pytest

from oubli.core.data.schema import Column, Schema
from oubli.core.data.values import NEVER
from oubli.core.errors import CapacityError, DuplicateIdError, InputError, UnknownIdError
from oubli.core.samples import slots
from oubli.core.samples.indexes import NONCE_BYTES, NonceIndex
from oubli.core.samples.records import Prepared
from oubli.core.samples.store import SampleStore
from tests.reach import array_bytes, texts
from tests.unit.core.samples.test_admission import facts


def mixed_schema(label_type="string", **options):
    columns = (
        Column("age", "numeric"), Column("member", "boolean"), Column("job", "categorical"),
        Column("town", "categorical"),
    )  # fmt: skip
    return Schema(columns, "classification", label_type, named=True, **options)


def numeric_schema(d=2, task="classification", dtype="float32"):
    columns = tuple(Column(f"x{j}", "numeric", dtype) for j in range(d))
    return Schema(columns, task, "number" if task == "regression" else "integer")


def add(store, X, y, ids=None):
    return store.commit(store.prepare(X, y, ids))


ROWS = [[39, True, "clerk", "Paris"], [40.5, False, None, "Lyon"], [None, None, "clerk", None]]
LABELS = ["no", "yes", "no"]


def filled():
    store = SampleStore(mixed_schema(), "Model")
    add(store, ROWS, LABELS, ["a", "b", "c"])
    return store


def linked():
    """A store with a free slot, and with what is kept beside samples."""
    store = filled()
    store.set_subject("c", "ann")
    store.set_subject("a", "ann")
    store.set_expiry("c", 1700)
    store.set_origins(["a"], 4)
    store.remove(store.find(["b"]))
    store.classes.order()
    return store


def unchanged(store, call, error):
    before = facts(store)
    with pytest.raises(error) as info:
        call()
    assert facts(store) == before
    store.check_invariants()
    return info.value


# Adding -------------------------------------------------------------------------------------------


def test_capacity_doubles():
    store = SampleStore(numeric_schema())
    capacities = []
    for i in range(200):
        add(store, [[i, i]], [0])
        capacities.append(store.capacity)
    assert sorted(set(capacities)) == [16, 32, 64, 128, 256]
    store.check_invariants()
    add(store, np.zeros((1000, 2)), np.zeros(1000, int))
    assert store.capacity == 1200


def test_too_many_samples_are_refused_before_anything_changes(monkeypatch):
    monkeypatch.setattr(slots, "MAX_SLOTS", 20)
    store = SampleStore(numeric_schema())
    add(store, np.zeros((18, 2)), np.zeros(18, int))
    unchanged(store, lambda: add(store, np.zeros((3, 2)), np.zeros(3, int)), CapacityError)
    add(store, np.zeros((2, 2)), np.zeros(2, int))
    assert store.capacity == 20


def test_an_id_added_since_prepare_is_refused_before_anything_changes():
    store = filled()
    prepared = store.prepare([[1, True, "new", "new"]] * 2, ["x", "y"], ["d", "e"])
    add(store, ROWS[:1], ["no"], ["e"])
    error = unchanged(store, lambda: store.commit(prepared), DuplicateIdError)
    assert error.row == 1


def test_batches_can_be_taken_apart_and_put_together():
    store = filled()
    whole = store.prepare(ROWS, LABELS, ["d", "e", "f"])
    part = whole.take([2, 0])
    assert (part.n, part.ids, part.labels) == (2, ["f", "d"], ["no", "no"])
    assert store.commit(whole.take([])).tolist() == []
    merged = Prepared.merged([whole.take([0, 1]), whole.take([2])])
    assert (merged.n, merged.ids, merged.labels, merged.texts) == (3, whole.ids, whole.labels, whole.texts)
    assert merged.cells.tobytes() == whole.cells.tobytes()
    store.commit(merged)
    assert [store.get(name).features for name in "def"] == [store.get(name).features for name in "abc"]
    store.check_invariants()
    regression = SampleStore(numeric_schema(task="regression"))
    assert regression.prepare(np.zeros((3, 2)), [1, 2, 3]).take([1]).labels.tolist() == [2.0]
    merged = Prepared.merged([regression.prepare([[i, i]], [i / 2]) for i in range(3)])
    assert (merged.ids, merged.labels.tolist()) == (None, [0.0, 0.5, 1.0])
    assert regression.commit(merged).tolist() == [0, 1, 2]
    assert merged.ids == ["0", "1", "2"]


def test_batches_that_do_not_fit_together():
    store = filled()
    named, unnamed = store.prepare(ROWS, LABELS, ["d", "e", "f"]), store.prepare(ROWS, LABELS)
    with pytest.raises(DuplicateIdError) as info:
        Prepared.merged([named, store.prepare(ROWS[:2], LABELS[:2], ["g", "e"])])
    assert info.value.row == 4
    for parts in ([named, unnamed], [unnamed, named]):
        with pytest.raises(ValueError, match="in all parts or in none"):
            Prepared.merged(parts)


@pytest.mark.parametrize(("arguments", "text"), [
    (([], []), "X has no rows"), ((np.zeros((0, 4)), []), "X has no rows"),
    ((ROWS, LABELS[:2]), "X has 3 rows, y has 2"), ((ROWS, LABELS, ["x", "y"]), "X has 3 rows, but 2 ids"),
    ((ROWS, LABELS, {"x", "y", "z"}), "not a set"), ((ROWS, LABELS, "xyz"), "must be a list"),
    ((ROWS, LABELS, ["x", "y", ""]), "1 to 256 characters"), ((ROWS, LABELS, ["x", "y", "\ud800"]), "surrogate"),
    ((ROWS, LABELS, ["x", "y", 1.0]), "or an integer"), ((ROWS, LABELS, ["7", 7, "8"]), "row 1, 'id': is repeated"),
    ((ROWS, LABELS, [7, 8, np.int64(7)]), "row 2, 'id': is repeated"),
    ((ROWS, ["no", "yes", None]), "must not be missing"), ((ROWS, ["no", "new", True]), "must be text"),
    (([*ROWS[:2], [1, 2, "new", "new"]], LABELS), "true, false or null"),
    (([*ROWS[:2], [-math.inf, True, "new", "new"]], LABELS), "infinity"),
    (([*ROWS[:2], [1, True, "new", math.inf]], LABELS), "finite"),
])  # fmt: skip
def test_a_refused_batch_changes_nothing(arguments, text):
    store = filled()
    assert text in str(unchanged(store, lambda: store.prepare(*arguments), InputError))
    assert "new" not in texts(store)


# Ids ----------------------------------------------------------------------------------------------


def test_generated_ids_skip_held_ones():
    store = SampleStore(numeric_schema())
    add(store, np.zeros((1, 2)), [0], [2**53 - 1])
    assert store.next_id == 2**53
    add(store, np.zeros((2, 2)), [0, 0], [str(2**53), str(2**53 + 2)])
    assert store.next_id == 2**53
    prepared = store.prepare(np.zeros((2, 2)), [0, 0])
    store.commit(prepared)
    assert prepared.ids == [str(2**53 + 1), str(2**53 + 3)]
    assert store.next_id == 2**53 + 4


def test_the_ids_of_the_next_commit_can_be_asked_for():
    store = filled()
    ids = store.next_ids(3)
    assert ids == ["0", "1", "2"]
    assert store.next_id == 0
    other = store.copy()
    add(store, ROWS, LABELS, ids)
    add(other, ROWS, LABELS)
    assert store.ids() == other.ids()
    assert store.next_id == other.next_id == 3


def test_ids_that_are_not_held_or_none():
    store = filled()
    error = unchanged(store, lambda: store.find(["a", "x", "b", "y", "x"]), UnknownIdError)
    assert error.ids == ["x", "y"]
    for call in (
        store.get, store.subject, lambda name: store.set_subject(name, "ann"), store.expiry, store.origin,
        lambda name: store.set_expiry(name, 1), lambda name: store.set_origins(["b", name], 5),
    ):  # fmt: skip
        assert unchanged(store, lambda call=call: call("x"), UnknownIdError).ids == ["x"]
    assert store.origin("b") == 0
    assert unchanged(store, lambda: store.find(["a", "b", "a"]), DuplicateIdError).row == 2
    assert (store.find([]).tolist(), store.find({"a"}).shape) == ([], (1,))
    for call in (lambda: store.find("a"), lambda: store.find([True]), lambda: store.contains(None)):
        unchanged(store, call, InputError)
    with pytest.raises(IndexError):
        store.id_of(3)


# Removing -----------------------------------------------------------------------------------------


def test_removed_targets_leave_nothing_behind():
    store = SampleStore(numeric_schema(task="regression", dtype="float64"))
    add(store, [[1, 2], [3141.5, 3141.5], [3141.5, 0]], [1.0, 2718.25, 2718.25], ["a", "b", "c"])
    store.remove(store.find(["b"]))
    store.remove(store.find(["c"]))
    memory = array_bytes(store)
    for value in (3141.5, 2718.25):
        assert np.float64(value).tobytes() not in memory
    store.check_invariants()


@pytest.mark.parametrize("wrong", [[3], [-1], [99], [0, 3], [0, -1], [0, 99], [0, 0], [0, 1, 0]])
def test_free_slots_and_repeated_ones_are_refused(wrong):
    store = filled()
    unchanged(store, lambda: store.remove(wrong), IndexError)
    unchanged(store, lambda: store.remove(np.array(wrong)), IndexError)


# Subjects, expiries and origins -------------------------------------------------------------------


@pytest.mark.parametrize("subject", ["", "x" * 257, 1.0, True, "\ud800"])
def test_subjects_that_are_refused(subject):
    store = filled()
    store.set_subject("a", "ann")
    assert unchanged(store, lambda: store.set_subject("a", subject), InputError).field == "subject"
    assert store.subject("a") == "ann"
    assert unchanged(store, lambda: store.ids_of_subject(subject), InputError).field == "subject"


@pytest.mark.parametrize("moment", [1.5, "5", True, 2**63 - 1, -(2**63) - 1, 2**64])
def test_expiries_that_are_refused(moment):
    store = filled()
    store.set_expiry("a", 5)
    with pytest.raises(InputError):
        store.set_expiry("a", moment)
    assert store.expiry("a") == 5


def test_what_is_not_kept_beside_samples_takes_no_memory():
    store = filled()
    assert (len(store.expiries), store.expiries.nbytes, len(store.nonces), store.nonces.nbytes) == (0, 0, 0, 0)
    assert "samples.nonces" not in store.state()


def test_room_is_made_for_nonces_and_what_was_there_is_overwritten():
    index = NonceIndex()
    index.note([1], b"1" * NONCE_BYTES)
    old = index.values
    index.note(np.array([9]), b"9" * NONCE_BYTES)
    assert not old.any()
    assert (index.get(1), index.get(500)) == (b"1" * NONCE_BYTES, None)
    assert index.slots().tolist() == [1, 9]


def test_memory_is_accounted_for():
    store = SampleStore(numeric_schema(28))
    empty = store.nbytes
    add(store, np.zeros((1000, 28), np.float32), np.zeros(1000, int))
    assert 1000 * 28 * 4 < store.nbytes - empty < 1000 * (28 * 4 + 300)


# Invariants ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("spoil", [
    lambda s: s.held.__setitem__(5, True), lambda s: s.cells.__setitem__((5, 0), 1.0),
    lambda s: s.cells.__setitem__((0, 0), math.inf), lambda s: s.cells.__setitem__((0, 0), -0.0),
    lambda s: s.cells.__setitem__((0, 2), 1.0), lambda s: s.class_codes.__setitem__(0, 1),
    lambda s: s.class_codes.__setitem__(5, 1), lambda s: s.id_hashes.__setitem__(0, 1),
    lambda s: s.id_hashes.__setitem__(5, 1), lambda s: s.id_at.__setitem__(5, "x"),
    lambda s: s.id_at.__setitem__(0, "x"), lambda s: s.slot_of.update(x=5), lambda s: s.free.append(0),
    lambda s: s.subjects.link(5, "ann"), lambda s: s.expiries.set(5, 1), lambda s: s.origins.__setitem__(5, 1),
    lambda s: s.categories.counts.__setitem__(0, 9), lambda s: setattr(s, "cells", np.asfortranarray(s.cells)),
    lambda s: setattr(s, "id_hashes", s.id_hashes[:-1]),
    # What is kept beside samples, by slot.
    lambda s: s.subjects._index.by_slot.update({1: "eve"}), lambda s: s.subjects._index.slots.update(eve={}),
    lambda s: s.subjects._index.slots["ann"].pop(0), lambda s: s.subjects._index.by_slot.update({0: "bob"}),
    lambda s: s.expiries.values.__setitem__(0, 5), lambda s: s.expiries.values.__setitem__(2, NEVER),
    lambda s: setattr(s.expiries, "_n", 2), lambda s: setattr(s.expiries, "_soonest", 90),
    lambda s: s.nonces.note([1], b"1" * NONCE_BYTES),
    # Tables of classes and of categories.
    lambda s: s.classes.counts.__setitem__(0, 9), lambda s: s.classes._values.append("x"),
    lambda s: s.classes._codes.update(no=7), lambda s: s.classes._free.append(0),
    lambda s: s.classes._order.__setitem__(0, 5), lambda s: s.categories.hashes.__setitem__(0, 1),
    lambda s: s.categories.columns.__setitem__(5, 1), lambda s: s.categories._values.__setitem__(5, "x"),
    lambda s: s.categories._free.append(0), lambda s: s.categories.codes[2].update(clerk=7),
])  # fmt: skip
def test_a_broken_store_is_noticed(spoil):
    store = linked()
    store.check_invariants()
    spoil(store)
    with pytest.raises(AssertionError):
        store.check_invariants()


@pytest.mark.parametrize("n", range(2, 40))
def test_room_is_made_for_the_categories_of_every_column(n):
    columns = tuple(Column(name, "categorical") for name in "abcd")
    store = SampleStore(Schema(columns, "classification", "integer"))
    for first in range(0, 3 * n, n):
        rows = [[f"{name}{first + i}" for name in "abcd"] for i in range(n)]
        store.commit(store.prepare(rows, [0] * n))
    store.check_invariants()
    assert store.get(str(3 * n - 1)).features == [f"{name}{3 * n - 1}" for name in "abcd"]
