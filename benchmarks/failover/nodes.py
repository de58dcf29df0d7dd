"""Servers of Oubli on hosts: started, signalled, and asked."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from benchmarks.failover.network import Host

ROOT = Path(__file__).resolve().parent.parent.parent
PORT = 8000
START_SECONDS = 240.0


class Node:
    """A server.

    Parameters
    ----------
    name
        Of the node.
    host
        Where it runs.
    folder
        For its data directory, its keys and what it prints; made here.
    flags
        Of `oubli serve`, the same for all nodes.
    """

    def __init__(self, name: str, host: Host, folder: Path, flags: list[str]) -> None:
        self.name = name
        self.host = host
        self.url = f"http://{host.address}:{PORT}"
        self._folder = folder
        self._flags = flags
        folder.mkdir(parents=True)
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it; it is ready later."""
        command = [sys.executable, "-m", "oubli", "serve", "--host", self.host.address, "--port", str(PORT),
                   "--data-dir", str(self._folder / "data"), "--node-name", self.name, "--node-url", self.url,
                   *self._flags]  # fmt: skip
        with (self._folder / "log").open("ab") as log:
            environment = {**os.environ, "PYTHONPATH": str(ROOT)}
            self._process = self.host.start(command, log, cwd=self._folder, env=environment)

    def signal(self, number: signal.Signals) -> None:
        """Send it a signal."""
        if self._process is not None:
            self._process.send_signal(number)

    @property
    def has_ended(self) -> bool:
        """Whether the process is gone."""
        return self._process is None or self._process.poll() is not None

    def kill(self) -> None:
        """Kill it."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def close(self) -> None:
        """End it."""
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(signal.SIGCONT)
            self._process.terminate()
            try:
                self._process.wait(60)
            except subprocess.TimeoutExpired:
                self.kill()

    def ask(
        self,
        method: str,
        path: str,
        content: Any = None,
        *,
        headers: dict[str, str] | None = None,
        timeout: float = 2.0,
    ) -> tuple[int, Any, dict[str, str]]:
        """Send a request; return status, content and headers. Redirects are not followed.

        Raises
        ------
        OSError
            When there is no answer in time.
        """
        data = None if content is None else json.dumps(content).encode()
        sent = {"Content-Type": "application/json", **(headers or {})} if data is not None else (headers or {})
        request = urllib.request.Request(self.url + path, data, sent, method=method)  # noqa: S310 - of this project's servers
        try:
            with _OPENER.open(request, timeout=timeout) as answer:
                return answer.status, _parsed(answer.read()), dict(answer.headers)
        except urllib.error.HTTPError as error:
            with error:
                return error.code, _parsed(error.read()), dict(error.headers)

    def cluster(self) -> dict[str, Any] | None:
        """Return what it says of the cluster; None when it does not answer."""
        try:
            status, content, _ = self.ask("GET", "/cluster")
        except OSError:
            return None
        return content if status == 200 else None


class _Stay(urllib.request.HTTPRedirectHandler):
    """Follows no redirect."""

    def redirect_request(self, *_: Any) -> None:
        """Return no other request."""


_OPENER = urllib.request.build_opener(urllib.request.ProxyHandler({}), _Stay)


def _parsed(body: bytes) -> Any:
    try:
        return json.loads(body) if body else None
    except ValueError:
        return None


def leader_of(nodes: list[Node]) -> Node | None:
    """Return the node that leads, as the newest epoch that any node knows says; None while none does."""
    best, found = -1, None
    for node in nodes:
        said = None if node.has_ended or node.host.is_cut else node.cluster()
        if said is not None and said["role"] == "leader" and said["epoch"] > best:
            best, found = said["epoch"], node
    return found


def wait_in_step(nodes: list[Node], seconds: float = START_SECONDS) -> Node:
    """Return the leader as soon as one leads and all others follow it closely."""
    deadline = time.monotonic() + seconds
    while True:
        leader = leader_of(nodes)
        said = None if leader is None else leader.cluster()
        if leader is not None and said is not None:
            followers = {one["name"]: one for one in said["nodes"] if one["role"] == "follower"}
            others = [node for node in nodes if node is not leader]
            if all(followers.get(node.name, {}).get("state") == "in-step" and _is_ready(node) for node in others):
                return leader
        if time.monotonic() > deadline:
            raise TimeoutError(f"the nodes are not in step: {said}")
        time.sleep(0.2)


def _is_ready(node: Node) -> bool:
    try:
        return node.ask("GET", "/readyz")[0] == 200
    except OSError:
        return False
