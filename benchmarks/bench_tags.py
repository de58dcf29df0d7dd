"""Measure what resolving tags in a thread does for queries: servers with `--threads 2` and with `--threads 1`.

    python -m benchmarks.bench_tags [--quick] [--rounds 5] [--write-results]

Both servers run at the same time and may use both cores, the client has one of them. They are measured in turn, and
the one that goes first changes every time. Ratios are formed within a round.
"""

from __future__ import annotations

import argparse
import itertools
import socket
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass

import numpy as np

from benchmarks.problems import SETTINGS
from benchmarks.results import Mark, Row, at_most, shown, table, write_report
from benchmarks.serving.client import RefusedError, connect, is_whole, load
from benchmarks.serving.paced import paced
from benchmarks.serving.samples import Samples, adult, command
from benchmarks.serving.servers import Server, run_here, serving
from benchmarks.timing import median

CONNECTIONS = 16
TITLE = "Queries while a thread resolves tags"
TEXT = (
    "`POST /predict` with one row to a server that keeps nothing on the disk, with `--threads 1`, which resolves tags "
    "on the event loop when nothing was asked for some milliseconds, and with `--threads 2`, whose thread also does it "
    "between requests. *Half load*: at half of the rate that the first one reaches, microseconds from due to answered, "
    "alone and beside {changes:g} changes a second. *Stream*: delete, query, add, query on one connection, back to "
    "back, or with {pause:g} ms between an answer and the next request; microseconds from sent to answered."
)
HEAD = ("data:", "setting:", "load:", "figure:", "1 thread", "2 threads", "2 by 1")
PAUSE = 0.001  # seconds, in a stream that is not back to back
CHANGES = 10.0  # a second, beside predictions
P99_AT_HALF_LOAD = at_most(1.0)


@dataclass(frozen=True)
class Sizes:
    """How much is measured."""

    rounds: int
    seconds: float
    cycles: int


Pair = tuple[float, float]
"""Two figures in seconds: the mean or median, and the 99th percentile."""


def half_load(server: Server, data: Samples, rate: float, seconds: float, changes: float) -> Pair:
    """Median and p99 of predictions at a rate, beside so many changes a second."""
    stop = threading.Event()

    def change() -> None:
        with connect(server.port) as connection:
            for request in _changes(data):
                if stop.wait(1 / changes):
                    return
                _ask(connection, request)

    changing = [threading.Thread(target=change)] if changes else []
    for thread in changing:
        thread.start()
    requests = itertools.cycle(data.predictions())
    try:
        # The first stretch is not counted: what was done before may not be over.
        *_, pace = itertools.islice(paced(server.port, requests, rate, 4 * seconds, CONNECTIONS, seconds), 2)
    finally:
        stop.set()
        for thread in changing:
            thread.join()
    return pace.p50, pace.p99


def stream(server: Server, data: Samples, n_cycles: int, pause: float) -> Pair:
    """Mean and p99 of the queries in a stream of delete, query, add, query."""
    queries, taken = itertools.cycle(data.predictions()), []
    with connect(server.port) as connection:
        for change in itertools.islice(_changes(data), 2 * n_cycles):
            for request, is_query in ((change, False), (next(queries), True)):
                if pause:
                    time.sleep(pause)
                started = time.perf_counter()
                _ask(connection, request)
                if is_query:
                    taken.append(time.perf_counter() - started)
    return float(np.mean(taken)), float(np.quantile(taken, 0.99))


def _changes(data: Samples) -> Iterator[bytes]:
    """Delete rows and add them again, in turn."""
    numbers = np.random.default_rng(0).permutation(len(data.rows)).tolist()
    for number in itertools.cycle(numbers):
        yield from data.deletions([number])
        yield from data.additions([number])


def _ask(connection: socket.socket, request: bytes) -> None:
    connection.sendall(request)
    data = connection.recv(65_536)
    while not is_whole(data):
        more = connection.recv(65_536)
        if not more:
            raise RefusedError("the server closed the connection")
        data += more


def measure(servers: Sequence[Server], data: Samples, setting: str, sizes: Sizes) -> list[Row]:
    """Measure both servers under every load."""
    requests = data.predictions()
    rate = load(servers[0].port, requests, CONNECTIONS, 20_000).rate / 2
    works = {
        "half load": lambda server: half_load(server, data, rate, sizes.seconds, 0),
        "half load, changes": lambda server: half_load(server, data, rate, sizes.seconds, CHANGES),
        "stream, back to back": lambda server: stream(server, data, sizes.cycles, 0),
        "stream, pauses": lambda server: stream(server, data, sizes.cycles, PAUSE),
    }
    rows = []
    for name, work in works.items():
        pairs: list[list[Pair]] = []
        for number in range(sizes.rounds):
            found = {}
            for server in servers if number % 2 else reversed(servers):
                server.wait_until_quiet()
                found[server.name] = work(server)
            pairs.append([found[server.name] for server in servers])
        about = (data.name, setting, name)
        is_paced = name.startswith("half load")
        rows += [
            _row((*about, "p50" if is_paced else "mean"), [(one[0], two[0]) for one, two in pairs], None),
            _row((*about, "p99"), [(one[1], two[1]) for one, two in pairs], P99_AT_HALF_LOAD if is_paced else None),
        ]
    return rows


def _row(about: tuple[str, ...], pairs: list[tuple[float, float]], mark: Mark | None) -> Row:
    times = [shown(1e6 * median(pair[i] for pair in pairs)) for i in (0, 1)]
    return Row((*about, *times), median(two / one for one, two in pairs), mark)


def run(sizes: Sizes) -> dict[str, tuple[str, str, str]]:
    """Measure everything; return title, text and table by the section's name."""
    rows, data = [], adult()
    run_here()
    for setting in SETTINGS:
        with ExitStack() as stack:
            servers = [
                stack.enter_context(
                    serving(name, command(data, setting, more=["--threads", name, "--readd-grace", "0"]), on_all=True)
                )
                for name in ("1", "2")
            ]
            rows += measure(servers, data, setting, sizes)
    text = TEXT.format(changes=CHANGES, pause=1e3 * PAUSE)
    return {"tags": (TITLE, f"{text} Median of {sizes.rounds} rounds.", table(HEAD, rows))}


def main(arguments: Sequence[str] | None = None) -> None:
    """Run, print the table, and write it when asked."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--quick", action="store_true", help="one round of a second: whether it works")
    parser.add_argument("--write-results", action="store_true")
    options = parser.parse_args(arguments)
    sizes = Sizes(1, 1.0, 50) if options.quick else Sizes(options.rounds, 5.0, 500)
    write_report(run(sizes), write=options.write_results)


if __name__ == "__main__":
    main()
