"""What was acknowledged survives SIGKILL at any instant, and what was deleted does not come back."""

from __future__ import annotations

from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.process.durability.crash import Lives

LANES = 2  # data directories at the same time


@pytest.mark.parametrize(
    ("kind", "n_kills"),
    [
        ("forest", 2),
        *(
            pytest.param(kind, n_kills, marks=pytest.mark.long)
            for kind, n_kills in (("forest", 200), ("tree", 40), ("online-boosting", 40), ("incremental-boosting", 40))
        ),
    ],
)
def test_killed_at_random_moments(tmp_path, kind, n_kills):
    """Servers on some directories are killed side by side."""
    n_lanes = LANES if n_kills > LANES else 1

    def lane(number: int) -> Counter[str]:
        folder = tmp_path / f"lane{number}"
        folder.mkdir()
        return Lives(folder, seed=4 * n_kills + number, kind=kind).run(n_kills // n_lanes)

    with ThreadPoolExecutor(n_lanes) as pool:
        figures = sum(pool.map(lane, range(n_lanes)), Counter[str]())
    assert figures["kills"] == n_kills
    # There was a load: no server is killed before it has answered some requests, and deletions are among them.
    assert figures["receipts"] > 3 * n_kills
