"""Access and portability: all that is held about a subject, in one bundle.

What is short is answered and not kept. What is long is a job, whose bundle is kept until it is asked for, other
bundles take its place, or samples are erased: a bundle holds samples, and an erasure forgets it like all that does. A
bundle of which a sample has gone is not given out any more, also before the erasure is finished.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple

from oubli.app.ledger.entries import Receipt
from oubli.app.service.erasure.holders import Hold
from oubli.app.service.evidence.receipts import Receipts
from oubli.app.service.jobs.jobs import Asked, Job, JobBoard, KeptAnswers, held_job
from oubli.app.service.model.influence import InfluenceRanker, Question
from oubli.app.service.model.live import LiveModel
from oubli.core.samples.indexes import Addition
from oubli.core.samples.records import HeldSample
from oubli.core.samples.store import SampleStore

_FEW = 500  # samples that are collected on the event loop
_SLICE = 500  # samples that are collected between two looks whether the bundle may still be made
_MOST_KEPT = 10  # bundles
MOST_EXPLAINED = 100  # samples whose predictions are asked about, where influence is


class Exported(NamedTuple):
    """A sample of a bundle, and where it comes from; `addition` is None when that is not known."""

    sample: HeldSample
    addition: Addition | None


@dataclass(frozen=True, slots=True)
class Bundle:
    """All that is held about a subject.

    Attributes
    ----------
    subject
        Whom it is about.
    exported_ms
        When it was made, in milliseconds since 1970.
    model_version, kind, guarantee
        Of the model then.
    samples
        What is held, restricted or not, in the order in which it came to the subject.
    receipts
        Of erasures and rectifications that named the subject, or one of these samples, and nothing else.
    influence
        What the samples do for the predictions about the subject; None when it was not asked for, or none is learned
        from.
    """

    subject: str
    exported_ms: int
    model_version: int
    kind: str
    guarantee: str
    samples: list[Exported]
    receipts: list[Receipt]
    influence: dict[str, Any] | None


@dataclass(eq=False, repr=False)
class Exporter:
    """Makes bundles.

    Parameters
    ----------
    live
        The live model and who may use it.
    jobs
        Long requests.
    receipts
        Know what became of earlier requests.
    influence
        Answers questions about influence.
    """

    _live: LiveModel
    _jobs: JobBoard
    _receipts: Receipts
    _influence: InfluenceRanker
    _kept: KeptAnswers[Bundle] = field(init=False)

    def __post_init__(self) -> None:
        self._kept = KeptAnswers("bundles", _MOST_KEPT, self._live.holders)

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
            When samples were erased after the request began.
        """
        store = self._live.state.model.samples_
        question = self._question(store, subject) if explains else None
        if len(store.held_of(subject)) > _FEW or (question is not None and self._influence.is_long(question)):
            return self._job(subject, explains)
        asked = Asked(self._live.holders.hold("bundles"))
        return await self._live.threads.finish(self._make_held((subject, explains), asked))

    def begin(self, subject: str) -> Job:
        """Begin a job that makes a bundle and keeps it, also when it is short; see `ask`."""
        return self._job(subject, explains=False)

    def kept(self, name: str) -> Bundle | None:
        """Return the bundle that a job has made; None when it is not known any more, or a sample of it is gone."""
        bundle, store = self._kept.get(name), self._live.state.model.samples_
        if bundle is None or set(store.held_of(bundle.subject)).issuperset(one.sample.id for one in bundle.samples):
            return bundle
        self._kept.drop(name)
        return None

    def _job(self, subject: str, explains: bool) -> Job:
        async def answer(question: tuple[str, bool], asked: Asked) -> Bundle:
            asked.tell(0.05)
            return await self._live.threads.finish(self._make_held(question, asked))

        return held_job(self._jobs, "export", self._live.holders, "bundles", (subject, explains), answer, _kept_as)

    async def _make_held(self, question: tuple[str, bool], asked: Asked) -> Bundle:
        """Make a bundle, and keep it if it has a name; lets go of the hold."""
        with asked.hold as hold:
            bundle = await self._make(*question, hold)
            hold.require()
            if asked.name is not None:
                self._kept.keep(asked.name, hold.period, bundle)
            return bundle

    async def _make(self, subject: str, explains: bool, hold: Hold) -> Bundle:
        hold.require()
        state = self._live.state
        names = state.model.samples_.held_of(subject)
        if len(names) <= _FEW:
            found, version, model = _collect(state.model.samples_, names, hold), state.version, state.model
        else:
            async with self._live.lock.long_read(refusable=False):
                await self._live.lock.pass_turnstile()
                version, model, names = state.version, state.model, state.model.samples_.held_of(subject)
                with self._live.lock.reading():
                    found = await self._live.threads.ask(partial(_collect, model.samples_, names, hold))
        kind, guarantee, exported_ms = model.kind, model.guarantee, self._live.clock.now_ms()
        question = self._question(model.samples_, subject) if explains else None
        del model
        influence = None if question is None else await self._influence.answer(question)
        receipts = await self._receipts.about(subject, [one.sample.id for one in found])
        return Bundle(subject, exported_ms, version, kind, guarantee, found, receipts, influence)

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


def _kept_as(asked: Asked, bundle: Bundle) -> dict[str, Any]:
    return {"export": asked.name, "n_samples": len(bundle.samples), "model_version": bundle.model_version}


def _collect(store: SampleStore, names: list[str], hold: Hold) -> list[Exported]:
    """Read samples until the hold is ended; may be called in a thread."""
    found = []
    for start in range(0, len(names), _SLICE):
        hold.require()
        for name in names[start : start + _SLICE]:
            if store.restricted.contains(name):
                restricted = store.restricted
                found.append(Exported(restricted.get(name), restricted.addition(name)))
            else:
                found.append(Exported(store.get(name), store.addition(name)))
    return found
