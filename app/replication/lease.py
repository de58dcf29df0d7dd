"""The lease: a thread that keeps it while the node leads, and takes it over when it is over.

It runs before there is an event loop, because training takes minutes, and beside it, because a loop that is busy must
not lose the lease. It publishes its findings in attributes that change as a whole, and calls a listener after each
look.

    leads     renews, expels nodes that are silent for too long         four times in a lease
    follows   looks whether the lease is over, and tries to take over   eight times
    both      reports how far the node is; reads nodes and segments

A receipt may say `erased` while a node that is silent still has the sample in memory: so that node must have stopped
answering. No clocks are compared; each side counts seconds of its own, which cannot be set:

    node      sends a report ............ answers for 0.9 T after it has sent the last one that was written
    leader           sees it ............ expels the node when it has seen no later one for T

T is `member_timeout`, of the node or of the leader, whichever is longer. The leader has seen a report after it was
sent, and expels only if there is no later one in the table. What is left, 0.1 T, is for clocks of different speed.
"""

from __future__ import annotations

import contextlib
import itertools
import logging
import math
import queue
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from datetime import datetime
from typing import Literal, TypeVar

from oubli.app.errors import JournalError
from oubli.app.logs import cause_of
from oubli.app.storage.postgres.database import Cluster, Leader, Member, SegmentRow
from oubli.app.times import elapsed

log = logging.getLogger("oubli.cluster")

T = TypeVar("T")
_RENEWALS, _LOOKS = 4, 8  # in the time of a lease
_LONGEST_DELAY = 2.0  # seconds for which a node that is behind lets others try first
_RECORDS_A_SECOND = 10_000  # that a node is taken to catch up by
_LEAST_PAUSE = 0.01
_STALE = 5.0  # seconds without the database after which that is logged
_ANSWERING = 0.9  # of `member_timeout`


NodeState = Literal["in-step", "behind", "silent", "expelled"]
NODE_STATES: tuple[NodeState, ...] = ("in-step", "behind", "silent", "expelled")


@dataclass(frozen=True, slots=True)
class Node:
    """Name and place of a node.

    Attributes
    ----------
    name
        No other node has it.
    url
        Where others reach it.
    """

    name: str
    url: str


@dataclass(frozen=True, slots=True)
class View:
    """The answers of the database at one instant.

    Attributes
    ----------
    leader
        Who led last; None before any node has.
    members, segments
        All nodes, and the segments of the journal.
    in_step_from
        The record that a node must have applied to be in step: the newest of some seconds ago.
    applied_seq
        What this node had made or applied before it asked; the journal has at least that.
    at
        Before when it was asked, in seconds of `time.monotonic`.
    """

    leader: Leader | None = None
    members: Sequence[Member] = ()
    segments: Sequence[SegmentRow] = ()
    in_step_from: int = 0
    applied_seq: int = 0
    at: float = field(default_factory=time.monotonic)

    @property
    def last_seq(self) -> int:
        """Number of the newest record."""
        return 0 if self.leader is None else self.leader.last_seq

    @property
    def is_set_back(self) -> bool:
        """Whether the journal ends before what this node has."""
        return self.last_seq < self.applied_seq

    @property
    def leader_url(self) -> str | None:
        """Where the node is reached that leads; None when none does."""
        return self.leader.url if self.leader is not None and self.leader.seconds_left > 0 else None

    def member(self, name: str) -> Member | None:
        """Return a node; None when it is no member."""
        return next((one for one in self.members if one.name == name), None)

    def others(self, name: str) -> list[Member]:
        """Return the nodes besides one that are not expelled."""
        return [one for one in self.members if one.name != name and not one.expelled]

    def is_new(self, name: str) -> bool:
        """Whether there is nothing that a node without files could lose by beginning the cluster.

        Nothing was ever written; or this node was killed while it began, before any other has come.
        """
        if self.last_seq == 0:
            return True
        is_own = self.leader is not None and self.leader.holder == name
        is_whole = bool(self.segments) and self.segments[0].first_seq == 1
        return is_own and is_whole and all(one.name == name for one in self.members)

    def keys_before(self, seq: int) -> list[str]:
        """Return the keys of the segments that only hold records up to this number."""
        pairs = itertools.pairwise(self.segments)
        return [row.key_id for row, later in pairs if later.first_seq <= seq + 1]

    def state_of(self, member: Member, silent_after: float) -> NodeState:
        """Return in a word how a node is."""
        if member.expelled:
            return "expelled"
        if self.seen_ago(member) > silent_after:
            return "silent"
        return "in-step" if member.applied_seq >= self.in_step_from else "behind"

    def seen_ago(self, member: Member) -> float:
        """Return how many seconds ago a node has reported."""
        return member.seen_seconds_ago + time.monotonic() - self.at


@dataclass(frozen=True, slots=True)
class Progress:
    """How far this node is.

    Attributes
    ----------
    applied_seq, version, erased_seq, digests_equal
        See `oubli.app.storage.postgres.database.Member`.
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
    answers_until
        Until when, by `times.elapsed`, no receipt can say `erased` without this node.
    view
        The last answers of the database; None before it was asked.
    progress
        Tells how far this node is; called in the thread.
    listener
        Called in the thread after each look.
    """

    def __init__(self, tables: Cluster, node: Node, seconds: float, member_timeout: float) -> None:
        self.node = node
        self.seconds = seconds
        self.member_timeout = member_timeout
        self.epoch: int | None = None
        self.is_expelled = False
        self.answers_until = -math.inf
        self.view: View | None = None
        self.progress: Callable[[], Progress] = Progress
        self.listener: Callable[[], object] = lambda: None
        self._tables = tables
        self._asked: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._heads: deque[tuple[float, int]] = deque()  # numbers of the newest record, and when they were seen
        self._over_since: float | None = None
        self._looked_at: float | None = None  # when the database has answered last
        self._steady_since: float | None = None  # since when it has answered without a gap
        self._reports: dict[str, tuple[datetime | None, float]] = {}  # of other nodes: the newest, and when it was seen
        self._waits_until = 0.0
        self._is_told = False
        self._was_member = False  # in this process
        self._is_silent = False
        self._is_resigned = False
        self._last_success = time.monotonic()
        self._thread = threading.Thread(target=self._run, name="oubli-lease", daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def ask(self, question: Callable[[Cluster], T]) -> Future[T]:
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
        """Report nothing any more: the process is about to be replaced."""
        self._is_silent = True

    def resign(self) -> None:
        """Let another node lead; in the thread that calls it, for as long as the database takes."""
        self._is_resigned = True

        def end(tables: Cluster) -> None:
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
        while self._wait(self.look()):
            pass
        self._tables.close()

    def look(self) -> float:
        """Do what is due, whether the database answers or not; return after how many seconds to look again."""
        pause = self.seconds / (_LOOKS if self.epoch is None else _RENEWALS)
        try:
            pause = min(pause, self._look())
            self._last_success, self._is_told = time.monotonic(), False
        except JournalError:
            if not self._is_told and time.monotonic() - self._last_success > _STALE:
                self._is_told = True
                log.warning("PostgreSQL does not say which node leads: it is tried again")
        except Exception as error:  # a mistake of ours must not lose the lease
            log.error("the lease could not be renewed or requested, and it is tried again: %s", cause_of(error))
        self.listener()
        return pause

    def _wait(self, seconds: float) -> bool:
        """Answer questions for some time; false when the thread must end."""
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
        tables, pause, asked = self._tables, self.seconds, time.monotonic()
        applied_seq = self.progress().applied_seq
        if self.epoch is not None and not tables.renew(self.epoch, self.seconds):
            log.warning("another node leads now")
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
        view = View(leader, tables.members(), tables.segments(), self._heads[0][1], applied_seq, asked)
        self._expel_silent(view)
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
            left = 0.0  # of an earlier process: no other node has it
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
            self.member_timeout,
        )
        sent = elapsed()
        if self._tables.report(member):
            self._was_member, self.answers_until = True, sent + _ANSWERING * self.member_timeout
            return
        self.answers_until = -math.inf
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

    def _expel_silent(self, view: View) -> None:
        now, before = elapsed(), self._reports
        others = {one.name: one for one in view.others(self.node.name)}
        self._reports = {
            name: before[name] if name in before and before[name][0] == one.seen else (one.seen, now)
            for name, one in others.items()
        }
        is_steady = self._steady_since is not None and time.monotonic() - self._steady_since >= self.member_timeout
        if self.epoch is None or not is_steady:
            return
        for name, (seen, since) in self._reports.items():
            silent, allowed = now - since, max(self.member_timeout, others[name].member_timeout or 0.0)
            if silent > allowed and self._tables.expel(name, seen, self.epoch):
                log.error("a node was silent for %.0f s and is expelled: it has to rejoin", silent)
