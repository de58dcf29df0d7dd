"""Backups and restores in any order as the documentation writes them, and guesses about whom was erased meanwhile."""

from pathlib import Path

import pytest

from tests.histories.backups import play


@pytest.mark.parametrize(("kind", "seed", "n"), [
    ("forest", 83, 60),
    *(pytest.param(kind, 1, 400, marks=pytest.mark.long) for kind in ("forest", "incremental-boosting", "tree")),
])  # fmt: skip
def test_histories(kind: str, seed: int, n: int, tmp_path: Path) -> None:
    tally = play(kind, tmp_path, seed, n)
    needed = ("restore_directory", "lose_all_disks", "fingerprints gone", "digests told", "dropped by a start")
    assert min(tally[name] for name in needed) > 0, tally
