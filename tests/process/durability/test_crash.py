"""What was acknowledged survives SIGKILL at any instant, and what was deleted does not come back."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.process.durability.crash import Figures, Lives
from tests.tiers import ordinary

OTHERS = ("tree", "online-boosting", "incremental-boosting")
LANES = 2  # data directories at the same time


def kill_many(tmp_path: Path, n_kills: int, seed: int, kind: str = "forest") -> Figures:
    """Kill servers on some directories side by side."""
    n_lanes = min(LANES, n_kills)

    def lane(number: int) -> Figures:
        folder = tmp_path / f"lane{number}"
        folder.mkdir()
        return Lives(folder, seed + number, kind=kind).run(n_kills // n_lanes)

    with ThreadPoolExecutor(n_lanes) as pool:
        return sum(pool.map(lane, range(n_lanes)), Figures())


def check(figures: Figures, n_kills: int) -> None:
    assert figures.kills == n_kills
    assert figures.n_wrong == 0
    # There was a load: no server is killed before it has answered some requests, and deletions are among them.
    assert figures.receipts > 5 * n_kills


def test_killed_at_random_moments(tmp_path, tell):
    figures = kill_many(tmp_path, 4, seed=4)
    tell(f"killed at random: {figures}")
    check(figures, 4)


@pytest.mark.parametrize("kind", ordinary(OTHERS, "incremental-boosting"))
def test_a_server_of_another_kind_is_killed_at_a_random_moment(tmp_path, tell, kind):
    figures = kill_many(tmp_path, 1, seed=8, kind=kind)
    tell(f"killed at random, {kind}: {figures}")
    check(figures, 1)


@pytest.mark.long
def test_killed_at_many_random_moments(tmp_path, tell):
    figures = kill_many(tmp_path, 200, seed=40)
    tell(f"killed at random: {figures}")
    check(figures, 200)


@pytest.mark.long
@pytest.mark.parametrize("kind", OTHERS)
def test_a_server_of_another_kind_is_killed_at_many_random_moments(tmp_path, tell, kind):
    figures = kill_many(tmp_path, 40, seed=80, kind=kind)
    tell(f"killed at random, {kind}: {figures}")
    check(figures, 40)
