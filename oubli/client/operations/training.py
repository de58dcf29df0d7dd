"""The model: its description, and the long work on all of it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from oubli.client.messages import Flow
from oubli.client.operations.requests import posting, reading
from oubli.client.results import Job, Model, Schema, read
from oubli.client.session import Session


def model(session: Session) -> Flow[Model]:
    """Return kind, guarantee, parameters, schema and size of the model."""
    return read(Model, (yield from session.ask(reading("/model"))))


def schema(session: Session) -> Flow[Schema]:
    """Return the columns and the label of the samples."""
    described = yield from model(session)
    return described.schema


def fit(
    session: Session,
    *,
    kind: str | None = None,
    parameters: Mapping[str, Any] | None = None,
    score: bool = True,
    idempotency_key: str | None = None,
) -> Flow[Job]:
    """Begin to fit anew on the samples held; what is left out stays as it is. `wait` waits for the job.

    Parameters
    ----------
    kind : str, optional
        Of the new model, such as `"forest"` or `"incremental-boosting"`.
    parameters : dict, optional
        As `Model.parameters` lists them.
    score : bool
        Whether the job's result has the model's score before and after.
    idempotency_key : str, optional
        As for `add`.

    Returns
    -------
    Job
    """
    content: dict[str, Any] = {} if kind is None else {"kind": kind}
    if parameters is not None:
        content["parameters"] = dict(parameters)
    if not score:
        content["score"] = False
    return read(Job, (yield from session.ask(posting("/model/fit", content, key=idempotency_key, takes_key=True))))


def verify(session: Session) -> Flow[Job]:
    """Begin to compare the model with a fresh one on the samples held; the job's result says `ok` and both digests."""
    return read(Job, (yield from session.ask(posting("/model/verify"))))


def scrub(session: Session) -> Flow[Job]:
    """Begin to erase from all files what was unlearned, without waiting for the deadline."""
    return read(Job, (yield from session.ask(posting("/model/scrub"))))


def confirm_expiry(session: Session) -> Flow[Model]:
    """Let expiry go on that has paused; `Model.expiry_paused` says why it has."""
    return read(Model, (yield from session.ask(posting("/expiry/confirm"))))
