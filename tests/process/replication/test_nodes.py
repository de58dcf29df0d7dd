"""Two nodes as their users see them: one takes changes, both answer, each takes over from the other."""

import signal
import time

import pytest

from tests.process.replication.load import Load
from tests.process.replication.nodes import Nodes, sample

pytestmark = [pytest.mark.timeout(600), pytest.mark.long]


def test_nobody_without_the_secret_gets_keys(nodes: Nodes) -> None:
    for path in ("keys", "snapshot", "ledger"):
        assert nodes.leader().ask("GET", f"/cluster/node/{path}").status == 401
        assert nodes.leader().ask("GET", f"/cluster/node/{path}", Authorization="Oubli-Node 00").status == 401
    assert nodes.leader().ask("PUT", "/cluster/node/segment-keys", {}).status == 401


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
