"""Count how often a server was killed or lost its power, and what was lost.

    python -m benchmarks.bench_crashes [--log FILE] [--write-results]

The long tests of durability kill real servers under load, start them again and compare them with all that they had
answered; at their end they print figures. This script runs them, which takes an hour and more, or reads what they
printed.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from benchmarks.results import write_section

TITLE = "Durability: crashes"
TEXT = (
    "After each end, the next server on the same files holds every acknowledged addition and no acknowledged "
    "deletion. A request that was not acknowledged has either taken effect completely or not at all. Receipts are "
    "unchanged. The digest is that of a fresh fit on the samples that must be held; of a tree, which is not exact, "
    "all counts are right."
)
_LINE = re.compile(r"(killed|power loss)[^:]*: .*[0-9].*")


def figures(printed: str) -> list[tuple[str, str]]:
    """Return what was done and its outcome, from the lines of a run that say so."""
    found = []
    for line in printed.splitlines():
        if _LINE.fullmatch(line.strip()):
            what, _, outcome = line.strip().partition(": ")
            found.append((what, outcome))
    return found


def run_tests() -> str:
    """Run the long tests of durability and return what they print."""
    command = [sys.executable, "-m", "pytest", "-m", "long", "--timeout", "7200", "tests/process/durability"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        sys.exit(done.stdout + done.stderr)
    return done.stdout


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the table, and write it when asked."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--log", type=Path, help="what a run of the long tests printed; without it they are run now")
    parser.add_argument("--write-results", action="store_true")
    options = parser.parse_args(arguments)
    printed = run_tests() if options.log is None else options.log.read_text(encoding="utf-8", errors="replace")
    rows = figures(printed)
    if not rows:
        parser.error("no crash is reported there: give the output of `pytest -m long tests/process/durability`")
    lines = ["| what | came of it |", "|---|---|", *(f"| {what} | {outcome} |" for what, outcome in rows)]
    text = "\n".join(lines)
    print(text)
    if options.write_results:
        write_section("durability-crashes", TITLE, TEXT, text)


if __name__ == "__main__":
    main()
