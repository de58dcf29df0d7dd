"""Samples are added."""

from __future__ import annotations

import base64
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from oubli.app.errors import ConflictError, ErasedLatelyError, RestrictedError
from oubli.app.service.changes.command import LARGE, Command, PlannedBody, Transaction
from oubli.core.model import Model
from oubli.core.planning import FIRST, AddPlan, Turn
from oubli.core.samples.indexes import NONCE_BYTES
from oubli.core.samples.records import Rows

Row = list[Any]
"""The cells of one sample or instance, in feature order."""


@dataclass(slots=True)
class NewSamples:
    """The samples of one request, column by column.

    An id that is None is generated. `expires` are milliseconds since 1970, None where none was given; `readd` says
    that an id may come back although it was erased lately; `retentions` how long samples of subjects are kept, in
    milliseconds; `weights` has the weights other than 1, by position.
    """

    rows: list[Row]
    labels: list[Any]
    ids: list[str | None]
    subjects: list[str | None]
    expires: list[int | None]
    readd: list[bool]
    retentions: dict[str, int] = field(default_factory=dict)
    weights: dict[int, float] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.rows)

    def take(self, positions: list[int]) -> NewSamples:
        """Return some of the samples."""
        return NewSamples(
            [self.rows[i] for i in positions],
            [self.labels[i] for i in positions],
            [self.ids[i] for i in positions],
            [self.subjects[i] for i in positions],
            [self.expires[i] for i in positions],
            [self.readd[i] for i in positions],
            self.retentions,
            {new: self.weights[i] for new, i in enumerate(positions) if i in self.weights},
        )

    def all_weights(self) -> list[float] | None:
        """Return the weight of each sample; None when all are 1."""
        return [self.weights.get(i, 1.0) for i in range(len(self))] if self.weights else None


class Added(NamedTuple):
    """Ids in the order of the request; `n_new` of them were not held before."""

    ids: list[str]
    n_new: int
    n_samples: int
    model_version: int


@dataclass(frozen=True, slots=True)
class AddBody(PlannedBody):
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
    weights
        None when all are 1.
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
    weights: Sequence[float] | None = None

    def plan(self, model: Model, exports: int, turn: Turn = FIRST) -> AddPlan:
        """Plan the addition; `exports` snapshots were handed out before."""
        rows = Rows(
            self.rows,
            self.ids,
            subjects=self.subjects,
            expires=self.expires,
            origin=exports,
            at_ms=self.at,
            request=self.request,
            retentions=self.retentions or {},
            nonces=None if self.nonces is None else base64.b64decode(self.nonces),
            weights=self.weights,
        )
        if not self.rows:  # all samples were held, and only how long they are kept has changed
            return AddPlan(guarantee=model.guarantee, sent=[], rows=rows, next_id=self.next_id)
        return model.plan_add(rows, self.labels, turn=turn)


@dataclass(eq=False, repr=False)
class AddSamples(Command[Added]):
    """Add the samples whose ids are not held; those that are must have the same content.

    Parameters
    ----------
    samples
        An id that is None is generated.
    """

    samples: NewSamples
    _ids: list[str] = field(default_factory=list, init=False)

    def count(self, model: Model) -> int:
        """Return how many samples were sent."""
        del model
        return len(self.samples)

    def plan(self, model: Model, transaction: Transaction) -> None:
        """Find what is new.

        Raises
        ------
        RestrictedError
            When ids or subjects are restricted.
        ConflictError
            When ids are held with other content, another subject, weight or expiry.
        ErasedLatelyError
            When ids were erased lately and the samples do not say that they may come back.
        CapacityError
            When the model cannot hold so many samples.
        InputError
            With the position in the request as `row`.
        """
        sent = self.samples
        plan = model.plan_add(
            Rows(
                sent.rows,
                sent.ids,
                subjects=sent.subjects,
                expires=sent.expires,
                default_expiry=transaction.default_expiry(),
                origin=transaction.state.exports,
                at_ms=transaction.now_ms(),
                request=self.request_id or None,
                retentions=sent.retentions,
                weights=sent.all_weights(),
            ),
            sent.labels,
            compares=True,
            turn=transaction.turn,
        )
        if plan.restricted_ids or plan.restricted_subjects:
            raise RestrictedError(plan.restricted_ids, plan.restricted_subjects)
        if plan.conflicts:
            raise ConflictError(plan.conflicts)
        self._ids = ids = plan.sent or []
        late = [row for row in plan.new if not sent.readd[row] and transaction.tombstones.holds(ids[row])]
        if late:
            raise ErasedLatelyError(late)
        self.take(plan)
        self.n_new = len(plan.new)
        self.body = None
        if not plan.new and not plan.rows.retentions:
            self.planned = None
            return
        nonces = os.urandom(NONCE_BYTES * len(plan.new))
        plan.rows = rows = plan.rows._replace(nonces=nonces)
        samples = sent if len(plan.new) == len(ids) else sent.take(list(plan.new))
        expires = rows.expires if isinstance(rows.expires, list) else []
        self.next_id = plan.next_id
        self.body = AddBody(
            [ids[row] for row in plan.new],
            samples.rows,
            samples.labels,
            rows.subjects if any(subject is not None for subject in rows.subjects or ()) else None,
            expires if any(at is not None for at in expires) else None,
            self.next_id,
            rows.at_ms,
            rows.request,
            rows.retentions or None,
            base64.b64encode(nonces).decode("ascii") if nonces else None,
            samples.all_weights(),
        )
        generated = (int(name) for name, given in zip(ids, sent.ids, strict=True) if given is None)
        self.first_id = next(generated, None)

    def apply_to_fewer(self, model: Model, gone: Sequence[str]) -> None:
        """Add the samples."""
        del gone
        self.apply(model)

    def result(self) -> Added:
        """Return the ids in the order of the request, and how many samples are new."""
        return Added(self._ids, self.n_new, self.n_samples, self.version)

    def overwrite(self) -> None:
        """Overwrite the numbers of a large addition that the model holds by now: freeing memory does not empty it.

        Of a small one that would take as long as a good part of the addition.
        """
        adds = self.planned.prepared if isinstance(self.planned, AddPlan) else None
        if adds is not None and adds.n >= LARGE:
            for numbers in (adds.cells, adds.labels, adds.weights, adds.units):
                if type(numbers) is np.ndarray:
                    numbers.fill(0)
