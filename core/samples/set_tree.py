r"""The hashes of a prefix tree over a set, made of all leaves at once, level by level; see `oubli.app.ledger.set_tree`.

    depth 0            root                     every leaf is at depth 48, at the place that its position says,
                      /    \                    the first bit decides first
    depth 1          a      b                   two children   SHA-256(0x01 | left | right)
                    / \      \                  a left one     SHA-256(0x02 | child)
    ...            c   d      e                 a right one    SHA-256(0x03 | child)
    depth 48       leaf                         SHA-256(0x00 | content)

Most hashes are those of chains: leaves are 48 levels down and branch in the first twenty or so. So the leaves' chains
are made up to a middle depth in blocks of `LANES`. From there on the hashes that are left climb a level at a time;
where two meet they become one. The few leaves that meet others below the middle depth climb by themselves before.

SHA-256 (FIPS 180-4) of many messages at once, for kernels: the same steps for each of `LANES` messages side by side.

`hashlib` is faster for a single message, because OpenSSL uses the processor's instructions for it. From Python a call
takes several times as long as a hash of a short message, and holds the interpreter.

All words are in one array, the room, a row for each with one word a lane:

    rows  0 .. 63   the message, 16 words of a block; `compress` makes the others of them
    rows 64 .. 71   the hash so far; `begin` says with what a hash begins
    rows 72 .. 79   free between two calls of `compress`
    rows 80 ..      never used here

The distances between rows are known when a kernel is compiled, so that LLVM can prove that loops over lanes may be made
of vector instructions.
"""

from hashlib import sha256
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from oubli.core.array_types import Hashes
from oubli.core.jit.aligned import shred
from oubli.core.jit.policy import inner, kernel, pasted

LANES = 32
N_WORDS = 8  # of a hash
N_BLOCK = 16  # words
STATE = 64  # the row of the first word of the hash
WORK = STATE + N_WORDS
SPARE = WORK + N_WORDS  # the first row that callers may use as they like

# The first 32 bits of the fractions of the square roots of the first 8 primes, and of the cube roots of the first 64.
_FIRST = np.array(
    [0x6A09E667, 0xBB67AE85, 0x3C6EF372, 0xA54FF53A, 0x510E527F, 0x9B05688C, 0x1F83D9AB, 0x5BE0CD19], np.uint32
)
_K = np.array(
    [
        0x428A2F98, 0x71374491, 0xB5C0FBCF, 0xE9B5DBA5, 0x3956C25B, 0x59F111F1, 0x923F82A4, 0xAB1C5ED5,
        0xD807AA98, 0x12835B01, 0x243185BE, 0x550C7DC3, 0x72BE5D74, 0x80DEB1FE, 0x9BDC06A7, 0xC19BF174,
        0xE49B69C1, 0xEFBE4786, 0x0FC19DC6, 0x240CA1CC, 0x2DE92C6F, 0x4A7484AA, 0x5CB0A9DC, 0x76F988DA,
        0x983E5152, 0xA831C66D, 0xB00327C8, 0xBF597FC7, 0xC6E00BF3, 0xD5A79147, 0x06CA6351, 0x14292967,
        0x27B70A85, 0x2E1B2138, 0x4D2C6DFC, 0x53380D13, 0x650A7354, 0x766A0ABB, 0x81C2C92E, 0x92722C85,
        0xA2BFE8A1, 0xA81A664B, 0xC24B8B70, 0xC76C51A3, 0xD192E819, 0xD6990624, 0xF40E3585, 0x106AA070,
        0x19A4C116, 0x1E376C08, 0x2748774C, 0x34B0BCB5, 0x391C0CB3, 0x4ED8AA4A, 0x5B9CCA4F, 0x682E6FF3,
        0x748F82EE, 0x78A5636F, 0x84C87814, 0x8CC70208, 0x90BEFFFA, 0xA4506CEB, 0xBEF9A3F7, 0xC67178F2,
    ],
    np.uint32,
)  # fmt: skip
_N_ROUNDS = len(_K)
_AT_ONCE = 8  # rounds after which each variable has its own name again


def new_room(n_spare: int = 0) -> npt.NDArray[np.uint32]:
    """Return room for hashing, with so many rows for the caller's own use."""
    return np.zeros((SPARE + n_spare) * LANES, np.uint32)


@pasted
def _rotated(word, n):
    return np.uint32(word >> np.uint32(n)) | np.uint32(word << np.uint32(32 - n))


@pasted
def _round(a, b, c, d, e, f, g, h, k):
    """Return what the variables d and h become; k is the constant and the message's word, added up."""
    sum_1 = _rotated(e, 6) ^ _rotated(e, 11) ^ _rotated(e, 25)
    sum_0 = _rotated(a, 2) ^ _rotated(a, 13) ^ _rotated(a, 22)
    chosen, most = g ^ (e & (f ^ g)), (a & b) | (c & (a | b))
    found = np.uint32(h + sum_1 + chosen + k)
    return np.uint32(d + found), np.uint32(found + sum_0 + most)


@pasted
def begin(room):
    """Begin a hash in each lane."""
    for word in range(N_WORDS):
        start = (STATE + word) * LANES
        for lane in range(LANES):
            room[start + lane] = _FIRST[word]


@inner
def compress(room):
    """Take a block of a message into the hash in each lane."""
    for number in range(N_BLOCK, _N_ROUNDS):
        at = number * LANES
        for lane in range(LANES):
            w15, w2 = room[at - 15 * LANES + lane], room[at - 2 * LANES + lane]
            s0 = _rotated(w15, 7) ^ _rotated(w15, 18) ^ np.uint32(w15 >> np.uint32(3))
            s1 = _rotated(w2, 17) ^ _rotated(w2, 19) ^ np.uint32(w2 >> np.uint32(10))
            room[at + lane] = np.uint32(room[at - 16 * LANES + lane] + s0 + room[at - 7 * LANES + lane] + s1)
    for i in range(N_WORDS * LANES):
        room[WORK * LANES + i] = room[STATE * LANES + i]
    for first in range(0, _N_ROUNDS, _AT_ONCE):
        at = first * LANES
        k0, k1, k2, k3 = _K[first], _K[first + 1], _K[first + 2], _K[first + 3]
        k4, k5, k6, k7 = _K[first + 4], _K[first + 5], _K[first + 6], _K[first + 7]
        for lane in range(LANES):
            own = WORK * LANES + lane
            a, b, c, d = room[own], room[own + LANES], room[own + 2 * LANES], room[own + 3 * LANES]
            e, f, g = room[own + 4 * LANES], room[own + 5 * LANES], room[own + 6 * LANES]
            h, i = room[own + 7 * LANES], at + lane
            d, h = _round(a, b, c, d, e, f, g, h, np.uint32(k0 + room[i]))
            c, g = _round(h, a, b, c, d, e, f, g, np.uint32(k1 + room[i + LANES]))
            b, f = _round(g, h, a, b, c, d, e, f, np.uint32(k2 + room[i + 2 * LANES]))
            a, e = _round(f, g, h, a, b, c, d, e, np.uint32(k3 + room[i + 3 * LANES]))
            h, d = _round(e, f, g, h, a, b, c, d, np.uint32(k4 + room[i + 4 * LANES]))
            g, c = _round(d, e, f, g, h, a, b, c, np.uint32(k5 + room[i + 5 * LANES]))
            f, b = _round(c, d, e, f, g, h, a, b, np.uint32(k6 + room[i + 6 * LANES]))
            e, a = _round(b, c, d, e, f, g, h, a, np.uint32(k7 + room[i + 7 * LANES]))
            room[own], room[own + LANES], room[own + 2 * LANES], room[own + 3 * LANES] = a, b, c, d
            room[own + 4 * LANES], room[own + 5 * LANES], room[own + 6 * LANES] = e, f, g
            room[own + 7 * LANES] = h
    for i in range(N_WORDS * LANES):
        room[STATE * LANES + i] = np.uint32(room[STATE * LANES + i] + room[WORK * LANES + i])


DEPTH = 48
HASH_BYTES = 32
EMPTY_ROOT = sha256().digest()
NONE = -(2**31)  # the uppermost place of a tree without leaves
Bytes = npt.NDArray[np.uint8]
Numbers = npt.NDArray[np.int32]

_LEAF, _BOTH, _ONE = np.uint32(0), np.uint32(1), np.uint32(2)  # the first bytes of messages
_END = np.uint32(0x80000000)  # behind the last bit of a message
_BITS_ONE = np.uint32(8 * (1 + HASH_BYTES))
_BITS_BOTH = np.uint32(8 * (1 + 2 * HASH_BYTES))
_ZERO, _8, _24 = np.uint32(0), np.uint32(8), np.uint32(24)
_BIT, _DEPTH = np.uint64(1), np.uint64(DEPTH)
_TAGS, _LAST = SPARE, SPARE + 1  # rows of the room: first bytes, and the last word of the right child
_N_SPARE = 2


class Kept(NamedTuple):
    """What a tree keeps of its hashes, to be filled.

    Attributes
    ----------
    chains
        uint8[n, 32]: of each of n leaves, the hash of its chain at the middle depth.
    depths
        uint8[n - 1], or none: of each node with two children, where they branch.
    left, right
        int32[n - 1]: its children: nodes from 0 on, or leaves as the complements of their numbers.
    hashes
        uint8[n - 1, 32]: the hash of the node below its parent; that of the uppermost is at depth 0.
    """

    chains: Bytes
    depths: Bytes
    left: Numbers
    right: Numbers
    hashes: Bytes


class _Scratch(NamedTuple):
    """Where hashes climb.

    Attributes
    ----------
    words
        uint32[n, 8]: the hash that a leaf's place on the way up has at present.
    rows
        int32[n]: which of them are still climbing, by position.
    places
        int32[n]: what each of them is the hash of: a node or a leaf, as in `Kept`.
    pending
        int32[3, LANES]: rows that wait for others, with one child, and with two.
    room
        See `oubli.core.samples.set_tree`.
    """

    words: npt.NDArray[np.uint32]
    rows: Numbers
    places: Numbers
    pending: Numbers
    room: npt.NDArray[np.uint32]


def hash_tree(positions: Hashes, contents: Bytes, middle: int, kept: Kept) -> tuple[int, bytes]:
    """Make all hashes of a tree; return its uppermost place, a node or a leaf as in `Kept` or `NONE`, and the root.

    Parameters
    ----------
    positions
        uint64[n], below 2**48, ascending, each once.
    contents
        uint8[n, 32], what the leaves are hashes of.
    middle
        Up to which depth the chain of each leaf is made by itself, 1 to 48.
    kept
        Filled.

    Raises
    ------
    ValueError
        When the positions are in another order, or there is one too large.
    """
    n = len(positions)
    if not (positions[:-1] < positions[1:]).all() or (positions[-1:] >> _DEPTH).any():
        raise ValueError("positions must be below 2**48 and ascend")
    scratch = _Scratch(
        np.zeros((n, N_WORDS), np.uint32),
        np.zeros(n, np.int32),
        np.zeros(n, np.int32),
        np.zeros((3, LANES), np.int32),
        new_room(_N_SPARE),
    )
    try:
        place = int(_plant(positions, contents, middle, kept, scratch))
        return place, scratch.words[0].astype(">u4").tobytes() if n else EMPTY_ROOT
    finally:
        shred(scratch)


@kernel
def _plant(positions, contents, middle, kept, scratch):
    """Fill a tree; return its uppermost place. The root is the first row of the words."""
    n = len(positions)
    rows, places = scratch.rows, scratch.places
    if n == 0:
        return NONE
    for row in range(n):
        rows[row] = row
        places[row] = ~row
    _climb_alone(positions, contents, n, middle, scratch)
    for row in range(n):
        _put(kept.chains, row, scratch.words, row)
    below = np.uint64(DEPTH - middle)
    m = 0
    for row in range(n):
        is_deep = row > 0 and positions[row - 1] >> below == positions[row] >> below
        is_deep |= row + 1 < n and positions[row] >> below == positions[row + 1] >> below
        if is_deep:
            rows[m] = row
            m += 1
    _climb_alone(positions, contents, m, DEPTH, scratch)
    n_nodes = _climb(positions, m, DEPTH, middle, 0, kept, scratch)
    m = 0
    for row in range(n):
        if row == 0 or positions[row - 1] >> below != positions[row] >> below:
            rows[m] = row
            m += 1
    _climb(positions, m, middle, 0, n_nodes, kept, scratch)
    place = places[0]
    if place >= 0:
        _put(kept.hashes, place, scratch.words, 0)
    return place


@inner
def _climb_alone(positions, contents, m, top, scratch):
    """Hash the contents of the first m rows, and their chains up to a depth."""
    rows, words, room = scratch.rows, scratch.words, scratch.room
    for start in range(0, m, LANES):
        end = min(start + LANES, m)
        for i in range(start, end):
            _take(room, i - start, contents, rows[i])
            room[_TAGS * LANES + i - start] = _LEAF
        _hash_one(room)
        for level in range(DEPTH, top, -1):
            ahead = np.uint64(DEPTH - level)
            for i in range(start, end):
                room[_TAGS * LANES + i - start] = _ONE + np.uint32(positions[rows[i]] >> ahead & _BIT)
            _hash_one(room)
        for i in range(start, end):
            for word in range(N_WORDS):
                words[rows[i], word] = room[(STATE + word) * LANES + i - start]


@inner
def _climb(positions, m, level, top, n_nodes, kept, scratch):
    """Make the hashes of the first m rows those of a depth further up; return how many nodes there are then."""
    rows, places, pending = scratch.rows, scratch.places, scratch.pending
    for depth in range(level - 1, top - 1, -1):
        above = np.uint64(DEPTH - depth)
        n_kept = n_one = n_both = i = 0
        while i < m:
            row = rows[i]
            if i + 1 < m and positions[row] >> above == positions[rows[i + 1]] >> above:
                other = rows[i + 1]
                kept.depths[n_nodes], kept.left[n_nodes], kept.right[n_nodes] = depth, places[row], places[other]
                if places[row] >= 0:
                    _put(kept.hashes, places[row], scratch.words, row)
                if places[other] >= 0:
                    _put(kept.hashes, places[other], scratch.words, other)
                places[row] = n_nodes
                n_nodes += 1
                pending[1, n_both], pending[2, n_both] = row, other
                n_both += 1
                i += 2
            else:
                pending[0, n_one] = row
                n_one += 1
                i += 1
            rows[n_kept] = row
            n_kept += 1
            if n_one == LANES:
                _raise_one(positions, n_one, depth, scratch)
                n_one = 0
            if n_both == LANES:
                _raise_both(n_both, scratch)
                n_both = 0
        _raise_one(positions, n_one, depth, scratch)
        _raise_both(n_both, scratch)
        m = n_kept
    return n_nodes


@inner
def _raise_one(positions, n, depth, scratch):
    """Hash the nodes at a depth that have one child, the pending rows."""
    words, pending, room = scratch.words, scratch.pending, scratch.room
    if n == 0:
        return
    bit = np.uint64(DEPTH - 1 - depth)
    for lane in range(n):
        row = pending[0, lane]
        for word in range(N_WORDS):
            room[(STATE + word) * LANES + lane] = words[row, word]
        room[_TAGS * LANES + lane] = _ONE + np.uint32(positions[row] >> bit & _BIT)
    _hash_one(room)
    _give(words, pending, 0, n, room)


@inner
def _raise_both(n, scratch):
    """Hash the nodes that have two children, the pending rows."""
    words, pending, room = scratch.words, scratch.pending, scratch.room
    if n == 0:
        return
    for lane in range(n):
        for word in range(N_WORDS):
            room[(STATE + word) * LANES + lane] = words[pending[1, lane], word]
            room[(WORK + word) * LANES + lane] = words[pending[2, lane], word]
    # STATE and WORK follow one another: both children are 16 words.
    for lane in range(LANES):
        room[lane] = _BOTH << _24 | room[STATE * LANES + lane] >> _8
    for word in range(1, N_BLOCK):
        at, child = word * LANES, (STATE + word) * LANES
        for lane in range(LANES):
            room[at + lane] = room[child - LANES + lane] << _24 | room[child + lane] >> _8
    for lane in range(LANES):
        room[_LAST * LANES + lane] = room[(WORK + N_WORDS - 1) * LANES + lane] << _24 | _END >> _8
    begin(room)
    compress(room)
    for lane in range(LANES):
        room[lane] = room[_LAST * LANES + lane]
        room[(N_BLOCK - 1) * LANES + lane] = _BITS_BOTH
    for i in range(LANES, (N_BLOCK - 1) * LANES):
        room[i] = _ZERO
    compress(room)
    _give(words, pending, 1, n, room)


@inner
def _hash_one(room):
    """Make the hash in each lane that of a byte, which is in the tags, and itself: a message of one block."""
    for lane in range(LANES):
        room[lane] = room[_TAGS * LANES + lane] << _24 | room[STATE * LANES + lane] >> _8
    for word in range(1, N_WORDS):
        at, child = word * LANES, (STATE + word) * LANES
        for lane in range(LANES):
            room[at + lane] = room[child - LANES + lane] << _24 | room[child + lane] >> _8
    for lane in range(LANES):
        room[N_WORDS * LANES + lane] = room[(STATE + N_WORDS - 1) * LANES + lane] << _24 | _END >> _8
        room[(N_BLOCK - 1) * LANES + lane] = _BITS_ONE
    for i in range((N_WORDS + 1) * LANES, (N_BLOCK - 1) * LANES):
        room[i] = _ZERO
    begin(room)
    compress(room)


@inner
def _give(words, pending, which, n, room):
    """Put the hashes of lanes into the words of the pending rows."""
    for lane in range(n):
        for word in range(N_WORDS):
            words[pending[which, lane], word] = room[(STATE + word) * LANES + lane]


@inner
def _take(room, lane, contents, row):
    """Put 32 bytes into a lane as if they were a hash."""
    for word in range(N_WORDS):
        found = _ZERO
        for i in range(4 * word, 4 * word + 4):
            found = np.uint32(found << _8 | np.uint32(contents[row, i]))
        room[(STATE + word) * LANES + lane] = found


@inner
def _put(hashes, number, words, row):
    """Write the hash of a row as bytes."""
    for word in range(N_WORDS):
        found = words[row, word]
        for i in range(4):
            hashes[number, 4 * word + i] = np.uint8(found >> np.uint32(24 - 8 * i))
