"""Places for journals: in a schema, which is faster, or in a database of their own."""

from pathlib import Path

import pytest

from tests.postgres import Server
from tests.unit.app.storage.postgres.support import Place, new_place


@pytest.fixture
def place(postgres: Server, tmp_path: Path) -> Place:
    return new_place(postgres, tmp_path)


@pytest.fixture
def alone(postgres: Server, tmp_path: Path) -> Place:
    return new_place(postgres, tmp_path, own_database=True)
