"""What belongs to samples: their subjects, expiries, additions, origins and nonces, and the rules of retention.

A subject may have a retention period: then each of its samples has to go when the period since its addition is over,
in `limits`, or at its own expiry, whichever is sooner. The period belongs to the subject as long as it has a sample.

A model has nonces only if a caller gives them, as a server does.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from oubli.core.array_types import Ints
from oubli.core.concurrency.changes import Changes
from oubli.core.concurrency.locks import ModelLock, reads, writes
from oubli.core.data.schema import Schema
from oubli.core.data.values import INT64, MOMENTS, NEVER, normalise_id
from oubli.core.errors import InputError, ensure
from oubli.core.samples.indexes import (
    NONCE_BYTES,
    Addition,
    AdditionIndex,
    ExpiryIndex,
    NonceIndex,
    SubjectIndex,
    checked_moment,
)
from oubli.core.samples.records import Rows
from oubli.core.samples.slots import IdSource, SlotTable


class Retention(NamedTuple):
    """How long samples of a subject are kept.

    Attributes
    ----------
    period_ms : int
        In milliseconds, from the addition of each sample.
    since_ms : int
        When that was first said, in milliseconds since 1970 UTC: from then on the period counts of samples whose
        addition is not known.
    """

    period_ms: int
    since_ms: int


class Mark(NamedTuple):
    """How a subject is restricted.

    Attributes
    ----------
    since_ms : int
        Since when it is restricted, in milliseconds since 1970 UTC.
    keeps : bool
        Whether its samples are kept beyond the time at which they have to go.
    """

    since_ms: int
    keeps: bool


class Belongings(NamedTuple):
    """What is kept beside a sample.

    Attributes
    ----------
    subject : str or None
        Whom it is about.
    expires_ms : int or None
        When it has to go by itself.
    origin : int
        A number of the caller's.
    addition : Addition or None
        Where it comes from.
    retention : Retention or None
        How long samples of the subject are kept.
    nonce : bytes or None
        What a hash of the sample begins with; of this content alone.
    """

    subject: str | None
    expires_ms: int | None
    origin: int
    addition: Addition | None
    retention: Retention | None = None
    nonce: bytes | None = None


def checked_period(period_ms: int) -> int:
    """Return a retention period.

    Raises
    ------
    InputError
        When it is not a positive integer below 8,000 years.
    """
    if (checked_moment(period_ms) or 0) < 1:
        raise InputError("must be a positive number of milliseconds", field="period")
    return period_ms


def check_origin(value: int) -> None:
    """Refuse what is no number of 64 bits to be kept with samples: an InputError."""
    if value not in INT64 or value == NEVER:
        raise InputError("must be an integer of 64 bits", field="origin")


def check_nonces(nonces: bytes, n: int) -> None:
    """Refuse what are not the nonces of n samples, one behind the other: an InputError."""
    if len(nonces) != NONCE_BYTES * n:
        raise InputError(f"must be {NONCE_BYTES} bytes for each sample", field="nonces")


def _end_of(begin_ms: int, period: Retention) -> int:
    return min(begin_ms + period.period_ms, MOMENTS[-1])


class OwnedSlots(SlotTable):
    """Slots with what is kept beside the samples in them.

    Parameters
    ----------
    schema : Schema

    Attributes
    ----------
    subjects : SubjectIndex
    expiries : ExpiryIndex
        When samples have to go by themselves.
    periods : dict of str to Retention
        By subject, of those that have one.
    limits : ExpiryIndex
        When samples of these subjects have to go.
    additions : AdditionIndex
    nonces : NonceIndex
    changes : Changes
        Critical sections around all that changes the samples, and what a model makes of them.
    """

    def __init__(self, schema: Schema) -> None:
        super().__init__(schema)
        self.subjects = SubjectIndex()
        self.expiries = ExpiryIndex()
        self.periods: dict[str, Retention] = {}
        self.limits = ExpiryIndex()
        self.additions = AdditionIndex()
        self.nonces = NonceIndex()
        self.changes = Changes()

    # Subjects -------------------------------------------------------------------------------------

    @property
    def lock(self) -> ModelLock:
        """That of the model."""
        return self.changes.lock

    @writes
    def set_subject(self, sample_id: object, subject: object | None) -> None:
        """Set the subject of a sample; None removes it.

        Raises
        ------
        UnknownIdError, InputError
            When the id is not held, or the subject is not text like an id.
        """
        self.changes.check()
        text = None if subject is None else normalise_id(subject, field="subject")
        slot = self._slot(sample_id)
        if text == self.subjects.get(slot):
            return  # nor does the subject's period end with its only sample
        with self.changes:
            self._unlink(slot)
            if text is not None:
                self.subjects.link(slot, text)
                self._limit([slot], text)

    @reads
    def subject(self, sample_id: object) -> str | None:
        """Return the subject of a sample.

        Raises
        ------
        UnknownIdError
            When the id is not held.
        """
        return self.subjects.get(self._slot(sample_id))

    @reads
    def ids_of_subject(self, subject: object) -> list[str]:
        """Return the ids of a subject's samples, in the order in which they were linked."""
        return list(map(self.id_of, self.subjects.slots(normalise_id(subject, field="subject"))))

    def _unlink(self, slot: int) -> None:
        """Forget the subject of the sample in a slot, and with its last sample the subject's period."""
        gone = self.subjects.unlink(slot)
        if self.periods:
            self.limits.forget([slot])
            if gone is not None:
                self.periods.pop(gone, None)

    def _forget(self, slots: Sequence[int]) -> None:
        """Forget all that is kept beside the samples in slots."""
        if self.subjects:
            for slot in slots:
                self._unlink(slot)
        if self.expiries:
            self.expiries.forget(slots)
        if self.additions:
            self.additions.forget(slots)
        if self.nonces:
            self.nonces.forget(slots)

    # Expiries and origins -------------------------------------------------------------------------

    @writes
    def set_retention(self, subject: object, period_ms: int | None, since_ms: int) -> None:
        """Say how long samples of a subject are kept from their addition; None takes it back.

        It holds for samples that come later too, as long as there is one. Of a subject without samples nothing is kept.

        Parameters
        ----------
        subject : whose.
        period_ms : milliseconds.
        since_ms : the time, in milliseconds since 1970 UTC; from the first time on, the period counts of samples whose
            addition is not known.

        Raises
        ------
        InputError
            When the period is not a positive integer below 8,000 years, or the time is none.
        """
        self.changes.check()
        checked_moment(since_ms)
        text = normalise_id(subject, field="subject")
        if period_ms is not None:
            checked_period(period_ms)
        slots = self.subjects.slots(text)
        if not slots:
            return
        known = self.periods.get(text)
        with self.changes:
            if period_ms is None:
                self.periods.pop(text, None)
                self.limits.forget(slots)
            else:
                self.periods[text] = Retention(period_ms, since_ms if known is None else known.since_ms)
                self._limit(slots, text)

    @reads
    def retention(self, subject: object) -> Retention | None:
        """Return how long samples of a subject are kept; None without a period."""
        return self.periods.get(normalise_id(subject, field="subject"))

    def _limit(self, slots: Sequence[int], subject: str) -> None:
        """Note when samples of a subject have to go because of its period."""
        period = self.periods.get(subject)
        if period is None:
            return
        additions = map(self.additions.get, slots)
        begins = (period.since_ms if addition is None else addition.at_ms for addition in additions)
        moments = [_end_of(begin, period) for begin in begins]
        self.limits.set_many(np.array(slots, np.int64), np.array(moments, np.int64))

    @writes
    def set_expiry(self, sample_id: object, expires_ms: int | None) -> None:
        """Say when a sample has to go by itself, in milliseconds since 1970 UTC; None takes it back.

        Raises
        ------
        UnknownIdError, InputError
            When the id is not held, or the time is none.
        """
        self.changes.check()
        slot = self._slot(sample_id)
        moment = checked_moment(expires_ms)
        if moment != self.expiries.get(slot):
            with self.changes:
                self.expiries.set(slot, moment)

    @reads
    def expiry(self, sample_id: object) -> int | None:
        """Return when a sample has to go, by itself or with its subject's period.

        Raises
        ------
        UnknownIdError
            When the id is not held.
        """
        return self._expiry_at(self._slot(sample_id))

    def _expiry_at(self, slot: int) -> int | None:
        own = self.expiries.get(slot)
        limit = self.limits.get(slot) if self.periods else None
        return own if limit is None else limit if own is None else min(own, limit)

    @reads
    def next_expiry(self) -> int | None:
        """Return when the first sample has to go; None when none has to."""
        soonest = (self.expiries.soonest(), self.limits.soonest())
        return min((moment for moment in soonest if moment is not None), default=None)

    @reads
    def due(self, now_ms: int, limit: int) -> list[str]:
        """Return the ids of up to `limit` samples that have to be gone by now, the soonest first."""
        slots = self.expiries.due(now_ms, limit)
        if self.periods:
            both = dict.fromkeys([*slots, *self.limits.due(now_ms, limit)])
            slots = sorted(both, key=lambda slot: self._expiry_at(slot) or 0)[:limit]
        return list(map(self.id_of, slots))

    @writes
    def set_origins(self, ids: Iterable[object], value: int) -> None:
        """Keep a number with samples, which is 0 until then.

        Raises
        ------
        UnknownIdError, DuplicateIdError
            When an id is not held, or named twice.
        InputError
            When the number does not fit into 64 bits.
        """
        self.changes.check()
        slots = self.find(ids)
        check_origin(value)
        with self.changes:
            self.origins[slots] = value

    @writes
    def note_additions(self, ids: Iterable[object], at_ms: int, request: str | None) -> None:
        """Keep with samples when they were added, in milliseconds since 1970 UTC, and by which request.

        Raises
        ------
        UnknownIdError, DuplicateIdError
            When an id is not held, or named twice.
        InputError
            When the time is none after 1970, or the request is not text like an id.
        """
        self.changes.check()
        slots = self.find(ids).tolist()
        if (checked_moment(at_ms) or 0) < 1:
            raise InputError("must be a time after 1970", field="at")
        if request is not None:
            normalise_id(request, field="request")
        if slots:
            with self.changes:
                self.additions.note(slots, Addition(at_ms, request))
                for slot in slots if self.periods else ():
                    subject = self.subjects.get(slot)
                    if subject is not None:
                        self._limit([slot], subject)

    @reads
    def addition(self, sample_id: object) -> Addition | None:
        """Return when a sample was added and by which request; None when that is not known.

        Raises
        ------
        UnknownIdError
            When the id is not held.
        """
        return self.additions.get(self._slot(sample_id))

    @writes
    def note_nonces(self, ids: Iterable[object], nonces: bytes) -> None:
        """Keep 16 bytes with each sample, in place of those that it had.

        Parameters
        ----------
        ids : of the samples.
        nonces : all of them, one behind the other.

        Raises
        ------
        UnknownIdError, DuplicateIdError
            When an id is not held, or named twice.
        InputError
            When there is not one for each.
        """
        self.changes.check()
        slots = self.find(ids)
        check_nonces(nonces, len(slots))
        numbers = slots.tolist()
        if numbers:
            self.nonces.reserve(max(numbers) + 1)
            with self.changes:
                self.nonces.note(numbers, nonces)

    @reads
    def nonce(self, sample_id: object) -> bytes | None:
        """Return the nonce of a sample; None when it has none.

        Raises
        ------
        UnknownIdError
            When the id is not held.
        """
        return self.nonces.get(self._slot(sample_id))

    @reads
    def belongings(self, sample_id: object) -> Belongings:
        """Return what is kept beside a sample.

        Raises
        ------
        UnknownIdError
            When the id is not held.
        """
        slot = self._slot(sample_id)
        subject = self.subjects.get(slot)
        return Belongings(
            subject,
            self.expiries.get(slot),
            int(self.origins[slot]),
            self.additions.get(slot),
            None if subject is None else self.periods.get(subject),
            self.nonces.get(slot),
        )

    def with_subject(self, belongings: Belongings, subject: str | None) -> Belongings:
        """Return what is kept beside a sample that gets another subject."""
        return belongings._replace(subject=subject, retention=None if subject is None else self.periods.get(subject))

    def attach(self, slot: int, belongings: Belongings) -> None:
        """Give a sample that was just held what another one had; in a critical section."""
        if belongings.subject is not None:
            self.subjects.link(slot, belongings.subject)
        if belongings.expires_ms is not None:
            self.expiries.set(slot, belongings.expires_ms)
        self.origins[slot] = belongings.origin
        if belongings.addition is not None:
            self.additions.note([slot], belongings.addition)
        if belongings.nonce is not None:
            self.nonces.note([slot], belongings.nonce)
        if belongings.subject is not None:
            if belongings.retention is not None:
                self.periods[belongings.subject] = belongings.retention
            self._limit([slot], belongings.subject)

    def attach_many(self, slots: Ints, rows: Rows, *, is_first: bool = False) -> None:
        """Keep what came with rows beside their samples, just held in slots; in a critical section.

        is_first : whether no other samples are held, restricted or not.
        """
        if rows.at_ms:
            self.additions.note(slots.tolist(), Addition(rows.at_ms, rows.request))
        if rows.origin:
            self.origins[slots] = rows.origin
        if rows.nonces is not None:
            self.nonces.note(slots, rows.nonces)
        for slot, subject in zip(slots.tolist(), rows.subjects, strict=True) if rows.subjects is not None else ():
            if subject is not None:
                self.subjects.link(slot, subject)
                self._limit([slot], subject)
        expires = [rows.expires] * len(slots) if isinstance(rows.expires, int) else rows.expires
        if expires is not None:
            moments = np.array([NEVER if moment is None else moment for moment in expires], np.int64)
            ends = np.flatnonzero(moments != NEVER)
            self.expiries.set_many(slots[ends], moments[ends])
        if rows.source is IdSource.INDEX or (
            rows.source is not None and is_first and self.id_source is not IdSource.INDEX
        ):
            self.id_source = rows.source

    def changed_retentions(self, periods: Mapping[str, int]) -> dict[str, int]:
        """Return those of some subjects' retention periods, in milliseconds, that differ from what is kept."""
        return {
            subject: period_ms
            for subject, period_ms in periods.items()
            if (known := self.retention(subject)) is None or known.period_ms != period_ms
        }

    def check_limits(self) -> None:
        """Check the periods of subjects and the limits that follow from them; AssertionError names what is broken."""
        self.limits.check_invariants(self.held)
        expected = {}
        for subject, period in self.periods.items():
            slots = self.subjects.slots(subject)
            ensure(slots, "a subject without samples has a period")
            for slot in slots:
                addition = self.additions.get(slot)
                expected[slot] = _end_of(period.since_ms if addition is None else addition.at_ms, period)
        slots_now, moments = self.limits.items()
        if dict(zip(slots_now.tolist(), moments.tolist(), strict=True)) != expected:
            raise AssertionError("the limits do not follow from the periods")

    @reads
    def origin(self, sample_id: object) -> int:
        """Return the number kept with a sample.

        Raises
        ------
        UnknownIdError
            When the id is not held.
        """
        return int(self.origins[self._slot(sample_id)])
