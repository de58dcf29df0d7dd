"""How a cluster begins: by a server that kept its journal in files, and again when all disks were lost.

It begins again with its keys and its ledger, and no one who was erased is served.
"""

import json
import shutil
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from tests.postgres import Server
from tests.process.durability.people import flags
from tests.process.replication.nodes import Nodes, sample
from tests.serving import serving

pytestmark = [pytest.mark.timeout(900), pytest.mark.long]


@pytest.fixture
def lost(postgres: Server, tmp_path: Path) -> Iterator[Nodes]:
    """Two nodes that have not begun, with the keys and the ledger of one that was erased from."""
    old, new = tmp_path / "old", tmp_path / "new"
    old.mkdir()
    new.mkdir()
    with closing(Nodes(old, postgres, 1)) as before:
        before.start()
        assert before.leader().ask("DELETE", "/samples/p9").status == 200
        page = before.all[0].ask("GET", "/ledger?limit=1000").content
        assert page["next"] is None
        (new / "ledger.jsonl").write_text(json.dumps(page) + "\n")
    with closing(Nodes(new, postgres, 2, "--ledger", str(new / "ledger.jsonl"))) as nodes:
        without = shutil.ignore_patterns("segments")
        shutil.copytree(before.all[0].data / "keys", nodes.all[0].data / "keys", ignore=without)
        yield nodes


def test_a_new_cluster_takes_in_the_ledger_and_others_compare_it(lost: Nodes) -> None:
    lost.start()
    for one in lost.all:
        assert [one.ask("GET", f"/samples/{name}").status for name in ("p8", "p9")] == [200, 404]
    lost.wait_in_step()
    leader, (follower,) = lost.leader(), lost.followers()
    pages = [one.ask("GET", "/ledger?limit=1000").content for one in (leader, follower)]
    assert [page["checkpoint"] is None for page in pages] == [False, True], "only who leads signs the end"
    follower.stop()
    file = lost.folder / "ledger.jsonl"
    kept = file.read_bytes()
    foreign = json.loads(kept)
    foreign["entries"][-1]["hash"] = "0" * 64
    file.write_text(json.dumps(foreign) + "\n")
    follower.start()
    assert follower.end(120) == 2
    assert "the cluster does not have" in " ".join(follower.output.split())
    file.write_bytes(kept)
    follower.start()
    lost.wait(follower.is_ready, "it follows again")


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
