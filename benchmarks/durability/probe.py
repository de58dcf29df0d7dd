"""The longest time without an answer, asked a thousand times a second, while a snapshot is written and while not."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import cycle, pairwise
from pathlib import Path

from benchmarks.results import Row, at_most, shown
from benchmarks.serving.client import RefusedError
from benchmarks.serving.samples import Samples, command, post
from benchmarks.serving.servers import Server, serving
from benchmarks.timing import median

HEAD = ("samples", "snapshot takes, s", "longest gap without, ms", "longest gap with, ms", "more, ms")
_MOST_MORE = 10.0
_PERIOD = 0.001
_READ = 65_536
_SNAPSHOT = post("/snapshot", {})


@dataclass(frozen=True)
class Gaps:
    """What a probe has seen: the longest time between two answers, and how long it went on, in seconds."""

    longest: float
    lasted: float


def run(samples: Samples, n_samples: int, directory: Path, rounds: int) -> Row:
    """Measure without a snapshot, with one, and without one again, in each round."""
    with serving("probed", command(samples, "fast", directory)) as server:
        server.wait_until_quiet()
        requests = cycle(samples.predictions(1000))
        _ = probe(server, requests, seconds=1.0)
        without, meanwhile, more = [], [], []
        lasted = 1.0
        for i in range(rounds):
            _change(server, samples, i)
            before = probe(server, requests, seconds=lasted)
            during = probe(server, requests, seconds=None)
            lasted = during.lasted
            after = probe(server, requests, seconds=lasted)
            without += [before.longest, after.longest]
            meanwhile.append(during)
            more.append(during.longest - (before.longest + after.longest) / 2)
    cells = (
        f"{n_samples:,}",
        shown(median(one.lasted for one in meanwhile)),
        shown(1e3 * median(without)),
        shown(1e3 * median(one.longest for one in meanwhile)),
    )
    return Row(cells, 1e3 * median(more), at_most(_MOST_MORE))


def _change(server: Server, samples: Samples, number: int) -> None:
    """Delete a sample, so that there is something to write; and rest until nothing is left to be rebuilt."""
    with socket.create_connection(("127.0.0.1", server.port)) as connection:
        (request,) = samples.deletions([number])
        connection.sendall(request)
        _require_success(connection.recv(_READ))
    server.wait_until_quiet()


def probe(server: Server, requests: Iterator[bytes], seconds: float | None) -> Gaps:
    """Ask for a prediction every millisecond, for some time, or until a snapshot that is asked for now is written.

    One thread does it all, on a core of its own: nothing here keeps it from noticing an answer.
    """
    clock = time.perf_counter
    with (
        socket.create_connection(("127.0.0.1", server.port)) as connection,
        socket.create_connection(("127.0.0.1", server.port)) as other,
    ):
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        other.setblocking(False)
        if seconds is None:
            other.send(_SNAPSHOT)
        started = clock()
        end = started + (3600 if seconds is None else seconds)
        answered = [started]
        due = started
        while answered[-1] < end:
            due += _PERIOD
            connection.sendall(next(requests))
            _require_success(connection.recv(_READ))
            answered.append(clock())
            if seconds is None and _has_answer(other):
                end = answered[-1]
            due = max(due, clock() - _PERIOD)  # after a gap the rhythm begins again
            while clock() < due:
                pass
    return Gaps(longest_gap(answered), answered[-1] - started)


def longest_gap(times: Sequence[float]) -> float:
    """Return the longest time between two that follow each other."""
    return max(after - before for before, after in pairwise(times))


def _has_answer(connection: socket.socket) -> bool:
    try:
        data = connection.recv(_READ)
    except BlockingIOError:
        return False
    _require_success(data)
    return True


def _require_success(data: bytes) -> None:
    if data[9:10] != b"2":
        raise RefusedError(data.partition(b"\r\n")[0].decode("latin-1"))
