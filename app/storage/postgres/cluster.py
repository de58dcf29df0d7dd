"""Who leads, and which nodes there are.

The database's clock decides when a lease is over; the epoch decides who writes.
"""

import contextlib
from dataclasses import dataclass
from typing import Any, LiteralString

import psycopg

from oubli.app.errors import JournalUnreachableError
from oubli.app.storage.postgres.connection import APPLICATION, Connection, connect, is_lost, is_usable, refused
from oubli.app.storage.postgres.schema import ensure_schema

# A node that has more than the journal was not put back with it: nobody may go on before a person has looked.
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
        1, 2, 3, ...; one more whenever somebody takes over.
    holder
        Name of the node.
    url
        Where other nodes reach it; None when it has told none.
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
        Number of the last record that its model has taken in.
    version
        The model's version there.
    erased_seq
        No file or memory of the node holds what was erased by records up to this number.
    digests_equal
        Whether its digest was the leader's at the last segment; None while that is not known.
    expelled
        Whether it must rejoin; told by the database, never reported.
    seen_seconds_ago
        How long ago it reported, by the database's clock.
    """

    name: str
    url: str | None
    applied_seq: int = 0
    version: int = 0
    erased_seq: int = 0
    digests_equal: bool | None = None
    expelled: bool = False
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
        """Return who led last, also when the lease is over; None when nobody ever did."""
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
            "seen = clock_timestamp() WHERE name = %s AND NOT expelled RETURNING 1",
            (
                member.url,
                member.applied_seq,
                member.version,
                member.erased_seq,
                member.digests_equal,
                member.name,
            ),
        )

    def members(self) -> list[Member]:
        """Return all nodes, by their names."""
        rows = self._ask(
            "SELECT name, url, applied_seq, version, erased_seq, digests_equal, expelled, "
            "extract(epoch FROM clock_timestamp() - seen)::float8 FROM oubli_members ORDER BY name"
        )
        return [Member(*row) for row in rows]

    def expel(self, name: str, epoch: int) -> bool:
        """Have a node rejoin, asked by the leader of an epoch; false when there is no such node, or another leads."""
        return self._did(
            "UPDATE oubli_members SET expelled = true WHERE name = %s "
            "AND EXISTS (SELECT 1 FROM oubli_leader WHERE epoch = %s FOR SHARE) RETURNING 1",
            (name, epoch),
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
        """Take a node in, anew when it was expelled: it has applied nothing yet."""
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
