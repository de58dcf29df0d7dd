"""Measure what changes cost the predictions beside them: `oubli load-test` with and without additions and deletions.

    python -m benchmarks.bench_load [--quick] [--rounds 5] [--write-results]

The server keeps everything on the disk (`--data-dir`) and has one core, the client the other. In each round
predictions alone are measured before and after the mix (A/B/A); figures are medians of the rounds, ratios are formed
within a round.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.problems import SETTINGS
from benchmarks.results import Row, at_most, shown, table, write_report
from benchmarks.serving import load_test
from benchmarks.serving.samples import Samples, adult, command
from benchmarks.serving.servers import Server, run_here, serving
from benchmarks.timing import median

CONNECTIONS = 32
PROCESSES = (1, 2)
TITLE = "Predictions beside changes"
TEXT = (
    "`oubli load-test` against a durable server: 90 % predictions, 5 % additions, 5 % deletions in a closed loop of "
    f"{CONNECTIONS} connections, beside predictions alone. Times are in milliseconds. Errors, broken promises of "
    "read-your-writes, and tests that left samples behind are summed over the rounds."
)
HEAD = (
    "data:",
    "setting:",
    "processes",
    "requests/s",
    "p99 alone",
    "p99 in the mix",
    "p99 of additions",
    "p99 of deletions",
    "errors",
    "broken",
    "left",
    "in p99 alone",
)


@dataclass
class Found:
    """What was measured with one number of processes."""

    alone: list[float] = field(default_factory=list)
    mixed: list[dict[str, Any]] = field(default_factory=list)
    ratios: list[float] = field(default_factory=list)
    n_errors: int = 0

    def p99(self, operation: str) -> float:
        """The 99th percentile of an operation of the mix, in milliseconds."""
        return median(step["operations"][operation]["latency_ms"]["p99"] for step in self.mixed)


def measure(server: Server, n_processes: int, rounds: int, seconds: float) -> Found:
    """Measure predictions alone, the mix, and predictions alone again."""
    flags = ["--concurrency", str(CONNECTIONS), "--processes", str(n_processes), "--duration", str(seconds)]
    found = Found()
    for _ in range(rounds):
        before, mixed, after = (
            load_test.run(server.port, *flags, *mix)
            for mix in (load_test.mix(1, 0, 0), load_test.mix(90, 5, 5), load_test.mix(1, 0, 0))
        )
        alone = [step["operations"]["predict"]["latency_ms"]["p99"] for step in (before, after)]
        found.alone += alone
        found.mixed.append(mixed)
        found.ratios.append(mixed["operations"]["predict"]["latency_ms"]["p99"] / (sum(alone) / 2))
        everything = [step["operations"]["all"] for step in (before, mixed, after)]
        found.n_errors += sum(one["errors"] + one["refused"] for one in everything)
        server.wait_until_quiet()
    return found


def row(data: Samples, setting: str, n_processes: int, found: Found) -> Row:
    """A row of the table."""
    times = (median(found.alone), found.p99("predict"), found.p99("add"), found.p99("delete"))
    broken = sum(step["violations"] for step in found.mixed)
    left = sum(step["left_behind"] is not None for step in found.mixed)
    rate = median(step["operations"]["all"]["rate"] for step in found.mixed)
    counts = (str(found.n_errors), str(broken), str(left))
    cells = (data.name, setting, str(n_processes), shown(rate), *map(shown, times), *counts)
    return Row(cells, median(found.ratios), at_most(3.0))


def run(rounds: int, seconds: float) -> dict[str, tuple[str, str, str]]:
    """Measure everything; return title, text and table by the section's name."""
    data, rows = adult(), []
    run_here()
    for setting in SETTINGS:
        with tempfile.TemporaryDirectory() as folder, serving("ours", command(data, setting, Path(folder))) as server:
            server.wait_until_quiet()
            rows += [row(data, setting, n, measure(server, n, rounds, seconds)) for n in PROCESSES]
    return {"load-mix": (TITLE, f"{TEXT} Median of {rounds} rounds.", table(HEAD, rows))}


def main(arguments: Sequence[str] | None = None) -> None:
    """Run, print the table, and write it when asked."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--quick", action="store_true", help="one round of two seconds: whether it works")
    parser.add_argument("--write-results", action="store_true")
    options = parser.parse_args(arguments)
    rounds, seconds = (1, 2.0) if options.quick else (options.rounds, 10.0)
    write_report(run(rounds, seconds), write=options.write_results)


if __name__ == "__main__":
    main()
