"""Canonical forms: of entries, and of what the leaves of a set are hashed from, as the verifier has them."""

import datetime
import enum
import json
import uuid
from hashlib import sha256
from typing import Any

import orjson
import pytest
import rfc8785
from hypothesis import example, given
from hypothesis import strategies as st

from oubli.app.ledger import set_tree
from oubli.app.ledger.entries import LARGEST_INTEGER, CanonicalError, canonical, entry_notes, read_notes
from oubli.verifier import sets
from oubli.verifier.canonical import canonical_sample
from tests.unit.verifier.test_canonical import FLOATS, NUMBERS

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
# Keys around the places where the order of code points and that of UTF-16 part.
KEYS = st.one_of(TEXT, st.text("a\U00010000\ue000\ud7ff\uffff~\x7f", max_size=3))
CONTENT = st.recursive(
    st.none() | st.booleans() | st.integers(-LARGEST_INTEGER, LARGEST_INTEGER) | TEXT,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(KEYS, inner, max_size=5),
    max_leaves=12,
)


@given(CONTENT)
@example({"b": [True, None, -7], "a": 'é"\n\x1f/'})
@example({"\ue000": 1, "\U00010000": 2})  # the other way round in UTF-16
def test_is_what_another_implementation_gives(content):
    assert canonical(content) == rfc8785.dumps(content)


Word = enum.StrEnum("Word", ["WORD"])


class Number(int):
    pass


@pytest.mark.parametrize(
    "content",
    [
        *(1.0, float("nan"), LARGEST_INTEGER + 1, -LARGEST_INTEGER - 1, (1, 2), {1: "a"}, {None: "a"}, {"a": [0.5]}),
        *(b"bytes", datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC), uuid.UUID(int=7), Word.WORD, Number(1)),
        *({Word.WORD: 1}, "\ud800", {"\udc00": 1}, {"a"}),
    ],
    ids=repr,
)
def test_refuses_everything_else(content):
    with pytest.raises(CanonicalError) as caught:
        canonical({"inside": [content]})
    assert "word" not in str(caught.value)


def test_refuses_what_is_nested_too_deeply():
    content: list[object] = []
    for _ in range(2000):
        content = [content]
    with pytest.raises(CanonicalError):
        canonical(content)


def test_notes_hold_what_they_were_made_of():
    entries = [{"index": 7, "type": "unlearned"}]
    read = read_notes(entry_notes(entries, {"7": "signature"}, ["7"]))
    assert (read.entries, read.signatures, read.push) == (entries, {"7": "signature"}, ["7"])
    assert read_notes(entry_notes(entries)).signatures == {}


NAMES = st.text(min_size=1, max_size=20)


def check_number(value: float) -> None:
    assert orjson.dumps(set_tree.as_written(value)) == canonical_sample(value) == rfc8785.dumps(value)
    assert float(json.loads(canonical_sample(value))) == value


def test_numbers_are_written_alike():
    for value in NUMBERS:
        check_number(value)
    given(FLOATS)(check_number)()


@given(NAMES, st.binary(min_size=32, max_size=32))
def test_positions_are_those_of_the_verifier(name, key):
    id_place, subject_place = (set_tree.Positions(key).of((kind, name)) for kind in ("id", "subject"))
    assert id_place == sets.position_of(key, "ids", name) < 2**47
    assert 2**47 <= subject_place == sets.position_of(key, "subjects", name) < 2**48
    assert set_tree.commitment_of(key) == sets.commitment_of(key)


VALUES = st.none() | st.booleans() | st.integers(-(2**63), 2**63) | FLOATS


@given(
    st.dictionaries(st.text(max_size=8), VALUES | st.text(max_size=8), max_size=5),
    st.text(min_size=1, max_size=8),
    st.none() | st.text(min_size=1, max_size=8),
    VALUES | st.text(max_size=8),
    st.none() | st.integers(1, 2**23).map(lambda units: units / 256),
)
def test_hashes_of_samples_are_those_of_the_verifier(features: dict[str, Any], name, subject, label, weight):
    nonce = bytes(range(16))
    written = {column: set_tree.as_written(features[column]) for column in set_tree.in_order(features)}
    found = set_tree.hash_of_sample(nonce, name, subject, written, set_tree.as_written(label), weight or 1)
    # As it is after a way through JSON.
    sample = {"id": name, "subject": subject, "features": features, "label": label, "nonce": nonce.hex()}
    sample |= {} if weight is None else {"weight": weight}
    assert found == sets.hash_of_sample(json.loads(json.dumps(sample)))


def test_a_content_of_several_has_no_order():
    hashes = [sha256(bytes([number])).digest() for number in range(5)]
    assert set_tree.content_of(hashes) == set_tree.content_of(hashes[::-1]) == sets._together(hashes)
