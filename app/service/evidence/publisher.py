"""Signs the log, has witnesses cosign it, and publishes it: in the background, about once a second when it has grown.

    journal (flushed) --> ledger's file --> signed --> witnesses --> published, with the cosignatures that came

At the start, before anything is changed, witnesses are asked first: what they have cosigned shows a data directory
that was restored from an older backup, although nothing in the directory does.

The witnesses of the log: others who sign that it only ever grows (c2sp.org/tlog-witness).

    POST <url>/add-checkpoint     the size that the witness has seen, the proof from there, the new checkpoint
                                  200: its cosignature; 409: it has seen another size; 422: the log has contradicted
    GET  <url>/<log>/checkpoint   the last checkpoint that it has cosigned

What a witness says of itself counts for little: only a checkpoint that we have signed shows that something is missing.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, TypeVar

from oubli.app.errors import FlushFailedError, NotLeaderError, NotLoggedError, StorageError
from oubli.app.ledger.database import LedgerDatabase
from oubli.app.ledger.ledger import LedgerWorker
from oubli.app.ledger.log import Checkpoint, NotPublished, hash_lines, read_checkpoint, read_witness_key
from oubli.app.logs import cause_of
from oubli.app.outgoing.addresses import Endpoint, parse_endpoint
from oubli.app.outgoing.sender import Sender
from oubli.verifier.notes import VerifierKey

log = logging.getLogger("oubli.service")

_ATTEMPTS = 3  # the first tells the size that the witness has seen
_OK, _CONFLICT = 200, 409
_MOST_DIGITS = 15
_PAUSE = 30.0  # seconds for which a witness is not asked that has not answered


class RolledBackError(Exception):
    """A witness has a checkpoint that we have signed, and the ledger here is not the one that it was signed over.

    Parameters
    ----------
    size
        In that checkpoint.
    """

    def __init__(self, size: int) -> None:
        super().__init__(size)
        self.size = size


@dataclass(eq=False, repr=False)
class Witness:
    """One witness.

    Parameters
    ----------
    key
        That cosigns.
    endpoint
        Its address; the paths of the protocol are below.
    sender
        Sends requests.

    Attributes
    ----------
    size
        How many entries it has seen, as far as is known.
    failing
        Whether the last attempt has failed.
    """

    key: VerifierKey
    endpoint: Endpoint
    sender: Sender
    size: int = field(default=0, init=False)
    failing: bool = field(default=False, init=False)
    _ask_again_at: float = field(default=0.0, init=False)

    async def cosign(
        self,
        checkpoint: Checkpoint,
        consistency: Callable[[int, int], Awaitable[Sequence[bytes]]],
        holds: Callable[[Checkpoint], Awaitable[bool]],
    ) -> list[str]:
        """Return the cosignatures of a checkpoint; none when the witness does not give one.

        Parameters
        ----------
        checkpoint
            That is to be cosigned.
        consistency
            Returns the proof from one size of the log to another.
        holds
            Whether the ledger here is one that an earlier checkpoint was signed over by us; see `RolledBackError`.

        Raises
        ------
        RolledBackError
            When the witness has seen entries that we have signed and do not have.
        """
        if time.monotonic() < self._ask_again_at:
            return []
        for _ in range(_ATTEMPTS):
            self.size = min(self.size, checkpoint.size)
            proof = hash_lines(await consistency(self.size, checkpoint.size))
            body = "\n".join([f"old {self.size}", *proof, "", checkpoint.note]).encode()
            outcome = await self.sender.request("POST", self._place("add-checkpoint"), (), body)
            if outcome.status == _OK:
                found = checkpoint.cosignatures(self.key, outcome.body.decode("utf-8", "replace"))
                self.size = checkpoint.size
                self._tell(None if found else "its cosignature is not valid")
                return found
            if outcome.status is None:
                # Every checkpoint would wait for the end of an attempt.
                self._ask_again_at = time.monotonic() + _PAUSE
                self._tell(outcome.failure)
                return []
            told = outcome.body.strip()
            if outcome.status != _CONFLICT or not told.isdigit() or len(told) > _MOST_DIGITS:
                break
            self.size = int(told)
            if self.size > checkpoint.size:
                break
        await self._compare(checkpoint, holds)
        self._tell(f"it answered {outcome.status}")
        return []

    async def _compare(self, checkpoint: Checkpoint, holds: Callable[[Checkpoint], Awaitable[bool]]) -> None:
        """Look at what the witness has cosigned last: it counts when it is signed by us."""
        place = self._place(f"{hashlib.sha256(checkpoint.origin.encode()).hexdigest()}/checkpoint")
        outcome = await self.sender.request("GET", place)
        if outcome.status != _OK:
            return
        try:
            seen = read_checkpoint(outcome.body.decode("utf-8"))
        except ValueError:
            return
        if seen.origin == checkpoint.origin and not await holds(seen):
            raise RolledBackError(seen.size)

    def _place(self, path: str) -> Endpoint:
        return replace(self.endpoint, target=f"{self.endpoint.target.rstrip('/')}/{path}")

    def _tell(self, failure: str | None) -> None:
        if failure is not None and not self.failing:
            log.warning("the witness %s does not cosign: %s", self.key.name, failure)
        self.failing = failure is not None


def parse_witness(text: str, *, plain_http: bool) -> tuple[VerifierKey, Endpoint]:
    """Return key and address of a witness of the settings, `KEY URL`.

    Raises
    ------
    ValueError
        When it is not written so.
    """
    key, _, url = text.strip().partition(" ")
    try:
        return read_witness_key(key), parse_endpoint(url.strip(), plain_http=plain_http)
    except ValueError:
        raise ValueError(
            "must be the key of a witness, name+id+base64, a space and its URL, such as https://witness.example"
        ) from None


T = TypeVar("T")
PERIOD = 1.0  # seconds between two checkpoints
PATIENCE = 5.0  # seconds for which the start waits for witnesses
_ATTEMPTS_TO_SIGN = 3


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
    begin_other
        Begins another log instead, and takes the size that the one before had; None: this was not asked for.
    require_leading
        Raises `NotLeaderError` where another node signs the log.
    """

    _database: LedgerWorker
    _witnesses: Sequence[Witness]
    _halt: Callable[[], object]
    _begin_other: Callable[[int], Awaitable[None]] | None = None
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
                    log.error("the log could not be signed and published, and it is tried again: %s", cause_of(error))
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
            if self._begin_other is None:
                self._stop()
            else:
                await self._begin_other(error.size)

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
                made = signed.with_cosignatures(await self._cosigned(signed))
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

    async def ledger_page(self, after: int, limit: int) -> dict[str, Any]:
        """Return a page of the ledger; its end is signed where this node signs the log."""
        signs = self._may_sign
        try:
            self._require_leading()
        except NotLeaderError:  # its ledger may lag behind
            signs = False
        return await self._database.read(lambda database: database.page(after, limit, signs=signs))

    async def tile(self, level: int, number: int, width: int) -> bytes:
        """Return the first hashes of a tile of the tree; raises `NotLoggedError`."""
        return _found(await self._database.read(lambda database: database.log.tree.tile(level, number, width)))

    async def entry_bundle(self, number: int, width: int) -> bytes:
        """Return the entries below the first hashes of a tile; raises `NotLoggedError`."""
        return _found(await self._database.read(lambda database: database.entry_bundle(number, width)))

    async def entry_proof(self, index: int) -> str:
        """Return a proof that an entry is in the log; raises `NotLoggedError`."""
        return _found(await self._prove(lambda database: database.entry_proof(index)))

    async def erasure_proof(self, receipt_id: str, is_overdue: Callable[[str], bool], *, durable: bool) -> str | None:
        """Return a proof of an erasure, None when there is no such receipt; see `LedgerDatabase.erasure_proof`."""
        return await self._prove(lambda database: database.erasure_proof(receipt_id, is_overdue, durable=durable))

    async def consistency(self, old: int, new: int | None) -> dict[str, Any]:
        """Return the proof that the log continues one of an earlier size; raises `NotLoggedError`."""
        return await self._prove(lambda database: database.log.consistency(old, new))

    async def _prove(self, question: Callable[[LedgerDatabase], T | NotPublished]) -> T:
        """Ask the ledger for a proof; what the published log does not hold yet is published first."""
        self._require_leading()
        for _ in range(_ATTEMPTS_TO_SIGN):
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
            "older backup. Nothing is changed until a start with --ledger FILE or --accept-missing erasures"
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
