"""Another model in place of the live one: restored from a snapshot, or fitted anew with other parameters.

Both are built in a thread beside the live model, made durable, and swapped in with one step of the event loop.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from oubli.app.errors import SupersededError, UnavailableError
from oubli.app.ledger.database import AuditStore
from oubli.app.ledger.ledger import Auditor, Field
from oubli.app.ledger.notes import with_idempotency
from oubli.app.service.checkpoint import Upkeep
from oubli.app.service.compiling import prepare_kernels, prepare_model_file
from oubli.app.service.folding import Folder
from oubli.app.service.holders import Hold, Holders
from oubli.app.service.idempotency import Claim
from oubli.app.service.jobs import Report
from oubli.app.service.lock import Turns
from oubli.app.service.memory import let_go_of
from oubli.app.service.plans import Plan, make_held
from oubli.app.service.restoration import drop_gone, dropped_fields
from oubli.app.service.results import Restored
from oubli.app.service.state import Live
from oubli.app.service.threads import Workers
from oubli.app.service.training import another_estimator, refit
from oubli.app.service.writer import Committer
from oubli.app.storage.keeper import Keeper
from oubli.app.storage.models import LoadedModel, ServedModel, load_sent, read_notes
from oubli.app.storage.records import FitBody, encode
from oubli.app.storage.snapshots import Snapshot, describe
from oubli.core.errors import FileError
from oubli.core.samples.store import SampleStore
from oubli.core.verification import Verification

_LONGEST_CHECK = 5.0  # seconds of a restore for comparing with a fresh fit; changes wait meanwhile
_FEW_CHANGES = 32  # are made on the event loop, while nobody else changes anything


@dataclass(slots=True)
class _Filtered:
    """A model from a snapshot file, less what must not come back."""

    model: ServedModel
    snapshot: Snapshot
    dropped: dict[str, int]


@dataclass(frozen=True, slots=True)
class _Fitted:
    """A model that was fitted anew and swapped in: its version, and the unfinished erasures it has no trace of."""

    version: int
    traceless: list[str]


class Replacing:
    """Builds models aside and swaps them in.

    Parameters
    ----------
    live
        What is replaced.
    keeper, committer, upkeep
        Make it durable.
    auditor, folder
        The ledger: what was erased, and the entry of what is done here.
    turns, workers
        Who may touch the model, and the threads.
    now_ms
        The time, in milliseconds since 1970.
    steady_ms
        The time that nobody can set, for periods; see `Clock.steady_ms`.
    holders
        Told of samples that are held by what goes on here.
    """

    def __init__(
        self,
        live: Live,
        keeper: Keeper,
        committer: Committer,
        upkeep: Upkeep,
        auditor: Auditor,
        folder: Folder,
        turns: Turns,
        workers: Workers,
        now_ms: Callable[[], int],
        steady_ms: Callable[[], int],
        holders: Holders,
    ) -> None:
        self._live = live
        self._keeper = keeper
        self._committer = committer
        self._upkeep = upkeep
        self._auditor = auditor
        self._folder = folder
        self._turns = turns
        self._workers = workers
        self._now_ms = now_ms
        self._steady_ms = steady_ms
        self._holders = holders
        self._one_fit = asyncio.Lock()

    async def restore(self, path: Path) -> Restored:
        """Replace the model by that of a snapshot file, less what was erased, rectified or expired since.

        Raises
        ------
        FileError
            When the file is not a sound model file; nothing has changed.
        StorageError
            When it cannot be written; nothing has changed.
        """
        # Before its turn, for which others would wait.
        await self._workers.compile(partial(prepare_model_file, path))
        async with self._turns.mutation():
            self._require_sound()
            with self._turns.reading():
                loaded = await self._workers.save(partial(self._load, path))
                gone = await self._folder.read(loaded.erased_since)
                filtered = await self._workers.save(partial(loaded.without, gone, self._now_ms()))
            live, old = self._live, self._live.model.samples_
            store = filtered.model.samples_
            n_lost = sum(not store.contains(name) for name in old.ids())
            dropped = filtered.dropped
            notes = partial(
                self._auditor.event,
                "restore",
                {
                    "model_version": live.version + 1,
                    "snapshot_model_version": filtered.snapshot.model_version,
                    **dropped_fields(dropped),
                    "no_longer_held": n_lost,
                },
            )
            next_id = max(live.next_id, old.next_id, filtered.snapshot.facts.next_id, store.next_id)
            epoch = new_epoch()
            await self._upkeep.replace_all(filtered.model, notes, epoch=epoch, next_id=next_id)
            return Restored(
                snapshot_model_version=filtered.snapshot.model_version,
                n_samples=filtered.model.n_samples_,
                dropped_erased=dropped["deletion"],
                dropped_rectified=dropped["rectification"],
                dropped_expired=dropped["expiry"],
                no_longer_held=n_lost,
                model_version=live.version,
                verified=loaded.checked,
            )

    async def fit(
        self, kind: str, parameters: dict[str, Any], report: Report, *, claim: Claim | None = None
    ) -> dict[str, Any]:
        """Fit another model on the samples held; mutations meanwhile are made on both.

        What was claimed is committed with the new model.

        Raises
        ------
        InputError
            When the parameters do not fit together.
        """
        fitted = await self._fit(kind, parameters, report, claim)
        model = self._live.model
        return {"model_version": fitted.version, "n_samples": model.n_samples_, "parameters": model.get_params()}

    async def rebuild(self) -> list[str]:
        """Fit the live model anew as it is; return the receipts of unfinished erasures that it then has no trace of.

        Those are the erasures from before: what is unlearned meanwhile leaves its traces in the new model too.
        """
        return (await self._fit(None, {}, _nobody)).traceless

    async def _fit(
        self, kind: str | None, parameters: dict[str, Any], report: Report, claim: Claim | None = None
    ) -> _Fitted:
        # One at a time: the second must begin with what the first has put in place.
        async with self._one_fit:
            return await self._fit_alone(kind, parameters, report, claim)

    async def _fit_alone(
        self, kind: str | None, parameters: dict[str, Any], report: Report, claim: Claim | None
    ) -> _Fitted:
        live = self._live
        async with self._turns.mutation(refusable=False):
            self._require_sound()
            meanwhile = self._committer.follow()
            traceless, epoch = list(live.pending), live.epoch
            try:
                copy = await self._upkeep.cleaned(_wiped_samples)
            except BaseException:
                self._committer.unfollow(meanwhile)
                raise
            hold = self._holders.hold("fit", is_served_next=True)
        try:
            report(0.05)
            # Nothing of the live model is read after this: a restore may let go of it meanwhile.
            kind, schema = kind or live.model.kind, live.model.schema_
            estimator = another_estimator(kind, parameters, live.model)
            chosen = estimator.get_params()
            # Also what changes and predictions will need: nothing may be compiled once the new model is served.
            await self._workers.compile(partial(prepare_kernels, kind, schema, chosen))
            model = await self._workers.build(partial(refit, estimator, copy))
            report(0.9)
            while len(meanwhile) > _FEW_CHANGES:
                self._require_same(epoch)
                plans = list(meanwhile)
                del meanwhile[: len(plans)]
                await self._workers.build(partial(make_held, model, plans))
            # From here on it must not be cut: what is in the journal must be in the model.
            swap = self._swap(model, FitBody(kind, chosen), meanwhile, epoch, claim)
            version = await self._workers.finish(swap)
        finally:
            self._committer.unfollow(meanwhile)
            hold.let_go()
        return _Fitted(version, traceless)

    async def _swap(
        self, model: ServedModel, fitted: FitBody, meanwhile: list[Plan[Any]], epoch: int, claim: Claim | None
    ) -> int:
        """Make the last changes on a fitted model, and put it in place of the live one; return its version.

        Raises
        ------
        SupersededError
            When the samples are not those any more that it was fitted on, with the changes since; nothing has changed.
        """
        live, old = self._live, self._live.model

        def swap() -> None:
            live.model = model

        async with self._turns.mutation(refusable=False):
            self._require_sound()
            self._require_same(epoch)
            make_held(model, meanwhile)
            self._committer.unfollow(meanwhile)
            version = live.version + 1
            fields: dict[str, Field] = {"model_version": version, "kind": fitted.kind}

            def notes() -> bytes:
                noted = self._auditor.event("fit", fields)
                if claim is None:
                    return noted
                now_ms, n_samples = self._steady_ms(), model.n_samples_
                return with_idempotency(noted, claim.record(now_ms=now_ms, model_version=version, n_samples=n_samples))

            await self._committer.record(notes, body=encode(fitted), changes=1, then=swap)
            await self._upkeep.let_go(old)
            return version

    async def verify(self, report: Report) -> dict[str, Any]:
        """Compare the live model with a fresh fit on the samples held."""
        async with self._turns.mutation(refusable=False):
            copy = await self._upkeep.copied()
            version, n_samples = self._live.version, copy.n_samples_
            hold = self._holders.hold("verify")
        report(0.1)
        # A thread cannot be called back, so that it holds the copy also when the job is cancelled.
        result = await self._workers.finish(self._verified(copy, hold))
        distance = {} if result.distance_to_fresh is None else {"distance_to_fresh": result.distance_to_fresh}
        return {
            **distance,
            "ok": result.ok,
            "live_digest": result.live_digest,
            "fresh_digest": result.fresh_digest,
            "model_version": version,
            "n_samples": n_samples,
        }

    async def _verified(self, copy: ServedModel, hold: Hold) -> Verification:
        with hold:
            try:
                return await self._workers.build(copy.verify)
            finally:
                await self._workers.build(partial(let_go_of, copy))

    def _load(self, path: Path) -> _Loaded:
        taken = describe(path, read_notes(path))
        # Versions of another history cannot be compared: then everything known to be erased is dropped.
        since = taken.facts.model_version if taken.facts.lineage == self._keeper.lineage else -1
        loaded = load_sent(path)
        return _Loaded(loaded.model, taken, since, _checked(loaded))

    def _require_same(self, epoch: int) -> None:
        if self._live.epoch != epoch:
            raise SupersededError("a restore replaced the samples meanwhile: begin again")

    def _require_sound(self) -> None:
        if self._live.failed:
            raise UnavailableError("failed")


@dataclass(slots=True)
class _Loaded:
    """A model from a snapshot file."""

    model: ServedModel
    snapshot: Snapshot
    since: int
    checked: str  # how far, see `outcomes.Restored`

    def erased_since(self, store: AuditStore) -> dict[str, str]:
        """Return those of its samples that were erased after it was written, and how."""
        return dict(store.erased_since(self.model.samples_.ids(), self.since))

    def without(self, gone: dict[str, str], now_ms: int) -> _Filtered:
        """Drop samples, and those that have expired."""
        return _Filtered(self.model, self.snapshot, drop_gone(self.model, gone, now_ms))


def _wiped_samples(model: ServedModel) -> SampleStore:
    """Overwrite what the model keeps of samples that have left, then copy those that it holds."""
    model.wipe()
    return model.samples_.copy()


def _checked(loaded: LoadedModel) -> str:
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


def _nobody(share: float) -> None:
    """Take in progress that nobody follows."""


def new_epoch() -> int:
    """Name an order of samples; cursors of another order are refused."""
    return secrets.randbits(48)
