"""The loss of the samples that validate, in integers, so that its sum does not depend on their order."""

import numpy as np

from oubli.core.boosting.loss import exp, log
from oubli.core.boosting.quantised.gradients import BINARY, REGRESSION
from oubli.core.boosting.quantised.state import VALIDATES
from oubli.core.jit.policy import inner

_STEPS = 1048576.0  # a loss of 1 is 2**20
_LARGEST = 1073741824.0  # of one sample: sums of 2**24 stay below 2**55


@inner
def loss_of(loss, scores, samples, slot):
    """Log-loss or squared error (in spreads) of a sample, in steps of 2**-20."""
    place = np.uint64(slot)
    if loss.kind == REGRESSION:
        error = (loss.base + loss.unit * scores[0, place] - samples.y[place]) * loss.inverse_spread
        value = error * error
    elif loss.kind == BINARY:
        margin = loss.unit * scores[0, place]
        value = log(1.0 + exp(-margin if samples.labels[place] == 1 else margin))
    else:
        largest = np.int64(scores[0, place])
        for k in range(1, scores.shape[0]):
            largest = max(largest, np.int64(scores[k, place]))
        total = 0.0
        for k in range(scores.shape[0]):
            total += exp(loss.unit * (scores[k, place] - largest))
        value = log(total) - loss.unit * (scores[np.uint64(samples.labels[place]), place] - largest)
    return np.int64(np.floor(min(value * _STEPS, _LARGEST)))


@inner
def total_loss(loss, scores, samples):
    """Sum of the losses of all samples that validate, but for those that are coming or going."""
    total = np.int64(0)
    for slot in range(samples.roles.shape[0]):
        if samples.roles[slot] == VALIDATES:
            total += loss_of(loss, scores, samples, slot)
    return total


@inner
def should_stop(losses, iteration, best, patience):
    """The iteration with the lowest loss up to this one, and whether that is so long ago that training ends."""
    if iteration == 0 or losses[iteration] < losses[best]:
        best = np.int64(iteration)
    return best, patience > 0 and iteration - best >= patience
