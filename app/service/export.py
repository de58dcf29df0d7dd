"""Access and portability: all that is held about a subject, in one bundle.

What is short is answered and not kept. What is long is a job, whose bundle is kept until somebody asks for it, other
bundles take its place, or samples are erased: a bundle holds samples, and an erasure forgets it like all that does. A
bundle of which a sample has gone is not given out any more, also before the erasure is finished.
"""

from __future__ import annotations

import uuid
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, cast

from oubli.app.service.answers import KeptAnswers
from oubli.app.service.commands.held import held_of
from oubli.app.service.influence import Question
from oubli.app.service.results import Bundle, Exported

if TYPE_CHECKING:
    from oubli.app.service.holders import Hold, Holders
    from oubli.app.service.influence import InfluenceRanker
    from oubli.app.service.jobs import Job, JobBoard, Report
    from oubli.app.service.lock import ModelLock
    from oubli.app.service.receipts import Receipts
    from oubli.app.service.state import ModelState
    from oubli.app.threads import Threads
    from oubli.app.times import Clock
    from oubli.core.samples.store import SampleStore

_FEW = 500  # samples that are collected on the event loop
_SLICE = 500  # samples that are collected between two looks whether the bundle may still be made
_MOST_KEPT = 10  # bundles
MOST_EXPLAINED = 100  # samples whose predictions are asked about, where influence is


@dataclass(slots=True)
class _Asked:
    """A request for a bundle; its subject is None once it must hold nothing any more."""

    subject: str | None
    explains: bool
    hold: Hold

    def named(self) -> str:
        """Return the subject; raises `SupersededError` when samples were erased meanwhile."""
        self.hold.require()
        return cast("str", self.subject)


@dataclass(eq=False, repr=False)
class Exporter:
    """Makes bundles.

    Parameters
    ----------
    state
        What is held.
    lock, threads
        Who may touch the model, and the threads.
    jobs
        Long requests.
    holders
        Told of bundles that are kept, and of those that are being made.
    receipts
        Know what became of earlier requests.
    influence
        Answers questions about influence.
    clock
        Tells the time.
    """

    _state: ModelState
    _lock: ModelLock
    _threads: Threads
    _jobs: JobBoard
    _holders: Holders
    _receipts: Receipts
    _influence: InfluenceRanker
    _clock: Clock
    _kept: KeptAnswers[Bundle] = field(init=False)

    def __post_init__(self) -> None:
        self._kept = KeptAnswers("bundles", _MOST_KEPT, self._holders)

    async def ask(self, subject: str, *, explains: bool = False) -> Bundle | Job:
        """Make a bundle, or begin a job when that takes long.

        Parameters
        ----------
        subject
            Whom it is about; when nothing is held of it, the bundle says so.
        explains
            Whether to ask for the influence of the samples.

        Raises
        ------
        UnfitError
            When there is no influence for the kind of the model.
        SupersededError
            When samples were erased meanwhile.
        """
        store = self._state.model.samples_
        question = self._question(store, subject) if explains else None
        if len(held_of(store, subject)) > _FEW or (question is not None and self._influence.is_long(question)):
            return self._job(subject, explains)
        return await self._threads.finish(self._make_held(_Asked(subject, explains, self._holders.hold("bundles"))))

    def begin(self, subject: str) -> Job:
        """Begin a job that makes a bundle and keeps it, also when it is short; see `ask`."""
        return self._job(subject, explains=False)

    def kept(self, name: str) -> Bundle | None:
        """Return the bundle that a job has made; None when it is not known any more, or a sample of it is gone."""
        bundle, store = self._kept.get(name), self._state.model.samples_
        if bundle is None or set(held_of(store, bundle.subject)).issuperset(one.sample.id for one in bundle.samples):
            return bundle
        self._kept.drop(name)
        return None

    def _job(self, subject: str, explains: bool) -> Job:
        asked = _Asked(subject, explains, self._holders.hold("bundles", lambda: end()))
        waiting = [asked]

        def end() -> None:
            if waiting:  # it has not begun: nobody else lets go
                waiting.clear()
                asked.subject = None
                asked.hold.let_go()

        async def work(report: Report) -> dict[str, Any]:
            asked.named()
            waiting.clear()
            report(0.05)
            period = asked.hold.period
            bundle = await self._threads.finish(self._make_held(asked))
            name = str(uuid.uuid4())
            self._kept.keep(name, period, bundle)
            return {"export": name, "n_samples": len(bundle.samples), "model_version": bundle.model_version}

        try:
            return self._jobs.start("export", work)
        except BaseException:
            asked.hold.let_go()
            raise

    async def _make_held(self, asked: _Asked) -> Bundle:
        with asked.hold:
            bundle = await self._make(asked)
            asked.named()
            asked.subject = None
            return bundle

    async def _make(self, asked: _Asked) -> Bundle:
        subject, state = asked.named(), self._state
        names = held_of(state.model.samples_, subject)
        if len(names) <= _FEW:
            found, version, model = self._collect(state.model.samples_, names, asked), state.version, state.model
        else:
            async with self._lock.long_read(refusable=False):
                await self._lock.pass_turnstile()
                version, model, names = state.version, state.model, held_of(state.model.samples_, subject)
                with self._lock.reading():
                    found = await self._threads.ask(partial(self._collect, model.samples_, names, asked))
        kind, guarantee, exported_ms = model.kind, model.guarantee, self._clock.now_ms()
        question = self._question(model.samples_, subject) if asked.explains else None
        del model
        influence = None if question is None else await self._influence.answer(question)
        receipts = await self._receipts.about(subject, [one.sample.id for one in found])
        return Bundle(subject, exported_ms, version, kind, guarantee, found, receipts, influence)

    def _collect(self, store: SampleStore, names: list[str], asked: _Asked) -> list[Exported]:
        """Read samples; may be called in a thread."""
        found = []
        for start in range(0, len(names), _SLICE):
            asked.named()
            for name in names[start : start + _SLICE]:
                if store.restricted.holds(name):
                    restricted = store.restricted
                    found.append(Exported(restricted.get(name), restricted.samples.addition(name)))
                else:
                    found.append(Exported(store.get(name), store.addition(name)))
        return found

    def _question(self, store: SampleStore, subject: str) -> Question | None:
        """Return what is asked about the influence of a subject's samples; None when none of them is learned from.

        Raises
        ------
        UnfitError
            When there is no influence for the kind of the model.
        """
        names = store.ids_of_subject(subject)
        samples = [store.get(name) for name in names[:MOST_EXPLAINED]]
        if not samples:
            return None
        rows, labels = [one.features for one in samples], [one.label for one in samples]
        question = Question(rows, labels, None, "all", 1, frozenset(names))
        self._influence.method_of(question)
        return question
