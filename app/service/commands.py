"""A mutation as the service handles it: what is to be planned, how long that takes, and what its outcome means.

`plans` does the work; the service decides when and where, and these records tell it what it must know for that.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Generic, Literal, TypeVar

from oubli.app.ledger.receipts import Receipt
from oubli.app.service.costs import Cost
from oubli.app.service.idempotency import Claim
from oubli.app.service.plans import (
    Ground,
    Plan,
    plan_addition,
    plan_deletion,
    plan_deletion_of_subjects,
    plan_replacement,
)
from oubli.app.service.results import Added, Deleted, NewSamples, Replacement
from oubli.app.storage.models import ServedModel

T = TypeVar("T")

ReceiptKind = Literal["deletion", "rectification", "expiry"]


@dataclass(frozen=True, slots=True)
class Request:
    """What a receipt repeats of a request.

    Attributes
    ----------
    kind
        What was asked for.
    targets, by
        The ids or subjects named, each once.
    ref
        The caller's case number.
    received_ms
        When, in milliseconds since 1970.
    """

    kind: ReceiptKind
    targets: Sequence[str]
    by: Literal["ids", "subjects"]
    ref: str | None
    received_ms: int


@dataclass(slots=True)
class Change(Generic[T]):
    """Something to be done to the model.

    Attributes
    ----------
    plan
        Checks it against the model; changes nothing.
    cost, n_items
        How long it will take.
    request
        For the receipt; None when there is none.
    absent
        Reads from an outcome how many targets were not held.
    refusable
        Whether a full queue or a full disk refuses it; erasures are not.
    claim
        The caller's idempotency key.
    """

    plan: Callable[[ServedModel, Ground], Plan[T]]
    cost: Cost
    n_items: int
    request: Request | None = None
    absent: Callable[[T], int] | None = None
    refusable: bool = True
    claim: Claim | None = None


@dataclass(slots=True)
class Done(Generic[T]):
    """A change that was made, with what was true at that instant."""

    outcome: T
    n_samples: int
    model_version: int
    receipt: Receipt | None = None


Settle = Callable[["Done[T] | None", "BaseException | None"], None]
"""Called once with what a change has done, or why it was not made."""


def addition(samples: NewSamples, cost: Cost, claim: Claim | None = None) -> Change[tuple[list[str], int]]:
    """Return the change that adds samples."""

    def plan(model: ServedModel, ground: Ground) -> Plan[tuple[list[str], int]]:
        return plan_addition(model, ground, samples)

    return Change(plan, cost, len(samples), claim=claim)


def added(done: Done[tuple[list[str], int]]) -> Added:
    """Return what an addition has done."""
    ids, n_new = done.outcome
    return Added(ids, n_new, done.n_samples, done.model_version)


def replacement(asked: Replacement, request: Request, cost: Cost) -> Change[tuple[bool, bool]]:
    """Return the change that rectifies one sample."""

    def plan(model: ServedModel, ground: Ground) -> Plan[tuple[bool, bool]]:
        return plan_replacement(model, ground, asked)

    return Change(plan, cost, 1, request)


def deletion(request: Request, model: ServedModel, cost: Cost, claim: Claim | None = None) -> Change[Deleted]:
    """Return the change that deletes what a request names; the model only tells how many samples there are."""
    names = request.targets
    if request.by == "ids":
        n_samples = len(names)
        plan = partial(_plan_ids, names)
    else:
        n_samples = sum(len(model.samples_.ids_of_subject(name)) for name in names)
        plan = partial(_plan_subjects, names)
    return Change(plan, cost, n_samples, request, _absent, refusable=False, claim=claim)


def _plan_ids(names: Sequence[str], model: ServedModel, ground: Ground) -> Plan[Deleted]:
    del ground
    return plan_deletion(model, names)


def _plan_subjects(names: Sequence[str], model: ServedModel, ground: Ground) -> Plan[Deleted]:
    del ground
    return plan_deletion_of_subjects(model, names)


def _absent(outcome: Deleted) -> int:
    return outcome[1]
