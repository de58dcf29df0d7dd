"""Long tests end with their time, and a table tells what ran."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.budget import table
from tests.serving import ROOT

TESTS = """
import gc, time
def left(phase, info): raise KeyboardInterrupt
def test_quick(): {quick}
def test_slow():
    {slow}
def test_later(): pass
"""


def run(folder: Path, *options: str, patience: float = 30.0) -> subprocess.CompletedProcess[str]:
    text = f"import tests.budget\nfrom tests.budget import *\ntests.budget._PATIENCE = {patience}\n"
    (folder / "conftest.py").write_text(text, encoding="utf-8")
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-c", "/dev/null", *options, str(folder)]
    # A worker writes a record of its own: this is none.
    variables = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_XDIST")}
    variables["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"
    return subprocess.run(command, cwd=ROOT, env=variables, capture_output=True, text=True, timeout=60, check=False)


SWALLOW = "try: time.sleep(30)\n    except KeyboardInterrupt: time.sleep(30)"  # such a test ends with the process


@pytest.mark.parametrize(("slow", "patience"), [("time.sleep(30)", 30.0), (SWALLOW, 0.5)])
def test_a_session_out_of_time_is_no_failure_and_says_what_is_left(tmp_path: Path, slow: str, patience: float) -> None:
    (tmp_path / "test_them.py").write_text(TESTS.format(quick="pass", slow=slow), encoding="utf-8")
    record = tmp_path / "long.1.record"
    ended = run(tmp_path, "--seconds=2", f"--record={record}", "-W", "error", patience=patience)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert "the 2 s are over" in ended.stdout
    _, line, _, file = table([record])
    assert line.split() == ["long", "1", "1", "0", *["2", "tests", "of", "1", "files"]]
    assert file.endswith("test_them.py: 2 of 3")


def test_a_failure_before_the_time_is_over_fails_the_session(tmp_path: Path) -> None:
    text = TESTS.format(quick="assert not gc", slow="time.sleep(30)")
    (tmp_path / "test_them.py").write_text(text, encoding="utf-8")
    assert run(tmp_path, "--seconds", "1").returncode == 1
