"""Restricted samples in the store, in copies and in files, and files in which they do not fit."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from oubli.core import DynamicForestClassifier
from oubli.core.array_types import Arrays
from oubli.core.errors import DuplicateIdError, FileError, UnknownIdError
from oubli.core.persistence import read
from oubli.core.samples.owners import Mark
from oubli.core.samples.store import SampleStore
from tests.unit.app.support import CLASSES, rows

MARKS = {"ada": Mark(1700, False), "bob": Mark(1650, True)}


def model() -> Any:
    """Twenty samples, two of which are restricted for Ada and one for Bob."""
    forest = DynamicForestClassifier(n_estimators=3, random_state=0)
    labels = ["no"] * 10 + ["yes"] * 9 + ["rare"]
    forest.fit(rows(20), labels, ids=[f"p{i}" for i in range(20)], schema=CLASSES)
    store = forest.samples_
    for name, subject in (("p3", "ada"), ("p19", "ada"), ("p5", "bob"), ("p6", "eve")):
        store.set_subject(name, subject)
    store.set_expiry("p5", 1000)
    store.note_additions(["p3", "p4", "p5"], 900, "import-7")
    store.note_additions(["p6"], 950, None)
    forest.restrict(["p3", "p19", "p5"], MARKS)
    return forest


def test_the_id_of_a_restricted_sample_is_taken():
    forest = model()
    assert forest.samples_.restricted.get("p5").restricted_ms == 1650
    with pytest.raises(DuplicateIdError, match="held as restricted"):
        forest.add([[1, "a", True]], ["no"], ids=["p3"])
    with pytest.raises(UnknownIdError):
        forest.delete("p3")
    with pytest.raises(UnknownIdError):
        forest.release(["p6"])


def test_only_a_file_with_restricted_samples_has_the_new_format(tmp_path: Path):
    forest, path = model(), tmp_path / "model"
    forest.save(path)
    assert b'"version":"5"' in path.read_bytes()[:1_000_000]
    forest.apply(forest.plan_delete(["p3", "p5", "p19"]))
    forest.save(path)
    assert b'"version":"4"' in path.read_bytes()[:1_000_000]
    assert b"import-7" in path.read_bytes()  # of a sample that is held
    forest.delete("p4")
    forest.save(path)
    assert b"import-7" not in path.read_bytes()


def test_shredding_overwrites_them():
    forest = model()
    cells = forest.samples_.restricted.cells
    assert cells.any()
    forest.shred()
    assert not cells.any()


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
    model().save(path)
    document, arrays = read(path)
    assert SampleStore.from_state(CLASSES, arrays)
    change(arrays)
    with pytest.raises(FileError):
        DynamicForestClassifier.read_parts(document, arrays)
