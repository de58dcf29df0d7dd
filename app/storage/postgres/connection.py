"""Connections to PostgreSQL, and what its errors mean.

    before anything was sent   cannot connect, or the connection had ended: JournalUnreachableError
    refused by the database    an error, and the connection lives: the same, as it may write again later
    in doubt                   the connection was lost after something was sent, or the wait for the standby was cut

No text of the database is passed on: it may hold what the URL says, or values.
"""

import contextlib
import logging
import select
from collections.abc import Iterator
from typing import Any

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
            raise StartError("the journal needs PostgreSQL 14 or newer")
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
    """Whether something may be sent: the other side has not ended the connection meanwhile."""
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
    """Return what the service is told of an error that the database has refused something with: nothing is there."""
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
