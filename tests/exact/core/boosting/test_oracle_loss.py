"""exp, log, sigmoid and softmax: near those of the C library, the same bits everywhere."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from oubli.core.boosting.loss import exp, log, sigmoid, sigmoids, softmaxes
from oubli.core.jit.policy import kernel
from tests.oracles.boosting import loss as oracle

Floats = npt.NDArray[np.float64]


@kernel
def _exps(x, y):  # type: ignore[no-untyped-def]
    for i in range(x.shape[0]):
        y[i] = exp(x[i])


@kernel
def _logs(x, y):  # type: ignore[no-untyped-def]
    for i in range(x.shape[0]):
        y[i] = log(x[i])


@kernel
def _sigmoids(x, y):  # type: ignore[no-untyped-def]
    for i in range(x.shape[0]):
        y[i] = sigmoid(x[i])


def exps(x: Floats) -> Floats:
    y = np.empty_like(x)
    _exps(x, y)
    return y


def logs(x: Floats) -> Floats:
    y = np.empty_like(x)
    _logs(x, y)
    return y


def sigmoid_of(x: Floats) -> Floats:
    y = np.empty_like(x)
    _sigmoids(x, y)
    return y


def arguments(seed: int) -> Floats:
    """Of exp: all sizes, the edges of the reduction, and beyond the clipping."""
    rng = np.random.default_rng(seed)
    halves = (np.arange(-1000, 1000) + 0.5) * math.log(2)  # where k changes
    parts = [rng.uniform(-s, s, 3000) for s in (1e-300, 1e-10, 1e-3, 1.0, 40.0, 709.0)]
    edges = [0.0, -0.0, 700.0, -700.0, 700.1, 1e6, -1e6, math.inf, -math.inf, math.log(2) / 2]
    return np.concatenate([*parts, halves, np.nextafter(halves, 0), np.array(edges)])


def positives(seed: int) -> Floats:
    """Of log: all exponents of normal numbers, around powers of two, around sqrt(1/2) and 1."""
    rng = np.random.default_rng(seed)
    powers = 2.0 ** np.arange(-1022, 1024)
    near_one = 1 + rng.uniform(-1e-8, 1e-8, 2000)
    roots = math.sqrt(0.5) * (1 + rng.uniform(-1e-15, 1e-15, 500))
    below = np.nextafter(powers[1:], 0)
    scattered = np.exp2(rng.uniform(-1021, 1023, 5000))
    return np.concatenate([powers, below, near_one, roots, 2 * roots, scattered, [np.finfo(np.float64).max]])


def in_ulps(got: Floats, wanted: Floats) -> Floats:
    return np.asarray(np.abs(got - wanted) / np.spacing(np.abs(wanted)))


def test_exp_is_near_that_of_the_c_library() -> None:
    x = arguments(0)
    wanted = np.array([math.exp(v) for v in np.clip(x, -700, 700)])
    assert in_ulps(exps(x), wanted).max() <= 3


def test_log_is_near_that_of_the_c_library() -> None:
    x = positives(0)
    wanted = np.array([math.log(v) for v in x])
    # Near 1 the logarithm is as small as the distance, and still has all its digits.
    assert in_ulps(logs(x), wanted).max() <= 4


def test_sigmoid_and_softmax_are_what_they_are_called() -> None:
    x = np.clip(arguments(1), -700, 700)
    wanted = np.array([1 / (1 + math.exp(-v)) if v >= 0 else math.exp(v) / (1 + math.exp(v)) for v in x])
    assert in_ulps(sigmoid_of(x), wanted).max() <= 5
    scores = np.random.default_rng(2).normal(0, 5, (500, 4))
    found = np.empty_like(scores)
    softmaxes(scores, found)
    powers = np.exp(scores)
    assert np.allclose(found, powers / powers.sum(axis=1, keepdims=True), rtol=1e-14, atol=0)
    assert np.allclose(found.sum(axis=1), 1, rtol=1e-15)


def test_the_bits_are_the_oracles() -> None:
    x, positive = arguments(3), positives(3)
    assert exps(x).tobytes() == np.array([oracle.exp(v) for v in x]).tobytes()
    assert logs(positive).tobytes() == np.array([oracle.log(v) for v in positive]).tobytes()
    assert sigmoid_of(x).tobytes() == np.array([oracle.sigmoid(v) for v in x]).tobytes()


@given(st.lists(st.floats(-50, 50), min_size=3, max_size=6))
def test_the_bits_of_a_row_are_the_oracles(scores: list[float]) -> None:
    found = np.empty((1, len(scores)))
    softmaxes(np.array([scores]), found)
    assert found[0].tolist() == oracle.softmax(scores)
    both = np.empty((1, 2))
    sigmoids(np.array([scores[:1]]), both)
    assert both[0].tolist() == [1.0 - oracle.sigmoid(scores[0]), oracle.sigmoid(scores[0])]


GOLDEN = {
    "exp": {
        1.0: "0x1.5bf0a8b14576ap+1",  # of the true value the last digit is 9
        -1.0: "0x1.78b56362cef38p-2",
        0.5: "0x1.a61298e1e069cp+0",
        10.0: "0x1.5829dcf950560p+14",
        -700.0: "0x1.14f2b0fb9307fp-1010",
    },
    "log": {
        2.0: "0x1.62e42fefa39efp-1",
        3.0: "0x1.193ea7aad030bp+0",
        0.1: "-0x1.26bb1bbb55515p+1",
        1e300: "0x1.5963447f87fb5p+9",
    },
    "sigmoid": {
        0.0: "0x1.0000000000000p-1",
        1.0: "0x1.764d4f5d5a2bdp-1",
        -1.0: "0x1.136561454ba86p-2",
        30.0: "0x1.ffffffffffcb6p-1",
        -30.0: "0x1.a56e0c2ac7cc0p-44",
    },
}


@pytest.mark.parametrize("name", GOLDEN)
def test_golden_bits(name: str) -> None:
    """A digest made on one machine is compared on another one, and with a later version."""
    function = {"exp": exps, "log": logs, "sigmoid": sigmoid_of}[name]
    arguments = np.array(list(GOLDEN[name]))
    assert [value.hex() for value in function(arguments).tolist()] == list(GOLDEN[name].values())


def test_fixed_points() -> None:
    assert exps(np.array([0.0, -0.0])).tolist() == [1.0, 1.0]
    assert logs(np.array([1.0])).tolist() == [0.0]
    assert sigmoid_of(np.array([0.0, math.inf, -math.inf])).tolist() == [0.5, 1.0, oracle.exp(-700.0)]
    assert exps(np.array([math.inf, -math.inf])).tolist() == exps(np.array([700.0, -700.0])).tolist()


def test_monotone() -> None:
    """On steps that are not smaller than the error, strictly; from one float to the next, within it."""
    assert (np.diff(exps(np.arange(-700, 700, 2.0**-6))) > 0).all()
    assert (np.diff(logs(np.arange(1, 200_000) * 2.0**-8)) > 0).all()
    assert (np.diff(sigmoid_of(np.arange(-36, 30, 2.0**-6))) > 0).all()
    x = np.cumsum(np.full(5000, np.spacing(0.3))) + 0.3
    for function in (exps, logs, sigmoid_of):
        y = function(x)
        assert (np.diff(y) >= -3 * np.spacing(np.abs(y[1:]))).all()


def test_sigmoid_is_symmetric() -> None:
    """The two classes of a problem, exchanged, have exchanged probabilities up to the last bit."""
    x = np.random.default_rng(5).normal(0, 8, 2000)
    assert np.allclose(sigmoid_of(x) + sigmoid_of(-x), 1, rtol=0, atol=2.0**-52)


def test_equal_scores_have_equal_probabilities() -> None:
    found = np.empty((1, 5))
    softmaxes(np.array([[3.0, 3.0, -1.0, 3.0, -1.0]]), found)
    assert found[0, 0] == found[0, 1] == found[0, 3]
    assert found[0, 2] == found[0, 4]
