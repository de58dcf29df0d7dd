"""Nodes of one cluster for tests: real servers on fixed ports, which may begin again, and a PostgreSQL of their own."""

import http.client
import json
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple
from urllib.parse import quote

import pytest

from tests.postgres import Server
from tests.process.durability.canaries import Canary, files_with
from tests.process.durability.people import flags, rows, write_csv
from tests.serving import APP, Process, Start, environment, free_port, spawned

REDIRECT = 307
PATIENCE = 240.0
_, CELLS, LABELS = rows()


class Answer(NamedTuple):
    status: int
    content: Any
    headers: dict[str, str]


@dataclass
class Node:
    """One node, running or not."""

    name: str
    folder: Path
    port: int
    database: str
    more: tuple[str, ...] = ()
    launched: Start = spawned
    process: Process | None = None
    n_starts: int = 0

    def __post_init__(self) -> None:
        self.url = f"http://127.0.0.1:{self.port}"
        self.data = self.folder / "data"
        self.key_folder = self.data / "keys" / "segments"  # of the keys of the journal's segments

    def segment_keys(self) -> dict[str, bytes]:
        """The keys of the journal's segments that it has now, by their ids."""
        found = {}
        for path in self.key_folder.glob("*.key"):
            with suppress(FileNotFoundError, ValueError):  # overwritten first, then removed
                found[path.stem] = bytes.fromhex(path.read_text())
        return found

    @property
    def output(self) -> str:
        return "\n".join([path.read_text(errors="replace") for path in sorted(self.folder.glob("output-*.txt"))])

    def start(self) -> None:
        self.n_starts += 1
        command = (
            *APP, "serve", "--port", str(self.port), "--data-dir", str(self.data),
            "--journal", self.database, "--follow", "--node-name", self.name, "--node-url", self.url,
            "--cluster-secret-file", str(self.folder.parent / "secret"), *flags(), *self.more,
        )  # fmt: skip
        output = self.folder / f"output-{self.n_starts}.txt"
        self.process = self.launched(command, self.folder.parent, environment(), output)

    def send(self, number: signal.Signals) -> None:
        assert self.process is not None
        self.process.send_signal(number)

    def kill(self) -> int:
        return self.stop(signal.SIGKILL)

    def stop(self, how: signal.Signals = signal.SIGTERM) -> int:
        self.send(how)
        return self.end()

    def end(self, seconds: float = 60) -> int:
        """Wait until it has ended; return its exit code."""
        assert self.process is not None
        return self.process.wait(seconds)

    def close(self) -> None:
        if self.process is not None and self.process.poll() is None:
            self.send(signal.SIGCONT)
            self.kill()

    def ask(self, method: str, path: str, body: Any = None, *, seconds: float = 30, **headers: str) -> Answer:
        """Send one request, and follow no redirect."""
        with closing(http.client.HTTPConnection("127.0.0.1", self.port, timeout=seconds)) as connection:
            sent = {name.replace("_", "-"): value for name, value in headers.items()}
            if body is not None:
                sent["Content-Type"] = "application/json"
            connection.request(method, path, None if body is None else json.dumps(body), sent)
            answer = connection.getresponse()
            content: Any = answer.read()
            with suppress(ValueError):
                content = json.loads(content)
            return Answer(answer.status, content, {k.lower(): v for k, v in answer.getheaders()})

    def cluster(self) -> Any:
        return self.ask("GET", "/cluster").content

    def known(self) -> set[str]:
        """The names of the members that it knows."""
        return {one["name"] for one in self.cluster()["nodes"]}

    def is_ready(self) -> bool:
        with suppress(OSError, http.client.HTTPException):
            return self.ask("GET", "/readyz", seconds=5).status == 200
        return False

    @property
    def n_joined(self) -> int:
        """How often it has joined the cluster."""
        return self.output.count("Joined the cluster")

    def predict(self) -> Answer:
        return self.ask("POST", "/predict", {"instances": [CELLS[0]]})

    def series(self, name: str) -> float | None:
        """A metric without labels."""
        text = self.ask("GET", "/metrics").content.decode()
        found = [line.rpartition(" ")[2] for line in text.splitlines() if line.startswith(f"{name} ")]
        return float(found[0]) if found else None

    def is_erased(self, receipt: str) -> bool:
        return bool(self.ask("GET", f"/erasures/{receipt}").content["status"] == "erased")

    def digest(self) -> str:
        """The digest of the model, and its version; `verify` compares with a fresh fit besides."""
        job = self.ask("POST", "/model/verify").content
        while job["status"] not in ("succeeded", "failed"):
            time.sleep(0.05)
            job = self.ask("GET", f"/jobs/{job['id']}").content
        assert job["result"]["ok"], job
        return f"{job['result']['live_digest']}@{job['result']['model_version']}"


class Nodes:
    """The nodes of one cluster."""

    def __init__(self, folder: Path, server: Server, n: int, *more: str) -> None:
        self.folder = folder
        self.server = server
        self.database = server.new_database()
        write_csv(folder / "people.csv")
        (folder / "secret").write_text("a-secret-of-a-cluster-in-a-test-0123456789")
        (folder / "secret").chmod(0o600)
        self.all = [self.new(f"node{i}", *more) for i in range(n)]

    def new(self, name: str, *more: str) -> Node:
        own = self.folder / name
        own.mkdir()
        return Node(name, own, free_port(), self.server.url(self.database), more)

    def start(self) -> None:
        """Start all; the first one begins the cluster."""
        self.all[0].start()
        self.wait(lambda: self.all[0].is_ready(), "the first node is ready")
        for one in self.all[1:]:
            one.start()
        self.wait(lambda: all(one.is_ready() for one in self.all), "all nodes are ready")
        # A node reads the list of members at each of its heartbeats. It may be ready before it has read of the others.
        names = {one.name for one in self.all}
        self.wait(lambda: all(one.known() == names for one in self.all), "all nodes know all nodes")

    def close(self) -> None:
        for one in self.all:
            one.close()

    def wait(self, holds: Callable[[], Any], what: str, seconds: float = PATIENCE) -> Any:
        end = time.monotonic() + seconds
        while True:
            with suppress(OSError, http.client.HTTPException):
                if found := holds():
                    return found
            assert time.monotonic() < end, f"not so after {seconds} s: {what}\n" + "\n".join(
                f"--- {one.name}\n{one.output[-3000:]}" for one in self.all
            )
            time.sleep(0.05)

    @property
    def live(self) -> list[Node]:
        return [one for one in self.all if one.process is not None and one.process.poll() is None]

    def leader(self, *, besides: Node | None = None) -> Node:
        """The node that leads and takes changes."""

        def found() -> Node | None:
            for one in self.live:
                if one is not besides and one.ask("GET", "/readyz?for=changes", seconds=2).status == 200:
                    return one
            return None

        led: Node = self.wait(found, "a node leads")
        return led

    def followers(self) -> list[Node]:
        led = self.leader()
        return [one for one in self.live if one is not led]

    def wait_in_step(self) -> int:
        """Return when all have the same version; that version."""

        def same() -> int:
            seqs = {one.cluster()["seq"] for one in self.live}
            return seqs.pop() if len(seqs) == 1 else 0

        found: int = self.wait(same, "all nodes are in step")
        return found

    def require_same(self) -> None:
        """All nodes have the same model."""
        self.wait_in_step()
        assert len({one.digest() for one in self.live}) == 1

    def add(self, name: str, **more: Any) -> Answer:
        """Have the leader learn a sample."""
        answer = self.leader().ask("POST", "/samples", sample(name), **more)
        assert answer.status == 201, answer
        return answer

    def learn(self, *canaries: Canary) -> None:
        """Have all nodes learn canaries, and write them to their disks."""
        leader = self.leader()
        assert leader.ask("POST", "/samples", {"samples": [one.as_json() for one in canaries]}).status == 201
        assert leader.ask("POST", "/snapshot").status == 201
        self.wait(lambda: all(files_with(canaries, one.data) for one in self.live), "all nodes have written them")
        self.wait_in_step()

    def delete(self, one: Canary) -> str:
        """Have the leader delete a canary; return the receipt's id."""
        return str(self.leader().ask("DELETE", place_of(one)).content["id"])

    def wait_until_erased(self, *receipts: str) -> None:
        leader = self.leader()
        self.wait(lambda: all(leader.is_erased(name) for name in receipts), "it is erased")


def sample(name: str, place: int = 0) -> dict[str, Any]:
    return {"samples": [{"id": name, "features": CELLS[place], "label": LABELS[place]}]}


def place_of(one: Canary) -> str:
    return f"/samples/{quote(one.id, safe='')}"


def two_nodes(*flags: str, scope: Literal["function", "module"] = "module", launched: Start = spawned) -> Any:
    """Return a fixture: two nodes that are ready."""

    @pytest.fixture(scope=scope)
    def nodes(postgres: Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Nodes]:
        with closing(Nodes(tmp_path_factory.mktemp("nodes"), postgres, 2, *flags)) as found:
            for one in found.all:
                one.launched = launched
            found.start()
            yield found

    return nodes
