"""Long histories of what people may ask for.

`OUBLI_PRIVACY_OPERATIONS` is how many operations there are in all; a hundred thousand take a quarter of an hour on a
quiet machine. They are cut into histories of two thousand, a third of them of other kinds than the forest.
"""

import os
from collections import Counter
from pathlib import Path

import pytest

from tests.histories.told import play

N_OPERATIONS = int(os.environ.get("OUBLI_PRIVACY_OPERATIONS", "4000"))
_LENGTH = 2000
_KINDS = ("forest", "forest", "forest", "incremental-boosting", "forest", "forest", "forest", "tree", "online-boosting")
_NEEDED = (
    *("restricted samples", "released samples", "erased while restricted", "expired while restricted"),
    *("restored restricted", "rectified: (True, True)"),
    *("refused: RestrictedError", "refused: ErasedLatelyError", "searches of files"),
    *("kill", "stop", "restore", "fit", "export", "digests", "request_erasure", "bundles", "redelivered", "all told"),
    *("told: overdue", "told: cancelled", "refused: 410", "refused: 500"),
)


@pytest.mark.parametrize("part", range(max(1, N_OPERATIONS // _LENGTH)))
def test_long_histories(part: int, tmp_path: Path) -> None:
    n = min(N_OPERATIONS, _LENGTH)
    tally: Counter[str] = play(_KINDS[part % len(_KINDS)], tmp_path, 1000 + part, n)
    needed = [name for name in _NEEDED if name != "digests" or tally["digests"]]
    assert n < _LENGTH or not [name for name in needed if not tally[name]], "not everything was tried"
