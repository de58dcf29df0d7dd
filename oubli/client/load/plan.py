"""Plans of load tests: steps, the mix of operations, and the conditions that fail a test."""

from __future__ import annotations

import operator
import random
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

PREDICT, ADD, DELETE = OPERATIONS = ("predict", "add", "delete")
READ = "read back"  # what is read to check promises; no operation of a mix
_DECK = 10_000  # requests after which the shares of a mix are exact


class LoadTestError(Exception):
    """A load test cannot be done as asked, or not to its end; the text is for a person."""


@dataclass(frozen=True)
class Step:
    """A stretch of time with one load.

    Attributes
    ----------
    rate
        Open loop: requests a second, sent when they are due, whatever the server does. None for a closed loop.
    connections
        Closed loop: requests at any time; each connection sends the next when the answer is there. Open loop: most
        requests at any time; those that are due when all connections are busy wait, and their time counts.
    seconds
        How long requests are sent.
    is_warm_up
        Whether its measurements are left out.
    """

    rate: float | None
    connections: int
    seconds: float
    is_warm_up: bool = False

    def __str__(self) -> str:
        """The load in words."""
        load = f"{self.connections} connections" if self.rate is None else f"{self.rate:g} requests/s"
        return f"warm-up, {load}" if self.is_warm_up else load


@dataclass(frozen=True)
class Plan:
    """A whole load test.

    Attributes
    ----------
    steps
        One after the other.
    mix
        Share of each operation; they need not add up to anything.
    n_processes
        Processes that send.
    timeout
        Seconds after which a request is given up and its connection closed. A server that no connection can be made
        to for as long is taken for gone.
    seed
        Of the order of operations and of rows that are made up.
    """

    steps: tuple[Step, ...]
    mix: Mapping[str, float]
    n_processes: int = 1
    timeout: float = 10.0
    seed: int = 0

    def __post_init__(self) -> None:
        """Refuse what cannot be done."""
        if not self.steps:
            raise LoadTestError("there is nothing to do: ask for a rate or a number of connections")
        for step in self.steps:
            if step.connections < self.n_processes:
                raise LoadTestError(
                    f"{step.connections} connections cannot be shared by {self.n_processes} processes: "
                    "ask for more connections or fewer processes"
                )

    @property
    def changes(self) -> bool:
        """Whether samples are added."""
        return self.mix.get(ADD, 0) > 0 or self.mix.get(DELETE, 0) > 0


@dataclass(frozen=True)
class Task:
    """What all workers of a load test do.

    Attributes
    ----------
    url, key, ca_file
        Of the target.
    plan
        What is done.
    subject
        Of all samples that are added.
    rows
        Features to predict.
    samples
        Features and labels to add.
    may_read
        Whether samples can be read back.
    """

    url: str
    key: str | None
    ca_file: Path | None
    plan: Plan
    subject: str
    rows: list[list[Any]]
    samples: list[tuple[list[Any], Any]]
    may_read: bool


def read_mix(text: str) -> dict[str, float]:
    """Read shares of operations, as in ``predict=90,add=5,delete=5``.

    Raises
    ------
    LoadTestError
        When that is not what the text is.
    """
    mix: dict[str, float] = {}
    for part in text.split(","):
        name, _, share = (word.strip() for word in part.partition("="))
        try:
            mix[name] = float(share)
        except ValueError:
            mix[name] = -1.0
        if name not in OPERATIONS or not 0 <= mix[name] < float("inf"):
            raise LoadTestError(
                f"the mix {text!r} cannot be read: write shares of {', '.join(OPERATIONS)}, "
                "as in predict=90,add=5,delete=5"
            )
    if not sum(mix.values()):
        raise LoadTestError(f"the mix {text!r} has no operation: give one of them a share above 0")
    return mix


def deck(mix: Mapping[str, float], seed: int) -> list[str]:
    """Return operations in random order with the shares of a mix, to be repeated."""
    total = sum(mix.values())
    ends = [round(_DECK * sum(list(mix.values())[: i + 1]) / total) for i in range(len(mix))]
    starts = [0, *ends[:-1]]
    cards = [name for name, start, end in zip(mix, starts, ends, strict=True) for _ in range(end - start)]
    random.Random(seed).shuffle(cards)  # noqa: S311 - an order, no secret
    return cards


def share_of(total: int, worker: int, n_workers: int) -> int:
    """How many of some connections a worker has."""
    return total // n_workers + (worker < total % n_workers)


def due_time(begin: float, rate: float, i: int, worker: int, n_workers: int) -> float:
    """When a worker's i-th request is due: the requests of all workers together are evenly spaced."""
    return begin + (i * n_workers + worker) / rate


def steps_of(
    rates: Sequence[float], concurrencies: Sequence[int], *, connections: int, seconds: float, warm_up: float
) -> tuple[Step, ...]:
    """Return a step for each rate or each number of connections, and a warm-up with the load of the first."""
    if rates and concurrencies:
        raise LoadTestError("a load has either rates (open loop) or a concurrency (closed loop): give one of them")
    steps = [Step(rate, connections, seconds) for rate in rates] or [Step(None, n, seconds) for n in concurrencies]
    if warm_up > 0 and steps:
        steps.insert(0, Step(steps[0].rate, steps[0].connections, warm_up, is_warm_up=True))
    return tuple(steps)


_FORM = re.compile(
    rf"\s*(?:(?P<operation>{'|'.join(OPERATIONS)}|all)\s*\.)?\s*(?P<figure>p\d+(?:\.\d+)?|max|mean|rate|errors|refused)"
    r"\s*(?P<sign>>=|<=|>|<)\s*(?P<limit>\d+(?:\.\d+)?)\s*(?P<unit>us|ms|s|%)?\s*"
)
_SIGNS = {">": operator.gt, ">=": operator.ge, "<": operator.lt, "<=": operator.le}
_UNITS = {"us": 1e-3, "ms": 1.0, "s": 1e3}
_COUNTS = ("errors", "refused")


@dataclass(frozen=True)
class Threshold:
    """A condition that fails a test.

    Attributes
    ----------
    text
        As it was written.
    operation
        Whose figure it is about; `all` for all of the mix together.
    figure
        A percentile such as `p99.9`, `max` or `mean` (times), `rate` (successes a second), `errors` or `refused`.
    sign, limit, unit
        The test fails when the figure compares so. Times have a unit; a `%` is of all requests.
    """

    text: str
    operation: str
    figure: str
    sign: str
    limit: float
    unit: str

    def value(self, step: dict[str, Any]) -> float | None:
        """The figure in a step's report; None when there is none."""
        found = step["operations"].get(self.operation)
        if found is None:
            return None
        if self.figure in _COUNTS:
            count: int = found[self.figure]
            return 100 * count / max(1, found["requests"]) if self.unit == "%" else count
        if self.figure == "rate":
            return float(found["rate"])
        times = found["latency_ms"]
        return None if times is None else float(times[self.figure])

    def fails(self, step: dict[str, Any]) -> bool:
        """Whether a step's report meets the condition; one without the figure does, as nothing proves the contrary."""
        value = self.value(step)
        return value is None or bool(_SIGNS[self.sign](value, self.limit * _UNITS.get(self.unit, 1.0)))


def read_threshold(text: str, mix: Iterable[str]) -> Threshold:
    """Read a condition.

    Parameters
    ----------
    text
        An operation and a point, or nothing for all; a figure, a sign, a number with its unit.
    mix
        Operations that there are.

    Raises
    ------
    LoadTestError
        When it cannot be read, or has no meaning.
    """
    form = _FORM.fullmatch(text)
    if form is None:
        raise LoadTestError(
            f"the condition {text!r} cannot be read: write one such as predict.p99>5ms, errors>0 or all.rate<1000"
        )
    operation, figure, unit = form["operation"] or "all", form["figure"], form["unit"] or ""
    if operation not in {*mix, "all"}:
        raise LoadTestError(f"the condition {text!r} is about {operation}, which the mix does not have")
    is_time = figure not in {"rate", *_COUNTS}
    if is_time != (unit in _UNITS) or (unit == "%" and figure not in _COUNTS):
        allowed = "us, ms or s" if is_time else "%, or no unit" if figure in _COUNTS else "no unit"
        raise LoadTestError(f"the condition {text!r} has the wrong unit: {figure} takes {allowed}")
    if figure.startswith("p") and not 0 < float(figure[1:]) <= 100:
        raise LoadTestError(f"the condition {text!r} names a percentile that there is not")
    return Threshold(text, operation, figure, form["sign"], float(form["limit"]), unit)


def percents(thresholds: Sequence[Threshold]) -> list[float]:
    """The percentiles that conditions are about."""
    return [float(one.figure[1:]) for one in thresholds if one.figure.startswith("p")]
