"""Nonces of samples come and go with them, and cost nothing where there are none."""

import copy
from pathlib import Path
from typing import Any

import pytest

import oubli
from oubli.core.errors import InputError, UnknownIdError
from oubli.core.samples.indexes import NONCE_BYTES
from oubli.core.samples.owners import Mark
from tests.unit.app.support import forest


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


def test_they_are_in_copies_pickles_and_files(tmp_path: Path):
    model = model_with()
    model.restrict(["c3", "c8"], {"s3": Mark(7, True)})
    path = tmp_path / "model"
    model.save(path)
    for other in (model.copy(), copy.deepcopy(model), oubli.load(path)):
        assert other.samples_.nonce("c5") == bytes([6]) * NONCE_BYTES
        assert other.samples_.restricted.nonce("c3") == bytes([4]) * NONCE_BYTES
        other.check_invariants()
    other = model.copy()
    other.shred()
    assert model.samples_.nonce("c5") is not None
