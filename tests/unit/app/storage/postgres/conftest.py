"""Places for journals: in a schema, which is faster, or in a database of their own."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.postgres import Server
from tests.unit.app.storage.postgres.support import Place, new_place


@pytest.fixture
def place(postgres: Server, tmp_path: Path) -> Iterator[Place]:
    with new_place(postgres, tmp_path) as place:
        yield place


@pytest.fixture
def alone(postgres: Server, tmp_path: Path) -> Iterator[Place]:
    with new_place(postgres, tmp_path, own_database=True) as place:
        yield place
