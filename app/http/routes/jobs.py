"""Looking at jobs: once, or as long as they go on."""

from collections.abc import AsyncIterator
from typing import Annotated

from fastapi import APIRouter, Depends, Request, Response
from fastapi.sse import EventSourceResponse, ServerSentEvent

from oubli.app.http.context import context_of
from oubli.app.http.openapi import PATH, problems
from oubli.app.http.problems import ProblemError
from oubli.app.http.responses import job_content, json_answer, to_json
from oubli.app.http.schemas.model import JobAnswer, JobsAnswer
from oubli.app.service.jobs import Job

router = APIRouter(tags=["jobs"])
_ID = {"parameters": [PATH["job"]]}


def known_job(request: Request) -> Job:
    """Return the job that a path names, before an answer has begun.

    Raises
    ------
    ProblemError
        When there is none.
    """
    job = context_of(request).service.jobs.get(request.path_params["id"])
    if job is None:
        raise ProblemError("no-job")
    return job


KnownJob = Annotated[Job, Depends(known_job)]


@router.get("/jobs", summary="All jobs", response_model=JobsAnswer, responses=problems())
async def list_jobs(request: Request) -> Response:
    """Return the jobs that wait or run, and those that ended a short time ago."""
    return json_answer({"jobs": [job_content(job) for job in context_of(request).service.jobs.all()]})


@router.get("/jobs/{id}", summary="A job", response_model=JobAnswer, responses=problems("no-job"), openapi_extra=_ID)
async def get_job(job: KnownJob) -> Response:
    """Return where a job is. Jobs that ended are remembered for a while, not for ever."""
    return json_answer(job_content(job))


@router.head("/jobs/{id}/events", include_in_schema=False)
async def head_of_events(job: KnownJob) -> Response:
    """Return the head of the stream at once, not when the job has ended."""
    del job
    return Response(headers={"Cache-Control": "no-cache"}, media_type=EventSourceResponse.media_type)


@router.get(
    "/jobs/{id}/events",
    summary="A job's progress",
    response_class=EventSourceResponse,
    responses=problems("no-job"),
    openapi_extra=_ID,
)
async def watch_job(request: Request, job: KnownJob) -> AsyncIterator[ServerSentEvent]:
    """Send the job as `GET /jobs/{id}` has it, as server-sent events: at once, and whenever it has changed.

    The stream ends after the event with `succeeded` or `failed`, and when the server stops. While nothing happens a
    comment is sent now and then, so that the connection stays open. Browsers open a stream that has ended again: close
    it at the last event.
    """
    async for state in context_of(request).service.jobs.watch(job.id):
        yield ServerSentEvent(raw_data=to_json(job_content(state)).decode("utf-8"))
