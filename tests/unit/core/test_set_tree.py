"""All hashes of a tree, made at once, are those of the definition."""

import hashlib
import random
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numba import config

import oubli.core.samples.set_tree as set_tree
from oubli.core.jit.policy import kernel
from oubli.core.samples.set_tree import (
    DEPTH,
    EMPTY_ROOT,
    HASH_BYTES,
    LANES,
    N_BLOCK,
    N_WORDS,
    NONE,
    STATE,
    Kept,
    begin,
    compress,
    hash_tree,
    new_room,
)
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
    st.integers(0, 2**DEPTH - 1),
    st.integers(0, 63),
    st.integers(2**DEPTH - 64, 2**DEPTH - 1),
    st.builds(lambda high, low: high << 40 | low, st.integers(0, 255), st.integers(0, 3)),
)


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


# SHA-256 of messages side by side

# FIPS 180-2, appendix B, and NIST's example of a message without bytes.
PUBLISHED = {
    b"": "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
    b"abc": "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad",
    b"abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq": (
        "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1"
    ),
    b"a" * 1_000_000: "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0",
}


@kernel
def hash_blocks(blocks, room):
    """Hash messages of uint32[block, word, lane], padded."""
    begin(room)
    for block in range(blocks.shape[0]):
        for word in range(N_BLOCK):
            for lane in range(LANES):
                room[word * LANES + lane] = blocks[block, word, lane]
        compress(room)


def padded(message: bytes) -> bytes:
    zeros = bytes(-(len(message) + 9) % 64)
    return message + b"\x80" + zeros + (8 * len(message)).to_bytes(8, "big")


def hashes_of(messages: list[bytes]) -> list[bytes]:
    """Hash a message in each lane, all of one length."""
    assert len(messages) == LANES
    words = np.frombuffer(b"".join(map(padded, messages)), ">u4").astype(np.uint32)
    blocks = np.ascontiguousarray(words.reshape(LANES, -1, N_BLOCK).transpose(1, 2, 0))
    room = new_room()
    hash_blocks(blocks, room)
    found = room[STATE * LANES : (STATE + N_WORDS) * LANES].reshape(N_WORDS, LANES).T
    return [one.astype(">u4").tobytes() for one in found]


if config.DISABLE_JIT:
    del PUBLISHED[b"a" * 1_000_000]  # it would take hours


@pytest.mark.parametrize("message", PUBLISHED, ids=lambda message: f"{len(message)} bytes")
def test_published_hashes(message: bytes) -> None:
    assert {one.hex() for one in hashes_of([message] * LANES)} == {PUBLISHED[message]}


@given(st.one_of(st.sampled_from([33, 65]), st.integers(0, 200)), st.integers(0))
def test_every_lane_has_the_hash_of_its_own_message(length: int, seed: int) -> None:
    draw = random.Random(seed)
    messages = [draw.randbytes(length) for _ in range(LANES)]
    assert hashes_of(messages) == [hashlib.sha256(one).digest() for one in messages]


@given(st.lists(st.sampled_from([b"\x00", b"\xff", b"\x80", b"\x01"]), min_size=33, max_size=33))
def test_messages_of_extreme_bytes(parts: list[bytes]) -> None:
    message = b"".join(parts)
    turned = [message[lane:] + message[:lane] for lane in range(LANES)]
    assert hashes_of(turned) == [hashlib.sha256(one).digest() for one in turned]
