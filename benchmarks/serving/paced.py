"""A client that sends at a given rate, whatever the server does.

Requests have a time at which they are due. One that finds no free connection waits, and its time counts from when it
was due: a server that stands still cannot hide it.
"""

from __future__ import annotations

import collections
import select
import socket
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from benchmarks.serving.client import connect, is_whole

_READ = 65_536


@dataclass(frozen=True)
class Pace:
    """What was measured in one stretch of time: answers a second, and seconds from due to answered."""

    rate: float
    p50: float
    p99: float
    longest: float


def paced(
    port: int, requests: Iterator[bytes], rate: float, seconds: float, n_connections: int, every: float
) -> Iterator[Pace]:
    """Send requests at a rate and yield what was measured in each stretch.

    Parameters
    ----------
    port
        Of the server.
    requests
        Must not end before the time is over.
    rate
        Requests a second.
    seconds
        How long, in all.
    n_connections
        Most requests at the same time.
    every
        Seconds of a stretch.

    Raises
    ------
    RefusedError
        When an answer is not a success.
    """
    connections = [connect(port) for _ in range(n_connections)]
    try:
        for taken, length in _stretches(connections, requests, rate, seconds, every):
            yield Pace(len(taken) / length, float(np.quantile(taken, 0.5)), float(np.quantile(taken, 0.99)), max(taken))
    finally:
        for connection in connections:
            connection.close()


def _stretches(
    connections: Sequence[socket.socket], requests: Iterator[bytes], rate: float, seconds: float, every: float
) -> Iterator[tuple[list[float], float]]:
    clock: Callable[[], float] = time.perf_counter
    poll, by_number = select.epoll(), {connection.fileno(): connection for connection in connections}
    for number in by_number:
        poll.register(number, select.EPOLLIN)
    free, due_of, halves = collections.deque(by_number), {}, {}
    started = begun = clock()
    n_sent, taken = 0, list[float]()
    while (now := clock()) < started + seconds:
        while free and (due := started + n_sent / rate) <= now:
            number = free.popleft()
            due_of[number] = due
            by_number[number].send(next(requests))
            n_sent += 1
        wait = max(0.0, started + n_sent / rate - now) if free else 1.0
        for number, _ in poll.poll(min(wait, 1.0)):
            data = halves.pop(number, b"") + by_number[number].recv(_READ)
            if not is_whole(data):
                halves[number] = data
                continue
            taken.append(clock() - due_of.pop(number))
            free.append(number)
        if clock() - begun >= every and taken:
            yield taken, clock() - begun
            begun, taken = clock(), []
    poll.close()
