"""The directory of compiled kernels: one for each state of the source, private, and never needed."""

from __future__ import annotations

import importlib
import os
import pkgutil
from pathlib import Path

import pytest

import core
import core._jit
from app.kernel_cache import DECORATORS, VARIABLE, kernel_sources, source_hash, use_kernel_cache


@pytest.fixture(autouse=True)
def _own_home(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv(VARIABLE, raising=False)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))


def test_the_directory_is_made_for_this_user_and_named_to_numba() -> None:
    directory = use_kernel_cache()
    assert os.environ[VARIABLE] == str(directory)
    assert directory.is_dir()
    assert directory.stat().st_mode & 0o077 == 0


def test_a_directory_that_is_named_already_stays(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv(VARIABLE, str(tmp_path / "mine"))
    assert use_kernel_cache() == tmp_path / "mine"
    assert not (tmp_path / "cache").exists()


def test_the_hash_sees_every_file_that_kernels_are_made_from(tmp_path: Path) -> None:
    package = tmp_path / "core"
    package.mkdir()
    kernels = (
        "from core import nodes\nfrom core.sizes import SIZE\nfrom core.texts import NAME\n{}@inner\ndef one(x):\n    "
    )
    files = {
        "grow.py": kernels.format("") + "return nodes.SPLIT + SIZE",
        "nodes.py": "from core.limits import MOST\nSPLIT = MOST",
        "limits.py": "MOST = 3",
        "sizes.py": "SIZE = 1",
        "texts.py": "NAME = 'a'",
        "model.py": "from core.grow import one\n",
    }
    for name, text in files.items():
        (package / name).write_text(text)
    assert [path.name for path in kernel_sources(package)] == ["grow.py", "limits.py", "nodes.py", "sizes.py"]
    seen = {source_hash(package)}
    for name in ("grow.py", "nodes.py", "limits.py", "sizes.py"):
        (package / name).write_text(files[name] + "\nMORE = 1")
        seen.add(source_hash(package))
    assert len(seen) == 5
    for name in ("texts.py", "model.py"):
        (package / name).write_text(files[name] + "\nMORE = 1")
    assert source_hash(package) in seen


def test_each_decorator_of_kernels_is_known() -> None:
    named = {
        name for name, made in vars(core._jit).items() if callable(made) and made.__module__ == "numba.core.decorators"
    }
    assert named - {"njit"} == DECORATORS


def test_every_compiled_function_is_in_the_hash() -> None:
    package = Path(core.__file__).parent
    sources = set(kernel_sources(package))
    for found in pkgutil.walk_packages([str(package)], "core."):
        for made in vars(importlib.import_module(found.name)).values():
            if hasattr(made, "py_func"):
                assert Path(made.py_func.__code__.co_filename) in sources


def test_caches_of_older_versions_go_but_the_last_three(tmp_path: Path) -> None:
    home = tmp_path / "cache" / "oubli"
    for age in range(6):
        old = home / f"kernels-{age}"
        old.mkdir(parents=True)
        os.utime(old, (1000 - age, 1000 - age))
    current = use_kernel_cache()
    assert {path.name for path in home.iterdir()} == {current.name, "kernels-0", "kernels-1", "kernels-2"}


def test_without_a_usable_home_the_cache_is_private_and_temporary(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    directory = use_kernel_cache()
    assert directory.parent == tmp_path
    assert directory.stat().st_mode & 0o077 == 0
