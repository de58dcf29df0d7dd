"""The latency of queries when adds and deletes come between: 1 add, 1 delete, 2 queries, over and over."""

from __future__ import annotations

import time
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import numpy.typing as npt

from benchmarks.operations.mutations import deletes_of
from benchmarks.problems import Problem
from benchmarks.results import Mark, Row, at_most, shown
from benchmarks.timing import median, rounds_of
from oubli.app.service.model.live import IDLE_TAGS_AT_ONCE, TagSlices
from oubli.core import DynamicForestClassifier

if TYPE_CHECKING:
    from oubli.core.model import Model

IDLE_SECONDS = 0.010
TITLE = "Stream of 1 add, 1 delete, 2 queries"
TEXT = (
    "Wall time of a one-row `predict_proba` in a stream of delete, query, add, query. Samples, new rows and queries "
    "are random. *Untagged us* is the mean of the same queries when no work is deferred, measured before in the same "
    "round; *times untagged* is the multiple of it. *With idle time*: each request comes "
    f"{1e3 * IDLE_SECONDS:g} ms after the last answer, and the deferred work is done during that time in the "
    f"service's slices of {IDLE_TAGS_AT_ONCE} tags; the part of a slice that runs past the arrival counts as "
    "the query's. *CPU times untagged* is the same by the clock of CPU time, which does not see what else the "
    "machine does. Medians of the rounds."
)
HEAD = (
    "data:",
    "setting:",
    "stream:",
    "rounds",
    "queries",
    "figure:",
    "untagged us",
    "us",
    "CPU times untagged",
    "times untagged",
)
MARKS: dict[tuple[str, str], Mark] = {
    ("back to back", "mean"): at_most(10),
    ("back to back", "p99"): at_most(100),
    ("with idle time", "p99"): at_most(20),
}


WALL, CPU = range(2)
Times = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Waits:
    """Wall and CPU seconds: of the untagged query on average (2,), and of each query of the stream (n, 2)."""

    untagged: Times
    queries: Times

    def seconds(self, figure: str, clock: int = WALL) -> float:
        """The mean or the 99th percentile of the stream's queries."""
        values = self.queries[:, clock]
        return float(values.mean() if figure == "mean" else np.quantile(values, 0.99))

    def times(self, figure: str, clock: int = WALL) -> float:
        """A figure of the stream's queries as a multiple of the untagged one, by the same clock."""
        return self.seconds(figure, clock) / float(self.untagged[clock])


def measure(
    problem: Problem, forest: DynamicForestClassifier, n_cycles: int, rounds: int, budget: float, *, idle: bool
) -> list[Waits]:
    """Run the stream on copies of the model, or fewer rounds when they take more than `budget` CPU seconds."""
    forest.resolve()
    return rounds_of(lambda seed: _round(problem, forest.copy(), n_cycles, seed, idle), rounds, budget)


def _round(problem: Problem, forest: DynamicForestClassifier, n_cycles: int, seed: int, idle: bool) -> Waits:
    random = np.random.default_rng(seed)
    n_test = len(problem.y_test)
    deletes = deletes_of(forest, random.choice(len(problem.y), n_cycles, replace=False))
    new = random.integers(0, n_test, n_cycles)
    adds = [
        partial(forest.add, row, problem.y_test[i : i + 1])
        for row, i in zip(problem.queries(new), new.tolist(), strict=True)
    ]
    queries = problem.queries(random.integers(0, n_test, 2 * n_cycles))
    rest = Idleness(forest) if idle else None
    untagged = np.mean([_ask(forest, query) for query in queries], axis=0)
    waited = []
    for cycle in range(n_cycles):
        for mutate, query in ((deletes[cycle], queries[2 * cycle]), (adds[cycle], queries[2 * cycle + 1])):
            if rest is not None:
                rest.until_next_request()
            mutate()
            late = rest.until_next_request() if rest is not None else (0.0, 0.0)
            waited.append(np.add(late, _ask(forest, query)))
    return Waits(untagged, np.array(waited))


def _ask(forest: DynamicForestClassifier, query: Any) -> tuple[float, float]:
    """Wall and CPU seconds of a query."""
    cpu, wall = time.process_time(), time.perf_counter()
    forest.predict_proba(query)
    return time.perf_counter() - wall, time.process_time() - cpu


class Idleness:
    """The time between requests, in which tags are resolved as the service does it."""

    def __init__(self, forest: DynamicForestClassifier) -> None:
        self._forest = forest
        self._slices = TagSlices(IDLE_TAGS_AT_ONCE, lambda n_tags: None)

    def until_next_request(self) -> tuple[float, float]:
        """Resolve slice by slice until the next request comes.

        When no tags are left the rest of the time is skipped: nothing would happen in it.

        Returns
        -------
        (wall, CPU)
            Seconds for which the last slice keeps the request waiting.
        """
        arrival = time.perf_counter() + IDLE_SECONDS
        while self._forest.n_lazy_tags_ > 0:
            cpu = time.process_time()
            self._slices.step(cast("Model", self._forest))
            late = time.perf_counter() - arrival
            if late >= 0:
                return late, min(late, time.process_time() - cpu)
        return 0.0, 0.0


def rows(problem: Problem, setting: str, stream: str, found: list[Waits]) -> list[Row]:
    """Mean and 99th percentile of a stream, `back to back` or `with idle time`."""
    n_queries = len(found[0].queries)
    untagged = 1e6 * median(float(waits.untagged[WALL]) for waits in found)
    return [
        Row(
            (
                problem.name,
                setting,
                stream,
                str(len(found)),
                f"{n_queries:,}",
                figure,
                f"{untagged:.1f}",
                f"{1e6 * median(waits.seconds(figure) for waits in found):.1f}",
                shown(median(waits.times(figure, CPU) for waits in found)),
            ),
            median(waits.times(figure) for waits in found),
            MARKS.get((stream, figure)) if setting == "fast" else None,
        )
        for figure in ("mean", "p99")
    ]
