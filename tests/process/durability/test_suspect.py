"""Two tests that killed their worker together, again and again, with everything recorded.

A command that had written to stdout left its process with the default action for SIGPIPE, and the next server that
closed a connection ended the worker without a word. `SUSPECT_RUNS` says how often, 200 times by default, in parts that
can be run one by one.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.deaths import FOLDER, ROOT, describe

SUSPECTS = (
    "tests/process/app/cli/test_main.py::test_fit_predict_verify",
    "tests/process/durability/test_crash.py::test_killed_at_random_moments",
)
PARTS = 20
RUNS = int(os.environ.get("SUSPECT_RUNS", "200"))
_SECONDS = 900  # of a run, on a machine that does something else as well


@pytest.mark.long
@pytest.mark.timeout(0)
@pytest.mark.parametrize("part", range(PARTS))
def test_no_worker_dies(part, tmp_path, tell):
    """Run as `make test` runs it: one worker under the process that starts it."""
    n_runs = RUNS * (part + 1) // PARTS - RUNS * part // PARTS
    records = tmp_path / "records"
    records.mkdir()
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    environment = {**kept, "PYTHONPATH": str(ROOT), "CI": "true", FOLDER: str(records)}
    for run in range(n_runs):
        base = tmp_path / "base"
        command = [sys.executable, "-m", "pytest", "-q", "-n", "1", "--max-worker-restart=0", f"--basetemp={base}"]
        done = subprocess.run(
            [*command, "-p", "no:cacheprovider", *SUSPECTS],
            cwd=ROOT,
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=_SECONDS,
            check=False,
        )
        told = f"run {run + 1} of part {part + 1} {describe(done.returncode)}; records are in {records}"
        assert done.returncode == 0, f"{told}\n{done.stdout}\n{done.stderr}"
        records.mkdir(exist_ok=True)
    tell(f"the suspect: part {part + 1} of {PARTS}, {n_runs} runs, no worker and no server died by a signal")
    assert Path(records).exists()
