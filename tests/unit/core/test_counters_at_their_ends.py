"""Numbers at the ends of what a file may hold: what `load` accepts can be worked with, saved and loaded again."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from oubli.core import DynamicForestClassifier, DynamicTreeClassifier, OnlineBoostingClassifier, load
from oubli.core.bounds import LARGEST_COUNT, LARGEST_COUNTER
from oubli.core.data.values import MOMENTS
from oubli.core.errors import CapacityError, FileError, InputError
from oubli.core.persistence import read, write
from oubli.core.samples.owners import Mark
from oubli.core.samples.records import Rows

X, Y = np.random.default_rng(0).normal(size=(12, 2)), ["a", "b"] * 6


def fitted(kind: Any = DynamicForestClassifier) -> Any:
    parameters = {} if kind is DynamicTreeClassifier else {"n_estimators": 2}
    model = kind(random_state=0, **parameters).fit(X, Y, subjects=["ada"] * 6 + [None] * 6)
    store = model.samples_
    store.set_expiry("8", 10**12)
    store.note_additions(["0", "1"], 10**12, "r")
    store.set_retention("ada", 1000, 5)
    store.set_origins(["2"], 7)
    return model


def altered(model: Any, path: Path, key: str, value: int) -> Path:
    """A file of the model with another value in the document, or at the beginning of a part."""
    model.save(path / "model")
    document, arrays = read(path / "model")
    if key in document:
        document[key] = value
    else:
        arrays[key] = arrays[key].copy()
        arrays[key][0] = value
    write(path / "altered", arrays, document, with_rights=True)
    return path / "altered"


def works(model: Any, path: Path) -> None:
    model.check_invariants()
    assert model.verify().ok
    model.save(path / "again")
    assert load(path / "again").digest() == model.digest()


@pytest.mark.parametrize("n_rows", [1, 2])
@pytest.mark.parametrize("value", [2**53, LARGEST_COUNTER - 13, LARGEST_COUNTER])
def test_ids_are_generated_up_to_the_end_of_the_counter(tmp_path: Path, value: int, n_rows: int) -> None:
    model = load(altered(fitted(), tmp_path, "samples.next_id", value))
    rows, labels = X[:n_rows].tolist(), Y[:n_rows]
    if value + n_rows + 12 <= LARGEST_COUNTER:
        assert model.add(rows, labels) == [str(value + row) for row in range(n_rows)]
    else:
        with pytest.raises(CapacityError, match="no more ids can be generated: give each sample an id"):
            model.add(rows, labels)
        assert model.n_samples_ == 12
        model.add(rows, labels, ids=list("pq"[:n_rows]))
    works(model, tmp_path)
    with pytest.raises(FileError):
        load(altered(fitted(), tmp_path, "samples.next_id", LARGEST_COUNTER + 1))


@pytest.mark.parametrize("kind", [DynamicTreeClassifier, OnlineBoostingClassifier])
def test_changes_are_counted_up_to_the_largest_count(tmp_path: Path, kind: Any) -> None:
    model = load(altered(fitted(kind), tmp_path, "n_mutations", LARGEST_COUNT))
    model.add(X[:2], Y[:2])
    model.delete("3")
    works(model, tmp_path)


@pytest.mark.parametrize("key", ["expiries", "addition_moments", "retained_since", "retentions"])
def test_times_of_a_file_can_be_written_as_dates(tmp_path: Path, key: str) -> None:
    for value in (2**62, MOMENTS[-1] + 1, -(2**63), MOMENTS[0] - 1):
        with pytest.raises(FileError):
            load(altered(fitted(), tmp_path, f"samples.{key}", value))
    model = load(altered(fitted(), tmp_path, f"samples.{key}", MOMENTS[-1]))
    model.samples_.set_subject("7", "ada")
    moments = [model.samples_.expiry(name) for name in model.samples_.ids()]
    assert all(moment is None or moment in MOMENTS for moment in moments)
    works(model, tmp_path)


@pytest.mark.parametrize("change", [
    lambda m: m.samples_.note_additions(["0"], 0, None), lambda m: m.samples_.note_additions(["0"], -5, None),
    lambda m: m.samples_.note_additions(["0"], 2**70, None), lambda m: m.samples_.set_origins(["0"], 2**70),
    lambda m: m.samples_.note_additions(["0"], 5, "\ud800"), lambda m: m.samples_.set_origins(["0"], 2**63 - 1),
    lambda m: m.samples_.set_retention("ada", 1, 2**70), lambda m: m.samples_.set_retention("ada", 2**62, 1),
    lambda m: m.samples_.set_expiry("0", MOMENTS[-1] + 1), lambda m: m.restrict(["0"], {"ada": Mark(2**70, False)}),
    lambda m: m.plan_replace("0", [[1.0, 2.0]], "a", origin=2**70),
    lambda m: m.plan_add(Rows(X[:1], ["new"], origin=2**70), Y[:1]),
    lambda m: m.apply(m.plan_replace("7", [[1.0, 2.0]], "a", nonce=b"short")),
])  # fmt: skip
def test_what_a_file_cannot_hold_is_refused_before_anything_changes(tmp_path: Path, change: Any) -> None:
    model = fitted()
    with pytest.raises(InputError):
        change(model)
    works(model, tmp_path)


@pytest.mark.parametrize(("extra", "rule"), [
    ({"a": "x" * (2**20 + 1)}, "a field of extra must be a text of at most 1048576 characters"),
    ({"a": "\ud800"}, "a field of extra must be a text of at most"),
    ({str(i): "" for i in range(1001)}, "extra has more than 1000 fields"),
])  # fmt: skip
def test_what_is_kept_beside_a_model_can_be_read_again(tmp_path: Path, extra: dict[str, str], rule: str) -> None:
    with pytest.raises(InputError, match=rule):
        fitted().save(tmp_path / "m", extra=extra)
    assert not (tmp_path / "m").exists()
