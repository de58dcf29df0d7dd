"""The tables of the journal in PostgreSQL, in the current schema of the connection; `__init__` lists them."""

import psycopg

from oubli.app.errors import StartError
from oubli.app.storage.postgres.connection import Connection, reading_errors

FORMAT = 1
RECORDS_CHANNEL = "oubli_records"  # notified of each append
LEADER_CHANNEL = "oubli_leader"  # notified when a leader resigns
_LOCK = 0x4F75626C  # of those who make the tables; nodes start together

_TABLES = """
CREATE TABLE oubli_cluster (
    one boolean PRIMARY KEY DEFAULT true CHECK (one),
    format integer NOT NULL
);
CREATE TABLE oubli_leader (
    one boolean PRIMARY KEY DEFAULT true CHECK (one),
    epoch bigint NOT NULL,
    holder text NOT NULL,
    url text,
    until timestamptz NOT NULL,
    last_seq bigint NOT NULL,
    pid integer
) WITH (fillfactor = 10);
CREATE TABLE oubli_segments (
    first_seq bigint PRIMARY KEY,
    key_id text NOT NULL,
    mac bytea
);
CREATE TABLE oubli_records (
    segment bigint NOT NULL,
    seq bigint NOT NULL,
    epoch bigint NOT NULL,
    version bigint NOT NULL,
    at bigint NOT NULL,
    sealed bytea NOT NULL,
    checksum bytea NOT NULL,
    PRIMARY KEY (seq, segment)
) PARTITION BY LIST (segment);
ALTER TABLE oubli_records ALTER COLUMN sealed SET STORAGE EXTERNAL;
CREATE TABLE oubli_members (
    name text PRIMARY KEY,
    url text,
    applied_seq bigint NOT NULL,
    version bigint NOT NULL,
    erased_seq bigint NOT NULL,
    digests_equal boolean,
    expelled boolean NOT NULL DEFAULT false,
    seen timestamptz NOT NULL
) WITH (fillfactor = 50);
INSERT INTO oubli_cluster (format) VALUES (1);
INSERT INTO oubli_leader (epoch, holder, until, last_seq) VALUES (0, '', now(), 0);
"""


def ensure_schema(connection: Connection) -> None:
    """Make the tables when they are not there.

    Raises
    ------
    StartError
        When they are of another format, or may not be made.
    JournalError
        When PostgreSQL fails otherwise.
    """
    with reading_errors(connection):
        try:
            found = _format_made(connection)
        except psycopg.errors.InsufficientPrivilege:
            raise StartError(
                "the role of the journal may not make or read tables in PostgreSQL: give it a schema of its own, or "
                "let it make tables (GRANT CREATE ON SCHEMA)"
            ) from None
    _require_readable(found)


def require_format(connection: Connection) -> None:
    """Check that the tables are still of the format that this version reads: a newer one may have changed them.

    Raises
    ------
    StartError
        When they are not.
    psycopg.Error
        When the database cannot be asked.
    """
    row = connection.execute("SELECT format FROM oubli_cluster").fetchone()
    _require_readable(0 if row is None else int(row[0]))


def _require_readable(found: int) -> None:
    if found != FORMAT:
        raise StartError(
            f"the tables in PostgreSQL were made by another version of Oubli (journal format {found}, this version "
            f"reads {FORMAT}): start that version"
        )


def _format_made(connection: Connection) -> int:
    """Return the format of the tables, made when they are not there."""
    with connection.transaction():
        connection.execute("SELECT pg_advisory_xact_lock(%s)", (_LOCK,))
        there = connection.execute(
            "SELECT 1 FROM pg_tables WHERE schemaname = current_schema() AND tablename = 'oubli_cluster'"
        ).fetchone()
        if there is None:
            connection.execute(_TABLES)
        row = connection.execute("SELECT format FROM oubli_cluster").fetchone()
    return 0 if row is None else int(row[0])
