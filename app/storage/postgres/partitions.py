"""Segments as partitions of the table of records: made and removed without keeping readers or appends waiting."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

import psycopg
from psycopg import sql

from oubli.app.storage.postgres.connection import FENCED, Connection

if TYPE_CHECKING:
    from oubli.app.storage.segment_keys import SegmentKey

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
    """Delete the rows of segments, after which nobody needs their partitions; false when another node leads.

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
        When that fails, or somebody reads for too long; it can be tried again.
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
