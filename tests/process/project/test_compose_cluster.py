"""The profile `cluster` of docker-compose.yml: what its services say, and its PostgreSQL with a standby, run here."""

import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml

from oubli.app.settings import Settings
from tests.postgres import user_of_postgres
from tests.serving import ROOT, free_port, output_of, wait_for

COMPOSE: dict[str, Any] = yaml.safe_load((ROOT / "docker-compose.yml").read_text(encoding="utf-8"))
SERVICES: dict[str, Any] = COMPOSE["services"]
NODES = ["oubli-1", "oubli-2", "oubli-3"]
DATABASES = ["postgres-1", "postgres-2"]
FOLDER = ROOT / "docker" / "postgres"
SMALL = ["--fsync=off", "--shared_buffers=16MB", "--min_wal_size=32MB", "--dynamic_shared_memory_type=mmap"]
# What the image does at a start, as far as it matters here: the data directory, and the scripts that are run once.
IMAGE = """#!/bin/sh
set -eu
if [ ! -s "$PGDATA/PG_VERSION" ]; then
    initdb --pgdata="$PGDATA" --no-sync --username=postgres --auth-local=trust --auth-host=scram-sha-256 \\
        --pwfile="$POSTGRES_PASSWORD_FILE" >/dev/null
    echo "host all all all scram-sha-256" >>"$PGDATA/pg_hba.conf"
    pg_ctl --pgdata="$PGDATA" --wait --silent --log="$PGDATA.init" \\
        --options="-c listen_addresses='' -c unix_socket_directories=$PGHOST -p $PGPORT" start
    "$INIT_SCRIPT"
    pg_ctl --pgdata="$PGDATA" --wait --silent --mode=fast stop
fi
exec "$@"
"""


def test_three_nodes_differ_by_their_address_alone_and_are_as_small_as_the_single_server() -> None:
    assert [name for name, one in SERVICES.items() if "cluster" in one.get("profiles", [])] == [*NODES, *DATABASES]
    own = ("hostname", "ports", "volumes", "environment")
    shared = [{key: value for key, value in SERVICES[name].items() if key not in own} for name in NODES]
    assert shared[0] == shared[1] == shared[2]
    for key in ("image", "cap_drop", "security_opt", "read_only", "ulimits", "stop_grace_period"):
        assert shared[0][key] == SERVICES["oubli"][key]
    for n, one in enumerate((SERVICES[name] for name in NODES), 1):
        assert one["environment"]["OUBLI_NODE_URL"] == f"http://{one['hostname']}:8000"
        assert one["ports"] == [f"127.0.0.1:{8000 + n}:8000"]
    flags = {one.removeprefix("--").replace("-", "_") for one in SERVICES["oubli-1"]["command"] if one.startswith("--")}
    assert flags <= set(Settings.model_fields)
    for name in DATABASES:
        assert (SERVICES[name]["read_only"], SERVICES[name]["cap_drop"]) == (True, ["ALL"])
        assert "ports" not in SERVICES[name], "nobody but the nodes asks it"


def test_secrets_are_made_by_the_script_and_kept_out_of_images_and_of_version_control(tmp_path: Path) -> None:
    folder = tmp_path / "secrets"
    output_of(ROOT / "docker" / "secrets.sh", folder)
    made = {path.name: path.read_text() for path in folder.iterdir()}
    assert set(made) == set(COMPOSE["secrets"])
    assert folder.stat().st_mode & 0o777 == 0o700
    assert len(made["cluster_secret"].strip()) == 64
    assert len(set(made.values())) == len(made)
    assert made["pgpass"] == f"*:*:*:oubli:{made['oubli_password']}"
    output_of(ROOT / "docker" / "secrets.sh", folder)
    assert {path.name: path.read_text() for path in folder.iterdir()} == made
    assert "docker/secrets/" in (ROOT / ".gitignore").read_text().splitlines()
    assert "docker/secrets" in (ROOT / ".dockerignore").read_text().splitlines()
    assert not any("PASSWORD:" in line for line in (ROOT / "docker-compose.yml").read_text().splitlines())


# --- PostgreSQL, by the scripts that its image is started with


class Database:
    """A service of docker-compose.yml, in folders and at a port of its own."""

    def __init__(self, name: str, folder: Path, port: int, clone_of: str) -> None:
        self.port = port
        self.data = folder / name
        self._log = folder / f"{name}.log"
        sockets = folder / f"{name}-run"
        sockets.mkdir(mode=0o777)
        sockets.chmod(0o777)
        service = SERVICES[name]
        scripts = [mount.split(":")[0] for mount in service["volumes"][1:]]
        assert scripts == ["./docker/postgres/start.sh", "./docker/postgres/init.sh"]
        self._command = [FOLDER / "start.sh", *service["command"], "-p", str(port), "-k", str(sockets), *SMALL]
        self._variables = {
            "PATH": f"{folder / 'bin'}{os.pathsep}{os.environ['PATH']}", "LC_ALL": "C.UTF-8", "CLONE_OF": clone_of,
            "PGDATA": str(self.data), "PGPORT": str(port), "PGHOST": str(sockets),
            "SECRETS_FROM": str(folder / "secrets"), "INIT_SCRIPT": str(FOLDER / "init.sh"),
            "POSTGRES_PASSWORD_FILE": str(folder / "secrets" / "postgres_password"),
            "REPLICATION_PASSFILE": str(folder / f"{name}.pgpass"),
        }  # fmt: skip
        self._password = (folder / "secrets" / "oubli_password").read_text().strip()
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                self._command, env=self._variables, stdout=log, stderr=log, cwd=self.data.parent, **user_of_postgres()
            )
        is_ready = ["pg_isready", "-q", "-h", "127.0.0.1", "-p", str(self.port)]
        is_over = self._process.poll
        wait_for(lambda: is_over() is not None or not subprocess.run(is_ready, check=False).returncode, "PostgreSQL")
        assert is_over() is None, self._log.read_text()[-2000:]

    def ask(self, statement: str, seconds: float = 30.0) -> list[Any]:
        """Run a statement as the role of the nodes."""
        import psycopg

        place = f"host=127.0.0.1 port={self.port} user=oubli dbname=oubli password={self._password}"
        with psycopg.connect(place, autocommit=True) as connection:
            connection.execute(f"SET statement_timeout = {int(1000 * seconds)}")
            cursor = connection.execute(statement)
            return cursor.fetchall() if cursor.description else []

    def stop(self, with_signal: signal.Signals = signal.SIGINT) -> None:
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(with_signal)
            self._process.wait(60)


@contextmanager
def databases() -> Iterator[tuple[Database, Database]]:
    """Have a primary and a standby, neither of them started."""
    missing = [name for name in ("initdb", "pg_ctl", "pg_basebackup", "psql") if shutil.which(name) is None]
    if missing:
        pytest.skip(f"PostgreSQL is not installed ({', '.join(missing)})")
    pytest.importorskip("psycopg")
    # In memory where there is such a place: what is tried are the scripts, not the disk.
    place = "/dev/shm" if Path("/dev/shm").is_dir() else None  # noqa: S108
    with tempfile.TemporaryDirectory(prefix="oubli-postgres-", dir=place) as name, ExitStack() as ends:
        folder = Path(name)
        folder.chmod(0o777)
        output_of(ROOT / "docker" / "secrets.sh", folder / "secrets")
        (folder / "secrets").chmod(0o755)  # in a container each file is mounted by itself
        (folder / "bin").mkdir()
        image = folder / "bin" / "docker-entrypoint.sh"
        image.write_text(IMAGE)
        image.chmod(0o755)
        first = Database("postgres-1", folder, free_port(), "")
        second = Database("postgres-2", folder, free_port(), f"127.0.0.1:{first.port}")
        for database in (first, second):
            ends.callback(database.stop, signal.SIGQUIT)
        yield first, second


def test_a_commit_waits_for_the_standby_which_can_take_over() -> None:
    with databases() as (first, second):
        first.start()
        assert first.ask("SHOW synchronous_standby_names") == [("FIRST 1 (oubli_standby)",)]
        second.start()
        assert second.ask("SELECT pg_is_in_recovery()") == [(True,)]
        first.ask("CREATE TABLE kept (n integer)")
        first.ask("INSERT INTO kept SELECT generate_series(1, 100)")
        assert second.ask("SELECT count(*) FROM kept") in ([(100,)], [(0,)])  # flushed there, and applied soon after
        # What the server does after an erasure is allowed.
        first.ask("SELECT pg_switch_wal()")
        first.ask("CHECKPOINT")
        assert first.ask("SHOW wal_recycle") == second.ask("SHOW wal_recycle") == [("off",)]
        # A standby that comes back continues where it was, without another copy.
        second.stop()
        second.start()
        first.ask("INSERT INTO kept VALUES (101)")
        # The primary dies: everything that was acknowledged is there.
        first.stop(signal.SIGQUIT)
        assert second.ask("SELECT count(*) FROM kept")[0][0] >= 100
        promote = ["pg_ctl", "promote", "--pgdata", str(second.data), "--wait", "--silent"]
        subprocess.run(promote, check=True, **user_of_postgres())
        assert second.ask("SELECT count(*) FROM kept") == [(101,)]
        # It waits for a standby of its own, and the one that died becomes it, with an empty volume.
        assert second.ask("SHOW synchronous_standby_names") == [("FIRST 1 (oubli_standby)",)]
        shutil.rmtree(first.data)
        first._variables["CLONE_OF"] = f"127.0.0.1:{second.port}"
        first.start()
        second.ask("INSERT INTO kept VALUES (102)")
        assert first.ask("SELECT pg_is_in_recovery()") == [(True,)]
        # And once more in the other direction, where the slot of before is still there.
        first.stop()
        shutil.rmtree(first.data)
        first.start()
        second.ask("INSERT INTO kept VALUES (103)")
