"""Peak memory of training, including the interpreter, the libraries, the data and the model.

    python -m benchmarks.operations.memory FILE.npz PARAMETERS [--peer]

fits once in this process, on the `X` and `y` of the file, and prints what it took as JSON. `rows` starts it in a fresh
process for each fit.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.results import Mark, Row, at_most

TITLE = "Memory"
TEXT = (
    "Peak resident memory of a fresh process that loads the training data as float32 and fits once. It includes the "
    "interpreter, the libraries, compiled kernels, data and model. *Before* is the peak once the data are loaded."
)
HEAD = ("data:", "setting:", "before GB", "peak GB")
MARKS: dict[tuple[str, str], Mark] = {("higgs-like", "fast"): at_most(1.0)}
_UNIT_OF_GETRUSAGE = 1 if sys.platform == "darwin" else 1024


@dataclass(frozen=True)
class Peak:
    """Bytes."""

    before: int
    after: int


def measure(npz: Path, parameters: dict[str, Any], *, peer: bool = False) -> Peak:
    """Fit once in a fresh process."""
    arguments = [str(npz), json.dumps(parameters), *(["--peer"] if peer else [])]
    command = [sys.executable, "-m", "benchmarks.operations.memory", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return Peak(**json.loads(done.stdout))


def row(problem: str, setting: str, peak: Peak) -> Row:
    """The row of one fit."""
    cells = (problem, setting, f"{peak.before / 1e9:.2f}")
    return Row(cells, peak.after / 1e9, MARKS.get((problem, setting)))


def _peak_so_far() -> int:
    """Peak resident bytes of this program.

    Linux hands the peak that `getrusage` tells from a process to the program it starts, which would then begin with
    what the benchmark itself holds; /proc counts from the program's start.
    """
    try:
        status = Path("/proc/self/status").read_text(encoding="utf-8")
    except OSError:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * _UNIT_OF_GETRUSAGE
    return int(status.partition("VmHWM:")[2].split()[0]) * 1024


def _new_estimator(parameters: dict[str, Any], peer: bool) -> Any:
    if peer:
        from sklearn.ensemble import ExtraTreesClassifier

        return ExtraTreesClassifier(random_state=0, n_jobs=1, **parameters)
    from oubli.core import DynamicForestClassifier

    return DynamicForestClassifier(random_state=0, **parameters)


def main() -> None:
    """Fit and print."""
    parser = argparse.ArgumentParser()
    parser.add_argument("npz", type=Path)
    parser.add_argument("parameters", type=json.loads)
    parser.add_argument("--peer", action="store_true")
    options = parser.parse_args()
    estimator = _new_estimator(options.parameters, options.peer)
    with np.load(options.npz) as file:
        X, y = file["X"], file["y"]
    before = _peak_so_far()
    estimator.fit(X, y)
    print(json.dumps({"before": before, "after": _peak_so_far()}))


if __name__ == "__main__":
    main()
