"""What is kept beside samples: nonces, retention periods of subjects, and restricted samples, in copies and files."""

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import oubli
from oubli.core import DynamicForestClassifier
from oubli.core.array_types import Arrays
from oubli.core.errors import DuplicateIdError, FileError, InputError, UnknownIdError
from oubli.core.persistence import read
from oubli.core.samples.indexes import NONCE_BYTES
from oubli.core.samples.owners import Mark
from oubli.core.samples.store import SampleStore
from tests.unit.app.support import CLASSES, forest, rows

# Nonces


def nonces(n: int) -> bytes:
    return b"".join(bytes([number]) * NONCE_BYTES for number in range(1, n + 1))


def model_with(n: int = 12) -> Any:
    model = forest(n)
    model.samples_.note_nonces([f"c{i}" for i in range(n)], nonces(n))
    return model


def test_they_are_noted_and_overwritten():
    model = model_with()
    store = model.samples_
    assert store.nonce("c3") == bytes([4]) * NONCE_BYTES
    assert model.digest() == forest(12).digest(), "they are no part of it"
    (slot,) = store.find(["c3"]).tolist()
    model.delete("c3")
    assert not store.nonces.values[slot].any()
    model.delete(["c4", "c5"])
    assert len(store.nonces.slots()) == 9
    model.check_invariants()
    with pytest.raises(UnknownIdError):
        store.note_nonces(["c3"], nonces(1))
    with pytest.raises(InputError, match="16 bytes"):
        store.note_nonces(["c0"], b"short")
    store.note_nonces([], b"")
    model.add([[1, "a", True]], ["yes"], ids=["c3"])
    model.replace("c2", [1, "a", True], "no")
    assert store.nonce("c3") is store.nonce("c2") is None, "these are other samples"
    assert store.nonce("c1") is not None


def test_they_stay_with_restricted_samples():
    model = model_with()
    store, before = model.samples_, model.samples_.nonce("c3")
    model.restrict(["c3", "c8"], {"s3": Mark(7, True)})
    assert (store.restricted.nonce("c3"), len(store.nonces.slots())) == (before, 10)
    model.release(["c3", "c8"])
    assert store.nonce("c3") == before
    assert not len(store.restricted.nonces.slots())
    model.restrict(["c3", "c8"], {"s3": Mark(7, True)})
    model.apply(model.plan_replace("c3", [[1, "a", True]], "no"))
    assert store.restricted.nonce("c3") is None
    model.check_invariants()


def test_they_are_in_copies_pickles_and_files_and_shredded_with_restricted_samples(tmp_path: Path):
    model = model_with()
    model.restrict(["c3", "c8"], {"s3": Mark(7, True)})
    path = tmp_path / "model"
    model.save(path)
    for other in (model.copy(), copy.deepcopy(model), oubli.load(path)):
        assert other.samples_.nonce("c5") == bytes([6]) * NONCE_BYTES
        assert other.samples_.restricted.nonce("c3") == bytes([4]) * NONCE_BYTES
        other.check_invariants()
    other = model.copy()
    cells = other.samples_.restricted.cells
    assert cells.any()
    other.shred()
    assert not cells.any()
    assert model.samples_.nonce("c5") is not None


# Retention periods

AT = 1_000_000


def held() -> Any:
    """c0, c1, ... of the subjects s0 to s4; of s1 c1 was added at AT, c6 at AT + 5, c11 at a time that is not known."""
    model = forest(20)
    store = model.samples_
    store.note_additions(["c1"], AT, None)
    store.note_additions(["c6"], AT + 5, None)
    return model


def test_samples_go_when_the_period_since_their_addition_is_over():
    store = held().samples_
    store.set_expiry("c6", AT + 50)
    store.set_retention("s1", 100, AT + 7)
    assert [store.expiry(name) for name in ("c1", "c6", "c11", "c2")] == [AT + 100, AT + 50, AT + 107, None]
    assert [store.belongings(name).expires_ms for name in ("c1", "c6")] == [None, AT + 50]
    assert (store.get("c1").expires_ms, store.next_expiry()) == (AT + 100, AT + 50)
    for now, limit, names in ((49, 10, []), (100, 10, ["c6", "c1"]), (200, 3, ["c6", "c1", "c11"]), (200, 1, ["c6"])):
        assert store.due(AT + now, limit) == names
    store.check_invariants()
    store.set_retention("s1", 10, AT + 90)
    assert [store.expiry(name) for name in ("c1", "c6", "c11")] == [AT + 10, AT + 15, AT + 17], "since the first time"
    store.set_retention("s1", None, AT)
    assert [store.expiry(name) for name in ("c1", "c6", "c11")] == [None, AT + 50, None]
    assert store.next_expiry() == AT + 50
    assert store.retention("s1") is None
    store.check_invariants()


def test_a_period_goes_with_the_last_sample_of_its_subject():
    model = held()
    store = model.samples_
    store.set_retention("s1", 100, AT)
    model.delete(["c6", "c11", "c16"])
    model.replace("c1", [9, "b", None], "no")
    store.set_subject("c1", "s1")
    assert store.expiry("c1") == AT + 100, "also when it is the only one and rectified"
    model.delete(["c1"])
    assert (store.periods, len(store.limits)) == ({}, 0)
    assert not any(name.startswith(("samples.retained_since", "samples.retentions")) for name in store.state())
    store.set_retention("s1", 100, AT)
    assert store.periods == {}, "nothing is kept of a subject of whom nothing is held"
    store.set_retention("s2", 100, AT)
    for name in store.ids_of_subject("s2"):
        store.set_subject(name, None)
    assert store.periods == {}
    store.check_invariants()


@pytest.mark.parametrize("period", [0, -1, 1.5, True, 2**63])
def test_a_period_is_a_number_of_milliseconds(period: Any):
    with pytest.raises(InputError):
        held().samples_.set_retention("s1", period, AT)


# Restriction

MARKS = {"ada": Mark(1700, False), "bob": Mark(1650, True)}


def restricted_model() -> Any:
    """Twenty samples, two of which are restricted for Ada and one for Bob."""
    model = DynamicForestClassifier(n_estimators=3, random_state=0)
    labels = ["no"] * 10 + ["yes"] * 9 + ["rare"]
    model.fit(rows(20), labels, ids=[f"p{i}" for i in range(20)], schema=CLASSES)
    store = model.samples_
    for name, subject in (("p3", "ada"), ("p19", "ada"), ("p5", "bob"), ("p6", "eve")):
        store.set_subject(name, subject)
    store.set_expiry("p5", 1000)
    store.note_additions(["p3", "p4", "p5"], 900, "import-7")
    store.note_additions(["p6"], 950, None)
    model.restrict(["p3", "p19", "p5"], MARKS)
    return model


def test_the_id_of_a_restricted_sample_is_taken():
    model = restricted_model()
    assert model.samples_.restricted.get("p5").restricted_ms == 1650
    with pytest.raises(DuplicateIdError, match="held as restricted"):
        model.add([[1, "a", True]], ["no"], ids=["p3"])
    with pytest.raises(UnknownIdError):
        model.delete("p3")
    with pytest.raises(UnknownIdError):
        model.release(["p6"])


def test_only_a_file_with_restricted_samples_has_the_new_format(tmp_path: Path):
    model, path = restricted_model(), tmp_path / "model"
    model.save(path)
    assert b'"version":"5"' in path.read_bytes()[:1_000_000]
    model.apply(model.plan_delete(["p3", "p5", "p19"]))
    model.save(path)
    assert b'"version":"4"' in path.read_bytes()[:1_000_000]
    assert b"import-7" in path.read_bytes()  # of a sample that is held
    model.delete("p4")
    model.save(path)
    assert b"import-7" not in path.read_bytes()


def _set(name: str, values: Any) -> Callable[[Arrays], Any]:
    """Other values of a part; None: without it."""
    if values is None:
        return lambda arrays: arrays.pop(name)
    return lambda arrays: arrays.update({name: np.asarray(values, arrays[name].dtype)})


def _twice(arrays: Arrays) -> None:
    """The id of a sample that is learned from."""
    text = arrays["restricted.samples.ids"].tobytes().replace(b"p19", b"p12")
    arrays["restricted.samples.ids"] = np.frombuffer(text, np.uint8)


@pytest.mark.parametrize("change", [
    _set("restricted.since", None), _set("restricted.samples.cells", None), _set("restricted.samples.requests", None),
    _set("restricted.keeps", [0, 2]), _set("restricted.since", [1700]), _set("restricted.subjects", list(b"adaeve")),
    _set("restricted.subjects", list(b"adaada")), _set("restricted.class_table.codes", [7, 8]),
    _set("restricted.samples.subject_rows", [0, 0, 1]), _set("samples.addition_moments", [0, 5]),
    _set("samples.addition_rows", [3, 0]), _twice,
    lambda arrays: arrays.update({"restricted.restricted.samples.ids": np.zeros(0, np.uint8)}),
])  # fmt: skip
def test_parts_that_do_not_fit_are_refused(tmp_path: Path, change: Callable[[Arrays], None]):
    path = tmp_path / "model"
    restricted_model().save(path)
    document, arrays = read(path)
    assert SampleStore.from_state(CLASSES, arrays)
    change(arrays)
    with pytest.raises(FileError):
        DynamicForestClassifier.read_parts(document, arrays)
