"""The part of a service that knows the other nodes: has it follow, lead, rejoin, and tells what is known of all.

    follows    the lease is over         records read to the end, then the journal leads, then the service
    leads      another node leads        what waits is refused, what only a leader does is ended; then it follows
    leads      the journal has failed    answers what it has, and restarts with its files
    follows    cannot continue           restarts without its files: see `join`

To restart is `exec` of the same command line, so no copy of a sample can remain in memory.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import os
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from oubli.app.errors import DeposedError, JournalDamagedError, JournalError, NodeAliveError, NoNodeError, StopReason
from oubli.app.logs import cause_of
from oubli.app.replication.follower import (
    Boundary,
    Follower,
    NewerVersionError,
    RejoinError,
    SetBackError,
)
from oubli.app.replication.lease import NODE_STATES, Lease, Progress, View
from oubli.app.replication.peers import KeyDoor, mark
from oubli.app.service.model.state import ModelState
from oubli.app.service.roles import Door, Host, Role, Standing
from oubli.app.storage.postgres.database import Member
from oubli.app.storage.postgres.journal import PostgresJournal
from oubli.app.storage.segment_keys import SegmentKeys
from oubli.app.times import elapsed

log = logging.getLogger("oubli.cluster")

_ANSWERING = 0.5  # seconds in which pending requests are answered, before the process restarts
_WITHDRAWN = 5.0  # seconds for which a node says that its digest is another, before it rejoins
_PROMOTION = 60.0  # seconds that what is being written may take
_DEMOTION = 20.0  # seconds in which everything has ended that only a node that leads does
_LOOK = 0.1  # seconds between two looks at what other nodes have reported
_CUT_OFF = "This node has not reached PostgreSQL for so long that it may have missed an erasure:"


def begin_anew() -> None:
    """Replace this process by one of the same command line."""
    logging.shutdown()
    sys.stdout.flush()
    sys.stderr.flush()
    os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])  # noqa: S606 - its own command line


class Replica(Role):
    """The role of a node; see `oubli.app.service.roles.Role`.

    Parameters
    ----------
    lease
        Its thread runs already.
    journal
        Of all nodes.
    segment_keys
        Of the journal's segments.
    door
        What other nodes may ask for.
    directory
        Of the data.
    erased_seq
        Up to which record the files here hold nothing that was erased.
    again
        Replaces the process.
    """

    is_shared = True

    def __init__(
        self,
        lease: Lease,
        journal: PostgresJournal,
        segment_keys: SegmentKeys,
        door: KeyDoor,
        directory: Path,
        *,
        erased_seq: int = 0,
        again: Callable[[], None] = begin_anew,
    ) -> None:
        self.door: Door | None = door
        self._lease = lease
        self._journal = journal
        self._segment_keys = segment_keys
        self._directory = directory
        self._erased_seq = erased_seq
        self._again = again
        self._host: Host | None = None
        self._boundary: Boundary | None = None
        self._follower: Follower | None = None
        self._following: asyncio.Task[None] | None = None
        self._is_promoting = False
        self._is_demoting = False
        self._epoch_led = lease.epoch or 0
        self._is_ending = False
        self._is_outdated = False
        self._is_cut_off = False

    # --- life

    def start(self, host: Host) -> None:
        """Begin to follow, or to lead, on the event loop."""
        loop = asyncio.get_running_loop()
        self._host = host
        self._boundary = Boundary(host, self._segment_keys, self._lease, self._erased_seq)
        host.live.state.deposed = self._on_deposed
        if host.live.state.following:
            self._follow(host, self._boundary)
        self._lease.progress = self._progress

        def look() -> None:
            with contextlib.suppress(RuntimeError):  # the loop is closed
                loop.call_soon_threadsafe(self._look)

        self._lease.listener = look

    async def resign(self) -> None:
        """Let another node lead, and follow no longer."""
        self._is_ending = True
        if self._follower is not None and self._following is not None:
            self._follower.end()
            await asyncio.wait([self._following])
        await asyncio.to_thread(self._lease.resign)

    def close(self) -> None:
        """End the thread of the lease."""
        self._is_ending = True
        self._lease.listener = lambda: None
        self._lease.close()

    # --- what becomes of the node

    def _look(self) -> None:
        """Act on what the lease has found."""
        host, lease, view = self._host, self._lease, self._lease.view
        if host is None or self._is_ending:
            return
        state = host.live.state
        self._tell_cut_off()
        if state.following and view is not None:
            state.leader_url = view.leader_url if lease.epoch is None else None
        if view is not None and view.is_set_back:
            self._withdraw("the journal ends before the changes of this node")
        elif lease.is_expelled:
            self._rejoin("it was silent for too long, or removed")
        elif lease.epoch is None and not state.following:
            state.depose()
        elif self._journal.failed:
            self._begin_anew("the journal has failed")
        elif state.following and state.halted is StopReason.LEDGER_FAILED:
            self._rejoin("its ledger has another history")
        elif state.halted not in (None, StopReason.LOG_ROLLED_BACK):  # what witnesses say, a person has to settle
            self._begin_anew("it accepts no changes before a restart")
        elif self._is_demoting:
            pass
        elif lease.epoch is not None and state.following and not self._is_promoting:
            self._is_promoting = True
            host.live.threads.begin(self._promote(lease.epoch), endless=True)
        if view is not None and self._boundary is not None and lease.epoch is None:
            self._boundary.compare(view)
            if self._boundary.digests_equal is False and not state.is_withdrawn:
                state.is_withdrawn = True
                log.critical(
                    "the model of this node differs from the leader's: it answers nothing, and the node rejoins"
                )
                asyncio.get_running_loop().call_later(_WITHDRAWN, self._rejoin, "its digest is not the leader's")

    def _tell_cut_off(self) -> None:
        is_cut_off = elapsed() >= self._lease.answers_until
        if is_cut_off and not self._is_cut_off:
            log.error("%s it answers nothing that depends on samples", _CUT_OFF)
        elif self._is_cut_off and not is_cut_off:
            log.warning("the node reaches PostgreSQL again")
        self._is_cut_off = is_cut_off

    def _follow(self, host: Host, boundary: Boundary, last: tuple[int, bytes] | None = None) -> None:
        self._follower = Follower(host, self._journal, boundary, last)
        self._following = host.live.threads.begin(self._followed(self._follower), endless=True)

    async def _followed(self, follower: Follower) -> None:
        try:
            await follower.run()
        except (NewerVersionError, RejoinError, SetBackError) as error:
            self._give_up(error, "the journal has other records than this node has applied")
        except Exception as error:  # a mistake of ours, perhaps halfway in the model
            self._rejoin(f"a record could not be applied, {cause_of(error)}")
            raise

    async def _promote(self, epoch: int) -> None:
        """Lead from now on: the lease is this node's."""
        host, follower, following, boundary = self._host, self._follower, self._following, self._boundary
        if host is None or follower is None or following is None or boundary is None:
            return
        started = time.monotonic()
        follower.end()
        await asyncio.wait([following])
        try:
            await self._lead(host, follower, epoch)
            async with asyncio.timeout(_PROMOTION):
                await boundary.settle()  # an older snapshot must not be written behind one of this node's own
            if host.live.state.seq > self._journal.last_seq:
                raise SetBackError
            if host.live.state.seq != self._journal.last_seq:
                raise RejoinError("the journal does not end where this node does")
            self._erased_seq = boundary.erased_seq
            self._epoch_led = epoch
            await host.lead()
            self._is_promoting = False
        except Exception as error:
            await asyncio.to_thread(self._lease.resign)
            self._give_up(error, "the journal ends before what this node has applied", "it could not lead")
        else:
            log.info("leads since epoch %d, after %.0f ms", epoch, 1000 * (time.monotonic() - started))

    async def _lead(self, host: Host, follower: Follower, epoch: int) -> None:
        """Read to the end and have the journal lead, for as long as this node has the lease."""
        while True:
            try:
                await follower.catch_up()
                await host.live.threads.write(partial(self._journal.lead, epoch))
                await follower.catch_up()
            except DeposedError:
                raise
            except JournalError:
                if self._journal.failed or self._lease.epoch != epoch:
                    raise
                await asyncio.sleep(_LOOK)
            else:
                return

    def _on_deposed(self) -> None:
        if self._host is not None and not (self._is_ending or self._is_promoting or self._is_demoting):
            self._is_demoting = True
            self._host.live.threads.begin(self._demote(self._host), endless=True)

    async def _demote(self, host: Host) -> None:
        """Follow the node that leads now; restart with the files when anything is in doubt."""
        boundary, self._follower = self._boundary, None
        if boundary is None or host.live.state.phase != "ready":
            self._begin_anew("another node leads")
            return
        try:
            async with asyncio.timeout(_DEMOTION):
                await host.follow()
                while self._lease.epoch is not None:  # noqa: ASYNC110 - it is a thread that finds out
                    await asyncio.sleep(_LOOK)
                last = await self._last_record(host)
        except RejoinError as error:
            self._rejoin(str(error))
            return
        except SetBackError:
            self._withdraw("the journal has other records than were made here")
            return
        except Exception as error:
            failed = "another node leads, and this one cannot follow it as it is"
            self._give_up(error, "the journal has other records than were made here", failed)
            return
        boundary.begin_again(self._erased_seq)
        self._is_demoting = False
        self._follow(host, boundary, last)
        log.info("follows at version %d", host.live.state.version)

    async def _last_record(self, host: Host) -> tuple[int, bytes]:
        """Return epoch and checksum of the record that this node has made last, as the journal has it.

        Raises
        ------
        RejoinError
            When it is out of sight.
        SetBackError
            When it has another one, or none: what was acknowledged here is lost.
        """
        epoch, seq, journal = self._epoch_led, host.live.state.seq, self._journal
        while True:
            try:
                await host.live.threads.write(journal.follow)
                found = await host.live.threads.write(partial(journal.identity_of, seq))
                if found is None:
                    await host.live.threads.write(journal.require_marked)
                break
            except JournalDamagedError:
                raise SetBackError from None  # the next start says what has to be done
            except JournalError:
                if journal.failed:
                    raise
                await asyncio.sleep(_LOOK)
        if found is None:
            raise RejoinError("the journal does not continue from the changes of this node")
        if found[0] > epoch:
            raise SetBackError
        return found

    def _give_up(self, error: Exception, set_back: str, failed: str = "") -> None:
        """Wait, rejoin or withdraw, as an error asks for; restart after any other failure."""
        match error:
            case NewerVersionError():
                self._wait_for_upgrade()
            case RejoinError():
                self._rejoin(str(error))
            case SetBackError():
                self._withdraw(set_back)
            case _:
                self._begin_anew(f"{failed}, {cause_of(error)}")

    def _rejoin(self, reason: str) -> None:
        """Restart without the files that are here."""
        if not self._is_ending:
            try:
                mark(self._directory)
            except OSError as error:
                log.error(
                    "the node's files could not be marked for a rejoin (%s): the next start checks them again",
                    error.strerror,
                )
            if self._host is not None:
                self._host.live.state.is_withdrawn = True
            self._begin_anew(reason)

    def _wait_for_upgrade(self) -> None:
        """Answer nothing any more, never lead, and keep the files, until the node is upgraded."""
        self._is_outdated = True
        if self._host is not None:
            self._host.live.state.is_withdrawn = True
        log.critical(
            "a newer version of Oubli has written records that this version cannot read: this node answers nothing. "
            "Upgrade it; it continues from its files"
        )

    def _withdraw(self, reason: str) -> None:
        """Answer nothing any more, and restart with the files: the start refuses, and says what to do."""
        if not self._is_ending:
            log.critical("%s: the database was set back, and needs your decision", reason)
            if self._host is not None:
                self._host.live.state.is_withdrawn = True
            self._begin_anew(reason)

    def _begin_anew(self, reason: str) -> None:
        if self._is_ending:
            return
        self._is_ending = True
        log.error("the node restarts: %s", reason)
        if self._host is not None:
            self._host.live.state.following = True
        loop = asyncio.get_running_loop()
        if self._lease.epoch is not None:  # another node need not wait for it to be over
            loop.run_in_executor(None, self._lease.resign)
        loop.call_later(_ANSWERING, self._replace)

    def _replace(self) -> None:
        self._lease.be_silent()
        self._again()

    # --- the state of the nodes

    def _progress(self) -> Progress:
        """Return how far the node is; in the thread of the lease."""
        host, boundary, follower = self._host, self._boundary, self._follower
        if host is None or boundary is None:
            return Progress()
        state = host.live.state
        leads = not state.following
        may_lead = (
            follower is not None
            and follower.is_caught_up
            and not boundary.is_busy
            and host.live.state.phase == "ready"
            and not (self._is_ending or self._is_promoting or state.is_withdrawn or state.failed)
        )
        erased_seq = self._erased_seq if leads else boundary.erased_seq
        return Progress(state.seq, state.version, erased_seq, boundary.digests_equal, may_lead)

    @property
    def answers_until(self) -> float:  # type: ignore[override]  # others may set it, a lease tells it here
        """Until when the model may be asked; see `Role`."""
        is_withdrawn = self._host is None or self._host.live.state.is_withdrawn
        return -math.inf if is_withdrawn else self._lease.answers_until

    def unready(self) -> str | None:
        """Return why predictions should be asked elsewhere; None when they need not."""
        host = self._host
        if self._is_outdated:
            return "The leader is of a newer version, whose records cannot be read here: upgrade this node."
        if host is None or host.live.state.is_withdrawn:
            return "The model here is not the leader's, and is rebuilt."
        if self._is_ending:
            return "The node starts again."
        if elapsed() >= self._lease.answers_until:
            return f"{_CUT_OFF} ask another node. This one answers again when it has reached PostgreSQL and caught up."
        if not host.live.state.following:
            return None
        follower, boundary = self._follower, self._boundary
        is_caught_up = follower is not None and follower.is_caught_up
        waited = 0.0 if follower is None else time.monotonic() - follower.in_step_at
        if boundary is not None and boundary.hindrance and (waited > self._lease.member_timeout or not is_caught_up):
            return f"The node is behind, because its snapshot cannot be written: {boundary.hindrance}."
        if not is_caught_up:
            return "The server takes in what the leader has changed."
        return None

    def measure(self, state: ModelState) -> Standing | None:
        """Return how the node stands."""
        view = self._lease.view or View()
        members: dict[str, int] = dict.fromkeys(NODE_STATES, 0)
        for one in view.members:
            members[view.state_of(one, self._silent_after)] += 1
        leads = not state.following
        lag_seconds = 0.0
        if not leads and self._follower is not None and state.seq < view.last_seq:
            lag_seconds = time.monotonic() - self._follower.in_step_at
        digests_equal = None if self._boundary is None else self._boundary.digests_equal
        epoch = 0 if view.leader is None else view.leader.epoch
        return Standing(leads, epoch, self._lag(view, state.version), lag_seconds, members, digests_equal)

    def describe(self, state: ModelState) -> dict[str, Any]:
        """Return what `GET /cluster` answers."""
        view, name = self._lease.view or View(), self._lease.node.name
        leader = view.leader if view.leader_url is not None else None
        leader_name = None if leader is None else leader.holder
        return {
            "node": name,
            "role": "follower" if state.following else "leader",
            "epoch": 0 if view.leader is None else view.leader.epoch,
            "leader": None if leader is None else {"name": leader.holder, "url": leader.url},
            "model_version": state.version,
            "seq": state.seq,
            "nodes": [self._described(view, one, leader_name) for one in view.members],
        }

    @property
    def _silent_after(self) -> float:
        return min(2 * self._lease.seconds, self._lease.member_timeout)

    def _described(self, view: View, member: Member, leader_name: str | None) -> dict[str, Any]:
        return {
            "name": member.name,
            "url": member.url,
            "role": "leader" if member.name == leader_name else "follower",
            "state": view.state_of(member, self._silent_after),
            "applied_seq": member.applied_seq,
            "model_version": member.version,
            "lag_versions": self._lag(view, member.version),
            "erased_seq": member.erased_seq,
            "digests_equal": member.digests_equal,
            "seen_seconds_ago": round(view.seen_ago(member), 3),
        }

    def _lag(self, view: View, version: int) -> int:
        """Return how many versions one is behind the leader, as far as the leader has reported."""
        leader = None if view.leader is None else view.leader.holder
        newest = next((one.version for one in view.members if one.name == leader), 0)
        return max(0, newest - version)

    # --- what others hold

    def kept_from(self, seq: int) -> int:
        """Return the first record that other nodes still need, `seq` or an earlier one.

        A node that starts again continues from its snapshot, which has all that it has reported as erased.
        """
        view = self._lease.view
        others = [] if view is None else view.others(self._lease.node.name)
        return min([seq, *(min(one.applied_seq, one.erased_seq) + 1 for one in others)])

    def is_rid(self, seq: int) -> bool:
        """Say no: what the others have reported must be newer than the question, see `rid`."""
        del seq
        return False

    async def rid(self, seq: int) -> None:
        """Return when no other node holds anything of what was erased by records up to this number."""
        asked = time.monotonic()
        while True:
            view = self._lease.view
            if view is not None and view.at >= asked:
                others = view.others(self._lease.node.name)
                if all(one.erased_seq >= seq for one in others):
                    self._erased_seq = max(self._erased_seq, seq)
                    return
            await asyncio.sleep(_LOOK)

    async def require_expelled(self, name: str) -> None:
        """Return when a node is expelled, so that it may be removed; see `Role`."""
        if name == self._lease.node.name:
            raise NodeAliveError(leads=True)
        members = await asyncio.wrap_future(self._lease.ask(lambda tables: tables.members()))
        member = next((one for one in members if one.name == name), None)
        if member is None:
            raise NoNodeError
        if not member.expelled:
            raise NodeAliveError(leads=False)

    async def remove(self, name: str) -> None:
        """Forget a node that is expelled; see `Role`."""
        epoch = self._lease.epoch
        if epoch is None:
            raise DeposedError("another node leads")
        if not await asyncio.wrap_future(self._lease.ask(lambda tables: tables.remove(name, epoch))):
            await self.require_expelled(name)  # it has joined again, or was removed by another request
            raise DeposedError("another node leads")
        view, asked = self._lease.view, time.monotonic()
        while view is None or view.at < asked:  # so that who is answered sees it gone
            await asyncio.sleep(_LOOK)
            view = self._lease.view

    def tell_digest(self, first_seq: int, digest: str) -> None:
        """Have others compare the digest of the model before a record, which begins a segment."""
        if self._boundary is not None:
            self._boundary.tell(first_seq, digest)
