"""Measure the cost of open consoles: predictions on a server with many readers of its event streams and with none.

    python -m benchmarks.bench_console [--quick] [--tabs 20] [--rounds 48] [--write-results]

A tab reads both topics of `GET /events`. The server runs on one core, the client on another, with the tabs
in a process beside it. Meanwhile samples are deleted, so that there is something to tell. In each round the same server
is measured with and without tabs: how many predictions it answers a second at most, and how many for each second that
its core works. In every eighth round also, at half of that rate, how long they take and how much of its core it uses.
Ratios are formed within a round; rounds are short, because what else a machine does changes within seconds.
"""

from __future__ import annotations

import argparse
import itertools
import multiprocessing
import os
import select
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.results import Row, at_least, shown, table, write_report
from benchmarks.serving import wrk
from benchmarks.serving.client import connect, load
from benchmarks.serving.paced import paced
from benchmarks.serving.samples import Samples, adult, command
from benchmarks.serving.servers import Server, run_here, serving
from benchmarks.timing import median

STREAMS = ("/events", "/events?topic=metrics")
N_CONNECTIONS = 8
TITLE = "Consoles beside predictions"
TEXT = (
    "`POST /predict` with one row, on a server without consoles, and on the same server with {tabs} open "
    "consoles, each of which reads both streams of events. Samples are deleted at the same time, {erasures:g} a "
    "second. "
    "At most: 8 connections that are always busy. At half: half of that rate without consoles; microseconds from due "
    "to answered, and the share of a core that the server uses. A core's second is one in which the server's core "
    "works for it: what other machines take from this one is left out."
)
HEAD = ("consoles:", "predictions a second without", "with", "p50 at half without", "p50 at half with",
        "p99 at half without", "p99 at half with", "core at half without", "core at half with",
        "events read", "with / without for a core's second", "throughput with / without")  # fmt: skip


@dataclass(frozen=True)
class Sizes:
    """How much is measured."""

    tabs: int
    rounds: int
    seconds: float
    erasures: float
    half_every: int


@dataclass(frozen=True)
class Found:
    """What one stretch has shown."""

    rate: float
    by_core: float
    p50: float = 0.0
    p99: float = 0.0
    core: float = 0.0  # at half load; 0 when that was left out


def read_streams(port: int, n_tabs: int, is_open: Any, is_ready: Any, told: Any) -> None:
    """Simulate some consoles that read all events while they are open, until the process ends."""
    while is_open.wait():
        with ExitStack() as opened, select.epoll() as poll:
            by_number = {}
            for path in STREAMS * n_tabs:
                connection = opened.enter_context(closing(connect(port)))
                connection.sendall(b"GET %s HTTP/1.1\r\nHost: localhost\r\n\r\n" % path.encode())
                by_number[connection.fileno()] = connection
                poll.register(connection.fileno(), select.EPOLLIN)
            waiting = set(by_number)
            while is_open.is_set():
                for number, _ in poll.poll(0.1):
                    data = by_number[number].recv(65_536)
                    if not data:
                        raise ConnectionError("the server has ended a stream")
                    told.value += data.count(b"\nevent: ") + data.startswith(b"event: ")
                    waiting.discard(number)
                    if not waiting:
                        is_ready.set()
        is_ready.clear()


class Tabs:
    """Consoles in a process of their own; a context manager that ends it.

    Parameters
    ----------
    port
        Of the server.
    n_tabs
        How many.
    """

    def __init__(self, port: int, n_tabs: int) -> None:
        context = multiprocessing.get_context("spawn")
        self._is_open, self._is_ready, self._told = context.Event(), context.Event(), context.Value("q", 0, lock=False)
        arguments = (port, n_tabs, self._is_open, self._is_ready, self._told)
        self._process = context.Process(target=read_streams, args=arguments, daemon=True)

    def __enter__(self) -> Tabs:
        self._process.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.join()

    @contextmanager
    def opened(self) -> Iterator[None]:
        """Have the consoles open for the length of the block."""
        self._is_open.set()
        if not self._is_ready.wait(60):
            raise TimeoutError("the streams have not begun")
        try:
            yield
        finally:
            self._is_open.clear()
            while self._is_ready.is_set():
                time.sleep(0.01)

    @property
    def n_told(self) -> int:
        """How many events they have read."""
        return int(self._told.value)


def core_seconds(server: Server) -> float:
    """Return how long the server has used a core."""
    fields = Path(f"/proc/{server.process.pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@contextmanager
def erasing(server: Server, data: Samples, sizes: Sizes, ids: Iterator[int]) -> Iterator[None]:
    """Delete samples one by one for the length of the block."""
    stop = threading.Event()

    def erase() -> None:
        while not stop.wait(1 / sizes.erasures):
            load(server.port, data.deletions([next(ids)]), 1, 1)

    eraser = threading.Thread(target=erase)
    eraser.start()
    try:
        yield
    finally:
        stop.set()
        eraser.join()


def most(server: Server, predictions: Sequence[bytes], seconds: float) -> float:
    """Return how many predictions are answered a second; by wrk where it is there, which leaves its core to tabs."""
    if wrk.is_installed():
        return wrk.load(server.port, predictions, N_CONNECTIONS, round(seconds)).rate
    return load(server.port, predictions, N_CONNECTIONS, max(1000, round(seconds * 5000))).rate


def measure(server: Server, data: Samples, sizes: Sizes, ids: Iterator[int], half: float) -> Found:
    """Measure one stretch at full and one at half load; a half of 0 leaves that out."""
    predictions = data.predictions()
    with erasing(server, data, sizes, ids):
        before, started = core_seconds(server), time.monotonic()
        rate = most(server, predictions, sizes.seconds)
        by_core = rate * (time.monotonic() - started) / (core_seconds(server) - before)
        if not half:
            return Found(rate, by_core)
        before, started = core_seconds(server), time.monotonic()
        requests = itertools.cycle(predictions)
        seconds = 3 * sizes.seconds
        (pace,) = itertools.islice(paced(server.port, requests, half, seconds + 5, N_CONNECTIONS, seconds), 1)
        core = (core_seconds(server) - before) / (time.monotonic() - started)
    return Found(rate, by_core, pace.p50, pace.p99, core)


def run(sizes: Sizes) -> dict[str, tuple[str, str, str]]:
    """Measure everything; return title, text and table of each section by its name."""
    data, ids = adult(), itertools.count()
    found: dict[bool, list[Found]] = {False: [], True: []}
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        server = stack.enter_context(serving("served", command(data, "fast", folder)))
        run_here()
        server.wait_until_quiet()
        tabs = stack.enter_context(Tabs(server.port, sizes.tabs))
        half = measure(server, data, sizes, ids, 0.0).rate / 2
        for number in range(sizes.rounds):
            for is_watched in (False, True) if number % 2 else (True, False):
                with tabs.opened() if is_watched else nullcontext():
                    asked = 0.0 if number % sizes.half_every else half
                    found[is_watched].append(measure(server, data, sizes, ids, asked))
        n_told = tabs.n_told
    pairs = list(zip(found[False], found[True], strict=True))
    ratio, by_core = (median(getattr(b, name) / getattr(a, name) for a, b in pairs) for name in ("rate", "by_core"))
    cells = [str(sizes.tabs), *(shown(median(one.rate for one in found[which])) for which in (False, True))]
    for name, scale in (("p50", 1e6), ("p99", 1e6), ("core", 1.0)):
        cells += [
            shown(scale * median(getattr(one, name) for one in found[which] if one.core)) for which in (False, True)
        ]
    cells += [str(n_told), f"{by_core:.3f}"]
    text = TEXT.format(tabs=sizes.tabs, erasures=sizes.erasures)
    text += f" Median of {sizes.rounds} rounds of {sizes.seconds:g} seconds."
    return {"http-console": (TITLE, text, table(HEAD, [Row(tuple(cells), ratio, at_least(0.98))]))}


def main(arguments: Sequence[str] | None = None) -> None:
    """Run, print the table, and write it when asked."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--tabs", type=int, default=20)
    parser.add_argument("--rounds", type=int, default=48)
    parser.add_argument("--quick", action="store_true", help="two short rounds: whether it works")
    parser.add_argument("--write-results", action="store_true")
    options = parser.parse_args(arguments)
    sizes = Sizes(options.tabs, options.rounds, 2.0, 2.0, 8)
    if options.quick:
        sizes = Sizes(options.tabs, 4, 2.0, 2.0, 2)
    write_report(run(sizes), write=options.write_results)


if __name__ == "__main__":
    main()
