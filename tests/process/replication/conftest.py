"""Nodes that several tests of this folder share."""

from collections.abc import Iterator
from contextlib import closing

import pytest

from tests.postgres import Server
from tests.process.replication.nodes import Nodes
from tests.serving import forked


@pytest.fixture(scope="session")
def nodes(postgres: Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Nodes]:
    """Two nodes that are ready; tests leave them so."""
    flags = ("--erasure-deadline", "2", "--member-timeout", "20")
    with closing(Nodes(tmp_path_factory.mktemp("nodes"), postgres, 2, *flags)) as found:
        for one in found.all:
            one.launched = forked  # faster; what begins again by `exec` would seem to have ended, which none does here
        found.start()
        yield found
