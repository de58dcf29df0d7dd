"""Tells others of the states of receipts: what waits in the ledger's queue is sent, in order, until it has arrived.

    journal -> queue in the ledger's file -> Courier, one a target -> attempt -> arrived: noted in the journal
                                                 ^                 -> failed:  again later, in the end given up
                                                 +-----------------------+

The states of one receipt are sent one after the other, the next when it is noted that the one before has arrived. A
receipt whose delivery fails holds up no other. A target that does not answer is tried after longer and longer pauses,
and gets everything when it is back. What is not known for sure to have arrived is sent again: a receiver may get a
message twice, and knows it by the id.

An attempt takes the event loop a fraction of a millisecond. It waits for a moment without requests; while
there is none, only a few are made each second, so that predictions do not wait for them.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from random import SystemRandom
from typing import NamedTuple, Protocol

import orjson

from oubli.app.errors import JournalError, NoLetterError, ServiceError
from oubli.app.ledger.deliveries import Counts, Delivery
from oubli.app.ledger.entries import DeliveryNotes, delivery_notes
from oubli.app.ledger.ledger import LedgerWorker
from oubli.app.logs import cause_of
from oubli.app.outgoing.addresses import Endpoint
from oubli.app.outgoing.sender import Outcome, Sender, WebhookSigner
from oubli.app.service.evidence.receipts import Deadline
from oubli.app.service.model.state import ModelState
from oubli.app.threads import Threads, pause
from oubli.app.times import Clock

log = logging.getLogger("oubli.service")

WEBHOOK = "webhook"
"""The target of webhooks; all others are URLs."""

Note = Callable[[Callable[[], bytes]], Awaitable[None]]
Pause = Callable[[asyncio.Event, float | None], Awaitable[None]]
"""Waits until an event is set, or for some seconds."""

_FIRST_RETRY, _GROWTH, _LONGEST_RETRY = 5.0, 4, 6 * 3600.0  # seconds, of one receipt
_FIRST_PAUSE, _LONGEST_PAUSE = 1.0, 3600.0  # seconds, of a target that fails whatever it is sent
_SHORTEST_SHARE = 0.5  # of a delay that is left to chance
_LONGEST_REQUESTED = 86_400.0  # seconds for which a receiver can ask to be left alone
_DOWN = 3  # failures in a row after which it is the target that fails, not what it is sent
_GONE = 410
_PAGE = 256
_MOST_NOTED = 32  # arrivals in one record of the journal
_MOST_FAILING = 1000  # receipts of which attempts are remembered; with more of them, no further ones are begun
_PACE, _LOOK = 0.1, 0.01  # seconds between attempts of a server that is never idle, and between two looks whether it is
_RETRY_NOTES = 5.0  # seconds
_RANDOM = SystemRandom()


async def repeat(
    work: Callable[[], Awaitable[float | None]], bell: asyncio.Event, pause: Pause, failed: Callable[[str], object]
) -> None:
    """Do work until cancelled: when an event is set, and after as many seconds as it returns.

    Whatever it raises, it is done again. `failed` logs the cause once, until the work succeeds.
    """
    has_failed = False
    while True:
        bell.clear()
        try:
            seconds, has_failed = await work(), False
        except Exception as error:
            if not has_failed:
                failed(cause_of(error))
            seconds, has_failed = _RETRY_NOTES, True
        await pause(bell, seconds)


@dataclass(frozen=True, slots=True)
class Push:
    """What is sent to whom, as the settings say it.

    Attributes
    ----------
    sender
        Makes attempts.
    webhook
        Where webhooks go, and what signs them; None when there are none.
    give_up_after
        Seconds after a state was reached from which it is not told any more.
    pause
        Waits.
    """

    sender: Sender
    webhook: tuple[Endpoint, WebhookSigner] | None = None
    give_up_after: float = 3 * 86_400.0
    pause: Pause = pause

    @property
    def targets(self) -> tuple[str, ...]:
        """The targets that get the states of all receipts."""
        return () if self.webhook is None else (WEBHOOK,)


class Message(NamedTuple):
    """What is sent: headers besides those that every request has, and the body in JSON."""

    headers: Sequence[tuple[str, str]]
    body: bytes


class Channel(Protocol):
    """Makes the messages for one target.

    Attributes
    ----------
    target
        Its name in the queue.
    endpoint
        Where they go.
    """

    target: str
    endpoint: Endpoint

    async def message(self, delivery: Delivery) -> Message | None:
        """Return the message of a state, made for one attempt; None when nothing is known of it any more."""


class WebhookChannel:
    """Webhooks in the format of Standard Webhooks: id of the receipt, case number and state, and nothing else.

    Parameters
    ----------
    endpoint
        Where they go.
    signer
        Has the secrets.
    clock
        Tells the time of an attempt.
    """

    target = WEBHOOK

    def __init__(self, endpoint: Endpoint, signer: WebhookSigner, clock: Clock) -> None:
        self.endpoint = endpoint
        self._signer = signer
        self._clock = clock

    async def message(self, delivery: Delivery) -> Message:
        """Return the message of a state."""
        state = {"id": delivery.subject, "ref": delivery.ref, "status": delivery.state}
        body = orjson.dumps({"type": f"erasure.{delivery.state}", "data": state})
        message_id = f"{delivery.subject}-{delivery.state}"
        return Message(self._signer.headers(message_id, self._clock.latest_ms() / 1000, body), body)


class _Failing(NamedTuple):
    """A subject of which a target could not be told: how many attempts were made, and when the next is due."""

    attempts: int
    retry_ms: float


@dataclass(eq=False, repr=False)
class Courier:
    """Tells one target what it is to be told. It belongs to the event loop.

    Parameters
    ----------
    channel
        Makes the messages.
    sender
        Sends them.
    database
        Has the queue.
    note
        Writes notes to the journal; a caller that is cancelled does not cut it short.
    clock
        Tells the time.
    give_up_after
        See `Push`.
    is_idle
        Whether there are no requests at present.
    pause
        Waits.

    Attributes
    ----------
    n_delivered, n_failed
        Attempts since the start.
    counts
        What waits and what was given up, as of the last look.
    """

    _channel: Channel
    _sender: Sender
    _database: LedgerWorker
    _note: Note
    _clock: Clock
    _give_up_after: float
    _is_idle: Callable[[], bool]
    _pause: Pause = pause
    _bell: asyncio.Event = field(init=False)
    n_delivered: int = field(default=0, init=False)
    n_failed: int = field(default=0, init=False)
    counts: Counts = field(default=Counts(0, 0, None), init=False)
    _after: int = field(default=0, init=False)  # the last number that was read
    _page: deque[Delivery] = field(default_factory=deque, init=False)
    _failing: dict[str, _Failing] = field(default_factory=dict, init=False)
    _arrived: list[Delivery] = field(default_factory=list, init=False)  # and not noted yet
    _given_up: dict[str, str] = field(default_factory=dict, init=False)  # subjects and reasons, not noted yet
    _failures: int = field(default=0, init=False)  # in a row
    _is_through: bool = field(default=False, init=False)  # whether the last round ended because nothing was due
    _open_ms: float = field(default=0.0, init=False)  # when the target may be told something again

    def __post_init__(self) -> None:
        self._bell = self._database.bell()

    @property
    def target(self) -> str:
        """The name of the target in the queue."""
        return self._channel.target

    @property
    def _is_down(self) -> bool:
        """Whether it is the target that fails, so that whatever comes first shows when it is back."""
        return self._failures >= _DOWN

    async def run(self) -> None:
        """Tell what there is to tell, until cancelled."""

        async def tell() -> float | None:
            await self._round()
            return self._until_next()

        def failed(cause: str) -> None:
            log.error("deliveries to webhooks could not be noted, and it is tried again: %s", cause)

        await repeat(tell, self._bell, self._pause, failed)

    def try_again(self, subject: str) -> None:
        """Tell of a subject at once that was given up before."""
        self._put_off(subject, _Failing(0, self._now()))
        self._bell.set()

    async def note_arrivals(self) -> None:
        """Note in the journal what has arrived, and what is given up."""
        if not self._arrived and not self._given_up:
            return
        arrived, given_up = list(self._arrived), dict(self._given_up)
        notes = DeliveryNotes(
            self._clock.now_ms(),
            settled=[(one.target, one.subject, one.state) for one in arrived],
            dead=[(self.target, subject, reason) for subject, reason in given_up.items()],
        )
        await self._note(lambda: delivery_notes(notes))
        del self._arrived[: len(arrived)]
        for subject in given_up:
            self._given_up.pop(subject, None)

    async def _round(self) -> None:
        """Tell what is due now."""
        await self.note_arrivals()
        self._is_through = False
        while self._now() >= self._open_ms:
            delivery = await self._next()
            if delivery is None:
                self._is_through = True
                break
            try:
                await self._attempt(delivery)
            except Exception:  # it was taken from the page, which does not come again
                self._put_off(delivery.subject, self._failed_again(delivery.subject))
                raise
        await self.note_arrivals()
        self.counts = await self._database.read(lambda database: database.deliveries.counts(self.target))

    async def _next(self) -> Delivery | None:
        """Return what is sent next: what is due again, then what is new. None when nothing is."""
        now = self._now()
        for subject, failing in sorted(self._failing.items(), key=lambda item: item[1].retry_ms):
            if failing.retry_ms <= now or self._is_down:
                await self.note_arrivals()  # what has arrived is not in the queue any more then
                due = await self._due_of(subject)
                if due:
                    return due[0]
                self._failing.pop(subject, None)
        while not self._page:
            if not await self._read_on():
                return None
        if any(one.subject == self._page[0].subject for one in self._arrived):
            await self.note_arrivals()
        return self._page.popleft()

    async def _due_of(self, subject: str) -> list[Delivery]:
        return await self._database.read(lambda database: database.deliveries.due_of(self.target, subject))

    async def _read_on(self) -> bool:
        """Read on in the queue; whether there is more."""
        if len(self._failing) >= _MOST_FAILING:
            return False
        await self._quiet()
        found = await self._database.read(lambda database: database.deliveries.due(self.target, self._after, _PAGE))
        # What has failed, and what follows of it, is asked for when it is due again.
        self._page.extend(one for one in found if one.subject not in self._failing)
        if found:
            self._after = found[-1].number
        return bool(found)

    async def _attempt(self, delivery: Delivery) -> None:
        message = await self._channel.message(delivery)
        if message is None:
            self._give_up(delivery.subject, "unknown")
            return
        await self._quiet()
        outcome = await self._sender.post(self._channel.endpoint, message.headers, message.body)
        if outcome.failure is None:
            await self._succeeded(delivery)
        else:
            await self._failed(delivery, outcome)

    async def _succeeded(self, delivery: Delivery) -> None:
        now = self._now()
        self.n_delivered += 1
        self._arrived.append(delivery)
        if self._is_down:  # the others failed because the target did
            self._failing = {subject: _Failing(0, now) for subject in self._failing}
            log.info("deliveries arrive again after %d failures", self._failures)
        self._failures = 0
        if delivery.subject in self._failing:  # there may be more of it, which was passed over
            self._failing[delivery.subject] = _Failing(0, now)
        if len(self._arrived) >= _MOST_NOTED:
            await self.note_arrivals()

    async def _failed(self, delivery: Delivery, outcome: Outcome) -> None:
        now, subject = self._now(), delivery.subject
        reason = f"status-{outcome.status}" if outcome.failure == "status" else str(outcome.failure)
        self.n_failed += 1
        self._failures += 1
        log.debug("a delivery has failed (%s): it is tried again", reason)
        if self._failures == _DOWN:
            log.warning("deliveries fail (%s), %d in a row: they are tried again, less and less often", reason, _DOWN)
        requested = 1000 * min(outcome.retry_after, _LONGEST_REQUESTED)
        self._open_ms = now + max(requested, _delay_ms(_FIRST_PAUSE, 2, self._failures - 1, _LONGEST_PAUSE))
        attempts, retry_ms = self._failed_again(subject)
        left = delivery.at_ms + 1000 * self._give_up_after - self._clock.now_ms()
        # The last attempt is at the end.
        self._put_off(subject, _Failing(attempts, min(max(now + requested, retry_ms), now + left)))
        if outcome.status == _GONE or left <= 0:
            log.error("a delivery is given up (%s): GET /webhooks/dead-letters lists it", reason)
            self._give_up(subject, reason)
            await self.note_arrivals()

    def _failed_again(self, subject: str) -> _Failing:
        """Return what is remembered of a subject after one more attempt."""
        attempts = self._failing.get(subject, _Failing(0, 0)).attempts
        retry_ms = self._now() + _delay_ms(_FIRST_RETRY, _GROWTH, attempts, _LONGEST_RETRY)
        return _Failing(attempts + 1, retry_ms)

    def _give_up(self, subject: str, reason: str) -> None:
        """Give up a state of a subject, and those that follow it."""
        self._failing.pop(subject, None)
        self._given_up[subject] = reason
        self._drop_from_page(subject)

    def _put_off(self, subject: str, failing: _Failing) -> None:
        """Try a subject again later; what was read of it could be out of date by then."""
        self._failing[subject] = failing
        self._drop_from_page(subject)

    def _drop_from_page(self, subject: str) -> None:
        if any(one.subject == subject for one in self._page):
            self._page = deque(one for one in self._page if one.subject != subject)

    def _until_next(self) -> float | None:
        """Return for how many seconds there is nothing to do; None: until there is something new."""
        retries = [failing.retry_ms for failing in self._failing.values()]
        if not self._is_through or (self._is_down and retries):
            retries.append(self._open_ms)
        if not retries:
            return None
        return max(0.0, max(min(retries), self._open_ms) - self._now()) / 1000

    async def _quiet(self) -> None:
        """Return when there are no requests, or after a while."""
        end = time.monotonic() + _PACE
        while not self._is_idle() and time.monotonic() < end:  # noqa: ASYNC110 - time is what is waited for
            await asyncio.sleep(_LOOK)

    def _now(self) -> float:
        """The time that attempts go by; setting the clock does not change it."""
        return self._clock.steady_ms()


def _delay_ms(first: float, growth: int, n_before: int, longest: float) -> float:
    """Return a delay that grows, partly left to chance: many that failed together must not come again together."""
    seconds: float = min(longest, first * growth ** min(n_before, 20))
    return 1000 * seconds * _RANDOM.uniform(_SHORTEST_SHARE, 1)


@dataclass(eq=False, repr=False)
class Deliveries:
    """All couriers, and what was given up.

    Parameters
    ----------
    couriers
        One for each target.
    state, deadline
        Know which erasures are overdue.
    database
        Has the queue.
    note
        Takes notes to the journal; see `Courier`.
    threads
        Finish what was begun when the caller is gone.
    clock
        Tells the time.
    push
        What to send with; None: nothing is sent.
    """

    _couriers: Sequence[Courier]
    _state: ModelState
    _deadline: Deadline
    _database: LedgerWorker
    _note: Note
    _threads: Threads
    _clock: Clock
    _push: Push | None = None
    _told: set[str] = field(default_factory=set, init=False)
    _tasks: list[asyncio.Task[None]] = field(default_factory=list, init=False)
    _bell: asyncio.Event = field(init=False)

    def __post_init__(self) -> None:
        self._bell = self._database.bell()

    @property
    def counts(self) -> Counts:
        """What waits and what was given up, for all targets."""
        found = [courier.counts for courier in self._couriers]
        oldest = [one.oldest_ms for one in found if one.oldest_ms is not None]
        return Counts(sum(one.due for one in found), sum(one.dead for one in found), min(oldest, default=None))

    @property
    def n_delivered(self) -> int:
        """How many attempts have arrived since the start."""
        return sum(courier.n_delivered for courier in self._couriers)

    @property
    def n_failed(self) -> int:
        """How many attempts have failed since the start."""
        return sum(courier.n_failed for courier in self._couriers)

    def start(self) -> None:
        """Begin to tell, on the event loop."""
        loop = asyncio.get_running_loop()
        self._tasks = [loop.create_task(courier.run()) for courier in self._couriers]
        if self._push is not None and self._push.targets:
            self._tasks.append(loop.create_task(self._watch(self._push)))

    async def pause(self) -> None:
        """Send nothing, until `start` is called again."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._tasks = []

    async def stop(self) -> None:
        """Send nothing any more, and note what has arrived."""
        await self.pause()
        if self._push is not None:
            self._push.sender.close()
        for courier in self._couriers:
            with contextlib.suppress(JournalError, ServiceError):  # it is sent again
                await courier.note_arrivals()

    async def dead_letters(self, after: int, limit: int) -> list[Delivery]:
        """Return what was given up, in the order of the queue."""
        return await self._database.read(lambda database: database.deliveries.dead(after, limit))

    async def redeliver(self, subject: str) -> int:
        """Have what was given up of a receipt or a request tried again; return how many states that are.

        Raises
        ------
        NoLetterError
            When nothing of it was given up.
        """
        return await self._threads.finish(self._redeliver(subject))

    async def _redeliver(self, subject: str) -> int:
        found = await self._database.read(lambda database: database.deliveries.n_dead_of(subject))
        if not found:
            raise NoLetterError
        notes = DeliveryNotes(self._clock.now_ms(), revived=[subject])
        await self._note(lambda: delivery_notes(notes))
        for courier in self._couriers:
            courier.try_again(subject)
        return found

    async def _watch(self, push: Push) -> None:
        """Have it told when erasures become overdue, until cancelled."""

        async def tell() -> float | None:
            await self._tell_overdue(push.targets)
            return self._until_overdue()

        def failed(cause: str) -> None:
            log.error("overdue erasures could not be noted, and it is tried again: %s", cause)

        await repeat(tell, self._bell, push.pause, failed)

    async def _tell_overdue(self, targets: Sequence[str]) -> None:
        self._told.intersection_update(self._state.pending)
        overdue = [name for name in self._deadline.overdue() if name not in self._told]
        if overdue:
            notes = DeliveryNotes(self._clock.now_ms(), push=targets, overdue=overdue)
            await self._note(lambda: delivery_notes(notes))
            self._told.update(overdue)

    def _until_overdue(self) -> float | None:
        """Return after how many seconds the next erasure will be overdue; None when there is none that could be."""
        pending = self._state.pending
        since = next((pending[name].since_ms for name in pending if name not in self._told), None)
        return None if since is None else max(0, since + self._deadline.ms + 1 - self._clock.steady_ms()) / 1000
