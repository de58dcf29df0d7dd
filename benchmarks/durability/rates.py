"""Additions and deletions a second, durable and not."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.results import Row, at_least, shown
from benchmarks.serving.client import Load, load
from benchmarks.serving.samples import Samples, command
from benchmarks.serving.servers import Server, serving
from benchmarks.timing import median

CONNECTIONS = (1, 32)
HEAD = (
    "route:",
    "setting:",
    "connections",
    "durable",
    "p50 ms",
    "p99 ms",
    "`--ephemeral`",
    "nothing written",
    "share of the faster",
)
_SHARE = 0.7


@dataclass
class Measured:
    """All that was measured of one route, in the order of the rounds."""

    durable: list[Load] = field(default_factory=list)
    ephemeral: list[Load] = field(default_factory=list)
    unwritten: list[Load] = field(default_factory=list)
    shares: list[float] = field(default_factory=list)


@dataclass(frozen=True)
class Servers:
    """The durable one, and two whose journal is off."""

    durable: Server
    ephemeral: Server
    unwritten: Server

    def wait_until_quiet(self) -> None:
        """Wait until none of them has anything left to do."""
        for server in (self.durable, self.ephemeral, self.unwritten):
            server.wait_until_quiet()


def run(samples: Samples, setting: str, directory: Path, rounds: int, n_mutations: int) -> list[Row]:
    """Measure one setting; return the rows of the table."""
    other = directory.with_name(f"{directory.name}-unwritten")
    unwritten = ["benchmarks.durability.unwritten", *command(samples, setting, other)[1:]]
    with (
        serving("durable", command(samples, setting, directory)) as first,
        serving("ephemeral", command(samples, setting, None)) as second,
        serving("unwritten", unwritten) as third,
    ):
        found = measure(Servers(first, second, third), samples, rounds, n_mutations)
    return [_row(route, setting, n, measured) for (route, n), measured in sorted(found.items())]


def measure(servers: Servers, samples: Samples, rounds: int, n_mutations: int) -> dict[tuple[str, int], Measured]:
    """Delete and add back, in turns; the samples held are the same again afterwards."""
    first, second = range(n_mutations), range(n_mutations, 2 * n_mutations)
    found: dict[tuple[str, int], Measured] = {}
    for _, n in itertools.product(range(rounds), CONNECTIONS):
        for route, make in (("DELETE /samples/{id}", samples.deletions), ("POST /samples", samples.additions)):
            measured = found.setdefault((route, n), Measured())
            before = load(servers.durable.port, make(first), n, n_mutations)
            ephemeral = load(servers.ephemeral.port, make(first), n, n_mutations)
            unwritten = load(servers.unwritten.port, make(first), n, n_mutations)
            after = load(servers.durable.port, make(second), n, n_mutations)
            measured.durable += [before, after]
            measured.ephemeral.append(ephemeral)
            measured.unwritten.append(unwritten)
            measured.shares.append((before.rate + after.rate) / 2 / max(ephemeral.rate, unwritten.rate))
            servers.wait_until_quiet()
    return found


def _row(route: str, setting: str, n: int, measured: Measured) -> Row:
    def middle(which: str) -> str:
        return shown(1e3 * median(getattr(one, which) for one in measured.durable))

    rates = [shown(median(one.rate for one in of)) for of in (measured.durable, measured.ephemeral, measured.unwritten)]
    cells = (route, setting, str(n), rates[0], middle("p50"), middle("p99"), *rates[1:])
    return Row(cells, median(measured.shares), at_least(_SHARE) if n == max(CONNECTIONS) else None)
