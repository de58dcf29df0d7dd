"""The shapes of jobs, for the OpenAPI page and for answers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import Field

from oubli.app.http.schemas import Shape
from oubli.app.service.jobs import Job
from oubli.core.registry import PLACES

if TYPE_CHECKING:
    Kind = str
else:
    Kind = Literal[tuple(PLACES)]
Parameter = str | int | float | bool | list[float] | None


class FitRequest(Shape):
    """How to fit anew. What is left out stays as it is."""

    kind: Kind | None = None
    """The kind of model."""
    parameters: dict[str, Parameter] | None = None
    """As `GET /model` lists them."""


class JobAnswer(Shape):
    """A job as it is now."""

    id: str
    kind: Literal["verify", "scrub", "fit", "influence"]
    status: Literal["queued", "running", "succeeded", "failed"]
    progress: Annotated[float, Field(ge=0, le=1)]
    """The share that is done."""
    result: dict[str, Any] | None = None
    """When it has succeeded. Of `verify`: `ok` with the digests compared, and of online boosting how far its answers
    are from a fresh fit's; of `fit`: the new `model_version`; of `influence`: the id of the ranking."""
    error: str | None = None
    """When it has failed."""


def job_content(job: Job) -> dict[str, Any]:
    """Return a job as an object; without result and error while there are none."""
    content = {"id": job.id, "kind": job.kind, "status": job.status, "progress": job.progress}
    outcome = {"result": job.result, "error": job.error}
    return content | {name: value for name, value in outcome.items() if value is not None}
