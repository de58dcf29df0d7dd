"""What a node that follows does where a segment of the journal begins.

    turn of the mutations   model copied exactly before the segment's first record
    mutations go on         copy written as both generations; ledger flushed, digests in it forgotten
                            older snapshots removed; what else holds erased samples is waited for
                            keys of earlier segments destroyed
                            reported: nothing here holds what was erased before the segment

The digest of the snapshot is compared with that of the leader, both keyed with the key of the segment.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import logging
from functools import partial
from typing import TYPE_CHECKING

from oubli.app.errors import JournalError, StorageError
from oubli.app.service.copies import ModelCopier, facts_of
from oubli.app.service.memory import let_go_of, without_collector

if TYPE_CHECKING:
    from collections.abc import Sequence

    from oubli.app.replication.lease import ClusterTables, Lease
    from oubli.app.replication.nodes import View
    from oubli.app.service.model_service import ModelService
    from oubli.app.storage.postgres.cluster import SegmentRow
    from oubli.app.storage.segment_keys import SegmentKeys
    from oubli.app.storage.snapshots import Facts
    from oubli.core.model import Model

log = logging.getLogger("oubli.cluster")

_PATIENCE = 10.0  # seconds for which work that holds erased samples may go on
_RETRY = 1.0  # seconds


class Boundary:
    """It belongs to the event loop.

    Parameters
    ----------
    service
        Whose model is written.
    keys
        Of the segments.
    lease
        Asks the database.
    erased_seq
        Up to which record nothing here holds what was erased.

    Attributes
    ----------
    erased_seq
        The same, by now.
    digests_equal
        Whether the digest was the leader's at the last boundary that both have told; None while that is not known.
    """

    def __init__(self, service: ModelService, keys: SegmentKeys, lease: Lease, erased_seq: int) -> None:
        self._service = service
        self._keys = keys
        self._lease = lease
        self._copier = ModelCopier(service.state, service.lock, service.threads)
        self._crossed = 0
        self._mac: tuple[int, bytes] | None = None  # of the last boundary
        self._writing: asyncio.Task[None] | None = None
        seen = () if lease.view is None else lease.view.segments
        self._key_of = {row.first_seq: row.key_id for row in seen}  # of all segments that were seen
        self.erased_seq = erased_seq
        self.digests_equal: bool | None = None

    def is_before(self, first_seq: int) -> bool:
        """Whether a segment is known to begin with a record, and was not crossed into."""
        view = self._lease.view
        return (
            first_seq != self._crossed and view is not None and any(row.first_seq == first_seq for row in view.segments)
        )

    def begin_again(self, erased_seq: int) -> None:
        """Follow again, after this node has led."""
        self.erased_seq = max(self.erased_seq, erased_seq)
        self._mac, self.digests_equal = None, None
        self._crossed = 0

    async def cross(self, first_seq: int) -> None:
        """Copy the model, in the turn of a mutation, and have the rest done while changes go on."""
        if first_seq == self._crossed:
            return
        await self.settle()
        service, state = self._service, self._service.state
        self._crossed = first_seq
        copy = await self._copier.copied()
        head = await service.database.read(lambda database: database.head())
        service.ledger.rewind(head)
        facts = facts_of(state, service.storage, service.ledger)
        forgets = bool(state.pending)
        work = self._written(first_seq, copy, facts, state.period - 1, forgets=forgets)
        self._writing = service.threads.begin(work, endless=True)

    @property
    def is_busy(self) -> bool:
        """Whether something is being written."""
        return self._writing is not None and not self._writing.done()

    async def settle(self) -> None:
        """Return when nothing is being written any more."""
        if self._writing is not None:
            await asyncio.wait([self._writing])

    def compare(self, view: View) -> None:
        """Compare the digest with the leader's, once both are told."""
        if self._mac is None:
            return
        first_seq, mac = self._mac
        for row in view.segments:
            if row.first_seq == first_seq and row.mac is not None:
                self._mac = None
                self.digests_equal = hmac.compare_digest(row.mac, mac)

    def tell(self, first_seq: int, digest: str) -> None:
        """Tell the digest of this node, which leads, before a segment's first record."""
        epoch = self._lease.epoch

        def post(tables: ClusterTables) -> None:
            for row in tables.segments():
                mac = self._keyed(row, digest) if row.first_seq == first_seq else None
                if mac is not None and epoch is not None:
                    tables.post_mac(first_seq, mac, epoch)

        self._lease.ask(post)

    def _keyed(self, row: SegmentRow, digest: str) -> bytes | None:
        key = self._keys.get(row.key_id)
        if key is None:  # nobody has written below it yet
            return None
        return hmac.new(key.secret, digest.encode("ascii"), hashlib.sha256).digest()

    async def _written(self, first_seq: int, copy: Model, facts: Facts, period: int, *, forgets: bool) -> None:
        service, is_exact = self._service, copy.guarantee == "exact"
        try:
            with without_collector():
                while True:
                    try:
                        digest = await self._write_snapshot(copy, facts, forgets=forgets)
                        break
                    except StorageError as error:
                        log.error("a snapshot could not be written (%s): it is tried again", type(error).__name__)
                        await asyncio.sleep(_RETRY)
        finally:
            await service.threads.save(partial(let_go_of, copy))
            del copy
        await service.holders.rid(period, _PATIENCE)
        rows = await self._segments()
        for row in rows:
            if row.first_seq == first_seq and is_exact:
                mac = self._keyed(row, digest)
                self._mac = None if mac is None else (first_seq, mac)
        await service.threads.save(partial(self._destroy_keys, first_seq, rows))
        self.erased_seq = max(self.erased_seq, first_seq - 1)

    async def _write_snapshot(self, copy: Model, facts: Facts, *, forgets: bool) -> str:
        service = self._service
        snapshot = await service.threads.save(partial(service.storage.write, copy, facts, twice=True))
        now = service.clock.steady_ms()
        await service.database.read(lambda database: database.forget_idempotent(now))
        if forgets:  # a digest of before an erasure confirms guesses about what it has erased
            await service.database.read(lambda database: database.forget_states(facts.model_version))
        await service.database.flush()
        await service.threads.save(service.storage.snapshots.keep_newest)
        return snapshot.digest

    async def _segments(self) -> Sequence[SegmentRow]:
        while True:
            try:
                return await asyncio.wrap_future(self._lease.ask(lambda tables: tables.segments()))
            except JournalError:
                await asyncio.sleep(_RETRY)

    def _destroy_keys(self, first_seq: int, rows: Sequence[SegmentRow]) -> None:
        """Destroy the keys of earlier segments, those included that the leader has dropped since they were seen."""
        self._key_of.update((row.first_seq, row.key_id) for row in rows)
        gone = [first for first in self._key_of if first < first_seq]
        self._keys.destroy(self._key_of[first] for first in gone)
        for first in gone:
            del self._key_of[first]
