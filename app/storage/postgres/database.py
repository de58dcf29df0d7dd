"""The database of the journal: connections, tables, the meaning of errors; who leads, and which nodes there are.

    before anything was sent   cannot connect, or the connection had ended: JournalUnreachableError
    refused by the database    an error, and the connection lives: the same, as it may write again later
    in doubt                   the connection was lost after something was sent, or the wait for the standby was cut

No text of the database is passed on: it may hold what the URL says, or values. The tables are in the current schema of
the connection; the package's docstring lists them.

The database's clock decides when a lease is over; the epoch decides who writes.
"""

import contextlib
import logging
import select
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Any, LiteralString

import psycopg
from psycopg import pq
from psycopg.errors import Diagnostic

from oubli.app.errors import JournalFullError, JournalUnreachableError, StartError

log = logging.getLogger("oubli.journal")

APPLICATION = "oubli"
CONNECT_SECONDS = 3
LEAST_VERSION = 140_000  # partitions are detached beside readers
FENCED = "OU001"  # raised by statements of ours when this connection does not lead

_OPTIONS: dict[str, Any] = {
    "application_name": APPLICATION,
    "target_session_attrs": "read-write",
    "connect_timeout": CONNECT_SECONDS,
    "keepalives": 1,
    "keepalives_idle": 5,
    "keepalives_interval": 2,
    "keepalives_count": 3,
    "tcp_user_timeout": 10_000,  # milliseconds that what was sent may stay unacknowledged
}
# Whatever the role or the database sets: an append takes as long as it takes, and is on the standby when it returns.
_SESSION = (
    "SET synchronous_commit = on; SET statement_timeout = 0; SET lock_timeout = 0; "
    "SET default_transaction_isolation = 'read committed'; SET client_min_messages = warning"
)
_NO_ROOM = "53100"
_NO_INPUT_AFTER = 8


class Connection(psycopg.Connection[tuple[Any, ...]]):
    """A connection that commits each statement by itself.

    Attributes
    ----------
    n_warnings
        How many warnings the database has sent; one says that a commit did not wait for the standby.
    """

    n_warnings = 0

    def note(self, notice: Diagnostic) -> None:
        """Count a warning."""
        self.n_warnings += notice.severity_nonlocalized == "WARNING"


def connect(url: str) -> Connection:
    """Open a connection to a database that takes writes.

    Raises
    ------
    JournalUnreachableError
        When there is none.
    StartError
        When the database is too old.
    """
    try:
        connection = Connection.connect(url, autocommit=True, **_OPTIONS)
    except psycopg.Error:  # its text may hold what the URL says
        raise JournalUnreachableError("PostgreSQL cannot be reached") from None
    try:
        if connection.info.server_version < LEAST_VERSION:
            raise StartError(
                "the journal needs PostgreSQL 14 or newer: upgrade it, or name another database in --journal"
            )
        connection.execute(_SESSION)
        connection.add_notice_handler(connection.note)
    except psycopg.Error:
        connection.close()
        raise JournalUnreachableError("PostgreSQL cannot be reached") from None
    except BaseException:
        connection.close()
        raise
    return connection


def is_usable(connection: Connection | None) -> bool:
    """Whether something may be sent: the other side has not ended the connection."""
    if connection is None or is_lost(connection):
        return False
    poll = select.poll()
    poll.register(connection.fileno(), select.POLLIN)
    for _ in range(_NO_INPUT_AFTER):
        if not poll.poll(0):
            return True
        try:
            connection.pgconn.consume_input()  # a notice or a notification, or the end
        except psycopg.Error:
            return False
        if is_lost(connection):
            return False
    return True


def is_lost(connection: Connection) -> bool:
    """Whether a connection has ended, as far as this side knows."""
    return connection.closed or connection.pgconn.status != pq.ConnStatus.OK


def refused(error: psycopg.Error) -> JournalFullError:
    """Return the error for the service where the database has refused a statement: nothing was written."""
    if error.sqlstate == _NO_ROOM:
        return JournalFullError("PostgreSQL has no room on its disk")
    log.error("PostgreSQL has refused a statement of the journal (SQLSTATE %s)", error.sqlstate or "unknown")
    return JournalUnreachableError("PostgreSQL has refused a statement")


@contextlib.contextmanager
def reading_errors(connection: Connection) -> Iterator[None]:
    """Turn the errors of what may be done again into those of the journal."""
    try:
        yield
    except psycopg.Error as error:
        if is_lost(connection):
            raise JournalUnreachableError("the connection to PostgreSQL was lost") from None
        raise refused(error) from None


FORMAT = 1
RECORDS_CHANNEL = "oubli_records"  # notified of each append
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
    seen timestamptz NOT NULL,
    member_timeout float8
) WITH (fillfactor = 50);
INSERT INTO oubli_cluster (format) VALUES (1);
INSERT INTO oubli_leader (epoch, holder, until, last_seq) VALUES (0, '', now(), 0);
"""

# Tables that an earlier version has made lack it. Nodes of that version may run beside this one: they do not name it.
_HAS_TIMEOUT = "SELECT 1 FROM pg_attribute WHERE attrelid = 'oubli_members'::regclass AND attname = 'member_timeout'"


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
                "the role in --journal may not create or read tables in PostgreSQL: give it a schema of its own, or "
                "let it create tables (GRANT CREATE ON SCHEMA)"
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
            f"the tables in PostgreSQL belong to another version of Oubli (journal format {found}, this version reads "
            f"{FORMAT}): start that version"
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
        elif not connection.execute(_HAS_TIMEOUT).fetchone():
            connection.execute("ALTER TABLE oubli_members ADD COLUMN member_timeout float8")
        row = connection.execute("SELECT format FROM oubli_cluster").fetchone()
    return 0 if row is None else int(row[0])


# A node that has more than the journal was not restored with it: no node may lead before a person has decided.
_IS_FREE: LiteralString = (
    "(until <= clock_timestamp() OR holder = %s) AND NOT EXISTS (SELECT 1 FROM oubli_members m "
    "WHERE m.applied_seq > last_seq AND NOT m.expelled AND m.seen > clock_timestamp() - interval '60 seconds')"
)
_PATIENCE_MS = 5000  # for one statement; a lease is shorter than what a hung one may take


@dataclass(frozen=True, slots=True)
class Leader:
    """Who led last.

    Attributes
    ----------
    epoch
        1, 2, 3, ...; one more after each takeover.
    holder
        Name of the node.
    url
        Where other nodes reach it; None when it has reported none.
    seconds_left
        Until its lease is over, by the database's clock; 0 or less when it is.
    last_seq
        Number of the newest record of the journal.
    """

    epoch: int
    holder: str
    url: str | None
    seconds_left: float
    last_seq: int


@dataclass(frozen=True, slots=True)
class Member:
    """A node and how far it is.

    Attributes
    ----------
    name, url
        Of the node.
    applied_seq
        Number of the last record that its model has applied.
    version
        The model's version there.
    erased_seq
        No file or memory of the node holds what was erased by records up to this number.
    digests_equal
        Whether its digest was the leader's at the last segment; None while that is not known.
    member_timeout
        Its own setting: it stops answering before that; None when it is of a version that does not say.
    expelled
        Whether it must rejoin; told by the database, never reported.
    seen
        Another one after each report; told by the database.
    seen_seconds_ago
        How long ago it reported, by the database's clock, which may be set: for people.
    """

    name: str
    url: str | None
    applied_seq: int = 0
    version: int = 0
    erased_seq: int = 0
    digests_equal: bool | None = None
    member_timeout: float | None = None
    expelled: bool = False
    seen: datetime | None = None
    seen_seconds_ago: float = 0.0


@dataclass(frozen=True, slots=True)
class SegmentRow:
    """A segment of the journal.

    Attributes
    ----------
    first_seq
        Number of its first record.
    key_id
        Which key its records are sealed with.
    mac
        The leader's digest at its beginning, keyed; None while it was not posted.
    """

    first_seq: int
    key_id: str
    mac: bytes | None


class Cluster:
    """The tables of leader, members and segments, over a connection of its own. One thread at a time.

    Parameters
    ----------
    url
        Of the database.

    Every method raises `JournalUnreachableError` when the database cannot be asked; whether it has done what was asked
    is not known then, and may be asked again.

    Raises
    ------
    JournalUnreachableError, StartError
        When the database cannot be reached or used.
    """

    def __init__(self, url: str) -> None:
        self._url = url
        self._connection: Connection | None = None
        try:
            ensure_schema(self._connected())
        except BaseException:
            self.close()
            raise

    def leader(self) -> Leader | None:
        """Return who led last, also when the lease is over; None before any node has."""
        rows = self._ask(
            "SELECT epoch, holder, url, extract(epoch FROM until - clock_timestamp())::float8, last_seq "
            "FROM oubli_leader"
        )
        return Leader(*rows[0]) if rows and rows[0][0] else None

    def take_over(self, name: str, url: str | None, seconds: float) -> int | None:
        """Lead from now on, when the lease is over or this node has it; return the new epoch, None when not.

        It is not taken either while a node has reported, within a minute, more records than the journal has.

        What the former leader has still under way is ended, so that its records are either seen or never written.

        Parameters
        ----------
        name, url
            Of this node.
        seconds
            How long the lease is.
        """
        rows = self._ask(f"SELECT pid FROM oubli_leader WHERE {_IS_FREE}", (name,))  # noqa: S608 - no input in it
        if not rows:
            return None
        if rows[0][0] is not None:
            self._end(rows[0][0])
        rows = self._ask(
            "UPDATE oubli_leader SET epoch = epoch + 1, holder = %s, url = %s, pid = NULL, "  # noqa: S608
            f"until = clock_timestamp() + make_interval(secs => %s) WHERE {_IS_FREE} RETURNING epoch",
            (name, url, seconds, name),
        )
        return rows[0][0] if rows else None

    def renew(self, epoch: int, seconds: float) -> bool:
        """Extend the lease; false when another node leads."""
        return self._did(
            "UPDATE oubli_leader SET until = greatest(until, clock_timestamp() + make_interval(secs => %s)) "
            "WHERE epoch = %s RETURNING 1",
            (seconds, epoch),
        )

    def resign(self, epoch: int) -> None:
        """End the lease now, and tell who listens; nothing when another node leads."""
        self._ask(
            "WITH ended AS (UPDATE oubli_leader SET until = clock_timestamp(), pid = NULL WHERE epoch = %s "
            "RETURNING 1) SELECT pg_notify('oubli_leader', '') FROM ended",
            (epoch,),
        )

    def report(self, member: Member) -> bool:
        """Tell how far a node is; false when it is expelled or no member, and nothing is written then."""
        return self._did(
            "UPDATE oubli_members SET url = %s, applied_seq = %s, version = %s, erased_seq = %s, digests_equal = %s, "
            "member_timeout = %s, seen = clock_timestamp() "
            "WHERE name = %s AND NOT expelled RETURNING 1",
            (
                member.url,
                member.applied_seq,
                member.version,
                member.erased_seq,
                member.digests_equal,
                member.member_timeout,
                member.name,
            ),
        )

    def members(self) -> list[Member]:
        """Return all nodes, by their names."""
        rows = self._ask(
            "SELECT name, url, applied_seq, version, erased_seq, digests_equal, member_timeout, expelled, seen, "
            "extract(epoch FROM clock_timestamp() - seen)::float8 FROM oubli_members ORDER BY name"
        )
        return [Member(*row) for row in rows]

    def expel(self, name: str, seen: datetime | None, epoch: int) -> bool:
        """Have a node rejoin, asked by the leader of an epoch.

        False when there is no such node, when it has reported since it was `seen`, or when another leads.
        """
        return self._did(
            "UPDATE oubli_members SET expelled = true WHERE name = %s AND seen = %s "
            "AND EXISTS (SELECT 1 FROM oubli_leader WHERE epoch = %s FOR SHARE) RETURNING 1",
            (name, seen, epoch),
        )

    def enrol(self, name: str, url: str | None) -> bool:
        """Make a node the first member; false when there are others, which it has to join from."""
        return self._did(
            "INSERT INTO oubli_members (name, url, applied_seq, version, erased_seq, seen) "
            "SELECT %s, %s, 0, 0, 0, clock_timestamp() WHERE NOT EXISTS (SELECT 1 FROM oubli_members) "
            "ON CONFLICT (name) DO NOTHING RETURNING 1",
            (name, url),
        )

    def readmit(self, name: str, url: str | None) -> None:
        """Make a node a member, again when it was expelled: it has applied nothing yet."""
        self._ask(
            "INSERT INTO oubli_members (name, url, applied_seq, version, erased_seq, seen) "
            "VALUES (%s, %s, 0, 0, 0, clock_timestamp()) ON CONFLICT (name) DO UPDATE SET url = excluded.url, "
            "applied_seq = 0, version = 0, erased_seq = 0, digests_equal = NULL, expelled = false, "
            "seen = excluded.seen RETURNING 1",
            (name, url),
        )

    def remove(self, name: str, epoch: int) -> bool:
        """Forget a node that is expelled, asked by the leader of an epoch; false when it is not, or another leads."""
        return self._did(
            "DELETE FROM oubli_members WHERE name = %s AND expelled "
            "AND EXISTS (SELECT 1 FROM oubli_leader WHERE epoch = %s FOR SHARE) RETURNING 1",
            (name, epoch),
        )

    def segments(self) -> list[SegmentRow]:
        """Return the segments of the journal, oldest first."""
        rows = self._ask("SELECT first_seq, key_id, mac FROM oubli_segments ORDER BY first_seq")
        return [SegmentRow(*row) for row in rows]

    def post_mac(self, first_seq: int, mac: bytes, epoch: int) -> bool:
        """Tell the leader's keyed digest at the beginning of a segment; false when it is gone, or another leads."""
        return self._did(
            "UPDATE oubli_segments SET mac = %s WHERE first_seq = %s "
            "AND EXISTS (SELECT 1 FROM oubli_leader WHERE epoch = %s FOR SHARE) RETURNING 1",
            (mac, first_seq, epoch),
        )

    def close(self) -> None:
        """Close the connection; calling it again does nothing, and the next question opens another."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _end(self, pid: int) -> None:
        """End the backend with which another node appends, as far as this role may."""
        with contextlib.suppress(JournalUnreachableError):  # not allowed: the epoch fences it all the same
            self._ask(
                "SELECT pg_terminate_backend(pid, 1000) FROM pg_stat_activity WHERE pid = %s "
                "AND application_name = %s AND datname = current_database() AND pid <> pg_backend_pid()",
                (pid, APPLICATION),
            )

    def _did(self, statement: LiteralString, values: tuple[Any, ...]) -> bool:
        return bool(self._ask(statement, values))

    def _ask(self, statement: LiteralString, values: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
        connection = self._connected()
        try:
            return connection.execute(statement, values).fetchall()
        except psycopg.Error as error:
            if is_lost(connection):
                raise JournalUnreachableError("the connection to PostgreSQL was lost") from None
            raise JournalUnreachableError(str(refused(error))) from None

    def _connected(self) -> Connection:
        connection = self._connection
        if connection is not None and is_usable(connection):
            return connection
        self.close()
        connection = connect(self._url)
        try:
            connection.execute(f"SET statement_timeout = {_PATIENCE_MS}; SET lock_timeout = {_PATIENCE_MS}")
        except psycopg.Error:
            connection.close()
            raise JournalUnreachableError("the connection to PostgreSQL was lost") from None
        self._connection = connection
        return connection
