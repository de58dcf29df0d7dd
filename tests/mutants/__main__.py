"""Command line of `tests.mutants`."""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.mutants.faults import ROOT, Fault, make, put, read, write

SEED = 20261122
_SECONDS = 1800  # a fault that makes tests continue for ever is caught as well
_NO_TESTS = 5  # the exit code of pytest
_BATCHES = (8, 24)  # test files that are collected and run at once: most faults are caught by the first, within seconds


def test_files(fault: Fault, found: Path, root: Path) -> list[str]:
    """Test files of the half of the project that has the fault; first those that name its module and what it is in.

    `found` is the file that has it now.

    Not the long ones, nor those that look for other things: the console, benchmarks, and the project as a whole.
    """
    place = found.relative_to(root).as_posix().removesuffix(".py")
    wanted = set(re.split(r"[/_.]", place))
    names = [place.replace("/", "."), *fault.function.strip("_").split(".")]
    half = place.split("/")[0]
    other = {"app": "core", "core": "app"}[half]
    left_out = {other, "benchmarks", "console", "long", "mutants", "project"} | (
        {"durability"} if half == "core" else set()
    )

    def nearness(path: Path) -> int:
        text = (root / path).read_text(encoding="utf-8")
        return 2 * sum(name in text for name in names) + len(wanted & set(re.split(r"[/_.]", str(path))))

    files = [path.relative_to(root) for path in sorted((root / "tests").rglob("test_*.py"))]
    mine = [path for path in files if not left_out & set(path.parts) and len(path.parts) > 2]
    return [str(path) for path in sorted(mine, key=lambda path: -nearness(path))]


def verdict(fault: Fault, commit: str, python: str, *, nearest: int | None = None) -> tuple[str, float]:
    """Put a fault into a copy of a commit and run its tests, or the nearest; return what came of it, and seconds."""
    started = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="mutant-") as folder:
        root = Path(folder)
        archive = subprocess.run(["git", "-C", str(ROOT), "archive", commit], capture_output=True, check=True)
        subprocess.run(["tar", "-x", "-C", folder], input=archive.stdout, check=True)
        place = put(fault, root)
        if place is None:
            return "gone", 0.0
        kept = {name: value for name, value in os.environ.items() if name != "CI"}
        command = [python, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", "--hypothesis-seed=0"]
        files = test_files(fault, place, root)[:nearest]
        first, second = _BATCHES
        batches = [files[:first], files[first : first + second], files[first + second :]]
        for batch in filter(None, batches):
            try:
                done = subprocess.run(
                    [*command, *batch], cwd=root, env={**kept, "PYTHONPATH": folder},
                    capture_output=True, text=True, timeout=_SECONDS,
                )  # fmt: skip
            except subprocess.TimeoutExpired:
                return "caught (no end)", time.monotonic() - started
            if done.returncode not in (0, _NO_TESTS):
                failed = re.search(r"^(?:FAILED|ERROR) (\S+)", done.stdout, re.MULTILINE)
                caught = failed.group(1) if failed else f"exit code {done.returncode}"
                return f"caught by {caught}", time.monotonic() - started
    return "SURVIVED", time.monotonic() - started


def run(faults: Sequence[Fault], commit: str, jobs: int, python: str, *, nearest: int | None = None) -> int:
    """Try faults, print a line each, and return how many survived."""
    survived = 0
    with ThreadPoolExecutor(jobs) as pool:
        for fault, (said, seconds) in zip(
            faults, pool.map(lambda one: verdict(one, commit, python, nearest=nearest), faults), strict=True
        ):
            survived += said == "SURVIVED"
            print(f"{said} ({seconds:.0f} s)  {fault.area}  {fault.file}:{fault.function}", flush=True)  # noqa: T201
            print(f"    - {fault.line}\n    + {fault.instead}", flush=True)  # noqa: T201
    print(f"{len(faults)} faults, {survived} survived")  # noqa: T201
    return survived


def main() -> None:
    """Make the list, or run it."""
    parser = argparse.ArgumentParser(prog="python -m tests.mutants")
    parser.add_argument("what", choices=["make", "run"])
    parser.add_argument("--all", action="store_true", help="not only the faults that are drawn for every release")
    parser.add_argument("--nearest", type=int, metavar="N", help="only the N nearest files of tests")
    parser.add_argument("--only", type=int, nargs="+", metavar="N", help="only these of the list, from 1 on")
    parser.add_argument("--area", help="only those of an area")
    parser.add_argument("--part", default="1/1", metavar="I/N", help="every N-th only, from the I-th on")
    parser.add_argument("--commit", default="HEAD")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--seed", type=int, default=SEED)
    options = parser.parse_args()
    if options.what == "make":
        write(make(options.seed))
        return
    number, n_parts = map(int, options.part.split("/"))
    listed = read()
    if options.only:
        faults = [listed[place - 1] for place in options.only]
    else:
        faults = [fault for fault in listed if (options.all or fault.is_drawn) and options.area in (None, fault.area)]
    faults = faults[number - 1 :: n_parts]
    sys.exit(min(run(faults, options.commit, options.jobs, sys.executable, nearest=options.nearest), 100))


if __name__ == "__main__":
    if shutil.which("git") is None:
        sys.exit("git is needed, for a clean copy of the commit")
    main()
