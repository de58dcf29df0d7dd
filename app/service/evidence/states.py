"""Writes states of the model into the ledger: what an audit compares an export and a fresh fit with.

    in the turn of a mutation     version, root over the samples held, what the model is made by
    in a thread                   its digest, unless a snapshot or a check knows it
    journal                       the entry, with salt and digest beside it

The digests of its trees are written nowhere. They are computed on request, while the model is of that version.

There is one entry for each version. An entry for a version before an erasure that is being finished would bring the
digest back that the erasure forgets: it is not written any more.

Signed receipts of predictions: which model has answered what to which rows. They are made on request, and not kept.

    message     oubli.prediction/v1
                model version, root over the samples that the model is a function of
                SHA-256(nonce | rows), SHA-256(nonce | answer), in hexadecimal, a line each

Rows and answer are hashed as JSON with sorted keys; a state of the version in the ledger has the same root. A person
who has rows, answer and receipt can show it to others; the nonce keeps all others from testing guesses.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import secrets
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from hashlib import sha256
from typing import Any, NamedTuple, TypeVar

import orjson

from oubli.app.errors import (
    DeposedError,
    JournalError,
    JournalFullError,
    NotLoggedError,
    StorageError,
    SupersededError,
)
from oubli.app.ledger.entries import By, Entry, canonical
from oubli.app.ledger.file import SALT_BYTES, Opening, hash_digest
from oubli.app.ledger.ledger import Field, Ledger
from oubli.app.ledger.set_tree import commitment_of
from oubli.app.logs import cause_of
from oubli.app.service.changes.writer import Writer
from oubli.app.service.erasure.holders import Hold
from oubli.app.service.evidence.publisher import LogPublisher
from oubli.app.service.evidence.receipts import Receipts
from oubli.app.service.evidence.sample_set import AbsenceProof, SampleSet, SetRoot
from oubli.app.service.memory import let_go_of
from oubli.app.service.model.live import Disk, LiveModel, Predicted
from oubli.app.version import VERSION
from oubli.core.data.schema import COLUMN_RULES, MAX_CLASSES
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
    live
        The live model and who may use it.
    disk
        Where changes are kept.
    writer
        Takes changes and notes to the journal.
    sets
        Knows the root over the samples.
    positions_key
        By which samples have their places below the root.
    """

    _live: LiveModel
    _disk: Disk
    _writer: Writer
    _sets: SampleSet
    positions_key: bytes
    _oldest: int = field(default=0, init=False)  # version of which a state may still be written

    async def capture(self) -> Captured:
        """Return what an entry says of the live model; in the turn of a mutation, so that nothing changes."""
        state, model = self._live.state, self._live.state.model
        found = await self._sets.root()
        if found.model_version != state.version:
            raise RuntimeError("the root over the samples is not that of the model")
        parameters = {**model.parameters_of_model(), "random_state": model.seed_}
        # Rules about classes and columns decide no prediction, and closed labels need not be of samples that are held.
        rules: dict[str, Any] = {"classes": None, "max_classes": MAX_CLASSES, **dict.fromkeys(COLUMN_RULES, "refuse")}
        schema = canonical(replace(model.schema_, **rules).to_dict()).decode()
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
            self._live.threads.begin(self.write_now(), endless=True)
        except Exception as error:  # whatever it was: snapshots and erasures are owed
            log.error("the state of the model could not be written to the ledger: %s", cause_of(error))
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
        await self._disk.database.read(lambda database: database.forget_states(before))
        await self._disk.database.flush()

    async def write(self, captured: Captured, digest: str | None) -> Entry:
        """Return the entry of a version, written unless there is one.

        Parameters
        ----------
        captured
            What it says.
        digest
            Of the model as it was then; None for an entry about its samples only, as where the model is not exact.

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
            entry, noted = self._disk.ledger.model_state({**captured.fields, "digest_hash": salted}, opening)
            made.append(entry)
            return noted

        await self._writer.note(notes, lambda: self._disk.storage.follow(self._live.state.seq))
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

    async def record(self) -> tuple[Entry, bool]:
        """Do the same as `write_now` for a request, also when the caller is cancelled."""
        self._live.state.require_open()
        return await self._live.threads.finish(self.write_now())

    async def write_now(self) -> tuple[Entry, bool]:
        """Return the entry of the live model's version, and whether it is a new one.

        Raises
        ------
        SupersededError
            When samples were erased in between.
        JournalError
            When it cannot be written.
        """
        await self.catch_up()
        async with self._live.lock.mutation():
            captured = await self.capture()
            known, digest = await self._known(captured), self._digest_on_disk(captured.version)
            if known is not None:
                return known, False
            copy = None
            if captured.is_exact and digest is None:
                copy = await self._live.copied()
                hold = self._live.holders.hold("states")
        if copy is not None:
            digest = await self._live.threads.finish(self._of_copy(copy, hold, lambda model: model.digest()))
        return await self.write(captured, digest), True

    async def tree_digests(self, version: int, digest: str) -> list[str] | None:
        """Return the digests of the trees of a version, in their order.

        None when the live model is of another version by now, when an erasure is being finished that came after it,
        or when its trees cannot be grown one by one, so that they could not be compared one by one.

        Parameters
        ----------
        version, digest
            Of the model, as a state tells them.
        """
        self._live.state.require_started()
        return await self._live.threads.finish(self._tree_digests(version, digest))

    async def _tree_digests(self, version: int, digest: str) -> list[str] | None:
        state = self._live.state
        async with self._live.lock.mutation():
            if state.failed or state.version != version or not state.model.engine_.has_separate_trees:
                return None
            copy = await self._live.copied()
            hold = self._live.holders.hold("states")

        def read(model: Model) -> tuple[list[str], str]:
            found = model.tree_digests()
            return found, model.digest_of(found)

        found, whole = await self._live.threads.finish(self._of_copy(copy, hold, read))
        return found if whole == digest and version >= self._oldest else None

    async def tell_set(self, found: SetRoot) -> int | None:
        """Return the entry about a set of samples; without a digest, where one has to be written.

        None when the model is another by now, or nothing is changed any more.

        Raises
        ------
        JournalError
            When it cannot be written.
        """
        root = found.root.hex()
        known = await self._disk.database.read(lambda database: database.states_of(found.model_version))
        for entry, _ in known:
            if entry["set_root"] == root:
                return int(entry["index"])
        if self._live.state.failed:
            return None
        async with self._live.lock.mutation():
            captured = await self.capture()
        return int((await self.write(captured, None))["index"]) if captured.root == root else None

    async def _of_copy(self, copy: Model, hold: Hold, read: Callable[[Model], T]) -> T:
        """Read a copy in a thread, and overwrite it."""
        with hold:
            try:
                return await self._live.threads.build(partial(read, copy))
            finally:
                await self._live.threads.build(partial(let_go_of, copy))

    def _digest_on_disk(self, version: int) -> str | None:
        """Return the digest that the newest snapshot has, where it is one of a version."""
        newest = self._disk.newest_snapshot
        return newest.digest if newest is not None and newest.model_version == version else None

    async def _known(self, captured: Captured) -> Entry | None:
        """Return the entry that there is of a version; None when there is none whose digest can still be told."""
        found = await self._disk.database.read(lambda database: database.states_of(captured.version))
        for entry, opening in found:
            is_whole = opening.salt is not None or not captured.is_exact
            if is_whole and entry["set_root"] == captured.root:
                return entry
        return None


_FIRST_LINE = "oubli.prediction/v1"
_NONCE_BYTES = 16
_ATTEMPTS = 3
_FEW = 500  # rows that are hashed on the event loop
_as_json = json.JSONEncoder(sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode


class PredictionReceipt(NamedTuple):
    """The signed receipt of predictions.

    Attributes
    ----------
    nonce
        Hashed with what is signed.
    set_root
        Over the samples that the model was a function of.
    key_id, signature
        Of the key, and Ed25519 in base64.
    """

    nonce: str
    set_root: str
    key_id: str
    signature: str


@dataclass(eq=False, repr=False)
class PredictionSigner:
    """Signs predictions.

    Parameters
    ----------
    live
        The live model and who may use it.
    sets
        Knows the root over the samples.
    ledger
        Has the key.
    """

    _live: LiveModel
    _sets: SampleSet
    _ledger: Ledger

    async def predict(self, predict: Callable[[], Awaitable[Predicted]]) -> tuple[Predicted, str]:
        """Return predictions, and in hexadecimal the root over the samples at their version.

        Where changes come so often that the two do not meet, they are made in the turn of one.
        """
        self._live.state.require_leading()
        for _ in range(_ATTEMPTS):
            found = await self._sets.root()
            predicted = await predict()
            if predicted.model_version == found.model_version:
                return predicted, found.root.hex()
        async with self._live.lock.mutation():
            return await predict(), (await self._sets.root()).root.hex()

    async def sign(
        self, version: int, root: str, instances: Sequence[Any], answer: Mapping[str, Any]
    ) -> PredictionReceipt:
        """Return the receipt of an answer.

        Parameters
        ----------
        version, root
            Of the model that has answered.
        instances
            As they were sent.
        answer
            `predictions`, and of a classifier `classes` and `probabilities`, as lists.
        """
        make = partial(self._sign, version, root, instances, answer)
        return make() if len(instances) <= _FEW else await self._live.threads.read(make)

    def _sign(self, version: int, root: str, instances: Sequence[Any], answer: Mapping[str, Any]) -> PredictionReceipt:
        nonce = secrets.token_bytes(_NONCE_BYTES)
        hashes = (sha256(nonce + _as_json(part).encode("utf-8")).hexdigest() for part in (instances, answer))
        message = "\n".join([_FIRST_LINE, str(version), root, *hashes, ""])
        return PredictionReceipt(nonce.hex(), root, *self._ledger.sign(message.encode("ascii")))


@dataclass(eq=False, repr=False)
class Evidence:
    """Proofs for requests.

    Parameters
    ----------
    live
        The live model and who may use it.

    Attributes
    ----------
    receipts
        Reads the ledger.
    states
        Tells in the ledger what the model was at a version.
    sample_set
        The tree over the samples held, and what it proves.
    publisher
        Signs the log and publishes it.
    signer
        Signs predictions.
    """

    _live: LiveModel
    receipts: Receipts
    states: StateEntries
    sample_set: SampleSet
    publisher: LogPublisher
    signer: PredictionSigner

    async def prove_absence(self, by: By, name: str) -> tuple[AbsenceProof, str | None]:
        """Prove that a name is not in the set of samples, and that the log has an entry about this set.

        The second proof is None where nothing can be written or signed, or changes come too fast.

        Raises
        ------
        StillHeldError
            When the name is in the set.
        """
        self._live.state.require_leading()
        for _ in range(_ATTEMPTS):
            found = await self.sample_set.prove_absence(by, name)
            with suppress(JournalError, NotLoggedError, StorageError):
                index = await self._live.threads.finish(self.states.tell_set(found.state))
                if index is not None:
                    return found, await self.publisher.entry_proof(index)
        return found, None
