"""The derivatives that all passes are made of."""

import numpy as np
import pytest

from oubli.core.influence.losses import (
    BLOCK,
    Loss,
    fill_levels,
    gradient,
    hessian,
    probabilities,
    row_losses,
    row_slopes,
)
from oubli.core.jit.policy import kernel


@kernel
def _levels_of(loss, scores, powers, power_bits, levels, result):
    for start in range(0, scores.shape[1], BLOCK):
        n = min(BLOCK, scores.shape[1] - start)
        fill_levels(loss, scores, start, n, levels, powers, power_bits)
        for k in range(scores.shape[0]):
            for j in range(n):
                result[k, start + j] = levels[k, j]


@kernel
def _derivatives_of(loss, level, y, group, result):
    result[0] = gradient(loss, level, y, group)
    result[1] = hessian(loss, level)


def levels_of(loss: Loss, scores: np.ndarray) -> np.ndarray:
    powers = np.zeros(BLOCK)
    result = np.empty_like(scores)
    _levels_of(int(loss), scores, powers, powers.view(np.int64), np.zeros((len(scores) + 1, BLOCK)), result)
    return result


def test_levels_are_probabilities_to_the_last_bits():
    scores = np.random.default_rng(0).normal(0, 20, (1, 2 * BLOCK + 7))
    np.testing.assert_allclose(levels_of(Loss.BINARY_LOG_LOSS, scores), 1 / (1 + np.exp(-scores)), rtol=2e-15)
    many = np.random.default_rng(0).normal(0, 9, (5, BLOCK + 3))
    expected = np.exp(many) / np.exp(many).sum(axis=0)
    np.testing.assert_allclose(levels_of(Loss.SOFTMAX_LOG_LOSS, many), expected, rtol=5e-15)
    np.testing.assert_array_equal(levels_of(Loss.SQUARED_ERROR, scores), scores)


@pytest.mark.parametrize("score", [-1e4, -800.0, 800.0, 1e4])
def test_levels_of_extreme_scores_are_finite(score):
    assert levels_of(Loss.BINARY_LOG_LOSS, np.array([[score]]))[0, 0] == pytest.approx(float(score > 0), abs=1e-300)
    levels = levels_of(Loss.SOFTMAX_LOG_LOSS, np.array([[score], [0.0], [-score]]))
    assert np.isfinite(levels).all()
    assert levels.sum() == pytest.approx(1.0)


@pytest.mark.parametrize("loss", [Loss.BINARY_LOG_LOSS, Loss.SOFTMAX_LOG_LOSS])
def test_gradients_and_hessians_are_derivatives_of_the_loss(loss):
    n_groups = 1 if loss is Loss.BINARY_LOG_LOSS else 3
    scores = np.random.default_rng(1).normal(0, 2, (1, n_groups))
    for y in (0.0, 1.0):
        for group in range(n_groups):
            result, step = np.empty(2), 1e-4
            move = step * np.eye(n_groups)[group]
            target = np.array([y])
            _derivatives_of(int(loss), levels_of(loss, scores.T.copy())[group, 0], y, group, result)
            above, here, below = (row_losses(loss, scores + s * move, target)[0] for s in (1, 0, -1))
            assert result[0] == pytest.approx((above - below) / (2 * step), rel=1e-6)
            assert result[1] == pytest.approx((above - 2 * here + below) / step**2, rel=1e-4)
            assert row_slopes(loss, scores, target)[0, group] == pytest.approx(result[0])


def test_squared_error_of_rows():
    scores, y = np.array([[3.0], [-1.0]]), np.array([1.0, 1.0])
    np.testing.assert_array_equal(row_losses(Loss.SQUARED_ERROR, scores, y), [4.0, 4.0])
    np.testing.assert_array_equal(row_slopes(Loss.SQUARED_ERROR, scores, y), [[4.0], [-4.0]])


def test_log_loss_is_clipped_but_its_slope_is_not():
    scores, y = np.array([[100.0], [-100.0]]), np.array([0.0, 1.0])
    np.testing.assert_allclose(row_losses(Loss.BINARY_LOG_LOSS, scores, y), -np.log(1e-15))
    np.testing.assert_allclose(row_slopes(Loss.BINARY_LOG_LOSS, scores, y), [[1.0], [-1.0]])


def test_probabilities_of_two_classes_are_those_of_softmax_over_zero_and_the_score():
    scores = np.array([[0.3], [-40.0], [40.0]])
    both = probabilities(Loss.SOFTMAX_LOG_LOSS, np.column_stack([np.zeros(3), scores[:, 0]]))
    np.testing.assert_array_equal(probabilities(Loss.BINARY_LOG_LOSS, scores), both)
