"""The wheel in an empty environment serves, predicts and deletes; the bill of materials lists what is in it."""

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from packaging.utils import canonicalize_name

from tests.serving import ROOT, environment, serving, small_table

NO_INDEX = re.compile(r"Failed to establish a new connection|name resolution|NewConnectionError|from versions: none")


def run(*command: str | Path, cwd: Path, **more: Any) -> str:
    """Run a program as it is outside of the tests, without the checkout on its path."""
    variables = {name: value for name, value in environment().items() if name != "PYTHONPATH"}
    done = subprocess.run(
        [*map(str, command)], cwd=cwd, env=variables, capture_output=True, text=True, check=False, **more
    )
    if done.returncode and NO_INDEX.search(done.stderr):
        pytest.skip("no package index can be reached")
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An environment with the wheel and the locked versions of what it needs, and nothing else."""
    folder = tmp_path_factory.mktemp("installed")
    run(sys.executable, "-m", "build", "--no-isolation", "--outdir", folder, ROOT, cwd=folder)
    run(sys.executable, "-m", "venv", folder / "venv", cwd=folder)
    pip = (folder / "venv" / "bin" / "python", "-m", "pip", "--disable-pip-version-check")
    run(*pip, "install", "--require-hashes", "--requirement", ROOT / "requirements.lock", cwd=folder)
    run(*pip, "install", "--no-deps", next(folder.glob("*.whl")), cwd=folder)
    run(*pip, "check", cwd=folder)
    return folder


def test_the_installed_command_serves_predicts_and_deletes(installed: Path, tmp_path: Path) -> None:
    program = installed / "venv" / "bin" / "oubli"
    with serving(*small_table(tmp_path), cwd=tmp_path, command=(str(program),), PYTHONPATH="") as server:
        status, answer = server.ask("POST", "/predict", {"instances": [[33, "a"], [34, "b"]]})
        assert (status, len(answer["predictions"])) == (200, 2)
        status, receipt = server.ask("DELETE", "/samples/p7")
        assert (status, receipt["status"], receipt["unlearned"]) == (200, "unlearned", 1)
        assert server.get("/samples/p7")[0] == 404
        assert "<title>" in run(installed / "venv" / "bin" / "python", "-c", PAGE.format(server.url), cwd=tmp_path)
        assert server.stop() == 0
    script = "import importlib.metadata as m, oubli; print(oubli.__file__, m.version('oubli-server'), oubli.load)"
    text = run(installed / "venv" / "bin" / "python", "-I", "-c", script, cwd=tmp_path)
    assert text.startswith(str(installed / "venv"))


PAGE = "import urllib.request; print(urllib.request.urlopen('{}/docs').read().decode())"


def test_the_bill_of_materials_lists_what_is_locked(installed: Path, tmp_path: Path) -> None:
    cyclonedx = Path(sys.executable).with_name("cyclonedx-py")
    target = tmp_path / "sbom.json"
    arguments = ("--pyproject", ROOT / "pyproject.toml", "--output-reproducible", "--output-file", target)
    run(cyclonedx, "environment", installed / "venv", *arguments, cwd=tmp_path)
    document = json.loads(target.read_text())
    assert (document["bomFormat"], document["metadata"]["component"]["name"]) == ("CycloneDX", "oubli-server")
    listed = {canonicalize_name(one["name"]): one for one in document["components"]}
    of_index = re.compile(r"pkg:pypi/([^@]+)@([^?]+)")
    locked = dict(re.findall(r"^([a-z0-9-]+)==(\S+)", (ROOT / "requirements.lock").read_text(), re.MULTILINE))
    assert {name: listed[name]["version"] for name in locked} == locked
    addresses = [of_index.fullmatch(one.get("purl", "")) for one in document["components"]]
    assert {canonicalize_name(found[1]): found[2] for found in addresses if found}.items() >= locked.items()
    (needed,) = [one for one in document["dependencies"] if one["ref"] == document["metadata"]["component"]["bom-ref"]]
    assert any(one.startswith("numba==") for one in needed["dependsOn"])
