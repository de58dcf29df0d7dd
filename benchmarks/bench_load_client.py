"""Measure whether `oubli load-test` measures the server: its rate beside that of wrk, or that it says it cannot.

    python -m benchmarks.bench_load_client [--quick] [--rounds 5] [--write-results]

Predictions alone, 16 connections. The server has one core and all clients the other; wrk has one thread there, the load
test one process or two. In each round wrk is measured before and after the load test (A/B/A).
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from benchmarks.problems import SETTINGS
from benchmarks.results import Row, at_most, shown, table, write_report
from benchmarks.serving import load_test, wrk
from benchmarks.serving.samples import adult, command
from benchmarks.serving.servers import run_here, serving
from benchmarks.timing import median

CONNECTIONS = 16
PROCESSES = (1, 2)
TITLE = "The load test beside wrk"
TEXT = (
    f"`POST /predict` with one row of Adult, a different one each time, {CONNECTIONS} connections in a closed loop. "
    "CPU is the share of its core that the load test's busiest process used. The difference has a mark unless the load "
    "test says in most rounds that the client is the limit."
)
HEAD = (
    "setting:",
    "processes",
    "load test",
    "wrk",
    "p99, ms",
    "wrk's p99, ms",
    "CPU",
    "client is the limit:",
    "difference",
)


def run(rounds: int, seconds: int) -> dict[str, tuple[str, str, str]]:
    """Measure everything; return title, text and table by the section's name."""
    data, rows = adult(), []
    requests = data.predictions()
    run_here()
    for setting in SETTINGS:
        with serving("ours", command(data, setting)) as server:
            server.wait_until_quiet()
            for n_processes in PROCESSES:
                steps, others, ratios = [], [], []
                for _ in range(rounds):
                    before = wrk.load(server.port, requests, CONNECTIONS, seconds)
                    flags = ("--concurrency", str(CONNECTIONS), "--duration", str(seconds))
                    step = load_test.run(server.port, *flags, "--processes", str(n_processes))
                    after = wrk.load(server.port, requests, CONNECTIONS, seconds)
                    steps.append(step)
                    others += [before, after]
                    ratios.append(step["operations"]["predict"]["rate"] / ((before.rate + after.rate) / 2))
                says = 2 * sum(step["client"]["is_limit"] for step in steps) > rounds
                predicted = [step["operations"]["predict"] for step in steps]
                cells = (
                    setting,
                    str(n_processes),
                    shown(median(one["rate"] for one in predicted)),
                    shown(median(one.rate for one in others)),
                    shown(median(one["latency_ms"]["p99"] for one in predicted)),
                    shown(1000 * median(one.p99 for one in others)),
                    shown(median(max(one["cpu_share"] for one in step["client"]["processes"]) for step in steps)),
                    "yes" if says else "no",
                )
                rows.append(Row(cells, abs(median(ratios) - 1), None if says else at_most(0.1)))
    return {"load-client": (TITLE, f"{TEXT} Median of {rounds} rounds.", table(HEAD, rows))}


def main(arguments: Sequence[str] | None = None) -> None:
    """Run, print the table, and write it when asked."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--quick", action="store_true", help="one round of two seconds: whether it works")
    parser.add_argument("--write-results", action="store_true")
    options = parser.parse_args(arguments)
    if not wrk.is_installed():
        raise SystemExit("there is no wrk to compare with: install it (apt-get install wrk)")
    rounds, seconds = (1, 2) if options.quick else (options.rounds, 10)
    write_report(run(rounds, seconds), write=options.write_results)


if __name__ == "__main__":
    main()
