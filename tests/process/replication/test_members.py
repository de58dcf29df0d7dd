"""Nodes that are silent, cut off from what they need, or other than the one that leads."""

from __future__ import annotations

import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import pytest

from oubli.core.estimators import load_own
from oubli.core.persistence import read_metadata
from tests.postgres import Server
from tests.process.durability.canaries import canary, files_with
from tests.process.durability.people import rows
from tests.process.replication.nodes import REDIRECT, Node, Nodes
from tests.process.replication.test_nodes import series
from tests.serving import APP, environment

pytestmark = [pytest.mark.timeout(900), pytest.mark.long]
_, CELLS, LABELS = rows()
MEMBER_TIMEOUT = 25  # seconds; longer than a node takes to start on a busy machine


@pytest.fixture(scope="module")
def nodes(database_server: Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Nodes]:
    flags = ("--erasure-deadline", "2", "--member-timeout", str(MEMBER_TIMEOUT))
    found = Nodes(tmp_path_factory.mktemp("members"), database_server, 2, *flags)
    try:
        found.start()
        yield found
    finally:
        found.close()


def add(nodes: Nodes, name: str) -> None:
    sample = {"id": name, "features": CELLS[0], "label": LABELS[0]}
    assert nodes.leader().ask("POST", "/samples", {"samples": [sample]}).status == 201


def member(nodes: Nodes, name: str) -> dict[str, object]:
    found: dict[str, object] = next(one for one in nodes.leader().cluster()["nodes"] if one["name"] == name)
    return found


def wait_until(nodes: Nodes, node: Node, state: str) -> None:
    """Wait until the leader has heard that a node is in some state, or has not heard of it for so long."""
    nodes.wait(lambda: member(nodes, node.name)["state"] == state, f"it is {state}")


def test_a_node_that_differs_is_taken_out_of_service_and_rejoins(nodes: Nodes) -> None:
    leader = nodes.leader()
    (follower,) = nodes.followers()
    add(nodes, "before")
    assert leader.ask("POST", "/snapshot").status == 201
    nodes.wait(lambda: member(nodes, follower.name)["digests_equal"] is True, "digests were compared")
    follower.stop()
    for path in follower.data.glob("snapshot-*.safetensors"):
        alter(path)
    follower.start()
    nodes.wait(lambda: member(nodes, follower.name)["digests_equal"] is False, "the difference is told")
    assert series(leader, "oubli_cluster_is_leader") == 1
    nodes.wait(lambda: "is not that of the leader" in follower.output, "it says so")
    assert follower.ask("GET", "/readyz").status == 503
    assert follower.ask("POST", "/predict", {"instances": [CELLS[0]]}).status == 503
    assert leader.ask("POST", "/predict", {"instances": [CELLS[0]]}).status == 200
    nodes.wait(lambda: follower.output.count("Joined the cluster") > 1 and follower.is_ready(), "it has rejoined")
    nodes.wait_in_step()
    assert leader.digest() == follower.digest()


def alter(path: Path) -> None:
    """Take a sample out of a snapshot, as no server would."""
    model = load_own(path).model
    model.delete(["before"])
    model.resolve()
    model.save(path, extra=read_metadata(path)["extra"])


def test_a_silent_node_is_expelled_and_forgets_everything(nodes: Nodes) -> None:
    leader = nodes.leader()
    (follower,) = nodes.followers()
    bird = canary(1, tuple(CELLS[0]))
    assert leader.ask("POST", "/samples", {"samples": [bird.as_json()]}).status == 201
    assert leader.ask("POST", "/snapshot").status == 201
    nodes.wait(lambda: files_with([bird], follower.data), "the follower has written it")
    nodes.wait_in_step()
    follower.kill()
    killed = time.monotonic()
    receipt = leader.ask("DELETE", f"/samples/{quote(bird.id, safe='')}").content["id"]
    seen = []

    def is_erased() -> bool:
        seen.append(leader.ask("GET", f"/erasures/{receipt}").content["status"])
        return seen[-1] == "erased"

    nodes.wait(is_erased, "the receipt ends without the node")
    assert time.monotonic() - killed >= MEMBER_TIMEOUT - 3
    assert member(nodes, follower.name)["state"] == "expelled"
    assert files_with([bird], leader.data) == []
    assert files_with([bird], follower.data) != []
    follower.start()
    nodes.wait(follower.is_ready, "it has rejoined")
    assert files_with([bird], follower.data) == []
    nodes.wait_in_step()
    assert leader.digest() == follower.digest()
    wait_until(nodes, follower, "in-step")


def test_a_frozen_node_that_was_expelled_rejoins_in_place(nodes: Nodes) -> None:
    (follower,) = nodes.followers()
    follower.send(signal.SIGSTOP)
    wait_until(nodes, follower, "expelled")
    add(nodes, "meanwhile")
    n_joined = follower.output.count("Joined the cluster")
    follower.send(signal.SIGCONT)
    nodes.wait(lambda: follower.output.count("Joined the cluster") > n_joined and follower.is_ready(), "it rejoins")
    assert follower.ask("GET", "/samples/meanwhile").status == 200


def remove(leader: Node, name: str) -> str:
    """Have the command line remove a node; what it says."""
    command = (*APP, "cluster", "remove", name, "--url", leader.url)
    done = subprocess.run(command, env=environment(), capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    return done.stderr


def test_a_node_that_is_gone_for_good_is_removed(nodes: Nodes) -> None:
    leader = nodes.leader()
    (follower,) = nodes.followers()
    refused = {leader.name: 409, follower.name: 409, "nobody": 404}
    for name, status in refused.items():
        assert leader.ask("DELETE", f"/cluster/nodes/{name}").status == status
    asked = follower.ask("DELETE", f"/cluster/nodes/{leader.name}")
    assert (asked.status, asked.headers["location"]) == (REDIRECT, f"{leader.url}/cluster/nodes/{leader.name}")
    assert {one["name"] for one in leader.cluster()["nodes"]} == {leader.name, follower.name}

    bird = canary(2, tuple(CELLS[0]))
    assert leader.ask("POST", "/samples", {"samples": [bird.as_json()]}).status == 201
    assert leader.ask("POST", "/snapshot").status == 201
    nodes.wait(lambda: files_with([bird], follower.data), "the follower has written it")
    nodes.wait_in_step()
    follower.kill()
    wait_until(nodes, follower, "expelled")
    assert "wipe the disk" in remove(leader, follower.name)
    assert [one["name"] for one in leader.cluster()["nodes"]] == [leader.name]
    entries = leader.ask("GET", "/ledger?cursor=0&limit=50").content
    while entries["next"] is not None:
        entries = leader.ask("GET", f"/ledger?cursor={entries['next']}&limit=50").content
    assert [one["node"] for one in entries["entries"] if one["type"] == "node-removed"] == [follower.name]
    assert leader.ask("DELETE", f"/cluster/nodes/{follower.name}").status == 404
    receipt = leader.ask("DELETE", f"/samples/{quote(bird.id, safe='')}").content["id"]
    nodes.wait(lambda: leader.ask("GET", f"/erasures/{receipt}").content["status"] == "erased", "it is erased")

    assert files_with([bird], follower.data) != []
    n_joined = follower.output.count("Joined the cluster")
    follower.start()
    nodes.wait(follower.is_ready, "it is back")
    assert "is not a member of this cluster" in follower.output
    assert follower.output.count("Joined the cluster") == n_joined + 1
    assert files_with([bird], follower.data) == []
    assert follower.ask("GET", f"/samples/{quote(bird.id, safe='')}").status == 404
    nodes.wait_in_step()
    assert leader.digest() == follower.digest()


def test_a_removed_node_that_was_only_frozen_joins_anew(nodes: Nodes) -> None:
    leader = nodes.leader()
    (follower,) = nodes.followers()
    follower.send(signal.SIGSTOP)
    wait_until(nodes, follower, "expelled")
    remove(leader, follower.name)
    n_joined = follower.output.count("Joined the cluster")
    follower.send(signal.SIGCONT)
    nodes.wait(lambda: follower.output.count("Joined the cluster") > n_joined and follower.is_ready(), "it rejoins")
    assert "was removed from the cluster" in follower.output
    wait_until(nodes, follower, "in-step")


def test_nodes_refuse_a_journal_that_was_set_back(nodes: Nodes) -> None:
    add(nodes, "kept")
    nodes.wait_in_step()
    execute = nodes.server.execute
    ((last,),) = execute("SELECT last_seq FROM oubli_leader", database=nodes.database)
    add(nodes, "acknowledged")
    nodes.wait_in_step()
    rows_of = execute("SELECT * FROM oubli_records WHERE seq > %s", (last,), nodes.database)
    ((end,),) = execute("SELECT last_seq FROM oubli_leader", database=nodes.database)
    with_files = {one.name: {path.name for path in one.data.iterdir()} for one in nodes.all}
    execute("DELETE FROM oubli_records WHERE seq > %s", (last,), nodes.database)
    execute("UPDATE oubli_leader SET last_seq = %s", (last,), nodes.database)
    for one in nodes.all:
        assert one.process is not None
        assert one.process.wait(60) == 2
        assert f"ends with record {last}, and record {end}" in one.output
        assert "rejoin" not in {path.name for path in one.data.iterdir()}
        assert {name for name in with_files[one.name] if name.startswith("snapshot")} <= {
            path.name for path in one.data.iterdir()
        }
    for row in rows_of:
        execute("INSERT INTO oubli_records VALUES (%s, %s, %s, %s, %s, %s, %s)", row, nodes.database)
    execute("UPDATE oubli_leader SET last_seq = %s", (end,), nodes.database)
    for one in nodes.all:
        one.start()
    nodes.wait(lambda: all(one.is_ready() for one in nodes.all), "both are back")
    for one in nodes.all:
        assert one.ask("GET", "/samples/acknowledged").status == 200
    nodes.wait_in_step()
    assert len({one.digest() for one in nodes.live}) == 1


def test_followers_predict_while_the_database_is_away(nodes: Nodes) -> None:
    leader = nodes.leader()
    (follower,) = nodes.followers()
    nodes.server.stop()
    try:
        for one in (leader, follower):
            started = time.monotonic()
            assert one.ask("POST", "/predict", {"instances": [CELLS[0]]}).status == 200
            assert time.monotonic() - started < 1.0
        sample = {"id": "nowhere", "features": CELLS[0], "label": LABELS[0]}
        assert leader.ask("POST", "/samples", {"samples": [sample]}).status == 503
    finally:
        nodes.server.start()
    led = nodes.leader()
    add(nodes, "again")
    nodes.wait_in_step()
    assert len({one.digest() for one in nodes.live}) == 1
    assert led.ask("GET", "/samples/nowhere").status == 404


def test_a_restore_makes_others_rejoin(nodes: Nodes) -> None:
    leader = nodes.leader()
    (follower,) = nodes.followers()
    n_joined = follower.output.count("Joined the cluster")
    path = max(leader.data.glob("snapshot-*.safetensors"))
    import http.client

    connection = http.client.HTTPConnection("127.0.0.1", leader.port, timeout=60)
    connection.request("PUT", "/snapshot/file", path.read_bytes(), {"Content-Type": "application/octet-stream"})
    assert connection.getresponse().status == 200
    connection.close()
    nodes.wait(lambda: follower.output.count("Joined the cluster") > n_joined and follower.is_ready(), "it rejoins")
    nodes.wait_in_step()
    assert leader.digest() == follower.digest()
