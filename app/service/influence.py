"""Which samples made these predictions: asked of the live model without holding it up.

    leaf methods     the trees and samples are read as a view, in a thread; mutations wait that long, and go on while
                     scores are computed from the view
    leave-one-out    a copy of the model unlearns and learns again; mutations go on meanwhile

A ranking names samples. It is answered and not kept, but for those that take long: these are kept until somebody asks
for them. Before an erasure is finished, questions that began before it are ended and their rankings forgotten.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from oubli.app.service.answers import Asked, KeptAnswers, continued
from oubli.app.service.compiling import is_influence_prepared, prepare_influence
from oubli.app.service.influence_methods import method_for, ranking_content, scores_content, seconds_for
from oubli.app.service.memory import let_go_of
from oubli.core.errors import EmptyModelError

if TYPE_CHECKING:
    from oubli.app.service.copies import ModelCopier
    from oubli.app.service.holders import Holders
    from oubli.app.service.jobs import Job, JobBoard, Report
    from oubli.app.service.lock import ModelLock
    from oubli.app.service.results import Row
    from oubli.app.service.state import ModelState
    from oubli.app.threads import Threads
    from oubli.core.influence import Influence
    from oubli.core.model import Model

_LONG = 1.0  # seconds from which on a question is a job
_MOST_KEPT = 20  # rankings


@dataclass(frozen=True, slots=True)
class Question:
    """What is asked.

    Attributes
    ----------
    rows : instances, in feature order.
    labels : theirs; None stands for the predicted ones.
    method, update_set : as `oubli.core.influence.influence` takes them; None: the method that fits the kind.
    top : most samples of each sort that are named.
    names : the samples whose scores are told, instead of a ranking of all; None: the ranking.
    """

    rows: list[Row]
    labels: list[Any] | None
    method: str | None
    update_set: Any
    top: int
    names: frozenset[str] | None = None


Ranking = dict[str, Any]
"""What is answered; see `influence_methods.ranking_content`."""


@dataclass(eq=False, repr=False)
class InfluenceRanker:
    """Answers questions about the live model.

    Parameters
    ----------
    state
        What is asked about.
    copier
        Copies it.
    lock, threads
        Who may touch the model, and the threads.
    jobs
        Long questions.
    holders
        Told of what is kept, and of questions that go on.
    """

    _state: ModelState
    _copier: ModelCopier
    _lock: ModelLock
    _threads: Threads
    _jobs: JobBoard
    _holders: Holders
    _kept: KeptAnswers[Ranking] = field(init=False)

    def __post_init__(self) -> None:
        self._kept = KeptAnswers("rankings", _MOST_KEPT, self._holders)

    def method_of(self, question: Question) -> str:
        """Return the method that a question is answered by.

        Raises
        ------
        UnfitError
            When it does not go with the kind of the model.
        """
        return method_for(self._state.model, question.method, question.update_set)

    def takes_long(self, question: Question) -> bool:
        """Whether a question is to be a job; see `method_of` for what is raised."""
        method = self.method_of(question)
        return seconds_for(self._state.model, method, question.update_set, len(question.rows)) > _LONG

    def is_long(self, question: Question) -> bool:
        """Whether a question takes long, or may: nobody knows how long kernels take that are not loaded yet."""
        return self.takes_long(question) or not is_influence_prepared(self._state.model)

    async def ask(self, question: Question) -> Ranking | Job:
        """Answer a question, or begin a job when that takes long; see `answer` for what is raised.

        How long kernels take that are not loaded yet cannot be foreseen: then it is tried for a moment, and what is not
        answered by then goes on as a job.
        """
        if self.takes_long(question):
            return self.job(question)
        if is_influence_prepared(self._state.model):
            return await self.answer(question)
        asked = Asked(self._holders.hold("influence"))
        answering = self._threads.begin(self._answer_held(question, asked))
        done, _ = await asyncio.wait({answering}, timeout=_LONG)
        return answering.result() if done else continued(asked, answering, self._jobs, "influence", _kept_as)

    async def answer(self, question: Question) -> Ranking:
        """Rank the samples held by what they do for the rows.

        Raises
        ------
        InputError
            When the rows or labels are refused.
        EmptyModelError
            With no samples held.
        UnfitError
            When the method does not go with the kind of the model.
        SupersededError
            When samples were erased meanwhile.
        """
        # A thread cannot be called back: it holds what it works on also when nobody waits for it any more.
        return await self._threads.finish(self._answer_held(question, Asked(self._holders.hold("influence"))))

    async def _answer_held(self, question: Question, asked: Asked) -> Ranking:
        """Answer a question that is held, and keep the ranking if it has a name while it still is."""

        def tell(done: int, total: int) -> None:
            """End the question when it must hold nothing any more; called in its thread."""
            asked.hold.require()
            asked.tell(done / total)

        with asked.hold as hold:
            ranking = await self._answer(question, tell)
            asked.hold.require()
            if asked.name is not None:
                self._kept.keep(asked.name, hold.period, ranking)
            return ranking

    async def _answer(self, question: Question, progress: Callable[[int, int], None]) -> Ranking:
        self.method_of(question)
        while not is_influence_prepared(self._state.model):  # another one may be put in place meanwhile
            await self._threads.compile(partial(prepare_influence, self._state.model))
        method, state = self.method_of(question), self._state
        if state.model.n_samples_ == 0:
            raise EmptyModelError("the model holds no samples: add some before asking what they do")
        if method == "leave-one-out":
            async with self._lock.mutation():
                copy = await self._copier.copied()
                version = state.version
            n_samples = copy.n_samples_
            try:
                found = await self._threads.ask(partial(_ask, copy, copy, question, method, progress))
            finally:
                await self._threads.ask(partial(let_go_of, copy))
            return _content(found, question, n_samples) | {"model_version": version}
        async with self._lock.long_read():
            await self._lock.pass_turnstile()
            model, version = state.model, state.version
            with self._lock.reading():
                seen, labels = await self._threads.ask(partial(_look, model, question))
                n_samples = model.n_samples_
        asked = Question(question.rows, labels, method, question.update_set, question.top)
        found = await self._threads.ask(partial(_ask, seen, None, asked, method, progress))
        return _content(found, question, n_samples) | {"model_version": version}

    def job(self, question: Question) -> Job:
        """Begin to answer a question that takes long; the job's result says under which id the ranking is kept."""
        waiting: list[Question] = []

        def end() -> None:
            if waiting:
                waiting.clear()
                hold.let_go()

        async def work(report: Report) -> dict[str, Any]:
            hold.require()
            asked = Asked(hold, str(uuid.uuid4()), report)
            return _kept_as(asked, await self._threads.finish(self._answer_held(waiting.pop(), asked)))

        hold = self._holders.hold("influence", end)
        waiting.append(question)
        try:
            return self._jobs.start("influence", work)
        except BaseException:
            hold.let_go()
            raise

    def kept(self, name: str) -> Ranking | None:
        """Return the ranking that a job has made; None when it is not known any more, or names a restricted sample."""
        ranking, holds = self._kept.get(name), self._state.model.samples_.restricted.holds
        if ranking is None or not any(holds(one["id"]) for one in (*ranking["helpful"], *ranking["harmful"])):
            return ranking
        self._kept.drop(name)
        return None


def _kept_as(asked: Asked, ranking: Ranking) -> dict[str, Any]:
    return {"influence": asked.name, "n_samples": ranking["n_samples"], "model_version": ranking["model_version"]}


def _content(found: Influence, question: Question, n_samples: int) -> Ranking:
    if question.names is not None:
        return scores_content(found, question.names, n_samples)
    return ranking_content(found, question.top, n_samples)


def _look(model: Any, question: Question) -> tuple[Any, list[Any]]:
    """Read the trees and samples of a model, the leaves of the rows, and their labels; only reads the model.

    Rows are routed here: the model may know other categories by the time that scores are computed.
    """
    from oubli.core.influence import view  # its kernels take long to import, and many servers are never asked

    labels = question.labels
    if labels is None:
        labels = model.query(question.rows, frozen=True).labels.tolist()
    seen = view(model)
    leaves = seen.route(question.rows)
    return replace(seen, route=lambda _: leaves), labels


def _ask(
    asked: Any,
    predicts: Model | None,
    question: Question,
    method: str,
    progress: Callable[[int, int], None] | None,
) -> Influence:
    from oubli.core.influence import influence

    labels = question.labels
    if labels is None and predicts is not None:
        labels = predicts.query(question.rows, frozen=True).labels.tolist()
    if method == "leave-one-out":
        return influence(asked, question.rows, labels, method=method, progress=progress)
    return influence(asked, question.rows, labels, method=method, update_set=question.update_set, progress=progress)
