"""Arrays that begin with a cache line, and instructions of the processor."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from oubli.core import DynamicForestClassifier, load
from oubli.core.jit import aligned
from oubli.core.jit.aligned import prefetch_to_read, zeros
from oubli.core.jit.policy import kernel

RECORD = np.dtype([("value", "f8"), ("child", "i4"), ("kind", "i4")])


@pytest.mark.parametrize("shape", [0, 1, (3, 5), (0, 4), 100_000])
@pytest.mark.parametrize("dtype", ["u1", "i4", "f8", RECORD])
def test_zeros(shape: Any, dtype: Any) -> None:
    array, expected = zeros(shape, dtype), np.zeros(shape, dtype)
    assert (array.shape, array.dtype) == (expected.shape, expected.dtype)
    assert array.tobytes() == expected.tobytes()
    assert not array.size or array.ctypes.data % 64 == 0
    assert all(array.flags[name] for name in ("C_CONTIGUOUS", "ALIGNED", "WRITEABLE"))


def test_the_nodes_and_counters_of_a_forest_begin_with_a_line(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(3000, 4)), rng.integers(0, 2, 3000)
    forest = DynamicForestClassifier(n_estimators=3, occurrence=0.7, random_state=0).fit(X, y)
    for i in range(500):
        forest.add(rng.normal(size=(1, 4)), [2 + i % 3])  # pools are enlarged, counters laid out again
    forest.resolve()
    forest.save(tmp_path / "forest")
    for model in (forest, forest.copy(), load(tmp_path / "forest")):
        ensemble = model.engine_
        assert ensemble.trees.nodes.ctypes.data % 64 == 0
        assert ensemble.blocks.longs.ctypes.data % 64 == 0
        assert ensemble.blocks.longs.strides[0] % 64 == 0


@kernel
def _ask_for(array: Any, place: int) -> int:
    prefetch_to_read(array, (place,))
    return len(array)


@pytest.mark.parametrize("place", [0, -5, 10**9])
def test_asking_for_memory_that_is_not_there_does_no_harm(place: int) -> None:
    assert _ask_for(np.zeros(3), place) == 3


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
