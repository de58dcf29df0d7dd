"""What requests of OpenDSR are made of: what the settings say, what is asked for, how far it is."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from oubli.app.times import to_text

if TYPE_CHECKING:
    from oubli.app.ledger.entries import SubjectRequest
    from oubli.app.privacy.addresses import Endpoint
    from oubli.app.privacy.signatures import ProcessorSigner

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
    export
        Name of the bundle; None when there is none, or not any more.
    n_samples
        That are in it.
    """

    request: SubjectRequest
    status: Status
    export: str | None = None
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
    if found.status == "completed" and found.export is not None:
        content["results_url"] = f"https://{processor.signer.domain}/exports/{found.export}"
        content["results_count"] = found.n_samples
    return content
