"""A node that may have missed an erasure answers nothing that depends on samples: cut off, or frozen and thawed."""

import http.client
import json
import signal
import time
from collections.abc import Iterator
from contextlib import closing, suppress

import pytest

from tests.postgres import Proxy, Server
from tests.process.replication.nodes import CELLS, Node, Nodes

pytestmark = [pytest.mark.timeout(900), pytest.mark.long]
MEMBER_TIMEOUT = N_QUEUED = 8
OF_SAMPLES = ("/samples/cut", "/model", "/model/trees/0")


@pytest.fixture(scope="module")
def proxy(postgres: Server) -> Iterator[Proxy]:
    """How the second node reaches PostgreSQL."""
    with closing(Proxy(postgres.port)) as made:
        yield made


@pytest.fixture(scope="module")
def nodes(postgres: Server, proxy: Proxy, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Nodes]:
    flags = ("--erasure-deadline", "2", "--member-timeout", str(MEMBER_TIMEOUT))
    with closing(Nodes(tmp_path_factory.mktemp("cut-off"), postgres, 2, *flags)) as found:
        found.all[1].database = postgres.url(found.database, port=proxy.port)
        found.start()
        yield found


def connected(node: Node) -> http.client.HTTPConnection:
    """A connection that stays open, so that requests may wait in it."""
    connection = http.client.HTTPConnection("127.0.0.1", node.port, timeout=60)
    connection.connect()
    return connection


def ask_to_predict(connection: http.client.HTTPConnection) -> None:
    connection.request("POST", "/predict", json.dumps({"instances": [CELLS[0]]}), {"Content-Type": "application/json"})


def status_of(connection: http.client.HTTPConnection) -> int:
    """The status of the answer; 0 when there is none."""
    with suppress(OSError, http.client.HTTPException):
        answer = connection.getresponse()
        answer.read()
        return answer.status
    return 0


def add(nodes: Nodes, name: str) -> None:
    nodes.wait(lambda: all(one.is_ready() for one in nodes.all), "both are ready")
    nodes.add(name)
    nodes.wait_in_step()


def delete(leader: Node, name: str) -> str:
    return str(leader.ask("DELETE", f"/samples/{name}").content["id"])


def test_a_follower_that_is_cut_off_answers_nothing_once_a_receipt_may_say_erased(nodes: Nodes, proxy: Proxy) -> None:
    leader, follower = nodes.all
    assert nodes.leader() is leader
    add(nodes, "cut")
    kept = connected(follower)
    proxy.is_away = True
    proxy.cut()
    try:
        receipt = delete(leader, "cut")
        end, after, n_served = time.monotonic() + 60, 0, 0
        while after < 5:
            assert time.monotonic() < end
            erased = leader.is_erased(receipt)
            answers = [follower.predict(), *(follower.ask("GET", path) for path in OF_SAMPLES)]
            ask_to_predict(kept)
            statuses = [*(one.status for one in answers), status_of(kept)]
            if erased:
                after += 1
                assert statuses == [503] * len(statuses)
                assert "has not reached PostgreSQL" in answers[0].content["detail"]
                assert "another node" in answers[0].content["detail"]
            n_served += statuses[0] == 200
            time.sleep(0.1)
        assert n_served > 10  # a short cut is not noticed
        assert follower.ask("GET", "/readyz").status == 503
        for path in ("/healthz", "/cluster", "/ledger/keys", "/ledger", "/erasures"):
            assert follower.ask("GET", path).status == 200, path
        assert follower.series("oubli_ready") == 0
        assert follower.output.count("it answers nothing that depends on samples") == 1
        assert leader.predict().status == 200
    finally:
        proxy.is_away = False
        kept.close()
    nodes.wait(follower.is_ready, "it has rejoined")
    assert follower.ask("GET", "/samples/cut").status == 404


@pytest.mark.parametrize("role", ["follower", "leader"])
def test_a_thawed_node_refuses_what_was_asked_while_it_was_frozen(nodes: Nodes, role: str) -> None:
    add(nodes, role)
    led = nodes.leader()
    frozen = led if role == "leader" else next(one for one in nodes.all if one is not led)
    (other,) = (one for one in nodes.all if one is not frozen)
    kept = [connected(frozen) for _ in range(2 * N_QUEUED)]
    for one in kept[:N_QUEUED]:  # so that the next one has a known head
        ask_to_predict(one)
        assert status_of(one) == 200
    frozen.send(signal.SIGSTOP)
    try:
        for one in kept[:N_QUEUED]:
            ask_to_predict(one)
        for one in kept[N_QUEUED:]:
            one.request("GET", f"/samples/{role}")
        nodes.wait(lambda: other.ask("GET", "/readyz?for=changes").status == 200, "the other one leads")
        receipt = delete(other, role)
        nodes.wait(lambda: other.is_erased(receipt), "it is erased")
    finally:
        frozen.send(signal.SIGCONT)
    statuses = [status_of(one) for one in kept]
    for one in kept:
        one.close()
    assert set(statuses) <= {0, 503}
    assert 503 in statuses
    nodes.wait(frozen.is_ready, "it has rejoined")
    assert frozen.ask("GET", f"/samples/{role}").status == 404
