from __future__ import annotations

import pytest

from oubli.app.service.retention import refuses


@pytest.mark.parametrize(
    ("n_held", "n_due", "max_share"),
    [
        (100, 0, 0.1),
        (100, 10, 0.1),
        (1000, 1, 0.0001),
        (3, 1, 0.1),
        (1, 1, 0.1),
        (0, 0, 0.1),
        (0, 0, 0.0),
        (60, 60, 1.0),
        (500_000, 50_000, 0.1),
    ],
)
def test_a_small_share_may_go(n_held, n_due, max_share):
    assert refuses(n_held=n_held, n_due=n_due, max_share=max_share) is None


@pytest.mark.parametrize(
    ("n_held", "n_due", "max_share", "allowed"),
    [(100, 11, 0.1, 10), (3, 2, 0.1, 1), (100, 1, 0.0, 0), (60, 60, 0.99, 59), (500_000, 50_001, 0.1, 50_000)],
)
def test_more_has_to_be_confirmed(n_held, n_due, max_share, allowed):
    reason = refuses(n_held=n_held, n_due=n_due, max_share=max_share)
    assert reason is not None
    assert reason.startswith(f"{n_due} of {n_held} samples")
    assert f"lets {allowed} go" in reason
