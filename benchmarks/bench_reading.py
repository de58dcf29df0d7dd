"""Measure how a large CSV file becomes a table: time and memory beside pyarrow alone.

    python -m benchmarks.bench_reading [--copies 100] [--quick] [--write-results]

The rows are Adult, over and over. Each measurement is a process of its own: it imports everything, reads a small file
of the same form, and then the large one. pyarrow reads it with its defaults. Ours makes what an estimator takes of it:
objects for categories, labels, and what is said of the file. Times are wall times of the call, memory is the highest of
the process above that before the call; medians of the rounds, one of each in turn.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from benchmarks.results import Row, at_most, shown, table, write_section
from benchmarks.serving.samples import ADULT

TITLE = "From a file to a table"
TEXT = (
    "Adult, {copies} times over ({rows} rows, {mib} MiB of CSV), read by `pyarrow.csv.read_csv` with its defaults, and "
    "by what `oubli serve` does before the fit. MiB: the highest memory of the process above that before."
)
HEAD = ("what", "seconds", "CPU seconds", "MiB", "of pyarrow's time", "of pyarrow's memory:")
_CHILD = """
import json, sys, time
from pathlib import Path
from pyarrow import csv
from oubli.app.datasets.loading import load_table
from oubli.app.settings import Settings

def ours(path): return load_table(Settings(data=path, target="income", ephemeral=True))
def alone(path): return csv.read_csv(path)
def memory(name):
    status = Path("/proc/self/status").read_text()
    return int(status.split(name + ":")[1].split()[0]) / 1024

read = {"ours": ours, "alone": alone}[sys.argv[1]]
read(Path(sys.argv[2]))
Path("/proc/self/clear_refs").write_text("5")
before, wall, cpu = memory("VmRSS"), time.perf_counter(), time.process_time()
kept = read(Path(sys.argv[3]))
wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
print(json.dumps([wall, cpu, memory("VmHWM") - before, len(kept)]))
"""


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure both ways."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--copies", type=int, default=100)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--quick", action="store_true", help="a twentieth of the rows, one round")
    parser.add_argument("--write-results", action="store_true")
    options = parser.parse_args(arguments)
    copies, rounds = (max(1, options.copies // 20), 1) if options.quick else (options.copies, options.rounds)
    with tempfile.TemporaryDirectory() as folder:
        small, large = Path(folder) / "small.csv", Path(folder) / "large.csv"
        header, body = gzip.decompress(ADULT.read_bytes()).split(b"\n", 1)
        small.write_bytes(header + b"\n" + body)
        with large.open("wb") as file:
            file.write(header + b"\n")
            for _ in range(copies):
                file.write(body)
        found = measure(small, large, rounds)
        size = large.stat().st_size
    text = TEXT.format(copies=copies, rows=f"{int(found['ours'][3]):,}", mib=f"{size / 2**20:,.0f}")
    tabled = table(HEAD, rows_of(found))
    print(f"{text}\n\n{tabled}")
    if options.write_results:
        write_section("reading", TITLE, text, tabled)


def measure(small: Path, large: Path, rounds: int) -> dict[str, list[float]]:
    """Return the medians of seconds, CPU seconds, MiB and rows of both ways."""
    found: dict[str, list[list[float]]] = {"alone": [], "ours": []}
    environment = {name: value for name, value in os.environ.items() if not name.endswith("_NUM_THREADS")}
    for _ in range(rounds):
        for way, results in found.items():
            command = [sys.executable, "-c", _CHILD, way, str(small), str(large)]
            done = subprocess.run(command, env=environment, check=True, capture_output=True, text=True)
            results.append(json.loads(done.stdout))
    return {way: [statistics.median(one) for one in zip(*results, strict=True)] for way, results in found.items()}


def rows_of(found: dict[str, list[float]]) -> list[Row]:
    """Return a row for each way, and one for the marks."""
    alone, ours = found["alone"], found["ours"]
    rows = [Row(("pyarrow alone", *map(shown, alone[:3]), "1"), 1.0)]
    time, memory = ours[0] / alone[0], ours[2] / alone[2]
    rows.append(Row(("ours, to the table of a fit", *map(shown, ours[:3]), shown(time)), memory, at_most(1.3)))
    rows.append(Row(("ours, time", *[""] * 4), time, at_most(1.5)))
    return rows


if __name__ == "__main__":
    main()
