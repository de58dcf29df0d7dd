"""Another model in place of the live one: restored from a snapshot, or fitted with other parameters.

Both are built in a thread beside the live model, made durable, and swapped in with one step of the event loop.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

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
from oubli.app.ledger.ledger import Field
from oubli.app.progress import Activities
from oubli.app.service.changes.command import Command, IdempotencyKey, apply_held, give_nonces
from oubli.app.service.changes.writer import ModelSwap, Writer
from oubli.app.service.compiling import prepare_kernels, prepare_model_file
from oubli.app.service.erasure.erasures import Erasures
from oubli.app.service.erasure.holders import Fingerprints, Hold
from oubli.app.service.evidence.states import Captured, StateEntries
from oubli.app.service.jobs.fits import FitBody, another_estimator, refit
from oubli.app.service.jobs.jobs import Report
from oubli.app.service.memory import let_go_of
from oubli.app.service.model.live import Disk, LiveModel
from oubli.app.service.model.state import ModelState, new_epoch
from oubli.app.service.recovery.start import drop_gone, dropped_fields, ids_of, subjects_of
from oubli.app.service.recovery.uploads import Uploads
from oubli.app.storage.snapshots import Snapshot, describe
from oubli.core.engine import Verification
from oubli.core.errors import FileError
from oubli.core.estimators import Loaded, load_foreign
from oubli.core.model import Model
from oubli.core.samples.store import SampleStore

log = logging.getLogger("oubli.service")

_LONGEST_CHECK = 5.0  # seconds of a restore for comparing with a fresh fit; changes wait that long
_MOST_NAMED = 20  # findings of a verification that its result and the log name
_FEW_CHANGES = 32  # are made on the event loop, while all other changes wait


@dataclass(eq=False, slots=True)
class Fit(ModelSwap):
    """A model that was fitted on the samples held, as the body says; `key` is the caller's idempotency key."""

    body: FitBody | None = None
    key: IdempotencyKey | None = None


@dataclass(eq=False, slots=True, kw_only=True)
class Restore(ModelSwap):
    """A model from a snapshot, less what must not come back; for `epoch` and `next_id` see `ModelState`."""

    epoch: int
    next_id: int

    def swap(self, state: ModelState) -> None:
        """Put the model in its place; nothing is left of the memory of the one before."""
        state.model, state.epoch, state.next_id = self.model, self.epoch, self.next_id
        state.period += 1


@dataclass(eq=False, repr=False)
class Rebuilder:
    """Builds models aside and swaps them in.

    Parameters
    ----------
    live
        The live model and who may use it.
    disk
        Where changes are kept.
    writer
        Takes changes and notes to the journal.
    erasures
        Make it durable.
    activities
        Lists restores in progress.
    states
        Tells in the ledger what a model was found to be.
    fingerprints
        Registers the digests in results.

    Attributes
    ----------
    uploads
        Keeps files that come in.
    """

    _live: LiveModel
    _disk: Disk
    _writer: Writer
    _erasures: Erasures
    _activities: Activities
    _states: StateEntries
    _fingerprints: Fingerprints
    uploads: Uploads
    _one_fit: asyncio.Lock = field(default_factory=asyncio.Lock, init=False)

    async def restore(self, path: Path) -> dict[str, Any]:
        """Replace the model by that of a snapshot file, less what was erased, rectified or expired since.

        Returns
        -------
        dict
            What it did; `Restored` documents the fields.

        Raises
        ------
        FileError
            When the file is not a sound model file; nothing has changed.
        StorageError
            When it cannot be written; nothing has changed.
        """
        self._live.state.require_open()
        return await self._live.threads.finish(self._restore(path))

    async def _restore(self, path: Path) -> dict[str, Any]:
        with self._activities.begin("restore") as report:
            return await self._restore_reporting(path, report)

    async def _restore_reporting(self, path: Path, report: Report) -> dict[str, Any]:
        # Before its turn, for which others would wait.
        await self._live.threads.compile(partial(prepare_model_file, path))
        async with self._live.lock.mutation():
            self._live.state.require_changeable()
            with self._live.lock.reading():
                report(0.1)
                loaded = await self._live.threads.save(partial(self._load, path))
                report(0.6)
                model, taken = loaded.model, loaded.snapshot
                ids = await self._live.threads.save(partial(ids_of, model.samples_))
                subjects = await self._live.threads.save(partial(subjects_of, model.samples_))
                read = self._disk.database.read
                gone = await read(lambda database: database.erased_since(ids, loaded.since))
                words = await read(lambda database: database.restricted_since(subjects, loaded.since))
                if loaded.since < 0:  # of another history: its restrictions were not released here
                    words = {name: word for name, word in words.items() if word["type"] == RESTRICTED}
                kept = await read(lambda database: database.retained_since(subjects, loaded.since))
                now, now_ms = self._live.state.model.samples_, self._live.clock.now_ms()
                dropped = await self._live.threads.save(partial(drop_gone, model, gone, now_ms, words, now, kept))
                # A file of an earlier version has no nonces.
                await self._live.threads.save(partial(give_nonces, model.samples_))
                report(0.7)
            state, old, store = self._live.state, self._live.state.model.samples_, model.samples_
            n_lost = await self._live.threads.save(lambda: sum(store.holding(name) is None for name in ids_of(old)))
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
        state, storage, erasures, head = self._live.state, self._disk.storage, self._erasures, self._disk.ledger.head
        old = state.model
        notes = self._disk.ledger.event("restore", fields)
        facts = replace(
            self._disk.facts(state),
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
                    take_back = await self._live.threads.save(partial(storage.write_instead, command.model, facts))
            except ServiceError:
                self._disk.ledger.rewind(head)
                raise
        try:
            await erasures.write_journal(partial(storage.journal.rotate, facts.seq))
            await self._writer.record(lambda: notes, command)
        except (JournalFullError, DeposedError):
            # Nothing is in the journal, which continues, perhaps by another node: no snapshot of what did not
            # happen may be found.
            self._disk.ledger.rewind(head)
            if take_back is not None:
                with erasures.halting():
                    await self._live.threads.save(take_back)
            raise
        except JournalError:
            state.halt(StopReason.DISK_FAILED)  # the snapshot stands: a restart uses it
            raise UnavailableError("failed") from None
        await self._live.let_go(old)
        if not storage.is_ephemeral:
            if finished:
                self._states.close_before(state.version)
            with erasures.halting():
                await erasures.remove_older_files(erases=True)
            self._live.threads.begin(erasures.finish(finished, period))
            self._live.threads.begin(self._states.write_now())

    async def fit(
        self,
        kind: str,
        parameters: dict[str, Any],
        report: Report,
        *,
        key: IdempotencyKey | None = None,
        classes: str | None = None,
        max_classes: int | None = None,
    ) -> dict[str, Any]:
        """Fit another model on the samples held; mutations in that time are made on both.

        What was claimed is committed with the new model. For `classes` and `max_classes` see `Model.set_classes`.

        Raises
        ------
        InputError
            When the parameters do not fit together.
        """
        version, _ = await self._fit(kind, parameters, report, key, classes, max_classes)
        model = self._live.state.model
        return {"model_version": version, "n_samples": model.n_samples_, "parameters": model.parameters_of_model()}

    async def rebuild(self, report: Report) -> list[str]:
        """Fit the live model again as it is; return the receipts of unfinished erasures that it then has no trace of.

        Those are the erasures from before: what is unlearned during the fit leaves its traces in the new model too.
        """
        return (await self._fit(None, {}, report))[1]

    async def _fit(
        self,
        kind: str | None,
        parameters: dict[str, Any],
        report: Report,
        key: IdempotencyKey | None = None,
        classes: str | None = None,
        max_classes: int | None = None,
    ) -> tuple[int, list[str]]:
        """Fit a model and swap it in; return the version, and the unfinished erasures that it has no trace of."""
        # One at a time: the second must begin with what the first has put in place.
        async with self._one_fit:
            state = self._live.state
            async with self._live.lock.mutation(refusable=False):
                self._live.state.require_changeable()
                later = self._writer.follow()
                traceless, epoch = list(state.pending), state.epoch
                try:
                    copy = await self._live.cleaned(lambda model: model.samples_.copy())
                except BaseException:
                    self._writer.unfollow(later)
                    raise
                hold = self._live.holders.hold("fit", is_served_next=True)
            made: Model | None = None
            try:
                report(0.05)
                # Nothing of the live model is read after this: a restore may overwrite it.
                kind, schema = kind or state.model.kind, state.model.schema_
                made = another_estimator(kind, parameters, state.model)
                chosen = made.parameters_of_model()
                # Also what changes and predictions will need: nothing may be compiled once the new model is served.
                await self._live.threads.compile(partial(prepare_kernels, kind, schema, chosen))
                model = await self._live.threads.build(partial(refit, made, copy, _within(report, 0.1, 0.9)))
                report(0.9)
                while len(later) > _FEW_CHANGES:
                    self._require_same(epoch)
                    commands = list(later)
                    del later[: len(commands)]
                    await self._live.threads.build(partial(apply_held, model, commands))
                # From here on it must not be cut: what is in the journal must be in the model.
                body = FitBody(kind, chosen, classes, max_classes)
                swap = self._swap(Fit(model, body, key), later, epoch)
                version = await self._live.threads.finish(swap)
            except BaseException:
                # Behind whatever a thread still does with them: it cannot be called back.
                await self._live.threads.finish(self._let_go_unless_served(made, copy))
                raise
            finally:
                self._writer.unfollow(later)
                hold.let_go()
            return version, traceless

    async def _let_go_unless_served(self, made: Model | None, copy: SampleStore) -> None:
        """Overwrite what a fit that has failed has made, and the samples that it has begun with."""
        async with self._live.lock.mutation(refusable=False):  # a swap in progress has ended then
            if made is not self._live.state.model:
                await self._live.threads.build(partial(_shred, made, copy))

    async def _swap(self, command: Fit, later: list[Command[Any]], epoch: int) -> int:
        """Apply the last changes to a fitted model, and put it in place of the live one; return its version.

        Raises
        ------
        SupersededError
            When the samples are not those any more that it was fitted on, with the changes since; nothing has changed.
        """
        state, old, model, key = self._live.state, self._live.state.model, command.model, command.key
        async with self._live.lock.mutation(refusable=False):
            self._live.state.require_changeable()
            self._require_same(epoch)
            apply_held(model, later)
            self._writer.unfollow(later)
            if command.body is not None:
                model.set_classes(command.body.classes, command.body.max_classes)
                if command.body.classes == "closed":  # the journal says which
                    command.body = replace(command.body, classes=model.schema_.classes)
            version = state.version + 1
            fields: dict[str, Field] = {"model_version": version, "kind": model.kind}

            def notes() -> bytes:
                noted = self._disk.ledger.event("fit", fields)
                if key is None:
                    return noted
                now_ms, n_samples = self._live.clock.steady_ms(), model.n_samples_
                return with_idempotency(noted, key.record(now_ms=now_ms, model_version=version, n_samples=n_samples))

            await self._writer.record(notes, command)
            await self._live.let_go(old)
            return version

    async def verify(self, report: Report) -> dict[str, Any]:
        """Compare the live model with a fresh fit on the samples held."""
        await self._states.catch_up()
        async with self._live.lock.mutation(refusable=False):
            captured = await self._states.capture_beside()
            copy = await self._live.copied()
            about = {"model_version": self._live.state.version, "n_samples": copy.n_samples_}
            hold = self._live.holders.hold("verify")
        report(0.1)
        # A thread cannot be called back, so that it holds the copy also when the job is cancelled.
        return await self._live.threads.finish(self._verified(copy, captured, about, hold, report))

    async def _verified(
        self,
        copy: Model,
        captured: Captured | None,
        about: dict[str, Any],
        hold: Hold,
        report: Report,
    ) -> dict[str, Any]:
        with hold:
            try:
                found = await self._live.threads.verify(partial(_compared, copy, hold, _within(report, 0.1, 0.95)))
            finally:
                await self._live.threads.verify(partial(let_go_of, copy))
            result = {"ok": found.ok, "live_digest": found.live_digest, "fresh_digest": found.fresh_digest, **about}
            if found.distance_to_fresh is not None:
                result["distance_to_fresh"] = found.distance_to_fresh
            if not found.ok:
                wrong = result["wrong"] = found.wrong[:_MOST_NAMED]
                log.error(
                    "version %d of the model is not sound: %s", about["model_version"], "; ".join(map(_name, wrong))
                )
            self._fingerprints.keep(hold.period, result, ("live_digest", "fresh_digest", "distance_to_fresh", "wrong"))
            await self._states.write_beside(captured, found.live_digest)
            return result

    def _load(self, path: Path) -> _Loaded:
        taken = describe(path)
        # Versions of another history cannot be compared: then everything known to be erased is dropped.
        since = taken.facts.model_version if taken.facts.lineage == self._disk.storage.lineage else -1
        loaded = load_foreign(path)
        return _Loaded(loaded.model, taken, since, _checked(loaded))

    def _require_same(self, epoch: int) -> None:
        if self._live.state.epoch != epoch:
            raise SupersededError("a restore has replaced the samples: begin again")


@dataclass(slots=True)
class _Loaded:
    """A model from a snapshot file."""

    model: Model
    snapshot: Snapshot
    since: int
    checked: str  # how far; see `Restored`


def _name(finding: str) -> str:
    """Return what a finding is about: its numbers are sums over samples, which no log may keep beyond an erasure."""
    return finding.partition(" kept, ")[0].rpartition(": ")[0] or finding


def _compared(copy: Model, hold: Hold, progress: Callable[[int, int], None]) -> Verification:
    """Compare a copy with a fresh fit, tree by tree, until an erasure cannot wait for that; called in a thread."""

    def report(done: int, total: int) -> None:
        hold.require()
        progress(done, total)

    try:
        return copy.verify(report)
    except SupersededError as error:
        raise error.with_traceback(None) from None  # its frames hold the fresh model


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
