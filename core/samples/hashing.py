"""Hashes of many texts at once, the same as `oubli.core.rng.hash_text` of each: BLAKE2b of 8 bytes, RFC 7693.

For a fit on many samples the calls of the standard library, one a text, were a sixth of its time, and no other thread
could run at the same time. `hashes_of` finds those of categories, which are kept by their codes.
"""

from collections.abc import Sequence
from functools import partial

import numpy as np

from oubli.core.array_types import Array, Hashes
from oubli.core.concurrency.threads import is_long, run
from oubli.core.jit.policy import inner, kernel, pasted
from oubli.core.rng import MISSING_CATEGORY

_ITEMS = 16_384  # texts at a time; putting them together keeps other threads waiting
_HASHING = 200e-9  # seconds a text
_BLOCK = 128  # bytes
_IV = np.array(
    [
        0x6A09E667F3BCC908, 0xBB67AE8584CAA73B, 0x3C6EF372FE94F82B, 0xA54FF53A5F1D36F1,
        0x510E527FADE682D1, 0x9B05688C2B3E6C1F, 0x1F83D9ABFB41BD6B, 0x5BE0CD19137E2179,
    ],
    np.uint64,
)  # fmt: skip
_PARAMETERS = np.uint64(0x01010008)  # no key, digests of 8 bytes
_SIGMA = np.array(
    [
        [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15],
        [14, 10, 4, 8, 9, 15, 13, 6, 1, 12, 0, 2, 11, 7, 5, 3],
        [11, 8, 12, 0, 5, 2, 15, 13, 10, 14, 3, 6, 7, 1, 9, 4],
        [7, 9, 3, 1, 13, 12, 11, 14, 2, 6, 5, 10, 4, 0, 15, 8],
        [9, 0, 5, 7, 2, 4, 10, 15, 14, 1, 11, 12, 6, 8, 3, 13],
        [2, 12, 6, 10, 0, 11, 8, 3, 4, 13, 7, 5, 15, 14, 1, 9],
        [12, 5, 1, 15, 14, 13, 4, 10, 0, 7, 6, 3, 9, 2, 8, 11],
        [13, 11, 7, 14, 12, 1, 3, 9, 5, 0, 15, 4, 8, 6, 2, 10],
        [6, 15, 14, 9, 11, 3, 0, 8, 12, 2, 13, 7, 1, 4, 10, 5],
        [10, 2, 8, 4, 7, 6, 1, 5, 15, 11, 9, 14, 3, 12, 13, 0],
        [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15],
        [14, 10, 4, 8, 9, 15, 13, 6, 1, 12, 0, 2, 11, 7, 5, 3],
    ],
    np.uint64,
)


@pasted
def _turn(x, n):
    return (x >> np.uint64(n)) | (x << np.uint64(64 - n))


@pasted
def _mix(a, b, c, d, x, y):
    a = a + b + x
    d = _turn(d ^ a, 32)
    c = c + d
    b = _turn(b ^ c, 24)
    a = a + b + y
    d = _turn(d ^ a, 16)
    c = c + d
    b = _turn(b ^ c, 63)
    return a, b, c, d


@inner
def _compress(state, words, sigma, iv, n_bytes, is_last):
    """Take a block of words into the state; `n_bytes` of the text have been taken in then."""
    v0, v1, v2, v3, v4, v5, v6, v7 = (
        state[0], state[1], state[2], state[3], state[4], state[5], state[6], state[7],
    )  # fmt: skip
    v8, v9, v10, v11 = iv[0], iv[1], iv[2], iv[3]
    v12 = iv[4] ^ np.uint64(n_bytes)
    v13 = iv[5]
    v14 = ~iv[6] if is_last else iv[6]
    v15 = iv[7]
    for r in range(12):
        v0, v4, v8, v12 = _mix(v0, v4, v8, v12, words[sigma[r, 0]], words[sigma[r, 1]])
        v1, v5, v9, v13 = _mix(v1, v5, v9, v13, words[sigma[r, 2]], words[sigma[r, 3]])
        v2, v6, v10, v14 = _mix(v2, v6, v10, v14, words[sigma[r, 4]], words[sigma[r, 5]])
        v3, v7, v11, v15 = _mix(v3, v7, v11, v15, words[sigma[r, 6]], words[sigma[r, 7]])
        v0, v5, v10, v15 = _mix(v0, v5, v10, v15, words[sigma[r, 8]], words[sigma[r, 9]])
        v1, v6, v11, v12 = _mix(v1, v6, v11, v12, words[sigma[r, 10]], words[sigma[r, 11]])
        v2, v7, v8, v13 = _mix(v2, v7, v8, v13, words[sigma[r, 12]], words[sigma[r, 13]])
        v3, v4, v9, v14 = _mix(v3, v4, v9, v14, words[sigma[r, 14]], words[sigma[r, 15]])
    state[0] ^= v0 ^ v8
    state[1] ^= v1 ^ v9
    state[2] ^= v2 ^ v10
    state[3] ^= v3 ^ v11
    state[4] ^= v4 ^ v12
    state[5] ^= v5 ^ v13
    state[6] ^= v6 ^ v14
    state[7] ^= v7 ^ v15


@kernel
def _hash_all(data, ends, sigma, iv, parameters, state, words, hashes):
    """Hash texts.

    data          uint8[any] the texts, one after the other
    ends          int64[n] where each ends
    state, words  uint64[8] and uint64[16], working space
    hashes        uint64[n], written
    """
    start = np.int64(0)
    for i in range(ends.shape[0]):
        end = ends[i]
        for j in range(8):
            state[j] = iv[j]
        state[0] ^= parameters
        at = start
        is_last = False
        while not is_last:
            following = min(at + _BLOCK, end)
            is_last = following == end
            for j in range(16):
                words[j] = np.uint64(0)
            for place in range(at, following):
                offset = np.uint64(place - at)
                words[offset >> np.uint64(3)] |= np.uint64(data[place]) << ((offset & np.uint64(7)) << np.uint64(3))
            _compress(state, words, sigma, iv, following - start, is_last)
            at = following
        hashes[i] = state[0]
        start = end


def hash_texts(texts: Sequence[str], n_threads: int = 1) -> Hashes:
    """Return the hashes of texts, uint64[n]."""
    hashes, n = np.empty(len(texts), np.uint64), len(texts)
    if not is_long(_HASHING * n):
        n_threads = 1
    n_items = max(1, min(_ITEMS, -(-n // n_threads)))

    def hash_some(start: int) -> None:
        part = texts[start : start + n_items]
        data = "".join(part).encode()
        lengths = np.fromiter(map(len, part), np.int64, len(part))
        if len(data) != lengths.sum():  # characters of several bytes
            lengths = np.array([len(text.encode()) for text in part])
        space, some = (np.zeros(8, np.uint64), np.zeros(16, np.uint64)), hashes[start : start + n_items]
        _hash_all(np.frombuffer(data, np.uint8), np.cumsum(lengths), _SIGMA, _IV, _PARAMETERS, *space, some)

    run([partial(hash_some, start) for start in range(0, n, n_items)], n_threads)
    return hashes


def hashes_of(cells: Array, category_hashes: Hashes) -> Hashes:
    """Hashes of a categorical column's cells."""
    hashes = np.full(len(cells), MISSING_CATEGORY, np.uint64)
    is_present = ~np.isnan(cells)
    hashes[is_present] = category_hashes[cells[is_present].astype(np.int64)]
    return hashes
