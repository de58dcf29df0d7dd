"""What an installation brings: one top-level name, and one import name for each module."""

import email
import json
import re
import shutil
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

from oubli.app.version import VERSION
from tests import pythons
from tests.serving import ROOT, output_of

BUILD = (sys.executable, "-m", "hatchling", "build", "-d")
# What everything imported looks like: names that are there twice, and files that are there twice.
WALK = """
import importlib, json, os, pkgutil, sys
import oubli
for found in pkgutil.walk_packages(oubli.__path__, "oubli."):
    if not found.name.endswith("__main__"):
        importlib.import_module(found.name)
places = {}
for name, module in sys.modules.items():
    if (file := getattr(module, "__file__", None)) and name.split(".")[0] in ("oubli", "app", "core"):
        places.setdefault(os.path.realpath(file), []).append(name)
print(json.dumps({
    "home": os.path.dirname(oubli.__file__),
    "modules": sorted(name for names in places.values() for name in names),
    "doubles": [names for names in places.values() if len(names) > 1],
}))
"""


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A wheel and a source distribution."""
    folder = tmp_path_factory.mktemp("built")
    output_of(*BUILD, folder)
    return next(folder.glob("*.whl")), next(folder.glob("*.tar.gz"))


def walk(place: Path, cwd: Path) -> dict[str, object]:
    """Import everything that a place on the path holds, in a process of its own."""
    script = f"import sys; sys.path.insert(0, {str(place)!r})\n{WALK}"
    answer: dict[str, object] = json.loads(output_of(sys.executable, "-I", "-c", script, cwd=cwd))
    return answer


def test_a_wheel_brings_oubli_and_nothing_else(built: tuple[Path, Path]) -> None:
    names = zipfile.ZipFile(built[0]).namelist()
    assert {name.split("/")[0].rpartition(".")[2] for name in names} == {"oubli", "dist-info"}
    assert {"oubli/py.typed", "oubli/core/__init__.py", "oubli/app/http/static/docs.html"} <= set(names)
    console = {f"oubli/{path.relative_to(ROOT).as_posix()}" for path in (ROOT / "app/http/console").rglob("*.*")}
    assert console == {name for name in names if "/console/" in name}
    sources = {path.relative_to(ROOT).as_posix() for room in ("app", "core") for path in (ROOT / room).rglob("*.py")}
    assert {name.removeprefix("oubli/") for name in names if name.endswith(".py")} >= sources


def test_the_distribution_has_a_name_of_its_own(built: tuple[Path, Path]) -> None:
    name = f"oubli_server-{VERSION}"
    assert [path.name for path in built] == [f"{name}-py3-none-any.whl", f"{name}.tar.gz"]
    archive = zipfile.ZipFile(built[0])
    metadata = email.message_from_bytes(archive.read(f"{name}.dist-info/METADATA"))
    assert (metadata["Name"], metadata["Version"]) == ("oubli-server", VERSION)
    assert "oubli = oubli.app.cli.main:main" in archive.read(f"{name}.dist-info/entry_points.txt").decode()
    assert tuple(re.findall(r"Python :: (3\.\d+)", "\n".join(metadata.get_all("Classifier", [])))) == pythons.VERSIONS
    assert metadata["Requires-Python"] == f">={pythons.VERSIONS[0]}"


def test_each_module_has_one_name_in_a_checkout_and_in_a_wheel(built: tuple[Path, Path], tmp_path: Path) -> None:
    shutil.unpack_archive(built[0], tmp_path / "site", "zip")
    installed, checkout = walk(tmp_path / "site", tmp_path), walk(ROOT, ROOT)
    assert installed["home"] == str(tmp_path / "site" / "oubli")
    assert checkout["home"] == str(ROOT / "oubli")
    assert installed["doubles"] == checkout["doubles"] == []
    assert installed["modules"] == checkout["modules"]


def test_a_source_distribution_builds_the_same_wheel(built: tuple[Path, Path], tmp_path: Path) -> None:
    with tarfile.open(built[1]) as archive:
        archive.extractall(tmp_path, filter="data")
    (source,) = tmp_path.iterdir()
    output_of(*BUILD, tmp_path, "-t", "wheel", cwd=source)
    (again,) = tmp_path.glob("*.whl")
    assert zipfile.ZipFile(again).namelist() == zipfile.ZipFile(built[0]).namelist()
