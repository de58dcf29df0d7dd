import copy
import math
import pickle

import numpy as np
import pandas as pd
import pytest

from oubli.core.data.schema import Column, Schema
from oubli.core.errors import CapacityError, DuplicateIdError, FeatureCountError, InputError, UnknownIdError
from oubli.core.samples import slots
from oubli.core.samples.records import HeldSample, Prepared
from oubli.core.samples.store import SampleStore
from tests.reach import array_bytes, texts

NAN = math.nan


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


def fingerprint(store):
    """Everything that a refused call must leave alone."""
    tables = [store.classes.counts.tolist(), store.classes.order().tolist(), store.categories.hashes.tolist()]
    arrays = [getattr(store, name).tobytes() for name in ("cells", "class_codes", "y", "id_hashes", "held")]
    return tables, arrays, store.ids(), store.next_id, store.capacity, store.free.copy(), store.top


def unchanged(store, call, error):
    before = fingerprint(store)
    with pytest.raises(error) as info:
        call()
    assert fingerprint(store) == before
    store.check_invariants()
    return info.value


# Adding -------------------------------------------------------------------------------------------


def test_a_new_store_is_empty():
    store = SampleStore(mixed_schema())
    assert (len(store), store.ids(), store.slots().tolist(), store.next_id, store.capacity) == (0, [], [], 0, 0)
    store.check_invariants()


def test_what_is_held_is_returned():
    store = filled()
    assert store.get("a") == HeldSample("a", [39.0, True, "clerk", "Paris"], "no", None)
    assert store.get("b") == HeldSample("b", [40.5, False, None, "Lyon"], "yes", None)
    assert store.get("c") == HeldSample("c", [None, None, "clerk", None], "no", None)
    assert [type(v) for v in store.get("a").features] == [float, bool, str, str]


def test_prepare_changes_nothing():
    store = filled()
    before = fingerprint(store)
    prepared = store.prepare([[1, True, "new", "new"]], ["new class"], ["new"])
    assert fingerprint(store) == before
    assert prepared.n == 1
    assert prepared.ids == ["new"]
    assert {"new", "new class"}.isdisjoint(texts(store))


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


def test_freed_slots_are_used_before_new_ones():
    store = SampleStore(numeric_schema())
    add(store, np.arange(20.0).reshape(10, 2), np.arange(10))
    store.remove([2, 5, 7])
    assert sorted(add(store, np.zeros((5, 2)), np.zeros(5, int)).tolist()) == [2, 5, 7, 10, 11]
    store.check_invariants()
    assert store.slots().tolist() == list(range(12))


def test_too_many_samples_are_refused_before_anything_changes(monkeypatch):
    monkeypatch.setattr(slots, "MAX_SLOTS", 20)
    store = SampleStore(numeric_schema())
    add(store, np.zeros((18, 2)), np.zeros(18, int))
    unchanged(store, lambda: add(store, np.zeros((3, 2)), np.zeros(3, int)), CapacityError)
    add(store, np.zeros((2, 2)), np.zeros(2, int))
    assert store.capacity == 20


def test_cells_are_copied_at_prepare():
    store = SampleStore(numeric_schema())
    X = np.ones((1, 2), np.float32)
    prepared = store.prepare(X, [0], ["a"])
    X[:] = 7
    store.commit(prepared)
    assert store.get("a").features == [1.0, 1.0]


def test_an_id_added_since_prepare_is_refused_before_anything_changes():
    store = filled()
    prepared = store.prepare([[1, True, "new", "new"]] * 2, ["x", "y"], ["d", "e"])
    add(store, ROWS[:1], ["no"], ["e"])
    error = unchanged(store, lambda: store.commit(prepared), DuplicateIdError)
    assert error.row == 1


def test_rows_can_be_taken_from_a_prepared_batch():
    store = filled()
    prepared = store.prepare(ROWS, ["x", "y", "z"], ["d", "e", "f"])
    part = prepared.take([2, 0])
    assert (part.n, part.ids, part.labels) == (2, ["f", "d"], ["z", "x"])
    store.commit(part)
    assert store.get("d").label == "x"
    assert store.get("f").features == [None, None, "clerk", None]
    assert store.commit(prepared.take([])).tolist() == []
    regression = SampleStore(numeric_schema(task="regression"))
    assert regression.prepare(np.zeros((3, 2)), [1, 2, 3]).take([1]).labels.tolist() == [2.0]
    assert regression.prepare(np.zeros((3, 2)), [1, 2, 3]).take([1]).ids is None


def test_batches_can_be_put_together():
    store = filled()
    parts = [store.prepare(ROWS[:2], LABELS[:2], ["d", "e"]), store.prepare(ROWS[2:], LABELS[2:], ["f"])]
    whole = store.prepare(ROWS, LABELS, ["d", "e", "f"])
    merged = Prepared.merged(parts)
    assert (merged.n, merged.ids, merged.labels, merged.texts) == (3, whole.ids, whole.labels, whole.texts)
    assert merged.cells.tobytes() == whole.cells.tobytes()
    store.commit(merged)
    assert [store.get(name).features for name in "def"] == [store.get(name).features for name in "abc"]
    store.check_invariants()
    regression = SampleStore(numeric_schema(task="regression"))
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


BAD = [
    (([], []), "X has no rows"),
    ((np.zeros((0, 4)), []), "X has no rows"),
    ((ROWS, LABELS[:2]), "X has 3 rows, y has 2"),
    ((ROWS, LABELS, ["x", "y"]), "X has 3 rows, but 2 ids are given"),
    ((ROWS, LABELS, {"x", "y", "z"}), "not a set"),
    ((ROWS, LABELS, "xyz"), "must be a list"),
    ((ROWS, LABELS, ["x", "y", ""]), "1 to 256 characters"),
    ((ROWS, LABELS, ["x", "y", "z" * 257]), "1 to 256 characters"),
    ((ROWS, LABELS, ["x", "y", "\ud800"]), "surrogate"),
    ((ROWS, LABELS, ["x", "y", 1.0]), "or an integer"),
    ((ROWS, ["no", "yes", None]), "must not be missing"),
    ((ROWS, ["no", "new", True]), "must be text"),
    (([*ROWS[:2], [1, 2, "new", "new"]], LABELS), "true, false or null"),
    (([*ROWS[:2], [-math.inf, True, "new", "new"]], LABELS), "infinity"),
    (([*ROWS[:2], [1, True, "new", math.inf]], LABELS), "finite"),
]


@pytest.mark.parametrize(("arguments", "text"), BAD, ids=[text for _, text in BAD])
def test_a_refused_batch_changes_nothing(arguments, text):
    store = filled()
    assert text in str(unchanged(store, lambda: store.prepare(*arguments), InputError))
    assert "new" not in texts(store)


@pytest.mark.parametrize("ids", [["x", "y", "x"], ["7", 7, "8"], [7, 8, np.int64(7)]])
def test_an_id_twice_in_one_call_is_refused(ids):
    store = filled()
    error = unchanged(store, lambda: store.prepare(ROWS, LABELS, ids), DuplicateIdError)
    assert (error.field, error.rule[:11]) == ("id", "is repeated")
    assert error.row in {1, 2}


def test_the_estimator_is_named_in_messages():
    store = filled()
    assert store.owner == "Model"
    error = unchanged(store, lambda: store.prepare(np.ones((1, 3)), ["no"]), FeatureCountError)
    assert "but Model is expecting 4 features" in str(error)


def test_a_frame_with_shuffled_columns():
    store = SampleStore(mixed_schema())
    frame = pd.DataFrame(ROWS, columns=["age", "member", "job", "town"])
    add(store, frame[["town", "job", "age", "member"]], pd.Series(LABELS), pd.Series(["a", "b", "c"]))
    for name in "abc":
        assert store.get(name) == filled().get(name)


# Ids ----------------------------------------------------------------------------------------------


def test_generated_ids_count_from_0_and_are_never_issued_again():
    store = SampleStore(numeric_schema())

    def generate(n=1):
        prepared = store.prepare(np.zeros((n, 2)), np.zeros(n, int))
        store.commit(prepared)
        return prepared.ids

    assert generate(3) == ["0", "1", "2"]
    store.remove(store.slots())
    assert generate() == ["3"]
    add(store, np.zeros((1, 2)), [0], ["10"])
    assert generate(2) == ["11", "12"]
    add(store, np.zeros((2, 2)), [0, 0], ["5", "0"])
    assert generate() == ["13"]
    for odd in ("020", "-30", "40.0", " 50", "1e3", "٦٠", str(2**53)):
        add(store, np.zeros((1, 2)), [0], [odd])
    assert generate() == ["14"]
    store = SampleStore.from_state(store.schema, store.state())
    assert generate() == ["15"]


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


def test_unknown_ids_are_listed():
    store = filled()
    error = unchanged(store, lambda: store.find(["a", "x", "b", "y", "x"]), UnknownIdError)
    assert error.ids == ["x", "y"]
    for call in (store.get, store.subject, lambda i: store.set_subject(i, "ann")):
        assert unchanged(store, lambda call=call: call("x"), UnknownIdError).ids == ["x"]


def test_an_id_named_twice_is_refused():
    assert unchanged(filled(), lambda: filled().find(["a", "b", "a"]), DuplicateIdError).row == 2


def test_finding_nothing_and_what_is_no_list():
    assert filled().find([]).tolist() == []
    assert filled().find({"a"}).shape == (1,)
    unchanged(filled(), lambda: filled().find("a"), InputError)
    unchanged(filled(), lambda: filled().find([True]), InputError)
    unchanged(filled(), lambda: filled().contains(None), InputError)
    with pytest.raises(IndexError):
        filled().id_of(3)


# Comparing ----------------------------------------------------------------------------------------


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


def test_growing_leaves_no_old_arrays_behind():
    store = SampleStore(numeric_schema())
    add(store, [[3141.5, 1.0]], [0], ["a"])
    old = store.cells
    for i in range(100):
        add(store, [[i, i]], [0])
    assert store.cells is not old
    store.remove(store.find(["a"]))
    assert np.float32(3141.5).tobytes() not in array_bytes(store)


@pytest.mark.parametrize("wrong", [[3], [-1], [99], [0, 3], [0, -1], [0, 99], [0, 0], [0, 1, 0]])
def test_free_slots_and_repeated_ones_are_refused(wrong):
    store = filled()
    unchanged(store, lambda: store.remove(wrong), IndexError)
    unchanged(store, lambda: store.remove(np.array(wrong)), IndexError)


def test_removing_nothing_is_allowed():
    store = filled()
    before = fingerprint(store)
    store.remove([])
    store.remove(np.zeros(0, np.int64))
    assert fingerprint(store) == before


# Subjects -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("subject", ["", "x" * 257, 1.0, True, "\ud800"])
def test_subjects_that_are_refused(subject):
    store = filled()
    store.set_subject("a", "ann")
    assert unchanged(store, lambda: store.set_subject("a", subject), InputError).field == "subject"
    assert store.subject("a") == "ann"
    assert unchanged(store, lambda: store.ids_of_subject(subject), InputError).field == "subject"


# Expiries and origins -----------------------------------------------------------------------------


def test_origins():
    store = filled()
    assert store.origin("a") == 0
    store.set_origins(["a", "c"], 3)
    store.set_origins([], 9)
    assert list(map(store.origin, "abc")) == [3, 0, 3]
    with pytest.raises(UnknownIdError):
        store.set_origins(["b", "x"], 5)
    assert store.origin("b") == 0
    store.check_invariants()


@pytest.mark.parametrize("moment", [1.5, "5", True, 2**63 - 1, -(2**63) - 1, 2**64])
def test_expiries_that_are_refused(moment):
    store = filled()
    store.set_expiry("a", 5)
    with pytest.raises(InputError):
        store.set_expiry("a", moment)
    assert store.expiry("a") == 5


def test_what_is_kept_with_samples_asks_for_their_ids():
    store = filled()
    for call in (store.expiry, store.origin, lambda name: store.set_expiry(name, 1)):
        with pytest.raises(UnknownIdError):
            call("x")


# Queries ------------------------------------------------------------------------------------------


# Copies -------------------------------------------------------------------------------------------


def saved(store):
    return SampleStore.from_state(store.schema, store.state(), store.owner)


def pickled(store):
    return pickle.loads(pickle.dumps(store))  # noqa: S301 - our own bytes


@pytest.mark.parametrize("way", [SampleStore.copy, copy.deepcopy, pickled, saved])
def test_copies_are_equal_and_independent(way):
    store = filled()
    store.set_subject("b", "ann")
    store.set_expiry("c", 50)
    store.set_origins(["b"], 2)
    store.remove(store.find(["a"]))
    other = way(store)
    other.check_invariants()
    assert (other.ids(), other.next_id, other.owner, other.schema) == (
        store.ids(),
        store.next_id,
        store.owner,
        store.schema,
    )
    assert other.find(["b", "c"]).tolist() == store.find(["b", "c"]).tolist()
    for name in "bc":
        assert other.get(name) == store.get(name)
    assert other.ids_of_subject("ann") == ["b"]
    assert (other.expiry("c"), other.next_expiry(), other.origin("b"), other.origin("c")) == (50, 50, 2, 0)
    store.remove(store.slots())
    add(store, [[1, True, "x", "y"]], ["z"], ["b"])
    assert other.ids() == ["b", "c"]
    assert other.get("b").features == [40.5, False, None, "Lyon"]
    other.check_invariants()
    add(other, ROWS, LABELS)
    assert len(store) == 1


def test_memory_is_accounted_for():
    store = SampleStore(numeric_schema(28))
    empty = store.nbytes
    add(store, np.zeros((1000, 28), np.float32), np.zeros(1000, int))
    assert 1000 * 28 * 4 < store.nbytes - empty < 1000 * (28 * 4 + 300)


# Invariants ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "spoil",
    [
        lambda s: s.held.__setitem__(5, True),
        lambda s: s.cells.__setitem__((5, 0), 1.0),
        lambda s: s.cells.__setitem__((0, 0), math.inf),
        lambda s: s.cells.__setitem__((0, 0), -0.0),
        lambda s: s.cells.__setitem__((0, 2), 1.0),
        lambda s: s.class_codes.__setitem__(0, 1),
        lambda s: s.class_codes.__setitem__(5, 1),
        lambda s: s.id_hashes.__setitem__(0, 1),
        lambda s: s.id_hashes.__setitem__(5, 1),
        lambda s: s.id_at.__setitem__(5, "x"),
        lambda s: s.id_at.__setitem__(0, "x"),
        lambda s: s.slot_of.update(x=5),
        lambda s: s.free.append(0),
        lambda s: s.subjects.link(5, "ann"),
        lambda s: s.expiries.set(5, 1),
        lambda s: s.origins.__setitem__(5, 1),
        lambda s: s.categories.counts.__setitem__(0, 9),
        lambda s: setattr(s, "cells", np.asfortranarray(s.cells)),
        lambda s: setattr(s, "id_hashes", s.id_hashes[:-1]),
    ],
)
def test_a_broken_store_is_noticed(spoil):
    store = filled()
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
