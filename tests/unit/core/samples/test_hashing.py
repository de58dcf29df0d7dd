"""Many texts are hashed as one is, by the standard library."""

from hashlib import blake2b

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from oubli.core.samples import hashing
from oubli.core.samples.hashing import hash_texts

TEXTS = st.lists(st.text(st.characters(exclude_categories=["Cs"])), max_size=5)


def expected(texts):
    """The trees of every sample depend on it, for ever."""
    return [int.from_bytes(blake2b(text.encode(), digest_size=8).digest(), "little") for text in texts]


@given(TEXTS)
def test_hashes_are_those_of_the_standard_library(texts):
    hashes = hash_texts(texts)
    assert (hashes.tolist(), hashes.dtype) == (expected(texts), np.uint64)


def test_texts_of_several_blocks_and_more_than_are_put_together(monkeypatch):
    texts = [letter * n for letter in ("a", "é", "\x00") for n in (0, 1, 7, 8, 9, 63, 64, 65, 127, 128, 129, 256, 257)]
    assert hash_texts(texts).tolist() == expected(texts)
    monkeypatch.setattr(hashing, "_ITEMS", 7)
    assert hash_texts(texts).tolist() == expected(texts)
