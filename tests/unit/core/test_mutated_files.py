"""Thousands of changed model files of every kind: refused, or sound; never a crash, a hang, or memory without end.

The long tests run in a process for each model, which writes down what it is at: whatever ends it is reported with the
model and the seed, and `python -m tests.unit.core.test_mutated_files MODEL SEED` repeats it.
"""

import faulthandler
import os
import sys
import tempfile
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from tests.serving import run_program
from tests.unit.core.mutated import MODELS, counters, make, mutate, save, try_file

SHORT = 25  # files of each model
LONG = int(os.environ.get("OUBLI_TEST_MUTATED_FILES", "20000"))  # files of all models
HANG = 60  # seconds after which a file counts as one that never ends


def try_files(name: str, seeds: range, folder: Path) -> Counter[str]:
    """Try files of one model; the seed of the one at hand is in `folder`."""
    outcomes: Counter[str] = Counter()
    with counters(), np.errstate(all="ignore"):
        parts = save(make(name), folder / "sound")
        assert try_file(folder / "sound") == "accepted"
        for seed in seeds:
            (folder / "at").write_text(f"{name} {seed}")
            path = folder / "changed"
            path.write_bytes(mutate(parts, seed))
            try:
                outcomes[try_file(path)] += 1
            except Exception as error:
                raise AssertionError(f"{name} {seed}") from error
    return outcomes


@pytest.mark.parametrize("name", sorted(MODELS))
def test_changed_files_are_refused_or_sound(tmp_path: Path, name: str) -> None:
    outcomes = try_files(name, range(SHORT), tmp_path)
    assert outcomes["refused"] > SHORT / 2
    assert outcomes["accepted"] > 0


@pytest.mark.long
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("name", sorted(MODELS))
def test_many_changed_files_are_refused_or_sound(tmp_path: Path, name: str) -> None:
    each = -(-LONG // len(MODELS))
    command = (sys.executable, "-m", "tests.unit.core.test_mutated_files", name, "1000", str(each), tmp_path)
    done = run_program(*command)
    assert done.returncode == 0, f"{(tmp_path / 'at').read_text()}: {(done.stdout + done.stderr)[-3000:]}"


def main() -> None:
    name, first = sys.argv[1], int(sys.argv[2])
    n = int(sys.argv[3]) if len(sys.argv) > 3 else 1
    folder = Path(sys.argv[4] if len(sys.argv) > 4 else tempfile.mkdtemp())
    for start in range(first, first + n, 50):
        faulthandler.dump_traceback_later(50 * HANG, exit=True)
        try_files(name, range(start, min(start + 50, first + n)), folder)
    faulthandler.cancel_dump_traceback_later()


if __name__ == "__main__":
    main()
