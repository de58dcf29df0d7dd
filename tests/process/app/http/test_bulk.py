"""Predictions and additions in bulk on a real server: memory, clients that misbehave, changes and kills meanwhile."""

import csv
import io
import re
import socket
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from benchmarks.serving.duplex import exchange
from tests.serving import Running, serving, small_table

HEADER = b"age,job\n"
MOST_MORE = 60  # MiB
CSV = "text/csv"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    folder = tmp_path_factory.mktemp("bulk")
    with serving(*small_table(folder, 400), "--ephemeral", cwd=folder, TEST_FIXED='{"body_timeout": 30}') as running:
        list(exchanged(running, [HEADER, b"1,a\n" * 20_000]))  # what the first one imports stays
        yield running


def exchanged(server: Running, pieces: Iterator[bytes] | list[bytes]) -> Iterator[list[str]]:
    """The rows of an answer, as they come."""
    with exchange(server.port, "/predict", pieces, CSV, CSV) as answer:
        rows = csv.reader(io.TextIOWrapper(answer, encoding="utf-8", newline=""))
        next(rows)
        yield from rows


def resident(server: Running) -> float:
    """MiB of the server in memory."""
    status = Path(f"/proc/{server.process.pid}/status").read_text(encoding="utf-8")
    return int(re.findall(r"VmRSS:\s+(\d+)", status)[0]) / 1024


def connect(server: Running, path: str) -> socket.socket:
    """A connection on which a body in chunks has begun."""
    client = socket.create_connection(("127.0.0.1", server.port), timeout=60)
    head = f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: {CSV}\r\nAccept: {CSV}\r\n"
    client.sendall(f"{head}Transfer-Encoding: chunked\r\n\r\n".encode())
    return client


def send(client: socket.socket, data: bytes) -> None:
    client.sendall(b"%x\r\n%b\r\n" % (len(data), data))


def test_a_body_of_any_size_takes_little_memory(server: Running) -> None:
    before, highest, n_rows = resident(server), 0.0, 0

    def pieces() -> Iterator[bytes]:
        nonlocal highest
        yield HEADER
        for n in range(40):
            yield b"".join(b"%d,%b\n" % (row, b"%06d" % (n * 1000 + row) * 700) for row in range(1000))
            highest = max(highest, resident(server))

    for row in exchanged(server, pieces()):
        n_rows += 1
        assert row[-1] == "1"
    assert n_rows == 40_000
    assert highest - before < MOST_MORE, "the body has 160 MiB"


def test_a_client_that_does_not_read_is_waited_for_and_holds_up_nobody(server: Running) -> None:
    before = resident(server)
    with closing(connect(server, "/predict")) as client:
        send(client, HEADER)
        client.settimeout(2)
        with pytest.raises(TimeoutError):  # noqa: PT012 - not all of it can be sent
            for _ in range(2**12):
                send(client, b"1,a\n" * 16_000)
        assert resident(server) - before < MOST_MORE
        assert server.ask("POST", "/predict", {"instances": [[1, "a"]]})[0] == 200
        client.settimeout(60)
        answer = b""
        while len(answer) < 2**20:  # and continues as soon as it is read
            answer += client.recv(2**16)
        assert answer.startswith(b"HTTP/1.1 200")


def test_a_client_that_goes_away_leaves_nothing(server: Running) -> None:
    bodies = [("/predict", HEADER + rest) for rest in (b"", b"1,a\n" * 200_000, b'1,"a')]
    for path, body in (*bodies, ("/samples", b"age,job,income\n1,a,yes\n")):
        with closing(connect(server, path)) as client:
            send(client, body)
            if len(body) > 1000:
                assert client.recv(12) == b"HTTP/1.1 200"
    time.sleep(0.2)
    status, model = server.get("/model")
    assert (status, model["n_samples"]) == (200, 400)
    assert "failed" not in server.output
