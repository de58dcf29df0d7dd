"""A client of raw sockets: requests as bytes made beforehand, answers looked at only for status and length.

One thread, one request at a time on each connection; the next is sent when the answer is there. It needs 5 us per
request, so that the server on the other core limits the rate; the benchmark compares it with `wrk`.
"""

from __future__ import annotations

import select
import socket
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

_READ = 65_536


@dataclass(frozen=True)
class Load:
    """What was measured: answers a second, and how long the middle and the slowest hundredth took, in seconds."""

    rate: float
    p50: float
    p99: float


class RefusedError(Exception):
    """A server refused what it was asked; nothing was measured then."""


def load(port: int, requests: Sequence[bytes], n_connections: int, n_requests: int) -> Load:
    """Send requests, from the first on and again, and return what was measured."""
    connections = [connect(port) for _ in range(n_connections)]
    try:
        taken, seconds = _run(connections, _repeated(requests, n_requests), n_requests)
    finally:
        for connection in connections:
            connection.close()
    return Load(n_requests / seconds, float(np.quantile(taken, 0.5)), float(np.quantile(taken, 0.99)))


def connect(port: int) -> socket.socket:
    """Return a connection that sends at once."""
    connection = socket.create_connection(("127.0.0.1", port))
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return connection


def _repeated(requests: Sequence[bytes], n: int) -> Iterator[bytes]:
    for i in range(n):
        yield requests[i % len(requests)]


def _run(connections: list[socket.socket], requests: Iterator[bytes], n: int) -> tuple[list[float], float]:
    """Keep every connection busy until all is answered; return the seconds of each answer, and of all."""
    clock = time.perf_counter
    poll = select.epoll()
    by_number = {connection.fileno(): connection for connection in connections}
    sent_at: dict[int, float] = {}
    halves: dict[int, bytes] = {}
    for number in by_number:
        poll.register(number, select.EPOLLIN)
    taken: list[float] = []
    started = clock()
    for number, connection in by_number.items():
        request = next(requests, None)
        if request is not None:
            sent_at[number] = clock()
            connection.send(request)
    while len(taken) < n:
        for number, _ in poll.poll():
            connection = by_number[number]
            data = connection.recv(_READ)
            if number in halves:
                data = halves.pop(number) + data
            if not is_whole(data):
                if not data:
                    raise RefusedError("the server closed the connection")
                halves[number] = data
                continue
            now = clock()
            taken.append(now - sent_at[number])
            request = next(requests, None)
            if request is not None:
                sent_at[number] = now
                connection.send(request)
    seconds = clock() - started
    poll.close()
    return taken, seconds


def is_whole(data: bytes) -> bool:
    """Whether an answer is there from end to end; raises when it is a refusal."""
    end = data.find(b"\r\n\r\n")
    if end < 0:
        return False
    if data[9:10] != b"2":
        raise RefusedError(data[:end].decode("latin-1").partition("\r\n")[0])
    at = data.find(b"content-length: ") + 16
    return len(data) == end + 4 + int(data[at : data.find(b"\r", at)])
