"""Bodies of records: what to do again when the journal is read back, as JSON.

    {"do": "add", "ids": [..], "rows": [[..]], "labels": [..], "subjects": [..] or null, "expires": [..] or null,
     "next_id": n}
    {"do": "delete", "ids": [..]}
    {"do": "replace", "id": .., "row": [..], "label": .., "subject": .. or null, "expires": .. or null}
    {"do": "fit", "kind": .., "parameters": {..}}

Cells and labels are those of the request, not their codes: they mean the same to a model from any snapshot. JSON's
shortest form of a number is read back as the same number.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from dataclasses import fields as fields_of
from typing import Any

import orjson


@dataclass(frozen=True, slots=True)
class AddBody:
    """Samples that are added.

    Attributes
    ----------
    ids, rows, labels
        One of each a sample; the cells of a row are in the order of the features.
    subjects
        None when no sample has one.
    expires
        In milliseconds since 1970; None when no sample expires.
    next_id
        Generated ids are at least this number afterwards.
    """

    ids: Sequence[str]
    rows: Sequence[Sequence[Any]]
    labels: Sequence[Any]
    subjects: Sequence[str | None] | None
    expires: Sequence[int | None] | None
    next_id: int


@dataclass(frozen=True, slots=True)
class DeleteBody:
    """Samples that are deleted."""

    ids: Sequence[str]


@dataclass(frozen=True, slots=True)
class ReplaceBody:
    """The new content of one sample, whole."""

    id: str
    row: Sequence[Any]
    label: Any
    subject: str | None
    expires: int | None


@dataclass(frozen=True, slots=True)
class FitBody:
    """A fit of another kind or with other parameters on the samples held."""

    kind: str
    parameters: Mapping[str, Any]


Body = AddBody | DeleteBody | ReplaceBody | FitBody
_KINDS: dict[str, type[Body]] = {"add": AddBody, "delete": DeleteBody, "replace": ReplaceBody, "fit": FitBody}
_NAMES = {kind: name for name, kind in _KINDS.items()}
_FIELDS = {kind: tuple(field.name for field in fields_of(kind)) for kind in _NAMES}


def encode(body: Body) -> bytes:
    """Return a body as bytes."""
    kind = type(body)
    return orjson.dumps({"do": _NAMES[kind], **{name: getattr(body, name) for name in _FIELDS[kind]}})


def decode(body: bytes) -> Body:
    """Return the body that was encoded.

    Raises
    ------
    ValueError
        When it is none that this version writes.
    """
    content = orjson.loads(body)
    kind = _KINDS.get(str(content.pop("do", ""))) if isinstance(content, dict) else None
    if kind is None or set(content) != set(_FIELDS[kind]):
        raise ValueError("a body of another version")
    return kind(**content)
