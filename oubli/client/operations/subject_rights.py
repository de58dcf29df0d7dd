"""What people may ask for about themselves: restriction of processing, its end, and all that is held about them."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

from oubli.client.errors import JobFailedError
from oubli.client.messages import Flow
from oubli.client.operations.job_progress import wait
from oubli.client.operations.requests import Names, local, object_of, posting
from oubli.client.results import Bundle, Job, Restriction, read, read_bundle
from oubli.client.session import Session
from oubli.client.tables import names_of


def restrict(
    session: Session,
    subjects: Names,
    *,
    keep_expired: bool = False,
    ref: str | None = None,
    idempotency_key: str | None = None,
) -> Flow[Restriction]:
    """Keep all samples of some subjects, and learn from them no longer. New samples of them are refused.

    Parameters
    ----------
    subjects : str, int, or iterable of them
        Whose samples. Those of which nothing is held are counted, not refused.
    keep_expired : bool
        Whether samples whose time is over are kept until they are released.
    ref : str, optional
        The caller's case number, a UUID.
    idempotency_key : str, optional
        As for `add`.

    Returns
    -------
    Restriction
    """
    content: dict[str, Any] = {"subjects": names_of(subjects, "subject")}
    if keep_expired:
        content["keep_expired"] = True
    if ref is not None:
        content["ref"] = ref
    request = posting("/subjects/restrict", content, key=idempotency_key, takes_key=True)
    return read(Restriction, (yield from session.ask(request)))


def release(
    session: Session, subjects: Names, *, ref: str | None = None, idempotency_key: str | None = None
) -> Flow[Restriction]:
    """Learn from the samples of restricted subjects again.

    Parameters
    ----------
    subjects : str, int, or iterable of them
        Whose samples. Those that are not restricted are counted, not refused.
    ref : str, optional
        The caller's case number, a UUID.
    idempotency_key : str, optional
        As for `add`.

    Returns
    -------
    Restriction
    """
    content: dict[str, Any] = {"subjects": names_of(subjects, "subject")}
    if ref is not None:
        content["ref"] = ref
    request = posting("/subjects/release", content, key=idempotency_key, takes_key=True)
    return read(Restriction, (yield from session.ask(request)))


def retain(
    session: Session,
    subjects: Names,
    seconds: int | None,
    *,
    ref: str | None = None,
    idempotency_key: str | None = None,
) -> Flow[Restriction]:
    """Set a retention period for all samples of some subjects, those held and those to come.

    Parameters
    ----------
    subjects : str, int, or iterable of them
        Whose samples. Those of which nothing is held are counted, not refused.
    seconds : int or None
        How long samples are kept from their addition; None takes the period back. It never prolongs.
    ref : str, optional
        The caller's case number, a UUID.
    idempotency_key : str, optional
        As for `add`.

    Returns
    -------
    Restriction
    """
    content: dict[str, Any] = {"subjects": names_of(subjects, "subject"), "seconds": seconds}
    if ref is not None:
        content["ref"] = ref
    request = posting("/subjects/retain", content, key=idempotency_key, takes_key=True)
    return read(Restriction, (yield from session.ask(request)))


def export(
    session: Session, subject: str | int, *, influence: bool = False, timeout: float | None = None
) -> Flow[Bundle]:
    """Return all that is held about a subject. What takes long is waited for.

    Parameters
    ----------
    subject : str or int
        Whom it is about.
    influence : bool
        Whether to tell what the samples do for the predictions about the subject.
    timeout : float, optional
        In seconds, for what takes long; by default as long as it takes.

    Returns
    -------
    Bundle

    Raises
    ------
    WaitTimeoutError
        When it is not there in time.
    NotFoundError
        When samples were erased between the end of the work and the question for its bundle: ask again.
    """
    asked: dict[str, Any] = {"subject": names_of(subject, "subject")[0], **({"influence": True} if influence else {})}
    content = object_of((yield from session.ask(posting("/subjects/export", asked, is_safe=True))))
    if "samples" in content:
        return read_bundle(content)
    job = yield from wait(session, read(Job, content), timeout=timeout)
    name = (job.result or {}).get("export")
    if not isinstance(name, str):
        raise JobFailedError(job.id, "the server does not say under which id the bundle is kept")
    return read_bundle((yield from session.ask(local(f"/exports/{quote(name, safe='')}"))))
