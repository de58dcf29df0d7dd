"""The shapes of OpenDSR."""

from datetime import datetime
from typing import Any, Literal

from pydantic import BaseModel

from oubli.app.http.schemas.shapes import Shape, Uuid


class OpendsrIdentity(BaseModel):
    """Whom a request is about."""

    identity_type: str
    """`GET /opendsr/v2/discovery` lists those that are known; others are passed over."""
    identity_value: str
    identity_format: Literal["raw", "sha1", "md5", "sha256"]
    """`raw`; others are passed over."""


class OpendsrRequest(BaseModel):
    """A request of OpenDSR 2.0. Keys that are not known are passed over."""

    regulation: Literal["gdpr", "ccpa"]
    subject_request_id: Uuid
    """Version 4, in lower case, made by the controller."""
    subject_request_type: Literal["erasure", "access", "portability"]
    submitted_time: datetime
    subject_identities: list[OpendsrIdentity] | None = None
    api_version: str | None = None
    status_callback_urls: list[str] | None = None
    """URLs that `opendsr_callbacks` in the settings names, told when the status changes."""
    extensions: dict[str, Any] | None = None
    """By domain; below that of this server `sample_ids` names samples to erase instead of identities."""


class OpendsrReply(Shape):
    """A request that was taken. `X-OpenDSR-Signature` signs the body."""

    controller_id: str
    expected_completion_time: datetime
    received_time: datetime
    encoded_request: str
    """The body of the request in base64: do not log it."""
    subject_request_id: Uuid
    api_version: str


class OpendsrStatus(Shape):
    """How far a request is."""

    controller_id: str
    expected_completion_time: datetime
    subject_request_id: Uuid
    request_status: Literal["pending", "in_progress", "completed", "cancelled"]
    """An erasure is `in_progress` when it is unlearned, and `completed` when it is erased from all files."""
    api_version: str
    results_url: str | None = None
    """Of access and portability: where the bundle is, as long as it is kept."""
    results_count: int | None = None


class OpendsrCancellation(Shape):
    """A request that was cancelled."""

    controller_id: str
    received_time: datetime
    subject_request_id: Uuid
    api_version: str


class OpendsrSupported(Shape):
    """A type of identities that are subjects."""

    identity_type: str
    identity_format: Literal["raw"]


class OpendsrDiscovery(Shape):
    """What the server takes."""

    api_version: str
    supported_identities: list[OpendsrSupported]
    supported_subject_request_types: list[Literal["erasure", "access", "portability"]]
    processor_certificate: str
    """URL of the certificate."""


class OpendsrErrorDetail(Shape):
    """One thing that is wrong."""

    domain: str
    reason: str
    """A slug of our problems."""
    message: str


class OpendsrErrorContent(Shape):
    """What is wrong."""

    code: int
    message: str
    errors: list[OpendsrErrorDetail]


class OpendsrError(Shape):
    """An error of OpenDSR."""

    error: OpendsrErrorContent
