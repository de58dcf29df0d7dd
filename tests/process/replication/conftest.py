"""A PostgreSQL for all tests of this folder, and nodes that several of them share."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

import pytest

from tests.postgres import Server, needs_postgres, temporary_server
from tests.process.replication.nodes import Nodes
from tests.serving import forked


@pytest.fixture(scope="session")
def database_server() -> Iterator[Server]:
    needs_postgres()
    with temporary_server() as server:
        yield server


@pytest.fixture(scope="session")
def nodes(database_server: Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Nodes]:
    """Two nodes that are ready; tests leave them so."""
    flags = ("--erasure-deadline", "2", "--member-timeout", "20")
    with closing(Nodes(tmp_path_factory.mktemp("nodes"), database_server, 2, *flags)) as found:
        for one in found.all:
            one.launched = forked  # faster; what begins again by `exec` would seem to have ended, which none does here
        found.start()
        yield found
