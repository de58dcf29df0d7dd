"""Two servers of different commits beside each other, measured in turn by one client.

Both run at the same time on one core, and a pair of measurements takes seconds: what the machine does in the meantime
meets both. That makes intervals several times narrower than those of scripts that run one after the other.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path

from benchmarks.problems import SETTINGS
from benchmarks.serving.client import Load, load
from benchmarks.serving.samples import Samples, adult, command, higgs_csv
from benchmarks.serving.servers import Server, run_here, serving

CONNECTIONS = (1, 16)
PROBLEMS = ("higgs-like", "adult-native")
N_ROWS = 50_000  # enough for trees as deep as any, and soon trained


def _routes(data: Samples, n_mutations: int) -> dict[str, Sequence[bytes]]:
    """Requests by route; after the additions the samples are the same again."""
    indices = range(n_mutations)
    return {
        "POST /predict": data.predictions(),
        "DELETE /samples/{id}": data.deletions(indices),
        "POST /samples": data.additions(indices),
    }


def measure(
    folders: tuple[Path, Path],
    cache: Path,
    rounds: int,
    *,
    is_quick: bool = False,
    problems: Sequence[str] = PROBLEMS,
) -> Iterator[tuple[str, str, tuple[Load, Load]]]:
    """Yield a route, a row (data, setting, connections), and what both sides gave, for each round.

    Parameters
    ----------
    folders
        The checkouts, each with its own environment, before and after.
    cache
        Keeps the data that are generated.
    rounds
        How often each question is asked; the side that goes first changes every time.
    is_quick
        Few rows and requests: whether it works.
    problems
        Names of the data that are served.
    """
    n_predictions, n_mutations = (400, 100) if is_quick else (8_000, 1_500)
    known = {"higgs-like": lambda: higgs_csv(cache, 2_000 if is_quick else N_ROWS), "adult-native": adult}
    for data, setting in itertools.product((known[name]() for name in problems), SETTINGS):
        with ExitStack() as stack:
            started = [
                stack.enter_context(serving(str(folder), command(data, setting), folder=folder)) for folder in folders
            ]
            run_here()
            for number, n in itertools.product(range(rounds), CONNECTIONS):
                for route, requests in _routes(data, n_mutations).items():
                    n_requests = n_predictions if route == "POST /predict" else n_mutations
                    before, after = _pair(started, requests, n, n_requests, after_first=number % 2 == 1)
                    yield route, f"{data.name}, {setting}, {n}", (before, after)


def _pair(
    servers: Sequence[Server], requests: Sequence[bytes], n: int, n_requests: int, *, after_first: bool
) -> tuple[Load, Load]:
    found = {}
    for side in (1, 0) if after_first else (0, 1):
        found[side] = load(servers[side].port, requests, n, n_requests)
        servers[side].wait_until_quiet()
    return found[0], found[1]
