import copy
import pickle

import pytest

from oubli.core import errors
from oubli.core.errors import (
    CapacityError,
    DuplicateIdError,
    EmptyModelError,
    FeatureCountError,
    FileError,
    InputError,
    NotFittedError,
    OubliError,
    UnknownIdError,
)


def test_every_error_is_an_oubli_error_and_what_python_users_expect():
    for error, others in {
        InputError: (OubliError, ValueError), FeatureCountError: (InputError,), DuplicateIdError: (InputError,),
        UnknownIdError: (KeyError,), NotFittedError: (ValueError, AttributeError), CapacityError: (RuntimeError,),
        EmptyModelError: (RuntimeError,), FileError: (ValueError,),
    }.items():  # fmt: skip
        assert all(issubclass(error, other) for other in others)
    assert not issubclass(UnknownIdError, ValueError)
    raised = [v for v in vars(errors).values() if isinstance(v, type) and issubclass(v, Exception)]
    assert all(issubclass(v, (OubliError, Warning)) for v in raised)


class Broken:
    def __repr__(self):
        raise RuntimeError


@pytest.mark.parametrize(("error", "text"), [
    (InputError("must be a number"), "must be a number"),
    (InputError("must be a number", row=3), "row 3: must be a number"),
    (InputError("must be a number", field="age"), "'age': must be a number"),
    (InputError("must be a number", row=3, field="age", value="x"), "row 3, 'age': must be a number (got 'x')"),
    (InputError("must be a number", value=None), "must be a number (got None)"),
    (InputError("rule", row=1, field="age", value=2, message="the whole text"), "the whole text"),
    (FileError("is truncated"), "is truncated"),
    (UnknownIdError(["a"]), "no sample with this id is held: 'a'; nothing was changed"),
])  # fmt: skip
def test_text_says_where_which_rule_and_what(error, text):
    assert str(error) == text
    assert len(str(InputError("rule", value="x" * 10_000))) < 100
    assert str(InputError("rule", value=Broken())).startswith(f"rule (got <{__name__}.")


@pytest.mark.parametrize(
    ("given", "remedy"), [(13, "add the 1 missing"), (16, "remove the 2 that the schema does not have")]
)
def test_feature_count_says_what_to_do_in_the_words_of_scikit_learn(given, remedy):
    error = FeatureCountError(given, 14, owner="DynamicForestClassifier")
    start = f"X has {given} features, but DynamicForestClassifier is expecting 14 features as input"
    assert str(error).startswith(start)
    assert remedy in str(error)
    assert error.rule.startswith(f"must have 14 features, not {given}: {remedy}")
    assert (error.given, error.expected, error.row) == (given, 14, None)


def test_unknown_ids_are_listed_up_to_a_few():
    error = UnknownIdError(str(i) for i in range(100))
    assert error.ids == [str(i) for i in range(100)]
    assert "and 95 more" in str(error)
    assert "'4'" in str(error)
    assert "'5'" not in str(error)


@pytest.mark.parametrize("error", [
    InputError("rule", row=1, field="age", value="x"), FeatureCountError(3, 4, owner="Model", row=2),
    DuplicateIdError("rule", row=1, field="id", value="7"), UnknownIdError(["a", "b"]), NotFittedError("call fit"),
    CapacityError("too many"), FileError("is truncated"),
])  # fmt: skip
@pytest.mark.parametrize("way", [lambda e: pickle.loads(pickle.dumps(e)), copy.copy])  # noqa: S301 - our own bytes
def test_errors_survive_pickling_and_copying(error, way):
    other = way(error)
    assert type(other) is type(error)
    assert (str(other), vars(other)) == (str(error), vars(error))
