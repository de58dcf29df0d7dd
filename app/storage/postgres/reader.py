"""Reads the records of PostgreSQL, and opens them with the keys of their segments."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from oubli.app.errors import JournalDamagedError, JournalRefusedError
from oubli.app.storage.journal import Record
from oubli.app.storage.postgres.connection import reading_errors
from oubli.app.storage.postgres.sealing import Place, Sealer, checksum_of

if TYPE_CHECKING:
    from oubli.app.storage.postgres.connection import Connection
    from oubli.app.storage.segment_keys import SegmentKey, SegmentKeys

_AT_ONCE = 64  # records that are read in one piece, as long as they are short
_BYTES_AT_ONCE = 4 * 2**20
_PAGE = """
SELECT segment, seq, epoch, version, at, sealed, checksum FROM (
    SELECT p.*, sum(octet_length(sealed)) OVER (ORDER BY seq) - octet_length(sealed) AS n_before
    FROM (SELECT * FROM oubli_records WHERE seq > %s ORDER BY seq LIMIT %s) p
) q WHERE n_before <= %s ORDER BY seq
"""
_IDENTITY = "SELECT epoch, checksum FROM oubli_records WHERE seq = %s"

Positioned = tuple[int, int, bytes, Record]
"""Number of the first record of the segment, epoch, checksum, record."""


def hand_to_nobody(key: SegmentKey) -> None:
    """Give a key to no other node: there is none."""
    del key


def fetch_nowhere(key_id: str) -> bytes | None:
    """Return no key: there is no other node to ask."""
    del key_id
    return None


@dataclass(eq=False, repr=False)
class Reader:
    """Reads records; keeps what opens one segment.

    Parameters
    ----------
    connected
        Returns a connection that can be used.
    keys
        Of the segments.
    fetch_key
        Asks other nodes for a key that is not here; None when nobody has it.
    """

    _connected: Callable[[], Connection]
    _keys: SegmentKeys
    _fetch_key: Callable[[str], bytes | None]
    _segment: int = field(default=0, init=False)
    _sealer: Sealer | None = field(default=None, init=False)

    def positioned_records(self, after_seq: int) -> Iterator[Positioned]:
        """Return all records with higher numbers; see `PostgresJournal.positioned_records`."""
        last = after_seq
        while True:
            connection = self._connected()
            with reading_errors(connection):
                values = last, _AT_ONCE, _BYTES_AT_ONCE
                rows = connection.execute(_PAGE, values, prepare=True, binary=True).fetchall()
            if not rows:
                return
            for segment, seq, epoch, version, at_ms, sealed, checksum in rows:
                place = Place(segment, seq, epoch, version, at_ms)
                if seq != last + 1 or checksum != checksum_of(place, sealed):
                    raise damaged(last + 1)
                try:
                    body, notes = self.sealer(connection, segment).open(place, sealed)
                except (ValueError, struct.error):
                    raise damaged(seq) from None
                last = seq
                yield segment, epoch, checksum, Record(seq, version, body, notes)

    def identity_of(self, seq: int) -> tuple[int, bytes] | None:
        """Return epoch and checksum of a record; None when it is not there.

        No key is needed, so that one which was destroyed here is not fetched from another node again.
        """
        connection = self._connected()
        with reading_errors(connection):
            row = connection.execute(_IDENTITY, (seq,)).fetchone()
        return None if row is None else (row[0], row[1])

    def sealer(self, connection: Connection, segment: int) -> Sealer:
        """Return what seals and opens the records of a segment.

        Raises
        ------
        JournalDamagedError
            When nobody has its key.
        JournalError
            When its key, or the database, cannot be read.
        """
        if self._sealer is not None and self._segment == segment:
            return self._sealer
        with reading_errors(connection):
            row = connection.execute("SELECT key_id FROM oubli_segments WHERE first_seq = %s", (segment,)).fetchone()
        if row is None:  # dropped meanwhile
            raise damaged(segment)
        self._segment, self._sealer = segment, Sealer(self._key(row[0]))
        return self._sealer

    def forget(self) -> None:
        """Keep nothing that opens records."""
        self._sealer = None

    def _key(self, key_id: str) -> SegmentKey:
        try:
            key = self._keys.fetched(key_id, self._fetch_key)
        except (OSError, ValueError):
            raise JournalRefusedError("the key of a segment could not be read or written") from None
        if key is None:
            raise JournalDamagedError(
                "the key of a segment of the journal is not in the key directory: start with the key directory that "
                "this database was written with, or let the node join from another one"
            )
        return key


def damaged(seq: int) -> JournalDamagedError:
    """Return the error that says which record is not what was written."""
    return JournalDamagedError(
        f"record {seq} of the journal is damaged or missing in PostgreSQL, and it is in no snapshot that can be read: "
        "restore the database and the data directory from backups of one time"
    )
