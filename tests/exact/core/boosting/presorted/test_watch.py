"""The loss that early stopping goes by, beside the textbook's."""

import math

import numpy as np
import pytest

from oubli.core.boosting.presorted.derivatives import BINARY, MULTI_CLASS, SCORE_BITS, SQUARED, Watch, total_loss
from oubli.core.jit.policy import kernel
from oubli.core.samples.fixed_point import BITS

STEPS = 2.0**32


@kernel
def total(watch, kind):
    return total_loss(watch, kind)


def watch_of(scores: np.ndarray, targets: np.ndarray) -> Watch:
    m = len(targets)
    return Watch(1, np.arange(m), targets, scores.astype(np.int64), np.zeros(1, np.int64))


@pytest.mark.parametrize("kind", [SQUARED, BINARY, MULTI_CLASS])
def test_the_loss_is_that_of_the_textbook_in_steps(kind: int) -> None:
    rng = np.random.default_rng(kind)
    groups = 3 if kind == MULTI_CLASS else 1
    unit = 2.0**-BITS if kind == SQUARED else 2.0**-SCORE_BITS
    raw = rng.normal(size=(groups, 40))
    scores = np.round(raw / unit)
    if kind == SQUARED:
        targets = np.round(rng.normal(size=40) / unit).astype(np.int64)
        losses = [((score - target) * unit) ** 2 for score, target in zip(scores[0], targets, strict=True)]
    elif kind == BINARY:
        targets = rng.integers(0, 2, 40)
        losses = [math.log1p(math.exp(-f if y else f)) for f, y in zip(raw[0], targets, strict=True)]
    else:
        targets = rng.integers(0, 3, 40)
        losses = [math.log(sum(math.exp(f) for f in fs)) - fs[y] for fs, y in zip(raw.T, targets, strict=True)]
    assert total(watch_of(scores, targets), kind) / STEPS == pytest.approx(sum(losses), abs=1e-6)
