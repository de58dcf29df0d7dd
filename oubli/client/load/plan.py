"""What is asked of a load test."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
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

    def to_json(self) -> dict[str, Any]:
        """Return something that JSON can hold."""
        return {**asdict(self), "mix": dict(self.mix)}

    @classmethod
    def from_json(cls, content: dict[str, Any]) -> Plan:
        """Return what `to_json` was called on."""
        return cls(**{**content, "steps": tuple(Step(**step) for step in content["steps"])})


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
