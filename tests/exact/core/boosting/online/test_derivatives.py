"""Integer derivatives against the formulas of the paper."""

from __future__ import annotations

import math

import numpy as np
import pytest

from oubli.core.boosting.online.derivatives import NO_SCALE, Scale, make_labels, make_rules, scale_of
from oubli.core.boosting.online.parameters import OnlineSettings
from oubli.core.boosting.online.update import derive_all
from oubli.core.samples.arrays import Data, Problem
from tests.exact.core.boosting.online.direct import DEFAULTS

N = 4000


def _derived(scores: list[float], target: float, n_classes: int, iteration: int = 0) -> np.ndarray:
    """The derivatives of N samples that have the same scores and label, by their ids."""
    rng = np.random.default_rng(0)
    groups = len(scores)
    ids = rng.integers(0, 2**64, N, dtype=np.uint64)
    targets = np.full(N, target if n_classes else 0, np.int64)
    data = Data(np.zeros((N, 1)), targets, ids, np.zeros(0, np.uint64), np.zeros(1, np.bool_))
    y = np.full(N, target) if n_classes == 0 else np.zeros(0)
    ranks = np.arange(n_classes, dtype=np.int32)
    problem = Problem(data, ranks, n_classes, y, np.ones(N, np.bool_), N, np.bincount(targets, minlength=n_classes))
    settings = OnlineSettings(**{**DEFAULTS, "learning_rate": 0.5})
    scale = Scale(0.0, 10.0, 2.0**20, 2**24, 1.0) if n_classes == 0 else NO_SCALE
    labels = make_labels(problem, settings, problem.ranks, groups, scale)
    sums = np.repeat(np.array(scores)[:, np.newaxis] / 0.5, N, axis=1)
    gh = np.zeros((groups, N), np.int32 if n_classes == 0 else np.int16)
    derive_all(labels, sums, np.arange(N), 0, N, iteration, 0, gh, 0, groups, np.zeros(groups))
    return gh


@pytest.mark.parametrize("score", [-30.0, -19.97, -4.321, -0.5, 0.0, 0.013, 2.718, 8.0, 700.0])
@pytest.mark.parametrize("target", [0, 1])
def test_two_classes(score: float, target: int) -> None:
    gh = _derived([score], target, 2)[0].astype(int)
    g, h = gh >> 8, gh & 255
    p = 1 / (1 + math.exp(-min(score, 500.0)))
    # Each is rounded to one of its neighbours, and their mean is right.
    assert set(g.tolist()) <= {math.floor(127 * (p - target) + 1e-4), math.floor(127 * (p - target) + 1 - 1e-4)}
    assert g.mean() / 127 == pytest.approx(p - target, abs=5e-4)
    assert h.mean() / 1016 == pytest.approx(p * (1 - p), abs=5e-5)


@pytest.mark.parametrize("scores", [[0.0, 0.0, 0.0], [1.0, -2.0, 0.3], [60.0, 0.0, -3.0]])
def test_many_classes(scores: list[float]) -> None:
    gh = _derived(scores, 1, 3).astype(int)
    powers = np.exp(np.array(scores) - max(scores))
    p = powers / powers.sum()
    assert (gh >> 8).mean(axis=1) / 127 == pytest.approx(p - [0, 1, 0], abs=5e-4)
    assert (gh & 255).mean(axis=1) / 1016 == pytest.approx(p * (1 - p), abs=5e-5)


def test_numbers() -> None:
    g = _derived([2.5], 3.25, 0)[0]
    assert g.mean() / 2**20 == pytest.approx(-0.75, abs=1e-7)
    assert (_derived([1e9], 0.0, 0)[0] == 2**24).all()
    assert (_derived([-1e300], 0.0, 0)[0] == -(2**24)).all()


def test_the_roundings_of_a_sample_cancel_over_the_iterations() -> None:
    total = sum((_derived([-3.0], 0, 2, iteration)[0].astype(int) >> 8) for iteration in range(10))
    exact = 10 * 127 / (1 + math.exp(3.0))
    assert np.abs(total - exact).max() < 1.5


def test_the_scale_covers_all_targets() -> None:
    rng = np.random.default_rng(1)
    y = rng.normal(size=1000) * 1e5 + 3e5
    scale = scale_of(y, 2000)
    assert scale.base == pytest.approx(y.mean(), rel=1e-9)
    assert scale.reach == pytest.approx(2 * np.abs(y - y.mean()).max())
    assert scale == scale_of(y[::-1].copy(), 2000)
    # Sums of 2000 of the largest gradients, and of their number, fit in 64 bits.
    assert scale.limit * 2000 < 2**39
    assert 2 * scale.reach * scale.scale <= scale.limit
    assert np.log2([scale.scale, scale.unit]).tolist() == np.rint(np.log2([scale.scale, scale.unit])).tolist()


def test_robust_logitboost_has_its_factor() -> None:
    settings = OnlineSettings(**DEFAULTS)
    assert make_rules(settings, 1, NO_SCALE).factor == 8.0
    assert make_rules(settings, 4, NO_SCALE).factor == 6.0
    assert make_rules(settings, 4, NO_SCALE).least == 11
