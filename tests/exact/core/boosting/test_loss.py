"""exp, log, sigmoid and softmax: near those of the C library, and the same bits everywhere."""

import math
from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from oubli.core.boosting import loss
from oubli.core.jit.policy import kernel
from tests.oracles.boosting import loss as oracle

Floats = npt.NDArray[np.float64]


@kernel
def _all_of(x, exps, logs, sigmoids):  # type: ignore[no-untyped-def]
    for i in range(x.shape[0]):
        exps[i], sigmoids[i] = exp(x[i]), sigmoid(x[i])
        logs[i] = log(x[i]) if x[i] > 0 else 0.0


exp, log, sigmoid = loss.exp, loss.log, loss.sigmoid


def values(name: str, x: Floats) -> Floats:
    found = {"exp": np.empty_like(x), "log": np.empty_like(x), "sigmoid": np.empty_like(x)}
    _all_of(x, *found.values())
    return found[name]


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
    scattered = np.exp2(rng.uniform(-1021, 1023, 5000))
    below = np.nextafter(powers[1:], 0)
    return np.concatenate([powers, below, near_one, roots, 2 * roots, scattered, [np.finfo(np.float64).max]])


def _sigmoid(x: float) -> float:
    return 1 / (1 + math.exp(-x)) if x >= 0 else math.exp(x) / (1 + math.exp(x))


@pytest.mark.parametrize(("name", "x", "near", "exact", "ulps"), [
    ("exp", arguments(0), math.exp, oracle.exp, 3),
    ("sigmoid", arguments(1), _sigmoid, oracle.sigmoid, 5),
    # Near 1 the logarithm is as small as the distance, and still has all its digits.
    ("log", positives(0), math.log, oracle.log, 4),
])  # fmt: skip
def test_it_is_near_that_of_the_c_library_and_the_oracle_bit_for_bit(
    name: str, x: Floats, near: Callable[[float], float], exact: Callable[[float], float], ulps: int
) -> None:
    found = values(name, x)
    assert found.tobytes() == np.array([exact(v) for v in x]).tobytes()
    wanted = np.array([near(v) for v in (x if name == "log" else np.clip(x, -700, 700))])
    assert (np.abs(found - wanted) / np.spacing(np.abs(wanted))).max() <= ulps


@given(st.lists(st.floats(-50, 50), min_size=3, max_size=6))
def test_the_bits_of_a_row_are_the_oracles(scores: list[float]) -> None:
    found = np.empty((1, len(scores)))
    loss.softmaxes(np.array([scores]), found)
    assert found[0].tolist() == oracle.softmax(scores)
    powers = [math.exp(score - max(scores)) for score in scores]
    assert found[0].tolist() == pytest.approx([power / sum(powers) for power in powers], rel=1e-13)
    both = np.empty((1, 2))
    loss.sigmoids(np.array([scores[:1]]), both)
    assert both[0].tolist() == [1.0 - oracle.sigmoid(scores[0]), oracle.sigmoid(scores[0])]
    equal = np.empty((1, 3))
    loss.softmaxes(np.array([[scores[0], scores[1], scores[0]]]), equal)
    assert equal[0, 0] == equal[0, 2]
