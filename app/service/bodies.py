"""What the journal keeps of a mutation, as JSON, and how it is applied again to a model from a snapshot.

    {"do": "add", "ids": [..], "rows": [[..]], "labels": [..], "subjects": [..] or null, "expires": [..] or null,
     "next_id": n}
    {"do": "delete", "ids": [..]}
    {"do": "replace", "id": .., "row": [..], "label": .., "subject": .. or null, "expires": .. or null}
    {"do": "fit", "kind": .., "parameters": {..}}

Cells and labels are those of the request, not their codes: they mean the same to a model from any snapshot. JSON's
shortest form of a number is read back as the same number.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any

import orjson

from oubli.app.service.fitting import another_estimator, refit
from oubli.core.model import Model


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

    do: str = field(default="add", init=False)
    ids: Sequence[str]
    rows: Sequence[Sequence[Any]]
    labels: Sequence[Any]
    subjects: Sequence[str | None] | None
    expires: Sequence[int | None] | None
    next_id: int

    def redo(self, model: Model, exports: int) -> Model:
        """Add the samples to a model from a snapshot; `exports` snapshots were handed out before."""
        model.add_prepared(model.samples_.prepare(self.rows, self.labels, self.ids))
        self.attach(model, exports)
        return model

    def attach(self, model: Model, exports: int) -> None:
        """Keep with samples just added what is not learned from: subject, expiry, and the number of exports so far.

        Those that have left a sliding window again, because more came with them than it holds, are passed over.
        """
        store = model.samples_
        if self.subjects is not None:
            for name, subject in zip(self.ids, self.subjects, strict=True):
                if subject is not None and store.contains(name):
                    store.set_subject(name, subject)
        if self.expires is not None:
            for name, at in zip(self.ids, self.expires, strict=True):
                if at is not None and store.contains(name):
                    store.set_expiry(name, at)
        if exports:
            store.set_origins([name for name in self.ids if store.contains(name)], exports)


@dataclass(frozen=True, slots=True)
class DeleteBody:
    """Samples that are deleted."""

    do: str = field(default="delete", init=False)
    ids: Sequence[str]

    def redo(self, model: Model, exports: int) -> Model:
        """Delete the samples from a model from a snapshot."""
        del exports
        model.delete(self.ids)
        return model


@dataclass(frozen=True, slots=True)
class ReplaceBody:
    """The new content of one sample, whole."""

    do: str = field(default="replace", init=False)
    id: str
    row: Sequence[Any]
    label: Any
    subject: str | None
    expires: int | None

    def redo(self, model: Model, exports: int) -> Model:
        """Replace the content in a model from a snapshot; `exports` snapshots were handed out before."""
        store = model.samples_
        relearned = not store.same_content(self.id, store.prepare([self.row], [self.label]), 0)
        self.apply(model, exports if relearned else None)
        return model

    def apply(self, model: Model, exports: int | None) -> None:
        """Replace the content; `exports` is None when features and label stay as they are."""
        store = model.samples_
        if exports is not None:
            model.replace(self.id, self.row, self.label)
            store.set_origins([self.id], exports)
        store.set_subject(self.id, self.subject)
        store.set_expiry(self.id, self.expires)


@dataclass(frozen=True, slots=True)
class FitBody:
    """A fit of another kind or with other parameters on the samples held."""

    do: str = field(default="fit", init=False)
    kind: str
    parameters: Mapping[str, Any]

    def redo(self, model: Model, exports: int) -> Model:
        """Fit another model on the samples of a model from a snapshot, and return it."""
        del exports
        return refit(another_estimator(self.kind, self.parameters, model), model.samples_)


Body = AddBody | DeleteBody | ReplaceBody | FitBody
_KINDS: dict[str, type[Body]] = {"add": AddBody, "delete": DeleteBody, "replace": ReplaceBody, "fit": FitBody}


def decode(body: bytes) -> Body:
    """Return the body that a record holds.

    Raises
    ------
    ValueError
        When it is none that this version writes.
    """
    content = orjson.loads(body)
    kind = _KINDS.get(str(content.get("do", ""))) if isinstance(content, dict) else None
    if kind is None or set(content) != {field.name for field in fields(kind)}:
        raise ValueError("a body of another version")
    del content["do"]
    return kind(**content)
