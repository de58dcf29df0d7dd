"""What the journal keeps of a mutation, as JSON, and how it is applied again to a model from a snapshot.

    {"do": "add", "ids": [..], "rows": [[..]], "labels": [..], "subjects": [..] or null, "expires": [..] or null,
     "next_id": n, "at": t, "request": ".." or null, "retentions": {"subject": ms} or null, "nonces": base64}
                                          earlier versions have written none of the last four
    {"do": "delete", "ids": [..]}
    {"do": "replace", "id": .., "row": [..], "label": .., "subject": .. or null, "expires": .. or null, "nonce": base64}
                                          earlier versions have written no nonce
    {"do": "restrict", "subjects": [..], "at": t, "keep": true or false}
    {"do": "release", "subjects": [..]}
    {"do": "retain", "subjects": [..], "period": ms or null, "at": t}
    {"do": "fit", "kind": .., "parameters": {..}}

Cells and labels are those of the request, not their codes: they mean the same to a model from any snapshot. JSON's
shortest form of a number is read back as the same number.
"""

from collections.abc import Mapping, Sequence
from dataclasses import MISSING, dataclass, field, fields
from typing import Any

import orjson

from oubli.app.service.fitting import another_estimator, refit
from oubli.app.service.nonces import note_nonces
from oubli.core.model import Model
from oubli.core.samples.restricted import Mark
from oubli.core.samples.store import SampleStore


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
    at
        When, in milliseconds since 1970; 0 when that is not known.
    request
        What names the request; None when nothing does.
    retentions
        How long samples of subjects are kept from now on, in milliseconds; None when nothing is said.
    nonces
        16 bytes for each sample, in base64; None when they are to be drawn.
    """

    do: str = field(default="add", init=False)
    ids: Sequence[str]
    rows: Sequence[Sequence[Any]]
    labels: Sequence[Any]
    subjects: Sequence[str | None] | None
    expires: Sequence[int | None] | None
    next_id: int
    at: int = 0
    request: str | None = None
    retentions: Mapping[str, int] | None = None
    nonces: str | None = None

    def redo(self, model: Model, exports: int) -> Model:
        """Add the samples to a model from a snapshot; `exports` snapshots were handed out before."""
        if self.ids:
            model.add_prepared(model.samples_.prepare(self.rows, self.labels, self.ids))
        self.attach(model, exports)
        return model

    def attach(self, model: Model, exports: int) -> None:
        """Keep with samples just added what is not learned from: subject, expiry, exports so far, when and from where.

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
        if self.at:
            store.note_additions([name for name in self.ids if store.contains(name)], self.at, self.request)
        for subject, period_ms in (self.retentions or {}).items():
            store.set_retention(subject, period_ms, self.at)
        if self.nonces is not None:
            note_nonces(store, self.ids, self.nonces)


@dataclass(frozen=True, slots=True)
class DeleteBody:
    """Samples that are deleted."""

    do: str = field(default="delete", init=False)
    ids: Sequence[str]

    def redo(self, model: Model, exports: int) -> Model:
        """Delete the samples from a model from a snapshot."""
        del exports
        delete(model, self.ids)
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
    nonce: str | None = None

    def redo(self, model: Model, exports: int) -> Model:
        """Replace the content in a model from a snapshot; `exports` snapshots were handed out before."""
        store = model.samples_.holding(self.id) or model.samples_
        relearned = not store.same_content(self.id, store.prepare([self.row], [self.label]), 0)
        self.apply(model, exports if relearned else None)
        return model

    def apply(self, model: Model, exports: int | None) -> None:
        """Replace the content; `exports` is None when features and label stay as they are.

        The sample is restricted afterwards when the subject that it has then is.
        """
        store, restricted = model.samples_, model.samples_.restricted
        was, is_next = restricted.holds(self.id), self.subject in restricted.marks
        if not (was or is_next):
            if exports is not None:
                model.replace(self.id, self.row, self.label)
            self._attach(store, exports)
            return
        # The content changes where nothing is learned from it.
        if not was:
            model.restrict([self.id])
        before = restricted.samples.subject(self.id)
        if exports is not None:
            restricted.replace(self.id, self.row, self.label)
        self._attach(restricted.samples, exports)
        if not is_next:
            model.release([self.id])
        restricted.drop_marks([before])

    def _attach(self, store: SampleStore, exports: int | None) -> None:
        if exports is not None:
            store.set_origins([self.id], exports)
        store.set_subject(self.id, self.subject)
        store.set_expiry(self.id, self.expires)
        if self.nonce is not None:
            note_nonces(store, [self.id], self.nonce)


@dataclass(frozen=True, slots=True)
class RestrictBody:
    """Subjects whose processing is restricted.

    Attributes
    ----------
    subjects
        Those of which something is held.
    at
        When, in milliseconds since 1970.
    keep
        Whether their samples are kept beyond their expiry.
    """

    do: str = field(default="restrict", init=False)
    subjects: Sequence[str]
    at: int
    keep: bool

    def redo(self, model: Model, exports: int) -> Model:
        """Restrict the subjects in a model from a snapshot."""
        del exports
        self.apply(model)
        return model

    def apply(self, model: Model) -> None:
        """Keep the samples of the subjects, and unlearn them; a subject that is restricted stays so since it was."""
        store, known = model.samples_, model.samples_.restricted.marks
        for subject in self.subjects:
            # A sliding window may hold none of the samples that the model had.
            model.restrict(store.ids_of_subject(subject), {subject: Mark(self.at, self.keep)})
            if subject in known:
                known[subject] = known[subject]._replace(keeps=self.keep)


@dataclass(frozen=True, slots=True)
class ReleaseBody:
    """Subjects whose processing is restricted no longer.

    Attributes
    ----------
    subjects
        Those that are restricted.
    """

    do: str = field(default="release", init=False)
    subjects: Sequence[str]

    def redo(self, model: Model, exports: int) -> Model:
        """Release the subjects in a model from a snapshot."""
        del exports
        self.apply(model)
        return model

    def apply(self, model: Model) -> None:
        """Learn the samples of the subjects again."""
        restricted = model.samples_.restricted
        model.release([name for subject in self.subjects for name in restricted.ids_of_subject(subject)])


@dataclass(frozen=True, slots=True)
class RetainBody:
    """How long samples of subjects are kept.

    Attributes
    ----------
    subjects
        Those of which something is held.
    period
        In milliseconds from the addition of each sample; None takes it back.
    at
        When it was said, in milliseconds since 1970.
    """

    do: str = field(default="retain", init=False)
    subjects: Sequence[str]
    period: int | None
    at: int

    def redo(self, model: Model, exports: int) -> Model:
        """Set the period in a model from a snapshot."""
        del exports
        self.apply(model)
        return model

    def apply(self, model: Model) -> None:
        """Set the period, whether the subjects are restricted or not."""
        store = model.samples_
        for subject in self.subjects:
            holder = store.restricted.samples if subject in store.restricted.marks else store
            holder.set_retention(subject, self.period, self.at)


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


Body = AddBody | DeleteBody | ReplaceBody | RestrictBody | ReleaseBody | RetainBody | FitBody
_KINDS: dict[str, type[Body]] = {
    "add": AddBody,
    "delete": DeleteBody,
    "replace": ReplaceBody,
    "restrict": RestrictBody,
    "release": ReleaseBody,
    "retain": RetainBody,
    "fit": FitBody,
}


def delete(model: Model, ids: Sequence[str]) -> None:
    """Delete samples, whether they are restricted or not."""
    restricted = model.samples_.restricted
    if len(restricted):
        others = [name for name in ids if restricted.holds(name)]
        ids = [name for name in ids if not restricted.holds(name)]
        restricted.remove(others)
    model.delete(ids)


class UnknownBodyError(ValueError):
    """A body is none that this version writes: a newer version has written it."""


def decode(body: bytes) -> Body:
    """Return the body that a record holds.

    Raises
    ------
    UnknownBodyError
        When it is none that this version writes.
    """
    content = orjson.loads(body)
    kind = _KINDS.get(str(content.get("do", ""))) if isinstance(content, dict) else None
    if kind is None or not _required(kind) <= set(content) <= {field.name for field in fields(kind)}:
        raise UnknownBodyError("a body of another version")
    del content["do"]
    return kind(**content)


def _required(kind: type[Body]) -> set[str]:
    """Return the names that a body has since the first version."""
    return {field.name for field in fields(kind) if not field.init or field.default is MISSING}
