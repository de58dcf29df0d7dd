"""Records in PostgreSQL: sealed, written by one statement, read back, and grouped into a partition for each segment.

    sealed      nonce (12 bytes) | AES-256-GCM of length of the body, body, notes
    bound to    segment, seq, epoch, version, at: a record that was moved or renumbered does not open
    checksum    over these and `sealed`

The checksum is never over what is inside: that would confirm guesses. Partitions are made and removed without blocking
readers or appends.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import struct
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import psycopg
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from psycopg import sql

from oubli.app.errors import JournalDamagedError, JournalRefusedError
from oubli.app.storage.journal import Record
from oubli.app.storage.postgres.database import FENCED, Connection, reading_errors
from oubli.app.storage.segment_keys import SegmentKey, SegmentKeys

_NONCE_BYTES = 12
_TAG_BYTES = 16
_LENGTH = struct.Struct("<Q")
_FACTS = struct.Struct("<5q")
_DIGEST_BYTES = 16

OVERHEAD = _NONCE_BYTES + _LENGTH.size + _TAG_BYTES
"""Bytes of a sealed record besides its body and notes."""


class Place(NamedTuple):
    """Where a record stands: the columns beside what is sealed.

    Attributes
    ----------
    segment
        Number of the first record of its segment.
    seq, epoch, version
        Of the record.
    at_ms
        When it was written, in milliseconds since 1970.
    """

    segment: int
    seq: int
    epoch: int
    version: int
    at_ms: int


class Sealer:
    """Seals and opens the records of a segment.

    Parameters
    ----------
    key
        Of the segment.
    """

    def __init__(self, key: SegmentKey) -> None:
        self._cipher = AESGCM(key.secret)

    def seal(self, place: Place, body: bytes, notes: bytes) -> bytes:
        """Return what may leave this machine."""
        nonce = os.urandom(_NONCE_BYTES)
        content = b"".join((_LENGTH.pack(len(body)), body, notes))
        return nonce + self._cipher.encrypt(nonce, content, _FACTS.pack(*place))

    def open(self, place: Place, sealed: bytes) -> tuple[bytes, bytes]:
        """Return body and notes.

        Raises
        ------
        ValueError
            When it is not what was sealed there, or with another key.
        """
        try:
            content = self._cipher.decrypt(sealed[:_NONCE_BYTES], sealed[_NONCE_BYTES:], _FACTS.pack(*place))
        except InvalidTag:
            raise ValueError("not what was sealed") from None
        (n_body,) = _LENGTH.unpack_from(content)
        middle = _LENGTH.size + n_body
        return content[_LENGTH.size : middle], content[middle:]


def checksum_of(place: Place, sealed: bytes) -> bytes:
    """Return the checksum of a sealed record."""
    digest = hashlib.sha256(_FACTS.pack(*place))
    digest.update(sealed)
    return digest.digest()[:_DIGEST_BYTES]


_APPEND = """
WITH lead AS (
    UPDATE oubli_leader
    SET last_seq = %(last)s, until = greatest(until, clock_timestamp() + make_interval(secs => %(lease)s))
    WHERE epoch = %(epoch)s AND last_seq = %(before)s AND pid = pg_backend_pid() RETURNING 1
), written AS (
    INSERT INTO oubli_records (segment, seq, epoch, version, at, sealed, checksum)
    SELECT %(segment)s, r.seq, %(epoch)s, r.version, %(at)s, r.sealed, r.checksum
    FROM unnest(%(seqs)s::bigint[], %(versions)s::bigint[], %(sealed)s::bytea[], %(checksums)s::bytea[])
        AS r (seq, version, sealed, checksum) CROSS JOIN lead
    RETURNING 1
)
SELECT count(*), pg_notify('oubli_records', '') FROM written
"""
_IS_THERE = "SELECT 1 FROM oubli_records WHERE segment = %s AND seq = %s AND epoch = %s AND checksum = %s"


class Batch:
    """Sealed records.

    Parameters
    ----------
    records
        Numbered from `last_seq` + 1 on.
    segment
        Number of the first record of the segment that they go to.
    sealer
        Of the segment.
    epoch, last_seq
        With which this node leads; without both nothing is written.
    at_ms
        The time, in milliseconds since 1970.
    lease
        Seconds that the lease is extended to at least.

    Attributes
    ----------
    last_checksum
        Of the last record.
    """

    def __init__(
        self,
        records: Sequence[Record],
        segment: int,
        sealer: Sealer,
        *,
        epoch: int,
        last_seq: int,
        at_ms: int,
        lease: float,
    ) -> None:
        sealed, checksums = [], []
        for record in records:
            place = Place(segment, record.seq, epoch, record.version, at_ms)
            sealed.append(sealer.seal(place, record.body, record.notes))
            checksums.append(checksum_of(place, sealed[-1]))
        self._known = segment, records[-1].seq, epoch, checksums[-1]
        self._n_records = len(records)
        self.last_checksum = checksums[-1]
        self._values = {
            "epoch": epoch,
            "before": last_seq,
            "last": records[-1].seq,
            "lease": lease,
            "segment": segment,
            "at": at_ms,
            "seqs": [record.seq for record in records],
            "versions": [record.version for record in records],
            "sealed": sealed,
            "checksums": checksums,
        }

    def write(self, connection: Connection) -> bool:
        """Write the records; false, and none is written, when this connection may not append.

        Raises
        ------
        psycopg.Error
            When the database refuses them, or the connection is lost.
        """
        row = connection.execute(_APPEND, self._values, prepare=True, binary=True).fetchone()
        return row is not None and row[0] == self._n_records

    def is_there(self, connection: Connection) -> bool:
        """Whether the records were committed.

        Raises
        ------
        psycopg.Error
            When that cannot be asked.
        """
        return connection.execute(_IS_THERE, self._known).fetchone() is not None


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
        Asks other nodes for a key that is not here; None when no node has it.
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
            When no node has its key.
        JournalError
            When its key, or the database, cannot be read.
        """
        if self._sealer is not None and self._segment == segment:
            return self._sealer
        with reading_errors(connection):
            row = connection.execute("SELECT key_id FROM oubli_segments WHERE first_seq = %s", (segment,)).fetchone()
        if row is None:  # it was just dropped
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
                "this database was written with, or let the node join from another node"
            )
        return key


def damaged(seq: int) -> JournalDamagedError:
    """Return the error that says which record is not what was written."""
    return JournalDamagedError(
        f"record {seq} of the journal is damaged or missing in PostgreSQL, and no readable snapshot has it: restore "
        "the database and the data directory from backups of one time"
    )


_WAL_CYCLES = 2  # the first leaves the files that the checkpoint before it needs
_PREFIX = "oubli_records_"
_LOCK_MS = 2000  # that removing a partition waits for those who read it; it is tried again

# One statement, so that a frozen client leaves no transaction open. The check lets the table be attached unread.
_BEGIN = """
DO $oubli$ BEGIN
    UPDATE oubli_leader SET last_seq = {last_seq} - 1
        WHERE epoch = {epoch} AND last_seq = {before} AND pid = pg_backend_pid();
    IF NOT FOUND THEN
        RAISE EXCEPTION 'another node leads' USING ERRCODE = {fenced};
    END IF;
    INSERT INTO oubli_segments (first_seq, key_id) VALUES ({last_seq}, {key_id});
    CREATE TABLE {table} (LIKE oubli_records INCLUDING ALL, CHECK (segment = {last_seq}));
    ALTER TABLE oubli_records ATTACH PARTITION {table} FOR VALUES IN ({last_seq});
    PERFORM pg_notify('oubli_records', '');
END $oubli$
"""
_FORGET = """
WITH lead AS (UPDATE oubli_leader SET pid = pid WHERE epoch = %s AND pid = pg_backend_pid() RETURNING 1),
gone AS (DELETE FROM oubli_segments WHERE first_seq = ANY(%s) AND EXISTS (SELECT 1 FROM lead))
SELECT count(*) FROM lead
"""
_UNNAMED = """
SELECT c.relname, i.inhparent IS NOT NULL, coalesce(i.inhdetachpending, false)
FROM pg_class c LEFT JOIN pg_inherits i ON i.inhrelid = c.oid
WHERE c.relnamespace = current_schema()::regnamespace AND c.relkind = 'r' AND c.relname ~ '^oubli_records_[0-9]+$'
AND NOT EXISTS (SELECT 1 FROM oubli_segments s WHERE c.relname = 'oubli_records_' || s.first_seq)
ORDER BY length(c.relname), c.relname
"""


def begin_segment(connection: Connection, first_seq: int, key: SegmentKey, *, epoch: int, last_seq: int) -> bool:
    """Make the partition and the row of a segment, and use up the numbers before it; false when another node leads.

    Raises
    ------
    psycopg.Error
        When the database refuses it, or the connection is lost.
    """
    statement = sql.SQL(_BEGIN).format(
        last_seq=first_seq,
        before=last_seq,
        epoch=epoch,
        key_id=key.id,
        fenced=FENCED,
        table=sql.Identifier(f"{_PREFIX}{first_seq}"),
    )
    try:
        connection.execute(statement)
    except psycopg.Error as error:
        if error.sqlstate == FENCED:
            return False
        raise
    return True


def forget_segments(connection: Connection, first_seqs: list[int], epoch: int) -> bool:
    """Delete the rows of segments, after which their partitions are not needed; false when another node leads.

    Raises
    ------
    psycopg.Error
        When that fails.
    """
    row = connection.execute(_FORGET, (epoch, first_seqs)).fetchone()
    return row is not None and row[0] == 1


def remove_unnamed(connection: Connection) -> int:
    """Remove the partitions of which no row tells, also what a crash has left of removing one; return how many.

    Raises
    ------
    psycopg.Error
        When that fails, or a reader takes too long; it can be tried again.
    """
    found: list[tuple[Any, ...]] = connection.execute(_UNNAMED).fetchall()
    if not found:
        return 0
    connection.execute(sql.SQL("SET lock_timeout = {}").format(_LOCK_MS))
    try:
        for name, is_attached, is_detaching in found:
            table = sql.Identifier(name)
            if is_attached:
                how = sql.SQL("FINALIZE" if is_detaching else "CONCURRENTLY")
                connection.execute(sql.SQL("ALTER TABLE oubli_records DETACH PARTITION {} {}").format(table, how))
            connection.execute(sql.SQL("DROP TABLE {}").format(table))
    finally:
        if not connection.closed:
            connection.execute("SET lock_timeout = 0")
    return len(found)


def cycle_wal(connection: Connection) -> None:
    """Have the database write over or remove its old write-ahead log, where the role may."""
    with contextlib.suppress(psycopg.Error):
        for _ in range(_WAL_CYCLES):
            connection.execute("SELECT pg_switch_wal()")
            connection.execute("CHECKPOINT")
