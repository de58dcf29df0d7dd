"""What is known of a sample when it comes: whether it trains or validates, its rounding, its class."""

import numpy as np

from oubli.core.boosting.histogram import pack
from oubli.core.boosting.quantised.gradients import BINARY, GRADIENT_LIMIT, HESSIAN_STEPS, REGRESSION, offset_of
from oubli.core.boosting.quantised.state import TRAINS, VALIDATES
from oubli.core.jit.policy import inner, kernel
from oubli.core.rng import combine, mix

ROUNDING = np.uint64(8)
VALIDATION = np.uint64(9)
_SHIFT_32 = np.uint64(32)


@kernel
def enter(roles, labels, rounding, id_hashes, targets, ranks, slots, seed, validation_limit, is_classification):
    """Write role, rounding and label of some samples; those whose hash is below the limit validate."""
    rounding_key = combine(mix(seed), ROUNDING)
    validation_key = combine(mix(seed), VALIDATION)
    for i in range(slots.shape[0]):
        slot = np.uint64(slots[i])
        validates = combine(validation_key, id_hashes[slot]) < validation_limit
        roles[slot] = VALIDATES if validates else TRAINS
        rounding[slot] = np.uint32(combine(rounding_key, id_hashes[slot]) >> _SHIFT_32)
        labels[slot] = ranks[targets[slot]] if is_classification else np.int32(0)


@kernel
def derive_first(loss, start_scores, samples, slots):
    """Write the derivatives of some samples at F_0, by which the uppermost nodes of all trees are split.

    As in `gradients.py`, with a finer grid: the gradient in steps of 1/64 (of a spread), the hessian 64 p (1 - p)
    rounded like it.
    """
    n_groups = samples.first.shape[0]
    for i in range(slots.shape[0]):
        slot = np.uint64(slots[i])
        if samples.roles[slot] & TRAINS == 0:
            for k in range(n_groups):
                samples.first[k, slot] = 0
            continue
        if loss.kind == REGRESSION:
            step = np.floor((loss.base - samples.y[slot]) * loss.inverse_spread * HESSIAN_STEPS + 0.5)
            samples.first[0, slot] = pack(np.int64(min(max(step, -GRADIENT_LIMIT), GRADIENT_LIMIT)), 1)
            continue
        for k in range(n_groups):
            share = first_share(loss, start_scores, k)
            offset = offset_of(samples.rounding[slot], 0, k)
            q = (share * HESSIAN_STEPS + offset) >> 32
            weight = ((share >> 16) * ((4294967296 - share) >> 16) * HESSIAN_STEPS + offset) >> 32
            r = samples.labels[slot] == (1 if loss.kind == BINARY else k)
            samples.first[k, slot] = pack(q - (HESSIAN_STEPS if r else 0), weight)


@inner
def first_share(loss, start_scores, group):
    """P of a group at F_0, in steps of 2**-32."""
    if loss.kind == BINARY:
        place = min(max(np.int64(start_scores[0]) + loss.zero, 0), loss.table.shape[0] - 1)
        return loss.table[place] // loss.steps
    largest = np.int64(start_scores[0])
    for k in range(start_scores.shape[0]):
        largest = max(largest, np.int64(start_scores[k]))
    end = loss.table.shape[0] - 1
    total = np.int64(0)
    for k in range(start_scores.shape[0]):
        total += loss.table[min(largest - np.int64(start_scores[k]), end)]
    power = loss.table[min(largest - np.int64(start_scores[group]), end)]
    return np.int64((np.uint64(power) << _SHIFT_32) // np.uint64(total))
