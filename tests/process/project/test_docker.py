"""The container's parts, as far as they can be tried without a container engine.

Of the profile `cluster` of docker-compose.yml: what its services say, and its PostgreSQL with a standby, run here.
"""

import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml

from oubli.app.settings import ENV_PREFIX, Settings
from oubli.app.version import VERSION
from tests.postgres import user_of_postgres
from tests.serving import EXAMPLE, ROOT, Running, free_port, output_of, run_program, serving, small_table, wait_for

ENTRYPOINT = ROOT / "docker" / "entrypoint.sh"
DOCKERFILE = (ROOT / "Dockerfile").read_text(encoding="utf-8")
COMPOSE_FILE = (ROOT / "docker-compose.yml").read_text(encoding="utf-8")
COMPOSE: dict[str, Any] = yaml.safe_load(COMPOSE_FILE)
SERVICES: dict[str, Any] = COMPOSE["services"]


def instructions() -> list[tuple[str, str]]:
    """The Dockerfile's instructions, continuation lines joined and comments left out."""
    lines = [line for line in DOCKERFILE.splitlines() if not line.lstrip().startswith("#")]
    joined = re.sub(r"\\\n", " ", "\n".join(lines))
    return [(parts[0].upper(), parts[1].strip()) for line in joined.splitlines() if (parts := line.split(None, 1))]


def values(name: str) -> list[str]:
    return [value for instruction, value in instructions() if instruction == name]


def test_the_image_serves_the_example_as_a_numeric_user_and_gets_signals() -> None:
    everything = instructions()
    final = everything[max(i for i, (instruction, _) in enumerate(everything) if instruction == "FROM") :]
    last = dict(final)  # of each instruction
    assert re.fullmatch(r"[1-9]\d{3,}:[1-9]\d{3,}", last["USER"])
    assert last["ENTRYPOINT"].startswith("["), "in exec form, so that signals reach the server"
    assert (EXAMPLE.name in last["CMD"], '"income"' in last["CMD"]) == (True, True)
    assert ENTRYPOINT.read_text().rstrip().endswith('exec oubli "$@"')
    (install,) = [value for value in values("RUN") if "requirements.lock" in value]
    assert "--require-hashes --requirement requirements.lock" in install


def test_every_file_that_is_copied_is_there_and_not_ignored() -> None:
    allowed = {line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")}
    for value in values("COPY"):
        for source in value.split()[:-1] if not value.startswith("--from") else ():
            assert (ROOT / source).exists(), source
            assert source.split("/")[0] in allowed, source


def test_variables_are_settings() -> None:
    names = set(re.findall(rf"\b{ENV_PREFIX}[A-Z_]+", DOCKERFILE + COMPOSE_FILE))
    assert names
    assert {name.removeprefix(ENV_PREFIX).lower() for name in names} <= set(Settings.model_fields)


def test_compose_gives_the_container_little_and_publishes_to_this_machine_only() -> None:
    service = SERVICES["oubli"]
    assert (service["image"], service["ports"]) == (f"oubli:{VERSION}", ["127.0.0.1:8000:8000"])
    assert (service["read_only"], service["cap_drop"], service["ulimits"]["core"]) == (True, ["ALL"], 0)
    assert "no-new-privileges:true" in service["security_opt"]
    ((name, path),) = [volume.split(":") for volume in service["volumes"]]
    assert name in COMPOSE["volumes"]
    assert values("WORKDIR")[-1] == path
    assert f"install -d -m 0700 -o 10001 -g 10001 {path}" in " ".join(values("RUN"))


def check_health(port: int) -> int:
    done = run_program(sys.executable, ROOT / "docker" / "healthcheck.py", OUBLI_PORT=str(port))
    assert done.stderr == ""
    return done.returncode


def test_the_health_check_tells_a_ready_server_from_none(adult_server: Running) -> None:
    assert [check_health(port) for port in (adult_server.port, free_port())] == [0, 1]


def test_the_smoke_test_passes_on_a_real_server(adult_server: Running) -> None:
    before = adult_server.get("/model")[1]["n_samples"]
    script = ROOT / "docker" / "smoke.sh"
    assert "the server works" in output_of("bash", script, adult_server.url)
    assert adult_server.get("/model")[1]["n_samples"] == before
    assert run_program("bash", script, f"http://127.0.0.1:{free_port()}").returncode != 0


@pytest.fixture
def search_path(tmp_path: Path) -> str:
    """A path with an `oubli` on it, as the image has one."""
    script = tmp_path / "bin" / "oubli"
    script.parent.mkdir()
    script.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m oubli "$@"\n')
    script.chmod(0o755)
    return f"{script.parent}{os.pathsep}{os.environ['PATH']}"


def test_the_entry_point_serves_and_passes_signals_on(search_path: str, tmp_path: Path) -> None:
    with serving(*small_table(tmp_path), cwd=tmp_path, command=(str(ENTRYPOINT),), PATH=search_path) as server:
        assert server.get("/healthz")[0] == 200
        assert server.stop() == 0
    assert list((tmp_path / "oubli-data").glob("snapshot-*"))


def test_the_entry_point_copies_the_kernels_to_where_numba_can_write(search_path: str, tmp_path: Path) -> None:
    kernels = tmp_path / "image"
    kernels.mkdir()
    (kernels / "compiled").write_text("code")
    cache = tmp_path / "cache"
    variables = {"PATH": search_path, "KERNELS_IN_IMAGE": str(kernels), "NUMBA_CACHE_DIR": str(cache)}
    for _ in range(2):  # a restart of the container finds them there
        assert output_of(ENTRYPOINT, "--version", **variables).startswith("oubli ")
        assert (cache / "compiled").read_text() == "code"
        assert not (cache / "image").exists()


OLD = "flags\t\t: fpu sse2 avx avx2 fma"
NEW = OLD + " abm bmi1 bmi2 f16c movbe"


@pytest.mark.parametrize(("machine", "flags", "own", "named"), [
    ("x86_64", NEW, "", "x86-64-v3"), ("x86_64", NEW + " avx512f", "", "x86-64-v3"),
    ("x86_64", NEW, "znver4", "znver4"), ("x86_64", OLD, "", ""), ("aarch64", "", "", "generic"),
])  # fmt: skip
def test_kernels_are_for_a_named_processor(tmp_path: Path, machine: str, flags: str, own: str, named: str) -> None:
    (tmp_path / "uname").write_text(f"#!/bin/sh\necho {machine}\n")
    (tmp_path / "uname").chmod(0o755)
    (tmp_path / "cpuinfo").write_text(f"model name\t: any\n{flags}\n{flags}\n")
    script = f". {ROOT}/docker/processor.sh; echo ${{NUMBA_CPU_NAME:-}}; echo ${{NUMBA_CPU_FEATURES-unset}}"
    path = f"{tmp_path}{os.pathsep}{os.environ['PATH']}"
    variables = {"PATH": path, "CPUINFO": str(tmp_path / "cpuinfo"), "NUMBA_CPU_NAME": own}
    done = subprocess.run(["sh", "-euc", script], env=variables, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == [named, "" if named and not own else "unset"]


def test_the_entry_point_copies_secrets_so_that_nobody_else_may_read_them(search_path: str, tmp_path: Path) -> None:
    mounted, private = tmp_path / "mounted", tmp_path / "private"
    (mounted / "..data").mkdir(parents=True)  # as Kubernetes has it
    (mounted / "..data" / "pgpass").write_text("*:*:*:oubli:secret\n")
    (mounted / "pgpass").symlink_to("..data/pgpass")
    (mounted / "cluster_secret").write_text("s" * 64)
    (mounted / "cluster_secret").chmod(0o644)
    for _ in range(2):
        output_of(ENTRYPOINT, "--version", PATH=search_path, SECRETS_FROM=str(mounted), SECRETS_TO=str(private))
        modes = {path.name: path.stat().st_mode & 0o777 for path in private.iterdir()}
        assert modes == {"pgpass": 0o600, "cluster_secret": 0o600}
        assert private.stat().st_mode & 0o777 == 0o700
        assert (private / "pgpass").read_text() == "*:*:*:oubli:secret\n"


# --- the profile `cluster`

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
        assert "ports" not in SERVICES[name], "only the nodes ask it"


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
    assert not any("PASSWORD:" in line for line in COMPOSE_FILE.splitlines())


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
            how: dict[str, Any] = {"stdout": log, "stderr": log, "cwd": self.data.parent, **user_of_postgres()}
            self._process = subprocess.Popen(self._command, env=self._variables, **how)
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
