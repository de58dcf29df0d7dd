"""Writes states of the model into the ledger: what an audit compares an export and a fresh fit with.

    in the turn of a mutation     version, root over the samples held, what the model is made by
    in a thread                   its digest, unless a snapshot or a check knows it
    journal                       the entry, with salt and digest beside it

The digests of its trees are written nowhere. They are made whenever somebody asks, while the model is of that version.

A state of each version is told once. What tells of a version before an erasure that is being finished would bring the
digest back that the erasure forgets: it is not written any more.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import secrets
from dataclasses import dataclass, field
from functools import partial
from hashlib import sha256
from typing import TYPE_CHECKING, TypeVar

import orjson

from oubli.app.errors import DeposedError, JournalFullError, SupersededError
from oubli.app.ledger.entries import canonical
from oubli.app.ledger.set_leaves import commitment_of
from oubli.app.ledger.states import SALT_BYTES, Opening, hash_digest
from oubli.app.service.memory import let_go_of
from oubli.app.version import VERSION

if TYPE_CHECKING:
    from collections.abc import Callable

    from oubli.app.ledger.entries import Entry
    from oubli.app.ledger.ledger import Field, Ledger, LedgerWorker
    from oubli.app.service.copies import ModelCopier
    from oubli.app.service.holders import Hold, Holders
    from oubli.app.service.lock import ModelLock
    from oubli.app.service.sample_set import SampleSet, SetRoot
    from oubli.app.service.state import ModelState
    from oubli.app.service.writer import Writer
    from oubli.app.storage.storage import Storage
    from oubli.app.threads import Threads
    from oubli.core.model import Model

log = logging.getLogger("oubli.service")

T = TypeVar("T")

_PATIENCE = 1.0  # seconds for which a snapshot waits for the root over the samples before its turn ...
_MOMENT = 0.1  # ... and in it, while changes wait too


@dataclass(frozen=True, slots=True)
class Captured:
    """What an entry says of a version, without the digest.

    Attributes
    ----------
    version
        Of the model.
    is_exact
        Whether it is a function of the samples alone, so that a digest says something.
    root
        Over the samples, in hexadecimal.
    fields
        All of it, as the entry has it.
    schema
        Of the samples, in the RFC 8785 form.
    """

    version: int
    is_exact: bool
    root: str
    fields: dict[str, Field]
    schema: str


@dataclass(eq=False, repr=False)
class StateEntries:
    """Writes entries of the type `state`.

    Parameters
    ----------
    state
        What is served.
    sets
        Knows the root over the samples.
    positions_key
        By which samples have their places below the root.
    storage
        Knows the digest of the newest snapshot.
    writer, ledger, database
        Take the entries.
    lock, threads
        Who may touch the model, and the threads.
    copier
        Copies the model.
    holders
        Told of the copy.
    """

    _state: ModelState
    _sets: SampleSet
    positions_key: bytes
    _storage: Storage
    _writer: Writer
    _ledger: Ledger
    _database: LedgerWorker
    _lock: ModelLock
    _threads: Threads
    _copier: ModelCopier
    _holders: Holders
    _oldest: int = field(default=0, init=False)  # version of which a state may still be written

    async def capture(self) -> Captured:
        """Return what an entry says of the live model; in the turn of a mutation, so that nothing changes meanwhile."""
        state, model = self._state, self._state.model
        found = await self._sets.root()
        if found.model_version != state.version:
            raise RuntimeError("the root over the samples is not that of the model")
        parameters = {**model.parameters_of_model(), "random_state": model.seed_}
        schema = canonical(model.schema_.to_dict()).decode()
        is_exact = model.guarantee == "exact"
        fields: dict[str, Field] = {
            "model_version": state.version,
            "n_samples": found.n_samples,
            "set_root": found.root.hex(),
            "positions_key_hash": commitment_of(self.positions_key),
            "kind": model.kind,
            "guarantee": model.guarantee,
            # As text: the ledger holds no fractions, whose form differs between implementations.
            "parameters": orjson.dumps(parameters, option=orjson.OPT_SORT_KEYS | orjson.OPT_SERIALIZE_NUMPY).decode(),
            "schema_hash": sha256(schema.encode()).hexdigest(),
            "software": VERSION,
            "digest_format": model.engine_.format if is_exact else None,
        }
        return Captured(state.version, is_exact, found.root.hex(), fields, schema)

    async def capture_beside(self) -> Captured | None:
        """Return the same beside something that must neither fail nor wait for it.

        None when the root over the samples is not there soon: a state is written in the background as soon as it is.
        """
        try:
            async with asyncio.timeout(_MOMENT):
                return await self.capture()
        except TimeoutError:
            self._threads.begin(self.write_now(), endless=True)
        except Exception as error:  # whatever it was: snapshots and erasures are owed
            log.error("the state of the model could not be told (%s)", type(error).__name__)
        return None

    async def catch_up(self) -> None:
        """Have the root over the samples made before a turn is taken, in which everybody would wait for it."""
        with contextlib.suppress(Exception):  # it is tried again in the turn, and told there
            async with asyncio.timeout(_PATIENCE):
                await self._sets.root()

    def close_before(self, version: int) -> None:
        """Write no state of an earlier version any more: erasures are being finished that it may know samples of."""
        self._oldest = max(self._oldest, version)

    async def forget(self) -> None:
        """Forget the digests of states of versions before that, on the disk too, before erasures say `erased`."""
        before = self._oldest
        await self._database.read(lambda database: database.forget_states(before))
        await self._database.flush()

    async def write(self, captured: Captured, digest: str | None) -> Entry:
        """Return the entry of a version, written unless there is one.

        Parameters
        ----------
        captured
            What it says.
        digest
            Of the model as it was then; None tells of its samples only, as is done where the model is not exact.

        Raises
        ------
        SupersededError
            When an erasure is being finished that came after the version; nothing is written.
        JournalError
            When it cannot be written.
        """
        known = await self._known(captured)
        if known is not None:
            return known
        salt = secrets.token_hex(SALT_BYTES)
        opening, salted = Opening(schema=captured.schema), None
        if captured.is_exact and digest is not None:
            opening, salted = Opening(salt, digest, captured.schema), hash_digest(salt, digest)
        made: list[Entry] = []

        def notes() -> bytes:
            if captured.version < self._oldest:
                raise SupersededError("samples were erased meanwhile: ask again")
            entry, noted = self._ledger.model_state({**captured.fields, "digest_hash": salted}, opening)
            made.append(entry)
            return noted

        await self._writer.note(notes, lambda: self._storage.follow(self._state.seq))
        return {name: value for name, value in made[0].items() if name != "opening"}

    async def write_beside(self, captured: Captured | None, digest: str) -> None:
        """Write a state beside something that must not fail for it."""
        if captured is None:
            return
        try:
            await self.write(captured, digest)
        except JournalFullError:
            log.warning("a state of the model could not be written to the ledger: there is no room on the disk")
        except (SupersededError, DeposedError):
            pass  # the snapshot that finishes the erasure tells a later one; or the node that leads tells its own

    async def write_now(self) -> tuple[Entry, bool]:
        """Return the entry of the live model's version, and whether it is a new one.

        Raises
        ------
        SupersededError
            When samples were erased meanwhile.
        JournalError
            When it cannot be written.
        """
        await self.catch_up()
        async with self._lock.mutation():
            captured = await self.capture()
            known, digest = await self._known(captured), self._digest_on_disk(captured.version)
            if known is not None:
                return known, False
            copy = None
            if captured.is_exact and digest is None:
                copy = await self._copier.copied()
                hold = self._holders.hold("states")
        if copy is not None:
            digest = await self._threads.finish(self._of_copy(copy, hold, lambda model: model.digest()))
        return await self.write(captured, digest), True

    async def tree_digests(self, version: int, digest: str) -> list[str] | None:
        """Return the digests of the trees of a version, in their order.

        None when the live model is of another version by now, when an erasure is being finished that came after it,
        or when its trees cannot be grown one by one, so that nobody could compare them one by one.

        Parameters
        ----------
        version, digest
            Of the model, as a state tells them.
        """
        state = self._state
        async with self._lock.mutation():
            if state.failed or state.version != version or not state.model.engine_.has_separate_trees:
                return None
            copy = await self._copier.copied()
            hold = self._holders.hold("states")

        def read(model: Model) -> tuple[list[str], str]:
            found = model.tree_digests()
            return found, model.digest_of(found)

        found, whole = await self._threads.finish(self._of_copy(copy, hold, read))
        return found if whole == digest and version >= self._oldest else None

    async def tell_set(self, found: SetRoot) -> int | None:
        """Return the entry that tells of a set of samples; without a digest, where one has to be written.

        None when the model is another by now, or nothing is changed any more.

        Raises
        ------
        JournalError
            When it cannot be written.
        """
        root = found.root.hex()
        known = await self._database.read(lambda database: database.states_of(found.model_version))
        for entry, _ in known:
            if entry["set_root"] == root:
                return int(entry["index"])
        if self._state.failed:
            return None
        async with self._lock.mutation():
            captured = await self.capture()
        return int((await self.write(captured, None))["index"]) if captured.root == root else None

    async def _of_copy(self, copy: Model, hold: Hold, read: Callable[[Model], T]) -> T:
        """Read a copy in a thread, and overwrite it."""
        with hold:
            try:
                return await self._threads.build(partial(read, copy))
            finally:
                await self._threads.build(partial(let_go_of, copy))

    def _digest_on_disk(self, version: int) -> str | None:
        """Return the digest that the newest snapshot has, where it is one of a version."""
        newest = None if self._storage.is_ephemeral else self._storage.snapshots.newest_or_none
        return newest.digest if newest is not None and newest.model_version == version else None

    async def _known(self, captured: Captured) -> Entry | None:
        """Return the entry that there is of a version; None when there is none whose digest can still be told."""
        found = await self._database.read(lambda database: database.states_of(captured.version))
        for entry, opening in found:
            is_whole = opening.salt is not None or not captured.is_exact
            if is_whole and entry["set_root"] == captured.root:
                return entry
        return None
