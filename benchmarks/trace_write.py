"""Trace one durable write from the socket to the model and back: which files it passes.

    python benchmarks/trace_write.py [--root DIRECTORY] [--files]

A server with a data directory runs in this process. After some requests to warm up, one `POST /samples` and one
`DELETE /samples/{id}` are sent over a socket, on the fast path and on the ordinary path. All threads are traced until
the answer has arrived:

    app, core     files of `app` and `core` in which a function is called
    entries       calls of a function of `core` from `app`
    hand-overs    those of these files that a call from another file of `app` enters first
    pairs         pairs of a file of `app` and another file of the project that it calls

What runs after the answer, such as the ledger's database, is not counted, nor what runs once a second and by chance
meanwhile: of several traces the one with the fewest files is shown. `--root` names another checkout to trace.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import socket
import sys
import tempfile
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any

# Where things are: in this layout, and in the one before it.
NAMES = {
    "kernel_cache": ("oubli.app.service.compiling", "app.kernel_cache"),
    "build": ("oubli.app.service.build", "app.bootstrap"),
    "settings": ("oubli.app.settings", "app.settings"),
    "create_app": ("oubli.app.http.app", "app.main"),
    "server_config": ("oubli.app.http.connection.connections", "oubli.app.http.server", "app.server"),
    "protocol": ("oubli.app.http.connection.fastpath", "oubli.app.http.connection.protocol", "app.protocol"),
    "connections": ("oubli.app.http.connection.connections", "app.connections"),
}
ANSWERED = {"_written", "_write_answer", "_take_in"}  # what writes an answer on the fast path, now and before
N_WARM_UP = 5
N_TRACES = 5
REF = "6f75626c-692d-4a6f-8273-2d6279206b65"


@dataclass
class Trace:
    """What was called while a request was handled."""

    first: dict[str, str | None] = field(default_factory=dict)  # each file, and the file that called it first
    pairs: set[tuple[str, str]] = field(default_factory=set)
    n_entries: int = 0  # calls of `core` from `app`

    def n_files(self, package: str) -> int:
        """Return how many files of a package were entered."""
        return sum(name.startswith(f"{package}/") for name in self.first)

    @property
    def n_hand_overs(self) -> int:
        """How many files were entered first by a call from another file of `app`."""
        return sum(caller is not None and caller.startswith("app/") for caller in self.first.values())

    @property
    def n_pairs(self) -> int:
        """How many pairs there are of a file of `app` and a file that it calls."""
        return sum(caller.startswith("app/") for caller, _ in self.pairs)


class Recorder:
    """The profile function of all threads; notes calls while there is a trace."""

    def __init__(self, root: Path) -> None:
        self.trace: Trace | None = None
        self._root = f"{root.resolve()}{os.sep}"
        self._names: dict[str, str | None] = {}

    def __call__(self, frame: FrameType, event: str, argument: Any) -> None:
        """Note a call."""
        trace = self.trace
        if trace is not None and event == "return" and frame.f_code.co_name in ANSWERED:
            self.trace = None
        if trace is None or event != "call":
            return
        name = self._name(frame)
        if name is None:
            return
        caller = None if frame.f_back is None else self._name(frame.f_back)
        if caller is not None and caller.startswith("app/") and name.startswith("core/"):
            trace.n_entries += 1
        if name not in trace.first:
            trace.first[name] = None if caller == name else caller
        if caller is not None and caller != name:
            trace.pairs.add((caller, name))

    def _name(self, frame: FrameType) -> str | None:
        path = frame.f_code.co_filename
        if path not in self._names:
            name = os.path.realpath(path).removeprefix(self._root).replace(os.sep, "/")
            self._names[path] = name if name.startswith(("app/", "core/")) else None
        return self._names[path]


class Client:
    """One connection that stays open."""

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), timeout=60)
        self._head = f"Host: 127.0.0.1:{port}\r\nContent-Type: application/json\r\n"

    def ask(self, method: str, target: str, body: bytes | None = None, *, chunked: bool = False) -> int:
        """Send a request in one piece and return the status of its answer."""
        head = f"{method} {target} HTTP/1.1\r\n{self._head}"
        if chunked and body is not None:
            body = b"%x\r\n%b\r\n0\r\n\r\n" % (len(body), body)
            head += "Transfer-Encoding: chunked\r\n"
        elif body is not None:
            head += f"Content-Length: {len(body)}\r\n"
        self._socket.sendall(head.encode() + b"\r\n" + (body or b""))
        received = b""
        while b"\r\n\r\n" not in received:
            received += self._socket.recv(65536)
        head_bytes, _, rest = received.partition(b"\r\n\r\n")
        length = int(head_bytes.lower().partition(b"content-length:")[2].split(b"\r\n")[0])
        while len(rest) < length:
            rest += self._socket.recv(65536)
        return int(head_bytes.split()[1])


def found(name: str) -> Any:
    """Import a module by one of its names; the one with `protocol_for` where that is asked for."""
    for candidate in NAMES[name]:
        try:
            module = importlib.import_module(candidate)
            if name != "protocol" or hasattr(module, "protocol_for"):
                return module
        except ModuleNotFoundError as error:
            if error.name is None or not candidate.startswith(error.name):
                raise
    raise SystemExit(f"{NAMES[name]} is not there: is --root a checkout?")


def traces(recorder: Recorder, directory: Path) -> dict[str, Trace]:
    """Start a server, ask it, and return what each request passed."""
    found("kernel_cache").use_kernel_cache()
    data = directory / "data.csv"
    rows = [f"{i % 40},{i % 7},{'yes' if i % 3 else 'no'}" for i in range(200)]
    data.write_text("\n".join(["age,score,income", *rows]) + "\n")
    settings = found("settings").Settings(
        data=data, target="income", data_dir=directory / "kept", n_estimators=5, random_state=0
    )
    vars(settings)["idle_resolve"] = False  # what is done between requests would be traced too
    service = found("build").build_service(settings)
    app = found("create_app").create_app(settings, service)
    fast_path = getattr(app.state, "fast_path", None) or app.state.hot
    protocol = found("protocol").protocol_for(fast_path, found("connections").Connections())
    config_module = found("server_config")
    import uvicorn

    server = uvicorn.Server(config_module.server_config(app, protocol))
    listening = socket.socket()
    listening.bind(("127.0.0.1", 0))
    threading.setprofile(recorder)
    thread = threading.Thread(target=server.run, args=([listening],))
    thread.start()
    while not server.started:
        time.sleep(0.01)
    try:
        return _asked(recorder, Client(listening.getsockname()[1]))
    finally:
        recorder.trace = None
        server.should_exit = True
        thread.join()


def _asked(recorder: Recorder, client: Client) -> dict[str, Trace]:
    while client.ask("GET", "/readyz") != 200:
        time.sleep(0.01)
    made = {}
    for path in ("fast path", "ordinary path"):
        is_ordinary = path == "ordinary path"
        for method in ("POST", "DELETE"):
            found_traces = []
            for i in range(N_WARM_UP + N_TRACES):
                name = f"{path[0]}{i}"
                trace = Trace()
                if i >= N_WARM_UP:
                    time.sleep(0.2)  # nothing of the requests before is under way
                    recorder.trace = trace
                if method == "POST":
                    sample = {"id": name, "features": [i, 3], "label": "yes"}
                    body = json.dumps({"samples": [sample]}).encode()
                    status = client.ask("POST", "/samples", body, chunked=is_ordinary)
                else:
                    status = client.ask("DELETE", f"/samples/{name}" + (f"?ref={REF}" if is_ordinary else ""))
                recorder.trace = None
                if status not in (200, 201):
                    raise SystemExit(f"{method} was answered with {status}")
                found_traces.append(trace)
            made[f"{method}, {path}"] = min(found_traces[N_WARM_UP:], key=lambda one: len(one.first))
    return made


def main() -> None:
    """Print what was traced."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--root", type=Path, default=Path(__file__).resolve().parent.parent)
    parser.add_argument("--files", action="store_true", help="list the files in the order in which they are entered")
    arguments = parser.parse_args()
    sys.path[0] = str(arguments.root.resolve())
    recorder = Recorder(arguments.root)
    with tempfile.TemporaryDirectory() as directory:
        made = traces(recorder, Path(directory))
    print(f"{'':24}{'app':>6}{'core':>6}{'both':>6}{'entries':>9}{'hand-overs':>12}{'pairs':>8}")
    for name, trace in made.items():
        n_app, n_core = trace.n_files("app"), trace.n_files("core")
        print(
            f"{name:24}{n_app:6}{n_core:6}{n_app + n_core:6}{trace.n_entries:9}{trace.n_hand_overs:12}{trace.n_pairs:8}"
        )
        if arguments.files:
            for file, caller in trace.first.items():
                print(f"    {file:40}{caller or ''}")


if __name__ == "__main__":
    main()
