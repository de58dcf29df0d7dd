"""PostgreSQL for tests: clusters of its own in temporary folders, with a standby where one is wanted.

PostgreSQL refuses to run as root, so as root its programs run as `postgres` or `nobody`. Tests that need it are
skipped, and say so, where its programs are not installed.
"""

from __future__ import annotations

import contextlib
import os
import pwd
import secrets
import select
import shutil
import signal
import socket
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any

import pytest

from tests.serving import free_port, wait_for

PASSWORD = "not-a-secret"
# Processes of tests are killed, and the power never fails: what the kernel has is as good as flushed.
_UNFLUSHED = "fsync = off\nmin_wal_size = 2MB\nmax_wal_size = 64MB\n"
_SETTINGS = """
listen_addresses = '127.0.0.1'
unix_socket_directories = ''
wal_recycle = off
shared_buffers = 16MB
max_connections = 60
wal_level = replica
hot_standby = on
max_wal_senders = 4
wal_receiver_timeout = 5s
wal_retrieve_retry_interval = 200ms
log_min_messages = warning
"""


def programs() -> Path | None:
    """Return the folder with `initdb` and `postgres`; None when they are not installed."""
    found = shutil.which("initdb")
    if found is not None:
        return Path(found).resolve().parent
    folders = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"), key=lambda path: int(path.parts[-3]))
    return folders[-1].parent if folders else None


def needs_postgres() -> None:
    """Skip the test where PostgreSQL is not installed."""
    if programs() is None:
        pytest.skip("PostgreSQL is not installed (initdb, postgres)")
    pytest.importorskip("psycopg")


@pytest.fixture(scope="session")
def postgres() -> Iterator[Server]:
    """Give a server for all tests of a process: each makes a database of its own, and none stops the server."""
    needs_postgres()
    with temporary_server() as server:
        yield server


class Server:
    """A PostgreSQL server in a folder for its files: see `make`, `Server.standby` and `Server.backup`."""

    def __init__(self, folder: Path, port: int, address: str = "127.0.0.1") -> None:
        self.folder = folder
        self.port = port
        self.address = address
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def data(self) -> Path:
        return self.folder / "data"

    def url(self, database: str = "postgres", *, port: int | None = None, query: str = "") -> str:
        return f"postgresql://oubli:{PASSWORD}@{self.address}:{port or self.port}/{database}{query}"

    def make(self, *, flushes: bool = False, settings: str = "", allowed: str = "") -> None:
        """Make an empty cluster, and start it, with more lines of `postgresql.conf` and `pg_hba.conf`.

        One that flushes has the settings of PostgreSQL where others would be faster.
        """
        _own(self.folder)
        secret = self.folder / "password"
        secret.write_text(PASSWORD)
        secret.chmod(0o644)
        how = ["-U", "oubli", "--auth=scram-sha-256", f"--pwfile={secret}", "--encoding=UTF8", "--no-locale"]
        how += ["--no-sync"] if flushes else ["--no-sync", "--wal-segsize=1"]
        _run(["initdb", "-D", str(self.data), *how], self.folder)
        for name, text in (("postgresql.conf", _SETTINGS + ("" if flushes else _UNFLUSHED) + settings),
                           ("pg_hba.conf", allowed)):  # fmt: skip
            with (self.data / name).open("a") as file:
                file.write(text)
        self.start()

    def start(self) -> None:
        command = [_program("postgres"), "-D", str(self.data), "-p", str(self.port)]
        with (self.folder / "log").open("ab") as log:
            self._process = self.spawn(command, log)
        self.wait()

    def spawn(self, command: list[str], log: IO[bytes]) -> subprocess.Popen[bytes]:
        """Start a program that may not run as root."""
        how: dict[str, Any] = {"stdin": subprocess.DEVNULL, "stdout": log, "stderr": log, "cwd": self.folder}
        return subprocess.Popen(command, **how, **user_of_postgres())

    def wait(self, seconds: float = 30.0) -> None:
        """Return when it takes connections."""
        import psycopg

        def takes_connections() -> bool:
            assert self._process is not None
            assert self._process.poll() is None, (self.folder / "log").read_text(errors="replace")[-2000:]
            with contextlib.suppress(psycopg.OperationalError):
                psycopg.connect(self.url(), connect_timeout=2).close()
                return True
            return False

        wait_for(takes_connections, f"{self.folder} takes connections", seconds)

    def stop(self) -> None:
        """Stop it as `pg_ctl stop -m fast` does."""
        self._end(signal.SIGINT)

    def kill(self) -> None:
        """Kill it with everything that belongs to it, as a power loss would; what the kernel has stays."""
        children = self.processes()[1:]
        self._end(signal.SIGKILL)
        for child in children:
            with contextlib.suppress(ProcessLookupError):
                os.kill(child, signal.SIGKILL)
        # The shared memory goes with the last of them.
        while any(Path(f"/proc/{child}").exists() and not _is_zombie(child) for child in children):
            time.sleep(0.01)

    def processes(self) -> list[int]:
        """The ids of the server's process and of all that belong to it."""
        assert self._process is not None
        pid = self._process.pid
        return [pid, *map(int, Path(f"/proc/{pid}/task/{pid}/children").read_text().split())]

    def close(self) -> None:
        if self._process is not None:
            self._end(signal.SIGQUIT)

    def execute(self, statement: str, values: Any = None, database: str = "postgres") -> list[tuple[Any, ...]]:
        """Run a statement as the superuser."""
        import psycopg

        with psycopg.connect(self.url(database), autocommit=True) as connection:
            cursor = connection.execute(statement, values)  # type: ignore[call-overload]
            return cursor.fetchall() if cursor.description else []

    def new_database(self) -> str:
        """Make an empty database, and return its name."""
        name = f"test_{secrets.token_hex(6)}"
        self.execute(f"CREATE DATABASE {name}")
        return name

    def new_schema(self) -> str:
        """Make an empty schema, which is faster, and return what stands for a database with only that in it."""
        name = f"test_{secrets.token_hex(6)}"
        self.execute(f"CREATE SCHEMA {name}")
        return f"postgres?options=-csearch_path%3D{name}"

    def standby(self, folder: Path) -> Server:
        """Make and start a standby for which commits wait from now on."""
        other = Server(folder, free_port())
        self.feed(other)
        return other

    def feed(self, other: Server) -> None:
        """Make another server a standby with a replication slot, for which commits wait from now on, and start it."""
        name = f"standby_{secrets.token_hex(4)}"
        self._copy(other.folder, "-R", "-C", "-S", name, name=name)
        other.start()
        self.execute(f"ALTER SYSTEM SET synchronous_standby_names = '{name}'")
        self.execute("SELECT pg_reload_conf()")
        in_step = "SELECT 1 FROM pg_stat_replication WHERE sync_state = 'sync'"
        wait_for(lambda: self.execute(in_step), "the standby is in step")

    def backup(self, folder: Path) -> Server:
        """Make a base backup, with the log that it needs; return the server that it is when it is started."""
        self._copy(folder)
        return Server(folder, free_port())

    def _copy(self, folder: Path, *how: str, name: str = "backup") -> None:
        _own(folder)
        source = self.url(query=f"?application_name={name}")
        _run(["pg_basebackup", "-D", str(folder / "data"), "-c", "fast", "-X", "stream", *how, "-d", source], folder)

    def promote(self) -> None:
        """Have a standby take writes."""
        self.execute("ALTER SYSTEM SET synchronous_standby_names = ''")
        self.execute("SELECT pg_promote()")

    def _end(self, number: signal.Signals) -> None:
        process, self._process = self._process, None
        if process is not None and process.poll() is None:
            process.send_signal(number)
            process.wait(30)


@contextlib.contextmanager
def temporary_server(*, flushes: bool = False) -> Iterator[Server]:
    """Give a server that is gone at the end of the block."""
    # Not below pytest's folder: that is for its owner only, and PostgreSQL runs as somebody else.
    folder = Path(tempfile.mkdtemp(prefix="oubli-pg-", dir="/tmp"))
    server = Server(folder, free_port())
    try:
        server.make(flushes=flushes)
        yield server
    finally:
        server.close()
        shutil.rmtree(folder, ignore_errors=True)


def user_of_postgres() -> dict[str, Any]:
    """Whom PostgreSQL runs as, as `subprocess` takes it."""
    if os.getuid() != 0:
        return {}
    for name in ("postgres", "nobody"):
        with contextlib.suppress(KeyError):
            found = pwd.getpwnam(name)
            return {"user": found.pw_uid, "group": found.pw_gid, "extra_groups": []}
    pytest.skip("PostgreSQL refuses to run as root, and there is no other user")


def _own(folder: Path) -> None:
    """Give a folder to whom PostgreSQL runs as."""
    folder.mkdir(parents=True, exist_ok=True)
    user = user_of_postgres()
    if user:
        folder.chmod(0o755)
        os.chown(folder, user["user"], user["group"])


def _run(command: list[str], folder: Path) -> None:
    done = subprocess.run(
        [_program(command[0]), *command[1:]], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60,
        cwd=folder, **user_of_postgres(),
    )  # fmt: skip
    assert done.returncode == 0, done.stderr


def _program(name: str) -> str:
    folder = programs()
    assert folder is not None
    return str(folder / name)


def _is_zombie(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True


class Proxy:
    """Stands between a client and a server on a port of this machine, and loses what it has to lose."""

    def __init__(self, port: int) -> None:
        self._target = port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self.is_away = False
        self._lose: Callable[[_Pair, bytes], None] | None = None
        self._pairs: list[_Pair] = []
        self._held: list[tuple[_Pair, bytes]] = []
        threading.Thread(target=self._accept, daemon=True).start()

    def lose_question(self) -> None:
        """Cut the connection instead of passing on what the client sends next."""
        self._lose = lambda pair, data: pair.cut()

    def lose_answer(self) -> None:
        """Pass on what the client sends next, and cut the connection instead of passing on the answer."""

        def lose(pair: _Pair, data: bytes) -> None:
            pair.is_deaf = True
            pair.server.sendall(data)

        self._lose = lose

    def hold_question(self) -> None:
        """Cut the client off when it sends next, and keep what it has sent for `send_held`."""

        def lose(pair: _Pair, data: bytes) -> None:
            self._held.append((pair, data))
            pair.cut_client()

        self._lose = lose

    def send_held(self) -> bytes:
        """Pass on what was kept, and return what the server answers."""
        pair, data = self._held.pop()
        pair.server.sendall(data)
        answer = b""
        while not answer.endswith(b"Z\0\0\0\5I"):  # ready for the next statement
            answer += pair.server.recv(65536)
        pair.cut()
        return answer

    def cut(self) -> None:
        """Cut all connections."""
        for pair in self._pairs:
            pair.cut()

    def close(self) -> None:
        self._listener.close()
        self.cut()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            if self.is_away:
                client.close()
                continue
            try:
                server = socket.create_connection(("127.0.0.1", self._target))
            except OSError:
                client.close()
                continue
            pair = _Pair(client, server)
            self._pairs.append(pair)
            threading.Thread(target=self._questions, args=(pair,), daemon=True).start()
            threading.Thread(target=pair.answers, daemon=True).start()

    def _questions(self, pair: _Pair) -> None:
        with contextlib.suppress(OSError, ValueError):
            while data := pair.client.recv(65536):
                lose, self._lose = self._lose, None
                if lose is not None:
                    lose(pair, data)
                else:
                    pair.server.sendall(data)
        if not any(held is pair for held, _ in self._held):
            pair.cut()


class _Pair:
    def __init__(self, client: socket.socket, server: socket.socket) -> None:
        self.client = client
        self.server = server
        self.is_deaf = False
        self._is_half = False

    def answers(self) -> None:
        with contextlib.suppress(OSError, ValueError):  # the latter of a socket that was closed
            while not self._is_half:
                if not select.select([self.server], [], [], 0.02)[0] or self._is_half:
                    continue
                data = self.server.recv(65536)
                if not data or self.is_deaf:
                    break
                self.client.sendall(data)
        if not self._is_half:
            self.cut()

    def cut_client(self) -> None:
        self._is_half = True
        _end(self.client)

    def cut(self) -> None:
        _end(self.client)
        _end(self.server)


def _end(connection: socket.socket) -> None:
    with contextlib.suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)
    connection.close()
