"""Nodes that are silent, cut off from what they need, or other than the one that leads."""

import time

import pytest

from oubli.core.estimators import load_own
from oubli.core.persistence import read_metadata
from tests.process.durability.canaries import canary, files_with
from tests.process.replication.nodes import CELLS, REDIRECT, Node, Nodes, place_of, two_nodes
from tests.serving import APP, run_program

pytestmark = [pytest.mark.timeout(900), pytest.mark.long]
MEMBER_TIMEOUT = 25  # seconds; longer than a node takes to start on a busy machine

nodes = two_nodes("--erasure-deadline", "2", "--member-timeout", str(MEMBER_TIMEOUT))


def member(nodes: Nodes, name: str) -> dict[str, object]:
    found: dict[str, object] = next(one for one in nodes.leader().cluster()["nodes"] if one["name"] == name)
    return found


def wait_until(nodes: Nodes, node: Node, state: str) -> None:
    """Wait until the leader has heard that a node is in some state, or has not heard of it for so long."""
    nodes.wait(lambda: member(nodes, node.name)["state"] == state, f"it is {state}")


def test_a_node_that_differs_is_taken_out_of_service_and_rejoins(nodes: Nodes) -> None:
    leader = nodes.leader()
    (follower,) = nodes.followers()
    nodes.add("before")
    assert leader.ask("POST", "/snapshot").status == 201
    nodes.wait(lambda: member(nodes, follower.name)["digests_equal"] is True, "digests were compared")
    follower.stop()
    for path in follower.data.glob("snapshot-*.safetensors"):  # takes a sample out of it, as no server would
        model = load_own(path).model
        model.delete(["before"])
        model.resolve()
        model.save(path, extra=read_metadata(path)["extra"])
    follower.start()
    nodes.wait(lambda: member(nodes, follower.name)["digests_equal"] is False, "the difference is told")
    assert leader.series("oubli_cluster_is_leader") == 1
    nodes.wait(lambda: "differs from the leader's" in follower.output, "it says so")
    assert follower.ask("GET", "/readyz").status == 503
    assert (follower.predict().status, leader.predict().status) == (503, 200)
    nodes.wait(lambda: follower.n_joined > 1 and follower.is_ready(), "it has rejoined")
    nodes.require_same()


@pytest.mark.parametrize("is_removed", [False, True])
def test_a_silent_node_is_expelled_and_forgets_everything(nodes: Nodes, is_removed: bool) -> None:
    leader = nodes.leader()
    (follower,) = nodes.followers()
    for name, status in {leader.name: 409, follower.name: 409, "nobody": 404}.items():
        assert leader.ask("DELETE", f"/cluster/nodes/{name}").status == status
    asked = follower.ask("DELETE", f"/cluster/nodes/{leader.name}")
    assert (asked.status, asked.headers["location"]) == (REDIRECT, f"{leader.url}/cluster/nodes/{leader.name}")
    assert leader.known() == {leader.name, follower.name}

    bird = canary(1 + is_removed, tuple(CELLS[0]))
    nodes.learn(bird)
    n_joined = follower.n_joined
    follower.kill()
    killed = time.monotonic()
    if is_removed:
        wait_until(nodes, follower, "expelled")
        done = run_program(*APP, "cluster", "remove", follower.name, "--url", leader.url)
        assert (done.returncode, "wipe the disk" in done.stderr) == (0, True), done.stderr
        assert leader.known() == {leader.name}
        assert leader.ask("DELETE", f"/cluster/nodes/{follower.name}").status == 404
        entries = leader.ask("GET", "/ledger?limit=1000").content["entries"]
        assert [one["node"] for one in entries if one["type"] == "node-removed"] == [follower.name]
    nodes.wait_until_erased(nodes.delete(bird))
    assert time.monotonic() - killed >= MEMBER_TIMEOUT - 3
    if not is_removed:
        assert member(nodes, follower.name)["state"] == "expelled"
    assert files_with([bird], leader.data) == []
    assert files_with([bird], follower.data) != []
    follower.start()
    nodes.wait(follower.is_ready, "it has rejoined")
    assert ("is not a member of this cluster" in follower.output) == is_removed
    assert follower.n_joined == n_joined + 1
    assert files_with([bird], follower.data) == []
    assert follower.ask("GET", place_of(bird)).status == 404
    nodes.require_same()
    wait_until(nodes, follower, "in-step")


def test_nodes_refuse_a_journal_that_was_set_back(nodes: Nodes) -> None:
    nodes.add("kept")
    nodes.wait_in_step()
    execute = nodes.server.execute
    ((last,),) = execute("SELECT last_seq FROM oubli_leader", database=nodes.database)
    nodes.add("acknowledged")
    nodes.wait_in_step()
    lost = execute("SELECT * FROM oubli_records WHERE seq > %s", (last,), nodes.database)
    ((end,),) = execute("SELECT last_seq FROM oubli_leader", database=nodes.database)
    snapshots = {one.name: set(one.data.glob("snapshot*")) for one in nodes.all}
    execute("DELETE FROM oubli_records WHERE seq > %s", (last,), nodes.database)
    execute("UPDATE oubli_leader SET last_seq = %s", (last,), nodes.database)
    for one in nodes.all:
        assert one.end() == 2
        assert f"ends with record {last}, and record {end}" in one.output
        assert not (one.data / "rejoin").exists()
        assert snapshots[one.name] <= set(one.data.glob("snapshot*"))
    for row in lost:
        execute("INSERT INTO oubli_records VALUES (%s, %s, %s, %s, %s, %s, %s)", row, nodes.database)
    execute("UPDATE oubli_leader SET last_seq = %s", (end,), nodes.database)
    for one in nodes.all:
        one.start()
    nodes.wait(lambda: all(one.is_ready() for one in nodes.all), "both are back")
    for one in nodes.all:
        assert one.ask("GET", "/samples/acknowledged").status == 200
    nodes.require_same()
