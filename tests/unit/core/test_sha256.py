"""The hashes of messages side by side are those of `hashlib`, and those that were published."""

import hashlib
import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numba import config

from oubli.core.jit.policy import kernel
from oubli.core.samples.set_tree import LANES, N_BLOCK, N_WORDS, STATE, begin, compress, new_room

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
