"""How far down a split may rank and stay."""

import numpy as np
import pytest

from oubli.core import OnlineBoostingClassifier
from oubli.core.boosting.online.derivatives import tolerance_of


@pytest.mark.parametrize(
    ("n_moved", "n_held", "share"),
    [(1, 1000, 0.1), (1, 10, 1.0), (5, 1000, 0.25), (20, 1000, 1.0), (200, 1000, 1.0), (1, 0, 1.0)],
)
def test_in_proportion_to_what_comes_or_goes(n_moved: int, n_held: int, share: float) -> None:
    assert tolerance_of(0.2, n_moved, n_held) == pytest.approx(0.2 * share)
    assert tolerance_of(0.0, n_moved, n_held) == 0.0


def test_few_samples_leave_fewer_splits_that_are_not_the_best() -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(1500, 8))
    y = (X[:, 0] * X[:, 1] + rng.normal(size=1500) > 0).astype(int)
    retrained = []
    for size in (15, 1):
        model = OnlineBoostingClassifier(10, robustness=0.2, random_state=0).fit(X, y)
        n = 0
        for first in range(0, 150, size):
            model.delete(list(map(str, range(first, first + size))))
            n += model.engine_.last_update.nodes_retrained
        retrained.append(n)
    assert retrained[0] < retrained[1]
