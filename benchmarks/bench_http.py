"""Measure what a request over HTTP costs, beside servers that do nothing but parse and answer.

    python -m benchmarks.bench_http [--quick] [--rounds 5] [--write-results]

Servers are processes on one core, the client is on another. In each round ours is measured before and after each
baseline (A/B/A); figures are medians of the rounds, ratios are formed within a round. Where `wrk` is installed it is
compared with our own client.
"""

from __future__ import annotations

import argparse
import itertools
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from benchmarks import higgs_like
from benchmarks.problems import SETTINGS
from benchmarks.results import Row, at_least, at_most, shown, table, write_report
from benchmarks.serving import few, wrk
from benchmarks.serving.client import Load, load
from benchmarks.serving.samples import Samples, adult, command, higgs_csv
from benchmarks.serving.servers import Server, run_here, serving
from benchmarks.timing import median

N_HIGGS = 50_000  # enough for trees as deep as any, and soon trained
CONNECTIONS = (1, 16)
BASELINES = {"bare ASGI": "asgi", "FastAPI": "fastapi"}

RATES_TITLE = "HTTP: requests a second"
RATES_TEXT = (
    "`POST /predict` with one row, a different one each time. The bare ASGI function and the plain FastAPI route "
    "parse the same bodies with orjson and answer with as many bytes, without a model. All run on uvloop and "
    "httptools with the settings of `oubli serve`."
)
RATES_HEAD = ("data:", "setting:", "connections", "ours", "bare ASGI", "FastAPI", "share of bare ASGI")
TIMES_TITLE = "HTTP: how long a request takes"
TIMES_TEXT = (
    "One row or sample per request, in microseconds. FastAPI is the plain route of the same method. Deletions and "
    "additions defer work; the server does it in idle time after each measurement, outside the figures."
)
TIMES_HEAD = ("route:", "data:", "setting:", "connections", "p50", "p99", "FastAPI p50", "in FastAPI's p50")
CLIENTS_TITLE = "HTTP: the clients"
CLIENTS_TEXT = "Requests per second of the bare ASGI function, measured with our client and with `wrk`."
CLIENTS_HEAD = ("connections", "ours", "wrk", "share of wrk")


@dataclass(frozen=True)
class Sizes:
    """How much is measured."""

    n_rows: int
    rounds: int
    n_requests: int  # of one measurement with 16 connections; a quarter of them with one
    n_mutations: int
    wrk_seconds: int
    few: Sequence[int] = few.SIZES  # samples of one person


@dataclass
class Measured:
    """All that was measured of one question, by server, in the order of the rounds."""

    loads: dict[str, list[Load]] = field(default_factory=dict)
    ratios: list[float] = field(default_factory=list)

    def note(self, name: str, measured: Load) -> None:
        """Take in one measurement."""
        self.loads.setdefault(name, []).append(measured)

    def rate(self, name: str) -> float:
        """Answers a second."""
        return median(measured.rate for measured in self.loads[name])

    def microseconds(self, name: str, which: str) -> float:
        """The middle or the slowest hundredth."""
        return 1e6 * median(getattr(measured, which) for measured in self.loads[name])


def measure_predictions(ours: Server, baselines: dict[str, Server], data: Samples, sizes: Sizes) -> dict[int, Measured]:
    """Rates and times of predictions, by number of connections."""
    requests = data.predictions()
    found = {n: Measured() for n in CONNECTIONS}
    for _, n in itertools.product(range(sizes.rounds), CONNECTIONS):
        n_requests = sizes.n_requests if n > 1 else sizes.n_requests // 4
        first = load(ours.port, requests, n, n_requests)
        beside = {name: load(server.port, requests, n, n_requests) for name, server in baselines.items()}
        second = load(ours.port, requests, n, n_requests)
        for name, measured in (("ours", first), ("ours", second), *beside.items()):
            found[n].note(name, measured)
        found[n].ratios.append((first.rate + second.rate) / 2 / beside["bare ASGI"].rate)
    return found


def measure_mutations(ours: Server, peer: Server, data: Samples, sizes: Sizes) -> dict[tuple[str, int], Measured]:
    """Times of deletions and additions, by route and number of connections; the samples held are the same again."""
    half = sizes.n_mutations
    parts = (range(half), range(half, 2 * half))
    found: dict[tuple[str, int], Measured] = {}
    for _, n in itertools.product(range(sizes.rounds), CONNECTIONS):
        for route, make in (("DELETE /samples/{id}", data.deletions), ("POST /samples", data.additions)):
            measured = found.setdefault((route, n), Measured())
            first, second = (make(part) for part in parts)
            before = load(ours.port, first, n, half)
            beside = load(peer.port, first, n, half)
            after = load(ours.port, second, n, half)
            for name, one in (("ours", before), ("ours", after), ("FastAPI", beside)):
                measured.note(name, one)
            measured.ratios.append((before.p50 + after.p50) / 2 / beside.p50)
            ours.wait_until_quiet()
    return found


def compare_clients(server: Server, data: Samples, sizes: Sizes) -> list[Row]:
    """The rate of one server by either client; nothing where there is no wrk."""
    if not wrk.is_installed():
        return []
    requests = data.predictions()
    rows = []
    for n in CONNECTIONS:
        n_requests = sizes.n_requests if n > 1 else sizes.n_requests // 4
        own, other = [], []
        for _ in range(sizes.rounds):
            own.append(load(server.port, requests, n, n_requests).rate)
            other.append(wrk.load(server.port, requests, n, sizes.wrk_seconds).rate)
        ratio = median(np.array(own) / np.array(other))
        rows.append(Row((str(n), shown(median(own)), shown(median(other))), ratio))
    return rows


def rate_rows(data: Samples, setting: str, found: dict[int, Measured]) -> list[Row]:
    """The rows of the table of rates."""
    mark = at_least(0.6) if setting == "fast" else None
    return [
        Row(
            (data.name, setting, str(n), *(shown(measured.rate(name)) for name in ("ours", *BASELINES))),
            median(measured.ratios),
            mark,
        )
        for n, measured in found.items()
    ]


def time_rows(route: str, data: Samples, setting: str, n: int, measured: Measured, limit: float) -> Row:
    """A row of the table of times."""
    ours, ours_p99 = (measured.microseconds("ours", which) for which in ("p50", "p99"))
    peer = measured.microseconds("FastAPI", "p50")
    cells = (route, data.name, setting, str(n), shown(ours), shown(ours_p99), shown(peer))
    return Row(cells, ours / peer, at_most(limit) if setting == "fast" else None)


def run(cache: Path, sizes: Sizes) -> dict[str, tuple[str, str, str]]:
    """Measure everything; return title, text and table of each section by its name."""
    rates: list[Row] = []
    times: list[Row] = []
    with ExitStack() as stack:
        baselines = {
            name: stack.enter_context(serving(name, ["benchmarks.serving.baselines", kind, "{port}"]))
            for name, kind in BASELINES.items()
        }
        run_here()
        problems = (higgs_csv(cache, sizes.n_rows), adult())
        for data, setting in itertools.product(problems, SETTINGS):
            with serving("ours", command(data, setting)) as ours:
                ours.wait_until_quiet()
                found = measure_predictions(ours, baselines, data, sizes)
                rates += rate_rows(data, setting, found)
                times += [time_rows("POST /predict", data, setting, n, one, 1.0) for n, one in found.items()]
                mutations = measure_mutations(ours, baselines["FastAPI"], data, sizes)
                times += [time_rows(route, data, setting, n, one, 2.0) for (route, n), one in mutations.items()]
        clients = compare_clients(baselines["bare ASGI"], problems[0], sizes)
    median_of = f"Median of {sizes.rounds} rounds."
    sections = {
        "http-rates": (RATES_TITLE, f"{RATES_TEXT} {median_of}", table(RATES_HEAD, rates)),
        "http-times": (
            TIMES_TITLE,
            f"{TIMES_TEXT} {median_of}",
            table(TIMES_HEAD, sorted(times, key=lambda row: row.cells[0])),
        ),
    }
    if clients:
        sections["http-clients"] = (CLIENTS_TITLE, f"{CLIENTS_TEXT} {median_of}", table(CLIENTS_HEAD, clients))
    return sections


def run_few(sizes: Sizes) -> dict[str, tuple[str, str, str]]:
    """Measure changes of some samples; as `run`."""
    data = adult()
    with serving("ours", command(data, "defaults")) as ours:
        return {"http-few-samples": few.section(ours, data, sizes.few, sizes.rounds)}


def main(arguments: Sequence[str] | None = None) -> None:
    """Run, print the tables, and write them when asked."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--cache", type=Path, default=higgs_like.CACHE, help="keeps the data that are generated")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--quick", action="store_true", help="little data, two rounds: whether it works")
    parser.add_argument("--few", action="store_true", help="changes of some samples alone")
    parser.add_argument("--write-results", action="store_true")
    options = parser.parse_args(arguments)
    sizes = Sizes(N_HIGGS, options.rounds, 20_000, 1_000, 3)
    if options.quick:
        sizes = Sizes(2_000, 2, 1_000, 100, 1, (1, 12, 100))
    found = {} if options.few else run(options.cache, sizes)
    write_report({**found, **run_few(sizes)}, write=options.write_results)


if __name__ == "__main__":
    main()
