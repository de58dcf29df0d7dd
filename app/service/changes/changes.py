"""The mutations that requests ask for: each is one command for the writer, or the answer to the same request before.

`Idempotency-Key`: a request that comes again gets the answer of the first, and changes nothing.

What is kept of a request is committed with its mutation and expires: keyed hashes of the key and the body, and
references. The ids of an answer are those of the repeated body; of generated ones the first is kept, hidden by what
only the caller's key tells.

The hash of a body confirms guesses about the values in it. So a record has marks of the ids and subjects that its body
names. An erasure finds the records that name what it erases, and before its receipt says `erased` nothing is left of
them but the key: from then on every body with the key is refused in the same words. Deletions are excepted. Their
bodies hold names alone, of which the receipt has a keyed hash as well, and a deletion that is repeated must not fail.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from oubli.app.errors import InvalidKeyError, RepeatedKeyError, RestrictedError, SpentKeyError
from oubli.app.ledger.entries import By, IdempotencyRecord, Receipt, original_of
from oubli.app.ledger.ledger import Ledger, LedgerWorker
from oubli.app.service.changes.additions import Added, AddSamples, NewSamples
from oubli.app.service.changes.command import IdempotencyKey
from oubli.app.service.changes.deletions import Deleted, DeleteSamples, NothingErased, Replacement, ReplaceSample
from oubli.app.service.changes.restrictions import (
    ReleaseSubjects,
    Restricted,
    Restriction,
    RestrictSubjects,
    RetainSubjects,
)
from oubli.app.service.changes.writer import Writer
from oubli.app.service.erasure.erasures import Retention
from oubli.app.service.evidence.receipts import Receipts
from oubli.app.service.model.state import ModelState

LONGEST = 255
_SHORT = 2**20  # bytes that are hashed in no time


@dataclass(eq=False, repr=False)
class IdempotencyKeys:
    """The keys of requests, one request of a key at a time.

    Parameters
    ----------
    ledger
        Hashes.
    database
        Reads what was kept.
    now_ms
        The time, in milliseconds since 1970.
    """

    _ledger: Ledger
    _database: LedgerWorker
    _now_ms: Callable[[], int]
    _in_flight: dict[str, asyncio.Lock] = field(default_factory=dict, init=False)

    @asynccontextmanager
    async def use(self, text: str | None, route: str, body: bytes | str) -> AsyncIterator[IdempotencyKey | None]:
        """Have the key of a request for as long as it takes; None when it has none.

        Parameters
        ----------
        text
            The key.
        route
            What it is for.
        body
            Of the request, or its SHA-256 in hexadecimal digits.

        Raises
        ------
        InvalidKeyError, RepeatedKeyError, SpentKeyError
            When the key is too long, was used with another body, or with one that named something erased since.
        """
        if text is None:
            yield None
            return
        if not 0 < len(text) <= LONGEST:
            raise InvalidKeyError(f"must have 1 to {LONGEST} characters")
        key = self._ledger.hash_text(f"{route}\0{text}")
        lock = self._in_flight.setdefault(key, asyncio.Lock())
        try:
            async with lock:
                yield await self._look_up(key, text, route, body)
        finally:
            if not lock.locked():
                self._in_flight.pop(key, None)

    async def _look_up(self, key: str, text: str, route: str, body: bytes | str) -> IdempotencyKey:
        now = self._now_ms()
        earlier = await self._database.read(lambda store: store.idempotent(key, now))
        if isinstance(body, str):
            digest = body
        else:
            made = hashlib.sha256(body) if len(body) <= _SHORT else await asyncio.to_thread(hashlib.sha256, body)
            digest = made.hexdigest()
        hashed = self._ledger.hash_text(f"{route}\0{digest}")
        if earlier is not None and earlier.is_spent:
            raise SpentKeyError
        if earlier is not None and earlier.body != hashed:
            raise RepeatedKeyError
        mask = int(self._ledger.hash_text(f"ids\0{route}\0{text}")[:13], 16)  # 52 bits: below all JSON numbers
        return IdempotencyKey(key, hashed, mask, earlier)


@dataclass(eq=False, repr=False)
class Changes:
    """Changes samples. What was answered before under the same idempotency key is answered again.

    Parameters
    ----------
    state
        What is changed.
    receipts
        Reads the answers to earlier requests.
    retention
        Erases samples whose time is over before they are released.

    Attributes
    ----------
    writer
        Commits commands.
    idempotency_keys
        Recognise repeated requests.
    """

    _state: ModelState
    writer: Writer
    idempotency_keys: IdempotencyKeys
    _receipts: Receipts
    _retention: Retention

    async def add(self, samples: NewSamples, key: IdempotencyKey | None = None) -> Added:
        """Add samples; see `AddSamples`. What was answered before under the same key is answered again."""
        self._state.require_leading()
        if key is not None and key.earlier is not None:
            added = _added_before(samples, key, key.earlier)
            restricted = self._state.model.samples_.restricted
            if rows := [row for row, name in enumerate(added.ids) if restricted.contains(name)]:
                raise RestrictedError(rows)
            return added
        self._state.require_open()
        return await self.writer.execute(AddSamples(samples, key=key))

    async def replace(
        self, asked: Replacement, ref: str | None = None, key: IdempotencyKey | None = None, caller: str = ""
    ) -> Receipt | NothingErased:
        """Rectify one held sample; see `ReplaceSample`. What was answered before under the same key is so again."""
        self._state.require_open()
        if key is not None and key.earlier is not None:
            if key.earlier.receipt is not None:
                return await self._receipts.get(key.earlier.receipt)
            guarantee, version = self._state.model.guarantee, key.earlier.model_version
            return NothingErased(ref, "rectification", guarantee, "ids", 1, 0, version)
        return await self.writer.execute(ReplaceSample(asked, ref, key, caller))

    async def delete(
        self,
        *,
        ids: Sequence[str] | None = None,
        subjects: Sequence[str] | None = None,
        ref: str | None = None,
        key: IdempotencyKey | None = None,
        caller: str = "",
        tags: frozenset[str] | None = None,
    ) -> Receipt | NothingErased:
        """Delete what is held under ids, or of subjects; see `delete_listing`."""
        named: dict[str, Any] = {"ids": ids, "subjects": subjects, "ref": ref, "key": key, "tags": tags}
        return (await self.delete_listing(**named, caller=caller)).outcome

    async def delete_listing(
        self,
        *,
        ids: Sequence[str] | None = None,
        subjects: Sequence[str] | None = None,
        ref: str | None = None,
        key: IdempotencyKey | None = None,
        caller: str = "",
        tags: frozenset[str] | None = None,
    ) -> Deleted:
        """Delete what is held under ids, or of subjects, and say of which of them something was held.

        Names that are repeated count once, absent ones are counted. When nothing of it is held, the receipt of the last
        erasure of exactly these targets is returned, if there is one. A full queue does not refuse it. `caller` is the
        id of the caller's key; see `EmptyErasures`. `tags` are of the only id: see `DeleteSamples`.
        """
        self._state.require_open()
        by: By = "subjects" if ids is None else "ids"
        sent = (subjects or ()) if ids is None else ids
        positions = {name: position for position, name in reversed(list(enumerate(sent)))}
        names = list(dict.fromkeys(sent))
        if key is not None and key.earlier is not None:
            if key.earlier.receipt is None:
                guarantee, n_names = self._state.model.guarantee, len(names)
                version = key.earlier.model_version
                return Deleted(NothingErased(ref, "deletion", guarantee, by, n_names, n_names, version), [])
            return await self._deleted_before(key.earlier.receipt, by, positions)
        command = DeleteSamples(names, by, ref=ref, key=key, caller=caller, tags=tags, asked_at=self._state.seq)
        if not command.finds(self._state):
            earlier = await self._receipts.last_of(names, by)
            if earlier is not None and key is None:
                return await self._deleted_before(earlier.id, by, positions)
            command.found_before(earlier)
        outcome = await self.writer.execute(command)
        if command.made is None and command.receipt_id is not None:
            return await self._deleted_before(command.receipt_id, by, positions)
        return Deleted(outcome, sorted((positions[name], n) for name, n in command.counts.items()))

    async def _deleted_before(self, receipt_id: str, by: By, positions: Mapping[str, int]) -> Deleted:
        """Return the receipt of an earlier deletion of names, and what it has found."""
        counts = await self._receipts.found(receipt_id, list(positions), by)
        return Deleted(await self._receipts.get(receipt_id), sorted((positions[name], n) for name, n in counts.items()))

    async def restrict(
        self,
        subjects: Sequence[str],
        *,
        keep: bool = False,
        ref: str | None = None,
        key: IdempotencyKey | None = None,
        caller: str = "",
    ) -> Restricted:
        """Keep all samples of some subjects, and learn from them no longer; see `RestrictSubjects`.

        What was answered before under the same key is answered again. A full queue does not refuse it.
        """
        return await self._restriction(RestrictSubjects(subjects, ref=ref, key=key, caller=caller, keep=keep))

    async def release(
        self, subjects: Sequence[str], *, ref: str | None = None, key: IdempotencyKey | None = None, caller: str = ""
    ) -> Restricted:
        """Learn from the samples of restricted subjects again; what was answered before under the same key is so again.

        Samples whose time is over are erased first, unless expiry is paused: they are not learned from again.

        Raises
        ------
        CapacityError
            When the model cannot hold so many samples; nothing has changed.
        """
        return await self._restriction(ReleaseSubjects(subjects, ref=ref, key=key, caller=caller))

    async def retain(
        self,
        subjects: Sequence[str],
        seconds: int | None,
        *,
        ref: str | None = None,
        key: IdempotencyKey | None = None,
        caller: str = "",
    ) -> Restricted:
        """Say how long samples of subjects are kept from their addition; see `RetainSubjects`.

        What was answered before under the same key is answered again.
        """
        return await self._restriction(RetainSubjects(subjects, ref=ref, key=key, caller=caller, seconds=seconds))

    async def _restriction(self, command: Restriction) -> Restricted:
        """Execute a command, or return what was answered to the same request before."""
        self._state.require_open()
        key = command.key
        if key is None or key.earlier is None:
            if isinstance(command, ReleaseSubjects):
                command.n_expired = await self._retention.erase_restricted(command.subjects)
            return await self.writer.execute(command)
        earlier, number = key.earlier, (key.earlier.first_id or 0) ^ key.mask
        if earlier.n_new:
            return command.recall(earlier, number, self._state.model.guarantee)
        (entry,) = await self._receipts.page(number - 1, 1)
        return Restricted.of_entry(original_of(entry), earlier.n_samples)


def _added_before(samples: NewSamples, key: IdempotencyKey, earlier: IdempotencyRecord) -> Added:
    """Return the answer to samples that were added by the same request before."""
    first = 0 if earlier.first_id is None else earlier.first_id ^ key.mask
    ids = []
    for name in samples.ids:
        if name is None:
            ids.append(str(first))
            first += 1
        else:
            ids.append(name)
    return Added(ids, earlier.n_new, earlier.n_samples, earlier.model_version)
