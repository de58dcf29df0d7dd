"""Samples: adding, reading, replacing, deleting.

What people may ask for about themselves: restriction of processing, its end, and all that is held about them.
"""

from __future__ import annotations

from dataclasses import replace as replaced
from typing import TYPE_CHECKING, Any

from oubli.api import erasures
from oubli.api.erasures import DeletionOutcome, NothingErased, Receipt
from oubli.api.model import Model
from oubli.api.samples import Added, Bundle, HeldSample, Restriction, SamplesAnswer
from oubli.client.errors import DataError
from oubli.client.messages import Emit, Emits, Flow, Request, to_json
from oubli.client.operations.jobs import result_of
from oubli.client.operations.requests import Names, column_rules, object_of, posting, reading
from oubli.client.results import ListedDeletion, read
from oubli.client.session import Session
from oubli.client.tables import frame_of, is_frame, labels_of, names_of, rows_of, samples_of, time_text

if TYPE_CHECKING:
    import pandas as pd

_KEEP = object()
_LINES = "application/x-ndjson"
MOST_IN_JSON = 1000
"""Samples that are sent as JSON; more are sent as a line each, of which servers take ten times as many at once."""


def add(
    session: Session,
    X: Any,
    y: Any,
    *,
    ids: Names | None = None,
    subjects: Any = None,
    expires_at: Any = None,
    sample_weight: Any = None,
    retention: int | None = None,
    readd: bool = False,
    extra_columns: str | None = None,
    missing_columns: str | None = None,
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
        Whom the samples are about: one for all, or one for each (None: no subject).
    expires_at : datetime or sequence of datetimes, optional
        When they are unlearned and erased by themselves: one for all, or one for each (None: never).
    sample_weight : number or sequence of numbers, optional
        How much samples count, from 1/512 to 32,768, rounded to multiples of 1/256: one for all, or one for each
        (None: 1).
    retention : int, optional
        For how many seconds from their addition all samples of the subjects are kept; see `retain`.
    readd : bool
        Whether ids that were erased lately may come back.
    extra_columns, missing_columns : optional
        As for `predict`.
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
    IdConflictError, ErasedLatelyError, RestrictedError
        With the places of the ids; nothing was added.
    TooLargeError
        When the server takes fewer samples at once (100,000): split them.

    Examples
    --------
    >>> added = client.add([[39, "a", True], [52, "b", None]], ["yes", "no"], ids=["ada-1", "bob-1"], subjects="ada")
    >>> added.ids
    ['ada-1', 'bob-1']
    """
    belongings = {"ids": ids, "subjects": subjects, "expires_at": expires_at, "sample_weight": sample_weight}
    samples = samples_of(X, y, **belongings, readd=readd)
    for sample in samples:
        features = sample["features"]
        if hasattr(features, "tolist"):
            sample["features"] = features.tolist()
        if retention is not None:
            sample["retention"] = retention
    query = column_rules(extra_columns, missing_columns)
    request = posting("/samples", {"samples": samples}, key=idempotency_key, takes_key=True, query=query)
    if len(samples) > MOST_IN_JSON:
        lines = b"\n".join(map(to_json, samples))
        request = replaced(request, body=lines, headers={**request.headers, "Content-Type": _LINES})
    return read(Added, (yield from session.ask(request)))


def get(session: Session, sample_id: str | int) -> Flow[HeldSample]:
    """Return one sample as it is held, with its `etag`.

    Raises
    ------
    NotFoundError
        When it is not held.

    Examples
    --------
    >>> added = client.add([[39, "a", True]], ["yes"], ids=["got-1"], subjects="got")
    >>> client.get("got-1").features
    {'age': 39, 'job': 'a', 'member': True}
    """
    answer = yield from session.exchange(reading("/samples", id=names_of(sample_id, "id")[0]))
    content = answer.json()
    session.saw(content)
    return read(SamplesAnswer, content).samples[0].model_copy(update={"etag": answer.headers.get("etag")})


def samples(session: Session, *, subject: str | int | None = None, page_size: int | None = None) -> Emits[HeldSample]:
    """Iterate over the samples held, or those of one subject. Pages are asked for as they are needed.

    Parameters
    ----------
    subject : str or int, optional
        Whose samples.
    page_size : int, optional
        Samples an answer; the server's default when left out.

    Examples
    --------
    >>> added = client.add([[39, "a", True]], ["yes"], ids=["listed-1"], subjects="listed")
    >>> [sample.id for sample in client.samples(subject="listed")]
    ['listed-1']
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
        as they are held), one with the labels, and `subject`, `expires_at` and `restricted_at` where any sample has
        one, and `weight` where any is not 1.

    Examples
    --------
    >>> added = client.add([[39, "a", True]], ["yes"], ids=["framed-1"], subjects="framed")
    >>> client.samples_frame(subject="framed")["age"].to_dict()
    {'framed-1': 39.0}
    """
    described = read(Model, (yield from session.ask(reading("/model"))))
    held, cursor = yield from _page(session, subject, None, page_size)
    while cursor is not None:
        found, cursor = yield from _page(session, subject, cursor, page_size)
        held += found
    return frame_of(held, described.schema)


def replace(
    session: Session,
    sample_id: str | int,
    features: Any,
    label: Any,
    *,
    subject: Any = _KEEP,
    expires_at: Any = _KEEP,
    sample_weight: Any = _KEEP,
    extra_columns: str | None = None,
    missing_columns: str | None = None,
    ref: str | None = None,
    if_match: str | None = None,
    idempotency_key: str | None = None,
) -> Flow[Receipt | NothingErased]:
    """Rectify one held sample: give it new content. The old content is unlearned, and erased like a deleted one.

    Parameters
    ----------
    sample_id : str or int
        Which.
    features : list, dict, Series, or DataFrame or array of one row
        The new features, all of them.
    label : scalar
        The new label.
    subject, expires_at, sample_weight : optional
        Stay as they are when left out; None clears them, and makes the weight 1.
    extra_columns, missing_columns : optional
        As for `predict`.
    ref : str, optional
        The caller's case number, a UUID.
    if_match : str, optional
        The `etag` of the sample as you have read it: nothing is changed if it was changed since.
    idempotency_key : str, optional
        As for `add`.

    Returns
    -------
    Receipt or NothingErased
        Of the kind `rectification`. A server that is sent very often what it holds already answers without a receipt.

    Raises
    ------
    NotFoundError
        When the sample is not held: this never adds one.
    ConflictError
        When it is not as in `if_match` (`sample-changed`).

    Examples
    --------
    >>> added = client.add([[39, "a", True]], ["yes"], ids=["wrong-1"], subjects="wrong")
    >>> client.replace("wrong-1", [40, "a", True], "yes").kind
    'rectification'
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
    if sample_weight is not _KEEP:
        content["weight"] = labels_of([sample_weight], 1, "weights")[0]
    named = (("id", names_of(sample_id, "id")[0]), *(() if ref is None else (("ref", ref),)))
    query = (*named, *column_rules(extra_columns, missing_columns))
    request = posting("/samples", content, key=idempotency_key, takes_key=True)
    put = replaced(_conditional(request, if_match), method="PUT", query=query)
    return _outcome((yield from session.ask(put)))


def delete(
    session: Session,
    ids: Names | None = None,
    *,
    subjects: Names | None = None,
    ref: str | None = None,
    if_match: str | None = None,
    idempotency_key: str | None = None,
) -> Flow[Receipt | NothingErased]:
    """Unlearn samples by their ids, or all samples of some subjects.

    What is not held is counted in the receipt's `absent`, not refused. `wait_erased` returns when no file of the server
    holds the samples any more. A server that is asked very often for what it does not hold answers without a receipt:
    `NothingErased`. What has erased something always has one.

    Parameters
    ----------
    ids : str, int, or iterable of them
        Which samples.
    subjects : str, int, or iterable of them
        Whose samples, instead of `ids`.
    ref : str, optional
        The caller's case number, a UUID.
    if_match : str, optional
        The `etag` of the only sample as you have read it: nothing is deleted if it was changed since.
    idempotency_key : str, optional
        As for `add`.

    Returns
    -------
    Receipt or NothingErased

    Raises
    ------
    DataError
        When neither or both are given, or nothing is named.
    ConflictError
        When the sample is not as in `if_match` (`sample-changed`).

    Examples
    --------
    >>> added = client.add([[39, "a", True]], ["yes"], ids=["gone-1"], subjects="gone")
    >>> receipt = client.delete(subjects="gone")
    >>> receipt.status, receipt.unlearned
    ('unlearned', 1)
    """
    request = _conditional(_deletion(ids, subjects, ref, idempotency_key), if_match)
    return _outcome((yield from session.ask(request)))


def delete_listing(
    session: Session,
    ids: Names | None = None,
    *,
    subjects: Names | None = None,
    ref: str | None = None,
    idempotency_key: str | None = None,
) -> Flow[ListedDeletion]:
    """Unlearn samples as `delete` does, and return of which of the names something was held.

    A request that is sent again with its key is answered as the first time.

    Parameters
    ----------
    ids, subjects, ref, idempotency_key
        As for `delete`.

    Returns
    -------
    ListedDeletion

    Raises
    ------
    DataError
        When neither or both are given, or nothing is named.

    Examples
    --------
    >>> added = client.add([[39, "a", True]], ["yes"], ids=["named-1"], subjects="named")
    >>> client.delete_listing(["named-1", "unknown"]).found
    {0: 1}
    """
    request = _deletion(ids, subjects, ref, idempotency_key, list_found=True)
    listed = read(erasures.ListedDeletion, (yield from session.ask(request)))
    session.saw(listed.receipt.content)
    return ListedDeletion(listed.receipt, {one.position: one.samples for one in listed.found})


def _conditional(request: Request, if_match: str | None) -> Request:
    """Make a request depend on the state of a sample, unless that is None."""
    return request if if_match is None else replaced(request, headers={**request.headers, "If-Match": if_match})


def _outcome(content: Any) -> Receipt | NothingErased:
    kind: Any = DeletionOutcome
    found: Receipt | NothingErased = read(kind, content)
    return found


def _deletion(
    ids: Names | None, subjects: Names | None, ref: str | None, idempotency_key: str | None, **further: bool
) -> Request:
    """Make the request of a deletion."""
    if (ids is None) == (subjects is None):
        raise DataError("name either ids or subjects, and not both")
    content: dict[str, Any] = (
        {"subjects": names_of(subjects, "subject")} if ids is None else {"ids": names_of(ids, "id")}
    )
    if ref is not None:
        content["ref"] = ref
    return posting("/samples/batch-delete", {**content, **further}, key=idempotency_key, takes_key=True)


def _page(
    session: Session, subject: str | int | None, cursor: str | None, size: int | None
) -> Flow[tuple[list[HeldSample], str | None]]:
    """Return a page of samples, and the cursor of the next; None when it is the last."""
    if subject is None:
        request = reading("/samples", cursor=cursor, limit=size)
    else:  # its name stays out of the address, which proxies log
        asked = {"subject": names_of(subject, "subject")[0], "cursor": cursor, "limit": size}
        request = posting(
            "/samples/search", {name: one for name, one in asked.items() if one is not None}, is_safe=True
        )
    page = read(SamplesAnswer, (yield from session.ask(request)))
    return page.samples, page.next


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

    Examples
    --------
    >>> added = client.add([[39, "a", True]], ["yes"], ids=["kept-1"], subjects="kept")
    >>> client.restrict("kept").samples
    1
    """
    further = {"keep_expired": True} if keep_expired else {}
    return (yield from _change_subjects(session, "restrict", subjects, ref, idempotency_key, further))


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

    Examples
    --------
    >>> added = client.add([[39, "a", True]], ["yes"], ids=["freed-1"], subjects="freed")
    >>> restriction = client.restrict("freed")
    >>> client.release("freed").samples
    1
    """
    return (yield from _change_subjects(session, "release", subjects, ref, idempotency_key, {}))


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

    Examples
    --------
    >>> added = client.add([[39, "a", True]], ["yes"], ids=["year-1"], subjects="year")
    >>> client.retain("year", seconds=365 * 24 * 3600).samples
    1
    """
    return (yield from _change_subjects(session, "retain", subjects, ref, idempotency_key, {"seconds": seconds}))


def _change_subjects(
    session: Session, change: str, subjects: Names, ref: str | None, key: str | None, further: dict[str, Any]
) -> Flow[Restriction]:
    """Ask for a change of all samples of some subjects."""
    content: dict[str, Any] = {"subjects": names_of(subjects, "subject"), **further}
    if ref is not None:
        content["ref"] = ref
    request = posting(f"/subjects/{change}", content, key=key, takes_key=True)
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

    Examples
    --------
    >>> added = client.add([[39, "a", True]], ["yes"], ids=["told-1"], subjects="told")
    >>> [sample.id for sample in client.export("told").samples]
    ['told-1']
    """
    asked: dict[str, Any] = {"subject": names_of(subject, "subject")[0], **({"influence": True} if influence else {})}
    content = object_of((yield from session.ask(posting("/subjects/export", asked, is_safe=True))))
    if "samples" in content:
        return read(Bundle, content)
    return read(Bundle, (yield from result_of(session, content, timeout=timeout)))
