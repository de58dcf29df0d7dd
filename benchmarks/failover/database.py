"""PostgreSQL on a host, with a standby that each commit waits for."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from pathlib import Path
from typing import IO

from benchmarks.failover.network import Host, as_user
from tests.postgres import Server

USER = "postgres"
PORT = 5432
_SETTINGS = """
listen_addresses = '*'
min_wal_size = 32MB
max_wal_size = 256MB
shared_buffers = 32MB
wal_sender_timeout = 5s
tcp_user_timeout = 5000
tcp_keepalives_idle = 3
tcp_keepalives_interval = 1
"""
_ALLOWED = "host all all 10.213.77.0/24 scram-sha-256\nhost replication all 10.213.77.0/24 scram-sha-256\n"


class Database(Server):
    """A server of PostgreSQL.

    Parameters
    ----------
    host
        Where it runs.
    folder
        For its files; made here.
    """

    def __init__(self, host: Host, folder: Path) -> None:
        super().__init__(folder, PORT, host.address)
        self.host = host

    def initialise(self) -> None:
        """Make an empty cluster, and start it."""
        self.make(flushes=True, settings=_SETTINGS, allowed=_ALLOWED)

    def spawn(self, command: list[str], log: IO[bytes]) -> subprocess.Popen[bytes]:
        """Start a program on the host."""
        return self.host.start(as_user(command, USER), log, cwd=self.folder)

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to the server and all that belongs to it."""
        for one in self.processes():
            with contextlib.suppress(ProcessLookupError):
                os.kill(one, number)
