"""A ledger as a server keeps it."""

from pathlib import Path

import pytest

from tests.unit.app.ledger.support import WholeLedger, make_ledger


@pytest.fixture
def ledger(tmp_path: Path) -> WholeLedger:
    """A new ledger on the disk."""
    return make_ledger(tmp_path)
