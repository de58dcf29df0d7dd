"""Measure how many erasures a second a server finishes within its deadline.

    python -m benchmarks.bench_erasure_rate [--quick] [--rates 1 100] [--write-results]

Samples of Adult are deleted one by one at a rate, for longer than the deadline, by a client that waits for nothing.
Beside them run: nothing; or predictions of one row, as fast as two connections get them, and comparisons with a fresh
fit (`POST /model/verify`), one after the other. What each receipt took is in the receipt: from `unlearned_at` to
`erased_at`. Client and server share the machine.
"""

from __future__ import annotations

import argparse
import itertools
import os
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.bench_memory import ask
from benchmarks.results import Row, at_most, shown, table, write_report
from benchmarks.serving.client import load
from benchmarks.serving.paced import paced
from benchmarks.serving.samples import Samples, adult, command
from benchmarks.serving.servers import Server, serving

TITLE = "Erasures a second"
RATES = (1.0, 100.0)
DEADLINE, SECONDS = 60, 75.0  # of the server by default; of deletions, so that the first are overdue before the last
CONNECTIONS = 32  # of the client that deletes; when all wait, it deletes more slowly than it should
PAGE = 1000
NOTHING, LOAD = "nothing", "predictions and verify"
TEXT = (
    "Adult, {rows:,} samples, defaults of the server, {seconds:.0f} s of single deletions at each rate. *Wait*: from "
    "`unlearned_at` to `erased_at`. The server has {deadline} s for it (`erasure_deadline`). Load average when it "
    "began, with client and server on {cpus} cores: {load:.1f}."
)
HEAD = ("rate asked:", "beside it", "deletions a second", "rounds", "median wait s", "longest wait s", "overdue")


def waits(server: Server) -> tuple[list[float], int, int]:
    """Return the seconds that each erasure took, when all are finished; how many rounds, and how many are overdue."""
    while ask(server, "GET", "/model")["pending_erasures"]:
        time.sleep(0.5)
    receipts: list[Any] = []
    cursor = ""
    while cursor is not None:
        page = ask(server, "GET", f"/erasures?limit={PAGE}{cursor and f'&cursor={cursor}'}")
        receipts += page["erasures"]
        cursor = page["next"]
    taken = [(_time(one["erased_at"]) - _time(one["unlearned_at"])).total_seconds() for one in receipts]
    return taken, len({one["erased_at"] for one in receipts}), sum(one["overdue"] for one in receipts)


def _time(text: str) -> datetime:
    return datetime.fromisoformat(text)


@contextmanager
def beside(server: Server, samples: Samples, what: str) -> Iterator[None]:
    """Have the server do something else for the length of the block."""
    is_over = threading.Event()
    requests = samples.predictions()

    def predict() -> None:
        while not is_over.is_set():
            load(server.port, requests, 2, len(requests))

    def verify() -> None:
        while not is_over.is_set():
            job = ask(server, "POST", "/model/verify")
            while job["status"] not in ("succeeded", "failed") and not is_over.wait(0.2):
                job = ask(server, "GET", f"/jobs/{job['id']}")

    threads = [threading.Thread(target=one) for one in ((predict, verify) if what == LOAD else ())]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        is_over.set()
        for thread in threads:
            thread.join()


def measure(samples: Samples, rate: float, seconds: float, deadline: int, what: str) -> Row:
    """Delete at a rate on a server of its own, and return the row of the table."""
    with tempfile.TemporaryDirectory() as folder:
        more = ["--erasure-deadline", str(deadline)]
        with serving("oubli", command(samples, "default", Path(folder) / "data", more), on_all=True) as server:
            server.wait_until_quiet()
            with beside(server, samples, what):
                names = iter(samples.deletions(range(len(samples.rows))))
                for _ in paced(server.port, names, rate, seconds, CONNECTIONS, seconds):
                    pass
                taken, n_rounds, n_overdue = waits(server)
    cells = (
        f"{rate:g} a second",
        what,
        shown(len(taken) / seconds),
        str(n_rounds),
        shown(float(np.median(taken))),
        shown(max(taken)),
    )
    return Row(cells, n_overdue, at_most(0))


def main(arguments: Sequence[str] | None = None) -> None:
    """Run all, print the table, and write it when asked."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--rates", type=float, nargs="+", default=RATES)
    parser.add_argument("--beside", choices=("nothing", "load", "both"), default="both")
    parser.add_argument("--quick", action="store_true", help="a short deadline: whether it works")
    parser.add_argument("--write-results", action="store_true")
    options = parser.parse_args(arguments)
    deadline, seconds = (6, 8.0) if options.quick else (DEADLINE, SECONDS)
    chosen = {"nothing": (NOTHING,), "load": (LOAD,), "both": (NOTHING, LOAD)}[options.beside]
    samples, busy = adult(), os.getloadavg()[0]
    rows = [measure(samples, rate, seconds, deadline, what) for what, rate in itertools.product(chosen, options.rates)]
    text = TEXT.format(rows=len(samples.rows), seconds=seconds, deadline=deadline, cpus=os.cpu_count(), load=busy)
    write_report({"erase-rate": (TITLE, text, table(HEAD, rows))}, write=options.write_results)


if __name__ == "__main__":
    main()
