"""Requests of OpenDSR: what a controller asks for a person, by an id that the controller gives it.

    erasure                  the samples are unlearned before the request is answered; its receipt tells how far it is
    access, portability      a bundle is made in the background, and kept until samples are erased

What is kept of a request identifies no person: its id, its kind, a keyed hash of its body, and which callbacks of the
settings it has named. It is committed with what it asks for.

The records of this module: what the settings say, what is asked for, how far it is.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, cast

import orjson

from oubli.app.errors import NoRequestError, RepeatedRequestError, UncancellableError
from oubli.app.ledger.deliveries import Delivery
from oubli.app.ledger.entries import DeliveryNotes, SubjectRequest, delivery_notes, with_request
from oubli.app.outgoing.addresses import Endpoint
from oubli.app.outgoing.sender import ProcessorSigner
from oubli.app.service.changes.deletions import DeleteSamples
from oubli.app.service.changes.writer import Writer
from oubli.app.service.evidence.receipts import Deadline, Receipts
from oubli.app.service.jobs.exports import Exporter
from oubli.app.service.jobs.jobs import JobBoard
from oubli.app.service.model.live import Disk, LiveModel
from oubli.app.service.outbox.deliveries import Deliveries, Message, repeat
from oubli.app.threads import pause
from oubli.app.times import to_text

OPENDSR_PATH = "/opendsr/v2"
API_VERSION = "2.0"
Status = Literal["pending", "in_progress", "completed", "cancelled"]


@dataclass(frozen=True, slots=True)
class Processor:
    """What the settings say of OpenDSR.

    Attributes
    ----------
    signer
        Has the certificate and the domain.
    controller
        What answers call the controller.
    identities
        Types of identities that are subjects here.
    callbacks
        URLs that requests may name.
    """

    signer: ProcessorSigner
    controller: str = "controller"
    identities: Sequence[str] = ("controller_customer_id",)
    callbacks: Mapping[str, Endpoint] = field(default_factory=dict)

    @property
    def url(self) -> str:
        """Where the routes are, for others."""
        return f"https://{self.signer.domain}{OPENDSR_PATH}"

    async def sign(self, body: bytes) -> list[tuple[str, str]]:
        """Return the headers of an answer or a callback; signed in a thread, because RSA takes milliseconds."""
        return await asyncio.to_thread(self.signer.headers, body)


@dataclass(frozen=True, slots=True)
class Asked:
    """A request as it came.

    Attributes
    ----------
    id, kind, regulation
        See `SubjectRequest`.
    names, by
        Whom or what it is about: subjects, or ids of samples.
    callbacks
        URLs.
    body
        All of it.
    """

    id: str
    kind: str
    regulation: str
    names: Sequence[str]
    by: Literal["ids", "subjects"]
    callbacks: Sequence[str]
    body: bytes


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a request is.

    Attributes
    ----------
    request
        Which.
    status
        In OpenDSR's words.
    job
        Id of the job whose result is the bundle; None when there is none, or not any more.
    n_samples
        That are in it.
    """

    request: SubjectRequest
    status: Status
    job: str | None = None
    n_samples: int = 0


def status_content(processor: Processor, found: Progress, expected_ms: int) -> dict[str, Any]:
    """Return the status of a request as an object, as answers and callbacks have it."""
    content: dict[str, Any] = {
        "controller_id": processor.controller,
        "expected_completion_time": to_text(expected_ms),
        "subject_request_id": found.request.id,
        "request_status": found.status,
        "api_version": API_VERSION,
    }
    if found.status == "completed" and found.job is not None:
        content["results_url"] = f"https://{processor.signer.domain}/jobs/{found.job}/result"
        content["results_count"] = found.n_samples
    return content


log = logging.getLogger("oubli.service")


@dataclass(eq=False, repr=False)
class SubjectRequests:
    """Takes requests, and knows how far they are. It belongs to the event loop.

    Parameters
    ----------
    live
        The live model and who may use it.
    disk
        Where changes are kept.
    writer
        Takes changes and notes to the journal.
    processor
        What the settings say; None when OpenDSR is not set up.
    exporter
        Makes bundles.
    receipts
        The ledger.
    deadline
        Of erasures.
    jobs
        Make bundles.
    """

    processor: Processor | None
    _exporter: Exporter
    _live: LiveModel
    _disk: Disk
    _writer: Writer
    _receipts: Receipts
    _deadline: Deadline
    _jobs: JobBoard
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
        self._live.state.require_leading()
        # To the end also when the controller has gone: it comes again, and must not find half of it.
        return await self._live.threads.finish(self._take(asked, caller))

    async def _take(self, asked: Asked, caller: str) -> SubjectRequest:
        hashes = self._disk.ledger.text_hashes(f"{OPENDSR_PATH}\0{hashlib.sha256(asked.body).hexdigest()}")
        request = SubjectRequest(
            asked.id, asked.kind, asked.regulation, hashes[0], self._live.clock.now_ms(), asked.callbacks
        )
        async with self._one_at_a_time:  # it could come twice at once
            earlier = await self._find(asked.id)
            if earlier is not None:
                if earlier.body not in hashes:
                    raise RepeatedRequestError
                return earlier
            if asked.kind == "erasure":
                asked_at = self._live.state.seq
                command = DeleteSamples(
                    asked.names, asked.by, ref=asked.id, request=request, caller=caller, asked_at=asked_at
                )
                command.found_before(await self._receipts.last_of(asked.names, asked.by))
                await self._writer.execute(command)
            else:
                await self._export(asked, request)
        return request

    async def progress(self, request_id: str) -> Progress:
        """Return how far a request is; raises `NoRequestError`."""
        self._live.state.require_leading()
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
            if job is not None and bundle is not None:
                return Progress(request, "completed", job.id, len(bundle.samples))
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
        return await self._disk.database.read(lambda database: database.deliveries.request(request_id))

    async def _export(self, asked: Asked, request: SubjectRequest) -> None:
        (subject,) = asked.names
        self._exports = {name: job for name, job in self._exports.items() if self._jobs.get(job) is not None}
        job = self._exporter.begin(subject)
        self._exports[asked.id] = job.id
        await self._writer.note(lambda: with_request(b"", request))
        self._live.threads.begin(self._watch(asked.id, job.id))

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
        has_looked = False

        async def note() -> None:
            nonlocal has_looked
            if not has_looked:
                await self._end_abandoned()
            has_looked = True
            await self._note_ended()

        def failed(cause: str) -> None:
            log.error("the end of an OpenDSR request could not be noted, and it is tried again: %s", cause)

        await repeat(note, self._bell, pause, failed)

    async def _end_abandoned(self) -> None:
        """A bundle is in memory only: what was not made before the start never will be."""
        left = await self._disk.database.read(lambda database: database.deliveries.open_requests())
        self._ended.update((one.id, "cancelled") for one in left if one.id not in self._exports)

    async def _note_ended(self) -> None:
        ended = dict(self._ended)
        if ended:
            notes = DeliveryNotes(self._live.clock.now_ms(), ended=list(ended.items()))
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


@dataclass(frozen=True, slots=True)
class Outbox:
    """What tells others.

    Attributes
    ----------
    deliveries
        Tell others of the states of receipts.
    requests
        Those of OpenDSR.
    """

    deliveries: Deliveries
    requests: SubjectRequests
