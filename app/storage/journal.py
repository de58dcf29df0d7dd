"""The contract of a journal: what the service needs of it, and how it says no.

    append   durable when it returns, all records or none
    refused  JournalFullError: nothing of the batch is there, later ones may fit
             NoDescriptorsError: the same, because no file could be opened
             JournalRefusedError: the same, because a write failed before anything was flushed
    failed   JournalError: the disk's state is not known, and nothing is written any more

A restart reads what is there.
"""

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol


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
        What to do again, as `oubli.app.service.commands.bodies` reads it; empty when no sample changes.
    notes
        What the ledger has to note, without personal data; empty when there is nothing.
    """

    seq: int
    version: int
    body: bytes
    notes: bytes


class Journal(Protocol):
    """Keeps records until the snapshots have them.

    All methods belong to one thread at a time; the attributes may be read from any.

    Attributes
    ----------
    is_durable
        Whether records survive the process.
    failed
        Whether the state of the disk is in doubt; true for ever once it is.
    n_records
        Number of records since the newest rotation.
    n_bytes
        Bytes of bodies and notes since the newest rotation.
    oldest_at
        When the first record since the newest rotation was written, in seconds since 1970; None without one.
    first_seq
        Number with which the oldest segment begins; None when nothing is kept.
    last_seq
        Number of the newest record, or of the one before the newest segment when that is empty.
    """

    is_durable: bool
    failed: bool
    n_records: int
    n_bytes: int
    oldest_at: float | None
    first_seq: int | None
    last_seq: int

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

    def drop_before(self, seq: int, *, erases: bool = True) -> None:
        """Remove the segments that only hold records with lower numbers.

        Parameters
        ----------
        seq
            The first record that is needed.
        erases
            Whether they hold what is to be erased, so that what else has copies of them must be rid of these soon.

        Raises
        ------
        JournalError
            When they cannot be removed.
        """

    def close(self) -> None:
        """Close all files; calling it again does nothing."""


def require_later(first_seq: int, last_seq: int) -> None:
    """Refuse a segment that would begin with a number that is used."""
    if first_seq <= last_seq:
        raise ValueError(f"a segment cannot begin with {first_seq}: record {last_seq} is written")


class MemoryJournal:
    """A journal that keeps nothing, for a service that keeps nothing: it counts records and forgets them."""

    is_durable = False
    failed = False
    first_seq: int | None = None

    def __init__(self) -> None:
        self.n_records = 0
        self.n_bytes = 0
        self.oldest_at: float | None = None
        self.last_seq = 0

    def append(self, records: Sequence[Record], *, reserve: bool = False) -> None:
        """Count records; there is always room."""
        del reserve
        if not records:
            return
        if records[0].seq != self.last_seq + 1:
            raise ValueError(f"record {records[0].seq} was given where {self.last_seq + 1} is next")
        if self.oldest_at is None:
            self.oldest_at = time.time()
        self.n_records += len(records)
        self.n_bytes += sum(len(record.body) + len(record.notes) for record in records)
        self.last_seq = records[-1].seq

    def probe(self) -> None:
        """Return: there is always room."""

    def rotate(self, first_seq: int) -> None:
        """Begin to count anew."""
        require_later(first_seq, self.last_seq)
        self.n_records = self.n_bytes = 0
        self.oldest_at = None
        self.last_seq = first_seq - 1

    def records(self, after_seq: int) -> Iterator[Record]:
        """Return nothing."""
        del after_seq
        return iter(())

    def drop_before(self, seq: int, *, erases: bool = True) -> None:
        """Do nothing."""

    def close(self) -> None:
        """Do nothing."""
