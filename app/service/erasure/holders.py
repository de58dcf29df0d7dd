"""Everything besides the model, its files and its journal that may hold something of a sample.

    keeps     results that stay until they are asked for: they are forgotten
    holds     work in progress on samples from before: it is waited for, and ended when it takes too long

Whatever finishes an erasure (a snapshot, a scrub, a restore) calls `rid` before the receipt says `erased`. `KINDS` is
the list of all holders; a holder that is not on it cannot be registered.

An erasure and a hold are compared by their periods. A period ends when the model's freed memory is overwritten: what
begins after that cannot hold what was unlearned before it.

Numbers in the results of jobs that depend on every sample: digests, scores, distances.

A person who has all other samples could test guesses about an erased one against such a number: only the right guess
gives it again. So a result that is kept loses them before an erasure says `erased`.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Protocol

from oubli.app.errors import SupersededError
from oubli.app.service.model.state import ModelState
from oubli.app.threads import pause

KINDS: dict[str, str] = {
    "rankings": "Rankings that influence jobs have made; they name samples. Forgotten.",
    "bundles": "Bundles of what is held about a subject, kept until somebody asks for them: forgotten. Those that are "
    "being made: ended.",
    "influence": "Questions about influence: the instances given, and a copy or a view of the model. Ended.",
    "without": "The copy of the model that unlearns samples to say what it would predict without them, and the "
    "instances given. Waited for; when that takes long its answer is dropped.",
    "comparisons": "What such jobs have found. Forgotten.",
    "score": "The samples that a fit is scored on, and the models fitted on parts of them. Waited for, and ended.",
    "verify": "The copy of the model that is compared with a fresh fit. Waited for; when that takes long it is ended, "
    "and has to be asked for again.",
    "states": "The copy of the model whose digest, or those of its trees, are asked for. Waited for.",
    "fingerprints": "Digests, scores and distances in the results of jobs: anyone who has all other samples can test "
    "guesses against them. Forgotten.",
    "events": "The digest of the snapshot that listeners were told of last. Forgotten.",
    "set": "The tree over the samples held, with a hash of each, and the names of samples that have changed since it "
    "was brought up to date: that is done at once.",
    "fit": "The samples that another model is fitted on, and the changes to be made on it. Waited for, and until it "
    "has ended an erasure that came meanwhile is not begun to be finished.",
    "records": "Records that a node which follows has read: it lets go of each when it is taken in, so that where a "
    "segment begins none from before is left. What opens earlier ones is forgotten.",
    "idempotency": "The ledger's records of requests with an `Idempotency-Key`: the keyed hash of a body that named "
    "the sample confirms guesses about its values. Destroyed with the older files; see `idempotency`.",
    "joins": "Files that a node downloads from the one that leads, before it serves anything. Removed when the "
    "join fails, or at the next start; the node is a member that has erased nothing until it has them.",
    "uploads": "Files that are being uploaded or restored; an older one holds what was erased since. Ended.",
    "downloads": "Snapshot files that are being sent, open although they are removed. Ended.",
    "connections": "The last request of a connection that waits for the next, which is forgotten; requests and "
    "answers in flight, which are waited for; those that the client leaves lying, which are ended. Of a prediction in "
    "bulk the rows that had arrived are waited for, and the rest continues.",
}
"""What may hold something of a sample, and what becomes of it before an erasure says `erased`."""

_LOOK = 0.05  # seconds between two looks at what is in flight


class InFlight(Protocol):
    """Work in progress, seen from outside."""

    @property
    def is_over(self) -> bool:
        """Whether it has ended."""

    def end(self) -> None:
        """End it, if that is possible."""


@dataclass(eq=False, repr=False, slots=True)
class Hold:
    """Work that may hold samples; `with` lets go of it. It belongs to the event loop.

    Attributes
    ----------
    kind
        A key of `KINDS`.
    period
        In which it began.
    is_served_next
        Whether what it makes is going to be the live model.
    is_ended
        Whether it was told to end, because samples that it may hold were erased.
    """

    _holders: Holders
    kind: str
    _end: Callable[[], object] | None
    is_served_next: bool
    period: int
    is_ended: bool = field(default=False, init=False)

    def end(self) -> None:
        """Tell the work to end."""
        if not self.is_ended:
            self.is_ended = True
            if self._end is not None:
                self._end()

    def require(self) -> None:
        """Raise `SupersededError` when the work must hold nothing any more."""
        if self.is_ended:
            raise SupersededError("samples were erased meanwhile, which this may have held: ask again")

    def let_go(self) -> None:
        """Say that nothing is held any more; calling it again does nothing."""
        self._end = None
        self._holders.release(self)

    def __enter__(self) -> Hold:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.let_go()


class Holders:
    """The registry of all that may hold something of a sample. It belongs to the event loop.

    Parameters
    ----------
    state
        Counts the periods.
    """

    def __init__(self, state: ModelState) -> None:
        self._state = state
        self._holds: set[Hold] = set()
        self._forget: dict[str, Callable[[int], None]] = {}
        self._in_flight: list[Callable[[], Iterable[InFlight]]] = []
        self._changed = asyncio.Event()

    @property
    def period(self) -> int:
        """The present period."""
        return self._state.period

    def register(
        self, kind: str, forget: Callable[[int], None], in_flight: Callable[[], Iterable[InFlight]] | None = None
    ) -> None:
        """Register what keeps something.

        Parameters
        ----------
        kind
            A key of `KINDS`.
        forget
            Forgets what was made in a period or before it.
        in_flight
            Returns the work in progress that may hold samples.
        """
        _require_known(kind)
        self._forget[kind] = forget
        if in_flight is not None:
            self._in_flight.append(in_flight)

    def hold(self, kind: str, end: Callable[[], object] | None = None, *, is_served_next: bool = False) -> Hold:
        """Register work that may hold samples from now on; it must let go at its end, whatever happens.

        Parameters
        ----------
        kind
            A key of `KINDS`.
        end
            Ends it; None when it can only be waited for.
        is_served_next
            See `Hold`.
        """
        _require_known(kind)
        hold = Hold(self, kind, end, is_served_next, self.period)
        self._holds.add(hold)
        return hold

    @property
    def delayed_from(self) -> float:
        """The first period whose erasures have to wait, because a model is being made that is going to be served."""
        return min((hold.period for hold in self._holds if hold.is_served_next), default=math.inf)

    async def rid(self, period: int, patience: float) -> None:
        """Forget what is kept from a period and before, and return when nothing holds anything of it.

        Parameters
        ----------
        period
            The last one.
        patience
            Seconds after which work in progress is ended.
        """
        self._forget_until(period)
        end_at = time.monotonic() + patience
        in_flight = [one for look in self._in_flight for one in look()]
        while True:
            holds = [hold for hold in self._holds if hold.period <= period]
            in_flight = [one for one in in_flight if not one.is_over]
            if not holds and not in_flight:
                break
            left = end_at - time.monotonic()
            if left <= 0:
                for hold in holds:
                    hold.end()
                for one in in_flight:
                    one.end()
            self._changed.clear()
            await pause(self._changed, _LOOK if in_flight else max(left, _LOOK))  # until a hold was let go
        self._forget_until(period)  # what had begun before may have been kept at its end

    def is_rid(self, period: int) -> bool:
        """Forget what is kept from a period and before; whether nothing else holds anything of it."""
        self._forget_until(period)
        if any(hold.period <= period for hold in self._holds):
            return False
        return all(one.is_over for look in self._in_flight for one in look())

    def _forget_until(self, period: int) -> None:
        for forget in self._forget.values():
            forget(period)

    def release(self, hold: Hold) -> None:
        """Note that work holds nothing any more; see `Hold.let_go`."""
        self._holds.discard(hold)
        self._changed.set()


def _require_known(kind: str) -> None:
    if kind not in KINDS:
        raise ValueError(f"{kind!r} is not in `KINDS`: say there what it holds and what becomes of it")


_MOST_KEPT = 200  # results; a job board keeps fewer


class Fingerprints:
    """The results that hold such numbers. It belongs to the event loop.

    Parameters
    ----------
    holders
        The registry.
    """

    def __init__(self, holders: Holders) -> None:
        self._kept: deque[tuple[int, dict[str, Any], Sequence[str]]] = deque(maxlen=_MOST_KEPT)
        self._forgotten = -1  # all of this period and before it
        holders.register("fingerprints", self._forget)

    def keep(self, period: int, result: dict[str, Any], names: Sequence[str]) -> None:
        """Take in the result of a job.

        Parameters
        ----------
        period
            In which the samples were read, or one before.
        result
            Of the job. Its numbers are set to None when they are to be forgotten.
        names
            Of the numbers, as far as the result has them.
        """
        self._kept.append((period, result, names))
        self._forget(self._forgotten)

    def _forget(self, period: int) -> None:
        self._forgotten = max(period, self._forgotten)
        for made, result, names in self._kept:
            if made <= period:
                result.update(dict.fromkeys(result.keys() & names))
        self._kept = deque((one for one in self._kept if one[0] > period), _MOST_KEPT)
