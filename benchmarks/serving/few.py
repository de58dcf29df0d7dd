"""Changes of some samples of one person: what they cost the server, and how long predictions beside them take."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

import numpy as np

from benchmarks.results import Row, at_most, shown, table
from benchmarks.serving.client import connect, is_whole, load
from benchmarks.serving.samples import Samples, post
from benchmarks.serving.servers import Server

SIZES = (1, 2, 3, 5, 12, 100, 1000)
_N_SINGLE, _N_AT_ONCE, _N_IN_A_ROW = 100, 4, 12
TITLE = "HTTP: a change of some samples"
TEXT = (
    "Samples of one subject are added in one request, and deleted by their ids and by the subject; Adult, defaults, "
    "without a data directory. CPU is that of the server until the answer, after it has come to rest. *One by one* is "
    f"that of as many requests of one sample, of {_N_SINGLE} over {_N_AT_ONCE} connections. The share is of 1.3 times "
    "that and 20 ms. Predictions of one row come one after the other on a connection of their own, in rounds "
    "that do not wait for rest, so that tags are waiting. All in milliseconds."
)
HEAD = ("route:", "samples", "CPU", "wall", "one by one", "predict p50", "p99", "worst", "share")
ADD, DELETE, ERASE = "POST /samples", "POST /samples/batch-delete", "DELETE /samples?subject="
_FEWEST = 30  # samples that a figure comes from, where one round has fewer


@dataclass
class Found:
    """What was measured of one route with one number of samples, in seconds."""

    cpu: list[float] = field(default_factory=list)
    wall: list[float] = field(default_factory=list)
    beside: list[float] = field(default_factory=list)


def _requests(data: Samples, k: int, subject: str = "ada", first: int = 0) -> list[tuple[str, bytes]]:
    """A round, of the rows from the first on: the samples held are the same afterwards."""
    names = [f"{subject}-{i}" for i in range(k)]
    samples = [
        {"id": name, "features": data.rows[i], "label": data.labels[i], "subject": subject, "readd": True}
        for i, name in enumerate(names, first)
    ]
    add = ADD, post("/samples", {"samples": samples})
    delete = DELETE, post("/samples/batch-delete", {"ids": names})
    erase = ERASE, f"DELETE /samples?subject={subject} HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n".encode("ascii")
    return [add, delete, add, erase]


def _cpu_seconds(server: Server) -> float:
    """CPU time of all threads of the server."""
    return time.clock_gettime((~server.process.pid << 3) | 2)  # as clock_getcpuclockid(3)


class _Client:
    """One connection."""

    def __init__(self, server: Server) -> None:
        self._socket = connect(server.port)

    def ask(self, request: bytes) -> float:
        """Send a request, and return after how many seconds the answer was there."""
        started = time.perf_counter()
        self._socket.sendall(request)
        data = b""
        while not is_whole(data):
            part = self._socket.recv(65_536)
            if not part:
                raise ConnectionError("the server closed the connection")
            data += part
        return time.perf_counter() - started


@contextmanager
def _asking(server: Server, requests: Sequence[bytes], taken: list[float]) -> Iterator[None]:
    """Send requests one after the other on a connection of their own, until the end of the block."""
    is_over = threading.Event()

    def ask() -> None:
        client = _Client(server)
        for request in itertools.cycle(requests):
            if is_over.is_set():
                return
            taken.append(client.ask(request))

    thread = threading.Thread(target=ask)
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        thread.join()


def measure(server: Server, data: Samples, sizes: Sequence[int], rounds: int) -> dict[tuple[str, int], Found]:
    """Cost and waits by route and number of samples."""
    client, found = _Client(server), dict[tuple[str, int], Found]()
    for k in sizes:
        n_rounds = max(rounds, -(-_FEWEST // k))
        for _, (route, request) in itertools.product(range(n_rounds), _requests(data, k)):
            server.wait_until_quiet()
            one, before = found.setdefault((route, k), Found()), _cpu_seconds(server)
            one.wall.append(client.ask(request))
            one.cpu.append(_cpu_seconds(server) - before)
        for _, (route, request) in itertools.product(range(rounds), _requests(data, k)):
            with _asking(server, data.predictions(100), found[route, k].beside):
                client.ask(request)
                time.sleep(0.05)
    return found


def single_cost(server: Server, data: Samples) -> dict[str, float]:
    """CPU seconds of a request of one sample by route, of many at once."""
    found = dict[str, float]()
    persons = [_requests(data, 1, f"person{i}") for i in range(_N_SINGLE)]
    for step in zip(*persons, strict=True):
        server.wait_until_quiet()
        before = _cpu_seconds(server)
        load(server.port, [request for _, request in step], _N_AT_ONCE, _N_SINGLE)  # leaves no time for deferred work
        found[step[0][0]] = (_cpu_seconds(server) - before) / _N_SINGLE
    return found


def longest_wait(server: Server, data: Samples, rounds: int) -> float:
    """The longest time that an addition takes beside a deletion of the most samples."""
    (_, add), (_, delete), *_ = _requests(data, SIZES[-1])
    client, waits = _Client(server), list[float]()
    requests = [post("/samples", {"samples": [{"features": data.rows[0], "label": data.labels[0]}]})]
    for _ in range(rounds):
        client.ask(add)
        server.wait_until_quiet()
        with _asking(server, requests, waits):
            client.ask(delete)
    return max(waits)


def back_to_back(server: Server, data: Samples, k: int) -> float:
    """Seconds that an addition of k samples takes among others that do not wait for rest."""
    client = _Client(server)
    server.wait_until_quiet()
    requests = [_requests(data, k, f"batch-{k}-{i}", i * k)[0][1] for i in range(_N_IN_A_ROW)]
    return float(np.mean([client.ask(request) for request in requests]))


def section(server: Server, data: Samples, sizes: Sequence[int], rounds: int) -> tuple[str, str, str]:
    """Title, text and table."""
    single, found, rows = single_cost(server, data), measure(server, data, sizes, rounds), list[Row]()
    for (route, k), one in sorted(found.items(), key=lambda item: (item[0][0], item[0][1])):
        singly = k * single[route]
        cpu, wall = float(np.mean(one.cpu)), float(np.mean(one.wall))
        waits = [float(np.quantile(one.beside, share)) for share in (0.5, 0.99, 1.0)]
        cells = (route, f"{k:,}", *(shown(1e3 * seconds) for seconds in (cpu, wall, singly, *waits)))
        rows.append(Row(cells, cpu / (1.3 * singly + 0.02), at_most(1.0)))
    wait = longest_wait(server, data, rounds)
    waited = f"An addition beside a deletion of {SIZES[-1]:,} waited {1e3 * wait:,.0f} ms at most."
    for k in sizes[-2:]:
        in_a_row = back_to_back(server, data, k)
        waited += f" Of {_N_IN_A_ROW} additions of {k:,} in a row each took {1e3 * in_a_row:,.0f} ms on average."
    return TITLE, f"{TEXT} {rounds} rounds. {waited}", table(HEAD, rows)
