"""What a caller passes with rows beside their features: ids, subjects and expiries.

Ids that are not given come from the index of a DataFrame:

| index                                            | ids                                                      |
|--------------------------------------------------|----------------------------------------------------------|
| pandas' default, a RangeIndex 0, 1, ..., no name | the labels, if ids of the model have come from an index  |
|                                                  | refused, if the ids of its first samples were given      |
|                                                  | else generated                                           |
| other labels: text, integers                     | the labels                                               |
| dates, times                                     | their ISO text                                           |
| all labels are of other types, or missing        | generated, with a warning: such a label deletes nothing  |
| some of them are, or labels are repeated         | refused: a label could delete another row                |
"""

from collections.abc import Sequence
from contextlib import suppress
from datetime import UTC, date, datetime, timedelta
from typing import TYPE_CHECKING, Any

import numpy as np

from oubli.core.data.tables import loaded, read_frame
from oubli.core.data.values import RefusedError, id_text, is_missing, normalise_id
from oubli.core.errors import IndexWarning, InputError, warn_caller
from oubli.core.samples.indexes import checked_moment
from oubli.core.samples.owners import check_nonces, check_origin, checked_period
from oubli.core.samples.records import Rows
from oubli.core.samples.slots import IdSource, read_ids, refuse_repeated, values_of

if TYPE_CHECKING:
    from oubli.core.samples.store import RestrictedSamples, SampleStore

_GENERATE = "generate"
WAYS_OUT = 'pass ids= to name the samples, or ids="generate" for new ids'
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
# What stands for one id or subject rather than for a list of them, so that the error of one that is none says so.
_SINGLE = (str, int, float, np.generic, date)


def check_rows(rows: Rows, n: int, restricted: "RestrictedSamples") -> None:
    """Check what a caller says of n rows, ids aside, before they are added.

    Raises
    ------
    InputError
        When there is not one entry for each row, a subject is restricted, or something is out of range.
    """
    subjects, expires = rows.subjects, rows.expires
    if subjects is not None:
        _check_length(subjects, n, "subject")
        for row, subject in enumerate(subjects):
            if subject is not None:
                normalise_id(subject, field="subject", row=row)
                if subject in restricted.marks:
                    raise InputError("is restricted: release it first", row=row, field="subject", value=subject)
    if isinstance(expires, int):
        checked_moment(expires)
    elif expires is not None:
        _check_length(expires, n, "expires_at")
        for moment in expires:
            checked_moment(moment)
    if rows.at_ms and (checked_moment(rows.at_ms) or 0) < 1:
        raise InputError("must be a time after 1970", field="at")
    if rows.request is not None:
        normalise_id(rows.request, field="request")
    for period in rows.retentions.values():
        checked_period(period)
    if rows.origin:
        check_origin(rows.origin)
    if rows.nonces is not None:
        check_nonces(rows.nonces, n)


def _check_length(values: Sequence[Any], n: int, field: str) -> None:
    if len(values) != n:
        rule = f"X has {n} rows, but {len(values)} values are given: give one for each row"
        raise InputError(rule, field=field)


def read_row(x: Any, sample_id: Any, *, ids: Any, subjects: Any, expires_at: Any, sample_weight: Any) -> Rows:
    """Read what a caller says of the only row, of a sample that is held.

    Raises
    ------
    InputError
        As `read_rows`; also when the row has another id.
    """
    is_table = getattr(x, "ndim", 1) == 2 or read_frame(loaded(x)) is not None
    X = x if is_table else [x]
    ids = [sample_id] if ids is None else ids
    rows = read_rows(X, ids=ids, subjects=subjects, expires_at=expires_at, sample_weight=sample_weight)
    if rows.ids != [normalise_id(sample_id)]:
        raise InputError("x must be one row with the id of the sample that is replaced", field="id")
    return rows


def read_rows(
    X: Any,
    *,
    ids: Any = None,
    subjects: Any = None,
    expires_at: Any = None,
    sample_weight: Any = None,
    store: "SampleStore | None" = None,
) -> Rows:
    """Read what a caller says of rows.

    Parameters
    ----------
    X : the table.
    ids : one for each row, the name of a column, "generate", or None for what the index says.
    subjects : one for each row, the name of a column, or None.
    expires_at : one for each row, the name of a column, one for all, or None.
    sample_weight : one for each row, the name of a column, one for all, or None.
    store : the samples held; None before a fit.

    Raises
    ------
    InputError
        With the row, the field and the rule.
    """
    X = loaded(X)
    may_name = any(isinstance(given, str) for given in (ids, subjects, expires_at, sample_weight))
    frame = read_frame(X) if may_name else None
    named = [] if frame is None else frame.labels
    used = []

    def values(given: Any, what: str) -> list[Any]:
        field = what.removesuffix("s")
        if isinstance(given, str):
            if frame is None or given not in named:
                rule = f"X has no column of this name: pass a {field} for each row, or the name of a column"
                raise InputError(rule, field=field, value=given)
            used.append(given)
            given = frame.frame[given]
        if isinstance(given, (set, frozenset)):
            raise InputError(f"{what} must be a list in the order of the rows, not a set", field=field)
        return values_of(given, what)

    names, source = None, IdSource.GENERATED
    if ids is None:
        names, source = _names_of_index(X, store)
    elif not (isinstance(ids, str) and ids == _GENERATE):
        # A pandas Index is labels as well.
        source = IdSource.INDEX if hasattr(ids, "get_indexer") else IdSource.GIVEN
        names = read_ids(values(ids, "ids"))
    owners = None if subjects is None else _each(values(subjects, "subjects"), "subject", id_text)
    expires: Any = None
    if isinstance(expires_at, datetime) or (isinstance(expires_at, str) and expires_at not in named):
        (expires,) = _each([expires_at], "expires_at", _milliseconds)
    elif expires_at is not None:
        expires = _each(values(expires_at, "expires_at"), "expires_at", _milliseconds)
    weights = values(sample_weight, "sample_weight") if isinstance(sample_weight, str) else sample_weight
    X = X if frame is None or not used else frame.without(used)
    return Rows(X, names, source, owners, expires, weights=weights)


def _each(values: list[Any], field: str, read: Any) -> list[Any]:
    """Return values as they are held, None for what is missing."""
    held: list[Any] = []
    for row, value in enumerate(values):
        try:
            held.append(None if is_missing(value) else read(value))
        except RefusedError as refused:
            raise InputError(refused.rule, row=row, field=field, value=value) from None
    return held


def _milliseconds(value: Any) -> int:
    """Return a time in milliseconds since 1970."""
    try:
        moment = datetime.fromisoformat(value) if isinstance(value, str) else value
    except ValueError:
        moment = None
    if not isinstance(moment, datetime) or moment.tzinfo is None:
        raise RefusedError("must be a datetime with a time zone, or its text, as in 2030-01-31T12:00:00Z")
    return int((moment - _EPOCH) // timedelta(milliseconds=1))


def _names_of_index(X: Any, store: "SampleStore | None") -> tuple[list[str] | None, IdSource]:
    """Return the labels of a DataFrame's index as ids, None when ids are to be generated; see the top of this file."""
    if not (hasattr(X, "columns") and hasattr(X, "index")):
        return None, IdSource.GENERATED
    index = X.index
    if index.name is None and getattr(index, "start", None) == 0 and getattr(index, "step", None) == 1:
        source = IdSource.GENERATED if store is None else store.id_source
        if source is IdSource.GIVEN and store and (len(store) or len(store.restricted)):
            raise InputError(
                "X has pandas' default index, which does not say whether its labels are ids of this model, whose "
                f"samples were named: {WAYS_OUT}",
                field="id",
            )
        if source is not IdSource.INDEX:
            return None, IdSource.GENERATED
    labels, names = list(index), []
    for label in labels:
        with suppress(RefusedError):
            names.append(id_text(label))
    if len(set(names)) == len(labels):
        return names, IdSource.INDEX
    if names:
        n = len(labels) - len(set(names))
        raise InputError(
            f"{n} of the {len(labels)} labels of X's index are repeated, missing, or neither text nor integers nor "
            f"dates, so that a label could delete another row: {WAYS_OUT}",
            field="id",
        )
    warn_caller(
        "the labels of X's index are neither text nor integers nor dates: ids are generated. Pass ids= to name the "
        "samples",
        IndexWarning,
    )
    return None, IdSource.GENERATED


def read_targets(store: "SampleStore", ids: Any, subjects: Any) -> list[str]:
    """Read which samples are meant: those of ids, or of subjects, each named once.

    Raises
    ------
    DuplicateIdError
        When an id is named twice.
    InputError
        When both are given, or none, or what is given is no list of ids or subjects.
    """
    if subjects is None:
        one = ids[0] if type(ids) is list and len(ids) == 1 else ids
        if type(one) is str and one in store.slot_of:  # what is held is an id
            return [one]
        if hasattr(ids, "iloc") and list(ids.index) == list(store.schema.names):
            raise InputError("ids must be a list, not a row of X: pass its label", field="id")
        names = read_ids([ids] if isinstance(ids, _SINGLE) else ids)
        if len(names) > 1 and len(set(names)) < len(names):
            refuse_repeated(names)
        return names
    if ids is not None:
        raise InputError("pass ids or subjects, and not both")
    given = [subjects] if isinstance(subjects, _SINGLE) else values_of(subjects, "subjects")
    return list(dict.fromkeys(normalise_id(one, field="subject", row=row) for row, one in enumerate(given)))
