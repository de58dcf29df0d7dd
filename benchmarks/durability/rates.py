"""Additions and deletions a second, durable and not."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.durability.places import Samples, command
from benchmarks.results import Row, at_least, shown
from benchmarks.serving.client import Load, load
from benchmarks.serving.servers import Server, serving
from benchmarks.timing import median

CONNECTIONS = (1, 32)
HEAD = ("route:", "setting:", "connections", "durable", "p50 ms", "p99 ms", "journal off", "share of journal off")
_SHARE = 0.7


@dataclass
class Measured:
    """All that was measured of one route, in the order of the rounds."""

    durable: list[Load] = field(default_factory=list)
    without: list[Load] = field(default_factory=list)
    shares: list[float] = field(default_factory=list)


def run(samples: Samples, setting: str, directory: Path, rounds: int, n_mutations: int) -> list[Row]:
    """Measure one setting; return the rows of the table."""
    with (
        serving("durable", command(samples, setting, directory)) as durable,
        serving("journal off", command(samples, setting, None)) as without,
    ):
        found = measure(durable, without, samples, rounds, n_mutations)
    return [_row(route, setting, n, measured) for (route, n), measured in sorted(found.items())]


def measure(
    durable: Server, without: Server, samples: Samples, rounds: int, n_mutations: int
) -> dict[tuple[str, int], Measured]:
    """Delete and add back, in turns; the samples held are the same again afterwards."""
    first, second = range(n_mutations), range(n_mutations, 2 * n_mutations)
    found: dict[tuple[str, int], Measured] = {}
    for _, n in itertools.product(range(rounds), CONNECTIONS):
        for route, make in (("DELETE /samples/{id}", samples.deletions), ("POST /samples", samples.additions)):
            measured = found.setdefault((route, n), Measured())
            before = load(durable.port, make(first), n, n_mutations)
            beside = load(without.port, make(first), n, n_mutations)
            after = load(durable.port, make(second), n, n_mutations)
            measured.durable += [before, after]
            measured.without.append(beside)
            measured.shares.append((before.rate + after.rate) / 2 / beside.rate)
            durable.wait_until_quiet()
            without.wait_until_quiet()
    return found


def _row(route: str, setting: str, n: int, measured: Measured) -> Row:
    def middle(which: str) -> str:
        return shown(1e3 * median(getattr(one, which) for one in measured.durable))

    rate = shown(median(one.rate for one in measured.durable))
    off = shown(median(one.rate for one in measured.without))
    mark = at_least(_SHARE) if n == max(CONNECTIONS) else None
    return Row((route, setting, str(n), rate, middle("p50"), middle("p99"), off), median(measured.shares), mark)
