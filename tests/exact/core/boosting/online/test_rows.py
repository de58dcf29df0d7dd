"""Samples at hand: dense or sparse, the counts are the same."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from oubli.core.boosting.online import workspace as rows_module
from oubli.core.boosting.online.workspace import choose_layout
from tests.exact.core.boosting.online.direct import digest, grown, make_problem


def test_a_column_with_a_common_code_is_sparse() -> None:
    codes = np.zeros((100, 3), np.uint16)
    codes[:, 0] = np.arange(100) % 7
    codes[:80, 1] = 4
    codes[80:, 1] = np.arange(20)
    first_codes = np.array([0, 7, 30, 31], np.uint32)
    layout = choose_layout(codes, np.arange(100), first_codes, np.array([0, 3, 8, 9], np.uint32))
    assert layout.dense.tolist() == [0]
    assert layout.sparse.tolist() == [1, 2]
    assert layout.common.tolist() == [4, 0]
    assert layout.bin_starts.tolist() == [0] * 7 + [3] * 23 + [8]


@pytest.mark.parametrize("n_classes", [0, 2, 3])
def test_what_is_sparse_changes_no_tree(n_classes: int, monkeypatch: pytest.MonkeyPatch) -> None:
    problem = make_problem(1, 120, n_classes=n_classes)
    results: list[Any] = []
    for share in (0.0, 0.5, 2.0):
        monkeypatch.setattr(rows_module, "_SPARSE_FROM", share)
        engine = grown(problem, np.arange(98), robustness=0.0)
        engine.add(problem, np.arange(98, 120))
        assert engine.last_update.nodes_retrained > 0
        engine.check_invariants(problem, np.arange(120))
        results.append(digest(engine))
        assert (len(engine.layout.sparse) == 5) == (share == 0.0)
        assert (len(engine.layout.sparse) == 0) == (share == 2.0)
    assert results[0] == results[1] == results[2]
