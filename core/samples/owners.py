"""What is kept beside the samples: whom they belong to, when they have to go, a number of the caller's, their origin.

Few samples have a subject or an expiry, or all of them. Subjects are looked up from both sides. Expiries are by slot:

    slot        0      1      2       3
    moments   1700   NEVER  1650   NEVER      milliseconds since 1970 UTC

Nothing is kept of a sample that has gone, as a queue from which entries are dropped late would do. What
is due is found by one look over all slots, a fraction of a millisecond for a million of them, and the
soonest moment is remembered, so that there is a look only when something is due, or has left first.

A subject may have a retention period: then each of its samples has to go when the period since its addition is over,
in `limits`, or at its own expiry, whichever is sooner. The period belongs to the subject as long as it has a sample.
"""

from collections.abc import Iterable, Sequence
from itertools import chain
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from oubli.core.array_types import Bools, Ints
from oubli.core.changes import Changes
from oubli.core.data.values import NEVER, normalise_id
from oubli.core.errors import InputError, ensure
from oubli.core.samples.additions import Addition, AdditionIndex, Belongings, Retention
from oubli.core.samples.lazy import MadeOf
from oubli.core.samples.nonces import NONCE_BYTES, NonceIndex
from oubli.core.samples.slots import SlotTable
from oubli.core.slices import cut, integers, lists

if TYPE_CHECKING:
    from oubli.core.data.schema import Schema

_FIRST = int(np.iinfo(np.int64).min)


class _Index(NamedTuple):
    by_slot: dict[int, str]
    slots: dict[str, dict[int, None]]  # in the order in which they were linked

    def link(self, slot: int, subject: str) -> None:
        self.by_slot[slot] = subject
        self.slots.setdefault(subject, {})[slot] = None


_Links = tuple[list[str], Ints]


def _no_links() -> _Links:
    return [], np.zeros(0, np.int64)


def _indexed(_: object, links: _Links) -> _Index:
    index, (subjects, slots) = _Index({}, {}), links
    for part in cut(len(slots)):
        for subject, slot in zip(subjects[part], slots[part].tolist(), strict=True):
            index.link(slot, subject)
    return index


class SubjectIndex:
    """Subjects by slot, and the slots of each subject in the order in which they were linked."""

    # Both sides; of a copy, made when one is first looked at, as `SlotTable` does with ids.
    _index: _Index = MadeOf("_unindexed", _indexed, _no_links)  # type: ignore[assignment]

    def __init__(self) -> None:
        self._index = _Index({}, {})
        self._n = 0
        # Of a copy, until it is indexed: the subjects and slots of its links, in their order.
        self._unindexed = _no_links()

    @property
    def _is_indexed(self) -> bool:
        return "_index" in self.__dict__

    def build_index(self) -> None:
        """Get ready to look up subjects; in a copy the first look-up does this, which takes a while."""
        _ = self._index

    def __len__(self) -> int:
        return self._n

    def __contains__(self, slot: int) -> bool:
        return slot in self._index.by_slot

    def get(self, slot: int) -> str | None:
        """Return the subject of the sample in a slot."""
        return self._index.by_slot.get(slot)

    @property
    def n_subjects(self) -> int:
        """How many different subjects there are."""
        return len(self._index.slots)

    def slots(self, subject: str) -> list[int]:
        """Return the slots of a subject's samples."""
        return list(self._index.slots.get(subject, ()))

    def link(self, slot: int, subject: str) -> None:
        """Say whom the sample in a slot belongs to; it must not be linked yet."""
        self._index.link(slot, subject)
        self._n += 1

    def unlink(self, slot: int) -> str | None:
        """Forget whom the sample in a slot belongs to, and the subject with its last sample: that is returned."""
        index = self._index
        subject = index.by_slot.pop(slot, None)
        if subject is None:
            return None
        self._n -= 1
        slots = index.slots[subject]
        del slots[slot]
        if slots:
            return None
        del index.slots[subject]
        return subject

    def links(self) -> tuple[list[str], Ints]:
        """Return the subjects and slots of all links, by subject."""
        unindexed = self._unindexed
        if not self._is_indexed:
            return unindexed
        subjects: list[str] = []
        slots = self._index.slots
        for part in lists(slots):
            subjects += [subject for subject in part for _ in slots[subject]]
        return subjects, integers(chain.from_iterable(slots.values()), len(subjects))

    def copy(self) -> "SubjectIndex":
        """Return an independent copy."""
        other = SubjectIndex()
        other.__dict__.pop("_index")
        other.__dict__.update(_unindexed=self.links(), _n=self._n)
        return other

    def check_invariants(self, held: set[int]) -> None:
        """Check against the slots in use; AssertionError names what is broken."""
        subjects, slots = self.links()
        links = list(zip(subjects, slots.tolist(), strict=True))
        expected = {(subject, slot) for slot, subject in self._index.by_slot.items()}
        ensure(len(links) == len(expected) == self._n and set(links) == expected, "subjects and their samples differ")
        ensure(self._index.by_slot.keys() <= held, "a free slot has a subject")
        ensure(all(self._index.slots.values()), "a subject without samples is kept")


def checked_moment(moment: int | None) -> int | None:
    """Return a moment, or None for never.

    Raises
    ------
    InputError
        When it is not an integer, or beyond what 64 bits hold.
    """
    if moment is not None and (type(moment) is not int or not _FIRST <= moment < NEVER):
        raise InputError("must be an integer of 64 bits: milliseconds since 1970", field="expires")
    return moment


class ExpiryIndex:
    """Expiries by slot.

    Attributes
    ----------
    moments : int64[as many slots as there has been need for], when the sample in each has to go; NEVER: never
    """

    def __init__(self) -> None:
        self.moments = np.zeros(0, np.int64)
        self._n = 0
        self._soonest: int | None = NEVER  # None: to be looked for

    def __len__(self) -> int:
        return self._n

    @property
    def nbytes(self) -> int:
        """Bytes of the array."""
        return self.moments.nbytes

    def get(self, slot: int) -> int | None:
        """Return when the sample in a slot has to go."""
        moment = int(self.moments[slot]) if slot < len(self.moments) else NEVER
        return None if moment == NEVER else moment

    def set(self, slot: int, moment: int | None) -> None:
        """Say when the sample in a slot has to go; None: never.

        Raises
        ------
        InputError
            When it is not an integer, or beyond what 64 bits hold.
        """
        if checked_moment(moment) is None:
            self.forget([slot])
            return
        self.set_many(np.array([slot]), np.array([moment], np.int64))

    def set_many(self, slots: Ints, moments: Ints) -> None:
        """Say when the samples in slots, each named once, have to go."""
        if len(slots) == 0:
            return
        self._reserve(int(slots.max()) + 1)
        self._let_go(slots)
        self.moments[slots] = moments
        self._n += len(slots)
        if self._soonest is not None:
            self._soonest = min(self._soonest, int(moments.min()))

    def forget(self, slots: Sequence[int]) -> None:
        """Forget when the samples in slots, each named once, have to go, if they have to."""
        n = len(self.moments)
        self._let_go(np.array([slot for slot in slots if slot < n], np.int64))

    def _let_go(self, slots: Ints) -> None:
        held = self.moments[slots]
        held = held[held != NEVER]
        if len(held) == 0:
            return
        self.moments[slots] = NEVER
        self._n -= len(held)
        if self._soonest is not None and int(held.min()) == self._soonest:
            self._soonest = None

    def _reserve(self, n_slots: int) -> None:
        n = len(self.moments)
        if n_slots > n:
            self.moments = np.pad(self.moments, (0, max(n_slots - n, n)), constant_values=NEVER)

    def soonest(self) -> int | None:
        """Return when the first sample has to go; None when none has to."""
        soonest = self._soonest
        if soonest is None:
            self._soonest = soonest = int(self.moments.min(initial=NEVER))
        return None if soonest == NEVER else soonest

    def due(self, now: int, limit: int) -> list[int]:
        """Return the slots of up to `limit` samples that have to be gone by `now`, the soonest first."""
        soonest = self.soonest()
        if soonest is None or soonest > now:
            return []
        # The largest integer of 64 bits stands for never.
        slots = np.flatnonzero(self.moments <= min(now, NEVER - 1))
        due: list[int] = slots[np.argsort(self.moments[slots], kind="stable")[:limit]].tolist()
        return due

    def items(self) -> tuple[Ints, Ints]:
        """Return the slots of samples that have to go, ascending, and when."""
        slots = np.flatnonzero(self.moments != NEVER)
        return slots, self.moments[slots]

    def copy(self) -> "ExpiryIndex":
        """Return an independent copy."""
        other = ExpiryIndex()
        other.__dict__.update(self.__dict__, moments=self.moments.copy())
        return other

    def check_invariants(self, held: Bools) -> None:
        """Check against the slots in use, bool[capacity]; AssertionError names what is broken."""
        slots = np.flatnonzero(self.moments != NEVER)
        ensure(len(slots) == self._n, "the number of expiries is wrong")
        ensure(not len(slots) or (slots[-1] < len(held) and held[slots].all()), "a free slot has an expiry")
        ensure(self._soonest in (None, int(self.moments.min(initial=NEVER))), "the soonest expiry is wrong")


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

    def __init__(self, schema: "Schema") -> None:
        super().__init__(schema)
        self.subjects = SubjectIndex()
        self.expiries = ExpiryIndex()
        self.periods: dict[str, Retention] = {}
        self.limits = ExpiryIndex()
        self.additions = AdditionIndex()
        self.nonces = NonceIndex()
        self.changes = Changes()

    # Subjects -------------------------------------------------------------------------------------

    def set_subject(self, sample_id: object, subject: object | None) -> None:
        """Say whom a sample belongs to; None takes it back.

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

    def subject(self, sample_id: object) -> str | None:
        """Return whom a sample belongs to.

        Raises
        ------
        UnknownIdError
            When the id is not held.
        """
        return self.subjects.get(self._slot(sample_id))

    def ids_of_subject(self, subject: object) -> list[str]:
        """Return the ids of a subject's samples, in the order in which they were linked."""
        return list(map(self.id_of, self.subjects.slots(normalise_id(subject, field="subject"))))

    def _unlink(self, slot: int) -> None:
        """Forget whom the sample in a slot belongs to, and the period of a subject with its last sample."""
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
            When the period is not a positive integer of 64 bits.
        """
        self.changes.check()
        text = normalise_id(subject, field="subject")
        if period_ms is not None and (checked_moment(period_ms) or 0) < 1:
            raise InputError("must be a positive number of milliseconds", field="period")
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

    def retention(self, subject: object) -> Retention | None:
        """Return how long samples of a subject are kept; None when nothing is said."""
        return self.periods.get(normalise_id(subject, field="subject"))

    def _limit(self, slots: Sequence[int], subject: str) -> None:
        """Note when samples of a subject have to go because of its period."""
        period = self.periods.get(subject)
        if period is None:
            return
        additions = map(self.additions.get, slots)
        begins = (period.since_ms if addition is None else addition.at_ms for addition in additions)
        moments = [min(begin + period.period_ms, NEVER - 1) for begin in begins]
        self.limits.set_many(np.array(slots, np.int64), np.array(moments, np.int64))

    def set_expiry(self, sample_id: object, expires_ms: int | None) -> None:
        """Say when a sample has to go by itself, in milliseconds since 1970 UTC; None takes it back.

        Raises
        ------
        UnknownIdError, InputError
            When the id is not held, or the time is not an integer of 64 bits.
        """
        self.changes.check()
        slot = self._slot(sample_id)
        moment = checked_moment(expires_ms)
        with self.changes:
            self.expiries.set(slot, moment)

    def expiry(self, sample_id: object) -> int | None:
        """Return when a sample has to go, by itself or with its subject's period.

        Raises
        ------
        UnknownIdError
            When the id is not held.
        """
        return self._expiry_at(self._slot(sample_id))

    def own_expiry(self, sample_id: object) -> int | None:
        """Return when a sample has to go by itself, whatever its subject's period is.

        Raises
        ------
        UnknownIdError
            When the id is not held.
        """
        return self.expiries.get(self._slot(sample_id))

    def _expiry_at(self, slot: int) -> int | None:
        own = self.expiries.get(slot)
        limit = self.limits.get(slot) if self.periods else None
        return own if limit is None else limit if own is None else min(own, limit)

    def next_expiry(self) -> int | None:
        """Return when the first sample has to go; None when none has to."""
        soonest = (self.expiries.soonest(), self.limits.soonest())
        return min((moment for moment in soonest if moment is not None), default=None)

    def due(self, now_ms: int, limit: int) -> list[str]:
        """Return the ids of up to `limit` samples that have to be gone by now, the soonest first."""
        slots = self.expiries.due(now_ms, limit)
        if self.periods:
            both = dict.fromkeys([*slots, *self.limits.due(now_ms, limit)])
            slots = sorted(both, key=lambda slot: self._expiry_at(slot) or 0)[:limit]
        return list(map(self.id_of, slots))

    def set_origins(self, ids: Iterable[object], value: int) -> None:
        """Keep a number with samples, which is 0 until then.

        Raises
        ------
        UnknownIdError, DuplicateIdError
            When an id is not held, or named twice.
        """
        self.changes.check()
        slots = self.find(ids)
        with self.changes:
            self.origins[slots] = value

    def note_additions(self, ids: Iterable[object], at_ms: int, request: str | None) -> None:
        """Keep with samples when they were added, in milliseconds since 1970 UTC, and by which request.

        Raises
        ------
        UnknownIdError, DuplicateIdError
            When an id is not held, or named twice.
        """
        self.changes.check()
        slots = self.find(ids).tolist()
        if slots:
            with self.changes:
                self.additions.note(slots, Addition(at_ms, request))
                for slot in slots if self.periods else ():
                    subject = self.subjects.get(slot)
                    if subject is not None:
                        self._limit([slot], subject)

    def addition(self, sample_id: object) -> Addition | None:
        """Return when a sample was added and by which request; None when that is not known.

        Raises
        ------
        UnknownIdError
            When the id is not held.
        """
        return self.additions.get(self._slot(sample_id))

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
        if len(nonces) != NONCE_BYTES * len(slots):
            raise InputError(f"must be {NONCE_BYTES} bytes for each sample", field="nonces")
        numbers = slots.tolist()
        if numbers:
            self.nonces.reserve(max(numbers) + 1)
            with self.changes:
                self.nonces.note(numbers, nonces)

    def nonce(self, sample_id: object) -> bytes | None:
        """Return the nonce of a sample; None when it has none.

        Raises
        ------
        UnknownIdError
            When the id is not held.
        """
        return self.nonces.get(self._slot(sample_id))

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

    def attach(self, slot: int, belongings: Belongings) -> None:
        """Give a sample that was just held what another one had; in a critical section."""
        if belongings.subject is not None:
            self.subjects.link(slot, belongings.subject)
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

    def check_limits(self) -> None:
        """Check the periods of subjects and the limits that follow from them; AssertionError names what is broken."""
        self.limits.check_invariants(self.held)
        expected = {}
        for subject, period in self.periods.items():
            slots = self.subjects.slots(subject)
            ensure(slots, "a subject without samples has a period")
            for slot in slots:
                addition = self.additions.get(slot)
                expected[slot] = (period.since_ms if addition is None else addition.at_ms) + period.period_ms
        slots_now, moments = self.limits.items()
        if dict(zip(slots_now.tolist(), moments.tolist(), strict=True)) != expected:
            raise AssertionError("the limits do not follow from the periods")

    def origin(self, sample_id: object) -> int:
        """Return the number kept with a sample.

        Raises
        ------
        UnknownIdError
            When the id is not held.
        """
        return int(self.origins[self._slot(sample_id)])
