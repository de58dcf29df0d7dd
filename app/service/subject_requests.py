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
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, cast

import orjson

from oubli.app.errors import (
    JournalError,
    NoRequestError,
    RepeatedRequestError,
    ServiceError,
    UncancellableError,
)
from oubli.app.ledger.entries import DeliveryNotes, SubjectRequest, delivery_notes, with_request
from oubli.app.service.commands import DeleteSamples
from oubli.app.service.opendsr import OPENDSR_PATH, Asked, Processor, Progress, status_content
from oubli.app.service.outbox import Message

if TYPE_CHECKING:
    from oubli.app.ledger.deliveries import Delivery
    from oubli.app.ledger.ledger import Ledger, LedgerWorker
    from oubli.app.privacy.addresses import Endpoint
    from oubli.app.service.deliveries import Note
    from oubli.app.service.erasures import Deadline
    from oubli.app.service.export import Exporter
    from oubli.app.service.jobs import JobBoard
    from oubli.app.service.opendsr import Status
    from oubli.app.service.outbox import Outbox
    from oubli.app.service.receipts import Receipts
    from oubli.app.service.writer import Writer
    from oubli.app.times import Clock

log = logging.getLogger("oubli.service")


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
    note
        Takes notes to the journal; see `Courier`.
    ledger, database, receipts
        The ledger.
    deadline
        Of erasures.
    clock
        Tells the time.
    jobs
        Make bundles.
    outbox
        Told when there is something to tell.
    """

    processor: Processor | None
    _exporter: Exporter
    _writer: Writer
    _note: Note
    _ledger: Ledger
    _database: LedgerWorker
    _receipts: Receipts
    _deadline: Deadline
    _clock: Clock
    _jobs: JobBoard
    _outbox: Outbox
    _exports: dict[str, str] = field(default_factory=dict, init=False)  # jobs, by request
    _watchers: set[asyncio.Task[None]] = field(default_factory=set, init=False)
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
        digest = hashlib.sha256(asked.body).hexdigest()
        request = SubjectRequest(
            asked.id,
            asked.kind,
            asked.regulation,
            self._ledger.hash_text(f"{OPENDSR_PATH}\0{digest}"),
            self._clock.now_ms(),
            asked.callbacks,
        )
        async with self._one_at_a_time:  # it could come twice at once
            earlier = await self._find(asked.id)
            if earlier is not None:
                if earlier.body != request.body:
                    raise RepeatedRequestError
                return earlier
            if asked.kind == "erasure":
                command = DeleteSamples(asked.names, asked.by, asked.id, request=request, caller=caller)
                await self._writer.execute(command)
                self._outbox.ring()
            else:
                await self._export(asked, request)
        return request

    async def progress(self, request_id: str) -> Progress:
        """Return how far a request is; raises `NoRequestError`."""
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
        # A bundle is in memory only: what was not made before a restart never will be.
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
        job = self._exporter.begin(subject)
        self._exports[asked.id] = job.id
        await self._note(lambda: with_request(b"", request))
        self._outbox.ring()
        task = asyncio.get_running_loop().create_task(self._finish(asked.id, job.id))
        self._watchers.add(task)
        task.add_done_callback(self._watchers.discard)

    async def _finish(self, request_id: str, job_id: str) -> None:
        """Note what became of a bundle."""
        status = "queued"
        async for job in self._jobs.watch(job_id):
            status = job.status
        if status not in ("succeeded", "failed"):
            return  # the server stops
        state = "completed" if status == "succeeded" else "cancelled"
        notes = DeliveryNotes(self._clock.now_ms(), ended=[(request_id, state)])
        try:
            await self._note(lambda: delivery_notes(notes))
        except (JournalError, ServiceError) as error:  # a start will find it unfinished, and say that it is cancelled
            log.error("the end of a request could not be noted (%s)", type(error).__name__)
        self._outbox.ring()


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
