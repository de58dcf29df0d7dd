"""The whole API under Schemathesis, with all checks."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.process.app.http.contract import check_contract


@pytest.mark.timeout(3600)
@pytest.mark.parametrize(("with_key", "seed"), [(False, 1), (True, 2), (False, 3)])
def test_all_operations_hold_to_the_document(tmp_path: Path, with_key: bool, seed: int) -> None:
    check_contract(tmp_path, f"--seed={seed}", "--max-examples=150", with_key=with_key)
