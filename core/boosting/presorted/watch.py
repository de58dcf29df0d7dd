"""Early stopping: the loss of samples that do not train, in integers: its sum does not depend on their order."""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from oubli.core.boosting.loss import exp, log
from oubli.core.boosting.presorted.words import BINARY, SCORE_BITS, SQUARED
from oubli.core.boosting.quantised.entering import VALIDATION
from oubli.core.boosting.state import LEAF, goes_right
from oubli.core.forest.quantisation import BITS
from oubli.core.jit.policy import inner, kernel
from oubli.core.rng import MISSING_CATEGORY, combine, mix

# Of one sample; the sum over 2**24 is below 2**63.
_STEPS = 2.0**32  # a loss of 1
_LARGEST = 2.0**38


class Watch(NamedTuple):
    """The samples that validate; `patience` is 0 when there are none."""

    patience: int
    slots: npt.NDArray[np.int64]  # int64[m]
    targets: npt.NDArray[np.int64]  # int64[m]: as those of `Loss`
    scores: npt.NDArray[np.int64]  # int64[groups, m]: F in units
    losses: npt.NDArray[np.int64]  # int64[iterations]


@kernel
def mark_validating(id_hashes, slots, seed, limit, validates):
    """Write whether each sample validates: whether the hash of the seed and its id is below the limit."""
    key = combine(mix(seed), VALIDATION)
    for i in range(slots.shape[0]):
        validates[i] = combine(key, id_hashes[slots[i]]) < limit


@inner
def follow(watch, nodes, root, cells, category_hashes, scores):
    """Take a tree's values to the scores of the samples that validate."""
    for i in range(watch.slots.shape[0]):
        node = root
        while nodes[node]["feature"] != LEAF:
            side = goes_right(nodes, node, cells, watch.slots[i], category_hashes, MISSING_CATEGORY)
            node = np.int64(nodes[node]["left"]) + side
        scores[i] += np.int64(nodes[node]["value"])


@inner
def _loss_of(kind, scores, target, i):
    """Squared error in squares of 2**e (see `presorted_words.py`), or log-loss."""
    if kind == SQUARED:
        error = np.float64(scores[0, i] - target) / np.float64(np.int64(1) << BITS)
        return error * error
    if kind == BINARY:
        margin = np.float64(scores[0, i]) * 2.0**-SCORE_BITS
        return log(1.0 + exp(-margin if target == 1 else margin))
    largest = scores[0, i]
    for k in range(1, scores.shape[0]):
        largest = max(largest, scores[k, i])
    total = 0.0
    for k in range(scores.shape[0]):
        total += exp(np.float64(scores[k, i] - largest) * 2.0**-SCORE_BITS)
    return log(total) - np.float64(scores[target, i] - largest) * 2.0**-SCORE_BITS


@inner
def total_loss(watch, kind):
    """Sum of the losses of all samples that validate, each rounded down to a step of 2**-32."""
    total = np.int64(0)
    for i in range(watch.slots.shape[0]):
        total += np.int64(min(np.floor(_loss_of(kind, watch.scores, watch.targets[i], i) * _STEPS), _LARGEST))
    return total
