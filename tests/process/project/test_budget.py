"""Long tests end with their time and say what did not run; of cases that are left to them, some stay ordinary."""

from __future__ import annotations

import os
import subprocess
import sys
from datetime import date
from pathlib import Path

import pytest

from tests.budget import part_of, rotated
from tests.tiers import covering, ordinary

FILES = ["a.py", "b.py", "c.py"]
TESTS = """
import time

def test_quick(): pass

def test_slow():
    time.sleep(30)

def test_later(): {later}
"""


def test_each_day_begins_with_another_file() -> None:
    first = [rotated(FILES, date(2026, 1, day))[0] for day in (1, 2, 3)]
    assert sorted(first) == FILES
    assert sorted(rotated(FILES, date(2026, 1, 1))) == FILES


def test_each_value_of_a_list_has_an_ordinary_case() -> None:
    cases = covering([1, 2], "abc")
    assert {case.values for case in cases if not case.marks} == {(1, "a"), (2, "b"), (1, "c")}
    assert len(cases) == 6
    assert [case.values for case in ordinary("abc", "b") if not case.marks] == [("b",)]


def test_the_parts_are_all_files_and_share_none() -> None:
    assert part_of(FILES, "1/2") + part_of(FILES, "2/2") == ["a.py", "c.py", "b.py"]
    with pytest.raises(pytest.UsageError, match="--part"):
        part_of(FILES, "3/2")


def run(folder: Path, *options: str, patience: float = 30.0) -> subprocess.CompletedProcess[str]:
    (folder / "conftest.py").write_text(
        f"import tests.budget\nfrom tests.budget import *\ntests.budget._PATIENCE = {patience}\n", encoding="utf-8"
    )
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-c", "/dev/null", *options, str(folder)]
    root = Path(__file__).parents[3]
    variables = {**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    return subprocess.run(command, cwd=root, env=variables, capture_output=True, text=True, timeout=60, check=False)


def test_a_session_out_of_time_names_what_did_not_run_and_is_no_failure(tmp_path: Path) -> None:
    (tmp_path / "test_them.py").write_text(TESTS.format(later="pass"), encoding="utf-8")
    ended = run(tmp_path, "--seconds", "1")
    assert ended.returncode == 0, ended.stdout
    assert "2 tests were not run to their end" in ended.stdout
    assert "test_them.py::test_slow" in ended.stdout
    assert "test_them.py::test_later" in ended.stdout


def test_a_test_that_swallows_the_interrupt_ends_with_the_process(tmp_path: Path) -> None:
    text = TESTS.format(later="pass").replace(
        "time.sleep(30)",
        "\n    ".join(["try:", "    time.sleep(30)", "except KeyboardInterrupt:", "    time.sleep(30)"]),
    )
    (tmp_path / "test_them.py").write_text(text, encoding="utf-8")
    ended = run(tmp_path, "--seconds", "1", patience=0.5)
    assert ended.returncode == 0, ended.stdout
    assert "test_them.py::test_later" in ended.stdout


def test_what_an_interrupt_leaves_behind_is_no_failure(tmp_path: Path) -> None:
    text = "import gc\ndef left(phase, info): raise KeyboardInterrupt\n" + TESTS.format(later="pass").replace(
        "time.sleep(30)", "\n    ".join(["try:", "    time.sleep(30)", "finally:", "    gc.callbacks.append(left)"])
    )
    (tmp_path / "test_them.py").write_text(text, encoding="utf-8")
    ended = run(tmp_path, "--seconds", "1", "-W", "error")
    assert ended.returncode == 0, ended.stdout + ended.stderr


def test_a_failure_before_the_time_is_over_fails_the_session(tmp_path: Path) -> None:
    text = TESTS.format(later="pass").replace("def test_quick(): pass", "def test_quick(): assert not TESTS")
    (tmp_path / "test_them.py").write_text("TESTS = 1\n" + text, encoding="utf-8")
    assert run(tmp_path, "--seconds", "1").returncode == 1


def test_every_file_has_its_turn_before_any_has_a_second(tmp_path: Path) -> None:
    for name in ("a", "b"):
        text = "import pytest\n@pytest.mark.parametrize('i', range(3))\ndef test_it(i): pass\n"
        (tmp_path / f"test_{name}.py").write_text(text, encoding="utf-8")
    ended = run(tmp_path, "--rotate", "--collect-only", "-q")
    order = [line.rpartition("/")[2] for line in ended.stdout.splitlines() if "::" in line]
    assert [name[:8] for name in order] in (["test_a.p", "test_b.p"] * 3, ["test_b.p", "test_a.p"] * 3)
