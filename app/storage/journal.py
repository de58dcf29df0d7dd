"""The contract of a journal: what the service needs of it, and how it says no.

    append   durable when it returns, all records or none
    refused  JournalFullError: nothing of the batch is there, later ones may fit
             NoDescriptorsError: the same, because no file could be opened
             JournalRefusedError: the same, because a write failed before anything was flushed
    failed   JournalError: the disk's state is not known, and nothing is written any more

A restart reads what is there.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from oubli.app.errors import StartError


@dataclass(frozen=True, slots=True)
class Record:
    """One change.

    Attributes
    ----------
    seq
        1, 2, 3, ... without a gap.
    version
        The model's version after it.
    body
        What to do again, as `oubli.app.storage.records` writes it; empty when no sample changes.
    notes
        What the ledger has to note, without personal data; empty when there is nothing.
    """

    seq: int
    version: int
    body: bytes
    notes: bytes


class JournalError(Exception):
    """The journal cannot be written; the text holds neither paths nor values."""


class JournalFullError(JournalError):
    """No room on the disk: the batch is not in the journal, which still works."""


class NoDescriptorsError(JournalFullError):
    """The process may not open more files: nothing was written, and the journal still works."""


class JournalRefusedError(JournalFullError):
    """A read or a write failed before any flush: nothing was written, and the journal is opened anew to go on."""


class JournalDamagedError(StartError):
    """What was committed cannot be read back as it was."""


class Journal(Protocol):
    """Keeps records until the snapshots have them.

    All methods belong to one thread at a time; the properties may be read from any.
    """

    @property
    def is_durable(self) -> bool:
        """Whether records survive the process."""

    @property
    def failed(self) -> bool:
        """Whether the state of the disk is in doubt; true for ever once it is."""

    @property
    def n_records(self) -> int:
        """Number of records since the newest rotation."""

    @property
    def n_bytes(self) -> int:
        """Bytes of bodies and notes since the newest rotation."""

    @property
    def oldest_at(self) -> float | None:
        """When the first record since the newest rotation was written, in seconds since 1970; None without one."""

    @property
    def first_seq(self) -> int | None:
        """Number with which the oldest segment begins; None when nothing is kept."""

    @property
    def last_seq(self) -> int:
        """Number of the newest record, or of the one before the newest segment when that is empty."""

    def append(self, records: Sequence[Record], *, reserve: bool = False) -> None:
        """Write records; they are durable when this returns.

        Parameters
        ----------
        records
            Numbered from `last_seq` + 1 on.
        reserve
            Whether they may use the room that is kept for erasures.

        Raises
        ------
        JournalFullError
            When there is no room; none of them is in the journal.
        JournalError
            When it is not known whether they are; or the journal has failed before.
        """

    def probe(self) -> None:
        """Return when records that may not use the kept room would find room now.

        Raises
        ------
        JournalError
            As `append` does.
        """

    def rotate(self, first_seq: int) -> None:
        """Begin a new segment with a record that is still to come; the numbers up to it are used up.

        Raises
        ------
        JournalError
            As `append` does; the segment in use stays.
        """

    def records(self, after_seq: int) -> Iterator[Record]:
        """Return all records with higher numbers, in order.

        Raises
        ------
        JournalDamagedError
            While iterating, when one is missing or not what was written.
        """

    def drop_before(self, seq: int) -> None:
        """Remove the segments that only hold records with lower numbers.

        Raises
        ------
        JournalError
            When they cannot be removed.
        """

    def close(self) -> None:
        """Close all files; calling it again does nothing."""


def require_next(records: Sequence[Record], last_seq: int) -> None:
    """Refuse records whose numbers do not go on after `last_seq`: a mistake of the caller that would lose them."""
    for expected, record in enumerate(records, last_seq + 1):
        if record.seq != expected:
            raise ValueError(f"record {record.seq} was given where {expected} is next")


def require_later(first_seq: int, last_seq: int) -> None:
    """Refuse a segment that would begin with a number that is used."""
    if first_seq <= last_seq:
        raise ValueError(f"a segment cannot begin with {first_seq}: record {last_seq} is written")
