"""Servers as processes on one core; the measuring process is on the other."""

from __future__ import annotations

import http.client
import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

START_SECONDS = 600
QUIET_SECONDS = 120


@dataclass(frozen=True)
class Server:
    """A running server."""

    name: str
    port: int
    process: subprocess.Popen[bytes]

    def get(self, path: str) -> tuple[int, Any]:
        """Ask once, and return status and content."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        try:
            connection.request("GET", path)
            answer = connection.getresponse()
            text = answer.read()
            return answer.status, json.loads(text) if text else None
        finally:
            connection.close()

    def wait_until_quiet(self) -> None:
        """Wait until the server has no deferred work, so that a measurement does not pay for the one before."""
        deadline = time.monotonic() + QUIET_SECONDS
        while self.get("/model")[1]["lazy_tags"]:
            if time.monotonic() > deadline:
                raise TimeoutError("the server did not come to rest")
            time.sleep(0.05)


def free_port() -> int:
    """Return a port that no process listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@cache
def cores() -> tuple[int, int] | None:
    """The core for the servers and the one for the client; None when there is one only.

    Decided once, before `run_here` leaves this process a single core.
    """
    available = sorted(os.sched_getaffinity(0))
    return (available[0], available[1]) if len(available) > 1 else None


def run_here() -> None:
    """Keep this process, the client, on its core."""
    pair = cores()
    if pair is not None:
        os.sched_setaffinity(0, {pair[1]})


@contextmanager
def serving(name: str, command: Sequence[str], *, folder: Path | None = None, on_all: bool = False) -> Iterator[Server]:
    """Run a server until the end of the block.

    Parameters
    ----------
    name
        What to call it.
    command
        Module and arguments, with `{port}` where the port goes.
    folder
        Another checkout, whose own environment has a program of the module's name; None: this one.
    on_all
        Whether it may use the client's core as well.
    """
    pair, port = cores(), free_port()
    module, *arguments = (part.format(port=port) for part in command)
    program = [sys.executable, "-m", module] if folder is None else [str(folder / ".venv" / "bin" / module)]
    process = subprocess.Popen(
        [*program, *arguments],
        cwd=folder,
        env={variable: value for variable, value in os.environ.items() if folder is None or variable != "PYTHONPATH"},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        preexec_fn=None if pair is None else lambda: os.sched_setaffinity(0, pair if on_all else pair[:1]),
    )
    server = Server(name, port, process)
    try:
        _wait_until_ready(server)
        yield server
    finally:
        process.terminate()
        process.wait(60)


def _wait_until_ready(server: Server) -> None:
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline:
        if server.process.poll() is not None:
            raise RuntimeError(f"{server.name} ended with {server.process.returncode}")
        try:
            if server.get("/readyz")[0] in (200, 404):  # the baselines have no such route
                return
        except (OSError, http.client.HTTPException, ValueError):
            pass
        time.sleep(0.1)
    raise TimeoutError(f"{server.name} was not ready after {START_SECONDS} s")
