"""The directory of compiled kernels: private, and never needed."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from numba import config

from oubli.app.service.compiling import VARIABLE, use_kernel_cache


@pytest.fixture(autouse=True)
def _own_home(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv(VARIABLE, raising=False)
    monkeypatch.setattr(config, "CACHE_DIR", "")
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


def test_without_a_usable_home_the_cache_is_private_and_temporary(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    directory = use_kernel_cache()
    assert directory.parent == tmp_path
    assert directory.stat().st_mode & 0o077 == 0
