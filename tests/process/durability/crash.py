"""Servers that live on one data directory one after the other, each killed while clients change the model."""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.process.durability.asking import send, wait_for
from tests.process.durability.clients import Acquaintances, Client, Request, start_clients
from tests.process.durability.evidence import check_evidence
from tests.process.durability.model_of_truth import Operation, Truth
from tests.process.durability.people import flags, people, write_csv
from tests.process.durability.reading import finish, fresh_digest, live_digest, read_held, read_schema
from tests.process.durability.sets import check_set
from tests.serving import Running, serving

_LEAST_ACKNOWLEDGED = 20  # of the operations of a life, before the kill
# Erasures, snapshots and their files come several times in the life of a server.
EXACT = ("forest", "incremental-boosting")
FLAGS = {
    "forest": flags("--erasure-deadline", "1", "--snapshot-mutations", "60"),
    "incremental-boosting": flags("--erasure-deadline", "1", "--snapshot-mutations", "60", kind="incremental-boosting"),
    # Before an erasure is finished the model is built again, under a version that no client has asked for.
    "tree": flags("--erasure-deadline", "600", "--snapshot-mutations", "60", kind="tree"),
    "online-boosting": flags("--erasure-deadline", "600", "--snapshot-mutations", "60", kind="online-boosting"),
}


class Lives:
    """One data directory, and what is known to be in it.

    Parameters
    ----------
    folder
        Where the servers run.
    seed
        Of everything that is random.
    most_seconds
        The longest life, from the first request to the kill.
    kind
        Of the model.
    """

    def __init__(self, folder: Path, seed: int, most_seconds: float = 0.8, kind: str = "forest") -> None:
        self.figures: Counter[str] = Counter()
        self._kind = kind
        self._folder = folder
        self._seed = seed
        self._most_seconds = most_seconds
        self._random = random.Random(seed)
        self._truth = Truth(people(), 0)
        self._known = Acquaintances(people(), sorted({str(one.subject) for one in people().values()}))
        self._life = 0
        self._sent: list[Request] = []
        self._receipts: list[dict[str, Any]] = []
        write_csv(folder / "people.csv")

    def run(self, n_kills: int) -> Counter[str]:
        """Live and die so many times; then check that the last server is sound and can be stopped. Return counts."""
        for _ in range(n_kills):
            with serving(*FLAGS[self._kind], cwd=self._folder) as server:
                self._check(server)
                self._load_and_kill(server)
        with serving(*FLAGS[self._kind], cwd=self._folder) as server:
            self._check(server)
            self._erase_all(server)
            assert server.stop() == 0
        return self.figures

    def _load_and_kill(self, server: Running) -> None:
        clients = start_clients(server.port, self._known, self._life, self._seed)
        time.sleep(self._random.uniform(0.05, self._most_seconds))
        # However slow the machine is, something is to be lost.
        wait_for(lambda: _n_acknowledged(clients) > _LEAST_ACKNOWLEDGED, "a load on the server")
        server.process.kill()
        server.process.wait()
        for client in clients:
            client.join()
        self._life += 1
        self._sent = _all_requests(clients)
        self.figures += Counter(kills=1, operations=len(self._sent), acknowledged=_n_acknowledged(clients))

    def _check(self, server: Running) -> None:
        """Compare what a server came back with to what was acknowledged."""
        if self._kind not in EXACT:
            wait_for(lambda: server.get("/model")[1]["pending_erasures"] == 0, "erasures that were left over")
        held, version = read_held(server)
        operations = [request.operation for request in self._sent]
        if not self._life:
            self._truth.version = version
        elif self._kind not in EXACT:
            # What was unlearned and not erased when the server died is erased first of all, by a fresh fit.
            operations.append(Operation("rebuild"))
        differences = self._truth.settle(operations, held, version)
        assert not differences, f"after kill {self._life}: {differences}"
        receipts = receipts_of(operations)
        check_evidence(server, receipts)
        self.figures["receipts"] += len(receipts)
        self._receipts += receipts
        self._repeat(server, version, {name for name, content in held.items() if content.is_restricted})
        check_set(server)
        by_snapshot = self._random.random() < 0.5
        if self._kind in EXACT:
            fresh = fresh_digest(read_schema(server), held, self._kind)
            assert live_digest(server, by_snapshot=by_snapshot) == fresh
        else:
            assert finish(server, "/model/verify")["ok"]
        assert "Traceback" not in server.output

    def _repeat(self, server: Running, version: int, restricted: set[str]) -> None:
        """Requests with an idempotency key, sent again, are answered as before and change nothing.

        An addition of what is restricted by now is refused all the same.
        """
        keyed = [one for one in self._sent if one.operation.key is not None and one.operation.is_acknowledged]
        for request in self._random.sample(keyed, min(3, len(keyed))):
            status, content = send(server, request.method, request.target, request.content, key=request.operation.key)
            answer = request.operation.answer
            kind = request.operation.kind
            if kind == "add" and restricted.intersection(answer["ids"]):
                # The key is spent when another sample, or the subject, of the request was erased since.
                assert status == 409
                assert content["type"].rpartition(":")[2] in ("restricted", "key-spent")
                continue
            if kind != "delete" and status == 409:  # what it named was erased since
                assert content["type"].rpartition(":")[2] == "key-spent"
                continue
            same = {"add": "ids", "restrict": "ledger_index", "release": "ledger_index"}.get(kind, "id")
            assert status == request.operation.status
            assert (content[same], content["model_version"]) == (answer[same], answer["model_version"])
        assert server.get("/model")[1]["model_version"] == version

    def _erase_all(self, server: Running) -> None:
        """After a scrub every receipt says `erased`, and no file holds an id that is not held any more."""
        finish(server, "/model/scrub")
        for receipt in self._receipts:
            if receipt["unlearned"]:
                assert server.get(f"/erasures/{receipt['id']}")[1]["status"] == "erased"
        held, _ = read_held(server)
        # Generated ids are short numbers and those of the file are few: the clients' own are distinguished anywhere.
        gone = {name.encode() for name in self._known.samples if name not in held and "-" in name}
        for path in (self._folder / "oubli-data").rglob("*"):
            if path.is_file():
                content = path.read_bytes()
                assert not [name for name in gone if name in content], f"{path.name} holds what was erased"


def receipts_of(operations: Sequence[Operation]) -> list[dict[str, Any]]:
    """Return the receipts that clients were given."""
    return [one.answer for one in operations if one.kind in ("delete", "put") and one.is_acknowledged]


def _n_acknowledged(clients: Sequence[Client]) -> int:
    return sum(request.operation.is_acknowledged for client in clients for request in client.requests)


def _all_requests(clients: Sequence[Client]) -> list[Request]:
    failures = [failure for client in clients for failure in client.failures]
    assert not failures, failures
    return [request for client in clients for request in client.requests]
