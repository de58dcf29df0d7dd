"""The container's parts, as far as they can be tried without a container engine."""

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from oubli.app.settings import ENV_PREFIX, Settings
from oubli.app.version import VERSION
from tests.serving import EXAMPLE, ROOT, Running, free_port, output_of, run_program, serving, small_table

ENTRYPOINT = ROOT / "docker" / "entrypoint.sh"
DOCKERFILE = (ROOT / "Dockerfile").read_text(encoding="utf-8")
COMPOSE = (ROOT / "docker-compose.yml").read_text(encoding="utf-8")


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
    names = set(re.findall(rf"\b{ENV_PREFIX}[A-Z_]+", DOCKERFILE + COMPOSE))
    assert names
    assert {name.removeprefix(ENV_PREFIX).lower() for name in names} <= set(Settings.model_fields)


def test_compose_gives_the_container_little_and_publishes_to_this_machine_only() -> None:
    compose: dict[str, Any] = yaml.safe_load(COMPOSE)
    service = compose["services"]["oubli"]
    assert (service["image"], service["ports"]) == (f"oubli:{VERSION}", ["127.0.0.1:8000:8000"])
    assert (service["read_only"], service["cap_drop"], service["ulimits"]["core"]) == (True, ["ALL"], 0)
    assert "no-new-privileges:true" in service["security_opt"]
    ((name, path),) = [volume.split(":") for volume in service["volumes"]]
    assert name in compose["volumes"]
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
