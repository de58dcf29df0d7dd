"""Signs the log, has witnesses cosign it, and publishes it: in the background, about once a second when it has grown.

    journal (flushed) --> ledger's file --> signed --> witnesses --> published, with the cosignatures that came

At the start, before anything is changed, witnesses are asked first: what they have cosigned tells of a data directory
that was restored from an older backup, although nothing in the directory does.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from oubli.app.errors import FlushFailedError, NotLoggedError, StorageError
from oubli.app.ledger.proofs import NotPublished, consistency, entry_bundle, entry_proof, erasure_proof
from oubli.app.ledger.signed_notes import Checkpoint, with_cosignatures
from oubli.app.service.witnesses import RolledBackError, Witness

if TYPE_CHECKING:
    from oubli.app.ledger.database import LedgerDatabase
    from oubli.app.ledger.ledger import LedgerWorker

log = logging.getLogger("oubli.service")

T = TypeVar("T")
PERIOD = 1.0  # seconds between two checkpoints
PATIENCE = 5.0  # seconds for which the start waits for witnesses
_ATTEMPTS = 3


@dataclass(eq=False, repr=False)
class LogPublisher:
    """Publishes the log.

    Parameters
    ----------
    database
        The ledger's.
    witnesses
        Who is asked to cosign.
    halt
        Called when the ledger here is not the one that was signed.
    begin_anew
        Begins another log instead, and is told the size that the one before had; None: nobody has asked for that.
    require_leading
        Raises `NotLeaderError` where another node signs the log.
    """

    _database: LedgerWorker
    _witnesses: Sequence[Witness]
    _halt: Callable[[], object]
    _begin_anew: Callable[[int], Awaitable[None]] | None = None
    _require_leading: Callable[[], object] = lambda: None
    _may_sign: bool = field(default=False, init=False)
    _grown: asyncio.Event = field(init=False)
    _turn: asyncio.Lock = field(default_factory=asyncio.Lock, init=False)

    def __post_init__(self) -> None:
        self._grown = self._database.bell()

    async def run(self) -> None:
        """Publish whenever the log has grown, until cancelled."""
        self._grown.set()
        while True:
            await self._grown.wait()
            self._grown.clear()
            try:
                await self.publish()
            except FlushFailedError:
                return  # nothing is changed any more
            except Exception as error:  # also a mistake of ours: what comes later is to be published
                if not isinstance(error, StorageError):
                    log.error("the log could not be published (%s): it is tried again", type(error).__name__)
                self._grown.set()
            await asyncio.sleep(PERIOD)

    async def compare(self) -> None:
        """Show witnesses the last checkpoint that was signed, before a new one is: they may have seen a later one.

        Nothing is signed before this was called.
        """
        self._may_sign = True
        signed = await self._database.read(lambda database: database.log.signed)
        if signed is None:
            return
        try:
            async with asyncio.timeout(PATIENCE):
                await self._cosigned(signed)
        except TimeoutError:
            log.warning("not all witnesses have answered: the log is compared with theirs when they do")
        except RolledBackError as error:
            if self._begin_anew is None:
                self._stop()
            else:
                await self._begin_anew(error.size)

    async def publish(self) -> None:
        """Sign the log as it is, have it cosigned, and publish it.

        Raises
        ------
        StorageError
            When that cannot be written.
        """
        self._require_leading()
        async with self._turn:
            if not self._may_sign:
                return
            signed = await self._database.read(lambda database: database.sign_checkpoint())
            if signed is None:
                return
            try:
                made = with_cosignatures(signed, await self._cosigned(signed))
            except RolledBackError:
                self._stop()
            else:
                await self._database.read(lambda database: database.publish(made))

    def close(self) -> None:
        """Close the connections to witnesses."""
        for witness in self._witnesses:
            witness.sender.close()

    async def published(self) -> Checkpoint:
        """Return the checkpoint that was published last; raises `NotLoggedError` when none was."""
        self._require_leading()
        found = await self._database.read(lambda database: database.log.published)
        if found is None:
            await self.publish()
            found = await self._database.read(lambda database: database.log.published)
        if found is None:
            raise NotLoggedError
        return found

    async def tile(self, level: int, number: int, width: int) -> bytes:
        """Return the first hashes of a tile of the tree; raises `NotLoggedError`."""
        return _found(await self._database.read(lambda database: database.log.tree.tile(level, number, width)))

    async def entry_bundle(self, number: int, width: int) -> bytes:
        """Return the entries below the first hashes of a tile; raises `NotLoggedError`."""
        return _found(await self._database.read(partial(entry_bundle, number=number, width=width)))

    async def entry_proof(self, index: int) -> str:
        """Return a proof that an entry is in the log; raises `NotLoggedError`."""
        return _found(await self._prove(partial(entry_proof, index=index)))

    async def erasure_proof(self, receipt_id: str, is_overdue: Callable[[str], bool], *, durable: bool) -> str | None:
        """Return a proof of an erasure, None when there is no such receipt; see `proofs.erasure_proof`."""
        question = partial(erasure_proof, receipt_id=receipt_id, is_overdue=is_overdue, durable=durable)
        return await self._prove(question)

    async def consistency(self, old: int, new: int | None) -> dict[str, Any]:
        """Return what shows that the log goes on from an earlier size; raises `NotLoggedError`."""
        return await self._prove(partial(consistency, old=old, new=new))

    async def _prove(self, question: Callable[[LedgerDatabase], T | NotPublished]) -> T:
        """Ask the ledger for a proof; what the published log does not hold yet is published first."""
        self._require_leading()
        for _ in range(_ATTEMPTS):
            found = await self._database.read(question)
            if not isinstance(found, NotPublished):
                return found
            head = await self._database.read(lambda database: database.head())
            if found.size > head.index:
                break
            await self.publish()
        raise NotLoggedError

    async def _cosigned(self, checkpoint: Checkpoint) -> list[str]:
        """Return the cosignatures of all witnesses that give one; raises `RolledBackError`."""
        asked = (witness.cosign(checkpoint, self._consistency, self._holds) for witness in self._witnesses)
        return [line for lines in await asyncio.gather(*asked) for line in lines]

    def _stop(self) -> None:
        self._may_sign = False
        log.error(
            "a witness has cosigned entries of the log that are not here: the data directory was restored from an "
            "older backup. Nothing is changed until a start with --ledger FILE or --accept-missing-erasures"
        )
        self._halt()

    async def _consistency(self, old: int, new: int) -> Sequence[bytes]:
        return await self._database.read(lambda database: database.log.tree.consistency(old, new))

    async def _holds(self, seen: Checkpoint) -> bool:
        return await self._database.read(partial(_holds, seen))


def _found(answer: T | None) -> T:
    if answer is None:
        raise NotLoggedError
    return answer


def _holds(seen: Checkpoint, database: LedgerDatabase) -> bool:
    """Whether the ledger is the one that a checkpoint was signed over; one that is not ours says nothing."""
    tree = database.log.tree
    if not database.has_signed(seen):
        return True
    return seen.size <= tree.size and tree.root(seen.size) == seen.root
