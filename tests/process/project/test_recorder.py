"""A death by a signal is explained: who, by what signal, and where it was."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.deaths import FOLDER, ROOT
from tests.serving import serving, spawned

CRASH = "import faulthandler; faulthandler._sigsegv()"


def run_worker(tmp_path: Path, deed: str) -> str:
    """Run a test in a worker, as `make test` does; return what is said at the end."""
    (tmp_path / "test_it.py").write_text(f"def test_fine():\n    pass\n\n\ndef test_that_dies():\n    {deed}\n")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYTEST_", FOLDER, "CI"))}
    command = [sys.executable, "-m", "pytest", "-p", "xdist.plugin", "-p", "tests.recorder", "-n", "1"]
    done = subprocess.run(
        [*command, "--max-worker-restart=0", "-p", "no:cacheprovider", "test_it.py"],
        cwd=tmp_path,
        env={**kept, "PYTHONPATH": str(ROOT), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1, done.stdout
    return done.stdout


def test_a_worker_that_crashes_leaves_its_status_and_its_stack(tmp_path):
    said = run_worker(tmp_path, CRASH)
    assert "worker gw0 was killed by SIGSEGV (wait status -11)" in said
    assert 'test_it.py", line 6 in test_that_dies' in said


def test_a_server_that_dies_by_itself_is_a_failure_with_its_stack(tmp_path):
    script = tmp_path / "dies.py"
    script.write_text("import faulthandler, time\ntime.sleep(0.2)\nfaulthandler._sigsegv()\n")
    with (
        pytest.raises(AssertionError) as caught,
        serving(cwd=tmp_path, command=(sys.executable, str(script)), start=spawned),
    ):
        pass
    assert "the server was killed by SIGSEGV (wait status -11)" in str(caught.value)
    assert 'dies.py", line 3 in <module>' in str(caught.value)
