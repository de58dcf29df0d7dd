"""Two nodes as their users see them: one takes changes, both answer, each takes over from the other."""

from __future__ import annotations

import signal
import time

import pytest

from tests.process.durability.canaries import canary, files_with, files_with_secrets
from tests.process.replication.load import Load
from tests.process.replication.nodes import CELLS, LABELS, REDIRECT, Nodes, sample

pytestmark = [pytest.mark.timeout(600), pytest.mark.long]


def test_all_know_who_leads_and_send_changes_there(nodes: Nodes) -> None:
    leader = nodes.leader()
    (follower,) = nodes.followers()
    for one, role in ((leader, "leader"), (follower, "follower")):
        told = one.cluster()
        assert (told["node"], told["role"]) == (one.name, role)
        assert told["leader"] == {"name": leader.name, "url": leader.url}
        assert one.known() == {"node0", "node1"}
        assert one.series("oubli_cluster_is_leader") == (one is leader)
    for method, path, body in (("POST", "/samples?a=b", sample("redirected")), ("DELETE", "/samples/p%2F1", None)):
        answer = follower.ask(method, path, body)
        assert (answer.status, answer.headers["location"]) == (REDIRECT, leader.url + path)
        assert answer.content["type"] == "urn:oubli:problem:not-leader"
    assert follower.ask("GET", "/readyz").status == 200
    assert follower.ask("GET", "/readyz?for=changes").status == 503


def test_nobody_without_the_secret_gets_keys(nodes: Nodes) -> None:
    for path in ("keys", "snapshot", "ledger"):
        assert nodes.leader().ask("GET", f"/cluster/node/{path}").status == 401
        assert nodes.leader().ask("GET", f"/cluster/node/{path}", Authorization="Oubli-Node 00").status == 401
    assert nodes.leader().ask("PUT", "/cluster/node/segment-keys", {}).status == 401


def test_what_was_written_is_read_from_a_follower(nodes: Nodes) -> None:
    (follower,) = nodes.followers()
    for i in range(40):
        version = nodes.add(f"mine{i}", i).content["model_version"]
        asked = {"Min-Version": str(version)}
        answer = follower.ask("POST", "/predict", {"instances": [CELLS[i]]}, **asked)
        assert answer.status == 200
        assert answer.content["model_version"] >= version
        assert follower.ask("GET", f"/samples/mine{i}", **asked).status == 200
    far = follower.ask("POST", "/predict", {"instances": [CELLS[0]]}, Min_Version="100000000")
    assert (far.status, far.content["type"]) == (503, "urn:oubli:problem:behind")


def test_digests_are_equal_after_mixed_changes(nodes: Nodes) -> None:
    leader = nodes.leader()
    with Load(nodes, prefix="mixed") as load:
        load.wait_for(150)
    assert leader.ask("POST", "/subjects/restrict", {"subjects": ["h3", "h4"]}).status == 200
    assert leader.ask("POST", "/subjects/release", {"subjects": ["h3"]}).status == 200
    assert leader.ask("PUT", "/samples/p0", {"features": CELLS[9], "label": LABELS[8]}).status == 200
    nodes.require_same()
    for one in nodes.live:
        assert load.check(one) == (0, 0)


def test_erased_is_said_when_all_nodes_are_rid(nodes: Nodes) -> None:
    (follower,) = nodes.followers()
    bird = canary(1, tuple(CELLS[1]))
    nodes.learn(bird)
    keys = {name: secret for one in nodes.all for name, secret in one.segment_keys().items()}
    assert files_with_secrets(keys, *(one.folder for one in nodes.all))
    receipt = nodes.delete(bird)
    nodes.wait_until_erased(receipt)
    assert files_with([bird], *(one.folder for one in nodes.all)) == []
    assert files_with([bird], nodes.server.folder, lone_numbers=False) == []
    assert files_with_secrets(keys, nodes.folder, nodes.server.folder) == []
    nodes.wait(lambda: follower.is_erased(receipt), "the follower knows it")
    nodes.wait(lambda: follower.series("oubli_cluster_digests_equal") == 1, "digests were compared")


def test_a_clean_stop_hands_over_with_keys_and_tombstones(nodes: Nodes) -> None:
    leader = nodes.leader()
    (follower,) = nodes.followers()
    first = nodes.add("kept", Idempotency_Key="again")
    nodes.add("erased-lately")
    receipt = leader.ask("DELETE", "/samples/erased-lately", Idempotency_Key="deletion").content["id"]
    assert leader.stop() == 0
    stopped = time.monotonic()
    assert nodes.leader() is follower
    assert time.monotonic() - stopped < 1.0
    assert follower.ask("POST", "/samples", sample("kept"), Idempotency_Key="again").content == first.content
    assert follower.ask("DELETE", "/samples/erased-lately", Idempotency_Key="deletion").content["id"] == receipt
    assert follower.ask("POST", "/samples", sample("erased-lately")).status == 409
    leader.start()
    nodes.wait(leader.is_ready, "the other one is back")
    nodes.require_same()


def test_a_leader_that_is_killed_loses_nothing_and_brings_nothing_back(nodes: Nodes) -> None:
    leader = nodes.leader()
    with Load(nodes, prefix="killed") as load:
        load.wait_for(80)
        leader.kill()
        killed = time.monotonic()
        load.wait_for(80)
    after = next(at for at in load.acknowledged_at if at > killed + 0.05)
    assert after - killed < 15
    led = nodes.leader()
    assert led is not leader
    assert load.check(led) == (0, 0)
    leader.start()
    nodes.wait(leader.is_ready, "it is back")
    nodes.require_same()
    assert load.check(leader) == (0, 0)


def test_a_leader_that_was_frozen_follows(nodes: Nodes) -> None:
    leader = nodes.leader()
    epoch = leader.cluster()["epoch"]
    with Load(nodes, prefix="frozen") as load:
        load.wait_for(40)
        leader.send(signal.SIGSTOP)
        led = nodes.leader(besides=leader)
        load.wait_for(40)
        leader.send(signal.SIGCONT)
        nodes.wait(lambda: leader.cluster()["role"] == "follower" and leader.is_ready(), "it follows")
        load.wait_for(40)
    assert "follows at version" in leader.output  # in place: it has not begun again
    assert (led.cluster()["epoch"], led.cluster()["role"]) == (epoch + 1, "leader")
    nodes.require_same()
    for one in nodes.live:
        assert load.check(one) == (0, 0)
