"""LeafInfluence, forward and reverse, and LeafRefit, against refits of given structures by hand."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from oubli.core.influence import FastLeafInfluence, FastLeafRefit, losses
from oubli.core.influence.losses import BLOCK, Loss, StartRule, fill_levels
from oubli.core.influence.reverse import weight_adjoints, weight_adjoints_by_row
from oubli.core.influence.views import View
from oubli.core.jit.policy import kernel
from tests.oracles.influence import Structures, random_structures

STEP = 1e-5

# Unless a case says otherwise weights are not 1, l2 is 0.5, the rate 0.3.
CASES = [pytest.param({"loss": loss}, id=loss.name) for loss in Loss] + [
    pytest.param({"loss": Loss.SOFTMAX_LOG_LOSS, "hessian_scale": 1.5, "factor": 1.0}, id="scaled-hessian"),
    pytest.param({"loss": Loss.SOFTMAX_LOG_LOSS, "n_classes": 5, "start_rule": StartRule.CONSTANT}, id="five-classes"),
    pytest.param({"loss": Loss.BINARY_LOG_LOSS, "l2": 0.0, "rate": 1.0, "n_iterations": 3}, id="no-l2"),
    pytest.param({"loss": Loss.BINARY_LOG_LOSS, "start_rule": StartRule.NEWTON_STEP}, id="newton-start"),
    pytest.param({"loss": Loss.SQUARED_ERROR, "start_rule": StartRule.CONSTANT, "n": 530}, id="several-blocks"),
]
cases = pytest.mark.parametrize("case", CASES)


def asked(structures: Structures) -> tuple[View, np.ndarray, np.ndarray]:
    """A view, the leaves of the rows, and the slopes of the mean loss."""
    view = structures.view()
    leaves = view.route(None)
    slopes = losses.row_slopes(view.loss, view.scores_in(leaves), structures.row_y) / len(structures.row_y)
    return view, leaves, slopes


def finite_differences(structures: Structures, samples: range) -> np.ndarray:
    """Central differences of the loss of each row by the weight of each sample, [n, m]."""
    result = []
    for i in samples:
        sides = []
        for sign in (1, -1):
            weights = structures.weights.copy()
            weights[i] += sign * STEP
            sides.append(structures.losses(weights))
        result.append((sides[0] - sides[1]) / (2 * STEP))
    return np.array(result)


def some_of(view: View, most: int) -> range:
    """All samples, or about so many of them."""
    return range(0, view.n_samples, max(1, view.n_samples // most))


def forward(form: FastLeafInfluence, leaves: np.ndarray, slopes: np.ndarray, samples: range) -> np.ndarray:
    return np.array([(form.change(i).of_rows(form.view, leaves) * slopes).sum() for i in samples])


def scores_before(structures: Structures, view: View) -> list[np.ndarray]:
    """Scores of the samples that each tree was grown on."""
    scores, result = np.tile(view.start, (view.n_samples, 1)), []
    for tree in range(view.n_trees):
        if tree % view.n_groups == 0 and tree:
            for k in range(view.n_groups):
                before = tree - view.n_groups + k
                values = view.trace.values[view.offsets[before] :][structures.leaves[before]]
                scores[:, k] += structures.rate * values
        result.append(scores.copy())
    return result


# -- influence ---------------------------------------------------------------------------------------


@cases
def test_reverse_is_forward_and_central_differences_of_refits(case: dict[str, Any]) -> None:
    structures = random_structures(**case)
    view, leaves, slopes = asked(structures)
    samples = some_of(view, 40)
    expected = finite_differences(structures, samples)
    by_row = weight_adjoints_by_row(view, leaves, slopes * len(slopes))[samples]
    scale = np.abs(expected).max()
    assert scale > 1e-3
    assert np.abs(by_row - expected).max() < 1e-5 * scale
    mean = weight_adjoints(view, leaves, slopes)[samples]
    assert np.abs(mean - expected.mean(axis=1)).max() < 1e-5 * scale
    one_by_one = forward(FastLeafInfluence(view, "all"), leaves, slopes, samples)
    assert np.abs(mean - one_by_one).max() < 1e-9 * np.abs(one_by_one).max()


@cases
def test_single_point_ignores_dependencies(case: dict[str, Any]) -> None:
    structures = random_structures(**case)
    view, leaves, slopes = asked(structures)
    samples, i = some_of(view, 40), 1
    single = forward(FastLeafInfluence(view, "single"), leaves, slopes, samples)
    reverse = weight_adjoints(view, leaves, slopes, propagates=False)[samples]
    np.testing.assert_allclose(reverse, single, rtol=1e-9, atol=1e-15)
    # By hand: with its scores held as they are, a leaf changes by its sums alone.
    change, expected = FastLeafInfluence(view, "single").change(i), []
    for tree, scores in enumerate(scores_before(structures, view)):
        g, h = structures.derivatives(scores, tree % view.n_groups)
        weight = structures.hessian_scale * h[i]
        here = structures.leaves[tree] == structures.leaves[tree, i]
        total = (structures.weights * g)[here].sum()
        below = (structures.weights * structures.hessian_scale * h)[here].sum() + structures.l2
        expected.append(-structures.factor * (g[i] * below - total * weight) / below**2)
    own = view.offsets[:-1] + structures.leaves[:, i]
    np.testing.assert_allclose(change.values[own], expected, rtol=1e-9)
    assert np.count_nonzero(change.values) <= view.n_trees


@pytest.mark.parametrize("make", [FastLeafInfluence, FastLeafRefit])
@pytest.mark.parametrize("loss", list(Loss))
def test_top_leaves_lead_from_single_point_to_all_points(loss: Loss, make: Any) -> None:
    view = random_structures(loss, n=60, n_leaves=6).view()
    exact = make(view, "all")
    errors = []
    for update_set in ("single", 1, 3, 5, 6):
        form = make(view, update_set)
        errors.append(sum(np.abs(form.change(i).values - exact.change(i).values).sum() for i in range(20)))
    assert errors[0] > errors[2] > errors[3] > errors[4] == 0.0


def test_many_rows_go_in_several_passes() -> None:
    view, leaves, slopes = asked(random_structures(Loss.SOFTMAX_LOG_LOSS, n_rows=37))
    done: list[tuple[int, int]] = []
    by_row = weight_adjoints_by_row(view, leaves, slopes, lambda *progress: done.append(progress))
    for row in (0, 15, 16, 36):
        alone = weight_adjoints(view, leaves[:, row : row + 1], slopes[row : row + 1])
        np.testing.assert_allclose(by_row[:, row], alone, rtol=1e-9, atol=1e-15)
    assert done == [(16, 37), (32, 37), (37, 37)]


# -- refits ------------------------------------------------------------------------------------------


@cases
def test_leaf_refit_is_refitting_all_leaves_by_hand(case: dict[str, Any]) -> None:
    structures = random_structures(**case)
    view = structures.view()
    start, values = structures.fit(structures.weights)
    form, every = FastLeafRefit(view, "all"), FastLeafRefit(view, structures.n_leaves)
    for i in some_of(view, 10):
        change = form.change(i)
        new_start, new_values = structures.fit(structures.weights, without=i)
        np.testing.assert_allclose(change.start, new_start - start, rtol=1e-9, atol=1e-13)
        np.testing.assert_allclose(change.values, np.concatenate(new_values) - np.concatenate(values), atol=1e-10)
        scores = view.raw_scores(None) + change.of_rows(view, view.route(None))
        found = losses.row_losses(view.loss, scores, structures.row_y)
        np.testing.assert_allclose(found, structures.losses(structures.weights, without=i), rtol=1e-9)
        np.testing.assert_array_equal(every.change(i).values, change.values)
        np.testing.assert_array_equal(every.change(i).start, change.start)


@pytest.mark.parametrize("loss", list(Loss))
def test_single_point_only_takes_the_sample_out_of_its_leaves(loss: Loss) -> None:
    structures, i = random_structures(loss), 3
    view = structures.view()
    change = FastLeafRefit(view, "single").change(i)
    for tree, scores in enumerate(scores_before(structures, view)):
        g, h = structures.derivatives(scores, tree % view.n_groups)
        w = structures.weights * h
        for leaf in range(structures.n_leaves):
            here = structures.leaves[tree] == leaf
            without, whole = (
                -structures.factor * (structures.weights * g)[part].sum() / (w[part].sum() + structures.l2)
                for part in (here & (np.arange(view.n_samples) != i), here)
            )
            assert change.values[view.offsets[tree] + leaf] == pytest.approx(without - whole, abs=1e-12)


@settings(max_examples=25, deadline=None)
@given(
    loss=st.sampled_from(list(Loss)), n=st.integers(6, 25), n_leaves=st.integers(1, 8), l2=st.sampled_from([0.0, 0.3]),
    seed=st.integers(0, 1000),
)  # fmt: skip
def test_leaves_may_become_empty(loss: Loss, n: int, n_leaves: int, l2: float, seed: int) -> None:
    # Other starts depend on a class keeping a sample.
    structures = random_structures(
        loss, n=n, n_leaves=n_leaves, l2=l2, seed=seed, n_iterations=3, start_rule=StartRule.CONSTANT
    )
    form = FastLeafRefit(structures.view(), "all")
    values = np.concatenate(structures.fit(structures.weights)[1])
    for i in range(n):
        expected = np.concatenate(structures.fit(structures.weights, without=i)[1]) - values
        np.testing.assert_allclose(form.change(i).values, expected, rtol=1e-6, atol=1e-8)


# -- edges -------------------------------------------------------------------------------------------


def test_the_last_sample_of_a_class_leaves_finite_scores() -> None:
    structures = random_structures(Loss.SOFTMAX_LOG_LOSS)
    structures.y[:] = np.where(structures.y == 2, 1, structures.y)
    structures.y[5] = 2
    change = FastLeafRefit(structures.view(), "all").change(5)
    assert np.isfinite(change.start).all()
    assert np.isfinite(change.values).all()
    y, weights = np.array([0.0, 1.0, 2.0, 0.0]), np.array([1.0, 2.0, 0.0, 1.0])
    slopes = losses.start_slopes(StartRule.LOG_SHARES, y, weights, 3)  # a class without a sample that trains
    np.testing.assert_allclose(slopes[:, 0], [1 / 2 - 1 / 4, -1 / 4, -1 / 4])
    assert np.isfinite(slopes).all()


def test_samples_that_do_not_train_have_no_influence() -> None:
    structures = random_structures(Loss.BINARY_LOG_LOSS)
    structures.weights[[2, 7]] = 0.0
    view, leaves, slopes = asked(structures)
    for found in (
        weight_adjoints(view, leaves, slopes),
        weight_adjoints_by_row(view, leaves, slopes).sum(axis=1),
        forward(FastLeafInfluence(view, "all"), leaves, slopes, range(view.n_samples)),
    ):
        assert (np.flatnonzero(found == 0.0) == [2, 7]).all()
    for update_set in ("all", "single"):
        change = FastLeafRefit(view, update_set).change(2)
        assert not change.start.any()
        assert not change.values.any()


# -- losses of rows ----------------------------------------------------------------------------------


@kernel
def _levels_of(loss, scores, powers, power_bits, levels, result):
    for start in range(0, scores.shape[1], BLOCK):
        n = min(BLOCK, scores.shape[1] - start)
        fill_levels(loss, scores, start, n, levels, powers, power_bits)
        for k in range(scores.shape[0]):
            for j in range(n):
                result[k, start + j] = levels[k, j]


def levels_of(loss: Loss, scores: np.ndarray) -> np.ndarray:
    powers, result = np.zeros(BLOCK), np.empty_like(scores)
    _levels_of(int(loss), scores, powers, powers.view(np.int64), np.zeros((len(scores) + 1, BLOCK)), result)
    return result


def test_levels_are_probabilities_to_the_last_bits() -> None:
    scores = np.random.default_rng(0).normal(0, 20, (1, 2 * BLOCK + 7))
    np.testing.assert_allclose(levels_of(Loss.BINARY_LOG_LOSS, scores), 1 / (1 + np.exp(-scores)), rtol=2e-15)
    many = np.random.default_rng(0).normal(0, 9, (5, BLOCK + 3))
    expected = np.exp(many) / np.exp(many).sum(axis=0)
    np.testing.assert_allclose(levels_of(Loss.SOFTMAX_LOG_LOSS, many), expected, rtol=5e-15)
    np.testing.assert_array_equal(levels_of(Loss.SQUARED_ERROR, scores), scores)
    for score in (-1e4, -800.0, 800.0, 1e4):
        assert levels_of(Loss.BINARY_LOG_LOSS, np.array([[score]]))[0, 0] == pytest.approx(float(score > 0), abs=1e-300)
        levels = levels_of(Loss.SOFTMAX_LOG_LOSS, np.array([[score], [0.0], [-score]]))
        assert np.isfinite(levels).all()
        assert levels.sum() == pytest.approx(1.0)


def test_log_loss_is_clipped_but_its_slope_is_not() -> None:
    scores, y = np.array([[100.0], [-100.0]]), np.array([0.0, 1.0])
    np.testing.assert_allclose(losses.row_losses(Loss.BINARY_LOG_LOSS, scores, y), -np.log(1e-15))
    np.testing.assert_allclose(losses.row_slopes(Loss.BINARY_LOG_LOSS, scores, y), [[1.0], [-1.0]])
    both = losses.probabilities(Loss.SOFTMAX_LOG_LOSS, np.column_stack([np.zeros(2), scores[:, 0]]))
    np.testing.assert_array_equal(losses.probabilities(Loss.BINARY_LOG_LOSS, scores), both)
