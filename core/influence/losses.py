"""What a row costs, and how a raw score moves that: in NumPy, for the few rows that a question is about.

The loss of a classifier is log-loss, with probabilities clipped to [1e-15, 1]; that of a regressor squared error.
Clipping keeps values finite. Derivatives are those of log-loss itself: a row that the model is that wrong about would
otherwise seem to be influenced by nothing.
"""

from enum import IntEnum

import numpy as np
import numpy.typing as npt

from oubli.core.array_types import Reals
from oubli.core.influence import derivatives

LEAST_PROBABILITY = 1e-15


class Loss(IntEnum):
    """What a boosted model was trained on."""

    SQUARED_ERROR = derivatives.SQUARED_ERROR
    BINARY_LOG_LOSS = derivatives.BINARY_LOG_LOSS
    SOFTMAX_LOG_LOSS = derivatives.SOFTMAX_LOG_LOSS


def probabilities(loss: Loss, scores: Reals) -> Reals:
    """Probabilities of the classes by raw scores float64[n, K]; float64[n, classes]."""
    if loss is Loss.BINARY_LOG_LOSS:
        scores = np.column_stack([np.zeros(len(scores)), scores[:, 0]])
    powers = np.exp(scores - scores.max(axis=1, keepdims=True))
    shares: Reals = powers / powers.sum(axis=1, keepdims=True)
    return shares


def class_losses(shares: Reals, y: npt.NDArray[np.integer]) -> Reals:
    """Log-loss of each row by float64[n, classes] probabilities and the numbers of the true classes; -1: not held."""
    picked = np.where(y >= 0, shares[np.arange(len(y)), y], 0.0)
    losses: Reals = -np.log(picked.clip(LEAST_PROBABILITY, 1.0))
    return losses


def row_losses(loss: Loss, scores: Reals, y: Reals) -> Reals:
    """Loss of each row by raw scores float64[n, K] and targets float64[n] (numbers of classes for log-loss)."""
    if loss is Loss.SQUARED_ERROR:
        squares: Reals = (scores[:, 0] - y) ** 2
        return squares
    return class_losses(probabilities(loss, scores), y.astype(np.int64))


def row_slopes(loss: Loss, scores: Reals, y: Reals) -> Reals:
    """Derivative of each row's loss by its raw scores, float64[n, K]."""
    if loss is Loss.SQUARED_ERROR:
        return 2.0 * (scores - y[:, np.newaxis])
    if loss is Loss.BINARY_LOG_LOSS:
        return probabilities(loss, scores)[:, 1:] - y[:, np.newaxis]
    slopes = probabilities(loss, scores)
    slopes[np.arange(len(y)), y.astype(np.int64)] -= 1.0
    return slopes
