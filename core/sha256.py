"""SHA-256 (FIPS 180-4) of many messages at once, for kernels: the same steps for each of `LANES` messages side by side.

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

import numpy as np
import numpy.typing as npt

from oubli.core.jit.policy import inner, pasted

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
