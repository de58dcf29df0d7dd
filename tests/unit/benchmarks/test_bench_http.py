from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from benchmarks.serving import baselines, wrk
from benchmarks.serving.client import RefusedError, load
from benchmarks.serving.samples import adult

REPORT = """Running 3s test @ http://127.0.0.1:9901/
  1 threads and 16 connections
  Latency Distribution
     50%  348.00us
     75%  390.00us
     90%    1.02ms
     99%    1.11ms
  127317 requests in 3.10s, 23.43MB read
Requests/sec:  41065.67
Transfer/sec:      7.56MB
"""


@contextmanager
def answering(answer: bytes, n_bytes: int) -> Iterator[int]:
    """A server of one connection that answers every so many bytes, in two pieces."""
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def serve() -> None:
            connection, _ = listening.accept()
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            with connection:
                received = 0
                while data := connection.recv(65_536):
                    received += len(data)
                    while received >= n_bytes:
                        received -= n_bytes
                        connection.sendall(answer[:20])
                        connection.sendall(answer[20:])

        thread = threading.Thread(target=serve)
        thread.start()
        yield listening.getsockname()[1]
        thread.join()


def test_the_client_takes_whole_answers() -> None:
    answer = b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhello"
    with answering(answer, 3) as port:
        measured = load(port, [b"one", b"two"], 1, 50)
    assert measured.rate > 0
    assert 0 < measured.p50 <= measured.p99


def test_the_client_measures_no_refusals() -> None:
    answer = b"HTTP/1.1 409 Conflict\r\ncontent-length: 0\r\n\r\n"
    with answering(answer, 3) as port, pytest.raises(RefusedError, match="409 Conflict"):
        load(port, [b"one"], 1, 5)


def test_reading_what_wrk_says() -> None:
    measured = wrk.read_report(REPORT)
    assert measured.rate == 41065.67
    assert measured.p50 == pytest.approx(348e-6)
    assert measured.p99 == pytest.approx(1.11e-3)
    with pytest.raises(RefusedError, match="17"):
        wrk.read_report(REPORT + "  Non-2xx or 3xx responses: 17\n")


def test_the_baselines_answer_what_they_are_asked() -> None:
    data = adult()
    assert len(data.rows) == len(data.labels) == 32_561
    assert {type(cell) for cell in data.rows[0]} == {int, str}
    body = data.predictions(1)[0].partition(b"\r\n\r\n")[2]
    assert b'"probabilities"' in baselines.predicted(body)
    body = data.additions(range(7, 8))[0].partition(b"\r\n\r\n")[2]
    assert b'"ids":["7"]' in baselines.added(body)
    assert data.deletions(range(7, 8))[0].startswith(b"DELETE /samples/7 HTTP/1.1\r\n")
