"""A server that kept its journal in files becomes the first node of a cluster."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.postgres import Server
from tests.process.durability.people import flags
from tests.process.replication.nodes import Nodes, sample
from tests.serving import APP, environment, serving

pytestmark = [pytest.mark.timeout(900), pytest.mark.long]


def test_a_server_becomes_a_node(database_server: Server, tmp_path: Path) -> None:
    nodes = Nodes(tmp_path, database_server, 2)
    first = nodes.all[0]
    own = ("--data-dir", str(first.data), *flags())
    with serving(*own, cwd=tmp_path) as server:
        assert server.ask("POST", "/samples", sample("from-before"))[0] == 201
        assert server.stop() == 0
    first.start()
    assert first.process is not None
    assert first.process.wait(120) == 2
    assert "start once without --follow" in first.output
    assert not (first.data / "rejoin").exists()
    with serving(*own, "--journal", first.database, cwd=tmp_path) as server:
        assert server.stop() == 0
    try:
        nodes.start()
        for one in nodes.all:
            assert one.ask("GET", "/samples/from-before").status == 200
        assert nodes.leader() is first
    finally:
        nodes.close()


def test_a_node_needs_what_others_reach_it_by(tmp_path: Path) -> None:
    command = (*APP, "serve", "--follow", "--journal", "postgresql://nowhere.invalid/x", "--data-dir", "data")
    done = subprocess.run(
        command, cwd=tmp_path, env=environment(), capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 2
    assert "node_url and cluster_secret_file are missing" in done.stderr
