"""What was acknowledged survives SIGKILL at any instant, and what was deleted does not come back."""

import random
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tests.process.durability.clients import Request, everybody, start_clients
from tests.process.durability.evidence import check_evidence, receipts_of
from tests.process.durability.model_of_truth import Operation, Truth
from tests.process.durability.people import flags, people, write_csv
from tests.process.durability.reading import check_exact, check_set, read_held
from tests.serving import Running, serving, wait_for

LANES = 2  # data directories at the same time
_LEAST_ACKNOWLEDGED = 20  # of the operations of a life, before the kill
# Erasures, snapshots and their files come several times in the life of a server.
EXACT = ("forest", "incremental-boosting")
# Where a model is not exact it is built again before an erasure is finished, under a version that no one has asked for.
DEADLINES = {"forest": "1", "incremental-boosting": "1", "tree": "600", "online-boosting": "600"}


class Lives:
    """One data directory, and what is known to be in it."""

    def __init__(self, folder: Path, seed: int, kind: str = "forest") -> None:
        self._kind, self._folder, self._seed = kind, folder, seed
        self._flags = flags("--erasure-deadline", DEADLINES[kind], "--snapshot-mutations", "60", kind=kind)
        self._random = random.Random(seed)
        self._truth = Truth(people(), 0)
        self._known = everybody()
        self._life = 0
        self._sent: list[Request] = []
        self._receipts: list[dict[str, Any]] = []
        write_csv(folder / "people.csv")

    def run(self, n_kills: int) -> int:
        """Live and die so many times; then check that the last server is sound and can be stopped.

        Return how many receipts there are.
        """
        for _ in range(n_kills):
            with serving(*self._flags, cwd=self._folder) as server:
                self._check(server)
                self._load_and_kill(server)
        with serving(*self._flags, cwd=self._folder) as server:
            self._check(server)
            self._erase_all(server)
            assert server.stop() == 0
        return len(self._receipts)

    def _load_and_kill(self, server: Running) -> None:
        clients = start_clients(server.port, self._known, self._life, self._seed)
        time.sleep(self._random.uniform(0.05, 0.8))

        def n_acknowledged() -> int:
            return sum(request.operation.is_acknowledged for client in clients for request in client.requests)

        # However slow the machine is, something is to be lost.
        wait_for(lambda: n_acknowledged() > _LEAST_ACKNOWLEDGED, "a load on the server")
        server.process.kill()
        server.process.wait()
        for client in clients:
            client.join()
        self._life += 1
        failures = [failure for client in clients for failure in client.failures]
        assert not failures, failures
        self._sent = [request for client in clients for request in client.requests]

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
        self._receipts += receipts
        self._repeat(server, version, {name for name, content in held.items() if content.is_restricted})
        check_set(server)
        if self._kind in EXACT:
            check_exact(server, held, kind=self._kind, by_snapshot=self._random.random() < 0.5)
        else:
            assert server.finish("/model/verify")["ok"]
        assert "Traceback" not in server.output

    def _repeat(self, server: Running, version: int, restricted: set[str]) -> None:
        """Requests with an idempotency key, sent again, are answered as before and change nothing.

        An addition of what is restricted by now is refused all the same.
        """
        keyed = [one for one in self._sent if one.operation.key is not None and one.operation.is_acknowledged]
        for request in self._random.sample(keyed, min(3, len(keyed))):
            status, content = request.sent_to(server)
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
        server.finish("/model/scrub")
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


MANY = [pytest.param(kind, 200 if kind == "forest" else 40, marks=pytest.mark.long) for kind in DEADLINES]


@pytest.mark.parametrize(("kind", "n_kills"), [("forest", 2), *MANY])
def test_killed_at_random_moments(tmp_path, kind, n_kills):
    """Servers on some directories are killed side by side."""
    n_lanes = LANES if n_kills > LANES else 1

    def lane(number: int) -> int:
        folder = tmp_path / f"lane{number}"
        folder.mkdir()
        return Lives(folder, seed=4 * n_kills + number, kind=kind).run(n_kills // n_lanes)

    with ThreadPoolExecutor(n_lanes) as pool:
        n_receipts = sum(pool.map(lane, range(n_lanes)))
    # There was a load: no server is killed before it has answered some requests, and deletions are among them.
    assert n_receipts > 3 * n_kills
