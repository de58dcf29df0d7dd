"""The model: its description, and the long work on all of it.

Looking at the model: what its trees split by, the trees, the columns, and what it would say without some samples.

States of the model in the log, and proofs about the set of samples that it has learned.

Whether the server is there.

Snapshots.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace as replaced
from pathlib import Path
from typing import Any
from urllib.parse import quote

from oubli.api.ledger import AbsenceProof, ModelState, ProvedState, StatesAnswer
from oubli.api.model import ImportancesAnswer, Job, Model, Restored, Schema, Snapshot
from oubli.api.server import Access, Cluster, Readiness
from oubli.client.errors import DataError, NoAnswerError, ProblemError, UnavailableError
from oubli.client.messages import Emits, Flow, NextChunk, Request, Sleep, Work
from oubli.client.operations.jobs import result_of
from oubli.client.operations.requests import (
    FIRST_POLL,
    Names,
    Progress,
    column_rules,
    object_of,
    paged,
    posting,
    reading,
)
from oubli.client.results import Without, read, read_without
from oubli.client.session import Session
from oubli.client.tables import index_of, names_of, rows_of


def model(session: Session, *, score: bool = False) -> Flow[Model]:
    """Return kind, guarantee, parameters, schema and size of the model; with `score` how well it predicts.

    Examples
    --------
    >>> described = client.model()
    >>> described.kind, described.guarantee
    ('forest', 'exact')
    """
    return read(Model, (yield from session.ask(reading("/model", score="true" if score else None))))


def schema(session: Session) -> Flow[Schema]:
    """Return the columns and the label of the samples.

    Examples
    --------
    >>> client.schema().names
    ['age', 'job', 'member']
    """
    described = yield from model(session)
    return described.schema


def fit(
    session: Session,
    *,
    kind: str | None = None,
    parameters: Mapping[str, Any] | None = None,
    score: bool = True,
    classes: str | None = None,
    max_classes: int | None = None,
    idempotency_key: str | None = None,
) -> Flow[Job]:
    """Start a new fit on the samples held. Parameters that are left out keep their values. `wait` waits for the job.

    Parameters
    ----------
    kind : str, optional
        Of the new model, such as `"forest"` or `"incremental-boosting"`.
    parameters : dict, optional
        As `Model.parameters` lists them.
    score : bool
        Whether the job's result has the model's score before and after.
    classes : {"open", "closed"}, optional
        Whether labels of classes that the model does not have are taken or refused from then on.
    max_classes : int, optional
        Most classes that may be held.
    idempotency_key : str, optional
        As for `add`.

    Returns
    -------
    Job

    Examples
    --------
    >>> job = client.fit(parameters={"n_estimators": 5}, score=False)
    >>> client.wait(job).status
    'succeeded'
    """
    content: dict[str, Any] = {} if kind is None else {"kind": kind}
    if parameters is not None:
        content["parameters"] = dict(parameters)
    if not score:
        content["score"] = False
    content |= {
        name: value for name, value in (("classes", classes), ("max_classes", max_classes)) if value is not None
    }
    return read(Job, (yield from session.ask(posting("/model/fit", content, key=idempotency_key, takes_key=True))))


def verify(session: Session) -> Flow[Job]:
    """Begin to compare the model with a fresh one on the samples held; the job's result says `ok` and both digests.

    Examples
    --------
    >>> client.wait(client.verify()).result["ok"]
    True
    """
    return read(Job, (yield from session.ask(posting("/model/verify"))))


def scrub(session: Session) -> Flow[Job]:
    """Begin to erase from all files what was unlearned, without waiting for the deadline.

    Examples
    --------
    >>> client.wait(client.scrub()).status
    'succeeded'
    """
    return read(Job, (yield from session.ask(posting("/model/scrub"))))


def confirm_expiry(session: Session) -> Flow[Model]:
    """Resume a paused expiry; `Model.expiry_paused` says why it paused.

    Examples
    --------
    >>> client.confirm_expiry().expiry_paused is None
    True
    """
    return read(Model, (yield from session.ask(posting("/expiry/confirm"))))


def predict_without(
    session: Session,
    X: Any,
    *,
    ids: Names | None = None,
    subjects: Names | None = None,
    extra_columns: str | None = None,
    missing_columns: str | None = None,
    progress: Progress | None = None,
    timeout: float | None = None,
) -> Flow[Without]:
    """Predict rows with the model, and as if it had never seen some samples. Nothing is changed.

    Models that are not exact are refused. What takes long is waited for.

    Parameters
    ----------
    X : DataFrame, array or list of rows
        As for `predict`; at most 100 rows.
    ids, subjects : str, int, or iterable of them
        The samples, or those whose samples, to leave out: one of the two.
    extra_columns, missing_columns : optional
        As for `predict`.
    progress : bool or callable, optional
        As for `predict`, when it takes long.
    timeout : float, optional
        Seconds to wait for a long answer; by default as long as it takes.

    Returns
    -------
    Without

    Raises
    ------
    JobFailedError, WaitTimeoutError
        When a long answer failed, or took longer than `timeout`.

    Examples
    --------
    >>> found = client.predict_without([[39, "a", True]], ids=["0", "1"])
    >>> found.removed, found.absent
    (2, 0)
    """
    content: dict[str, Any] = {"instances": rows_of(X)}
    if ids is not None:
        content["ids"] = names_of(ids, "id")
    if subjects is not None:
        content["subjects"] = names_of(subjects, "subject")
    query = column_rules(extra_columns, missing_columns)
    answer = yield from session.exchange(posting("/predict/without", content, is_safe=True, query=query))
    found = answer.json()
    if answer.status == 202:
        found = yield from result_of(session, found, progress=progress, timeout=timeout)
    session.saw(found)
    return read_without(found, index_of(X))


def importances(session: Session) -> Flow[dict[str, float]]:
    """Return the share of each feature in what all splits gain, by name; they add up to 1, or are all 0.

    Examples
    --------
    >>> list(client.importances())
    ['age', 'job', 'member']
    """
    found = read(ImportancesAnswer, (yield from session.ask(reading("/model/importances"))))
    return {one.name: one.importance for one in found.features}


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

    Examples
    --------
    >>> client.tree(0, levels=1)["node"] is not None
    True
    """
    request = reading(f"/model/trees/{int(number)}", node=node, levels=levels)
    return object_of((yield from session.ask(request)))


def columns(session: Session) -> Flow[list[dict[str, Any]]]:
    """Return what the columns of the samples hold, ranges and categories, as `GET /model/columns` answers it.

    Examples
    --------
    >>> [column["name"] for column in client.columns()]
    ['age', 'job', 'member']
    """
    content = object_of((yield from session.ask(reading("/model/columns"))))
    return list(content.get("columns", []))


def access(session: Session) -> Flow[Access]:
    """Return what this client may do; with the scope `admin`, also the names, scopes and ends of all keys.

    Examples
    --------
    >>> client.access().asks_for_key
    False
    """
    return read(Access, (yield from session.ask(reading("/access"))))


def tell_state(session: Session) -> Flow[ModelState]:
    """Have the server record the state of the model in its ledger; return the entry, one for each version.

    Raises
    ------
    ConflictError
        When samples were erased during the request: ask again.
    UnavailableError
        When nothing can be written.

    Examples
    --------
    >>> client.tell_state().guarantee
    'exact'
    """
    return read(ModelState, (yield from session.ask(posting("/model/states", is_safe=True))))


def states(session: Session, *, page_size: int | None = None) -> Emits[ModelState]:
    """Iterate over the states that the ledger tells of, the oldest first. Pages are asked for as they are needed.

    Parameters
    ----------
    page_size : int, optional
        States an answer.

    Examples
    --------
    >>> told = client.tell_state()
    >>> told.index in [state.index for state in client.states()]
    True
    """
    yield from paged(session, StatesAnswer, "states", "/model/states", limit=page_size)


def state(session: Session, state: ModelState | int, *, trees: bool = False) -> Flow[ProvedState]:
    """Return a state with its proof, and with what an audit needs (scope `audit`).

    Parameters
    ----------
    state : ModelState or int
        The state, or the index of its entry.
    trees : bool, default False
        Also have the digests of the trees computed, for an audit of single trees; only while the model is of this
        version.

    Raises
    ------
    NotFoundError
        When there is none.

    Examples
    --------
    >>> told = client.tell_state()
    >>> client.state(told).state.index == told.index
    True
    """
    index = state if isinstance(state, int) else state.index
    asked = reading(f"/model/states/{index}", trees="true" if trees else None)
    return read(ProvedState, (yield from session.ask(asked)))


def prove_absence(
    session: Session, sample_id: str | int | None = None, *, subject: str | int | None = None
) -> Flow[AbsenceProof]:
    """Return a proof that no sample that the model has learned has an id, or is of a subject.

    Parameters
    ----------
    sample_id, subject : str or int
        Either an id or a subject. It is sent in the body, and never in an address.

    Raises
    ------
    ConflictError
        When it is held, restricted samples included: then there is nothing to prove.
    DataError
        When both or neither are given.

    Examples
    --------
    >>> client.prove_absence(subject="unknown").name
    'unknown'
    """
    if (sample_id is None) == (subject is None):
        raise DataError("give either an id or a subject")
    named = {"id": sample_id} if subject is None else {"subject": subject}
    return read(AbsenceProof, (yield from session.ask(posting("/samples/absence-proofs", named, is_safe=True))))


def is_alive(session: Session) -> Flow[bool]:
    """Whether a process answers, whatever it is busy with. Each server is asked once.

    Examples
    --------
    >>> client.is_alive()
    True
    """
    try:
        yield from session.exchange(replaced(reading("/healthz"), is_retried=False))
    except (NoAnswerError, ProblemError):
        return False
    return True


def ready(session: Session, *, for_changes: bool = False) -> Flow[Readiness]:
    """Return the readiness of a server that is ready. It is asked once.

    Parameters
    ----------
    for_changes : bool
        Whether it must accept changes as well.

    Raises
    ------
    UnavailableError, NoAnswerError
        When it is not ready.

    Examples
    --------
    >>> client.ready(for_changes=True).status
    'ready'
    """
    request = reading("/readyz", **({"for": "changes"} if for_changes else {}))
    return read(Readiness, (yield from session.ask(replaced(request, is_retried=False))))


def wait_ready(session: Session, *, timeout: float = 120.0, for_changes: bool = False) -> Flow[Readiness]:
    """Wait until the server is ready: it may be starting.

    Parameters
    ----------
    timeout : float
        In seconds.
    for_changes : bool
        Whether it must accept changes as well.

    Raises
    ------
    UnavailableError, NoAnswerError
        When it is not ready in time.

    Examples
    --------
    >>> client.wait_ready(timeout=10).status
    'ready'
    """
    deadline = session.clock() + timeout
    pause = FIRST_POLL
    while True:
        try:
            return (yield from ready(session, for_changes=for_changes))
        except (UnavailableError, NoAnswerError):
            if session.clock() >= deadline:
                raise
        yield Sleep(pause)
        pause = min(1.0, 1.5 * pause)


def cluster(session: Session) -> Flow[Cluster]:
    """Return the nodes of the cluster, as the node sees them that answers. A server without others is `alone`.

    Examples
    --------
    >>> client.cluster().role
    'alone'
    """
    return read(Cluster, (yield from session.ask(reading("/cluster"))))


def remove_node(session: Session, name: str) -> Flow[Cluster]:
    """Remove a node that is gone for good, and return the others. It takes a key with the scope `admin`.

    Receipts say nothing of that machine any more: wipe its disk.

    Parameters
    ----------
    name : str
        Of the node.

    Raises
    ------
    ProblemError
        Of the kind `no-node` when there is none of this name, `node-alive` when it leads or is not expelled.

    Examples
    --------
    >>> try:
    ...     client.remove_node("node-3")
    ... except ProblemError as error:
    ...     print(error.kind)
    no-node
    """
    return read(Cluster, (yield from session.ask(Request("DELETE", f"/cluster/nodes/{quote(name, safe='')}"))))


def snapshot(session: Session) -> Flow[Snapshot]:
    """Have the server write a snapshot now, and return what is known of it.

    Examples
    --------
    >>> written = client.snapshot()
    >>> written.model_version == client.model().model_version
    True
    """
    return read(Snapshot, (yield from session.ask(posting("/snapshot"))))


def newest_snapshot(session: Session) -> Flow[Snapshot]:
    """Return what is known of the newest snapshot.

    Raises
    ------
    NotFoundError, EphemeralError
        When there is none.

    Examples
    --------
    >>> written = client.snapshot()
    >>> client.newest_snapshot().id == written.id
    True
    """
    # Its version is that of the time when it was written, which says nothing about the model.
    return read(Snapshot, (yield from session.ask(reading("/snapshot"))))


def download_snapshot(session: Session, path: str | os.PathLike[str]) -> Flow[int]:
    """Download the newest snapshot and return its size.

    It holds every sample: the file can be read by its owner alone. It is there when all of it has arrived, and not
    before; one of the same name is overwritten then.

    Parameters
    ----------
    path : path
        Of the file.

    Examples
    --------
    >>> written = client.snapshot()
    >>> client.download_snapshot("model.snapshot") == written.bytes
    True
    """
    target = Path(path)
    partial = target.with_name(target.name + ".part")
    answer = yield from session.exchange(Request("GET", "/snapshot/file", is_streamed=True))
    file = yield Work(lambda: _private(partial))
    try:
        while (chunk := (yield NextChunk(answer.stream))) is not None:
            yield Work(lambda chunk=chunk: file.write(chunk))  # type: ignore[misc]
        size: int = yield Work(lambda: _finish(file, partial, target))
        return size
    finally:
        file.close()
        partial.unlink(missing_ok=True)


def restore_snapshot(session: Session, path: str | os.PathLike[str]) -> Flow[Restored]:
    """Replace the model by that of a snapshot file, less what was erased, rectified or expired since.

    Parameters
    ----------
    path : path
        Of the file.

    Returns
    -------
    Restored

    Examples
    --------
    >>> written, n_samples = client.snapshot(), client.model().n_samples
    >>> size = client.download_snapshot("model.snapshot")
    >>> client.restore_snapshot("model.snapshot").n_samples == n_samples
    True
    """
    answer = yield from session.ask(Request("PUT", "/snapshot/file", body=Path(path)))
    return read(Restored, answer)


def _private(path: Path) -> Any:
    """Open a new file that only its owner can read."""
    path.unlink(missing_ok=True)
    return os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb")


def _finish(file: Any, partial: Path, target: Path) -> int:
    """Give a file that is whole its name, on the disk as well, and return its size."""
    file.flush()
    os.fsync(file.fileno())
    size = int(file.tell())
    partial.replace(target)
    folder = os.open(target.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
    return size
