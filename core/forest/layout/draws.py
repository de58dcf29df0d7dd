"""Which trees learn a sample, and which trees answer for a row.

A sample is in k of the T trees. A hash of its id draws them, so that it returns to its trees when it comes back.

With low disclosure a hash of its *values* draws them: the numbers and the categories of the row, without the label. A
row is answered by the T - k trees that its values do not draw, whether or not a sample with these values is held. So no
tree that answers has learned such a sample, and the answer for a row is the same with and without it, to the bit.
"""

import math
from functools import partial

import numpy as np
import numpy.typing as npt

from oubli.core.array_types import Array, Slots
from oubli.core.concurrency.threads import is_long, run
from oubli.core.forest.layout.cells import ForestData
from oubli.core.jit.nodes import category_hash
from oubli.core.jit.policy import inner, kernel
from oubli.core.rng import combine, draw_trees, restore_order
from oubli.core.samples.arrays import Data

_DRAWING = 20e-9  # seconds that a draw takes, roughly
_MISSING = np.uint64(2**64 - 1)
_CONTENT = np.uint64(0)
_TWO_TO_53 = 9007199254740992.0
_EXPONENTS = np.uint64(4096)  # more than a float64 has


@inner
def _hash_of_number(key, x):
    """Hash a number as float32 has it, whatever the type of the cells: they may have been wider for some samples."""
    x = np.float32(x)
    if x != x:
        return combine(key, _MISSING)
    if np.isinf(x):
        return combine(key, _MISSING - np.uint64(1) - np.uint64(x > 0))
    fraction, exponent = math.frexp(np.float64(x))
    return combine(combine(key, np.uint64(np.int64(fraction * _TWO_TO_53))), _EXPONENTS + np.uint64(exponent))


@inner
def hash_of_values(cells, category_hashes, categorical, row):
    """Hash the values of a row; O(d)."""
    key = _CONTENT
    for column in range(cells.shape[1]):
        x = cells[row, column]
        if categorical[column]:
            key = combine(key, category_hash(category_hashes, x))
        else:
            key = _hash_of_number(key, x)
    return key


@inner
def draw_hash(data, parameters, slot):
    """The hash that draws the trees of a sample."""
    if parameters[0]["has_low_disclosure"]:
        return hash_of_values(data.cells, data.category_hashes, data.categorical, slot)
    return data.id_hashes[slot]


@kernel
def _draw(data, parameters, slots, order, drawn):
    """Draw the trees of samples.

    order  int32[n_trees] the identity permutation
    drawn  int16[n, k], written
    """
    n_trees, occurrences = parameters[0]["n_trees"], drawn.shape[1]
    for i in range(slots.shape[0]):
        hashed = draw_hash(data, parameters, slots[i])
        draw_trees(parameters[0]["seed_key"], hashed, n_trees, occurrences, order)
        for draw in range(occurrences):
            drawn[i, draw] = order[draw]
        restore_order(parameters[0]["seed_key"], hashed, n_trees, occurrences, order)


def drawn_trees(data: Data | ForestData, parameters: Array, slots: Slots, n_threads: int = 1) -> npt.NDArray[np.int16]:
    """Return the trees of the samples in `slots`, int16[n, k], each in the order of its draws; O(n (k + d))."""
    n_trees, occurrences = int(parameters[0]["n_trees"]), int(parameters[0]["occurrences"])
    drawn = np.empty((len(slots), occurrences), np.int16)
    n = n_threads if is_long(_DRAWING * drawn.size) else 1
    step = max(1, -(-len(slots) // n))

    def draw(first: int) -> None:
        some = slice(first, first + step)
        _draw(data, parameters, slots[some], np.arange(n_trees, dtype=np.int32), drawn[some])

    run([partial(draw, first) for first in range(0, len(slots), step)], n)
    return drawn
