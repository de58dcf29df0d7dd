"""LeafRefit against refitting by hand, and its update sets against it."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from oubli.core.influence import FastLeafRefit
from oubli.core.influence.losses import Loss, StartRule, row_losses
from tests.exact.core.influence.test_leaf_influence import CASES
from tests.oracles.influence import random_structures


@pytest.mark.parametrize("case", CASES)
def test_leaf_refit_is_refitting_all_leaves_by_hand(case):
    structures = random_structures(**case)
    view = structures.view()
    start, values = structures.fit(structures.weights)
    form = FastLeafRefit(view, "all")
    for i in range(0, view.n_samples, max(1, view.n_samples // 10)):
        change = form.change(i)
        new_start, new_values = structures.fit(structures.weights, without=i)
        np.testing.assert_allclose(change.start, new_start - start, rtol=1e-9, atol=1e-13)
        np.testing.assert_allclose(change.values, np.concatenate(new_values) - np.concatenate(values), atol=1e-10)
        losses = row_losses(view.loss, view.raw_scores(None) + change.of_rows(view, view.route(None)), structures.row_y)
        np.testing.assert_allclose(losses, structures.losses(structures.weights, without=i), rtol=1e-9)


@pytest.mark.parametrize("case", CASES)
def test_the_update_set_of_every_leaf_is_all(case):
    structures = random_structures(**case)
    view = structures.view()
    exact, every = FastLeafRefit(view, "all"), FastLeafRefit(view, structures.n_leaves)
    for i in range(0, view.n_samples, max(1, view.n_samples // 10)):
        expected, found = exact.change(i), every.change(i)
        np.testing.assert_array_equal(found.values, expected.values)
        np.testing.assert_array_equal(found.start, expected.start)


@pytest.mark.parametrize("loss", list(Loss))
def test_single_point_only_takes_the_sample_out_of_its_leaves(loss):
    structures = random_structures(loss)
    view = structures.view()
    trace, i = view.trace, 3
    change = FastLeafRefit(view, "single").change(i)
    scores = np.tile(view.start, (view.n_samples, 1))
    for tree in range(view.n_trees):
        k = tree % view.n_groups
        if k == 0 and tree:
            for group in range(view.n_groups):
                before = tree - view.n_groups + group
                scores[:, group] += structures.rate * trace.values[view.offsets[before] :][structures.leaves[before]]
        g, h = structures.derivatives(scores, k)
        w = structures.weights * h
        for leaf in range(structures.n_leaves):
            here = structures.leaves[tree] == leaf
            others = here & (np.arange(view.n_samples) != i)
            values = [
                -structures.factor * (structures.weights * g)[part].sum() / (w[part].sum() + structures.l2)
                for part in (others, here)
            ]
            assert change.values[view.offsets[tree] + leaf] == pytest.approx(values[0] - values[1], abs=1e-12)


@pytest.mark.parametrize("loss", list(Loss))
def test_more_leaves_come_nearer(loss):
    view = random_structures(loss, n=60, n_leaves=6).view()
    exact = FastLeafRefit(view, "all")
    errors = []
    for update_set in ("single", 1, 5):
        form = FastLeafRefit(view, update_set)
        errors.append(sum(np.abs(form.change(i).values - exact.change(i).values).sum() for i in range(20)))
    assert errors[0] > errors[1] > errors[2]


@settings(max_examples=25, deadline=None)
@given(
    loss=st.sampled_from(list(Loss)),
    n=st.integers(6, 25),
    n_leaves=st.integers(1, 8),
    l2=st.sampled_from([0.0, 0.3]),
    seed=st.integers(0, 1000),
)
def test_leaves_may_become_empty(loss, n, n_leaves, l2, seed):
    # Other starts depend on a class keeping a sample.
    structures = random_structures(
        loss, n=n, n_leaves=n_leaves, l2=l2, seed=seed, n_iterations=3, start_rule=StartRule.CONSTANT
    )
    view = structures.view()
    form = FastLeafRefit(view, "all")
    values = np.concatenate(structures.fit(structures.weights)[1])
    for i in range(n):
        expected = np.concatenate(structures.fit(structures.weights, without=i)[1]) - values
        np.testing.assert_allclose(form.change(i).values, expected, rtol=1e-6, atol=1e-8)


def test_the_last_sample_of_a_class_leaves_finite_scores():
    structures = random_structures(Loss.SOFTMAX_LOG_LOSS)
    structures.y[:] = np.where(structures.y == 2, 1, structures.y)
    structures.y[5] = 2
    view = structures.view()
    change = FastLeafRefit(view, "all").change(5)
    assert np.isfinite(change.start).all()
    assert np.isfinite(change.values).all()


def test_a_sample_that_does_not_train_changes_nothing():
    structures = random_structures(Loss.BINARY_LOG_LOSS)
    structures.weights[4] = 0.0
    view = structures.view()
    for form in (FastLeafRefit(view, "all"), FastLeafRefit(view, "single")):
        change = form.change(4)
        assert not change.start.any()
        assert not change.values.any()
