"""Which trees samples are in: their ids alone say so."""

from functools import partial

import numpy as np
import numpy.typing as npt

from oubli.core.array_types import Slots
from oubli.core.forest.bits import ForestData
from oubli.core.forest.workspace import N_TREES, OCCURRENCES, Parameters
from oubli.core.jit.policy import kernel
from oubli.core.rng import draw_trees, restore_order
from oubli.core.threads import is_long, run

_DRAWING = 20e-9  # seconds that a draw takes, roughly


@kernel
def _draw(id_hashes, slots, n_trees, seed_key, order, drawn):
    """Draw the trees of samples.

    order  int32[n_trees] the identity permutation
    drawn  int16[n, k], written
    """
    occurrences = drawn.shape[1]
    for i in range(slots.shape[0]):
        id_hash = id_hashes[slots[i]]
        draw_trees(seed_key, id_hash, n_trees, occurrences, order)
        for draw in range(occurrences):
            drawn[i, draw] = order[draw]
        restore_order(seed_key, id_hash, n_trees, occurrences, order)


def drawn_trees(data: ForestData, parameters: Parameters, slots: Slots, n_threads: int = 1) -> npt.NDArray[np.int16]:
    """Return the trees of the samples in `slots`, int16[n, k], each in the order in which it draws them; O(n k)."""
    n_trees, occurrences = int(parameters.values[N_TREES]), int(parameters.values[OCCURRENCES])
    drawn = np.empty((len(slots), occurrences), np.int16)
    n = n_threads if is_long(_DRAWING * drawn.size) else 1
    step = max(1, -(-len(slots) // n))

    def draw(first: int) -> None:
        some = slice(first, first + step)
        order = np.arange(n_trees, dtype=np.int32)
        _draw(data.id_hashes, slots[some], n_trees, parameters.seed_key[0], order, drawn[some])

    run([partial(draw, first) for first in range(0, len(slots), step)], n)
    return drawn
