"""The sockets go from the standby to the application and back: kills in between, and late connections."""

import signal
import socket
import ssl
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager, suppress
from pathlib import Path
from typing import Any

import httpx2
import pytest

from tests.process.app.http.test_tls import TLS, Tls, make_certificate
from tests.serving import APP, Running, free_port, serving, small_table
from tests.tiers import ordinary

HANDING = str(Path(__file__).with_name("handing.py"))
AT_START = ("told", "listening")
ALL = (*AT_START, "again", "closed", "written")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    make_certificate(tmp_path)
    return tmp_path


def start(folder: Path, port: int, step: str | None, *, tls: bool) -> Any:
    """A server with TLS or without that ends at a step; None for one as it is."""
    flags = (*small_table(folder), *(TLS if tls else ()))
    command = APP if step is None else (sys.executable, HANDING, step)
    return serving(*flags, cwd=folder, port=port, command=command, running=Tls if tls else Running)


def add(server: Running, name: str) -> None:
    sample = {"id": name, "features": [1, "a"], "label": "yes"}
    assert server.ask("POST", "/samples", {"samples": [sample]})[0] == 201


@contextmanager
def calling(port: int, *, tls: bool) -> Iterator[None]:
    """Clients ask for something without end, each time on a new connection."""
    is_over, address = threading.Event(), f"{'https' if tls else 'http'}://127.0.0.1:{port}/healthz"

    def call() -> None:
        while not is_over.wait(0.05):
            with suppress(httpx2.HTTPError):  # the server was killed, or is not there yet
                httpx2.get(address, verify=False, timeout=30)

    with ThreadPoolExecutor(2) as pool:
        calls = [pool.submit(call) for _ in range(2)]
        try:
            yield
        finally:
            is_over.set()
    assert [one.exception() for one in calls] == [None, None]


MANY = [pytest.param(tls, ALL * 3, marks=pytest.mark.long) for tls in (False, True)]


@pytest.mark.parametrize(("tls", "steps"), [(True, ("listening", "closed")), *MANY])
def test_a_kill_at_a_hand_over_loses_nothing_and_leaves_the_port_free(folder, tls, steps):
    """A server is killed at each step while it is asked, and started again on the same port."""
    port, added = free_port(), []
    with calling(port, tls=tls):
        for number, step in enumerate(steps):
            if step in AT_START:
                died = pytest.raises(AssertionError, match="the server ended with -9")
                with died, start(folder, port, step, tls=tls):
                    pass
            else:
                with start(folder, port, step, tls=tls) as server:
                    added.append(f"{step}-{number}")
                    add(server, added[-1])
                    server.process.send_signal(signal.SIGTERM)
                    assert server.process.wait(60) == -signal.SIGKILL
        with start(folder, port, None, tls=tls) as server:
            assert server.ask("GET", "/model")[1]["n_samples"] == 60 + len(added)
            for name in added:
                assert server.ask("GET", f"/samples/{name}")[0] == 200
            assert server.ask("GET", "/readyz")[0] == 200
            assert server.stop() == 0


@pytest.mark.parametrize("tls", ordinary([False, True], True))
def test_a_late_connection_is_told_that_the_server_stops(folder, tls):
    """The last snapshot is held back, so that there is time enough."""
    with ExitStack() as stack:
        server = stack.enter_context(start(folder, free_port(), "hold", tls=tls))
        add(server, "x")
        early = stack.enter_context(closing(socket.create_connection(("127.0.0.1", server.port), timeout=60)))
        server.process.send_signal(signal.SIGTERM)
        # For a moment it answers as before, so that load balancers can take notice. A connection on which nothing was
        # asked when the application closes its own is closed with them.
        status, content = 200, None
        while status == 200:
            with suppress(OSError):
                status, content = server.ask("GET", "/model")
        late = {"samples": [{"id": "late", "features": [1, "a"], "label": "yes"}]}
        for code, problem in [(status, content), server.ask("POST", "/samples", late), server.ask("GET", "/readyz")]:
            assert (code, problem["type"]) == (503, "urn:oubli:problem:not-ready")
            assert problem["detail"] == "The server is stopping."
        assert server.ask("GET", "/healthz") == (200, {"status": "alive"})
        if tls:  # it was accepted in time, and its handshake comes late
            context = ssl.create_default_context(cadata=(folder / "cert.pem").read_text())
            early = stack.enter_context(closing(context.wrap_socket(early, server_hostname="127.0.0.1")))
            with early.makefile("rb") as answer:
                assert answer.readline() == b"HTTP/1.1 503 Service Unavailable\r\n"
                assert b"urn:oubli:problem:not-ready" in answer.read()
        else:
            assert early.recv(1) == b""
        assert server.process.poll() is None
        (folder / "go").touch()
        assert server.process.wait(60) == 0
        assert "snapshot written" in server.output
    with start(folder, free_port(), None, tls=tls) as server:
        assert server.ask("GET", "/samples/x")[0] == 200
        assert server.ask("GET", "/samples/late")[0] == 404
