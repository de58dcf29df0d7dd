"""PostgreSQL on a host, with a standby that each commit waits for."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import time
from pathlib import Path
from typing import IO

import psycopg

from benchmarks.failover.network import Host, as_user, own

PASSWORD = "not-a-secret"  # noqa: S105 - of a database that lives as long as the measurement
USER = "postgres"
PORT = 5432
_SETTINGS = """
listen_addresses = '*'
unix_socket_directories = ''
wal_level = replica
max_wal_senders = 4
wal_recycle = off
min_wal_size = 32MB
max_wal_size = 256MB
shared_buffers = 32MB
wal_sender_timeout = 5s
wal_receiver_timeout = 5s
wal_retrieve_retry_interval = 200ms
tcp_user_timeout = 5000
tcp_keepalives_idle = 3
tcp_keepalives_interval = 1
"""
_ALLOWED = "host all all 10.213.77.0/24 scram-sha-256\nhost replication all 10.213.77.0/24 scram-sha-256\n"


def _programs() -> Path:
    """Return the folder of PostgreSQL's programs."""
    found = shutil.which("initdb")
    if found is not None:
        return Path(found).resolve().parent
    folders = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"))
    if not folders:
        raise SystemExit("PostgreSQL is not installed: apt-get install postgresql")
    return folders[-1].parent


class Database:
    """A server of PostgreSQL.

    Parameters
    ----------
    host
        Where it runs.
    folder
        For its files; made here.
    """

    def __init__(self, host: Host, folder: Path) -> None:
        self.host = host
        self._folder = folder
        self._process: subprocess.Popen[bytes] | None = None
        own(folder, USER)
        self._log: IO[bytes] = (folder / "log").open("ab")

    def initialise(self) -> None:
        """Make an empty cluster, and start it."""
        secret = self._folder / "password"
        secret.write_text(PASSWORD)
        self._run("initdb", "-U", "oubli", "--auth=scram-sha-256", f"--pwfile={secret}", "--no-locale", "--no-sync",
                  "--encoding=UTF8", "-D", str(self._data))  # fmt: skip
        with (self._data / "postgresql.conf").open("a") as file:
            file.write(_SETTINGS)
        with (self._data / "pg_hba.conf").open("a") as file:
            file.write(_ALLOWED)
        self.start()

    def follow(self, primary: Database) -> None:
        """Become the standby that commits of another server wait for, and start."""
        source = f"{primary.url}?application_name=standby"
        # The slot keeps what the standby lacks: erasures have old files of the log removed at once.
        how = ("-R", "-c", "fast", "-X", "stream", "-C", "-S", "standby", "-d", source)
        command = as_user([str(_programs() / "pg_basebackup"), "-D", str(self._data), *how], USER)
        process = self.host.start(command, self._log, cwd=self._folder)
        if process.wait(60):
            raise RuntimeError("the standby could not be made")
        self.start()
        primary.execute("ALTER SYSTEM SET synchronous_standby_names = 'standby'")
        primary.execute("SELECT pg_reload_conf()")
        deadline = time.monotonic() + 30
        while not primary.execute("SELECT 1 FROM pg_stat_replication WHERE sync_state = 'sync'"):
            if time.monotonic() > deadline:
                raise TimeoutError("the standby does not follow")
            time.sleep(0.1)

    @property
    def url(self) -> str:
        """Where it is."""
        return f"postgresql://oubli:{PASSWORD}@{self.host.address}:{PORT}/postgres"

    def start(self) -> None:
        """Start it, and return when it takes connections."""
        self._process = self.host.start(
            as_user([str(_programs() / "postgres"), "-D", str(self._data), "-p", str(PORT)], USER),
            self._log,
            cwd=self._folder,
        )
        deadline = time.monotonic() + 60
        while True:
            try:
                self.execute("SELECT 1")
            except psycopg.OperationalError:
                if time.monotonic() > deadline or self._process.poll() is not None:
                    raise
                time.sleep(0.05)
            else:
                return

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to the server and all that belongs to it."""
        if self._process is not None:
            pid = self._process.pid
            children = map(int, Path(f"/proc/{pid}/task/{pid}/children").read_text().split())
            for one in (pid, *children):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(one, number)

    def kill(self) -> None:
        """Kill it with all that belongs to it."""
        self.signal(signal.SIGKILL)
        if self._process is not None:
            self._process.wait(30)
        time.sleep(0.3)  # its shared memory goes with the last of them

    def close(self) -> None:
        """End it."""
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(signal.SIGQUIT)
            self._process.wait(30)
        self._log.close()

    def execute(self, statement: str) -> list[tuple[object, ...]]:
        """Run a statement."""
        with psycopg.connect(self.url, autocommit=True, connect_timeout=2) as connection:
            cursor = connection.execute(statement.encode())
            return cursor.fetchall() if cursor.description else []

    @property
    def _data(self) -> Path:
        return self._folder / "data"

    def _run(self, program: str, *arguments: str) -> None:
        command = as_user([str(_programs() / program), *arguments], USER)
        subprocess.run(command, check=True, capture_output=True, cwd=self._folder)
