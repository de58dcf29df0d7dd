"""The part of a service that knows the other nodes: has it follow, lead, rejoin, and tells what is known of all.

    follows    the lease is over         records read to the end, then the journal leads, then the service
    leads      another node leads        what waits is refused, what only a leader does is ended; then it follows
    leads      the journal has failed    answers what it has, and begins anew with its files
    follows    cannot go on              begins anew without its files: see `join`

To begin anew is `exec` of the same command line: nothing that was in memory is left, whatever held it.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import sys
import time
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

from oubli.app.errors import DeposedError, JournalDamagedError, JournalError, NodeAliveError, NoNodeError, StopReason
from oubli.app.replication.boundary import Boundary
from oubli.app.replication.files import mark
from oubli.app.replication.follower import FollowedJournal, Follower, NewerVersionError, RejoinError, SetBackError
from oubli.app.replication.lease import Progress
from oubli.app.replication.nodes import NODE_STATES, View
from oubli.app.service.roles import Door, Standing

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from oubli.app.replication.door import KeyDoor
    from oubli.app.replication.lease import Lease
    from oubli.app.service.model_service import ModelService
    from oubli.app.storage.postgres.cluster import Member
    from oubli.app.storage.segment_keys import SegmentKeys

log = logging.getLogger("oubli.cluster")

_ANSWERING = 0.5  # seconds in which what was asked is answered, before the process begins anew
_WITHDRAWN = 5.0  # seconds for which a node says that its digest is another, before it rejoins
_PROMOTION = 60.0  # seconds that what is being written may take
_DEMOTION = 20.0  # seconds in which everything has ended that only a node that leads does
_LOOK = 0.1  # seconds between two looks at what other nodes have reported


class LedJournal(FollowedJournal, Protocol):
    """What is asked of the journal; see `oubli.app.storage.postgres.journal.PostgresJournal`."""

    failed: bool
    last_seq: int

    def lead(self, epoch: int) -> None:
        """See there."""

    def follow(self) -> None:
        """See there."""

    def require_marked(self) -> None:
        """See there."""


def begin_anew() -> None:
    """Replace this process by one of the same command line."""
    logging.shutdown()
    sys.stdout.flush()
    sys.stderr.flush()
    os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])  # noqa: S606 - its own command line


class Replica:
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
        journal: LedJournal,
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
        self._service: ModelService | None = None
        self._boundary: Boundary | None = None
        self._follower: Follower | None = None
        self._following: asyncio.Task[None] | None = None
        self._is_promoting = False
        self._is_demoting = False
        self._epoch_led = lease.epoch or 0
        self._is_ending = False
        self._is_outdated = False

    # --- life

    def start(self, service: ModelService) -> None:
        """Begin to follow, or to lead, on the event loop."""
        loop = asyncio.get_running_loop()
        self._service = service
        self._boundary = Boundary(service, self._segment_keys, self._lease, self._erased_seq)
        service.state.deposed = self._on_deposed
        if service.state.following:
            self._follow(service, self._boundary)
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
        service, lease, view = self._service, self._lease, self._lease.view
        if service is None or self._is_ending:
            return
        state = service.state
        if state.following and view is not None:
            state.leader_url = view.leader_url if lease.epoch is None else None
        if view is not None and view.is_set_back:
            self._withdraw("the journal ends before what was made here")
        elif lease.is_expelled:
            self._rejoin("it was silent for too long, or removed")
        elif lease.epoch is None and not state.following:
            state.depose()
        elif self._journal.failed:
            self._begin_anew("the journal has failed")
        elif state.following and state.halted is StopReason.LEDGER_FAILED:
            self._rejoin("what the ledger has is of another history")
        elif state.halted not in (None, StopReason.LOG_ROLLED_BACK):  # what witnesses say, a person has to settle
            self._begin_anew("nothing can be changed here before a restart")
        elif self._is_demoting:
            pass
        elif lease.epoch is not None and state.following and not self._is_promoting:
            self._is_promoting = True
            service.threads.begin(self._promote(lease.epoch), endless=True)
        if view is not None and self._boundary is not None and lease.epoch is None:
            self._boundary.compare(view)
            if self._boundary.digests_equal is False and not state.is_withdrawn:
                state.is_withdrawn = True
                log.critical("the model here is not that of the leader: nothing is answered, and the node rejoins")
                asyncio.get_running_loop().call_later(_WITHDRAWN, self._rejoin, "its digest is not the leader's")

    def _follow(self, service: ModelService, boundary: Boundary, last: tuple[int, bytes] | None = None) -> None:
        self._follower = Follower(service, self._journal, boundary, last)
        self._following = service.threads.begin(self._followed(self._follower), endless=True)

    async def _followed(self, follower: Follower) -> None:
        try:
            await follower.run()
        except NewerVersionError:
            self._wait_for_upgrade()
        except SetBackError:
            self._withdraw("the journal has other records than were taken in here")
        except RejoinError as error:
            self._rejoin(str(error))
        except Exception as error:  # a mistake of ours, perhaps halfway in the model
            self._rejoin(f"a record could not be taken in ({type(error).__name__})")
            raise

    async def _promote(self, epoch: int) -> None:
        """Lead from now on: the lease is this node's."""
        service, follower, following, boundary = self._service, self._follower, self._following, self._boundary
        if service is None or follower is None or following is None or boundary is None:
            return
        started = time.monotonic()
        follower.end()
        await asyncio.wait([following])
        try:
            await self._lead(service, follower, epoch)
            async with asyncio.timeout(_PROMOTION):
                await boundary.settle()  # an older snapshot must not be written behind one of this node's own
            if service.state.seq > self._journal.last_seq:
                raise SetBackError
            if service.state.seq != self._journal.last_seq:
                raise RejoinError("the journal does not end where this node does")
            self._erased_seq = boundary.erased_seq
            self._epoch_led = epoch
            await service.lead()
            self._is_promoting = False
        except NewerVersionError:
            await asyncio.to_thread(self._lease.resign)
            self._wait_for_upgrade()
        except RejoinError as error:
            await asyncio.to_thread(self._lease.resign)
            self._rejoin(str(error))
        except Exception as error:
            await asyncio.to_thread(self._lease.resign)
            self._begin_anew(f"it could not lead ({type(error).__name__})")
        else:
            log.info("leads since epoch %d, after %.0f ms", epoch, 1000 * (time.monotonic() - started))

    async def _lead(self, service: ModelService, follower: Follower, epoch: int) -> None:
        """Read to the end and have the journal lead, for as long as this node has the lease."""
        while True:
            try:
                await follower.catch_up()
                await service.threads.write(partial(self._journal.lead, epoch))
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
        if self._service is not None and not (self._is_ending or self._is_promoting or self._is_demoting):
            self._is_demoting = True
            self._service.threads.begin(self._demote(self._service), endless=True)

    async def _demote(self, service: ModelService) -> None:
        """Follow the node that leads by now; whatever is in doubt makes this one begin anew with its files."""
        boundary, self._follower = self._boundary, None
        if boundary is None or service.phase != "ready":
            self._begin_anew("another node leads")
            return
        try:
            async with asyncio.timeout(_DEMOTION):
                await service.follow()
                while self._lease.epoch is not None:  # noqa: ASYNC110 - it is a thread that finds out
                    await asyncio.sleep(_LOOK)
                last = await self._last_record(service)
        except RejoinError as error:
            self._rejoin(str(error))
            return
        except Exception as error:
            self._begin_anew(f"another node leads ({type(error).__name__})")
            return
        boundary.begin_again(self._erased_seq)
        self._is_demoting = False
        self._follow(service, boundary, last)
        log.info("follows at version %d", service.state.version)

    async def _last_record(self, service: ModelService) -> tuple[int, bytes]:
        """Return epoch and checksum of the record that this node has made last, as the journal has it.

        Raises
        ------
        RejoinError
            When it is out of sight.
        SetBackError
            When it has another one, or none: what was acknowledged here is lost.
        """
        epoch, seq, journal = self._epoch_led, service.state.seq, self._journal
        while True:
            try:
                await service.threads.write(journal.follow)
                found = await service.threads.write(partial(journal.identity_of, seq))
                if found is None:
                    await service.threads.write(journal.require_marked)
                break
            except JournalDamagedError:
                raise SetBackError from None  # the next start says what has to be done
            except JournalError:
                if journal.failed:
                    raise
                await asyncio.sleep(_LOOK)
        if found is None:
            raise RejoinError("the journal does not go on from what this node has made")
        if found[0] > epoch:
            raise SetBackError
        return found

    def _rejoin(self, reason: str) -> None:
        """Begin anew without the files that are here."""
        if not self._is_ending:
            try:
                mark(self._directory)
            except OSError as error:
                log.error("what the node has could not be marked (%s): the next start looks again", error.strerror)
            if self._service is not None:
                self._service.state.is_withdrawn = True
            self._begin_anew(reason)

    def _wait_for_upgrade(self) -> None:
        """Answer nothing any more, never lead, and keep the files, until the node is upgraded."""
        self._is_outdated = True
        if self._service is not None:
            self._service.state.is_withdrawn = True
        log.critical(
            "a newer version of Oubli has written records that this version cannot read: nothing is answered here. "
            "Upgrade this node; it goes on from its files"
        )

    def _withdraw(self, reason: str) -> None:
        """Answer nothing any more, and begin anew with the files: the start refuses, and names the remedy."""
        if not self._is_ending:
            log.critical("%s: the database was set back, and a person has to settle it", reason)
            if self._service is not None:
                self._service.state.is_withdrawn = True
            self._begin_anew(reason)

    def _begin_anew(self, reason: str) -> None:
        if self._is_ending:
            return
        self._is_ending = True
        log.error("the node begins anew: %s", reason)
        if self._service is not None:
            self._service.state.following = True
        loop = asyncio.get_running_loop()
        if self._lease.epoch is not None:  # another node need not wait for it to be over
            loop.run_in_executor(None, self._lease.resign)
        loop.call_later(_ANSWERING, self._replace)

    def _replace(self) -> None:
        self._lease.be_silent()
        self._again()

    # --- what is told

    def _progress(self) -> Progress:
        """Return how far the node is; in the thread of the lease."""
        service, boundary, follower = self._service, self._boundary, self._follower
        if service is None or boundary is None:
            return Progress()
        state = service.state
        leads = not state.following
        may_lead = (
            follower is not None
            and follower.is_caught_up
            and not boundary.is_busy
            and service.phase == "ready"
            and not (self._is_ending or self._is_promoting or state.is_withdrawn or state.failed)
        )
        erased_seq = self._erased_seq if leads else boundary.erased_seq
        return Progress(state.seq, state.version, erased_seq, boundary.digests_equal, may_lead)

    def unready(self) -> str | None:
        """Return why predictions should be asked elsewhere; None when they need not."""
        service, view = self._service, self._lease.view
        if self._is_outdated:
            return "The leader is of a newer version, whose records cannot be read here: upgrade this node."
        if service is None or service.state.is_withdrawn:
            return "The model here is not that of the leader, and is made anew."
        if self._is_ending:
            return "The node begins anew."
        if not service.state.following:
            return None
        if self._follower is None or not self._follower.is_caught_up:
            return "The server takes in what the leader has changed."
        if view is None or time.monotonic() - view.at > self._lease.member_timeout:
            return "The server has not heard of the leader for too long."
        return None

    def measure(self, service: ModelService) -> Standing | None:
        """Return how the node stands."""
        view = self._lease.view or View()
        members: dict[str, int] = dict.fromkeys(NODE_STATES, 0)
        for one in view.members:
            members[view.state_of(one, self._silent_after)] += 1
        leads = not service.state.following
        lag_seconds = 0.0
        if not leads and self._follower is not None and service.state.seq < view.last_seq:
            lag_seconds = time.monotonic() - self._follower.in_step_at
        digests_equal = None if self._boundary is None else self._boundary.digests_equal
        epoch = 0 if view.leader is None else view.leader.epoch
        return Standing(leads, epoch, self._lag(view, service.state.version), lag_seconds, members, digests_equal)

    def describe(self, service: ModelService) -> dict[str, Any]:
        """Return what `GET /cluster` answers."""
        view, name, state = self._lease.view or View(), self._lease.node.name, service.state
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
        """Return how many versions one is behind the leader, as far as that has told."""
        leader = None if view.leader is None else view.leader.holder
        newest = next((one.version for one in view.members if one.name == leader), 0)
        return max(0, newest - version)

    # --- what others hold

    def kept_from(self, seq: int) -> int:
        """Return the first record that other nodes still need, `seq` or an earlier one.

        A node that starts again goes on from its snapshot, which has taken in what it has told as erased.
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
            await self.require_expelled(name)  # it has joined anew meanwhile, or was removed by another request
            raise DeposedError("another node leads")
        view, asked = self._lease.view, time.monotonic()
        while view is None or view.at < asked:  # so that who is answered sees it gone
            await asyncio.sleep(_LOOK)
            view = self._lease.view

    def tell_digest(self, first_seq: int, digest: str) -> None:
        """Have others compare the digest of the model before a record, which begins a segment."""
        if self._boundary is not None:
            self._boundary.tell(first_seq, digest)
