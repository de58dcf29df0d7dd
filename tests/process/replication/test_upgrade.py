"""Nodes of the first version with clusters are replaced by this one, one by one, while changes continue."""

from __future__ import annotations

import subprocess
import tarfile
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from tests.postgres import Server
from tests.process.replication.load import Load
from tests.process.replication.nodes import Node, Nodes
from tests.serving import ROOT, Process, spawned

pytestmark = [pytest.mark.long, pytest.mark.timeout(1800)]
OLD = "142f222"  # the first that has clusters; none is released yet


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """The files of the old version."""
    archive, folder = tmp_path / "old.tar", tmp_path / "old"
    made = subprocess.run(["git", "archive", "-o", archive, OLD], cwd=ROOT, capture_output=True, check=False)
    if made.returncode:
        pytest.skip("the history of the project is not here")
    with tarfile.open(archive) as file:
        file.extractall(folder, filter="data")
    return folder


def test_nodes_are_upgraded_one_by_one_and_nothing_is_lost(
    checkout: Path, database_server: Server, tmp_path: Path
) -> None:
    def old(command: Sequence[str], folder: Path, variables: Mapping[str, str], output: Path) -> Process:
        return spawned(command, folder, {**variables, "PYTHONPATH": str(checkout)}, output)

    nodes = Nodes(tmp_path, database_server, 3, "--member-timeout", "20", "--erasure-deadline", "2")
    for one in nodes.all:
        one.launched = old
    try:
        nodes.start()
        assert not any(_has_this_version(one) for one in nodes.all)
        with Load(nodes, prefix="upgraded") as load:
            load.wait_for(60)
            for one in [*nodes.followers(), nodes.leader()]:  # the last one hands over to a newer one
                assert one.stop() == 0
                load.wait_for(40)
                one.launched = spawned
                one.start()
                nodes.wait(one.is_ready, f"{one.name} is ready")
                load.wait_for(40)
        nodes.wait_in_step()
        assert [load.check(one) for one in nodes.all] == [(0, 0)] * 3
        assert load.n_split == 0
        assert len({one.digest() for one in nodes.all}) == 1
        assert all(_has_this_version(one) for one in nodes.all)
    finally:
        nodes.close()


def _has_this_version(node: Node) -> bool:
    """Whether a node knows a route that the old version does not have."""
    return "/cluster/nodes/{name}" in node.ask("GET", "/openapi/cluster.json").content.get("paths", {})
