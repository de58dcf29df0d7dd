"""Requests of OpenDSR: what a controller asks for a person, by an id that the controller gives it.

    erasure                  the samples are unlearned before the request is answered; its receipt tells how far it is
    access, portability      a bundle is made in the background, and kept until samples are erased

What is kept of a request identifies nobody: its id, its kind, a keyed hash of its body, and which of the callbacks in
the settings it has named. It is committed with what it asks for.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, cast

import orjson

from oubli.app.errors import NoRequestError, RepeatedRequestError, UncancellableError
from oubli.app.ledger.entries import DeliveryNotes, SubjectRequest, delivery_notes, with_request
from oubli.app.service.commands.deletions import DeleteSamples
from oubli.app.service.deliveries import Message
from oubli.app.service.opendsr import OPENDSR_PATH, Asked, Processor, Progress, status_content
from oubli.app.threads import Threads, pause

if TYPE_CHECKING:
    from oubli.app.ledger.deliveries import Delivery
    from oubli.app.ledger.ledger import Ledger, LedgerWorker
    from oubli.app.privacy.addresses import Endpoint
    from oubli.app.service.erasures import Deadline
    from oubli.app.service.export import Exporter
    from oubli.app.service.jobs import JobBoard
    from oubli.app.service.opendsr import Status
    from oubli.app.service.receipts import Receipts
    from oubli.app.service.writer import Writer
    from oubli.app.times import Clock

log = logging.getLogger("oubli.service")

_RETRY = 5.0  # seconds


@dataclass(eq=False, repr=False)
class SubjectRequests:
    """Takes requests, and knows how far they are. It belongs to the event loop.

    Parameters
    ----------
    processor
        What the settings say; None when OpenDSR is not set up.
    exporter
        Makes bundles.
    writer
        Commits.
    threads
        Have what was begun go on when whoever asked is gone.
    ledger, database, receipts
        The ledger.
    deadline
        Of erasures.
    clock
        Tells the time.
    jobs
        Make bundles.
    require_leading
        Raises `NotLeaderError` where another node takes them, which knows what it makes for them.
    """

    processor: Processor | None
    _exporter: Exporter
    _writer: Writer
    _threads: Threads
    _ledger: Ledger
    _database: LedgerWorker
    _receipts: Receipts
    _deadline: Deadline
    _clock: Clock
    _jobs: JobBoard
    _require_leading: Callable[[], object]
    _exports: dict[str, str] = field(default_factory=dict, init=False)  # jobs, by request
    _ended: dict[str, str] = field(default_factory=dict, init=False)  # how requests have ended, not noted yet
    _bell: asyncio.Event = field(default_factory=asyncio.Event, init=False)
    _one_at_a_time: asyncio.Lock = field(default_factory=asyncio.Lock, init=False)

    async def take(self, asked: Asked, caller: str = "") -> SubjectRequest:
        """Take a request; one that comes again is known by its id, and changes nothing.

        Parameters
        ----------
        asked
            The request.
        caller
            The id of the caller's key; empty when it has none.

        Raises
        ------
        RepeatedRequestError
            When the id was given to another request.
        """
        self._require_leading()
        # To the end also when the controller has gone: it comes again, and must not find half of it.
        return await self._threads.finish(self._take(asked, caller))

    async def _take(self, asked: Asked, caller: str) -> SubjectRequest:
        hashes = self._ledger.text_hashes(f"{OPENDSR_PATH}\0{hashlib.sha256(asked.body).hexdigest()}")
        request = SubjectRequest(
            asked.id, asked.kind, asked.regulation, hashes[0], self._clock.now_ms(), asked.callbacks
        )
        async with self._one_at_a_time:  # it could come twice at once
            earlier = await self._find(asked.id)
            if earlier is not None:
                if earlier.body not in hashes:
                    raise RepeatedRequestError
                return earlier
            if asked.kind == "erasure":
                command = DeleteSamples(asked.names, asked.by, asked.id, request=request, caller=caller)
                await self._writer.execute(command)
            else:
                await self._export(asked, request)
        return request

    async def progress(self, request_id: str) -> Progress:
        """Return how far a request is; raises `NoRequestError`."""
        self._require_leading()
        request = await self._find(request_id)
        if request is None:
            raise NoRequestError
        if request.receipt is not None:
            receipt = await self._receipts.get(request.receipt)
            return Progress(request, "completed" if receipt.status == "erased" else "in_progress")
        if request.state == "completed":
            job = self._jobs.get(self._exports.get(request_id, ""))
            result = {} if job is None or job.result is None else job.result
            bundle = self._exporter.kept(result.get("export", ""))
            if bundle is not None:
                return Progress(request, "completed", result["export"], len(bundle.samples))
            return Progress(request, "completed")
        is_begun = request.state == "open" and request_id in self._exports
        return Progress(request, "in_progress" if is_begun else "cancelled")

    async def cancel(self, request_id: str) -> SubjectRequest:
        """Cancel a request.

        Raises
        ------
        NoRequestError, UncancellableError
            When there is none, or it is not pending: erasures begin when they are asked for, and so do bundles.
        """
        found = await self.progress(request_id)
        if found.status != "cancelled":
            raise UncancellableError
        return found.request

    def expected_ms(self, request: SubjectRequest) -> int:
        """Return when a request will be fulfilled, in milliseconds since 1970."""
        return request.received_ms + self._deadline.ms

    async def _find(self, request_id: str) -> SubjectRequest | None:
        return await self._database.read(lambda database: database.deliveries.request(request_id))

    async def _export(self, asked: Asked, request: SubjectRequest) -> None:
        (subject,) = asked.names
        self._exports = {name: job for name, job in self._exports.items() if self._jobs.get(job) is not None}
        job = self._exporter.begin(subject)
        self._exports[asked.id] = job.id
        await self._writer.note(lambda: with_request(b"", request))
        self._threads.begin(self._watch(asked.id, job.id))

    async def _watch(self, request_id: str, job_id: str) -> None:
        """Have it noted what became of a bundle."""
        status = "queued"
        async for job in self._jobs.watch(job_id):
            status = job.status
        if status in ("succeeded", "failed"):  # or the server stops
            self._ended[request_id] = "completed" if status == "succeeded" else "cancelled"
            self._bell.set()

    async def run(self) -> None:
        """Note how requests have ended, until cancelled; first those whose bundle an earlier process has not made."""
        has_looked = is_told = False
        while True:
            self._bell.clear()
            seconds: float | None = None
            try:
                if not has_looked:
                    await self._end_abandoned()
                has_looked = True
                await self._note_ended()
                is_told = False
            except Exception as error:  # whatever it was: a controller waits to be told
                if not is_told:
                    log.error("the end of a request could not be noted (%s): it is tried again", type(error).__name__)
                is_told, seconds = True, _RETRY
            await pause(self._bell, seconds)

    async def _end_abandoned(self) -> None:
        """A bundle is in memory only: what was not made before the start never will be."""
        left = await self._database.read(lambda database: database.deliveries.open_requests())
        self._ended.update((one.id, "cancelled") for one in left if one.id not in self._exports)

    async def _note_ended(self) -> None:
        ended = dict(self._ended)
        if ended:
            notes = DeliveryNotes(self._clock.now_ms(), ended=list(ended.items()))
            await self._writer.note(lambda: delivery_notes(notes))
            for name in ended:
                del self._ended[name]


class CallbackChannel:
    """Callbacks of OpenDSR to one URL.

    Parameters
    ----------
    target, endpoint
        The URL.
    processor
        Signs.
    requests
        Know how far a request is.
    """

    def __init__(self, target: str, endpoint: Endpoint, processor: Processor, requests: SubjectRequests) -> None:
        self.target = target
        self.endpoint = endpoint
        self._processor = processor
        self._requests = requests

    async def message(self, delivery: Delivery) -> Message | None:
        """Return the message of a state."""
        try:
            found = await self._requests.progress(delivery.subject)
        except NoRequestError:
            return None
        found = replace(found, status=cast("Status", delivery.state))
        content = status_content(self._processor, found, self._requests.expected_ms(found.request))
        body = orjson.dumps({**content, "status_callback_url": self.target})
        return Message(await self._processor.sign(body), body)
