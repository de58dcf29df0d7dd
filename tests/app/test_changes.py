from __future__ import annotations

import pytest

from app.changes import add_samples, delete_ids, delete_subjects, end_of_ids, replace_sample, with_generated
from app.errors import ConflictError, NotHeldError
from app.outcomes import KEEP, NewSamples
from core.errors import InputError
from tests.app.support import forest


def batch(*ids, age=1, label="yes", subject=None):
    return NewSamples([[age, "a", True] for _ in ids], [label for _ in ids], list(ids), [subject for _ in ids])


def test_generated_ids_lie_above_all_numbers_of_the_request():
    assert with_generated([None, "x", None], 5) == ["5", "x", "6"]
    assert with_generated([None, "7", None, "007"], 5) == ["8", "7", "9", "007"]
    assert with_generated(["3", "x"], 5) == ["3", "x"]
    assert end_of_ids([None, "7", None], 5) == 10
    assert end_of_ids(["x"], 5) == 5


def test_adds_what_is_new_and_accepts_what_is_the_same():
    model = forest(10)
    assert add_samples(model, batch("a", "b", subject="p")) == (["a", "b"], 2)
    before = model.digest()
    assert add_samples(model, batch("b", "a", subject="p")) == (["b", "a"], 0)
    assert model.digest() == before
    assert add_samples(model, batch("a", "c", "b", None, subject="p"), id_floor=100) == (["a", "c", "b", "100"], 2)
    assert model.samples_.ids_of_subject("p") == ["a", "b", "c", "100"]


@pytest.mark.parametrize("other", [{"age": 2}, {"label": "no"}, {"subject": "q"}])
def test_a_conflict_changes_nothing(other):
    model = forest(10)
    add_samples(model, batch("a", "b"))
    before = model.digest()
    with pytest.raises(ConflictError) as caught:
        add_samples(model, batch("new", "a", "newer", "b", **other))
    assert caught.value.rows == (1, 3)
    assert model.digest() == before
    assert model.n_samples_ == 12


def test_content_is_compared_as_held():
    model = forest(10)
    add_samples(model, batch("a", age=0.1))
    assert add_samples(model, batch("a", age=0.1))[1] == 0
    assert add_samples(model, batch("a", age=0.10000000149011612))[1] == 0


def test_a_wrong_row_is_named_by_its_position_in_the_request():
    model = forest(10)
    add_samples(model, batch("a"))
    samples = batch("a", "b", "c")
    samples.rows[2] = ["text", "a", True]
    with pytest.raises(InputError) as caught:
        add_samples(model, samples)
    assert (caught.value.row, caught.value.field) == (2, "age")
    assert model.n_samples_ == 11


def test_rectifies_what_changed():
    model = forest(10)
    before = model.digest()
    assert replace_sample(model, "c1", [7, "b", False], "yes", KEEP) == (False, False)
    assert model.digest() == before
    assert replace_sample(model, "c1", [7, "b", False], "yes", "p") == (False, True)
    assert model.digest() == before
    assert replace_sample(model, "c1", [9, "new", None], "maybe", KEEP) == (True, True)
    held = model.samples_.get("c1")
    assert (held.features, held.label, held.subject) == ([9.0, "new", None], "maybe", "p")
    assert replace_sample(model, "c1", [9, "new", None], "maybe", None) == (False, True)
    assert model.samples_.subject("c1") is None
    with pytest.raises(NotHeldError):
        replace_sample(model, "nobody", [1, "a", True], "yes", KEEP)


def test_a_refused_rectification_changes_nothing():
    model = forest(10)
    before = model.digest()
    with pytest.raises(InputError):
        replace_sample(model, "c1", [float("inf"), "a", True], "yes", "p")
    assert model.digest() == before
    assert model.samples_.subject("c1") == "s1"


def test_deletes_what_is_held_and_counts_the_rest():
    model = forest(10)
    assert delete_ids(model, ["c1", "nobody", "c2"]) == (["c1", "c2"], 1)
    assert delete_ids(model, ["c1"]) == ([], 1)
    assert delete_subjects(model, ["s0", "s1", "nobody"]) == (["c0", "c5", "c6"], 1)
    assert model.n_samples_ == 5
