"""Measure changes a second with the journal in PostgreSQL, beside the journal in SQLite.

    python -m benchmarks.bench_journals [--quick] [--rounds 5] [--write-results]

Needs PostgreSQL's programs. Servers run on one core, the client on another, PostgreSQL on both. In each round SQLite is
measured before and after PostgreSQL (A/B/B/A); figures are medians of the rounds, ratios are formed within a round.
"""

from __future__ import annotations

import argparse
import itertools
import os
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks import higgs_like
from benchmarks.results import Row, at_least, shown, table, write_report
from benchmarks.serving.client import Load, load
from benchmarks.serving.samples import Samples, command, higgs_parquet
from benchmarks.serving.servers import Server, cores, run_here, serving
from benchmarks.timing import median
from tests.postgres import temporary_server

CONNECTIONS = (1, 32)
SHARE = 0.5
TITLE = "Durability: the journal in PostgreSQL"
TEXT = (
    "Higgs-like, {rows:,} rows, setting `fast`; one sample per request. Both servers answer when the record is "
    "flushed: in a file of SQLite, or by PostgreSQL {version} on the same machine and disk, over TCP, without a "
    "standby, with `shared_buffers` of 16 MB and `wal_recycle = off`. Snapshots run with their default "
    "settings.{busy} Median of {rounds} rounds."
)
BUSY = " The machine was busy with other work: its load average was {load:.1f} when this began."
HEAD = (
    "route:",
    "connections",
    "SQLite",
    "its p50 ms",
    "its p99 ms",
    "PostgreSQL",
    "p50 ms",
    "p99 ms",
    "share of SQLite",
)


@dataclass
class Measured:
    """All that was measured of one route, in the order of the rounds."""

    sqlite: list[Load] = field(default_factory=list)
    postgres: list[Load] = field(default_factory=list)
    shares: list[float] = field(default_factory=list)


def measure(
    sqlite: Server, postgres: Server, samples: Samples, rounds: int, n_mutations: int
) -> dict[tuple[str, int], Measured]:
    """Delete and add back, in turns; the samples held are the same again afterwards."""
    first, second = range(n_mutations), range(n_mutations, 2 * n_mutations)
    found: dict[tuple[str, int], Measured] = {}
    for _, n in itertools.product(range(rounds), CONNECTIONS):
        for route, make in (("DELETE /samples/{id}", samples.deletions), ("POST /samples", samples.additions)):
            turns = (sqlite, first), (postgres, first), (postgres, second), (sqlite, second)
            before, *between, after = [load(server.port, make(rows), n, n_mutations) for server, rows in turns]
            measured = found.setdefault((route, n), Measured())
            measured.sqlite += [before, after]
            measured.postgres += between
            measured.shares.append(sum(one.rate for one in between) / (before.rate + after.rate))
            for server in (sqlite, postgres):
                server.wait_until_quiet()
    return found


def run(cache: Path, n_rows: int, rounds: int, n_mutations: int) -> dict[str, tuple[str, str, str]]:
    """Measure; return title, text and table of the section by its name."""
    samples, load_average = higgs_parquet(cache, n_rows), os.getloadavg()[0]
    with ExitStack() as opened:
        database = opened.enter_context(temporary_server(flushes=True))
        cores()  # before this process keeps to one of them, which PostgreSQL should not
        run_here()
        folder = Path(opened.enter_context(tempfile.TemporaryDirectory(dir=database.folder.parent)))
        url = database.url(database.new_database())
        ((version,),) = database.execute("SHOW server_version")
        servers = [
            opened.enter_context(serving(name, command(samples, "fast", folder / name, more)))
            for name, more in (("sqlite", []), ("postgres", ["--journal", url]))
        ]
        found = measure(servers[0], servers[1], samples, rounds, n_mutations)
    rows = [_row(route, n, measured) for (route, n), measured in sorted(found.items())]
    busy = BUSY.format(load=load_average) if load_average > 0.5 else ""
    text = TEXT.format(rows=n_rows, version=version.split()[0], busy=busy, rounds=rounds)
    return {"durability-journals": (TITLE, text, table(HEAD, rows))}


def _row(route: str, n: int, measured: Measured) -> Row:
    cells = [route, str(n)]
    for loads in (measured.sqlite, measured.postgres):
        times = (1e3 * median(one.p50 for one in loads), 1e3 * median(one.p99 for one in loads))
        cells += [shown(median(one.rate for one in loads)), *map(shown, times)]
    return Row(tuple(cells), median(measured.shares), at_least(SHARE) if n == max(CONNECTIONS) else None)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run, print the table, and write it when asked."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--cache", type=Path, default=higgs_like.CACHE, help="keeps generated data")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--quick", action="store_true", help="little data, two rounds: whether it works")
    parser.add_argument("--write-results", action="store_true")
    options = parser.parse_args(arguments)
    if options.quick and options.write_results:
        parser.error("--quick measures too little to be written down: leave out one of --quick and --write-results")
    n_rows, rounds, n_mutations = (3_000, 2, 100) if options.quick else (50_000, options.rounds, 2_000)
    write_report(run(options.cache, n_rows, rounds, n_mutations), write=options.write_results)


if __name__ == "__main__":
    main()
