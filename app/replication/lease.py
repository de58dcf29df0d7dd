"""The lease: a thread that keeps it while the node leads, and takes it over when it is over.

It runs before there is an event loop, because training takes minutes, and beside it, because a loop that is busy must
not lose the lease. It tells others of what it finds by attributes that change as a whole, and calls whoever listens
after each look.

    leads     renews, expels nodes that are silent for too long         four times in a lease
    follows   looks whether the lease is over, and tries to take over   eight times
    both      reports how far the node is; reads nodes and segments
"""

from __future__ import annotations

import contextlib
import logging
import queue
import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, TypeVar

from oubli.app.errors import JournalError
from oubli.app.replication.nodes import Node, View
from oubli.app.storage.postgres.cluster import Member

if TYPE_CHECKING:
    from oubli.app.storage.postgres.cluster import Leader, SegmentRow

log = logging.getLogger("oubli.cluster")

T = TypeVar("T")
_RENEWALS, _LOOKS = 4, 8  # in the time of a lease
_LONGEST_DELAY = 2.0  # seconds for which a node that is behind lets others try first
_RECORDS_A_SECOND = 10_000  # that a node is taken to catch up by
_LEAST_PAUSE = 0.01
_STALE = 5.0  # seconds without the database after which that is told


class ClusterTables(Protocol):
    """What is asked of `oubli.app.storage.postgres.cluster.Cluster`."""

    def leader(self) -> Leader | None:
        """See there."""

    def take_over(self, name: str, url: str | None, seconds: float) -> int | None:
        """See there."""

    def renew(self, epoch: int, seconds: float) -> bool:
        """See there."""

    def resign(self, epoch: int) -> None:
        """See there."""

    def report(self, member: Member) -> bool:
        """See there."""

    def members(self) -> list[Member]:
        """See there."""

    def expel(self, name: str, epoch: int) -> bool:
        """See there."""

    def enrol(self, name: str, url: str | None) -> bool:
        """See there."""

    def readmit(self, name: str, url: str | None) -> None:
        """See there."""

    def remove(self, name: str, epoch: int) -> bool:
        """See there."""

    def segments(self) -> list[SegmentRow]:
        """See there."""

    def post_mac(self, first_seq: int, mac: bytes, epoch: int) -> bool:
        """See there."""

    def close(self) -> None:
        """See there."""


@dataclass(frozen=True, slots=True)
class Progress:
    """How far this node is.

    Attributes
    ----------
    applied_seq, version, erased_seq, digests_equal
        See `oubli.app.storage.postgres.cluster.Member`.
    may_lead
        Whether it would take over.
    """

    applied_seq: int = 0
    version: int = 0
    erased_seq: int = 0
    digests_equal: bool | None = None
    may_lead: bool = False


class Lease:
    """The thread; `start` begins it, `close` ends it.

    Parameters
    ----------
    tables
        The database, over a connection of its own.
    node
        This node.
    seconds
        How long a lease is.
    member_timeout
        After how many seconds of silence a node is expelled.

    Attributes
    ----------
    epoch
        In which this node leads; None when it does not.
    is_expelled
        Whether it must rejoin: it was expelled, or removed while this process ran.
    view
        What the database has told last; None before it was asked.
    progress
        Tells how far this node is; called in the thread.
    listener
        Called in the thread after each look.
    """

    def __init__(self, tables: ClusterTables, node: Node, seconds: float, member_timeout: float) -> None:
        self.node = node
        self.seconds = seconds
        self.member_timeout = member_timeout
        self.epoch: int | None = None
        self.is_expelled = False
        self.view: View | None = None
        self.progress: Callable[[], Progress] = Progress
        self.listener: Callable[[], object] = lambda: None
        self._tables = tables
        self._asked: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._heads: deque[tuple[float, int]] = deque()  # numbers of the newest record, and when they were seen
        self._over_since: float | None = None
        self._looked_at: float | None = None  # when the database has answered last
        self._steady_since: float | None = None  # since when it has answered without a gap
        self._waits_until = 0.0
        self._is_told = False
        self._was_member = False  # in this process
        self._is_silent = False
        self._is_resigned = False
        self._thread = threading.Thread(target=self._run, name="oubli-lease", daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def ask(self, question: Callable[[ClusterTables], T]) -> Future[T]:
        """Have something asked of the database in the thread, soon."""
        answer: Future[T] = Future()

        def work() -> None:
            try:
                answer.set_result(question(self._tables))
            except BaseException as error:
                answer.set_exception(error)

        self._asked.put(work)
        return answer

    def try_now(self) -> int | None:
        """Take over if the lease is over, whatever `progress` says; return the epoch, None when another node leads.

        Raises
        ------
        JournalError
            When the database cannot be asked.
        """
        return self.ask(lambda _: self._take_over()).result()

    def be_silent(self) -> None:
        """Report nothing any more: the process is about to be replaced, and no longer what the database is told."""
        self._is_silent = True

    def resign(self) -> None:
        """Let another node lead; in the thread that calls it, for as long as the database takes."""
        self._is_resigned = True

        def end(tables: ClusterTables) -> None:
            if self.epoch is not None:
                tables.resign(self.epoch)
                self.epoch = None

        with contextlib.suppress(JournalError):
            self.ask(end).result()

    def close(self) -> None:
        """End the thread; the lease ends by itself."""
        self._asked.put(None)
        if self._thread.is_alive():
            self._thread.join()

    # --- in the thread

    def _run(self) -> None:
        last_success = time.monotonic()
        while True:
            pause = self.seconds / (_LOOKS if self.epoch is None else _RENEWALS)
            try:
                pause = min(pause, self._look())
                last_success, self._is_told = time.monotonic(), False
            except JournalError:
                if not self._is_told and time.monotonic() - last_success > _STALE:
                    self._is_told = True
                    log.warning("PostgreSQL cannot be asked who leads: it is tried again")
            except Exception as error:  # a mistake of ours must not lose the lease
                log.error("the lease could not be looked after (%s): it is tried again", type(error).__name__)
            self.listener()
            if not self._wait(pause):
                self._tables.close()
                return

    def _wait(self, seconds: float) -> bool:
        """Do what is asked meanwhile; false when it is the end."""
        end = time.monotonic() + seconds
        while True:
            try:
                work = self._asked.get(timeout=max(_LEAST_PAUSE, end - time.monotonic()))
            except queue.Empty:
                return True
            if work is None:
                return False
            work()
            if time.monotonic() >= end:
                return True

    def _look(self) -> float:
        """Do what is due; return after how many seconds something may be due."""
        tables, pause = self._tables, self.seconds
        applied_seq = self.progress().applied_seq
        if self.epoch is not None and not tables.renew(self.epoch, self.seconds):
            log.warning("another node leads by now")
            self.epoch = None
        leader = tables.leader()
        self._heed_silence()
        if not self._is_silent:
            self._report()  # before it may take over: who is expelled has to know it then
        if self.epoch is None:
            pause = self._consider(leader)
            if self.epoch is not None:
                leader = tables.leader()
        self._note_head(0 if leader is None else leader.last_seq)
        view = View(leader, tables.members(), tables.segments(), self._heads[0][1], applied_seq)
        if self.epoch is not None:
            self._expel_silent(view, self.epoch)
        self.view = view
        return pause

    def _heed_silence(self) -> None:
        """Let others report and renew first, when the database was away for so long that they could not.

        Leases are over then, and nodes seem silent, although nothing is wrong with them.
        """
        now = time.monotonic()
        if self._steady_since is None:
            self._steady_since = now
        if self._looked_at is not None and now - self._looked_at > self.seconds / 2:
            self._waits_until, self._steady_since = now + self.seconds, now
        self._looked_at = now

    def _consider(self, leader: Leader | None) -> float:
        """Take over when the lease is over and it is this node's turn; return when to look again."""
        now = time.monotonic()
        left = 0.0 if leader is None else leader.seconds_left
        if leader is not None and leader.holder == self.node.name:
            left = 0.0  # of an earlier process: nobody else has it
        if left > 0:
            self._over_since = None
            return left + _LEAST_PAUSE
        known = self.progress()
        if not known.may_lead or self.is_expelled or self._is_resigned or self._is_silent:
            return self.seconds
        if self._over_since is None:
            self._over_since = now
        lag = max(0, (0 if leader is None else leader.last_seq) - known.applied_seq)
        delay = min(_LONGEST_DELAY, lag / _RECORDS_A_SECOND)
        wait = max(delay - (now - self._over_since), self._waits_until - now)
        if wait > 0:
            return max(_LEAST_PAUSE, wait)
        self._take_over()
        return self.seconds

    def _take_over(self) -> int | None:
        epoch = self._tables.take_over(self.node.name, self.node.url, self.seconds)
        if epoch is not None:
            self.epoch, self._over_since = epoch, None
            log.info("this node leads, epoch %d", epoch)
        return epoch

    def _report(self) -> None:
        known = self.progress()
        member = Member(
            self.node.name,
            self.node.url,
            known.applied_seq,
            known.version,
            known.erased_seq,
            known.digests_equal,
        )
        if self._tables.report(member):
            self._was_member = True
            return
        if self.is_expelled:
            return
        is_expelled = any(one.name == self.node.name and one.expelled for one in self._tables.members())
        if is_expelled or self._was_member:
            self.is_expelled = True
            how = "was silent for too long and is expelled" if is_expelled else "was removed from the cluster"
            log.error("this node %s: it has to rejoin", how)

    def _note_head(self, last_seq: int) -> None:
        now = time.monotonic()
        self._heads.append((now, last_seq))
        while len(self._heads) > 1 and self._heads[1][0] <= now - self.seconds:
            self._heads.popleft()

    def _expel_silent(self, view: View, epoch: int) -> None:
        if self._steady_since is None or time.monotonic() - self._steady_since < self.member_timeout:
            return
        for member in view.others(self.node.name):
            if member.seen_seconds_ago > self.member_timeout and self._tables.expel(member.name, epoch):
                log.error("a node was silent for %.0f s and is expelled: it has to rejoin", member.seen_seconds_ago)
