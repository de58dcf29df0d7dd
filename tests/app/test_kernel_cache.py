"""The directory of compiled kernels: one for each state of the source, private, and never needed."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from app.kernel_cache import VARIABLE, source_hash, use_kernel_cache


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


def test_the_hash_sees_every_file_its_name_and_its_place(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    seen = {source_hash(tmp_path)}
    for path, text in [("a/x.py", "1"), ("a/x.py", "2"), ("x.py", "2"), ("a/y.py", "")]:
        (tmp_path / path).write_text(text)
        seen.add(source_hash(tmp_path))
    assert len(seen) == 5
    (tmp_path / "a" / "notes.txt").write_text("not source")
    assert source_hash(tmp_path) in seen


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
