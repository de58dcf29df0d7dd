"""Another model in place of the live one: restored from a snapshot, or fitted anew with other parameters.

Both are built in a thread beside the live model, made durable, and swapped in with one step of the event loop.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from oubli.app.errors import (
    DeposedError,
    JournalError,
    JournalFullError,
    ServiceError,
    StopReason,
    SupersededError,
    UnavailableError,
)
from oubli.app.ledger.entries import RESTRICTED, with_idempotency
from oubli.app.service.commands.command import Command, apply_held
from oubli.app.service.commands.swaps import Fit, FitBody, Restore
from oubli.app.service.compiling import prepare_kernels, prepare_model_file
from oubli.app.service.copies import facts_of
from oubli.app.service.fitting import another_estimator, refit
from oubli.app.service.memory import let_go_of
from oubli.app.service.nonces import give_nonces
from oubli.app.service.restoration import drop_gone, dropped_fields, ids_of, subjects_of
from oubli.app.service.state import new_epoch
from oubli.app.storage.snapshots import Snapshot, describe
from oubli.core.errors import FileError
from oubli.core.persistence import Loaded, load_foreign

if TYPE_CHECKING:
    from pathlib import Path

    from oubli.app.ledger.ledger import Field, Ledger, LedgerWorker
    from oubli.app.service.activities import Activities
    from oubli.app.service.copies import ModelCopier
    from oubli.app.service.erasures import Erasures
    from oubli.app.service.fingerprints import Fingerprints
    from oubli.app.service.holders import Hold, Holders
    from oubli.app.service.idempotency import IdempotencyKey
    from oubli.app.service.jobs import Report
    from oubli.app.service.lock import ModelLock
    from oubli.app.service.state import ModelState
    from oubli.app.service.state_entries import Captured, StateEntries
    from oubli.app.service.writer import Writer
    from oubli.app.storage.storage import Storage
    from oubli.app.threads import Threads
    from oubli.app.times import Clock
    from oubli.core.model import Model
    from oubli.core.samples.store import SampleStore

_LONGEST_CHECK = 5.0  # seconds of a restore for comparing with a fresh fit; changes wait meanwhile
_FEW_CHANGES = 32  # are made on the event loop, while nobody else changes anything


@dataclass(eq=False, repr=False)
class Rebuilder:
    """Builds models aside and swaps them in.

    Parameters
    ----------
    state
        What is replaced.
    storage, writer, erasures
        Make it durable.
    ledger, database
        The ledger: what was erased, and the entry of what is done here.
    lock, threads
        Who may touch the model, and the threads.
    copier
        Copies the model.
    holders
        Told of samples that are held by what goes on here.
    clock
        Tells the time.
    activities
        Told of restores.
    states
        Tells in the ledger what a model was found to be.
    fingerprints
        Told of digests in results.
    """

    _state: ModelState
    _storage: Storage
    _writer: Writer
    _erasures: Erasures
    _ledger: Ledger
    _database: LedgerWorker
    _lock: ModelLock
    _threads: Threads
    _copier: ModelCopier
    _holders: Holders
    _clock: Clock
    _activities: Activities
    _states: StateEntries
    _fingerprints: Fingerprints
    _one_fit: asyncio.Lock = field(default_factory=asyncio.Lock, init=False)

    async def restore(self, path: Path) -> dict[str, Any]:
        """Replace the model by that of a snapshot file, less what was erased, rectified or expired since.

        Returns
        -------
        dict
            What it did; `RestoreAnswer` documents the fields.

        Raises
        ------
        FileError
            When the file is not a sound model file; nothing has changed.
        StorageError
            When it cannot be written; nothing has changed.
        """
        with self._activities.begin("restore") as report:
            return await self._restore(path, report)

    async def _restore(self, path: Path, report: Report) -> dict[str, Any]:
        # Before its turn, for which others would wait.
        await self._threads.compile(partial(prepare_model_file, path))
        async with self._lock.mutation():
            self._state.require_changeable()
            with self._lock.reading():
                report(0.1)
                loaded = await self._threads.save(partial(self._load, path))
                report(0.6)
                model, taken = loaded.model, loaded.snapshot
                ids, subjects = ids_of(model.samples_), subjects_of(model.samples_)
                gone = await self._database.read(lambda database: database.erased_since(ids, loaded.since))
                words = await self._database.read(lambda database: database.restricted_since(subjects, loaded.since))
                if loaded.since < 0:  # of another history: its restrictions were released by nobody here
                    words = {name: word for name, word in words.items() if word["type"] == RESTRICTED}
                kept = await self._database.read(lambda database: database.retained_since(subjects, loaded.since))
                now, now_ms = self._state.model.samples_, self._clock.now_ms()
                dropped = await self._threads.save(partial(drop_gone, model, gone, now_ms, words, now, kept))
                await self._threads.save(partial(give_nonces, model.samples_))  # a file of an earlier version has none
                report(0.7)
            state, old, store = self._state, self._state.model.samples_, model.samples_
            n_lost = sum(store.holding(name) is None for name in ids_of(old))
            fields: dict[str, Field] = {
                "model_version": state.version + 1,
                "snapshot_model_version": taken.model_version,
                **dropped_fields(dropped),
                "no_longer_held": n_lost,
                "restricted": len(store.restricted),
            }
            next_id = max(state.next_id, old.next_id, taken.facts.next_id, store.next_id)
            await self._put_in_place(Restore(model, epoch=new_epoch(), next_id=next_id), fields)
            return {
                "model_version": state.version,
                "snapshot_model_version": taken.model_version,
                "n_samples": model.n_samples_,
                "n_restricted": len(store.restricted),
                "dropped": {
                    "erased": dropped["deletion"],
                    "rectified": dropped["rectification"],
                    "expired": dropped["expiry"],
                },
                "no_longer_held": n_lost,
                "verified": loaded.checked,
            }

    async def _put_in_place(self, command: Restore, fields: dict[str, Field]) -> None:
        """Put another model in place of the live one, on the disk and in memory; in the turn of a mutation.

        The new snapshot is the instant at which it happens. What the journal has to note of it is in the snapshot too,
        so that a server that is killed in between finds it there.

        Raises
        ------
        StorageError, JournalFullError
            When the snapshot or the journal cannot be written; nothing has changed.
        """
        state, storage, erasures, head = self._state, self._storage, self._erasures, self._ledger.head
        old = state.model
        notes = self._ledger.event("restore", fields)
        facts = replace(
            facts_of(state, storage, self._ledger),
            model_version=state.version + 1,
            next_id=command.next_id,
            epoch=command.epoch,
            seq=state.seq + 1,
            restore_notes=notes.decode(),
        )
        finished, period = erasures.waiting(), state.period
        take_back: Callable[[], None] | None = None
        if not storage.is_ephemeral:
            try:
                with erasures.halting():
                    take_back = await self._threads.save(partial(storage.write_instead, command.model, facts))
            except ServiceError:
                self._ledger.rewind(head)
                raise
        try:
            await erasures.write_journal(partial(storage.journal.rotate, facts.seq))
            await self._writer.record(lambda: notes, command)
        except (JournalFullError, DeposedError):
            # Nothing is in the journal, which goes on, perhaps by another node: a snapshot of what did not happen must
            # not be found.
            self._ledger.rewind(head)
            if take_back is not None:
                with erasures.halting():
                    await self._threads.save(take_back)
            raise
        except JournalError:
            state.halt(StopReason.DISK_FAILED)  # the snapshot stands: a restart goes on from it
            raise UnavailableError("failed") from None
        await self._copier.let_go(old)
        if not storage.is_ephemeral:
            if finished:
                self._states.close_before(state.version)
            with erasures.halting():
                await erasures.remove_older_files(erases=True)
            self._threads.begin(erasures.finish(finished, period))
            self._threads.begin(self._states.write_now())

    async def fit(
        self, kind: str, parameters: dict[str, Any], report: Report, *, key: IdempotencyKey | None = None
    ) -> dict[str, Any]:
        """Fit another model on the samples held; mutations meanwhile are made on both.

        What was claimed is committed with the new model.

        Raises
        ------
        InputError
            When the parameters do not fit together.
        """
        version, _ = await self._fit(kind, parameters, report, key)
        model = self._state.model
        return {"model_version": version, "n_samples": model.n_samples_, "parameters": model.parameters_of_model()}

    async def rebuild(self, report: Report) -> list[str]:
        """Fit the live model anew as it is; return the receipts of unfinished erasures that it then has no trace of.

        Those are the erasures from before: what is unlearned meanwhile leaves its traces in the new model too.
        """
        return (await self._fit(None, {}, report))[1]

    async def _fit(
        self, kind: str | None, parameters: dict[str, Any], report: Report, key: IdempotencyKey | None = None
    ) -> tuple[int, list[str]]:
        """Fit a model and swap it in; return the version, and the unfinished erasures that it has no trace of."""
        # One at a time: the second must begin with what the first has put in place.
        async with self._one_fit:
            state = self._state
            async with self._lock.mutation(refusable=False):
                self._state.require_changeable()
                meanwhile = self._writer.follow()
                traceless, epoch = list(state.pending), state.epoch
                try:
                    copy = await self._copier.cleaned(lambda model: model.samples_.copy())
                except BaseException:
                    self._writer.unfollow(meanwhile)
                    raise
                hold = self._holders.hold("fit", is_served_next=True)
            made: Model | None = None
            try:
                report(0.05)
                # Nothing of the live model is read after this: a restore may let go of it meanwhile.
                kind, schema = kind or state.model.kind, state.model.schema_
                made = another_estimator(kind, parameters, state.model)
                chosen = made.parameters_of_model()
                # Also what changes and predictions will need: nothing may be compiled once the new model is served.
                await self._threads.compile(partial(prepare_kernels, kind, schema, chosen))
                model = await self._threads.build(partial(refit, made, copy, _within(report, 0.1, 0.9)))
                report(0.9)
                while len(meanwhile) > _FEW_CHANGES:
                    self._require_same(epoch)
                    commands = list(meanwhile)
                    del meanwhile[: len(commands)]
                    await self._threads.build(partial(apply_held, model, commands))
                # From here on it must not be cut: what is in the journal must be in the model.
                swap = self._swap(Fit(model, FitBody(kind, chosen), key), meanwhile, epoch)
                version = await self._threads.finish(swap)
            except BaseException:
                # Behind whatever a thread still does with them: it cannot be called back.
                await self._threads.finish(self._let_go_unless_served(made, copy))
                raise
            finally:
                self._writer.unfollow(meanwhile)
                hold.let_go()
            return version, traceless

    async def _let_go_unless_served(self, made: Model | None, copy: SampleStore) -> None:
        """Overwrite what a fit that has failed has made, and the samples that it has begun with."""
        async with self._lock.mutation(refusable=False):  # a swap that goes on has come to its end then
            if made is not self._state.model:
                await self._threads.build(partial(_shred, made, copy))

    async def _swap(self, command: Fit, meanwhile: list[Command[Any]], epoch: int) -> int:
        """Apply the last changes to a fitted model, and put it in place of the live one; return its version.

        Raises
        ------
        SupersededError
            When the samples are not those any more that it was fitted on, with the changes since; nothing has changed.
        """
        state, old, model, key = self._state, self._state.model, command.model, command.key
        async with self._lock.mutation(refusable=False):
            self._state.require_changeable()
            self._require_same(epoch)
            apply_held(model, meanwhile)
            self._writer.unfollow(meanwhile)
            version = state.version + 1
            fields: dict[str, Field] = {"model_version": version, "kind": model.kind}

            def notes() -> bytes:
                noted = self._ledger.event("fit", fields)
                if key is None:
                    return noted
                now_ms, n_samples = self._clock.steady_ms(), model.n_samples_
                return with_idempotency(noted, key.record(now_ms=now_ms, model_version=version, n_samples=n_samples))

            await self._writer.record(notes, command)
            await self._copier.let_go(old)
            return version

    async def verify(self, report: Report) -> dict[str, Any]:
        """Compare the live model with a fresh fit on the samples held."""
        await self._states.catch_up()
        async with self._lock.mutation(refusable=False):
            captured = await self._states.capture_beside()
            copy = await self._copier.copied()
            about = {"model_version": self._state.version, "n_samples": copy.n_samples_}
            hold = self._holders.hold("verify")
        report(0.1)
        # A thread cannot be called back, so that it holds the copy also when the job is cancelled.
        return await self._threads.finish(self._verified(copy, captured, about, hold, _within(report, 0.1, 0.95)))

    async def _verified(
        self,
        copy: Model,
        captured: Captured | None,
        about: dict[str, Any],
        hold: Hold,
        progress: Callable[[int, int], None],
    ) -> dict[str, Any]:
        with hold:
            try:
                found = await self._threads.build(partial(copy.verify, progress))
            finally:
                await self._threads.build(partial(let_go_of, copy))
            result = {"ok": found.ok, "live_digest": found.live_digest, "fresh_digest": found.fresh_digest, **about}
            if found.distance_to_fresh is not None:
                result["distance_to_fresh"] = found.distance_to_fresh
            self._fingerprints.keep(hold.period, result, ("live_digest", "fresh_digest", "distance_to_fresh"))
            await self._states.write_beside(captured, found.live_digest)
            return result

    def _load(self, path: Path) -> _Loaded:
        taken = describe(path)
        # Versions of another history cannot be compared: then everything known to be erased is dropped.
        since = taken.facts.model_version if taken.facts.lineage == self._storage.lineage else -1
        loaded = load_foreign(path)
        return _Loaded(loaded.model, taken, since, _checked(loaded))

    def _require_same(self, epoch: int) -> None:
        if self._state.epoch != epoch:
            raise SupersededError("a restore replaced the samples meanwhile: begin again")


@dataclass(slots=True)
class _Loaded:
    """A model from a snapshot file."""

    model: Model
    snapshot: Snapshot
    since: int
    checked: str  # how far; see `RestoreAnswer`


def _shred(made: Model | None, copy: SampleStore) -> None:
    if made is not None:
        let_go_of(made)
    let_go_of(copy)  # is that of the model, unless the fit has failed


def _checked(loaded: Loaded) -> str:
    """Compare trees from a file with a fresh fit, where that is no long work; say how far they were checked.

    Raises
    ------
    FileError
        When they are others.
    """
    if loaded.regrown:
        return "grown-anew"
    if loaded.model.seconds_to_verify() > _LONGEST_CHECK:
        return "checked"
    if not loaded.model.verify().ok:
        raise FileError("the file's trees are not those of its samples: restore another file")
    return "verified"


def _within(report: Report, first: float, last: float) -> Callable[[int, int], None]:
    """Return what takes in how many trees are done, as progress from one share to another."""
    return lambda done, total: report(first + (last - first) * done / max(total, 1))
