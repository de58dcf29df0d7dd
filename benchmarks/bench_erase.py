"""Measure how a long list of ids is erased by `oubli erase`, in one go, and interrupted and killed in between.

    python -m benchmarks.bench_erase [--quick] [--names 1000000] [--write-results]

The server, on one core, holds one in a hundred of the ids that are named, and as many samples besides. The command, on
the other core, gets a file. In the second run it is interrupted (SIGINT) after a third of the batches and killed
(SIGKILL) after two thirds, and the last line of its journal is removed then, as if the answer to a request had been
lost. Counted as done twice are: entries of the ledger beyond one a batch, lines of the report beyond one a name, and
samples unlearned beyond those that were held. Memory is the peak of the process, as the system tells it.
"""

from __future__ import annotations

import argparse
import csv
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from benchmarks.bench_memory import ask, at_rest, memory
from benchmarks.results import Row, at_most, shown, table, write_report
from benchmarks.serving.servers import Server, run_here, serving

TITLE = "Erasures in bulk"
SHARE = 100  # of so many names one is held
BATCH = 1000
TEXT = (
    "`oubli erase --file` with {n:,} ids, of which every hundredth is held, in batches of 1,000. The server holds "
    "{held:,} samples, half of them named. *Interrupted*: Ctrl-C after a third, `kill -9` after two thirds, each time "
    "started again with the same command, and the answer to the last batch lost. Seconds include the start of the "
    "command and a first look at every line of the list."
)
HEAD = ("run:", "seconds", "names a second", "client MiB", "server MiB before", "server MiB peak", "held", "receipts",
        "done twice")  # fmt: skip


@dataclass
class Ran:
    """What became of a run: seconds and peak memory, over all processes of it."""

    seconds: float = 0.0
    client: float = 0.0


def write_files(folder: Path, n_names: int) -> None:
    """Write the data of the server, and the list of names."""
    n_held = n_names // SHARE
    with (folder / "data.csv").open("w") as file:
        file.write("id," + ",".join(f"f{j}" for j in range(8)) + ",y\n")
        for i in range(2 * n_held):
            name = f"person-{i * SHARE:08d}" if i < n_held else f"other-{i:08d}"
            cells = [(i * 7919 * (j + 3)) % 1009 for j in range(8)]
            file.write(f"{name},{','.join(map(str, cells))},{'yes' if sum(cells) % 3 else 'no'}\n")
    with (folder / "ids.csv").open("w") as file:
        file.write("id\n")
        file.writelines(f"person-{i:08d}\n" for i in range(n_names))


def run(server: Server, folder: Path, ran: Ran, stop_after: int | None = None, how: int = 0) -> int:
    """Run the command to its end, or send it a signal when so many batches are done; return how it ended."""
    journal = folder / "ids.csv.report.csv.journal"
    begun = time.perf_counter()
    process = subprocess.Popen(
        [sys.executable, "-m", "oubli", "erase", "--url", f"http://127.0.0.1:{server.port}", "--file", "ids.csv"],
        cwd=folder,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    client = Server("client", 0, process)
    while process.poll() is None:
        with suppress(OSError, ValueError):  # it has ended just now
            ran.client = max(ran.client, memory(client, "VmHWM"))
        if stop_after is not None and n_batches(journal) >= stop_after:
            process.send_signal(how)
            process.wait()
        time.sleep(0.05)
    ran.seconds += time.perf_counter() - begun
    return process.returncode


def n_batches(journal: Path) -> int:
    """Return how many batches a journal tells of: all its lines but the first."""
    return max(0, journal.read_bytes().count(b"\n") - 1) if journal.exists() else 0


def n_twice(server: Server, folder: Path, n_names: int) -> tuple[int, int, int]:
    """Return names that were held, receipts, and how much was done twice, as report and ledger tell."""
    n_rows = n_held = 0
    receipts, names = set(), set()
    with (folder / "ids.csv.report.csv").open(newline="") as file:
        for row in csv.DictReader(file):
            n_rows += 1
            n_held += row["held"] == "true"
            names.add(row["id"])
            receipts.add(row["receipt"])
    if len(names) != n_names or n_held != n_names // SHARE:
        raise RuntimeError("the report does not tell what became of each name")
    entries, cursor = [], "0"
    while cursor is not None:
        page = ask(server, "GET", f"/ledger?cursor={cursor}&limit=1000")
        entries += [entry for entry in page["entries"] if entry["type"] == "unlearned"]
        cursor = page["next"]
    if {entry["receipt"] for entry in entries} != receipts:
        raise RuntimeError("the receipts of report and ledger differ")
    twice = len(entries) - len(receipts) + n_rows - n_names + sum(entry["unlearned"] for entry in entries) - n_held
    return n_held, len(receipts), twice


def measure(name: str, n_names: int, *, breaks: bool) -> Row:
    """Erase the list on a server of its own, and return the row of the table."""
    ran = Ran()
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        write_files(folder, n_names)
        command = ["oubli", "serve", "--data", f"{folder}/data.csv", "--target", "y", "--id", "id", "--port", "{port}"]
        with serving("oubli", [*command, "--data-dir", f"{folder}/data", "--n-estimators", "20"]) as server:
            before = at_rest(server)
            if breaks:
                total = n_names // BATCH
                if run(server, folder, ran, total // 3, signal.SIGINT) != 130:
                    raise RuntimeError("it was not interrupted")
                if run(server, folder, ran, 2 * total // 3, signal.SIGKILL) != -signal.SIGKILL:
                    raise RuntimeError("it was not killed")
                journal = folder / "ids.csv.report.csv.journal"
                *kept, _ = journal.read_bytes().splitlines(keepends=True)
                journal.write_bytes(b"".join(kept))
            if run(server, folder, ran) != 0:
                raise RuntimeError("the list was not erased")
            n_held, n_receipts, twice = n_twice(server, folder, n_names)
            left = ask(server, "GET", "/model")["n_samples"]
            if left != n_names // SHARE:
                raise RuntimeError("another number of samples is left than should be")
            cells = (
                name,
                shown(ran.seconds),
                shown(n_names / ran.seconds),
                shown(ran.client),
                shown(before),
                shown(memory(server, "VmHWM")),
                f"{n_held:,}",
                f"{n_receipts:,}",
            )
    return Row(cells, twice, at_most(0))


def main(arguments: Sequence[str] | None = None) -> None:
    """Run both, print the table, and write it when asked."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--names", type=int, default=1_000_000)
    parser.add_argument("--quick", action="store_true", help="20,000 names: whether it works")
    parser.add_argument("--write-results", action="store_true")
    options = parser.parse_args(arguments)
    n_names = 20_000 if options.quick else options.names
    run_here()
    rows = [measure("in one go", n_names, breaks=False), measure("interrupted", n_names, breaks=True)]
    text = TEXT.format(n=n_names, held=2 * n_names // SHARE)
    write_report({"erase": (TITLE, text, table(HEAD, rows))}, write=options.write_results)


if __name__ == "__main__":
    main()
