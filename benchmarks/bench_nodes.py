"""Measure how far a node that follows is behind, and what two nodes cost for predictions beside one server.

    python -m benchmarks.bench_nodes [--quick] [--rounds 5] [--write-results]

Two nodes over PostgreSQL, and a server alone with its journal in SQLite, all on this machine. While changes come at
1,000 a second, a probe adds a sample at the leader, and at once asks the follower for a prediction of that version. For
the costs, requests of 100 rows go to the server alone, and half to each node; counted is the time on the processor.
Needs PostgreSQL's programs.
"""

from __future__ import annotations

import argparse
import http.client
import itertools
import json
import multiprocessing
import os
import secrets
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import higgs_like
from benchmarks.bench_console import core_seconds
from benchmarks.results import Row, at_least, at_most, shown, table, write_report
from benchmarks.serving.client import load
from benchmarks.serving.paced import paced
from benchmarks.serving.samples import Samples, command, higgs_parquet, post
from benchmarks.serving.servers import Server, serving
from benchmarks.timing import median
from tests.postgres import temporary_server

RATE = 1_000.0  # changes a second
ROWS = 100  # of a request for predictions
PAUSE = 0.02  # seconds between two probes
TITLE = "A node that follows"
TEXT = (
    "Higgs-like, {rows:,} rows, setting `fast`, on 2 cores with PostgreSQL and the client. Behind: from the leader's "
    "answer to a change until a follower answers a prediction of that version, beside {rate:,.0f} "
    "changes a second ({achieved:,.0f} achieved). For scale: the same prediction without a version to wait for.{busy}"
)
COSTS = "Requests of {n} rows; predictions of rows a second of the processor's time, of the server's processes alone."
BUSY = " The machine was busy with other work: its load average was {load:.1f} when this began."


def changes(samples: Samples, n_rows: int) -> Iterator[bytes]:
    """Yield deletions and additions of the same samples, for ever."""
    step = 500
    while True:
        for first in range(0, n_rows - step, step):
            yield from samples.deletions(range(first, first + step))
            yield from samples.additions(range(first, first + step))


def probe(leader: int, follower: int, row: Sequence[Any], label: Any, is_over: Any, found: Any) -> None:
    """Change the leader and ask the follower for what comes of it, until it is over; give back all times.

    Parameters
    ----------
    leader, follower
        Ports.
    row, label
        What is added and asked for.
    is_over
        The event that ends it.
    found
        The queue that gets both lists of seconds: with and without waiting for a version.
    """
    leading, following = (http.client.HTTPConnection("127.0.0.1", port, timeout=30) for port in (leader, follower))
    behind, alone = [], []
    for number in itertools.count():
        if is_over.wait(PAUSE):
            found.put((behind, alone))
            return
        sample = {"id": f"probe-{number}", "features": row, "label": label}
        version = ask(leading, "/samples", {"samples": [sample]}, {})["model_version"]
        answered = time.perf_counter()
        ask(following, "/predict", {"instances": [row]}, {"Min-Version": str(version)})
        reached = time.perf_counter()
        ask(following, "/predict", {"instances": [row]}, {"Min-Version": "1"})
        behind.append(reached - answered)
        alone.append(time.perf_counter() - reached)


def ask(connection: http.client.HTTPConnection, path: str, content: object, headers: dict[str, str]) -> dict[str, int]:
    """Post something and return what is answered."""
    connection.request("POST", path, json.dumps(content), {"Content-Type": "application/json", **headers})
    answer = connection.getresponse()
    body = answer.read()
    if answer.status not in (200, 201):
        raise RuntimeError(f"{path} was answered with {answer.status}")
    found: dict[str, int] = json.loads(body)
    return found


def measure_lag(
    leader: Server, follower: Server, samples: Samples, n_rows: int, seconds: float
) -> tuple[dict[str, list[float]], float]:
    """Return what a probe in a process of its own has found, and how many changes were made a second."""
    context = multiprocessing.get_context("spawn")
    is_over, found = context.Event(), context.Queue()
    arguments = (leader.port, follower.port, samples.rows[0], samples.labels[0], is_over, found)
    process = context.Process(target=probe, args=arguments, daemon=True)
    process.start()
    paces = list(paced(leader.port, changes(samples, n_rows), RATE, seconds, 32, seconds / 2))
    is_over.set()
    behind, alone = found.get(timeout=60)
    process.join()
    return {"behind": behind, "without waiting": alone}, median(one.rate for one in paces)


def measure_cost(servers: Sequence[Server], samples: Samples, n_requests: int) -> float:
    """Return how many rows are predicted in a second of the processors' time."""
    starts = range(0, len(samples.rows) - ROWS, ROWS)
    requests = [post("/predict", {"instances": samples.rows[i : i + ROWS]}) for i in starts]
    before = sum(map(core_seconds, servers))
    threads = [
        threading.Thread(target=load, args=(one.port, requests, 4, n_requests // len(servers))) for one in servers
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return ROWS * n_requests / (sum(map(core_seconds, servers)) - before)


def run(cache: Path, n_rows: int, rounds: int, seconds: float, n_requests: int) -> dict[str, tuple[str, str, str]]:
    """Measure everything; return title, text and table of each section by its name."""
    samples, load_average = higgs_parquet(cache, n_rows), os.getloadavg()[0]
    with ExitStack() as opened:
        database = opened.enter_context(temporary_server(flushes=True))
        folder = Path(opened.enter_context(tempfile.TemporaryDirectory()))
        secret = folder / "secret"
        secret.touch(mode=0o600)
        secret.write_text(secrets.token_hex(32))
        url = database.url(database.new_database())
        shared = ["--journal", url, "--follow", "--cluster-secret-file", str(secret)]
        leader, follower = (
            opened.enter_context(
                serving(
                    name,
                    command(
                        samples, "fast", folder / name,
                        [*shared, "--node-name", name, "--node-url", "http://127.0.0.1:{port}"],
                    ),
                    on_all=True,
                )
            )
            for name in ("first", "second")
        )  # fmt: skip
        alone = opened.enter_context(serving("alone", command(samples, "fast", folder / "alone"), on_all=True))
        for server in (leader, alone):
            server.wait_until_quiet()
        costs: dict[bool, list[float]] = {False: [], True: []}
        for number in range(rounds):
            for both in (False, True) if number % 2 else (True, False):
                costs[both].append(measure_cost([leader, follower] if both else [alone], samples, n_requests))
        seconds_by_name, achieved = measure_lag(leader, follower, samples, n_rows, seconds)
    busy = BUSY.format(load=load_average) if load_average > 0.5 else ""
    milliseconds = {
        name: [1000 * float(np.quantile(times, share)) for share in (0.5, 0.99)]
        for name, times in seconds_by_name.items()
    }
    rows = [
        Row((name, shown(p50)), p99, at_most(50) if name == "behind" else None)
        for name, (p50, p99) in milliseconds.items()
    ]
    ratio = median(two / one for one, two in zip(costs[False], costs[True], strict=True))
    cells = tuple(shown(median(costs[both])) for both in (False, True))
    text = TEXT.format(rows=n_rows, rate=RATE, achieved=achieved, busy=busy)
    return {
        "failover-lag": (TITLE, text, table(("figure:", "p50 ms", "p99 ms"), rows)),
        "failover-cost": (
            "Predictions of two nodes beside one server",
            COSTS.format(n=ROWS) + busy,
            table(("one server", "leader and follower", "share"), [Row(cells, ratio, at_least(0.9))]),
        ),
    }


def main(arguments: Sequence[str] | None = None) -> None:
    """Run, print the tables, and write them when asked."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--cache", type=Path, default=higgs_like.CACHE, help="keeps generated data")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--quick", action="store_true", help="little data: whether it works")
    parser.add_argument("--write-results", action="store_true")
    options = parser.parse_args(arguments)
    n_rows, rounds, seconds, n_requests = (50_000, options.rounds, 30.0, 2_000)
    if options.quick:
        n_rows, rounds, seconds, n_requests = (3_000, 1, 4.0, 100)
    write_report(run(options.cache, n_rows, rounds, seconds, n_requests), write=options.write_results)


if __name__ == "__main__":
    main()
