"""Clients without a key that open many connections, send endless heads, or send slowly, to a real server process."""

from __future__ import annotations

import contextlib
import http.client
import json
import socket
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.serving import Running, serving

N_FILES = 200  # that the server may open
KEY = "0123456789abcdef-key"
HEADERS = {"Content-Type": "application/json", "X-API-Key": KEY}
LIMITED = ("bash", "-c", f'ulimit -n {N_FILES} && exec "$0" -m oubli "$@"', sys.executable)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    folder = tmp_path_factory.mktemp("server")
    rows = [f"{i % 7},{'abc'[i % 3]},{'yes' if i % 4 else 'no'}" for i in range(60)]
    (folder / "data.csv").write_text("\n".join(["age,job,income", *rows]) + "\n")
    (folder / "key").write_text(KEY)
    flags = ("--data", "data.csv", "--target", "income", "--n-estimators", "3", "--api-key-file", "key")
    times = ("--head-timeout", "2", "--body-timeout", "2", "--idle-timeout", "30", "--snapshot-mutations", "5")
    with serving(*flags, *times, cwd=folder, command=LIMITED) as running:
        yield running


def ask(server: Running, method: str, path: str, body: Any = None) -> tuple[int, Any]:
    """Ask as a client does that tries again when it is told to: all connections may be new at the moment."""
    for _ in range(5):
        with contextlib.suppress(ConnectionError):
            found = ask_once(server, method, path, body)
            if not (found[0] == 503 and found[1]["type"].endswith("too-many-connections")):
                return found
        time.sleep(1)
    raise AssertionError("no connection was let in")


def ask_once(server: Running, method: str, path: str, body: Any) -> tuple[int, Any]:
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=30)
    with contextlib.closing(connection):
        connection.request(method, path, None if body is None else json.dumps(body), HEADERS)
        answer = connection.getresponse()
        return answer.status, json.loads(answer.read())


def connect(server: Running) -> socket.socket:
    return socket.create_connection(("127.0.0.1", server.port), timeout=30)


def answered(client: socket.socket) -> bytes:
    """What a client reads until the connection ends."""
    found = b""
    with contextlib.suppress(ConnectionError):
        while piece := client.recv(65536):
            found += piece
    return found


def resident_mb(server: Running) -> float:
    status = Path(f"/proc/{server.process.pid}/status").read_text()
    return int(status.partition("VmRSS:")[2].split()[0]) / 1024


def works(server: Running, name: str) -> None:
    """Changes, snapshots (which open files) and predictions are answered."""
    for i in range(6):  # more than a snapshot waits for
        sample = {"id": f"{name}{i}", "features": [1, "a"], "label": "yes"}
        assert ask(server, "POST", "/samples", {"samples": [sample]})[0] == 201
    assert ask(server, "POST", "/snapshot")[0] == 201
    assert ask(server, "DELETE", f"/samples/{name}1")[1]["unlearned"] == 1
    assert ask(server, "POST", "/predict", {"instances": [[1, "a"]]})[0] == 200
    assert ask(server, "POST", "/model/scrub")[0] == 202
    assert ask(server, "GET", "/readyz?for=changes")[1]["changes"] == "accepted"


def test_idle_connections_do_not_stop_changes(server: Running) -> None:
    """They used up the descriptors: the next snapshot failed, and changes were refused until a restart."""
    idle = []
    with contextlib.ExitStack() as stack:
        for i in range(3 * N_FILES):
            idle.append(stack.enter_context(connect(server)))
            if i % N_FILES == 0:
                works(server, f"idle{i}-")
        works(server, "idle-")
        n_open = len(list(Path(f"/proc/{server.process.pid}/fd").iterdir()))
        assert n_open < N_FILES - 20
    works(server, "later-")
    assert server.process.poll() is None
    assert "could not" not in server.output
    assert "no mutation is accepted" not in server.output


def test_endless_heads(server: Running) -> None:
    before = resident_mb(server)
    for piece in (b"X: 1\r\n" * 10_000, b"x" * 65_536):
        for _ in range(4):
            with connect(server) as client:
                client.sendall(b"GET /model HTTP/1.1\r\nHost: 127.0.0.1\r\nY: ")
                with contextlib.suppress(ConnectionError):
                    for _ in range(100):
                        client.sendall(piece)
                assert ask(server, "GET", "/healthz")[0] == 200
        with connect(server) as client:
            client.sendall(b"GET /model HTTP/1.1\r\nHost: 127.0.0.1\r\nY: " + piece * 4)
            found = answered(client)
            assert found.startswith(b"HTTP/1.1 431 ")
            assert b"application/problem+json" in found
    assert resident_mb(server) - before < 30


def test_slow_heads_and_bodies_end(server: Running) -> None:
    head = b"POST /predict HTTP/1.1\r\nHost: 127.0.0.1\r\nX-API-Key: %b\r\n" % KEY.encode()
    body = head + b"Content-Type: application/json\r\nContent-Length: 1000\r\n\r\n"
    with contextlib.ExitStack() as stack:
        clients = [stack.enter_context(connect(server)) for _ in range(20)]
        for i, client in enumerate(clients):
            client.sendall(head if i % 2 else body)
        until = time.monotonic() + 30
        going = list(clients)
        while going and time.monotonic() < until:
            for client in list(going):
                try:
                    client.sendall(b"x")
                except ConnectionError:
                    going.remove(client)
            assert ask(server, "POST", "/predict", {"instances": [[1, "a"]]})[0] == 200
            time.sleep(0.2)
        assert not going, "they were let go on"
        # A client that stops sending reads why.
        stopped = [stack.enter_context(connect(server)) for _ in range(2)]
        for client, start in zip(stopped, (head, body), strict=True):
            client.sendall(start)
        for client in stopped:
            assert answered(client).startswith(b"HTTP/1.1 408 ")


def test_a_slow_upload_that_goes_on_is_not_cut_off(server: Running) -> None:
    with connect(server) as client:
        client.sendall(
            b"PUT /snapshot/file HTTP/1.1\r\nHost: 127.0.0.1\r\nX-API-Key: %b\r\nContent-Length: 80000\r\n\r\n"
            % KEY.encode()
        )
        for _ in range(8):
            client.sendall(b"x" * 10_000)
            time.sleep(0.5)
        client.settimeout(30)
        assert client.recv(20).startswith(b"HTTP/1.1 422 ")
