"""Stateless randomness: every draw is a pure function of its key.

A draw must not depend on the history of a model, on the thread that makes it or on the place in
memory it is made for. It is therefore no stream but a hash of (seed, what it is for, index):

    seed_key  = mix(seed)
    tree_key  = combine(combine(seed_key, TREES), tree)         the root node's key
    child key = combine(node_key, side)                         side: 0 left, 1 right
    draw      = combine(combine(node_key, purpose), index)

`mix` is the finalizer of splitmix64 (Steele, Lea, Flood, "Fast splittable pseudorandom number
generators", 2014, with Stafford's variant 13); `combine` is one step of its counter sequence.

All literals are `np.uint64`: in compiled code `uint64 + int64` would be signed.
"""

import hashlib

import numpy as np

from oubli.core.jit.policy import kernel

GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_FACTOR_1 = np.uint64(0xBF58476D1CE4E5B9)
_FACTOR_2 = np.uint64(0x94D049BB133111EB)
_SHIFT_11 = np.uint64(11)
_SHIFT_27 = np.uint64(27)
_SHIFT_30 = np.uint64(30)
_SHIFT_31 = np.uint64(31)
_SHIFT_32 = np.uint64(32)
_SHIFT_63 = np.uint64(63)
_ONE = np.uint64(1)

# What a key is combined with first, under the seed ...
TREES = np.uint64(1)
OCCURRENCES = np.uint64(2)
# ... and under a node (0 and 1 are the sides).
ATTRIBUTE_ORDER = np.uint64(2)
CANDIDATES = np.uint64(3)
CHOICE_SIZES = np.uint64(4)

_TWO_TO_MINUS_53 = 2.0**-53


@kernel
def mix(z):
    """Scramble 64 bits; a bijection of uint64."""
    z = (z ^ (z >> _SHIFT_30)) * _FACTOR_1
    z = (z ^ (z >> _SHIFT_27)) * _FACTOR_2
    return z ^ (z >> _SHIFT_31)


@kernel
def combine(key, value):
    """Derive the key (or the 64 random bits) number `value` under `key`; both uint64."""
    return mix(key + GOLDEN * (value + _ONE))


@kernel
def bounded(bits, bound):
    """Map 64 random bits to an integer in [0, bound), bound < 2**31, as int64.

    The bias, at most bound / 2**32, is the same for a fresh fit and for an updated model.
    """
    return np.int64(((bits >> _SHIFT_32) * np.uint64(bound)) >> _SHIFT_32)


@kernel
def unit(bits):
    """Map 64 random bits to a float64 in [0, 1), a multiple of 2**-53."""
    return np.float64(bits >> _SHIFT_11) * _TWO_TO_MINUS_53


@kernel
def coin(bits):
    """The highest bit, as a bool."""
    return (bits >> _SHIFT_63) == _ONE


@kernel
def tree_key(seed_key, tree):
    """Key of the root node of a tree."""
    return combine(combine(seed_key, TREES), np.uint64(tree))


@kernel
def draw_trees(seed_key, id_hash, n_trees, n_draws, order):
    """Draw the `n_draws` distinct trees of the sample whose id hashes to `id_hash`: OCC(q).

    seed_key, id_hash  uint64
    order              int32[n_trees], the identity permutation 0, 1, 2, ...; on return its first
                       `n_draws` entries are the trees; `restore_order` makes it the identity again

    O(n_draws), a partial Fisher-Yates shuffle. The draw depends on the id alone, so a sample that
    comes back under its id returns to its trees.
    """
    if n_draws == n_trees:
        return
    key = combine(combine(seed_key, OCCURRENCES), id_hash)
    for draw in range(n_draws):
        other = draw + bounded(combine(key, np.uint64(draw)), n_trees - draw)
        order[draw], order[other] = order[other], order[draw]


@kernel
def restore_order(seed_key, id_hash, n_trees, n_draws, order):
    """Undo `draw_trees` by repeating its swaps backwards; O(n_draws)."""
    if n_draws == n_trees:
        return
    key = combine(combine(seed_key, OCCURRENCES), id_hash)
    for draw in range(n_draws - 1, -1, -1):
        other = draw + bounded(combine(key, np.uint64(draw)), n_trees - draw)
        order[draw], order[other] = order[other], order[draw]


def hash_text(text: str) -> int:
    """Hash the canonical bytes of an id or a category value to 64 bits."""
    return int.from_bytes(hashlib.blake2b(text.encode("utf-8"), digest_size=8).digest(), "little")


# Hash of "no value" in a categorical column. 0xff never begins valid UTF-8, so no text collides.
MISSING_CATEGORY = np.uint64(int.from_bytes(hashlib.blake2b(b"\xff missing", digest_size=8).digest(), "little"))
# Hash of all categories of few samples, where boosting reads them as one.
RARE_CATEGORY = np.uint64(int.from_bytes(hashlib.blake2b(b"\xff rare", digest_size=8).digest(), "little"))
