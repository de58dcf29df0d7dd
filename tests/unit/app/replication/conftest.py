"""What more than one test of replication needs."""

from collections.abc import AsyncIterator
from typing import Any

import pytest


@pytest.fixture
async def pair() -> AsyncIterator[Any]:
    """A service that leads, and a node that follows it; see `pairs`."""
    from tests.unit.app.replication.pairs import paired  # which needs psycopg

    async with paired() as pair:
        yield pair
