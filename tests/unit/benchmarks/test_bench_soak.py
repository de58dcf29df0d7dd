"""The client that sends at a rate, and the summary of minutes."""

from __future__ import annotations

import itertools
import socketserver
import threading
import time

import pytest

from benchmarks.bench_soak import Minute, summary
from benchmarks.serving.client import RefusedError
from benchmarks.serving.paced import Pace, paced

ANSWER = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok"


class Slow(socketserver.BaseRequestHandler):
    """Answers each request; the thirtieth takes a second."""

    count = itertools.count(1)

    def handle(self) -> None:
        while self.request.recv(65536):
            if next(self.count) == 30:
                time.sleep(1)
            self.request.sendall(ANSWER)


class Refusing(socketserver.BaseRequestHandler):
    def handle(self) -> None:
        self.request.recv(65536)
        self.request.sendall(ANSWER.replace(b"200", b"503"))


def found(handler: type[socketserver.BaseRequestHandler]) -> list[Pace]:
    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), handler) as server:
        server.daemon_threads = True
        threading.Thread(target=server.serve_forever, daemon=True).start()
        requests = itertools.repeat(b"GET / HTTP/1.1\r\n\r\n")
        try:
            return list(paced(server.server_address[1], requests, 50, 3, 1, 1))
        finally:
            server.shutdown()


def test_a_server_that_stands_still_delays_all_that_is_due_meanwhile() -> None:
    told = found(Slow)
    assert len(told) >= 2
    assert max(one.longest for one in told) >= 1
    # Some fifty requests were due in that second, and each of them waited.
    assert max(one.p99 for one in told) > 0.3
    assert all(one.p50 <= one.p99 <= one.longest for one in told)


def test_a_refusal_ends_the_measurement() -> None:
    with pytest.raises(RefusedError):
        found(Refusing)


def test_the_last_sixth_of_the_minutes_is_compared_with_the_second() -> None:
    minutes = [Minute(100.0 + number, Pace(1, 1, 1 + number / 10, 1)) for number in range(30)]
    memory, p99 = summary(minutes)
    assert memory.figure == pytest.approx((100 + 27) / (100 + 7))
    assert p99.figure == pytest.approx((1 + 2.7) / (1 + 0.7))
