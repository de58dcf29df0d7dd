"""What people may ask for, in random order, through restarts, kills and restores."""

from pathlib import Path

import pytest

from tests.histories.told import play


@pytest.mark.parametrize(("kind", "n"), [("forest", 150), ("incremental-boosting", 40), ("tree", 40)])
def test_histories(kind: str, n: int, tmp_path: Path) -> None:
    tally = play(kind, tmp_path, 12, n)
    if kind == "forest":
        needed = ("restricted samples", "released samples", "digests", "kill", "told: erased", "told: completed")
        assert min(tally[name] for name in needed) > 0
