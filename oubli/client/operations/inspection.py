"""Looking at the model: what its trees split by, the trees, the columns, and what it would say without some samples."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from urllib.parse import quote

from oubli.client.messages import Flow
from oubli.client.operations.job_progress import wait
from oubli.client.operations.requests import Names, local, object_of, posting, reading
from oubli.client.results import Access, Job, Without, read, read_without
from oubli.client.session import Session
from oubli.client.tables import is_frame, names_of, rows_of


def predict_without(
    session: Session,
    X: Any,
    *,
    ids: Names | None = None,
    subjects: Names | None = None,
    progress: Callable[[float], object] | None = None,
    timeout: float | None = None,
) -> Flow[Without]:
    """Predict rows with the model, and as if it had never been told of some samples. Nothing is changed.

    Models that are not exact are refused. What takes long is waited for.

    Parameters
    ----------
    X : DataFrame, array or list of rows
        As for `predict`; at most 100 rows.
    ids, subjects : str, int, or iterable of them
        The samples, or those whose samples, to leave out: one of the two.
    progress : callable, optional
        Called with the share that is done, when it takes long.
    timeout : float, optional
        Seconds to wait for a long answer; by default as long as it takes.

    Returns
    -------
    Without

    Raises
    ------
    JobFailedError, WaitTimeoutError
        When a long answer failed, or took longer than `timeout`.
    """
    content: dict[str, Any] = {"instances": rows_of(X)}
    if ids is not None:
        content["ids"] = names_of(ids, "id")
    if subjects is not None:
        content["subjects"] = names_of(subjects, "subject")
    answer = yield from session.exchange(posting("/predict/without", content, is_safe=True))
    found = answer.json()
    if answer.status == 202:
        job = yield from wait(session, read(Job, found), progress=progress, timeout=timeout)
        name = str((job.result or {}).get("without", ""))
        found = yield from session.ask(local(f"/predict/without/{quote(name, safe='')}"))
    session.saw(found)
    return read_without(found, X.index if is_frame(X) and hasattr(X, "index") else None)


def importances(session: Session) -> Flow[dict[str, float]]:
    """Return the share of each feature in what all splits gain, by name; they add up to 1, or are all 0."""
    content = object_of((yield from session.ask(reading("/model/importances"))))
    return {str(one["name"]): float(one["importance"]) for one in content.get("features", [])}


def tree(session: Session, number: int = 0, *, node: str = "", levels: int = 3) -> Flow[dict[str, Any]]:
    """Return a node of a tree with some levels below it, as `GET /model/trees/{n}` answers it.

    Parameters
    ----------
    number : int
        Of the tree, from 0.
    node : str
        The way to the node from the root: `l` and `r`.
    levels : int
        How many levels below it, at most 8.

    Raises
    ------
    NotFoundError
        When there is no such tree or node at present.
    """
    request = reading(f"/model/trees/{int(number)}", node=node, levels=levels)
    return object_of((yield from session.ask(request)))


def columns(session: Session) -> Flow[list[dict[str, Any]]]:
    """Return what the columns of the samples hold, ranges and categories, as `GET /model/columns` answers it."""
    content = object_of((yield from session.ask(reading("/model/columns"))))
    return list(content.get("columns", []))


def access(session: Session) -> Flow[Access]:
    """Return what this client may do; with the scope `admin`, also the names, scopes and ends of all keys."""
    return read(Access, (yield from session.ask(reading("/access"))))
