"""Whom samples belong to, when they have to go, and a number that the caller keeps with each."""

from collections.abc import Iterable
from typing import TYPE_CHECKING

from oubli.core.changes import Changes
from oubli.core.data.values import normalise_id
from oubli.core.samples.expiries import ExpiryIndex, checked_moment
from oubli.core.samples.slots import SlotTable
from oubli.core.samples.subjects import SubjectIndex

if TYPE_CHECKING:
    from oubli.core.data.schema import Schema


class OwnedSlots(SlotTable):
    """Slots with what is kept beside the samples in them.

    Parameters
    ----------
    schema : Schema

    Attributes
    ----------
    subjects : SubjectIndex
    expiries : ExpiryIndex
    changes : Changes
        Critical sections around all that changes the samples, and what a model makes of them.
    """

    def __init__(self, schema: "Schema") -> None:
        super().__init__(schema)
        self.subjects = SubjectIndex()
        self.expiries = ExpiryIndex()
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
        with self.changes:
            self.subjects.unlink(slot)
            if text is not None:
                self.subjects.link(slot, text)

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

    # Expiries and origins -------------------------------------------------------------------------

    def set_expiry(self, sample_id: object, expires_ms: int | None) -> None:
        """Say when a sample has to go, in milliseconds since 1970 UTC; None takes it back.

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
        """Return when a sample has to go.

        Raises
        ------
        UnknownIdError
            When the id is not held.
        """
        return self.expiries.get(self._slot(sample_id))

    def next_expiry(self) -> int | None:
        """Return when the first sample has to go; None when none has to."""
        return self.expiries.soonest()

    def due(self, now_ms: int, limit: int) -> list[str]:
        """Return the ids of up to `limit` samples that have to be gone by now, the soonest first."""
        return list(map(self.id_of, self.expiries.due(now_ms, limit)))

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

    def attach(self, slot: int, subject: str | None, expires_ms: int | None, origin: int) -> None:
        """Give a sample that was just held what another one had; in a critical section."""
        if subject is not None:
            self.subjects.link(slot, subject)
        self.expiries.set(slot, expires_ms)
        self.origins[slot] = origin

    def origin(self, sample_id: object) -> int:
        """Return the number kept with a sample.

        Raises
        ------
        UnknownIdError
            When the id is not held.
        """
        return int(self.origins[self._slot(sample_id)])
