"""All hashes of a tree, made at once, are those of the definition."""

import random
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import oubli.core.samples.set_tree as set_tree
from oubli.core.samples.set_tree import DEPTH, EMPTY_ROOT, HASH_BYTES, LANES, NONE, Kept, hash_tree
from tests.oracles.set_tree import at_depth, root


def contents_of(positions: list[int]) -> dict[int, bytes]:
    draw = random.Random(str(positions))
    return {position: draw.randbytes(HASH_BYTES) for position in positions}


def room_for(n: int) -> Kept:
    n_inner = max(n - 1, 0)
    hashes, numbers = np.zeros((n, HASH_BYTES), np.uint8), np.zeros(n_inner, np.int32)
    return Kept(hashes, np.zeros(n_inner, np.uint8), numbers, numbers.copy(), hashes[:n_inner].copy())


def made(contents: dict[int, bytes], middle: int) -> tuple[int, bytes, Kept]:
    kept = room_for(len(contents))
    leaves = np.frombuffer(b"".join(contents[position] for position in sorted(contents)), np.uint8)
    positions = np.array(sorted(contents), np.uint64)
    place, found = hash_tree(positions, leaves.reshape(-1, HASH_BYTES).copy(), middle, kept)
    return place, found, kept


def check(contents: dict[int, bytes], middle: int) -> None:
    """Compare root, chains and all nodes with the definition."""
    place, found, kept = made(contents, middle)
    positions = sorted(contents)
    assert found == root(contents)
    for leaf, position in enumerate(positions):
        assert kept.chains[leaf].tobytes() == at_depth(middle, {position: contents[position]})
    seen = set()

    def walk(node: int, top: int) -> list[int]:
        """Check what is below a node; return the leaves."""
        if node < 0:
            return [~node]
        seen.add(node)
        depth = int(kept.depths[node])
        leaves = walk(int(kept.left[node]), depth + 1) + walk(int(kept.right[node]), depth + 1)
        below = {positions[leaf]: contents[positions[leaf]] for leaf in leaves}
        assert kept.hashes[node].tobytes() == at_depth(top, below)
        return leaves

    assert walk(place, 0) == list(range(len(positions)))
    assert len(seen) == len(positions) - 1


@pytest.mark.parametrize("middle", [1, 7, 20, 47, 48])
@pytest.mark.parametrize("n", [1, 2, 3, LANES - 1, LANES, LANES + 1, 150])
def test_all_hashes_are_those_of_the_definition(n: int, middle: int) -> None:
    draw = random.Random(f"{n} {middle}")
    check(contents_of(draw.sample(range(2**DEPTH), n)), middle)


def test_nothing_has_the_root_of_nothing() -> None:
    place, found, _ = made({}, 8)
    assert (place, found) == (NONE, EMPTY_ROOT)
    assert found == root({})


POSITIONS = st.one_of(
    st.integers(0, 2**DEPTH - 1), st.integers(0, 63), st.integers(2**DEPTH - 64, 2**DEPTH - 1),
    st.builds(lambda high, low: high << 40 | low, st.integers(0, 255), st.integers(0, 3)),
)  # fmt: skip


@given(st.lists(POSITIONS, min_size=1, max_size=80, unique=True), st.integers(1, DEPTH))
def test_wherever_leaves_meet(positions: list[int], middle: int) -> None:
    check(contents_of(positions), middle)


@pytest.mark.parametrize("positions", [[2, 1], [1, 1], [0, 2**DEPTH]])
def test_positions_that_are_none_are_refused(positions: list[int]) -> None:
    kept = room_for(2)
    with pytest.raises(ValueError, match="ascend"):
        hash_tree(np.array(positions, np.uint64), kept.chains.copy(), 8, kept)


def test_scratch_is_overwritten(monkeypatch: pytest.MonkeyPatch) -> None:
    scratch, plant = list[Any](), set_tree._plant

    def noted(*arguments: Any) -> Any:
        place = plant(*arguments)
        scratch.extend((one, one.any()) for one in arguments[-1])
        return place

    monkeypatch.setattr(set_tree, "_plant", noted)
    made(contents_of(list(range(0, 2**DEPTH, 2**40))), 12)
    assert len(scratch) == 5
    assert all(was_used for _, was_used in scratch)
    assert not any(one.any() for one, _ in scratch)
