"""Samples are added."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from oubli.app.errors import ConflictError, ErasedLatelyError
from oubli.app.service.commands.command import LARGE, Command
from oubli.app.service.commands.held import names_leaving, require_unrestricted
from oubli.app.service.nonces import new_nonces, note_nonces
from oubli.app.service.results import Added, NewSamples
from oubli.core.samples.slots import canonical_number
from oubli.core.samples.store import Prepared

if TYPE_CHECKING:
    from oubli.app.service.idempotency import IdempotencyKey
    from oubli.app.service.transaction import Transaction
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


class AddSamples(Command[Added]):
    """Add the samples whose ids are not held; those that are must have the same content.

    Parameters
    ----------
    samples
        An id that is None is generated.
    key
        The caller's idempotency key.
    """

    is_merged = True

    def __init__(self, samples: NewSamples, key: IdempotencyKey | None = None) -> None:
        super().__init__(key)
        self._samples = samples
        self._ids: list[str] = []
        self.exports = 0

    def count(self, model: Model) -> int:
        """Return how many samples were sent."""
        del model
        return len(self._samples)

    def plan(self, model: Model, transaction: Transaction) -> None:
        """Find what is new.

        Raises
        ------
        RestrictedError
            When ids or subjects are restricted.
        ConflictError
            When ids are held with other content, another subject or another expiry.
        ErasedLatelyError
            When ids were erased lately and the samples do not say that they may come back.
        CapacityError
            When the model cannot hold so many samples.
        InputError
            With the position in the request as `row`.
        """
        samples, store, given_ids = self._samples, model.samples_, self._samples.ids
        first_id = max(store.next_id, transaction.next_id)
        self._ids = ids = with_generated(given_ids, first_id)
        if store.restricted.marks:
            require_unrestricted(store.restricted, ids, samples.subjects)
        # What is sent is encoded before it is compared, so that 0.1 equals the float32 nearest to it.
        prepared = store.prepare(samples.rows, samples.labels, ids, allow_held=True)
        held = [row for row, name in enumerate(ids) if store.contains(name)]
        conflicts = [row for row in held if not _is_same(model, samples, row, ids[row], prepared)]
        if conflicts:
            raise ConflictError(conflicts)
        known = set(held)
        new = [row for row in range(len(ids)) if row not in known] if held else list(range(len(ids)))
        late = [row for row in new if not samples.readd[row] and transaction.tombstones.holds(ids[row])]
        if late:
            raise ErasedLatelyError(late)
        self.names = {("id", name) for name in ids}
        self.names.update(("subject", subject) for subject in samples.subjects if subject is not None)
        self.n_new = self.n_more = len(new)
        self.body = self.adds = None
        retentions = {
            subject: period
            for subject, period in samples.retentions.items()
            if (before := store.retention(subject)) is None or before.period_ms != period
        }
        if not new and not retentions:
            return
        model.require_room(transaction.n_more + len(new))
        self.names |= names_leaving(model, len(new))
        if held:
            samples, prepared = samples.take(new), prepared.take(new)
        new_ids = [ids[row] for row in new]
        later = transaction.default_expiry()
        expires = [later if at is None else at for at in samples.expires]
        self.next_id = end_of_ids(new_ids, first_id)
        self.exports = transaction.state.exports
        self.body = AddBody(
            new_ids,
            samples.rows,
            samples.labels,
            samples.subjects if any(subject is not None for subject in samples.subjects) else None,
            expires if any(at is not None for at in expires) else None,
            self.next_id,
            transaction.now_ms(),
            self.request_id or None,
            retentions or None,
            new_nonces(len(new_ids)) if new_ids else None,
        )
        self.adds = prepared if new else None
        generated = (int(name) for name, given in zip(ids, given_ids, strict=True) if given is None)
        self.first_id = next(generated, None)

    def apply(self, model: Model, alike: Sequence[AddSamples]) -> None:
        """Add the samples of all."""
        prepared = [one.adds for one in alike if one.adds is not None]
        if prepared:
            model.add_prepared(prepared[0] if len(prepared) == 1 else Prepared.merged(prepared))
        for one in alike:
            if isinstance(one.body, AddBody):
                one.body.attach(model, one.exports)

    def apply_to_fewer(self, model: Model, gone: Sequence[str]) -> None:
        """Add the samples."""
        del gone
        self.apply(model, [self])

    def result(self) -> Added:
        """Return the ids in the order of the request, and how many samples are new."""
        return Added(self._ids, self.n_new, self.n_samples, self.version)

    def overwrite(self) -> None:
        """Overwrite the numbers of a large addition that the model holds by now: freeing memory does not empty it.

        Of a small one that would take as long as a good part of the addition.
        """
        adds = self.adds
        if adds is not None and adds.n >= LARGE:
            adds.cells.fill(0)
            if type(adds.labels) is np.ndarray:
                adds.labels.fill(0)


def end_of_ids(ids: Sequence[str | None], first: int) -> int:
    """Return the number above all that `with_generated` may give out from `first` on."""
    numbers = [canonical_number(name) for name in ids if name is not None]
    above = max((number + 1 for number in numbers if number is not None), default=0)
    return max(first, above) + sum(name is None for name in ids)


def with_generated(ids: Sequence[str | None], first: int) -> list[str]:
    """Return ids with a generated one for each None: numbers from `first` on, above all numbers among the others."""
    n_generated = sum(name is None for name in ids)
    number = end_of_ids(ids, first) - n_generated if n_generated else 0
    names = []
    for name in ids:
        if name is None:
            name = str(number)
            number += 1
        names.append(name)
    return names


def _is_same(model: Model, samples: NewSamples, row: int, name: str, prepared: Prepared) -> bool:
    """Whether a sample that was sent is the one held. An expiry that was left out is not compared: it moves."""
    store = model.samples_
    expires = samples.expires[row]
    return (
        samples.subjects[row] == store.subject(name)
        and (expires is None or expires in (store.own_expiry(name), store.expiry(name)))
        and store.same_content(name, prepared, row)
    )
