from __future__ import annotations

import datetime
import enum
import uuid

import pytest
import rfc8785
from hypothesis import given
from hypothesis import strategies as st

from oubli.app.ledger.entries import LARGEST_INTEGER, CanonicalError, canonical, entry_notes, read_notes

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
# Keys around the places where the order of code points and that of UTF-16 part.
KEYS = st.one_of(TEXT, st.text("a\U00010000\ue000\ud7ff\uffff~\x7f", max_size=3))
CONTENT = st.recursive(
    st.none() | st.booleans() | st.integers(-LARGEST_INTEGER, LARGEST_INTEGER) | TEXT,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(KEYS, inner, max_size=5),
    max_leaves=12,
)


@given(CONTENT)
def test_is_what_another_implementation_gives(content):
    assert canonical(content) == rfc8785.dumps(content)


def test_by_hand():
    assert canonical({"b": [True, None, -7], "a": 'é"\n\x1f/'}) == b'{"a":"\xc3\xa9\\"\\n\\u001f/","b":[true,null,-7]}'
    # U+10000 is D800 DC00 in UTF-16, before U+E000.
    assert canonical({"\ue000": 1, "\U00010000": 2}).index(b"2") < canonical({"\ue000": 1, "\U00010000": 2}).index(b"1")


class Word(enum.StrEnum):
    WORD = "word"


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
