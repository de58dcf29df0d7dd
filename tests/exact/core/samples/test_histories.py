"""The store against a plain dictionary, over random histories."""

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from oubli.core.data.schema import Column, Schema
from oubli.core.errors import DuplicateIdError, UnknownIdError
from oubli.core.rng import MISSING_CATEGORY, hash_text
from oubli.core.samples.store import SampleStore
from tests.reach import array_bytes, texts

COLUMNS = (
    Column("age", "numeric"), Column("wide", "numeric", "float64"), Column("member", "boolean"),
    Column("job", "categorical"), Column("town", "categorical"),
)  # fmt: skip
LAYOUTS = {
    "mixed classes": (COLUMNS, "classification", "scalar"),
    "narrow": ((COLUMNS[0], COLUMNS[2], COLUMNS[3]), "classification", "string"),
    "regression": (COLUMNS[3:] + COLUMNS[:1], "regression", "number"),
    "numbers": ((COLUMNS[0], Column("b", "numeric")), "classification", "integer"),
}
CELLS = {
    "age": [None, 0.0, -1.5, 0.1, 2**24], "b": [None, 1.0, 2.0], "wide": [None, 0.1, 2**53 - 1, 1e300],
    "member": [None, True, False], "job": [None, "job-clerk", "job-cook", "job-é", "job-1", 1, True, "shared"],
    "town": [None, "town-Paris", "town-Lyon", "shared"],
}  # fmt: skip
LABELS = {
    "scalar": ["label-a", "label-b", 1, 1.0, True, "1"], "string": ["label-a", "label-b", "label-c"],
    "number": [0.0, 1.5, -2.25], "integer": [0, 1, 2],
}  # fmt: skip
IDS = ["id-a", "id-b", "id-c", "7", "007", "12", "-3", "id-é"]
MOMENTS = [4_102_444_800_001, 4_102_444_800_007, -3, 253_402_300_799_999]
SUBJECTS = ["subject-ann", "subject-bob"]


def as_held(column, value):
    if value is None:
        return None
    if column.type == "categorical":
        return "true" if value is True else str(value)
    if column.type == "boolean":
        return bool(value)
    return float(np.dtype(column.dtype).type(value))


class StoreHistory(RuleBasedStateMachine):
    """Every rule does the same to the store and to the model, a dictionary by id."""

    @initialize(layout=st.sampled_from(sorted(LAYOUTS)))
    def start(self, layout):
        columns, task, label_type = LAYOUTS[layout]
        self.schema = Schema(columns, task, label_type)
        self.store = SampleStore(self.schema)
        self.model = {}
        self.counter = 0
        self.slots = {}

    def draw_rows(self, data, n):
        rows = [[data.draw(st.sampled_from(CELLS[c.name])) for c in self.schema.columns] for _ in range(n)]
        return rows, [data.draw(st.sampled_from(LABELS[self.schema.label_type])) for _ in range(n)]

    def shaped(self, data, rows):
        """Pass the rows as a list, or as an object array."""
        if data.draw(st.booleans()):
            return rows
        array = np.empty((len(rows), len(rows[0])), object)
        array[:] = rows
        return array

    def hold(self, ids, rows, labels, added):
        for name, row, label, slot in zip(ids, rows, labels, added.tolist(), strict=True):
            features = [as_held(c, v) for c, v in zip(self.schema.columns, row, strict=True)]
            self.model[name] = [features, label, None, None]
            self.slots[name] = slot
            if name.isdecimal() and str(int(name)) == name:
                self.counter = max(self.counter, int(name) + 1)

    @rule(data=st.data(), n=st.integers(1, 6))
    def add_generated(self, data, n):
        rows, labels = self.draw_rows(data, n)
        prepared = self.store.prepare(self.shaped(data, rows), labels)
        added = self.store.commit(prepared)
        assert prepared.ids == [str(self.counter + i) for i in range(n)]
        self.hold(prepared.ids, rows, labels, added)

    @rule(data=st.data(), ids=st.lists(st.sampled_from(IDS), min_size=1, max_size=4, unique=True))
    def add_named(self, data, ids):
        rows, labels = self.draw_rows(data, len(ids))
        if not self.model.keys().isdisjoint(ids):
            with pytest.raises(DuplicateIdError) as info:
                self.store.prepare(rows, labels, ids)
            assert info.value.row == next(i for i, name in enumerate(ids) if name in self.model)
            prepared = self.store.prepare(rows, labels, ids, allow_held=True)
            for row, name in enumerate(ids):
                features = [as_held(c, v) for c, v in zip(self.schema.columns, rows[row], strict=True)]
                same = name in self.model and self.model[name][:2] == [features, labels[row]]
                same = same and type(self.model[name][1]) is type(labels[row])
                assert self.store.same_content(name, prepared, row) == same
            fresh = [row for row, name in enumerate(ids) if name not in self.model]
            added = self.store.commit(prepared.take(fresh))
            self.hold([ids[i] for i in fresh], [rows[i] for i in fresh], [labels[i] for i in fresh], added)
        else:
            self.hold(ids, rows, labels, self.store.commit(self.store.prepare(self.shaped(data, rows), labels, ids)))

    @precondition(lambda self: self.model)
    @rule(data=st.data())
    def remove(self, data):
        ids = data.draw(st.lists(st.sampled_from(sorted(self.model)), min_size=1, max_size=5, unique=True))
        found = self.store.find(ids)
        assert found.tolist() == [self.slots[name] for name in ids]
        self.store.remove(found)
        for name in ids:
            del self.model[name], self.slots[name]

    @rule()
    def remove_everything(self):
        self.store.remove(self.store.slots())
        self.model.clear()
        self.slots.clear()

    @rule(name=st.sampled_from(IDS))
    def look_for_what_may_not_be_held(self, name):
        if name in self.model:
            assert self.store.find([name]).tolist() == [self.slots[name]]
        else:
            with pytest.raises(UnknownIdError):
                self.store.find([*self.model, name])

    @precondition(lambda self: self.model)
    @rule(data=st.data(), subject=st.sampled_from([*SUBJECTS, None]))
    def set_subject(self, data, subject):
        name = data.draw(st.sampled_from(sorted(self.model)))
        self.store.set_subject(name, subject)
        self.model[name][2] = subject

    @precondition(lambda self: self.model)
    @rule(data=st.data(), moment=st.sampled_from([None, *MOMENTS]))
    def set_expiry(self, data, moment):
        name = data.draw(st.sampled_from(sorted(self.model)))
        self.store.set_expiry(name, moment)
        self.model[name][3] = moment

    @rule(now=st.sampled_from(MOMENTS), limit=st.integers(0, 5))
    def ask_what_is_due(self, now, limit):
        moments = {name: moment for name, (*_, moment) in self.model.items() if moment is not None}
        due = self.store.due(now, limit)
        assert len(set(due)) == len(due) == min(limit, sum(moment <= now for moment in moments.values()))
        assert [moments[name] for name in due] == sorted(m for m in moments.values() if m <= now)[: len(due)]
        assert self.store.next_expiry() == min(moments.values(), default=None)

    @rule(data=st.data())
    def query(self, data):
        rows, _ = self.draw_rows(data, data.draw(st.integers(1, 3)))
        before = self.store.categories.hashes.copy()
        cells, hashes = self.store.encode_queries(self.shaped(data, rows))
        np.testing.assert_array_equal(self.store.categories.hashes, before)
        for row, encoded in zip(rows, cells, strict=True):
            for column, value, cell in zip(self.schema.columns, row, encoded, strict=True):
                held = as_held(column, value)
                if column.type == "categorical":
                    found = MISSING_CATEGORY if np.isnan(cell) else hashes[int(cell)]
                    assert found == (MISSING_CATEGORY if held is None else hash_text(held))
                else:
                    assert np.isnan(cell) if held is None else cell == held

    @rule(way=st.sampled_from(["state", "copy"]))
    def replace_by_a_copy(self, way):
        if way == "copy":
            self.store = self.store.copy()
        else:
            self.store = SampleStore.from_state(self.schema, self.store.state())

    @invariant()
    def the_store_is_sound(self):
        self.store.check_invariants()

    @invariant()
    def the_store_is_the_model(self):
        store = self.store
        assert (store.ids(), len(store), store.next_id) == (list(self.model), len(self.model), self.counter)
        assert store.slots().tolist() == sorted(self.slots.values())
        for name, (features, label, subject, moment) in self.model.items():
            sample = store.get(name)
            assert sample.features == features
            assert [type(v) for v in sample.features] == [type(v) for v in features]
            assert (sample.label, type(sample.label), sample.subject) == (label, type(label), subject)
            assert sample.expires_ms == store.expiry(name) == moment
        for subject in SUBJECTS:
            assert sorted(store.ids_of_subject(subject)) == sorted(n for n, s in self.model.items() if s[2] == subject)
        if self.schema.task == "classification":
            classes = {(type(label).__name__, label) for _, label, *_ in self.model.values()}
            held = store.classes.values(store.classes.order())
            assert [(type(v).__name__, v) for v in held] == sorted(classes)

    @invariant()
    def nothing_is_left_of_what_is_not_held(self):
        kept = set(self.model) | {s for _, _, s, _ in self.model.values()}
        for features, label, *_ in self.model.values():
            kept.update(v for v in (*features, label) if isinstance(v, str))
        ours = ("id-", "job-", "town-", "label-", "subject-")
        assert {text for text in texts(self.store) if text.startswith(ours)} <= kept
        memory = array_bytes(self.store)
        for text in {*IDS, "job-clerk", "job-cook", "town-Paris", "shared"} - kept:
            assert hash_text(text).to_bytes(8, "little") not in memory
        for moment in set(MOMENTS[:2]) - {moment for *_, moment in self.model.values()}:
            assert np.int64(moment).tobytes() not in memory


StoreHistory.TestCase.settings = settings(deadline=None, max_examples=60, stateful_step_count=25)
TestStoreHistory = StoreHistory.TestCase
