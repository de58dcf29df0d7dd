"""Command line of `tests.mutants`."""

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from tests.mutants.faults import LIST, MENDS, ROOT, Fault, make, put, read, write

SEED = 0x4FDECB62  # the commit that the list was drawn on
CAUGHT = Path(__file__).with_name("caught.json")
MATRIX = Path(__file__).with_name("matrix.md")
_SECONDS = 1800  # a fault that makes tests continue for ever is caught as well
_NO_TESTS = 5  # the exit code of pytest
_BATCHES = (8, 24)  # test files that are collected and run at once: most faults are caught by the first, within seconds


@dataclass(frozen=True)
class Verdict:
    """What came of a fault: `gone`, `SURVIVED` or what caught it; the test files that failed; seconds."""

    said: str
    files: tuple[str, ...] = ()
    seconds: float = 0.0


def test_files(fault: Fault, found: Path, root: Path) -> list[str]:
    """Test files of the half of the project that has the fault; first those that name its module and what it is in.

    `found` is the file that has it now.

    Without those that look for other things: the console, benchmarks, and the project as a whole.
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


def verdict(fault: Fault, commit: str, python: str, *, nearest: int | None = None, stops: bool = True) -> Verdict:
    """Put a fault into a copy of a commit and run its tests, or the nearest.

    Parameters
    ----------
    stops : whether the first test that fails is enough; else all are run, to name each file that catches the fault.
    """
    started = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="mutant-") as folder:
        root = Path(folder)
        root.chmod(0o755)  # tests have other users read it
        archive = subprocess.run(["git", "-C", str(ROOT), "archive", commit], capture_output=True, check=True)
        subprocess.run(["tar", "-x", "-C", folder], input=archive.stdout, check=True)
        place = put(fault, root)
        if place is None:
            return Verdict("gone")
        kept = {name: value for name, value in os.environ.items() if name != "CI"}
        command = [python, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--hypothesis-seed=0", *(["-x"] * stops)]
        files = test_files(fault, place, root)[:nearest]
        first, second = _BATCHES
        found: set[str] = set()
        for batch in filter(None, [files[:first], files[first : first + second], files[first + second :]]):
            try:
                done = subprocess.run(
                    [*command, *batch], cwd=root, env={**kept, "PYTHONPATH": folder},
                    capture_output=True, text=True, timeout=_SECONDS,
                )  # fmt: skip
            except subprocess.TimeoutExpired:
                return Verdict("caught (no end)", (*found, batch[0]), time.monotonic() - started)
            if done.returncode not in (0, _NO_TESTS):
                failed = re.findall(r"^(?:FAILED|ERROR) (\S+)", done.stdout, re.MULTILINE)
                found |= {name.partition("::")[0] for name in failed} or {batch[0]}
                if stops:
                    caught = failed[0] if failed else f"exit code {done.returncode}"
                    return Verdict(f"caught by {caught}", tuple(found), time.monotonic() - started)
    said = f"caught by {len(found)} of {len(files)} files" if found else "SURVIVED"
    return Verdict(said, tuple(sorted(found)), time.monotonic() - started)


def tell(line: str) -> None:
    """Print a line at once."""
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def run(
    faults: dict[int, Fault], commit: str, jobs: int, python: str, *, nearest: int | None = None, stops: bool = True
) -> dict[int, Verdict]:
    """Try faults, and print a line each."""
    verdicts = {}
    with ThreadPoolExecutor(jobs) as pool:
        tried = pool.map(lambda one: verdict(one, commit, python, nearest=nearest, stops=stops), faults.values())
        for (number, fault), one in zip(faults.items(), tried, strict=True):
            verdicts[number] = one
            tell(f"{number}: {one.said} ({one.seconds:.0f} s)  {fault.area}  {fault.file}:{fault.function}")
            tell(f"    - {fault.line}\n    + {fault.instead}")
    counted = Counter("caught" if one.said.startswith("caught") else one.said for one in verdicts.values())
    tell(f"{len(faults)} faults: " + ", ".join(f"{n} {said}" for said, n in counted.items()))
    return verdicts


def kept(verdicts: dict[int, Verdict], path: Path = CAUGHT) -> None:
    """Write down which files caught which fault, beside what is known of other faults."""
    known = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    known |= {str(number): sorted(one.files) for number, one in verdicts.items() if one.said != "gone"}
    lines = ",\n".join(f"{json.dumps(number)}: {json.dumps(known[number])}" for number in sorted(known, key=int))
    path.write_text(f"{{\n{lines}\n}}\n", encoding="utf-8")


def matrix(faults: Sequence[Fault], caught: dict[str, list[str]]) -> Iterable[str]:
    """The lines of `matrix.md`."""
    tried = {int(number): files for number, files in caught.items()}
    n_caught = sum(bool(files) for files in tried.values())
    yield "# Which test files catch which fault"
    yield ""
    yield "Written by `python -m tests.mutants matrix` from `caught.json`, which `run --each-file` fills."
    yield "Numbers are places in `faults.json`."
    yield f"Of {len(faults)} faults {len(tried)} were tried, and {n_caught} were caught."
    yield ""
    yield "| area | faults | caught | not caught |"
    yield "|---|---|---|---|"
    for area in dict.fromkeys(fault.area for fault in faults):
        mine = [number for number, fault in enumerate(faults, 1) if fault.area == area and number in tried]
        missed = [str(number) for number in mine if not tried[number]]
        yield f"| {area} | {len(mine)} | {len(mine) - len(missed)} | {', '.join(missed)} |"
    yield ""
    yield "A file with an empty column *alone* catches no fault of the list that other files do not catch, too."
    yield ""
    yield "| test file | caught | alone |"
    yield "|---|---|---|"
    for name in sorted({name for files in tried.values() for name in files}):
        mine = [number for number, files in sorted(tried.items()) if name in files]
        alone = [str(number) for number in mine if tried[number] == [name]]
        yield f"| {name} | {len(mine)} | {', '.join(alone)} |"


def main() -> None:
    """Make the list, run it, or write the matrix."""
    parser = argparse.ArgumentParser(prog="python -m tests.mutants")
    parser.add_argument("what", choices=["make", "run", "matrix"])
    parser.add_argument("--all", action="store_true", help="not only the faults that are drawn for every release")
    parser.add_argument("--mends", action="store_true", help="the mends of earlier faults, each undone")
    parser.add_argument("--nearest", type=int, metavar="N", help="only the N nearest files of tests")
    parser.add_argument("--each-file", action="store_true", help="name each file that catches a fault, in caught.json")
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
    listed = read(MENDS if options.mends else LIST)
    if options.what == "matrix":
        MATRIX.write_text("\n".join(matrix(listed, json.loads(CAUGHT.read_text(encoding="utf-8")))) + "\n", "utf-8")
        return
    number, n_parts = map(int, options.part.split("/"))
    wants_all = options.all or options.mends or options.only or options.area
    chosen = {
        place: fault
        for place, fault in enumerate(listed, 1)
        if (wants_all or fault.is_drawn) and place in (options.only or [place]) and options.area in (None, fault.area)
    }
    faults = dict(list(chosen.items())[number - 1 :: n_parts])
    stops = not options.each_file
    verdicts = run(faults, options.commit, options.jobs, sys.executable, nearest=options.nearest, stops=stops)
    if options.each_file and not options.mends:
        kept(verdicts)
    sys.exit(min(sum(one.said == "SURVIVED" for one in verdicts.values()), 100))


if __name__ == "__main__":
    if shutil.which("git") is None:
        sys.exit("git is needed, for a clean copy of the commit")
    main()
