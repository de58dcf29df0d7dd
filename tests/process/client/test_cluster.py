"""The client and real nodes: it writes at the leader, reads its writes anywhere, and continues when the leader dies."""

import threading

import pytest

from oubli.client import Client, NotLeaderError, Retries
from tests.process.replication.nodes import Nodes, two_nodes

nodes = two_nodes("--member-timeout", "10", scope="function")


def test_changes_reach_the_leader_and_every_node_answers_what_was_written(nodes: Nodes) -> None:
    leader, follower = nodes.all
    with Client([follower.url, leader.url]) as client:
        cluster = client.cluster()
        assert {node.name for node in cluster.nodes} == {"node0", "node1"}
        assert cluster.leader is not None
        assert cluster.leader.url == leader.url
        row = next(client.samples()).features
        for i in range(20):
            added = client.add([row], [">50K"], ids=[f"cluster-{i}"])
            assert client.predict([row]).model_version >= added.model_version
            assert client.get(f"cluster-{i}").id == f"cluster-{i}"
        assert client.wait(client.verify()).result["ok"]  # type: ignore[index]
    with Client(follower.url) as alone, pytest.raises(NotLeaderError) as caught:
        alone.add([row], [">50K"], ids=["refused"])
    assert caught.value.leader == leader.url


def test_a_leader_that_dies_under_load_loses_and_doubles_nothing(nodes: Nodes) -> None:
    leader, follower = nodes.all
    with Client([leader.url, follower.url], retries=Retries(20, longest_wait=2.0), timeout=5) as client:
        before = client.model().n_samples
        row = next(client.samples()).features
        kill = threading.Thread(target=leader.kill)
        for i in range(60):
            if i == 20:
                kill.start()
            client.add([row], [">50K"], idempotency_key=f"key-{i}")  # without an id: once only by the key
        kill.join()
        assert client.model().n_samples == before + 60
        cluster = client.cluster()
        assert cluster.leader is not None
        assert (cluster.leader.url, cluster.epoch > 1) == (follower.url, True)
