"""Plays random histories of what people may ask for on a service with its files, against a plain model of the truth.

An operation adds, rectifies, deletes, restricts, releases, sets a retention period, lets time pass, restores an older
snapshot, fits again, stops the service or kills it. After it the service holds what the truth says: which samples,
whose they are, when they expire, and which of them are restricted. A model that is exact is now and then compared with
a fresh fit on what is neither erased nor restricted; and once in a while no file of the data directory may hold
anything of a sample that is gone.
"""

import asyncio
import random
import re
import shutil
from collections import Counter
from collections.abc import Callable, Coroutine
from copy import deepcopy
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

from oubli.app import logs
from oubli.app.errors import ConflictError, ErasedLatelyError, NotHeldError, OwnerlessError, RestrictedError
from oubli.app.service.build import Limits, Means, Start, compose, open_directory
from oubli.app.service.changes.additions import NewSamples
from oubli.app.service.changes.command import IdempotencyKey
from oubli.app.service.changes.deletions import Replacement
from oubli.app.service.erasure import checkpoint, erasures
from oubli.app.service.jobs.exports import Bundle
from oubli.app.service.service import Service
from oubli.app.times import Clock
from oubli.core.data.schema import Schema, Task
from oubli.core.data.values import Column, ColumnType, LabelType
from oubli.core.estimators import KINDS
from oubli.core.planning import KEEP

SCHEMA = Schema(
    (Column("a", ColumnType.NUMERIC), Column("b", ColumnType.CATEGORICAL), Column("c", ColumnType.BOOLEAN)),
    Task.CLASSIFICATION, LabelType.STRING, label_name="y", named=True,
)  # fmt: skip
PARAMETERS: dict[str, dict[str, Any]] = {
    "forest": {"n_estimators": 4}, "incremental-boosting": {"n_estimators": 3, "max_depth": 2},
    "online-boosting": {"n_estimators": 3, "max_leaf_nodes": 3}, "tree": {},
}  # fmt: skip
N_SUBJECTS = 12
GRACE = 3_600_000  # milliseconds for which an erased id does not come back by itself
_BEGIN = 1_700_000_000_000
_MOST_FILES = 4
_MOST_HELD = 60


@dataclass(frozen=True)
class Person:
    """A sample as it should be held; `request` names the request that added it, `expires` is its own expiry."""

    subject: str | None
    row: tuple[Any, ...]
    label: str
    expires: int | None
    request: str
    at: int  # when it was added
    weight: float


@dataclass
class Truth:
    """What should be held; versions of different lineages cannot be compared."""

    held: dict[str, Person] = field(default_factory=dict)
    marks: dict[str, bool] = field(default_factory=dict)  # restricted subjects, and whether expired samples are kept
    version: int = 1
    seed: int = 0  # of the model
    periods: dict[str, int] = field(default_factory=dict)  # how long samples of subjects are kept
    lineage: int = 0

    def expiry(self, name: str) -> int | None:
        """When a sample has to go: by itself, or when its subject's period is over."""
        one = self.held[name]
        period = self.periods.get(str(one.subject))
        moments = [one.expires, None if period is None else one.at + period]
        return min((at for at in moments if at is not None), default=None)

    def of(self, subject: str) -> list[str]:
        return [name for name, one in self.held.items() if one.subject == subject]

    def is_restricted(self, name: str) -> bool:
        return self.held[name].subject in self.marks

    def live(self) -> dict[str, Person]:
        return {name: one for name, one in self.held.items() if one.subject not in self.marks}

    def due(self, now: int) -> list[str]:
        """What has to go by now."""
        return [
            name
            for name, one in self.held.items()
            if (self.expiry(name) or now + 1) <= now and not self.marks.get(str(one.subject), False)
        ]

    def settle(self) -> None:
        """A restriction ends with the last sample of its subject, and so does a retention period."""
        subjects = {one.subject for one in self.held.values()}
        self.periods = {subject: period for subject, period in self.periods.items() if subject in subjects}
        self.marks = {subject: keep for subject, keep in self.marks.items() if subject in subjects}


class PrivacyPlayer:
    """A service under test, and what it should hold.

    Parameters
    ----------
    kind
        Of the model.
    folder
        For data directories and files; empty.
    seed
        Of all choices.
    """

    def __init__(self, kind: str, folder: Path, seed: int) -> None:
        self.kind = kind
        self.folder = folder
        self.rng = random.Random(seed)
        self.rng_of_weights = random.Random(seed)  # of its own, so that weights change no other choice
        self.truth = Truth()
        self.now = _BEGIN
        self.erased: dict[str, int] = {}  # when each id was erased last, whether it has come back or not
        self.absent: dict[str, None] = {}  # ids that were held and are not
        self.events: list[tuple[int, str, str]] = []  # version, id, and what it was erased by
        self.words: list[tuple[int, str, str, bool]] = []  # version, subject, restricted or released, keep
        self.period_words: list[tuple[int, str, int | None]] = []  # version, subject, milliseconds
        self.files: list[tuple[Path, Truth]] = []  # snapshots that were downloaded, and what they hold
        self.n_ids = 0
        self.n_directories = 0
        self.n_requests = 0
        self.tally: Counter[str] = Counter()
        self.service: Service

    @property
    def is_exact(self) -> bool:
        return self.kind in ("forest", "incremental-boosting")

    # --- the service's lives ----------------------------------------------------------------------

    def new_clock(self, highest: int | None) -> Clock:
        clock = Clock(highest, wall_ms=lambda: self.now, elapsed_ms=lambda: self.now)
        clock.confirm()
        return clock

    def means(self) -> Means:
        """What else a service is composed of."""
        return Means()

    async def begin(self) -> None:
        """Begin with an empty model in a new directory."""
        self.directory = self.folder / "0"
        model = KINDS[self.kind, Task.CLASSIFICATION](**PARAMETERS[self.kind]).start(SCHEMA)
        self.truth.seed = model.seed_
        opened = open_directory(self.directory, new_clock=self.new_clock)
        await self._live(opened.begin(model))

    async def _live(self, start: Start) -> None:
        limits = Limits(readd_grace=GRACE / 1000, max_expiry_share=1.0)
        self.service = compose(start, limits=limits, idle_resolve=False, means=self.means())
        self.service.lifecycle.start()
        while self.service.model.state.phase == "starting":  # noqa: ASYNC110 - asked as anyone would
            await asyncio.sleep(0.001)

    async def _reopen(self) -> None:
        opened = open_directory(self.directory, new_clock=self.new_clock)
        assert opened.snapshots is not None
        await self._live(opened.recover(opened.snapshots.recover()))
        if not self.is_exact:  # what finishes erasures fits these again
            self.truth.version = max(self.truth.version, self.service.model.state.version)
        assert self.service.model.state.version == self.truth.version, "the version moved"

    async def stop(self) -> None:
        """Stop as asked, and start again."""
        await self.service.lifecycle.stop()
        assert self.service.lifecycle.stop_error is None
        await self._reopen()

    async def kill(self) -> None:
        """Continue with the files as they are."""
        old, tasks = self.service, self.service.outbox.deliveries._tasks
        async with old.model.lock.mutation(refusable=False):
            await old.disk.database.read(lambda _: None)  # nothing is being written to any file then
            self.n_directories += 1
            directory = shutil.copytree(self.directory, self.folder / str(self.n_directories))
            for task in tasks:  # nothing is told any more either
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        await old.outbox.deliveries.stop()
        await old.jobs.board.close()
        await old.model.threads.settle()
        old.model.threads.close()
        old.lifecycle.close()
        shutil.rmtree(self.directory)
        self.directory = directory
        await self._reopen()

    # --- choosing ---------------------------------------------------------------------------------

    def subject(self, *, certain: bool = False) -> str | None:
        if not certain and self.rng.random() < 0.15:
            return None
        return f"subject-{self.rng.randrange(N_SUBJECTS):02d}"

    def content(self) -> tuple[tuple[Any, ...], str]:
        row = (
            self.rng.choice([None, self.rng.randrange(6), self.rng.random()]),
            self.rng.choice(["red", "green", "blue", None]),
            self.rng.choice([True, False, None]),
        )
        return row, self.rng.choice(["yes", "no", "no", f"rare-{self.rng.randrange(4)}"])

    def weight(self) -> float:
        return self.rng_of_weights.choice([1.0, 1.0, 1.0, 2.0, 0.5])

    def expiry(self) -> int | None:
        return self.now + self.rng.randrange(1, 4) * 1_000_000 if self.rng.random() < 0.3 else None

    def some_ids(self, n: int) -> list[str]:
        """Ids that are held, that are gone, and one that never was."""
        known = [*self.truth.held, *list(self.absent)[-20:], "never"]
        return self.rng.sample(known, min(n, len(known)))

    def some_subjects(self) -> list[str]:
        return list({str(self.subject(certain=True)) for _ in range(self.rng.randrange(1, 4))})

    async def refused(self, work: Coroutine[Any, Any, Any], error: type[Exception]) -> None:
        """See that something is refused, and that nothing has changed."""
        with pytest.raises(error):
            await work
        self.tally[f"refused: {error.__name__}"] += 1

    # --- operations: samples ----------------------------------------------------------------------

    async def add(self) -> None:
        """Add samples: new ones, some that were erased or are held, some that are restricted."""
        n, readd = self.rng.randrange(1, 4), self.rng.random() < 0.4
        self.n_requests += 1
        request = f"request-{self.n_requests:07d}"
        samples: dict[str, Person] = {}
        for _ in range(n):
            if self.rng.random() < 0.75 or not (self.absent or self.truth.held):
                self.n_ids += 1
                name = f"person-{self.n_ids:07d}"
            else:
                name = self.rng.choice([*list(self.absent)[-20:], *self.truth.held])
            row, label = self.content()
            one = Person(self.subject(), row, label, self.expiry(), request, self.now, self.weight())
            if name in self.truth.held and self.rng.random() < 0.7:
                one = replace(self.truth.held[name], request=request)
            samples[name] = one
        subjects = [one.subject for one in samples.values() if one.subject is not None]
        periods = {self.rng.choice(subjects): self.period()} if subjects and self.rng.random() < 0.2 else {}
        sent = NewSamples(
            [list(one.row) for one in samples.values()], [one.label for one in samples.values()], list(samples),
            [one.subject for one in samples.values()], [one.expires for one in samples.values()],
            [readd] * len(samples), periods,
            {i: one.weight for i, one in enumerate(samples.values()) if one.weight != 1},
        )  # fmt: skip
        token = logs.request_id.set(request)
        try:
            await self._add(samples, sent, readd)
        finally:
            logs.request_id.reset(token)

    async def _add(self, samples: dict[str, Person], sent: NewSamples, readd: bool) -> None:
        truth, work = self.truth, self.service.changes.add(sent)
        held = {name: truth.held[name] for name in samples if name in truth.held}
        if any(one.subject in truth.marks for one in (*held.values(), *samples.values())):
            await self.refused(work, RestrictedError)
            return
        if any(not _is_same(samples[name], known) for name, known in held.items()):
            await self.refused(work, ConflictError)
            return
        new = {name: one for name, one in samples.items() if name not in held}
        if not readd and any(self.erased.get(name, -GRACE) > self.now - GRACE for name in new):
            await self.refused(work, ErasedLatelyError)
            return
        added = await work
        assert (added.n_new, added.ids) == (len(new), list(samples))
        truth.held.update(new)
        for name in new:
            self.absent.pop(name, None)
        is_other = any(truth.periods.get(subject) != period for subject, period in sent.retentions.items())
        truth.periods |= sent.retentions
        self.changed(bool(new) or is_other, added.model_version)

    async def rectify(self) -> None:
        """Give a sample other content, another subject, another expiry."""
        (name,) = self.some_ids(1)
        known = self.truth.held.get(name)
        row, label = self.content()
        if known is not None and self.rng.random() < 0.3:
            row, label = known.row, known.label
        subject: Any = self.subject() if self.rng.random() < 0.4 else KEEP
        if known is not None and self.truth.is_restricted(name) and self.rng.random() < 0.2:
            subject = None
        expires: Any = self.expiry() if self.rng.random() < 0.3 else KEEP
        weight: Any = self.weight() if self.rng_of_weights.random() < 0.3 else KEEP
        work = self.service.changes.replace(Replacement(name, list(row), label, subject, expires, weight))
        if known is None:
            await self.refused(work, NotHeldError)
            return
        if self.truth.is_restricted(name) and subject is None:
            await self.refused(work, OwnerlessError)
            return
        receipt = await work
        one = replace(known, row=row, label=label)
        one = one if subject is KEEP else replace(one, subject=subject)
        one = one if expires is KEEP else replace(one, expires=expires)
        one = one if weight is KEEP else replace(one, weight=weight)
        is_changed = not _is_same(one, known) or one.expires != known.expires
        assert (receipt.kind, receipt.unlearned) == ("rectification", int(is_changed))
        before = known.subject in self.truth.marks, one.subject in self.truth.marks
        self.tally[f"rectified: {before}"] += 1
        self.truth.held[name] = one
        self.truth.settle()
        self.changed(is_changed, receipt.model_version)
        if is_changed:
            self.events.append((self.truth.version, name, "rectification"))

    async def delete_ids(self) -> None:
        names = self.some_ids(self.rng.randrange(1, 4))
        receipt = await self.service.changes.delete(ids=names, key=self.key())
        self.gone([name for name in names if name in self.truth.held], receipt, len(names))

    async def delete_subjects(self) -> None:
        subjects = self.some_subjects()
        receipt = await self.service.changes.delete(subjects=subjects, key=self.key())
        absent = sum(not self.truth.of(subject) for subject in subjects)
        self.gone([name for subject in subjects for name in self.truth.of(subject)], receipt, len(subjects), absent)

    def gone(self, names: list[str], receipt: Any, requested: int, absent: int | None = None) -> None:
        absent = requested - len(names) if absent is None else absent
        if not names:  # perhaps the receipt of an earlier erasure of exactly these
            assert receipt.requested == requested
            assert receipt.model_version <= self.truth.version
            return
        assert (receipt.unlearned, receipt.requested, receipt.absent) == (len(names), requested, absent)
        self.tally["erased while restricted"] += sum(map(self.truth.is_restricted, names))
        self.forget(names, "deletion")
        self.changed(bool(names), receipt.model_version)
        self.events += [(self.truth.version, name, "deletion") for name in names]

    def forget(self, names: list[str], why: str) -> None:
        for name in names:
            del self.truth.held[name]
            self.absent[name] = None
            self.erased[name] = self.now
        self.tally[f"forgotten: {why}"] += len(names)
        self.truth.settle()

    def key(self) -> IdempotencyKey:
        """A key of its own: the request is none that was answered before."""
        self.n_requests += 1
        return IdempotencyKey(f"{self.n_requests:032x}", f"{self.n_requests:032x}", 0)

    def changed(self, is_changed: bool, version: int) -> None:
        self.truth.version += int(is_changed)
        if not self.is_exact and version > self.truth.version:
            self.truth.version = version
        assert version == self.truth.version == self.service.model.state.version

    # --- operations: restriction ------------------------------------------------------------------

    async def restrict(self) -> None:
        subjects, keep = self.some_subjects(), self.rng.random() < 0.4
        truth = self.truth
        moved = [name for s in subjects if s not in truth.marks for name in truth.of(s)]
        is_changed = any(truth.of(s) and truth.marks.get(s) != keep for s in subjects)
        made = await self.service.changes.restrict(subjects, keep=keep)
        absent = sum(not truth.of(s) for s in subjects)
        assert (made.samples, made.absent, made.requested) == (len(moved), absent, len(subjects))
        truth.marks.update((s, keep) for s in subjects if truth.of(s))
        self.changed(is_changed, made.model_version)
        self.words += [(truth.version, s, "restricted", keep) for s in subjects]
        self.tally["restricted samples"] += len(moved)

    async def release(self) -> None:
        """Release; what is kept although its time is over goes first."""
        subjects, truth = self.some_subjects(), self.truth
        known = [s for s in subjects if s in truth.marks]
        names = [name for s in known for name in truth.of(s)]
        expired = [name for name in names if (truth.expiry(name) or self.now + 1) <= self.now]
        made = await self.service.changes.release(subjects)
        if expired:
            self.forget(expired, "expiry")
            truth.version += 1
            self.events += [(truth.version, name, "expiry") for name in expired]
            self.tally["released too late"] += len(expired)
        left = [s for s in known if s in truth.marks]
        assert (made.samples, made.expired) == (len(names) - len(expired), len(expired))
        assert (made.absent, made.requested) == (len(subjects) - len(left), len(subjects))
        for s in left:
            del truth.marks[s]
        self.changed(bool(left), made.model_version)
        self.words += [(truth.version, s, "released", False) for s in subjects]
        self.tally["released samples"] += made.samples

    def let_pass(self, milliseconds: int) -> None:
        self.now += milliseconds

    def period(self) -> int:
        return self.rng.randrange(1000, 4000) * 1000

    async def retain(self) -> None:
        """Say how long samples of subjects are kept, or that nothing is said."""
        subjects, truth = self.some_subjects(), self.truth
        period = self.period() if self.rng.random() < 0.7 else None
        made = await self.service.changes.retain(subjects, None if period is None else period // 1000)
        held = {subject: truth.of(subject) for subject in subjects if truth.of(subject)}
        assert (made.samples, made.requested) == (sum(map(len, held.values())), len(subjects))
        assert made.absent == len(subjects) - len(held)
        is_changed = any(truth.periods.get(subject) != period for subject in held)
        for subject in held:
            truth.periods.pop(subject, None)
            if period is not None:
                truth.periods[subject] = period
        self.changed(is_changed, made.model_version)
        self.period_words += [(truth.version, subject, period) for subject in subjects]

    async def wait(self) -> None:
        """Let some time pass; what has expired goes."""
        self.let_pass(self.rng.randrange(1, 900_000))
        due = self.truth.due(self.now)
        await self.service.erasure.retention.sweep()
        if due:
            self.tally["expired while restricted"] += sum(map(self.truth.is_restricted, due))
            self.forget(due, "expiry")
            self.changed(True, self.service.model.state.version)
            self.events += [(self.truth.version, name, "expiry") for name in due]

    # --- operations: the model as a whole ---------------------------------------------------------

    async def export(self) -> None:
        """See that a bundle has all of a subject."""
        subject = str(self.subject(certain=True))
        bundle = await self.service.jobs.exporter.ask(subject)
        assert isinstance(bundle, Bundle)
        names = self.truth.of(subject)
        assert sorted(one.sample.id for one in bundle.samples) == sorted(names)
        for one in bundle.samples:
            known = self.truth.held[one.sample.id]
            assert one.addition is not None
            assert (one.addition.request, one.sample.subject) == (known.request, subject)
            assert (one.sample.restricted_ms is not None) == (subject in self.truth.marks)

    async def download(self) -> None:
        """Keep a snapshot for later."""
        snapshot = await self.service.erasure.checkpointer.snapshot()
        self.n_directories += 1
        path = self.folder / f"file-{self.n_directories}"
        shutil.copyfile(snapshot.path, path)
        self.files.append((path, deepcopy(self.truth)))
        if len(self.files) > _MOST_FILES:
            self.files.pop(self.rng.randrange(len(self.files)))[0].unlink()

    async def restore(self) -> None:
        """Go back to an older snapshot, less what is gone since, and with the restrictions of now."""
        if not self.files:
            await self.download()
        path, then = self.rng.choice(self.files)
        made = await self.service.recovery.restore(path)
        dropped = self.go_back(then, self.truth)
        assert made["dropped"] == dropped, (made["dropped"], dropped)
        assert made["n_restricted"] == len(self.truth.held) - len(self.truth.live())
        self.changed(True, made["model_version"])
        self.tally["restored restricted"] += made["n_restricted"]

    def go_back(self, then: Truth, old: Truth) -> dict[str, int]:
        """Have the truth of a backup again, less what is gone since; return how much that is.

        Of those of whom something is held by `old`, what that says of restrictions and periods holds, and else the
        ledger's last word.
        """
        truth, since = deepcopy(then), then.version if then.lineage == old.lineage else -1
        kinds: dict[str, str] = {}
        for version, name, kind in self.events:
            if version > since and name in truth.held and (kind != "rectification" or name not in kinds):
                kinds[name] = kind
        words = {subject: (word, keep) for version, subject, word, keep in self.words if version > since}
        periods = {subject: period for version, subject, period in self.period_words if version > since}
        for subject in {one.subject for one in truth.held.values() if one.subject is not None}:
            word, keep = words.get(subject, ("", False))
            is_held = bool(old.of(subject))
            if subject in old.marks:
                truth.marks[subject] = old.marks[subject]
            elif word == "restricted" and (subject in truth.marks or not is_held):
                truth.marks[subject] = keep
            elif word == "released" and since >= 0:  # of another history: its restrictions were not released here
                truth.marks.pop(subject, None)
            if is_held or subject in periods:
                period = old.periods.get(subject) if is_held else periods[subject]
                truth.periods.pop(subject, None)
                if period is not None:
                    truth.periods[subject] = period
        for name in truth.due(self.now):
            kinds.setdefault(name, "expiry")
        for name in kinds:
            del truth.held[name]
        truth.settle()
        truth.version, truth.lineage = old.version, old.lineage
        lost, self.truth = self.truth, truth
        self.absent.update(dict.fromkeys(name for name in lost.held if name not in truth.held))
        for name in truth.held:
            self.absent.pop(name, None)
        counts = Counter(kinds.values())
        return {"erased": counts["deletion"], "rectified": counts["rectification"], "expired": counts["expiry"]}

    async def fit(self) -> None:
        """Fit again with another seed."""
        seed = self.rng.randrange(1000)
        parameters = {} if self.kind == "tree" else {"random_state": seed}
        await self.service.recovery.fit(self.kind, parameters, lambda _: None)
        self.truth.seed = self.service.model.state.model.seed_
        self.changed(True, self.service.model.state.version)

    async def verify(self) -> None:
        result = await self.service.recovery.verify(lambda _: None)
        assert result["ok"], result
        assert result["n_samples"] == len(self.truth.live())
        self.compare()

    # --- comparing --------------------------------------------------------------------------------

    def compare(self) -> None:
        """Compare an exact model with a fresh fit on what is neither erased nor restricted."""
        if not self.is_exact:
            return
        live = self.truth.live()
        fresh = KINDS[self.kind, Task.CLASSIFICATION](**PARAMETERS[self.kind], random_state=self.truth.seed)
        names = self.rng.sample(sorted(live), len(live))
        if names:
            labels, weights = [live[n].label for n in names], [live[n].weight for n in names]
            fresh.fit([list(live[n].row) for n in names], labels, ids=names, sample_weight=weights, schema=SCHEMA)
        else:
            fresh.start(SCHEMA)
        assert self.service.model.state.model.digest() == fresh.digest(), "the digest is not that of a fresh fit"
        self.tally["digests"] += 1

    def check(self) -> None:
        """See that all is held as it should be."""
        store = self.service.model.state.model.samples_
        restricted = store.restricted
        truth = self.truth
        assert {*store.ids(), *(restricted.ids() if len(restricted) else ())} == truth.held.keys()
        assert {s: mark.keeps for s, mark in restricted.marks.items()} == truth.marks
        for name, one in truth.held.items():
            found, _ = self.service.questions.get(name)
            assert (found.subject, found.expires_ms) == (one.subject, truth.expiry(name)), name
            assert found.weight == one.weight, name
            holder = store.holding(name)
            assert holder is not None
            assert holder.belongings(name).expires_ms == one.expires, name
            assert (found.restricted_ms is not None) == restricted.contains(name) == (one.subject in truth.marks), name
        assert self.service.model.state.model.n_samples_ == len(truth.live())

    def check_content(self) -> None:
        """Compare what is held under each id, and look into every structure."""
        for name, one in self.truth.held.items():
            store = self.service.model.state.model.samples_.holding(name)
            assert store is not None
            assert store.same_content(name, store.prepare([list(one.row)], [one.label], None, one.weight), 0), name
        self.service.model.state.model.check_invariants()

    async def search_files(self) -> None:
        """Finish all erasures; then no file may hold the id or the request of a sample that is gone."""
        await self.service.erasure.checkpointer.write_snapshot(erase=True)
        await self.service.erasure.erasures.wait()
        await self.service.disk.database.flush()
        requests = {one.request for one in self.truth.held.values()}
        gone = [name.encode() for name in self.absent]
        content = b"".join(path.read_bytes() for path in sorted(self.directory.rglob("*")) if path.is_file())
        assert not [name for name in gone if name in content], "an erased id is in a file"
        nobody = [name for i in range(N_SUBJECTS) if not self.truth.of(name := f"subject-{i:02d}")]
        assert not [name for name in nobody if name.encode() in content], "an erased subject is in a file"
        found = {text.decode() for text in re.findall(rb"request-.{7}", content, re.DOTALL)}
        assert found <= requests, "the request of erased samples is in a file"
        assert all(name.encode() in content for name in self.truth.held), "the search is blind"
        self.tally["searches of files"] += 1

    # --- playing ----------------------------------------------------------------------------------

    def operations(self) -> tuple[tuple[int, Callable[[], Coroutine[Any, Any, None]]], ...]:
        is_full = len(self.truth.held) > _MOST_HELD
        return (
            (6 if is_full else 30, self.add), (14, self.rectify), (12, self.delete_ids),
            (8 if is_full else 2, self.delete_subjects), (10, self.restrict), (12, self.release), (6, self.retain),
            (8, self.wait), (3, self.export), (2, self.download), (2, self.restore), (1, self.fit), (1, self.verify),
            (1, self.stop), (2, self.kill),
        )  # fmt: skip

    @classmethod
    def history(cls, kind: str, folder: Path, seed: int, n: int) -> Counter[str]:
        """Play a history of so many operations; return what has happened in it."""
        player = cls(kind, folder, seed)
        # Expiry, snapshots and erasures happen when the history says so.
        with patch.object(erasures, "_TICK", 1e6), patch.object(checkpoint, "_TICK", 1e6):
            try:
                asyncio.run(player.play(n))
            except BaseException as error:
                error.add_note(f"the history of a {cls.__name__} of seed {seed} of a {kind}")
                raise
        return player.tally

    async def play(self, n: int) -> None:
        """Do so many operations."""
        await self.begin()
        try:
            for number in range(n):
                weights, choices = zip(*((weight, one) for weight, one in self.operations()), strict=True)
                (chosen,) = self.rng.choices(choices, weights)
                self.tally[chosen.__name__] += 1
                try:
                    await chosen()
                    self.check()
                    if not self.is_exact:
                        self.truth.version = self.service.model.state.version
                    if number % 25 == 0 or chosen.__name__ in ("restore", "kill", "stop"):
                        self.compare()
                        self.check_content()
                    if number % 250 == 249:
                        await self.search_files()
                except BaseException as error:
                    error.add_note(f"operation {number}: {chosen.__name__}")
                    raise
            self.compare()
            await self.search_files()
        finally:
            await self.service.lifecycle.stop()


def _is_same(one: Person, other: Person) -> bool:
    """Whether a sample that is sent is the one held; an expiry that is left out is not compared."""
    same = (one.subject, one.row, one.label, one.weight) == (other.subject, other.row, other.label, other.weight)
    return same and (one.expires is None or one.expires == other.expires)
