"""Instructions for the bits of a word, in kernels and without compiling."""

import numpy as np
import pytest

from oubli.core.jit import aligned
from oubli.core.jit.policy import kernel

WORDS = [0, 1, 2, 3, 0b1011000, 2**32, 2**63, 2**63 + 2**40, 2**64 - 1]


@kernel
def look_at(word):
    """Both instructions, as kernels use them."""
    return aligned.count_ones(word), aligned.trailing_zeros(word)


@pytest.mark.parametrize("word", WORDS)
def test_ones_and_zeros(word: int) -> None:
    text = f"{word:064b}"
    expected = text.count("1"), 64 - len(text.rstrip("0"))
    assert look_at(np.uint64(word)) == expected
    assert (aligned._ones(np.uint64(word)), aligned._trailing_zeros(np.uint64(word))) == expected
