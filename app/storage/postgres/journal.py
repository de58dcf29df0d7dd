"""The journal in PostgreSQL, and the file that says how far this machine has followed or written it.

The node that may append has three marks in the leader's row: the epoch, the number of the last record, and the process
id of the backend that asks. One statement checks all of them, moves the number and writes the records. So a statement
that another connection of this node, or another node, still has under way can never write later.

    not reached, or refused    nothing is there; JournalUnreachableError, or JournalFullError
    in doubt                   this connection takes the mark of the backend, after which the old one cannot write any
                               more, and waits as a commit does. Then it asks whether the records are there: if they
                               are, they are committed; if not, they are sent again. Nothing is answered before
    another node leads         DeposedError, unless the records were written before it did

The file `postgres-mark` holds the number of the last record, its checksum, and the checksum of the line. A database
that was restored from a backup, or a standby that was promoted without the last commits, ends before that record, or
has another one under its number. Going on would silently lose what was acknowledged. Like the mark of a journal in
files it is not flushed: it may lag behind after a power loss, and is never ahead of what was committed.
"""

from __future__ import annotations

import contextlib
import itertools
import logging
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NoReturn

import psycopg

from oubli.app.errors import (
    DeposedError,
    JournalDamagedError,
    JournalError,
    JournalRefusedError,
    JournalUnreachableError,
    StartError,
)
from oubli.app.storage.journal import Journal, Mark, Record
from oubli.app.storage.postgres.database import (
    RECORDS_CHANNEL,
    Cluster,
    Connection,
    connect,
    ensure_schema,
    is_lost,
    is_usable,
    reading_errors,
    refused,
    require_format,
)
from oubli.app.storage.postgres.records import (
    OVERHEAD,
    Batch,
    Positioned,
    Reader,
    Sealer,
    begin_segment,
    cycle_wal,
    damaged,
    forget_segments,
    remove_unnamed,
)
from oubli.app.storage.segment_keys import SegmentKey, SegmentKeys

MARK_NAME = "postgres-mark"
_FOUND = """
SELECT l.last_seq, (SELECT min(first_seq) FROM oubli_segments), (SELECT checksum FROM oubli_records WHERE seq = %s)
FROM oubli_leader l
"""


class PositionMark(Mark):
    """The mark of a machine that writes or follows the journal.

    Parameters
    ----------
    directory
        Where it is; None: nothing is kept or checked.
    """

    def __init__(self, directory: Path | None) -> None:
        path = None if directory is None else directory / MARK_NAME
        try:
            super().__init__(path)
        except OSError as error:
            raise StartError(
                f"{path} cannot be read ({error.strerror}): check its permissions. The file shows whether the database "
                "was set back"
            ) from None

    def require_in(self, connection: Connection) -> None:
        """Check that the journal has the record.

        A record whose segment was dropped is not looked for: every member had applied it.

        Raises
        ------
        JournalDamagedError
            When it ends before the record, or has another one.
        psycopg.Error
            When the database cannot be asked.
        """
        if not self.seq:
            return
        ((last_seq, first_seq, checksum),) = connection.execute(_FOUND, (self.seq,)).fetchall()
        if last_seq < self.seq:
            raise set_back(f"ends with record {last_seq}, and record {self.seq} was acknowledged or applied here")
        is_there = checksum == self.checksum
        if not is_there and (checksum is not None or (first_seq is not None and first_seq <= self.seq)):
            raise set_back(f"has another record {self.seq} than the one that was acknowledged or applied here")


def set_back(how: str) -> JournalDamagedError:
    """Return the error of a journal that does not have what this machine has."""
    return JournalDamagedError(
        f"the journal in PostgreSQL {how}: an older state of the database was restored, or a standby without the last "
        "records was promoted. Nothing was changed. Restore a state of the database that has them, and start again; "
        "or see 'When the journal was set back' in docs/how-to/cluster.md"
    )


log = logging.getLogger("oubli.journal")

LEASE = 3.0  # seconds
SETTLE_SECONDS = 60.0

_CLOSE_SECONDS = 10.0  # that `close` waits for another thread
_PAUSE = 0.1  # seconds between two attempts to settle what is in doubt
_SETTLE_MS = 5000  # that one question of them may take

_CLAIM = "UPDATE oubli_leader SET pid = pg_backend_pid() WHERE epoch = %s RETURNING last_seq"
_BARRIER = "UPDATE oubli_cluster SET format = format"  # a commit, which waits for the standby
_LEADER = "SELECT epoch, last_seq, pid FROM oubli_leader"
_SEGMENTS = "SELECT first_seq, key_id FROM oubli_segments ORDER BY first_seq"
_SUMMARY = """
SELECT count(*), coalesce(sum(octet_length(sealed)), 0)::bigint, min(at), max(seq) FROM oubli_records WHERE segment = %s
"""


class PostgresJournal(Journal):
    """A journal in a PostgreSQL database. Until `lead` is called it only reads.

    Parameters
    ----------
    url
        Of the database.
    keys
        Of the segments.
    lease
        Seconds that each append extends the lease to at least.
    hand_over
        Gives the key of a new segment to other nodes, before anything is written under it. What it raises is raised by
        `rotate`, and the segment in use stays.
    fetch_key
        Asks other nodes for a key that is not here; None when no node has it.
    settle_seconds
        How long an append that is in doubt waits until PostgreSQL can be asked.
    directory
        Where it is noted how far this machine is; None: nowhere.
    now
        The time in seconds since 1970.

    Attributes
    ----------
    epoch
        In which this node leads; None while it only reads.

    mark
        How far this machine has written or followed; a node that follows notes that itself.

    For its other attributes see `Journal`; while the node only reads they are those of the time when it led last.

    Raises
    ------
    JournalUnreachableError
        When the database cannot be reached.
    StartError
        When it cannot be used.
    """

    is_durable = True

    def __init__(
        self,
        url: str,
        keys: SegmentKeys,
        *,
        lease: float = LEASE,
        hand_over: Callable[[SegmentKey], None] = lambda _: None,
        fetch_key: Callable[[str], bytes | None] = lambda _: None,
        settle_seconds: float = SETTLE_SECONDS,
        directory: Path | None = None,
        now: Callable[[], float] = time.time,
    ) -> None:
        super().__init__()
        self._url = url
        self._keys = keys
        self._lease = lease
        self._hand_over = hand_over
        self._settle_seconds = settle_seconds
        self._now = now
        self._closing = threading.Event()
        self._writing = threading.Lock()
        self._reader = Reader(self._connected, keys, fetch_key)
        self.mark = PositionMark(directory)
        self.epoch: int | None = None
        self._segment = 0  # number of the newest segment's first record
        self._sealer: Sealer | None = None  # of that
        self._connection: Connection | None = None
        self._listens = False
        self._may_have_missed = True  # what was written before this connection listened
        self._is_wal_old = True  # it may hold segments that were dropped; an earlier leader does not tell
        try:
            ensure_schema(self._connected())
        except BaseException:
            self.close()
            raise

    # --- who writes

    def lead(self, epoch: int) -> None:
        """Append from now on, in an epoch that `Cluster.take_over` has given; all attributes are read again.

        Raises
        ------
        DeposedError
            When another node leads now.
        StartError
            When a newer version has changed the format of the tables.
        JournalDamagedError
            When acknowledged records, or the key of the segment in use, are missing, or others are in their place.
        JournalError
            When the database cannot be asked.
        """
        self._require_sound()
        acknowledged = self.last_seq
        self.epoch = epoch
        try:
            connection = self._connected()
            with reading_errors(connection):
                if self._listens:
                    connection.execute("UNLISTEN *")
                    self._listens = False
                require_format(connection)
                self._take_mark(connection, acknowledged)
                self.mark.require_in(connection)
                self._read_anew(connection, epoch)
        except BaseException:
            self.epoch = None
            raise

    def require_marked(self) -> None:
        """Check that the journal has the last record that was written or applied on this machine.

        Raises
        ------
        JournalDamagedError
            When it has not: it was set back.
        JournalError
            When the database cannot be asked.
        """
        connection = self._connected()
        with reading_errors(connection):
            self.mark.require_in(connection)

    def follow(self) -> None:
        """Append no more, and have `wait` return when others do.

        Raises
        ------
        JournalError
            When the database cannot be asked.
        """
        self.epoch = None
        connection = self._connected()
        with reading_errors(connection):
            connection.execute(f"LISTEN {RECORDS_CHANNEL}")
        self._listens = self._may_have_missed = True

    # --- writing

    def append(self, records: Sequence[Record], *, reserve: bool = False) -> None:
        """Write records; they are durable when this returns. See `Journal.append`.

        No room is kept for erasures: the database's disk is not ours.

        Raises
        ------
        JournalUnreachableError
            When PostgreSQL could not be reached; none of them is in the journal.
        DeposedError
            When another node leads; none of them is in the journal.
        """
        del reserve
        epoch, sealer = self._require_leading(), self._sealer
        if not records or sealer is None:
            return
        self._require_next(records)
        at_ms = round(self._now() * 1000)
        batch = Batch(
            records, self._segment, sealer, epoch=epoch, last_seq=self.last_seq, at_ms=at_ms, lease=self._lease
        )
        with self._writing:
            self._commit(batch.write, batch.is_there)
        self.mark.write(records[-1].seq, batch.last_checksum)
        self._count(records, at_ms / 1000)

    def probe(self) -> None:
        """Return when records could be written now. See `Journal.probe`."""
        epoch = self._require_leading()
        connection = self._leading()
        with reading_errors(connection):
            if connection.execute(_CLAIM, (epoch,)).fetchone() is None:
                self._not_leading(connection)

    def rotate(self, first_seq: int) -> None:
        """Begin a new segment, under a key of its own. See `Journal.rotate`."""
        epoch = self._require_leading()
        self._require_later(first_seq)
        if self._segment != first_seq:
            self._begin(first_seq, epoch)

    def drop_before(self, seq: int, *, erases: bool = True) -> None:
        """Remove the segments that only hold records with lower numbers, and their keys. See `Journal.drop_before`.

        For an erasure the write-ahead log of the database is cycled as well, where the role may; what is left of it
        cannot be read without the keys. Otherwise nothing waits for that, and checkpoints load the database.
        """
        epoch = self._require_leading()
        connection = self._leading()
        try:
            ids = self._keys.ids()  # as long as this node leads, no other hands over the key of a later segment
            with reading_errors(connection):
                segments = connection.execute(_SEGMENTS).fetchall()
                gone = [first for (first, _), (later, _) in itertools.pairwise(segments) if later <= seq]
                if not forget_segments(connection, gone, epoch):
                    self._not_leading(connection)
                kept = segments[len(gone) :]
                self.first_seq = kept[0][0]
                n_removed = remove_unnamed(connection)
            self._keys.destroy(set(ids) - {key_id for _, key_id in kept})
            self._reader.forget()  # it may be what opens a segment that is gone
        except OSError:
            raise JournalRefusedError("the key of a segment could not be destroyed") from None
        self._is_wal_old = self._is_wal_old or n_removed > 0
        if erases and self._is_wal_old:
            cycle_wal(connection)
            self._is_wal_old = False

    def close(self) -> None:
        """Close the connection, and wait no longer for what is in doubt. See `Journal.close`."""
        self._closing.set()
        # One that another thread uses must not be closed: what it waits for ends by itself, or with the process.
        if self._writing.acquire(timeout=_CLOSE_SECONDS):
            try:
                self._forget_connection()
                self.mark.close()
            finally:
                self._writing.release()

    # --- reading

    def records(self, after_seq: int) -> Iterator[Record]:
        """Return all records with higher numbers, in order. See `Journal.records`.

        Raises
        ------
        JournalUnreachableError
            While iterating, when the connection is lost.
        """
        last = after_seq
        for _, _, _, record in self.positioned_records(after_seq):
            yield record
            last = record.seq
        if last < self.last_seq:
            raise damaged(last + 1)

    def positioned_records(self, after_seq: int) -> Iterator[Positioned]:
        """Return all records with higher numbers, in order, with what followers compare.

        Yields
        ------
        int, int, bytes, Record
            Number of the first record of the segment, epoch, checksum, record.

        Raises
        ------
        JournalDamagedError
            While iterating, when one is missing or not what was written. It is also missing when its segment was
            dropped, or its number never used because a restore went on behind it.
        JournalUnreachableError
            When the connection is lost.
        """
        return self._reader.positioned_records(after_seq)

    def identity_of(self, seq: int) -> tuple[int, bytes] | None:
        """Return epoch and checksum of a record, without opening it; None when it is not there.

        Raises
        ------
        JournalUnreachableError
            When the connection is lost.
        """
        return self._reader.identity_of(seq)

    def forget(self) -> None:
        """Keep nothing that opens records; what is needed is read again from the files of keys."""
        self._reader.forget()

    def wait(self, after_seq: int, timeout: float) -> bool:
        """Return when there may be records with higher numbers, or when the time is over; whether there may be.

        Only a hint, which costs less than reading: read also when it is false. It looks first when the connection
        is new, because it may have missed something. Call `follow` before.

        Raises
        ------
        JournalUnreachableError
            When the connection is lost.
        """
        connection = self._connected()
        with reading_errors(connection):
            if self._may_have_missed:
                self._may_have_missed = False
                if _last_seq(connection) > after_seq:
                    return True
            return self._is_notified(connection, timeout) or _last_seq(connection) > after_seq

    # --- the parts

    def _is_notified(self, connection: Connection, timeout: float) -> bool:
        """Whether another node has written, at once or after some time."""
        # The first is what came while it was found out that the connection lives.
        return connection.pgconn.notifies() is not None or any(connection.notifies(timeout=timeout, stop_after=1))

    def _read_anew(self, connection: Connection, epoch: int) -> None:
        """Read what there is, with all marks of the leader taken; make the first segment where there is none."""
        segments = connection.execute(_SEGMENTS).fetchall()
        if not segments:
            if self.last_seq:
                raise damaged(self.last_seq)
            self._begin(1, epoch)
            self.first_seq = 1
            return
        self.first_seq, self._segment = segments[0][0], segments[-1][0]
        ((self.n_records, n_bytes, oldest, last),) = connection.execute(_SUMMARY, (self._segment,)).fetchall()
        self.n_bytes = n_bytes - OVERHEAD * self.n_records
        self.oldest_at = None if oldest is None else oldest / 1000
        if (self._segment - 1 if last is None else last) != self.last_seq:
            raise damaged(self.last_seq)
        self._sealer = self._reader.sealer(connection, self._segment)

    def _begin(self, first_seq: int, epoch: int) -> None:
        """Begin a segment, under a key that is flushed and handed over before."""
        before = self.last_seq
        try:
            key = self._keys.new()
        except OSError:
            raise JournalRefusedError("the key of a new segment could not be written") from None

        def create(connection: Connection) -> bool:
            return begin_segment(connection, first_seq, key, epoch=epoch, last_seq=before)

        def is_there(connection: Connection) -> bool:
            found = "SELECT 1 FROM oubli_segments WHERE first_seq = %s AND key_id = %s"
            return connection.execute(found, (first_seq, key.id)).fetchone() is not None

        try:
            self._hand_over(key)
            with self._writing:
                self._commit(create, is_there)
        except BaseException:
            if not self.failed:  # else it may be in use
                with contextlib.suppress(OSError):
                    self._keys.destroy([key.id])
            raise
        self._segment = first_seq
        self._sealer = Sealer(key)
        self._count_from(first_seq)

    def _commit(self, work: Callable[[Connection], bool], is_there: Callable[[Connection], bool]) -> None:
        """Have one statement committed, and settle whether it was when that is in doubt.

        Parameters
        ----------
        work
            Sends it; false when this connection does not lead.
        is_there
            Whether it was committed.
        """
        connection: Connection | None = self._leading()
        deadline = None
        while connection is not None:
            n_warnings = connection.n_warnings
            try:
                is_done = work(connection)
            except psycopg.Error as error:
                if not is_lost(connection):
                    raise refused(error) from None
            else:
                if not is_done:
                    self._not_leading(connection)
                if connection.n_warnings == n_warnings:
                    return
            if deadline is None:
                deadline = time.monotonic() + self._settle_seconds
            connection = self._settled(is_there, deadline)

    def _settled(self, is_there: Callable[[Connection], bool], deadline: float) -> Connection | None:
        """Find out what has become of a statement; None when it is committed, else a connection to send it again."""
        while not self._closing.is_set() and time.monotonic() < deadline:
            with contextlib.suppress(JournalUnreachableError, psycopg.Error):
                self._forget_connection()
                connection = self._connected()
                n_warnings = connection.n_warnings
                connection.execute(f"SET statement_timeout = {_SETTLE_MS}")
                # From here on the old backend cannot write any more; and what it has written is on the standby.
                claimed = connection.execute(_CLAIM, (self.epoch,)).fetchone()
                if claimed is None:
                    connection.execute(_BARRIER)
                found = is_there(connection)
                connection.execute("SET statement_timeout = 0")
                if connection.n_warnings == n_warnings:
                    if found:
                        return None
                    if claimed is None:
                        self._not_leading(connection)
                    if claimed[0] != self.last_seq:
                        self._fail("PostgreSQL has lost records, or another program has written some")
                    return connection
            self._closing.wait(_PAUSE)
        return self._fail("it is unknown whether records were written; the next start reads what is there")

    def _leading(self) -> Connection:
        """Return a connection that has the mark of the backend that may append."""
        if self._connection is not None and is_usable(self._connection):
            return self._connection
        connection = self._connected()
        with reading_errors(connection):
            self._take_mark(connection, self.last_seq, exactly=True)
        return connection

    def _take_mark(self, connection: Connection, acknowledged: int, *, exactly: bool = False) -> None:
        """Have this connection be the one that may append."""
        try:
            row = connection.execute(_CLAIM, (self.epoch,)).fetchone()
            if row is None:
                self._not_leading(connection)
            if row[0] < acknowledged or (exactly and row[0] != acknowledged):
                self._fail("PostgreSQL has lost acknowledged records, or another program has written some")
        except BaseException:
            self._forget_connection()  # the next attempt has to take it again
            raise
        self.last_seq = row[0]

    def _connected(self) -> Connection:
        """Return a connection that can be used; a new one when the last has ended."""
        if self._connection is not None and is_usable(self._connection):
            return self._connection
        self._forget_connection()
        if self._closing.is_set():
            raise JournalUnreachableError("the journal is closed")
        connection = connect(self._url)
        if self._listens:
            with reading_errors(connection):
                connection.execute(f"LISTEN {RECORDS_CHANNEL}")
            self._may_have_missed = True
        self._connection = connection
        return connection

    def _forget_connection(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _not_leading(self, connection: Connection) -> NoReturn:
        """Tell why this connection may not append."""
        try:
            row = connection.execute(_LEADER).fetchone()
        except psycopg.Error:
            raise JournalUnreachableError("the connection to PostgreSQL was lost") from None
        # A node that ends its own lease takes its mark away, perhaps before another one takes over.
        if row is not None and (row[0] > (self.epoch or 0) or row == (self.epoch, self.last_seq, None)):
            self.epoch = None
            raise DeposedError("another node leads")
        self._fail("PostgreSQL does not continue from the last record of this node: an older state of it was restored")

    def _fail(self, text: str) -> NoReturn:
        self.failed = True
        log.error("%s", text)
        raise JournalError(text) from None

    def _require_leading(self) -> int:
        self._require_sound()
        if self.epoch is None:
            raise DeposedError("this node does not lead")
        return self.epoch


def _last_seq(connection: Connection) -> int:
    ((_, last, _),) = connection.execute(_LEADER, prepare=True).fetchall()
    return int(last)


_RENEWALS = 4  # in the time of a lease
_GRACE = 0.5  # seconds beyond the lease of a server that was killed


class SoleJournal(PostgresJournal):
    """A journal in PostgreSQL that leads from the beginning.

    Parameters
    ----------
    url
        Of the database.
    keys
        Of the segments.
    name
        Of this server. One that was killed leaves its lease, which is taken over at once by a server of the same name.
    lease
        In seconds.
    directory
        Where it is noted how far this server is; None: nowhere.
    now
        The time in seconds since 1970.

    For its attributes see `PostgresJournal`.

    Raises
    ------
    StartError
        When PostgreSQL cannot be used, or another server leads.
    JournalDamagedError
        When acknowledged records, or the key of the segment in use, are missing.
    """

    def __init__(
        self,
        url: str,
        keys: SegmentKeys,
        *,
        name: str,
        lease: float = LEASE,
        directory: Path | None = None,
        now: Callable[[], float] = time.time,
    ) -> None:
        self._tenure: _Tenure | None = None
        try:
            super().__init__(url, keys, lease=lease, directory=directory, now=now)
            self._tenure = _Tenure(Cluster(url), name, lease)
            self.lead(self._tenure.epoch)
        except DeposedError:
            self.close()
            raise _led_by_another() from None
        except JournalUnreachableError:
            self.close()
            raise StartError(
                "PostgreSQL cannot be reached, or accepts no writes: check that it runs, and that host, database, "
                "user and password in --journal are right; psql with the same URL says more"
            ) from None
        except JournalError:
            self.close()
            raise StartError(
                "the journal in PostgreSQL cannot be used: see the lines of the log before this one"
            ) from None
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Close all connections, and let others lead at once; calling it again does nothing."""
        super().close()
        if self._tenure is not None:
            self._tenure.end()


class _Tenure:
    """The lease, renewed by a thread."""

    def __init__(self, cluster: Cluster, name: str, seconds: float) -> None:
        self._cluster = cluster
        self._seconds = seconds
        self._ending = threading.Event()
        try:
            self.epoch = self._taken(name)
        except BaseException:
            cluster.close()
            raise
        self._thread = threading.Thread(target=self._renew, name="oubli-lease", daemon=True)
        self._thread.start()

    def end(self) -> None:
        """Renew it no more, and end it."""
        if self._ending.is_set():
            return
        self._ending.set()
        self._thread.join()
        try:
            self._cluster.resign(self.epoch)
        except JournalUnreachableError:
            log.warning("the lease could not be ended: another server can lead in %g seconds", self._seconds)
        self._cluster.close()

    def _taken(self, name: str) -> int:
        """Lead, at the latest when the lease of a server that was killed is over."""
        end = time.monotonic() + self._seconds + _GRACE
        while True:
            epoch = self._cluster.take_over(name, None, self._seconds)
            if epoch is not None:
                return epoch
            if time.monotonic() >= end:
                raise _led_by_another()
            time.sleep(self._seconds / _RENEWALS / 4)

    def _renew(self) -> None:
        while not self._ending.wait(self._seconds / _RENEWALS):
            try:
                if not self._cluster.renew(self.epoch, self._seconds):
                    log.error("another server has taken over the journal in PostgreSQL: this one accepts no changes")
                    return
            except (JournalError, StartError):
                continue  # appends report it, and the lease is this server's as long as no other takes it


def _led_by_another() -> StartError:
    return StartError(
        "another server writes the journal in this database: stop it, or give this server another database or schema "
        "in --journal"
    )
