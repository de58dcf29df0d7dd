"""`oubli load-test` as a process, on the client's core, and the report that it writes."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.serving.client import RefusedError


def run(port: int, *flags: str) -> dict[str, Any]:
    """Run a load test to its end.

    Parameters
    ----------
    port
        Of the server.
    flags
        As on the command line.

    Returns
    -------
    The only step that was measured, with `violations` (a number) and `left_behind` of the whole test.

    Raises
    ------
    RefusedError
        When it was not done to its end.
    """
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "report.json"
        command = [sys.executable, "-m", "oubli", "load-test", f"http://127.0.0.1:{port}", *flags, "--json", str(path)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode not in (0, 1):
            raise RefusedError(done.stderr)
        report = json.loads(path.read_text(encoding="utf-8"))
    (step,) = (step for step in report["steps"] if not step["is_warm_up"])
    violations = sum(report["read_your_writes"]["violations"].values())
    return {**step, "violations": violations, "left_behind": report["left_behind"]}


def mix(predict: int, add: int, delete: int) -> Sequence[str]:
    """The flags of a mix."""
    return ("--mix", f"predict={predict},add={add},delete={delete}")
