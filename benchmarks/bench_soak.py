"""Measure whether a server stays as it is over half an hour of load.

    python -m benchmarks.bench_soak [--minutes 30] [--quick] [--write-results]

A server keeps generated data in a data directory. Predictions, additions and erasures come at half of the rate that it
can answer, while it writes snapshots and finishes erasures. Memory and times of each minute are shown; the last minutes
are compared with early ones, and at the end the server verifies that it is the model of a fresh fit.

The memory of a minute is the median of one reading a second: a snapshot holds a copy of the model for some seconds, and
comes at another second of each minute.
"""

from __future__ import annotations

import argparse
import itertools
import tempfile
import threading
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from benchmarks import higgs_like
from benchmarks.bench_memory import ask, finish, memory
from benchmarks.results import Row, at_most, shown, table, write_section
from benchmarks.serving.client import load
from benchmarks.serving.paced import Pace, paced
from benchmarks.serving.samples import Samples, command, higgs_csv, post
from benchmarks.serving.servers import Server, run_here, serving
from benchmarks.timing import median

N_ROWS = 50_000
N_CONNECTIONS = 16
N_FIRST = 40_000  # requests that find out what the server can answer
N_PREDICTIONS = 18  # between an addition and an erasure
SHARE = 0.5  # of what the server can answer
TITLE = "Soak: half an hour at half of capacity"
TEXT = (
    "`oubli serve` on {n_rows:,} rows with a data directory and the fast settings, {rate:,.0f} requests a second. Of "
    "20, 18 are predictions of one row, one adds a sample, and one erases the sample that was added {lag:,} additions "
    "before. Snapshots are written every {every:,} changes. Times are in milliseconds, from when a request was due. "
    "{verified}"
)
HEAD = ("minute:", "MiB", "requests a second", "p50 ms", "p99 ms", "longest ms")
SUMMARY = ("figure:", "second sixth", "last sixth", "ratio")
LAG = 1_000  # additions that are held before they are erased again
EVERY = 20_000  # changes before a snapshot


@dataclass(frozen=True)
class Minute:
    """What was measured in a minute."""

    memory: float  # MiB, the median
    pace: Pace


def mixed(data: Samples, prefix: str) -> Iterator[bytes]:
    """Yield predictions, additions of new samples, and erasures of those added before, for ever."""
    predictions = itertools.cycle(data.predictions())
    for number in itertools.count():
        yield from itertools.islice(predictions, N_PREDICTIONS)
        place = number % len(data.rows)
        sample = {"id": f"{prefix}{number}", "features": data.rows[place], "label": data.labels[place]}
        yield post("/samples", {"samples": [sample]})
        erased = f"/samples/{prefix}{number - LAG}" if number >= LAG else f"/samples/{number}"
        yield f"DELETE {erased} HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n".encode("ascii")


class MemoryReader:
    """Reads the memory of a server once a second, in a thread, until it is closed."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._found: list[float] = []
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def median(self) -> float:
        """Return the median in MiB since it was asked last."""
        found, self._found = self._found, []
        return median(found or [memory(self._server, "VmRSS")])

    def close(self) -> None:
        """Read no more."""
        self._end.set()
        self._thread.join()

    def _read(self) -> None:
        while not self._end.wait(1.0):
            self._found.append(memory(self._server, "VmRSS"))


def measure(data: Samples, minutes: int, seconds: float) -> tuple[list[Minute], float, bool]:
    """Return what was measured in each minute, the rate, and whether the model is that of a fresh fit."""
    told: list[Minute] = []
    with tempfile.TemporaryDirectory() as directory:
        more = ["--snapshot-mutations", str(EVERY), "--erasure-deadline", "60"]
        with serving("ours", command(data, "fast", Path(directory) / "data", more)) as server:
            run_here()
            first = list(itertools.islice(mixed(data, "first"), N_FIRST))
            rate = SHARE * load(server.port, first, N_CONNECTIONS, len(first)).rate
            with closing(MemoryReader(server)) as reader:
                for pace in paced(server.port, mixed(data, "later"), rate, minutes * seconds, N_CONNECTIONS, seconds):
                    told.append(Minute(reader.median(), pace))
                    print(f"minute {len(told)}: {told[-1].memory:.0f} MiB, p99 {1e3 * pace.p99:.2f} ms", flush=True)
            job = finish(server, ask(server, "POST", "/model/verify", {}))
    return told, rate, bool(job["result"]["ok"])


def summary(minutes: Sequence[Minute]) -> list[Row]:
    """Compare the median of the last sixth of the minutes with that of the second sixth."""
    sixth = max(1, len(minutes) // 6)
    early, late = minutes[sixth : 2 * sixth], minutes[-sixth:]
    rows = []
    for name, limit, figure in (
        ("memory, MiB", 1.05, lambda one: one.memory),
        ("p99, ms", 1.2, lambda one: 1e3 * one.pace.p99),
    ):
        before, after = (median(map(figure, part)) for part in (early, late))
        rows.append(Row((name, shown(before), shown(after)), after / before, at_most(limit)))
    return rows


def main(arguments: Sequence[str] | None = None) -> None:
    """Run a server under load, and print what each minute gave."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--cache", type=Path, default=higgs_like.CACHE, help="keeps the data that are generated")
    parser.add_argument("--minutes", type=int, default=30)
    parser.add_argument("--quick", action="store_true", help="few rows, minutes of two seconds: whether it works")
    parser.add_argument("--write-results", action="store_true")
    options = parser.parse_args(arguments)
    data = higgs_csv(options.cache, 2_000 if options.quick else N_ROWS)
    minutes, rate, is_same = measure(data, options.minutes, 2.0 if options.quick else 60.0)
    text = TEXT.format(
        n_rows=len(data.rows), rate=rate, lag=LAG, every=EVERY,
        verified="At the end the model was that of a fresh fit, bit for bit." if is_same else "**At the end the model "
        "was not that of a fresh fit.**",
    )  # fmt: skip
    cells = []
    for number, one in enumerate(minutes, 1):
        figures = (one.memory, one.pace.rate, 1e3 * one.pace.p50, 1e3 * one.pace.p99)
        cells.append(Row((str(number), *map(shown, figures)), 1e3 * one.pace.longest))
    body = f"{table(SUMMARY, summary(minutes))}\n\n{table(HEAD, cells)}"
    print(f"{TITLE}\n\n{text}\n\n{body}")
    if options.write_results:
        write_section("memory-soak", TITLE, text, body)


if __name__ == "__main__":
    main()
