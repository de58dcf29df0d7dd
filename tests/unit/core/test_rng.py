"""`oubli.core.rng` against known answers; histories compare all that is drawn with the oracles."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from oubli.core import rng
from tests.oracles import common

EDGES = [0, 1, 2**31, 2**32 - 1, 2**32, 2**63 - 1, 2**63, 2**64 - 1]
words = st.integers(0, 2**64 - 1) | st.sampled_from(EDGES)


def u64(value: int) -> np.uint64:
    """A word as kernels take it: a compiled kernel returns a plain int, which would be read as int64."""
    return np.uint64(value)


@given(words)
def test_mix_is_the_finaliser_of_splitmix64(word: int) -> None:
    assert int(rng.mix(u64(word))) == common.mix(word)


def test_mix_gives_the_published_sequence() -> None:
    """splitmix64 seeded with 1234567: the widely published first outputs."""
    state, outputs = 1234567, []
    for _ in range(3):
        state = (state + common.GOLDEN) % 2**64
        outputs.append(int(rng.mix(u64(state))))
    assert outputs == [6457827717110365317, 3203168211198807973, 9817491932198370423]


@given(st.text(max_size=40))
def test_hash_text_hashes_utf8(text: str) -> None:
    assert rng.hash_text(text) == common.hash_bytes(text.encode("utf-8"))
    assert int(rng.MISSING_CATEGORY) == common.MISSING_CATEGORY != rng.hash_text(text)
