"""Real server processes for tests: started as a user would, on a free port, in a folder of their own."""

import atexit
import fcntl
import json
import multiprocessing
import multiprocessing.connection
import os
import runpy
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import cache
from http.client import HTTPException
from itertools import chain
from multiprocessing.context import ForkServerContext, ForkServerProcess
from multiprocessing.forkserver import ensure_running
from pathlib import Path
from typing import Any, Protocol

from tests.deaths import FATAL, describe

ROOT = Path(__file__).resolve().parent.parent
EXAMPLE = ROOT / "examples" / "adult.csv.gz"
APP = (sys.executable, "-m", "oubli")
_PORTS = (12_000, 32_000)  # below those that the system gives to clients
VARIABLE = "TEST_FIXED"  # see `tests.fixed`
START_SECONDS = 900  # an empty kernel cache, and other work that takes most of the cores


class Process(Protocol):
    """A process that knows which signals it was sent from here; the methods are those of `subprocess.Popen`."""

    sent: set[int]

    @property
    def pid(self) -> int: ...
    @property
    def returncode(self) -> int | None: ...
    def poll(self) -> int | None: ...
    def wait(self, timeout: float | None = None) -> int: ...
    def send_signal(self, sig: int) -> None: ...
    def kill(self) -> None: ...


class Spawned(subprocess.Popen[str]):
    def __init__(self, *arguments: Any, **options: Any) -> None:
        self.sent: set[int] = set()
        super().__init__(*arguments, **options)

    def send_signal(self, sig: int) -> None:
        self.sent.add(sig)
        super().send_signal(sig)


# Starting a process asks for the ends of all others; of two threads that do so at a time, one reads an end of 255.
_STARTING = threading.RLock()


@dataclass
class _Forked:
    _process: ForkServerProcess
    sent: set[int] = field(default_factory=set)

    @property
    def pid(self) -> int:
        assert self._process.pid is not None
        return self._process.pid

    @property
    def returncode(self) -> int | None:
        with _STARTING:
            return self._process.exitcode

    def poll(self) -> int | None:
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        multiprocessing.connection.wait([self._process.sentinel], timeout)
        code = self.returncode
        if code is None:
            raise subprocess.TimeoutExpired("a forked process", timeout or 0)
        return code

    def send_signal(self, sig: int) -> None:
        self.sent.add(sig)
        if self.poll() is None:
            with suppress(ProcessLookupError):  # it ends just now
                os.kill(self.pid, sig)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


Start = Callable[[Sequence[str], Path, Mapping[str, str], Path], Process]


def spawned(command: Sequence[str], folder: Path, variables: Mapping[str, str], output: Path) -> Process:
    """Start a command as a user does."""
    with output.open("w") as file:
        return Spawned(
            command, cwd=folder, env=variables, stdout=file, stderr=file, stdin=subprocess.DEVNULL, text=True
        )


def forked(command: Sequence[str], folder: Path, variables: Mapping[str, str], output: Path) -> Process:
    """Start a command of this interpreter as a fork of a process that has `tests.preloaded`: ten times as fast."""
    interpreter, *arguments = command
    assert interpreter == sys.executable
    return _fork(arguments, folder, variables, output, output)


def _fork(arguments: Sequence[str], folder: Path, variables: Mapping[str, str], output: Path, errors: Path) -> Process:
    for path in (output, errors):
        path.write_bytes(b"")  # so that a reader finds a file
    given = (list(arguments), str(folder), dict(variables), str(output), str(errors))
    with _STARTING:
        process = fork_server().Process(target=_run, args=given)
        process.start()
    return _Forked(process)


def _run(arguments: list[str], folder: str, variables: Mapping[str, str], output: str, errors: str) -> None:
    for path, descriptor in ((output, 1), (errors, 2)):
        file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND, 0o644)
        os.dup2(file, descriptor)
        os.close(file)
    run_main(arguments, folder, variables)


def run_main(arguments: Sequence[str], folder: str, variables: Mapping[str, str]) -> None:
    """Be a process of the command line, or of a script; arguments are those of the interpreter."""
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(variables)
    try:
        if VARIABLE in variables:
            from tests.fixed import change_constants

            change_constants()
        if arguments[:2] == ["-m", "oubli"]:
            sys.argv = ["oubli", *arguments[2:]]
            from oubli.app.cli.main import main

            main()
        else:
            sys.argv = arguments
            runpy.run_path(arguments[0], run_name="__main__")
    finally:
        atexit._run_exitfuncs()  # multiprocessing ends without


@cache
def fork_server() -> ForkServerContext:
    """Start the process that has `tests.preloaded`."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["tests.preloaded"])
    before = os.environ.copy()
    os.environ.update(environment())
    try:
        ensure_running()
    finally:
        os.environ.clear()
        os.environ.update(before)
    return context


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
        """What it has said so far; nothing before it was started."""
        path = self.folder / "output.txt"
        return path.read_text(encoding="utf-8") if path.exists() else ""

    def get(self, path: str) -> tuple[int, Any]:
        return self.ask("GET", path)

    def ask(self, method: str, path: str, body: Any = None, **headers: str) -> tuple[int, Any]:
        """Send a request, its body as JSON if it is not bytes; return status and content, parsed if it is JSON."""
        data = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
        fields = {"Content-Type": "application/json"} | {k.replace("_", "-"): text for k, text in headers.items()}
        request = urllib.request.Request(self.url + path, data=data, headers=fields, method=method)  # noqa: S310
        try:
            answer = urllib.request.urlopen(request, timeout=60)  # noqa: S310
        except urllib.error.HTTPError as error:
            answer = error
        with answer:
            content = answer.read()
            return answer.status, json.loads(content) if "json" in answer.headers.get_content_type() else content

    def pages(self, path: str, limit: int = 500) -> list[dict[str, Any]]:
        """Return a list page by page."""
        found: list[dict[str, Any]] = []
        cursor = ""
        while not found or found[-1]["next"] is not None:
            status, page = self.get(f"{path}{'&' if '?' in path else '?'}limit={limit}{cursor}")
            assert status == 200, page
            found.append(page)
            cursor = f"&cursor={page['next']}"
        return found

    def finish(self, path: str, content: Any = None, meanwhile: Callable[[], object] = bool) -> dict[str, Any]:
        """Start a job and return its result; something may be done as long as it runs."""
        status, job = self.ask("POST", path, {} if content is None else content)
        assert status == 202, job
        meanwhile()
        place = f"/jobs/{job['id']}"
        wait_for(lambda: self.get(place)[1]["status"] not in ("queued", "running"), f"{path} ends", 120)
        job = self.get(place)[1]
        assert job["status"] == "succeeded", job
        return dict(job["result"])

    def wait_until_erased(self, receipt: str, seconds: float = 60) -> dict[str, Any]:
        """Return a receipt as soon as it says `erased`."""
        wait_for(lambda: self.get(f"/erasures/{receipt}")[1]["status"] == "erased", "an erasure", seconds)
        return dict(self.get(f"/erasures/{receipt}")[1])

    def stop(self, how: signal.Signals = signal.SIGTERM) -> int:
        """Stop it and return its exit code."""
        self.process.send_signal(how)
        return self.process.wait(timeout=60)


def wait_for(question: Callable[[], object], what: str, seconds: float = 60, pause: float = 0.02) -> None:
    """Ask until the answer is true."""
    deadline = time.monotonic() + seconds
    while not question():
        assert time.monotonic() < deadline, f"waited in vain: {what}"
        time.sleep(pause)


def small_table(folder: Path, n: int = 60) -> tuple[str, ...]:
    """Write a small table of people, eight samples a person at most; return the flags that serve it."""
    rows = [f"p{i},s{i % 50},{i % 90},{'abc'[i % 3]},{'yes' if i % 4 else 'no'}" for i in range(n)]
    (folder / "data.csv").write_text("\n".join(["name,who,age,job,income", *rows]) + "\n")
    return ("--data", "data.csv", "--target", "income", "--id", "name", "--subject", "who", "--n-estimators", "3")


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
    """Return a port that is free now, and that no other test is given soon, in whichever process it runs.

    Servers take some time to come to it. The system's own choice could be given to two of them, or to a client.
    """
    with (Path(tempfile.gettempdir()) / f"oubli-test-port-{os.getuid()}").open("a+") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        file.seek(0)
        last = int(file.read() or _PORTS[0])
        for port in chain(range(last + 1, _PORTS[1]), range(_PORTS[0], last + 1)):
            with socket.socket() as probe, suppress(OSError):
                probe.bind(("127.0.0.1", port))
                file.truncate(0)
                file.write(str(port))
                return port
    raise AssertionError("no port is free")


def environment(**more: str) -> dict[str, str]:
    """The environment of a process of ours: the project importable, no settings from outside."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("OUBLI_")}
    return {**kept, "PYTHONPATH": str(ROOT), "PYTHONFAULTHANDLER": "1", **more}


def started_cli(*arguments: str, cwd: Path, output: Path, errors: Path, **variables: str) -> Process:
    """Begin a command of the command line, in a fork of a process that has imported what it needs."""
    return _fork(["-m", "oubli", *arguments], cwd, environment(**variables), output, errors)


def run_cli(*arguments: str, cwd: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run a command of the command line to its end; see `started_cli`."""
    with tempfile.TemporaryDirectory() as folder:
        output, errors = Path(folder, "output"), Path(folder, "errors")
        process = started_cli(*arguments, cwd=cwd, output=output, errors=errors, **variables)
        code = process.wait(START_SECONDS)
        return subprocess.CompletedProcess(arguments, code, output.read_text(), errors.read_text())


def run_program(*command: str | Path, cwd: Path = ROOT, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run a program to its end, in the environment of a process of ours."""
    words = [str(word) for word in command]
    return subprocess.run(words, cwd=cwd, env=environment(**variables), capture_output=True, text=True, check=False)


def output_of(*command: str | Path, cwd: Path = ROOT, **variables: str) -> str:
    """Run a program that must succeed, and return what it has written to stdout."""
    done = run_program(*command, cwd=cwd, **variables)
    assert done.returncode == 0, f"{done.stdout[-5000:]}\n{done.stderr[-5000:]}"
    return done.stdout


@contextmanager
def serving(
    *arguments: str,
    cwd: Path,
    command: tuple[str, ...] = APP,
    port: int | None = None,
    running: type[Running] = Running,
    start: Start | None = None,
    **variables: str,
) -> Iterator[Running]:
    """Run ``oubli serve`` with some flags until the end of the block; it is ready when the block begins.

    A command of this interpreter is forked unless `start` says otherwise, which a test of the start itself does.
    A server that dies by a signal that nobody here has sent is a failure, with what it has written, its stack included.
    """
    port = free_port() if port is None else port
    command = (*command, "serve", "--port", str(port), *arguments)
    if start is None:
        start = forked if command[0] == sys.executable else spawned
    process = start(command, cwd, environment(**variables), cwd / "output.txt")
    server = running(process, port, cwd)
    is_plain = command[: len(APP)] == APP
    try:
        _wait_until_ready(server)
        yield server
    finally:
        if process.poll() is None:
            # Anyone who wants to see an orderly end calls `stop`; a tool around a server must not leave it behind.
            process.send_signal(signal.SIGKILL if is_plain else signal.SIGTERM)
            try:
                process.wait(timeout=60)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        _explain_death(server, may_kill_itself=not is_plain)


def _explain_death(server: Running, *, may_kill_itself: bool) -> None:
    """Refuse a death that no one here has caused."""
    process = server.process
    number = -(process.returncode or 0)
    unexpected = number in FATAL or (number == signal.SIGKILL and not may_kill_itself)
    if unexpected and number not in process.sent:
        raise AssertionError(f"the server {describe(process.returncode)}:\n{server.output}")


def _wait_until_ready(server: Running) -> None:
    def is_ready() -> bool:
        assert server.process.poll() is None, f"the server ended with {server.process.returncode}:\n{server.output}"
        with suppress(OSError, HTTPException):  # not yet, or it was killed in the middle of an answer
            return server.get("/readyz")[0] == 200
        return False

    wait_for(is_ready, "the server is ready", START_SECONDS)
