"""LeafInfluence, forward and reverse, against differences of refits with fixed structures."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from oubli.core.influence import FastLeafInfluence
from oubli.core.influence.losses import Loss, StartRule, row_slopes, start_slopes
from oubli.core.influence.reverse import weight_adjoints, weight_adjoints_by_row
from oubli.core.influence.views import View
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


def asked(structures: Structures) -> tuple[View, np.ndarray, np.ndarray]:
    """A view, the leaves of the rows, and the slopes of the mean loss."""
    view = structures.view()
    leaves = view.route(None)
    slopes = row_slopes(view.loss, view.scores_in(leaves), structures.row_y) / len(structures.row_y)
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


def asked_samples(view: View) -> range:
    """All samples, or some of many."""
    return range(0, view.n_samples, max(1, view.n_samples // 40))


def forward(form: FastLeafInfluence, leaves: np.ndarray, slopes: np.ndarray, samples: range) -> np.ndarray:
    return np.array([(form.change(i).of_rows(form.view, leaves) * slopes).sum() for i in samples])


@pytest.mark.parametrize("case", CASES)
def test_reverse_equals_central_differences_of_refits(case):
    structures = random_structures(**case)
    view, leaves, slopes = asked(structures)
    samples = asked_samples(view)
    expected = finite_differences(structures, samples)
    by_row = weight_adjoints_by_row(view, leaves, slopes * len(slopes))[samples]
    scale = np.abs(expected).max()
    assert scale > 1e-3
    assert np.abs(by_row - expected).max() < 1e-5 * scale
    mean = weight_adjoints(view, leaves, slopes)[samples]
    assert np.abs(mean - expected.mean(axis=1)).max() < 1e-5 * scale


@pytest.mark.parametrize("case", CASES)
def test_reverse_equals_forward_for_every_sample(case):
    view, leaves, slopes = asked(random_structures(**case))
    samples = asked_samples(view)
    expected = forward(FastLeafInfluence(view, "all"), leaves, slopes, samples)
    found = weight_adjoints(view, leaves, slopes)[samples]
    assert np.abs(found - expected).max() < 1e-9 * np.abs(expected).max()


@pytest.mark.parametrize("case", CASES)
def test_single_point_ignores_dependencies(case):
    structures = random_structures(**case)
    view, leaves, slopes = asked(structures)
    samples = asked_samples(view)
    single = forward(FastLeafInfluence(view, "single"), leaves, slopes, samples)
    reverse = weight_adjoints(view, leaves, slopes, propagates=False)[samples]
    np.testing.assert_allclose(reverse, single, rtol=1e-9, atol=1e-15)
    # By hand: with its scores held as they are, a leaf changes by its sums alone.
    trace, i = view.trace, 1
    change = FastLeafInfluence(view, "single").change(i)
    scores = np.tile(view.start, (view.n_samples, 1))
    expected = []
    for tree in range(view.n_trees):
        if tree % view.n_groups == 0 and tree:
            for k in range(view.n_groups):
                before = tree - view.n_groups + k
                values = trace.values[view.offsets[before] :][structures.leaves[before]]
                scores[:, k] += structures.rate * values
        g, h = structures.derivatives(scores, tree % view.n_groups)
        weight = structures.hessian_scale * h[i]
        here = structures.leaves[tree] == structures.leaves[tree, i]
        total = (structures.weights * g)[here].sum()
        below = (structures.weights * structures.hessian_scale * h)[here].sum() + structures.l2
        expected.append(-structures.factor * (g[i] * below - total * weight) / below**2)
    own = view.offsets[:-1] + structures.leaves[:, i]
    np.testing.assert_allclose(change.values[own], expected, rtol=1e-9)
    assert np.count_nonzero(change.values) <= view.n_trees


@pytest.mark.parametrize("loss", list(Loss))
def test_top_leaves_lead_from_single_point_to_all_points(loss):
    view, leaves, slopes = asked(random_structures(loss, n=60, n_leaves=6))
    everything = forward(FastLeafInfluence(view, "all"), leaves, slopes, range(view.n_samples))
    errors = [
        np.abs(forward(FastLeafInfluence(view, update_set), leaves, slopes, range(view.n_samples)) - everything).mean()
        for update_set in ("single", 1, 3, 5, 6, "all")
    ]
    assert errors[0] > errors[2] > errors[3] > errors[4]
    assert errors[4] == errors[5] == 0.0


@settings(max_examples=25, deadline=None)
@given(
    loss=st.sampled_from(list(Loss)),
    n=st.integers(5, 30),
    n_leaves=st.integers(1, 5),
    n_classes=st.integers(3, 4),
    l2=st.sampled_from([0.0, 0.3]),
    seed=st.integers(0, 1000),
)
def test_all_forms_agree_on_random_structures(loss, n, n_leaves, n_classes, l2, seed):
    structures = random_structures(
        loss, n=n, n_rows=3, n_leaves=n_leaves, n_classes=n_classes, l2=l2, seed=seed, n_iterations=3, rate=0.4
    )
    view, leaves, slopes = asked(structures)
    reverse = weight_adjoints(view, leaves, slopes)
    scale = max(np.abs(reverse).max(), 1e-12)
    np.testing.assert_allclose(
        forward(FastLeafInfluence(view, "all"), leaves, slopes, range(n)), reverse, atol=1e-9 * scale
    )
    by_row = weight_adjoints_by_row(view, leaves, slopes)
    np.testing.assert_allclose(by_row.sum(axis=1), reverse, atol=1e-9 * scale)
    if l2 > 0:
        expected = finite_differences(structures, range(n)).mean(axis=1)
        np.testing.assert_allclose(reverse, expected, atol=1e-5 * max(np.abs(expected).max(), 1e-4))


def test_samples_that_do_not_train_have_no_influence():
    structures = random_structures(Loss.BINARY_LOG_LOSS)
    structures.weights[[2, 7]] = 0.0
    view, leaves, slopes = asked(structures)
    for found in (
        weight_adjoints(view, leaves, slopes),
        weight_adjoints_by_row(view, leaves, slopes).sum(axis=1),
        forward(FastLeafInfluence(view, "all"), leaves, slopes, range(view.n_samples)),
    ):
        assert (np.flatnonzero(found == 0.0) == [2, 7]).all()


def test_a_class_without_a_sample_that_trains_has_no_influence():
    y, weights = np.array([0.0, 1.0, 2.0, 0.0]), np.array([1.0, 2.0, 0.0, 1.0])
    slopes = start_slopes(StartRule.LOG_SHARES, y, weights, 3)
    np.testing.assert_allclose(slopes[:, 0], [1 / 2 - 1 / 4, -1 / 4, -1 / 4])
    assert np.isfinite(slopes).all()


def test_many_rows_go_in_several_passes():
    view, leaves, slopes = asked(random_structures(Loss.SOFTMAX_LOG_LOSS, n_rows=37))
    done = []
    by_row = weight_adjoints_by_row(view, leaves, slopes, lambda *progress: done.append(progress))
    for row in (0, 15, 16, 36):
        alone = weight_adjoints(view, leaves[:, row : row + 1], slopes[row : row + 1])
        np.testing.assert_allclose(by_row[:, row], alone, rtol=1e-9, atol=1e-15)
    assert done == [(16, 37), (32, 37), (37, 37)]
