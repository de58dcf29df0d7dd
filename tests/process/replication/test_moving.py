"""A server that kept its journal in files becomes the first node of a cluster."""

from contextlib import closing
from pathlib import Path

import pytest

from tests.postgres import Server
from tests.process.durability.people import flags
from tests.process.replication.nodes import Nodes, sample
from tests.serving import serving

pytestmark = [pytest.mark.timeout(900), pytest.mark.long]


def test_a_server_becomes_a_node(postgres: Server, tmp_path: Path) -> None:
    nodes = Nodes(tmp_path, postgres, 2)
    first = nodes.all[0]
    own = ("--data-dir", str(first.data), *flags())
    with serving(*own, cwd=tmp_path) as server:
        assert server.ask("POST", "/samples", sample("from-before"))[0] == 201
        assert server.stop() == 0
    first.start()
    assert first.end(120) == 2
    assert "start once without --follow" in first.output
    assert not (first.data / "rejoin").exists()
    with serving(*own, "--journal", first.database, cwd=tmp_path) as server:
        assert server.stop() == 0
    with closing(nodes):
        nodes.start()
        for one in nodes.all:
            assert one.ask("GET", "/samples/from-before").status == 200
        assert nodes.leader() is first
