import copy
import math
import pickle

import numpy as np
import pandas as pd
import pytest

from oubli.core.data.schema import Column, Schema
from oubli.core.errors import CapacityError, DuplicateIdError, FeatureCountError, InputError, UnknownIdError
from oubli.core.rng import hash_text
from oubli.core.samples import slots
from oubli.core.samples.store import HeldSample, Prepared, SampleStore, normalise_id
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


def test_the_arrays_by_slot():
    store = filled()
    found = store.find(["c", "a"])
    assert store.cells.dtype == np.float32
    assert store.cells.flags.c_contiguous
    assert store.cells[found[1], :2].tolist() == [39.0, 1.0]
    assert np.isnan(store.cells[found[0], [0, 1, 3]]).all()
    assert store.categories.value(int(store.cells[found[0], 2])) == "clerk"
    assert store.id_hashes[found].tolist() == [hash_text("c"), hash_text("a")]
    assert store.held[found].all()
    assert store.classes.values(store.class_codes[found]) == ["no", "no"]
    assert len(store.y) == 0
    assert store.id_of(int(found[0])) == "c"


def test_a_regression_holds_targets():
    store = SampleStore(numeric_schema(task="regression", dtype="float64"))
    added = add(store, [[1, 2**24 + 1], [0.1, -0.0]], [1.5, -0.0])
    assert store.y[added].tolist() == [1.5, 0.0]
    assert store.cells[added].tolist() == [[1.0, 2.0**24 + 1], [0.1, 0.0]]
    assert len(store.class_codes) == 0
    assert store.get("1") == HeldSample("1", [0.1, 0.0], 0.0, None)
    store.check_invariants()


def test_prepare_changes_nothing():
    store = filled()
    before = fingerprint(store)
    prepared = store.prepare([[1, True, "new", "new"]], ["new class"], ["new"])
    assert fingerprint(store) == before
    assert prepared.n == 1
    assert prepared.ids == ["new"]
    assert {"new", "new class"}.isdisjoint(texts(store))


def test_commit_returns_slots_and_fills_in_generated_ids():
    store = filled()
    prepared = store.prepare(ROWS, LABELS)
    assert prepared.ids is None
    added = store.commit(prepared)
    assert added.dtype == np.int64
    assert prepared.ids == ["0", "1", "2"]
    assert store.find(prepared.ids).tolist() == added.tolist()


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


def test_two_batches_prepared_before_either_is_committed():
    store = SampleStore(mixed_schema())
    first, second = store.prepare(ROWS, LABELS), store.prepare(ROWS, ["maybe", "yes", "no"])
    store.commit(first)
    store.commit(second)
    assert second.ids == ["3", "4", "5"]
    store.check_invariants()


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
    (([*ROWS[:2], [1e39, True, "new", "new"]], LABELS), "float64"),
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


def test_an_id_that_is_held_is_refused():
    store = filled()
    error = unchanged(store, lambda: store.prepare(ROWS, LABELS, ["x", "b", "y"]), DuplicateIdError)
    assert (error.row, error.field, error.value) == (1, "id", "b")
    assert "held already" in error.rule


def test_held_ids_can_be_prepared_for_comparison_but_not_committed():
    store = filled()
    prepared = store.prepare(ROWS, LABELS, ["x", "b", "y"], allow_held=True)
    unchanged(store, lambda: store.commit(prepared), DuplicateIdError)
    store.remove(store.find(["b"]))
    store.commit(prepared)
    assert store.ids() == ["a", "c", "x", "b", "y"]


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


def test_an_integer_is_the_id_of_its_decimal_text():
    store = SampleStore(numeric_schema())
    add(store, np.zeros((2, 2)), [0, 1], [7, "007"])
    assert store.ids() == ["7", "007"]
    assert store.find([7]).tolist() == store.find(["7"]).tolist() != store.find(["007"]).tolist()
    assert store.contains(7)
    assert "007" in store
    assert 8 not in store
    assert not store.contains("07")
    assert store.get(np.int64(7)).id == "7"
    assert normalise_id(7) == "7"


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


def test_the_same_content():
    store = filled()
    prepared = store.prepare(ROWS, LABELS, ["a", "b", "c"], allow_held=True)
    for row, name in enumerate("abc"):
        for other in range(3):
            assert store.same_content(name, prepared, other) == (row == other)
    assert not store.same_content("x", prepared, 0)


@pytest.mark.parametrize(
    ("row", "label", "same"),
    [
        ([39, True, "clerk", "Paris"], "no", True),
        ([39.0, 1, "clerk", "Paris"], "no", True),
        ([39.0000001, True, "clerk", "Paris"], "no", True),
        ([39.001, True, "clerk", "Paris"], "no", False),
        ([39, False, "clerk", "Paris"], "no", False),
        ([39, None, "clerk", "Paris"], "no", False),
        ([39, True, "Clerk", "Paris"], "no", False),
        ([39, True, "unheard of", "Paris"], "no", False),
        ([39, True, None, "Paris"], "no", False),
        ([39, True, "clerk", "clerk"], "no", False),
        ([39, True, "clerk", "Paris"], "yes", False),
        ([39, True, "clerk", "Paris"], "unheard of", False),
    ],
)
def test_content_is_compared_as_held(row, label, same):
    store = filled()
    before = fingerprint(store)
    assert store.same_content("a", store.prepare([row], [label]), 0) is same
    assert fingerprint(store) == before


def test_labels_of_different_types_differ():
    store = SampleStore(mixed_schema("scalar"))
    add(store, ROWS[:1], [1], ["a"])
    for label, same in ((1, True), (1.0, False), (True, False), ("1", False)):
        assert store.same_content("a", store.prepare(ROWS[:1], [label]), 0) is same


def test_targets_are_compared():
    store = SampleStore(numeric_schema(task="regression"))
    add(store, [[1, NAN]], [0.1], ["a"])
    assert store.same_content("a", store.prepare([[1.0, None]], [0.1]), 0)
    assert not store.same_content("a", store.prepare([[1.0, None]], [0.2]), 0)
    assert not store.same_content("a", store.prepare([[1.0, 2.0]], [0.1]), 0)


# Removing -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("bulk", [False, True])
def test_removed_samples_leave_nothing_behind(bulk):
    """No array, list or dictionary holds bytes of what only removed samples had."""
    store = SampleStore(mixed_schema())
    secret = [3141.5, True, "secret job", "secret town"]
    add(
        store,
        [*ROWS, secret, secret],
        [*LABELS, "secret class", "secret class"],
        ["a", "b", "c", "secret-1", "secret-2"],
    )
    store.set_subject("secret-1", "secret subject")
    store.set_subject("a", "ann")
    found = store.find(["secret-1", "secret-2"])
    hashes = [hash_text(text).to_bytes(8, "little") for text in ("secret-1", "secret-2", "secret job", "secret town")]
    assert all(h in array_bytes(store) for h in hashes)
    assert np.float32(3141.5).tobytes() in array_bytes(store)
    if bulk:
        store.remove(found)
    else:
        for slot in found:
            store.remove([slot])
    store.check_invariants()
    assert not [text for text in texts(store) if "secret" in text]
    memory = array_bytes(store)
    assert not any(h in memory for h in hashes)
    assert np.float32(3141.5).tobytes() not in memory
    assert not store.cells[found].any()
    assert not store.class_codes[found].any()
    assert store.classes.classes_array().tolist() == ["no", "yes"]
    assert store.ids() == ["a", "b", "c"]
    assert store.subject("a") == "ann"
    assert not any(h in array_bytes(store.state()) for h in hashes)
    assert b"secret" not in array_bytes(store.state())
    assert b"secret" not in pickle.dumps(store)


def test_removed_targets_leave_nothing_behind():
    store = SampleStore(numeric_schema(task="regression", dtype="float64"))
    add(store, [[1, 2], [3141.5, 3141.5], [3141.5, 0]], [1.0, 2718.25, 2718.25], ["a", "b", "c"])
    store.remove(store.find(["b"]))
    store.remove(store.find(["c"]))
    memory = array_bytes(store)
    for value in (3141.5, 2718.25):
        assert np.float64(value).tobytes() not in memory
    store.check_invariants()


def test_values_that_others_share_stay():
    store = filled()
    store.remove(store.find(["a"]))
    assert store.get("c").features == [None, None, "clerk", None]
    assert "Paris" not in texts(store)
    assert store.classes.classes_array().tolist() == ["no", "yes"]
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


def test_an_emptied_store_starts_again():
    store = filled()
    store.remove(store.slots())
    assert (len(store), len(store.classes), len(store.categories)) == (0, 0, 0)
    store.check_invariants()
    add(store, ROWS, LABELS, ["c", "b", "a"])
    assert store.ids() == ["c", "b", "a"]
    store.check_invariants()


# Subjects -----------------------------------------------------------------------------------------


def test_subjects():
    store = filled()
    assert store.subject("a") is None
    store.set_subject("b", "ann")
    store.set_subject("a", "ann")
    store.set_subject("c", 7)
    assert store.ids_of_subject("ann") == ["b", "a"]
    assert store.ids_of_subject(7) == store.ids_of_subject("7") == ["c"]
    assert store.get("a").subject == store.subject("a") == "ann"
    store.set_subject("b", "bob")
    assert store.ids_of_subject("ann") == ["a"]
    store.set_subject("a", None)
    store.set_subject("a", None)
    assert store.ids_of_subject("ann") == []
    assert "ann" not in texts(store)
    store.check_invariants()


def test_subjects_leave_with_their_samples():
    store = filled()
    for name in "abc":
        store.set_subject(name, "ann" if name != "c" else "bob")
    store.remove(store.find(["a", "c"]))
    assert store.ids_of_subject("ann") == ["b"]
    assert store.ids_of_subject("bob") == []
    add(store, ROWS[:1], ["no"], ["a"])
    assert store.subject("a") is None
    store.check_invariants()


@pytest.mark.parametrize("subject", ["", "x" * 257, 1.0, True, "\ud800"])
def test_subjects_that_are_refused(subject):
    store = filled()
    store.set_subject("a", "ann")
    assert unchanged(store, lambda: store.set_subject("a", subject), InputError).field == "subject"
    assert store.subject("a") == "ann"
    assert unchanged(store, lambda: store.ids_of_subject(subject), InputError).field == "subject"


# Expiries and origins -----------------------------------------------------------------------------


def test_expiries():
    store = filled()
    assert (store.expiry("a"), store.next_expiry(), store.due(2**62, 10)) == (None, None, [])
    for name, moment in (("c", 300), ("a", 100), ("b", 200)):
        store.set_expiry(name, moment)
    assert (store.expiry("b"), store.get("b").expires_ms, store.next_expiry()) == (200, 200, 100)
    assert store.due(99, 10) == []
    assert store.due(250, 10) == ["a", "b"]
    assert store.due(300, 2) == ["a", "b"]
    store.set_expiry("a", None)
    assert (store.expiry("a"), store.get("a").expires_ms, store.next_expiry()) == (None, None, 200)
    store.set_expiry("c", 150)
    assert store.due(1000, 10) == ["c", "b"]
    store.check_invariants()


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


@pytest.mark.parametrize("bulk", [True, False])
def test_expiries_and_origins_leave_with_their_samples(bulk):
    store = filled()
    for name in "abc":
        store.set_expiry(name, 4_102_444_800_123)
    store.set_origins(["a", "b", "c"], 7_654_321_987)
    store.remove(store.find(["a", "c"] if bulk else ["a"]))
    add(store, ROWS[:1], ["no"], ["a"])
    assert (store.expiry("a"), store.origin("a")) == (None, 0)
    store.remove(store.slots())
    assert store.next_expiry() is None
    memory = array_bytes(store)
    assert np.int64(4_102_444_800_123).tobytes() not in memory
    assert np.int64(7_654_321_987).tobytes() not in memory
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


def test_a_clean_matrix_is_handed_through():
    store = SampleStore(numeric_schema())
    X = np.array([[1, NAN]], np.float32)
    cells, hashes = store.encode_queries(X)
    assert cells is X
    assert len(hashes) == 0


def test_queries_are_encoded_like_samples():
    store = filled()
    before = fingerprint(store)
    cells, hashes = store.encode_queries(ROWS)
    assert cells.tobytes() == store.cells[store.find(["a", "b", "c"])].tobytes()
    assert hashes is store.categories.hashes
    cells, hashes = store.encode_queries([[39, True, "unheard of", "Paris"], [39, True, "Paris", "unheard of"]])
    assert hashes[int(cells[0, 2])] == hashes[int(cells[1, 3])] == hash_text("unheard of")
    assert hashes[int(cells[0, 3])] == hashes[int(cells[1, 2])] == hash_text("Paris")
    assert len(hashes) > store.categories.capacity
    assert fingerprint(store) == before
    assert "unheard of" not in texts(store)


@pytest.mark.parametrize(
    "X", [np.zeros((0, 4)), [], np.ones((2, 3)), [[1, True, "a", math.inf]], [["x", True, "a", "b"]]]
)
def test_queries_that_are_refused(X):
    store = filled()
    unchanged(store, lambda: store.encode_queries(X), InputError)


@pytest.mark.parametrize("value", [math.inf, -math.inf])
def test_infinity_is_refused_on_the_fast_path(value):
    store = SampleStore(numeric_schema())
    error = unchanged(store, lambda: store.encode_queries(np.array([[0, value]], np.float32)), InputError)
    assert (error.row, error.field) == (0, "x1")


def test_negative_zero_is_normalised_on_the_fast_path():
    store = SampleStore(numeric_schema())
    X = np.array([[-0.0, 1]], np.float32)
    cells, _ = store.encode_queries(X)
    assert not np.signbit(cells).any()
    assert np.signbit(X[0, 0])


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


def test_a_copy_can_be_read_and_changed_whatever_was_asked_first():
    store = filled()
    store.set_subject("c", "ann")
    store.remove(store.find(["a"]))
    add(store, ROWS[:1], ["no"], ["z"])
    first = {
        "length": len,
        "ids": lambda s: s.ids(),
        "state": lambda s: s.state(),
        "size": lambda s: s.nbytes,
        "copy": lambda s: s.copy(),
        "an id": lambda s: s.contains("b"),
        "a subject": lambda s: s.ids_of_subject("ann"),
        "removal": lambda s: s.remove(s.slots()[:1]),
        "addition": lambda s: add(s, ROWS[:1], ["no"]),
    }
    for call in first.values():
        ours, theirs = store.copy(), saved(store)
        for other in (ours, theirs):
            call(other)
            other.check_invariants()
        assert ours.ids() == theirs.ids()
        assert len(ours) == len(ours.ids())
        assert [ours.get(name) for name in ours.ids()] == [theirs.get(name) for name in theirs.ids()]
        add(ours, ROWS[:1], ["no"], ["new"])
        assert ours.ids()[-1] == "new"
        ours.check_invariants()
    assert store.ids() == ["b", "c", "z"]


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
