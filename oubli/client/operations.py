"""Every operation of the client, once, as a flow that builds the request and reads the answer; see `messages`."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace as replaced
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import orjson

from oubli.client.errors import (
    DataError,
    JobFailedError,
    NoAnswerError,
    ProblemError,
    ReceiptError,
    UnavailableError,
    UnexpectedAnswerError,
    WaitTimeoutError,
)
from oubli.client.messages import (
    Answer,
    Close,
    Emit,
    Emits,
    Flow,
    NextChunk,
    NextEvent,
    Request,
    Sleep,
    Work,
    to_json,
)
from oubli.client.receipts import check_entry, check_signature
from oubli.client.results import (
    Added,
    HeldSample,
    Influence,
    Job,
    LedgerEntry,
    Model,
    Predictions,
    PublicKey,
    Readiness,
    Receipt,
    Restored,
    Schema,
    Snapshot,
    read,
    read_entry,
    read_predictions,
    read_receipt,
)
from oubli.client.session import KEY_HEADER, Session
from oubli.client.tables import frame_of, is_frame, labels_of, names_of, rows_of, samples_of, time_text

if TYPE_CHECKING:
    import pandas as pd

Names = str | int | Iterable[str | int]
_FIRST_POLL, _LONGEST_POLL = 0.05, 2.0  # seconds
_LONGEST_KEY = 255
_KEEP = object()


def _get(path: str, **query: Any) -> Request:
    pairs = tuple((name, str(value)) for name, value in query.items() if value is not None)
    return Request("GET", path, pairs, is_safe=True)


def _post(path: str, content: Any = None, *, key: str | None = None, **options: Any) -> Request:
    if key is not None and not (0 < len(key) <= _LONGEST_KEY and key.isascii() and key.isprintable()):
        raise DataError(f"an idempotency key must be 1 to {_LONGEST_KEY} printable ASCII characters")
    headers = {} if key is None else {KEY_HEADER: key}
    try:
        body = to_json({} if content is None else content)
    except TypeError as error:  # the encoder's own texts repeat nothing
        raise DataError(f"the request cannot be written as JSON: {error}") from None
    return Request("POST", path, body=body, headers=headers, **options)


def _object_of(content: Any) -> dict[str, Any]:
    if not isinstance(content, dict):
        raise UnexpectedAnswerError("the answer is no JSON object", 200)
    return content


def send(session: Session, request: Request) -> Flow[Answer]:
    """Send any request, with this client's key, retries and version, and return the answer.

    Parameters
    ----------
    request : Request
        For routes that have no method here.

    Raises
    ------
    NoAnswerError, ProblemError
        What came of the last time.
    """
    return (yield from session.exchange(request))


# --- predictions


def predict(session: Session, X: Any) -> Flow[Predictions]:
    """Predict rows with the model as it is now; every change that this client has seen answered is in it.

    Parameters
    ----------
    X : DataFrame, array of shape (n, d), or list of rows
        Rows are lists in feature order or dictionaries by feature name; columns of a DataFrame are matched by name.
        None, NaN and pandas' NA are missing values.

    Returns
    -------
    Predictions

    Raises
    ------
    DataError, InvalidInputError
        With the row, the field and the rule.
    EmptyModelError
        When no samples are held.
    """
    request = _post("/predict", {"instances": rows_of(X)}, is_safe=True)
    content = yield from session.ask(request)
    return read_predictions(content, X.index if is_frame(X) and hasattr(X, "index") else None)


def influence(
    session: Session,
    X: Any,
    labels: Any = None,
    *,
    method: str | None = None,
    update_set: str | int = "all",
    top: int = 10,
    progress: Callable[[float], object] | None = None,
    timeout: float | None = None,
) -> Flow[Influence]:
    """Rank the samples held by what they do for the predictions of some rows. What takes long is waited for.

    Parameters
    ----------
    X : DataFrame, array or list of rows
        As for `predict`.
    labels : list, Series or array of shape (n,), optional
        The true labels; the predicted ones when left out.
    method : {"leaf-influence", "leaf-refit", "leave-one-out"}, optional
        The default depends on the kind of model.
    update_set : {"all", "single"} or int
        Whose changes the leaf methods follow.
    top : int
        Largest number of samples in each list.
    progress : callable, optional
        Called with the share that is done, when it takes long.
    timeout : float, optional
        Seconds to wait for a long ranking; by default as long as it takes.

    Returns
    -------
    Influence

    Raises
    ------
    JobFailedError, WaitTimeoutError
        When a long ranking failed, or took longer than `timeout`.
    """
    rows = rows_of(X)
    content: dict[str, Any] = {"instances": rows, "update_set": update_set, "top": top}
    if labels is not None:
        content["labels"] = labels_of(labels, len(rows))
    if method is not None:
        content["method"] = method
    answer = yield from session.exchange(_post("/influence", content, is_safe=True))
    found = answer.json()
    if answer.status == 202:
        job = yield from wait(session, read(Job, found), progress=progress, timeout=timeout)
        name = str((job.result or {}).get("influence", ""))
        found = yield from session.ask(_get(f"/influence/{quote(name, safe='')}"))
    session.saw(found)
    return read(Influence, found)


# --- samples


def add(
    session: Session,
    X: Any,
    y: Any,
    *,
    ids: Names | None = None,
    subjects: Any = None,
    expires_at: Any = None,
    readd: bool = False,
    idempotency_key: str | None = None,
) -> Flow[Added]:
    """Learn samples, all of them or none. When it returns, they are in every later prediction.

    Parameters
    ----------
    X : DataFrame, array of shape (n, d), or list of rows
        As for `predict`.
    y : list, Series or array of shape (n,)
        Labels, matched with X by position.
    ids : sequence of str or int, optional
        Names to delete the samples by. When left out, the labels of the index if X is a DataFrame with one, unless
        they are 0, 1, ..., n - 1; else the server generates them.
    subjects : str, int or sequence of them, optional
        Whom the samples are about: one for all, or one for each (None: nobody).
    expires_at : datetime or sequence of datetimes, optional
        When they are unlearned and erased by themselves: one for all, or one for each (None: never).
    readd : bool
        Whether ids that were erased lately may come back.
    idempotency_key : str, optional
        Names this addition, so that it is made once however often it is sent, by whichever process. By default a new
        one for each call.

    Returns
    -------
    Added

    Raises
    ------
    DataError, InvalidInputError
        With the row, the field and the rule; nothing was added.
    IdConflictError, ErasedLatelyError
        With the places of the ids; nothing was added.
    TooLargeError
        When the server takes fewer rows in one request: split them.
    """
    samples = samples_of(X, y, ids=ids, subjects=subjects, expires_at=expires_at, readd=readd)
    for sample in samples:
        features = sample["features"]
        if hasattr(features, "tolist"):
            sample["features"] = features.tolist()
    content = yield from session.ask(_post("/samples", {"samples": samples}, key=idempotency_key, takes_key=True))
    return read(Added, content)


def get(session: Session, sample_id: str | int) -> Flow[HeldSample]:
    """Return one sample as it is held.

    Raises
    ------
    NotFoundError
        When it is not held.
    """
    content = _object_of((yield from session.ask(_get("/samples", id=names_of(sample_id, "id")[0]))))
    return _samples_in(content)[0]


def samples(session: Session, *, subject: str | int | None = None, page_size: int | None = None) -> Emits[HeldSample]:
    """Iterate over the samples held, or those of one subject. Pages are asked for as they are needed.

    Parameters
    ----------
    subject : str or int, optional
        Whose samples.
    page_size : int, optional
        Samples an answer; the server's default when left out.

    Raises
    ------
    NotFoundError
        When nothing is held about the subject.
    """
    cursor: str | None = None
    while True:
        found, cursor = yield from _page(session, subject, cursor, page_size)
        for sample in found:
            yield Emit(sample)
        if cursor is None:
            return


def samples_frame(
    session: Session, *, subject: str | int | None = None, page_size: int | None = None
) -> Flow[pd.DataFrame]:
    """Return the samples held, or those of one subject, as a pandas DataFrame.

    Parameters
    ----------
    subject, page_size
        As for `samples`.

    Returns
    -------
    DataFrame
        With the ids as its index, a column for each feature (categories as `category`, booleans as `boolean`, numbers
        as they are held), one with the labels, and `subject` and `expires_at` where any sample has one.
    """
    described = yield from schema(session)
    held, cursor = yield from _page(session, subject, None, page_size)
    while cursor is not None:
        found, cursor = yield from _page(session, subject, cursor, page_size)
        held += found
    return frame_of(held, described)


def replace(
    session: Session,
    sample_id: str | int,
    features: Any,
    label: Any,
    *,
    subject: Any = _KEEP,
    expires_at: Any = _KEEP,
    ref: str | None = None,
    idempotency_key: str | None = None,
) -> Flow[Receipt]:
    """Rectify one held sample: give it new content. The old content is unlearned, and erased like a deleted one.

    Parameters
    ----------
    sample_id : str or int
        Which.
    features : list, dict, Series, or DataFrame or array of one row
        The new features, all of them.
    label : scalar
        The new label.
    subject, expires_at : optional
        Stay as they are when left out; None clears them.
    ref : str, optional
        The caller's case number, a UUID.
    idempotency_key : str, optional
        As for `add`.

    Returns
    -------
    Receipt
        Of the kind `rectification`.

    Raises
    ------
    NotFoundError
        When the sample is not held: this never adds one.
    """
    is_table = is_frame(features) or getattr(features, "ndim", 1) == 2
    rows = rows_of(features if is_table else [features])
    if len(rows) != 1:
        raise DataError("one sample has one row of features")
    row = rows[0]
    content: dict[str, Any] = {
        "features": row.tolist() if hasattr(row, "tolist") else row,
        "label": labels_of([label], 1)[0],
    }
    if subject is not _KEEP:
        content["subject"] = None if subject is None else names_of(subject, "subject")[0]
    if expires_at is not _KEEP:
        content["expires_at"] = None if expires_at is None else time_text(expires_at)
    query = [("id", names_of(sample_id, "id")[0])] + ([] if ref is None else [("ref", ref)])
    request = replaced(
        _post("/samples", content, key=idempotency_key, takes_key=True), method="PUT", query=tuple(query)
    )
    answer = yield from session.ask(request)
    return read_receipt(answer)


def delete(
    session: Session,
    ids: Names | None = None,
    *,
    subjects: Names | None = None,
    ref: str | None = None,
    idempotency_key: str | None = None,
) -> Flow[Receipt]:
    """Unlearn samples by their ids, or all samples of some subjects.

    What is not held is counted in the receipt's `absent`, not refused. `wait_erased` returns when no file of the server
    holds the samples any more.

    Parameters
    ----------
    ids : str, int, or iterable of them
        Which samples.
    subjects : str, int, or iterable of them
        Whose samples, instead of `ids`.
    ref : str, optional
        The caller's case number, a UUID.
    idempotency_key : str, optional
        As for `add`.

    Returns
    -------
    Receipt

    Raises
    ------
    DataError
        When neither or both are given, or nothing is named.
    """
    if (ids is None) == (subjects is None):
        raise DataError("name either ids or subjects, and not both")
    content: dict[str, Any] = (
        {"subjects": names_of(subjects, "subject")} if ids is None else {"ids": names_of(ids, "id")}
    )
    if ref is not None:
        content["ref"] = ref
    answer = yield from session.ask(_post("/samples/batch-delete", content, key=idempotency_key, takes_key=True))
    return read_receipt(answer)


def _page(
    session: Session, subject: str | int | None, cursor: str | None, size: int | None
) -> Flow[tuple[list[HeldSample], str | None]]:
    """Return a page of samples, and the cursor of the next; None when it is the last."""
    if subject is None:
        request = _get("/samples", cursor=cursor, limit=size)
    else:  # its name stays out of the address, which proxies log
        asked = {"subject": names_of(subject, "subject")[0], "cursor": cursor, "limit": size}
        request = _post("/samples/search", {name: one for name, one in asked.items() if one is not None}, is_safe=True)
    content = _object_of((yield from session.ask(request)))
    return _samples_in(content), content.get("next")


def _samples_in(content: dict[str, Any]) -> list[HeldSample]:
    found: Any = content.get("samples")
    if not isinstance(found, list):
        raise UnexpectedAnswerError("the answer is no page of samples", 200)
    return [read(HeldSample, one) for one in found]


# --- the model


def model(session: Session) -> Flow[Model]:
    """Return kind, guarantee, parameters, schema and size of the model."""
    return read(Model, (yield from session.ask(_get("/model"))))


def schema(session: Session) -> Flow[Schema]:
    """Return the columns and the label of the samples."""
    described = yield from model(session)
    return described.schema


def fit(
    session: Session,
    *,
    kind: str | None = None,
    parameters: Mapping[str, Any] | None = None,
    idempotency_key: str | None = None,
) -> Flow[Job]:
    """Begin to fit anew on the samples held; what is left out stays as it is. `wait` waits for the job.

    Parameters
    ----------
    kind : str, optional
        Of the new model, such as `"forest"` or `"incremental-boosting"`.
    parameters : dict, optional
        As `Model.parameters` lists them.
    idempotency_key : str, optional
        As for `add`.

    Returns
    -------
    Job
    """
    content: dict[str, Any] = {} if kind is None else {"kind": kind}
    if parameters is not None:
        content["parameters"] = dict(parameters)
    return read(Job, (yield from session.ask(_post("/model/fit", content, key=idempotency_key, takes_key=True))))


def verify(session: Session) -> Flow[Job]:
    """Begin to compare the model with a fresh one on the samples held; the job's result says `ok` and both digests."""
    return read(Job, (yield from session.ask(_post("/model/verify"))))


def scrub(session: Session) -> Flow[Job]:
    """Begin to erase from all files what was unlearned, without waiting for the deadline."""
    return read(Job, (yield from session.ask(_post("/model/scrub"))))


def confirm_expiry(session: Session) -> Flow[Model]:
    """Let expiry go on that has paused; `Model.expiry_paused` says why it has."""
    return read(Model, (yield from session.ask(_post("/expiry/confirm"))))


# --- jobs


def job(session: Session, job_id: str) -> Flow[Job]:
    """Return where a job is.

    Raises
    ------
    NotFoundError
        When it is not known, or forgotten.
    """
    found = read(Job, (yield from session.ask(_get(f"/jobs/{quote(job_id, safe='')}"))))
    session.saw(found.result)
    return found


def jobs(session: Session) -> Flow[list[Job]]:
    """Return the jobs that wait or run, and those that ended a short time ago."""
    content = _object_of((yield from session.ask(_get("/jobs"))))
    return [read(Job, one) for one in content.get("jobs", [])]


def watch(session: Session, job: Job | str) -> Emits[Job]:
    """Iterate over the states of a job until it has ended: from the server's events, or by asking again and again.

    Parameters
    ----------
    job : Job or str
        The job or its id.

    Raises
    ------
    NotFoundError
        When it is not known any more, for instance because the server was started anew.
    """
    follower = _Follower(session, job)
    while True:
        state = yield from follower.next()
        yield Emit(state)
        if state.has_ended:
            return


def wait(
    session: Session,
    job: Job | str,
    *,
    progress: Callable[[float], object] | None = None,
    timeout: float | None = None,
) -> Flow[Job]:
    """Wait until a job has succeeded.

    Parameters
    ----------
    job : Job or str
        The job or its id.
    progress : callable, optional
        Called with the share that is done, whenever it has changed.
    timeout : float, optional
        In seconds; by default as long as it takes.

    Returns
    -------
    Job
        With its result.

    Raises
    ------
    JobFailedError
        When it has failed.
    WaitTimeoutError
        When it has not ended in time; it goes on.
    NotFoundError
        When it is not known any more, for instance because the server was started anew.
    """
    # A stream may be silent for long: only asking again keeps to a time.
    follower = _Follower(session, job, may_stream=timeout is None)
    deadline = None if timeout is None else session.clock() + timeout
    while True:
        state = yield from follower.next()
        if progress is not None:
            progress(state.progress)
        if state.status == "failed":
            raise JobFailedError(state.id, state.error or "the server does not say why")
        if state.has_ended:
            return state
        if deadline is not None and session.clock() >= deadline:
            raise WaitTimeoutError("the job has not ended in time; it goes on")


class _Follower:
    """Knows where a job is, from a stream of events where there is one."""

    def __init__(self, session: Session, job: Job | str, *, may_stream: bool = True) -> None:
        self._session = session
        self._id = job if isinstance(job, str) else job.id
        self._may_stream = may_stream
        self._stream: Any = None
        self._pause = _FIRST_POLL
        self._last: Job | None = None

    def next(self) -> Flow[Job]:
        """Return the next state: at once at first, then when it has changed, or after a while."""
        if self._may_stream:
            state = yield from self._from_stream()
            if state is not None:
                return state
        if self._last is not None:
            yield Sleep(self._pause)
            self._pause = min(_LONGEST_POLL, 1.5 * self._pause)
        self._last = yield from job(self._session, self._id)
        return self._last

    def _from_stream(self) -> Flow[Job | None]:
        """Return the next state of the stream, which is opened if need be; None when there is none."""
        try:
            if self._stream is None:
                request = replaced(
                    _get(f"/jobs/{quote(self._id, safe='')}/events"),
                    headers={"Accept": "text/event-stream"},
                    is_streamed=True,
                )
                answer = yield from self._session.exchange(request)
                self._stream = answer.stream
                if not answer.headers.get("content-type", "").startswith("text/event-stream"):
                    self._may_stream = False
                    yield from self._close()
                    return None
            data = yield NextEvent(self._stream)
            if data is None:
                yield from self._close()
                return None
            state = read(Job, orjson.loads(data))
        except ProblemError as error:
            if error.kind == "no-job":
                raise
            self._may_stream = False
            return None
        except (NoAnswerError, orjson.JSONDecodeError):
            yield from self._close()
            return None
        if state.has_ended:
            yield from self._close()
        self._session.saw(state.result)
        self._last = state
        return state

    def _close(self) -> Flow[None]:
        if self._stream is not None:
            yield Close(self._stream)
        self._stream = None


# --- erasures and the ledger


def erasure(session: Session, receipt: Receipt | str) -> Flow[Receipt]:
    """Return a receipt as it is now.

    Parameters
    ----------
    receipt : Receipt or str
        The receipt or its id.

    Raises
    ------
    NotFoundError
        When there is none.
    """
    name = receipt if isinstance(receipt, str) else receipt.id
    return read_receipt((yield from session.ask(_get(f"/erasures/{quote(name, safe='')}"))))


def erasures(session: Session, ref: str) -> Flow[list[Receipt]]:
    """Return all receipts with a case number, the oldest first."""
    content = _object_of((yield from session.ask(_get("/erasures", ref=ref))))
    return [read_receipt(one) for one in content.get("erasures", [])]


def wait_erased(session: Session, receipt: Receipt | str, *, timeout: float | None = None) -> Flow[Receipt]:
    """Wait until what was unlearned is erased from all files of the server, and return the receipt that says so.

    Parameters
    ----------
    receipt : Receipt or str
        The receipt or its id.
    timeout : float, optional
        In seconds; by default as long as it takes. Servers take a minute unless they are set to another deadline.

    Raises
    ------
    WaitTimeoutError
        When it is not erased in time; it will be.
    EphemeralError
        When the server keeps nothing on disk: then a receipt never says `erased`.
    """
    deadline = None if timeout is None else session.clock() + timeout
    pause = _FIRST_POLL
    while True:
        state = yield from erasure(session, receipt)
        if state.status == "erased":
            return state
        if not state.durable:
            yield from session.ask(_get("/snapshot"))  # refused, in the server's words
        if deadline is not None and session.clock() >= deadline:
            raise WaitTimeoutError("it is not erased in time; the server goes on")
        yield Sleep(pause)
        pause = min(_LONGEST_POLL, 1.5 * pause)


def keys(session: Session) -> Flow[list[PublicKey]]:
    """Return the public keys that check receipts, the current one first. Keep them: they are what you trust."""
    content = _object_of((yield from session.ask(_get("/keys"))))
    return [read(PublicKey, one) for one in content.get("keys", [])]


def verify_receipt(
    session: Session,
    receipt: Receipt | Mapping[str, Any],
    *,
    keys: Iterable[PublicKey] | None = None,
    in_ledger: bool = False,
) -> Flow[str]:
    """Check that a receipt is signed, as it is, by a key that is trusted; return the key's id.

    Parameters
    ----------
    receipt : Receipt or dict
        As answered; of a receipt that was kept, the JSON object.
    keys : iterable of PublicKey, optional
        Trusted; by default those that the client was given as `trusted_keys`, else those that the server publishes
        (which proves that the server stands by it, and no more).
    in_ledger : bool
        Whether to ask for the ledger's entry that the receipt names as well, and compare its hash.

    Raises
    ------
    ReceiptError
        When it is not.
    """
    content = receipt.content if isinstance(receipt, Receipt) else receipt
    if keys is not None:
        trusted: Mapping[str, str] = {key.key_id: key.public_key for key in keys}
    elif session.trusted_keys is not None:
        trusted = session.trusted_keys
    else:
        trusted = {key.key_id: key.public_key for key in (yield from _published(session))}
    key_id = check_signature(content, trusted)
    if in_ledger:
        index, head = content.get("ledger_index"), content.get("ledger_head")
        if type(index) is not int or not isinstance(head, str):
            raise ReceiptError("it does not have the fields of a receipt")
        page = _object_of((yield from session.ask(_get("/ledger", cursor=index - 1, limit=1))))
        entries: Sequence[Any] = page.get("entries") or [{}]
        check_entry(entries[0], index, head)
    return key_id


_published = keys  # the parameter of the same name hides it


def ledger(session: Session, *, after: int = 0, page_size: int | None = None) -> Emits[LedgerEntry]:
    """Iterate over the entries of the audit ledger. Pages are asked for as they are needed.

    Parameters
    ----------
    after : int
        Index of the entry to begin behind.
    page_size : int, optional
        Entries an answer.
    """
    cursor: str | None = str(after)
    while cursor is not None:
        content = _object_of((yield from session.ask(_get("/ledger", cursor=cursor, limit=page_size))))
        for entry in content.get("entries", []):
            yield Emit(read_entry(entry))
        cursor = content.get("next")


# --- snapshots


def snapshot(session: Session) -> Flow[Snapshot]:
    """Have the server write a snapshot now, and return what is known of it."""
    return read(Snapshot, (yield from session.ask(_post("/snapshot"))))


def newest_snapshot(session: Session) -> Flow[Snapshot]:
    """Return what is known of the newest snapshot.

    Raises
    ------
    NotFoundError, EphemeralError
        When there is none.
    """
    # Its version is that of the time when it was written, which says nothing about the model.
    return read(Snapshot, (yield from session.ask(_get("/snapshot"))))


def download_snapshot(session: Session, path: str | os.PathLike[str]) -> Flow[int]:
    """Download the newest snapshot and return its size.

    It holds every sample: the file can be read by its owner alone. It is there when all of it has arrived, and not
    before; one of the same name is overwritten then.

    Parameters
    ----------
    path : path
        Of the file.
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


# --- health


def is_alive(session: Session) -> Flow[bool]:
    """Whether the server's process answers, whatever it is busy with. It is asked once."""
    try:
        yield from session.exchange(replaced(_get("/healthz"), is_retried=False))
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
    """
    request = _get("/readyz", **({"for": "changes"} if for_changes else {}))
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
    """
    deadline = session.clock() + timeout
    pause = _FIRST_POLL
    while True:
        try:
            return (yield from ready(session, for_changes=for_changes))
        except (UnavailableError, NoAnswerError):
            if session.clock() >= deadline:
                raise
        yield Sleep(pause)
        pause = min(1.0, 1.5 * pause)
