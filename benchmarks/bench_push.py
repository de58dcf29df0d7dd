"""Measure whether webhooks delay predictions: the same load on two servers, of which one tells of every erasure.

    python -m benchmarks.bench_push [--quick] [--rounds 5] [--write-results]

Both servers run on one core, the client is on another, with the receiver in a process beside it. In each round both
get single predictions at a fixed rate, and a stream of erasures on another connection. One server has a receiver that
answers, fails or hangs. Times count from when a request was due; ratios are formed within a round.
"""

from __future__ import annotations

import argparse
import itertools
import multiprocessing
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from benchmarks.results import Row, at_most, shown, table, write_report
from benchmarks.serving.client import load
from benchmarks.serving.paced import paced
from benchmarks.serving.samples import Samples, adult, command
from benchmarks.serving.servers import Server, free_port, run_here, serving
from benchmarks.timing import median

SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"  # noqa: S105 - of a receiver that lives for this benchmark
RECEIVERS = ("answers", "fails", "hangs")
TITLE = "Webhooks beside predictions"
TEXT = (
    "`POST /predict` with one row at a fixed rate, while samples are deleted one by one, on a server without webhooks "
    "and on one that tells of every deletion. The receiver answers at once, fails every time, or never answers. "
    "Microseconds from due to answered."
)
HEAD = ("receiver:", "predictions a second", "erasures a second", "p50 without", "p50 with", "p99 without", "p99 with",
        "p99 with / without")  # fmt: skip


@dataclass(frozen=True)
class Sizes:
    """How much is measured."""

    rounds: int
    seconds: float
    rate: float
    erasures: float


def receive(port: int, kind: str) -> None:
    """Be a receiver, until the process is ended."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            """Answer, or not."""
            self.rfile.read(int(self.headers["Content-Length"]))
            if kind == "hangs":
                time.sleep(3600)
            self.send_response(204 if kind == "answers" else 500)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the library's name
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
    server.daemon_threads = True
    server.serve_forever()


@contextmanager
def receiving(kind: str) -> Iterator[int]:
    """Run a receiver in a process; return its port."""
    port = free_port()
    process = multiprocessing.get_context("spawn").Process(target=receive, args=(port, kind), daemon=True)
    process.start()
    try:
        yield port
    finally:
        process.kill()
        process.join()


def measure(server: Server, data: Samples, sizes: Sizes, ids: Iterator[int]) -> tuple[float, float]:
    """Return p50 and p99 of predictions, in seconds, while samples are deleted."""
    stop = threading.Event()

    def erase() -> None:
        while not stop.wait(1 / sizes.erasures):
            load(server.port, data.deletions([next(ids)]), 1, 1)

    eraser = threading.Thread(target=erase)
    eraser.start()
    try:
        (pace,) = itertools.islice(
            paced(
                server.port,
                itertools.cycle(data.predictions()),
                sizes.rate,
                sizes.seconds + 5,
                8,
                sizes.seconds,
            ),
            1,
        )
    finally:
        stop.set()
        eraser.join()
    return pace.p50, pace.p99


def run(sizes: Sizes) -> dict[str, tuple[str, str, str]]:
    """Measure everything; return title, text and table of each section by its name."""
    rows, data = [], adult()
    for kind in RECEIVERS:
        with ExitStack() as stack:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
            port = stack.enter_context(receiving(kind))
            secret = folder / "secret"
            secret.write_text(SECRET)
            flags = ["--webhook-url", f"http://127.0.0.1:{port}/", "--webhook-secret-file", str(secret)]
            flags += ["--push-network", "127.0.0.1"]
            without = stack.enter_context(serving("without", command(data, "fast", folder / "a")))
            told = stack.enter_context(serving("with", command(data, "fast", folder / "b", flags)))
            run_here()
            numbers = {server.name: itertools.count() for server in (without, told)}
            for server in (without, told):
                server.wait_until_quiet()
            found: dict[str, list[tuple[float, float]]] = {"without": [], "with": []}
            for number in range(sizes.rounds):
                for server in (without, told) if number % 2 else (told, without):
                    found[server.name].append(measure(server, data, sizes, numbers[server.name]))
            p50, p99 = ({name: [pair[i] for pair in pairs] for name, pairs in found.items()} for i in (0, 1))
            ratio = median(b / a for a, b in zip(p99["without"], p99["with"], strict=True))
            cells = [kind, shown(sizes.rate), shown(sizes.erasures)]
            cells += [shown(1e6 * median(p[name])) for p in (p50, p99) for name in ("without", "with")]
            rows.append(Row(tuple(cells), ratio, at_most(1.1)))
    text = f"{TEXT} Median of {sizes.rounds} rounds of {sizes.seconds:g} seconds."
    return {"http-push": (TITLE, text, table(HEAD, rows))}


def main(arguments: Sequence[str] | None = None) -> None:
    """Run, print the table, and write it when asked."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--quick", action="store_true", help="two short rounds: whether it works")
    parser.add_argument("--write-results", action="store_true")
    options = parser.parse_args(arguments)
    sizes = Sizes(options.rounds, 20.0, 2000.0, 20.0)
    if options.quick:
        sizes = Sizes(2, 4.0, 500.0, 10.0)
    write_report(run(sizes), write=options.write_results)


if __name__ == "__main__":
    main()
