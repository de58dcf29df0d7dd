"""Real server processes for tests: started as a user would, on a free port, in a folder of their own."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.deaths import FATAL, core_stack, describe, in_ci

ROOT = Path(__file__).resolve().parent.parent
EXAMPLE = ROOT / "examples" / "adult.csv.gz"
APP = (sys.executable, "-m", "oubli")
START_SECONDS = 240  # an empty kernel cache, and other tests at the same time


class Process(subprocess.Popen[str]):
    """A process that knows which signals it was sent from here."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        self.sent: set[int] = set()
        super().__init__(*arguments, **options)

    def send_signal(self, sig: int) -> None:
        self.sent.add(sig)
        super().send_signal(sig)


@dataclass
class Running:
    """A server process."""

    process: Process
    port: int
    folder: Path

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def output(self) -> str:
        """What it has said so far."""
        return (self.folder / "output.txt").read_text(encoding="utf-8")

    def get(self, path: str) -> tuple[int, Any]:
        return self.ask("GET", path)

    def ask(self, method: str, path: str, body: Any = None) -> tuple[int, Any]:
        """Send a request and return status and JSON."""
        data = None if body is None else json.dumps(body).encode()
        headers = {"Content-Type": "application/json"}
        request = urllib.request.Request(self.url + path, data=data, headers=headers, method=method)  # noqa: S310
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:  # noqa: S310
                return answer.status, json.load(answer)
        except urllib.error.HTTPError as error:
            with error:
                return error.code, json.load(error)

    def stop(self, how: signal.Signals = signal.SIGTERM) -> int:
        """Stop it and return its exit code."""
        self.process.send_signal(how)
        return self.process.wait(timeout=60)


def paste(output: str) -> list[Any]:
    """Run the lines that a server has printed to try it, in a shell somewhere else; return the answers."""
    lines = [line.strip() for line in output.splitlines() if line.startswith("  curl")]
    done = [
        subprocess.run(["sh", "-c", line], cwd="/", env=environment(), capture_output=True, text=True, check=False)
        for line in lines
    ]
    assert [one.returncode for one in done] == [0] * len(lines), [one.stderr for one in done]
    return [json.loads(one.stdout) for one in done]


def free_port() -> int:
    """Return a port that is free now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def environment(**more: str) -> dict[str, str]:
    """The environment of a process of ours: the project importable, no settings from outside."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("OUBLI_")}
    return {**kept, "PYTHONPATH": str(ROOT), "PYTHONFAULTHANDLER": "1", **_core_dumps(), **more}


def _core_dumps() -> dict[str, str]:
    """The setting that leaves core files on, where there is one; servers switch them off otherwise."""
    if not in_ci():
        return {}
    from oubli.app.settings import Settings

    return {"OUBLI_CORE_DUMPS": "true"} if "core_dumps" in Settings.model_fields else {}


def run_cli(*arguments: str, cwd: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run a command of the command line to its end."""
    return subprocess.run(
        [sys.executable, "-m", "oubli", *arguments],
        cwd=cwd,
        env=environment(**variables),
        capture_output=True,
        text=True,
        timeout=START_SECONDS,
        check=False,
    )


@contextmanager
def serving(
    *arguments: str,
    cwd: Path,
    command: tuple[str, ...] = APP,
    port: int | None = None,
    running: type[Running] = Running,
    **variables: str,
) -> Iterator[Running]:
    """Run ``oubli serve`` with some flags until the end of the block; it is ready when the block begins.

    A server that dies by a signal that nobody here has sent is a failure, with what it has written, its stack included.
    """
    port = free_port() if port is None else port
    with (cwd / "output.txt").open("w") as output:
        process = Process(
            [*command, "serve", "--port", str(port), *arguments],
            cwd=cwd,
            env=environment(**variables),
            stdout=output,
            stderr=output,
            stdin=subprocess.DEVNULL,
            text=True,
        )
        server = running(process, port, cwd)
        try:
            _wait_until_ready(server)
            yield server
        finally:
            if process.poll() is None:
                # Whoever wants to see an orderly end calls `stop`; a tool around a server must not leave it behind.
                process.send_signal(signal.SIGKILL if command is APP else signal.SIGTERM)
                try:
                    process.wait(timeout=60)
                except subprocess.TimeoutExpired:
                    process.kill()
                    process.wait()
            _explain_death(server, may_kill_itself=command is not APP)


def _explain_death(server: Running, *, may_kill_itself: bool) -> None:
    """Refuse a death that nobody here has caused."""
    process = server.process
    number = -(process.returncode or 0)
    unexpected = number in FATAL or (number == signal.SIGKILL and not may_kill_itself)
    if unexpected and number not in process.sent:
        stack = core_stack(server.folder)
        raise AssertionError(f"the server {describe(process.returncode)}:\n{server.output}\n{stack}")


def _wait_until_ready(server: Running) -> None:
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline:
        if server.process.poll() is not None:
            raise AssertionError(f"the server ended with {server.process.returncode}:\n{server.output}")
        try:
            if server.get("/readyz")[0] == 200:
                return
        except OSError:
            pass
        time.sleep(0.03)
    raise AssertionError(f"the server was not ready after {START_SECONDS} s:\n{server.output}")
