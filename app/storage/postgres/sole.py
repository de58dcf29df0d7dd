"""The journal of a server that no other one follows: it takes the lease when it starts, and renews it until it ends."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from oubli.app.errors import DeposedError, JournalError, JournalUnreachableError, StartError
from oubli.app.storage.postgres.cluster import Cluster
from oubli.app.storage.postgres.journal import LEASE, PostgresJournal

if TYPE_CHECKING:
    from pathlib import Path

    from oubli.app.storage.segment_keys import SegmentKeys

log = logging.getLogger("oubli.journal")

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
                "PostgreSQL cannot be reached, or takes no writes: see that it runs, and that host, database, user and "
                "password in --journal are right; psql tells more with the same URL"
            ) from None
        except JournalError:
            self.close()
            raise StartError("the journal in PostgreSQL cannot be used; see the server's log") from None
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
            log.warning("the lease could not be ended: another server leads in %g seconds", self._seconds)
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
                    log.error("another server has taken over the journal in PostgreSQL: nothing is changed here")
                    return
            except (JournalError, StartError):
                continue  # appends tell of it, and the lease is this server's as long as nobody else takes it


def _led_by_another() -> StartError:
    return StartError(
        "another server writes the journal in this database: one journal belongs to one server. Stop the other, or "
        "give this one another database or schema in --journal"
    )
