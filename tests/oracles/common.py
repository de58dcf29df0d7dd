"""What all oracles share: hashes that stand for chance, values as they are held, and targets in fixed point."""

import math
from collections.abc import Callable, Sequence
from hashlib import blake2b
from typing import Any, NamedTuple

import numpy as np


class Column(NamedTuple):
    """The type of one feature: "numeric", "boolean" or "categorical"; dtype for numeric ones."""

    type: str = "numeric"
    dtype: str = "float32"


# --- randomness: a hash of what is drawn, arithmetic modulo 2^64 ---------------------------------

WORD = 2**64
GOLDEN = 0x9E3779B97F4A7C15


def mix(z: int) -> int:
    """The finaliser of splitmix64: a bijection of 64-bit words."""
    z ^= z >> 30
    z = z * 0xBF58476D1CE4E5B9 % WORD
    z ^= z >> 27
    z = z * 0x94D049BB133111EB % WORD
    z ^= z >> 31
    return z


def combine(key: int, value: int) -> int:
    """The key of the `value`-th thing below `key`."""
    return mix((key + GOLDEN * (value + 1)) % WORD)


def bounded(word: int, m: int) -> int:
    """A number in 0..m-1 from the upper half of a word."""
    return ((word >> 32) * m) >> 32


def unit(word: int) -> float:
    """A float64 in [0, 1) from the upper 53 bits of a word."""
    return (word >> 11) * 2.0**-53


def top_bit(word: int) -> bool:
    """The highest of 64 bits."""
    return word >> 63 == 1


def hash_bytes(data: bytes) -> int:
    """The 64-bit hash of canonical bytes: ids and category values, never codes or slots."""
    return int.from_bytes(blake2b(data, digest_size=8).digest(), "little")


MISSING_CATEGORY = hash_bytes(b"\xff missing")


def shuffled(size: int, length: int, word: Callable[[int], int]) -> list[int]:
    """0..size-1 in the order of a Fisher-Yates shuffle of the first `length`."""
    order = list(range(size))
    for i in range(length):
        j = i + bounded(word(i), size - i)
        order[i], order[j] = order[j], order[i]
    return order


def tree_key(seed: int, tree: int) -> int:
    """The key of a tree's root node."""
    return combine(combine(mix(seed % WORD), 1), tree)


def sample_key(seed: int, id_hash: int) -> int:
    """The key of a sample's own draws."""
    return combine(combine(mix(seed % WORD), 2), id_hash)


# --- values at the door ---------------------------------------------------------------------------


def category_text(value: Any) -> str:
    """A category is text: numbers are written as decimals, booleans in lower case."""
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int) or float(value).is_integer():
        return str(int(value))
    return repr(float(value))


def is_missing(value: Any) -> bool:
    """None and every NaN are the same missing value."""
    return value is None or (isinstance(value, float) and math.isnan(value))


def cell(value: Any, column: Column) -> float | int | None:
    """What a tree sees of a value: a hash for a category, else a float, None when missing."""
    if column.type == "categorical":
        return MISSING_CATEGORY if is_missing(value) else hash_bytes(category_text(value).encode())
    if is_missing(value):
        return None
    if column.type == "numeric" and column.dtype == "float32":
        value = np.float32(value)
    return float(value) + 0.0  # -0.0 becomes 0.0


def threshold_type(columns: Sequence[Column]) -> type[np.float32 | np.float64]:
    """Thresholds are float32 unless some numeric column is float64."""
    wide = any(c.type == "numeric" and c.dtype == "float64" for c in columns)
    return np.float64 if wide else np.float32


# --- targets --------------------------------------------------------------------------------------


def canonical_classes(labels: Sequence[Any]) -> tuple[Any, ...]:
    """The classes held, ordered by type name, then by value."""
    return tuple(value for _, value in sorted({(type(label).__name__, label) for label in labels}))


def scale_exponent(targets: Sequence[float]) -> int:
    """The smallest multiple of 4, e, with 2^e >= max |y|; 0 when all targets are zero."""
    largest = max((abs(y) for y in targets), default=0.0)
    if largest == 0.0:
        return 0
    fraction, exponent = math.frexp(largest)  # largest = fraction * 2^exponent, 0.5 <= fraction < 1
    if fraction == 0.5:
        exponent -= 1  # a power of two is its own bound
    return -4 * (-exponent // 4)


def quantised(y: float, exponent: int) -> int:
    """The target as an integer of at most 38 bits and a sign, ties to even."""
    return round(math.ldexp(y, 38 - exponent))
