"""A journal that keeps nothing, for a service that keeps nothing."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence

from oubli.app.storage.journal import Record, require_later, require_next


class MemoryJournal:
    """Counts records and forgets them."""

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
        require_next(records, self.last_seq)
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

    def drop_before(self, seq: int) -> None:
        """Do nothing."""

    def close(self) -> None:
        """Do nothing."""
