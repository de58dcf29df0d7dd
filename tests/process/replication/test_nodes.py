"""Two nodes as their users see them: one takes changes, both answer, each takes over from the other."""

import http.client
import random
import signal
import threading
import time
from dataclasses import dataclass, field
from typing import Self

import pytest

from tests.process.replication.nodes import CELLS, REDIRECT, Answer, Node, Nodes, sample, two_nodes
from tests.serving import forked, wait_for

pytestmark = [pytest.mark.timeout(600), pytest.mark.long]

_N_THREADS = 4


@dataclass
class Known:
    """What was answered; what was asked and not answered may be either way."""

    held: set[str] = field(default_factory=set)
    gone: set[str] = field(default_factory=set)
    unknown: set[str] = field(default_factory=set)


class Load:
    """Adds and deletes samples in threads for the length of a block; each finds the node that leads by itself."""

    def __init__(self, nodes: Nodes, prefix: str) -> None:
        self._nodes = nodes
        self._prefix = prefix
        self._stop = threading.Event()
        self.known = [Known() for _ in range(_N_THREADS)]
        self.acknowledged_at: list[float] = []  # in seconds of `time.monotonic`
        self._threads = [threading.Thread(target=self._run, args=(i,), daemon=True) for i in range(_N_THREADS)]

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join(60)

    def wait_for(self, n: int) -> None:
        """Return when so many more changes were acknowledged."""
        target = len(self.acknowledged_at) + n
        wait_for(lambda: len(self.acknowledged_at) >= target, f"{target} changes are acknowledged")

    def check(self, node: Node) -> tuple[int, int]:
        """Return how many acknowledged samples a node has lost, and how many deleted ones it has again."""

        def statuses(names: set[str]) -> list[int]:
            return [node.ask("GET", f"/samples/{name}").status for name in names]

        lost = [status for known in self.known for status in statuses(known.held - known.unknown) if status != 200]
        back = [status for known in self.known for status in statuses(known.gone - known.unknown) if status == 200]
        return len(lost), len(back)

    def _run(self, thread: int) -> None:
        chance, known, place, asked = random.Random(thread), self.known[thread], thread % len(self._nodes.all), 0
        while not self._stop.is_set():
            free = sorted(known.held - known.unknown)
            is_deletion = bool(free) and chance.random() < 0.4
            name = chance.choice(free) if is_deletion else f"{self._prefix}{thread}-{asked}"
            asked += 1
            node = self._nodes.all[place]
            try:
                if is_deletion:
                    answer = node.ask("DELETE", f"/samples/{name}", seconds=5)
                else:
                    answer = node.ask("POST", "/samples", sample(name, asked % len(CELLS)), seconds=5)
            except (OSError, http.client.HTTPException):
                answer = Answer(0, None, {})  # it may have been made, or not
            if answer.status in (200, 201):
                self.acknowledged_at.append(time.monotonic())
                if is_deletion:
                    known.held.remove(name)
                    known.gone.add(name)
                else:
                    known.held.add(name)
            elif answer.status == REDIRECT:
                url = answer.headers["location"]
                place = next((i for i, one in enumerate(self._nodes.all) if url.startswith(one.url)), place)
            else:
                if answer.status != 503:
                    known.unknown.add(name)
                place = (place + 1) % len(self._nodes.all)
                time.sleep(0.02)


# Tests leave them ready. Forked they start faster; one that begins again by `exec` would seem to have ended.
nodes = two_nodes("--erasure-deadline", "2", "--member-timeout", "20", launched=forked)


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
