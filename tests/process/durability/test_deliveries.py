"""Webhooks of a server that is killed again and again: every state arrives, and in order."""

from __future__ import annotations

import random
import time
from dataclasses import dataclass, field
from pathlib import Path

import orjson
import pytest
from standardwebhooks import Webhook

from tests.process.durability.asking import send, wait_for
from tests.process.durability.crash import FLAGS
from tests.process.durability.evidence import read_pages
from tests.process.durability.listener import listening
from tests.process.durability.people import write_csv
from tests.serving import Running, serving

SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
RANK = {"unlearned": 0, "overdue": 1, "erased": 2}


@dataclass
class Listener:
    """A receiver in threads of the test; it refuses some of what it gets, and forgets that it got it."""

    draw: random.Random
    refused: float = 0.3
    told: list[tuple[str, str]] = field(default_factory=list)
    bodies: list[bytes] = field(default_factory=list)
    port: int = 0

    def take(self, path: str, headers: dict[str, str], body: bytes) -> int:
        assert path == "/hooks"
        content = Webhook(SECRET).verify(body, headers)
        assert content["data"].keys() == {"id", "ref", "status"}
        self.bodies.append(body)
        if self.draw.random() < self.refused:
            return 500
        self.told.append((content["data"]["id"], content["data"]["status"]))
        return 204

    def states(self) -> dict[str, list[str]]:
        found: dict[str, list[str]] = {}
        for name, state in list(self.told):
            found.setdefault(name, []).append(state)
        return found


def _flags(folder: Path, listener: Listener) -> tuple[str, ...]:
    (folder / "secret").write_text(SECRET)
    url = f"http://127.0.0.1:{listener.port}/hooks"
    more = ("--webhook-url", url, "--webhook-secret-file", "secret")
    return (*FLAGS["forest"], *more, "--push-network", "127.0.0.0/8")


def _receipts(server: Running) -> dict[str, str]:
    return {one["id"]: one["status"] for page in read_pages(server, 100, "/erasures") for one in page["erasures"]}


def live_and_die(folder: Path, n_kills: int, seed: int) -> int:
    """Return how many states have arrived."""
    draw = random.Random(seed)
    listener = Listener(random.Random(seed + 1))
    write_csv(folder / "people.csv")
    subjects = [f"h{i}" for i in range(74)]
    draw.shuffle(subjects)
    acknowledged: list[str] = []
    with listening(listener.take) as listener.port:
        for _ in range(n_kills):
            with serving(*_flags(folder, listener), cwd=folder) as server:
                for _ in range(draw.randrange(1, 5)):
                    status, receipt = send(server, "POST", "/samples/batch-delete", {"subjects": [subjects.pop()]})
                    assert status == 200
                    acknowledged.append(receipt["id"])
                    time.sleep(draw.choice([0.0, 0.01, 0.3]))
                time.sleep(draw.uniform(0, 1.5))
                server.process.kill()
                server.process.wait()
        listener.refused = 0.0
        with serving(*_flags(folder, listener), cwd=folder) as server:
            wait_for(lambda: set(_receipts(server).values()) == {"erased"}, "the erasures")
            receipts = _receipts(server)
            assert set(acknowledged) <= set(receipts)
            wait_for(lambda: all("erased" in listener.states().get(name, ()) for name in receipts), "the webhooks", 120)
            assert server.get("/webhooks/dead-letters") == (200, {"dead_letters": [], "next": None})
            assert server.stop() == 0
    states = listener.states()
    assert states.keys() == receipts.keys()
    for name, told in states.items():
        assert told == sorted(told, key=RANK.__getitem__), f"{name}: {told}"
        assert {"unlearned", "erased"} <= set(told), f"{name}: {told}"
    for body in listener.bodies:
        assert orjson.loads(body)["data"]["ref"] is None
    files = b"".join(path.read_bytes() for path in (folder / "oubli-data").rglob("*") if path.is_file())
    assert acknowledged[0].encode() in files, "the search is blind"
    return len(listener.told)


@pytest.mark.parametrize(("n_kills", "seed"), [(2, 4), pytest.param(14, 40, marks=pytest.mark.long)])
def test_a_server_that_is_killed_tells_of_every_state(tmp_path, tell, n_kills, seed):
    tell(f"webhooks across {n_kills} kills: {live_and_die(tmp_path, n_kills, seed)} arrived")
