"""What samples do to predictions: their influence, and the predictions without some of them.

    leaf methods     the trees and samples are read as a view, in a thread; mutations wait that long, and continue while
                     scores are computed from the view
    leave-one-out    a copy of the model unlearns and learns again; mutations continue; so it is with
                     all methods of a forest

A ranking names samples. It is answered and not kept, but for those that take long: these are kept until they are
asked for. Before an erasure is finished, questions that began before it are ended and their rankings forgotten.

The methods that questions about influence are answered by: which go with a model, and how long they take.

method                         seconds, about
leaf-influence                 one pass over all samples in all trees
leaf-influence, some leaves    one for each sample
leaf-refit                     one for each sample; with `single`, its own leaves only; of a forest a path in its trees
leave-one-out                  an unlearning for each sample, and the rows predicted again

What would be predicted without some samples is asked of a copy. There is one copy at a time, and few questions wait for
it. What takes long continues as a job, whose comparison is kept until it is asked for:

    turn of the mutations      the model copied                                           in a thread
    mutations continue         the copy asked, samples unlearned, the copy asked again    in a thread
                               the copy overwritten

Of an exact model the copy is then the model that never had them. Before an erasure is finished, comparisons from before
it are forgotten, and the copy is gone.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from oubli.app.errors import BusyError, NotExactError, ServiceError
from oubli.app.service.compiling import is_influence_prepared, prepare_influence
from oubli.app.service.jobs.jobs import Asked, Job, JobBoard, KeptAnswers, held_job, soon_or_job
from oubli.app.service.memory import let_go_of
from oubli.app.service.model.live import LiveModel
from oubli.core.errors import EmptyModelError
from oubli.core.model import Model, QueryResult
from oubli.core.samples.store import SampleStore

if TYPE_CHECKING:
    from oubli.core.influence import Influence  # its kernels take long to import

# Seconds, measured on one core of 2.6 GHz with Adult. Of a cell, a sample in a tree:
_ROUTING = 3e-8  # finding its leaf, once for each question
_DERIVATIVE = 6e-9  # a sample's derivative, all its changes followed
_REFIT = 1e-8  # the same of a refit
# Of a sample that is asked about, whatever the trees hold:
_A_CHANGE = 1e-5
_A_ROW = 1e-8  # and of each row in each tree
# Of a sample left out, in each tree that it is in:
_FOLLOWED = 1e-6  # a forest whose splits are kept
_READ = 7e-6  # a forest that is only read, for few rows
_UNLEARNED = 2e-4  # a forest that unlearns it and learns it again
_WITH_GRIDS = 3e-4  # boosting with grids
_REBUILT = 1.2e-7  # boosting without, for each sample held
_FEW_ROWS = 16


class UnfitError(ServiceError):
    """The method does not go with the kind of model; the text says what does."""


def method_for(model: Any, method: str | None, update_set: Any) -> str:
    """Return the method that a question to a model is answered by; None stands for the one that fits its kind.

    Raises
    ------
    UnfitError
        When it does not go with the kind of the model.
    """
    fits = model.influence_methods
    if not fits:
        raise UnfitError(f"there is no influence for a model of kind {model.kind}: fit another kind first")
    method = method or fits[0]
    if method not in fits:
        raise UnfitError(f"{method} is not for a model of kind {model.kind}: use {' or '.join(fits)}")
    if (method == "leave-one-out" or model.kind == "forest") and update_set != "all":
        raise UnfitError(f"{method} of a model of kind {model.kind} takes no update_set: leave that out")
    return method


def seconds_for(model: Any, method: str, update_set: Any, n_rows: int) -> float:
    """Estimate how long a question about some rows takes, by its method and the size of the model."""
    n = int(model.n_samples_)
    if method == "leave-one-out" or model.kind == "forest":
        return n * _seconds_without_one(model, method, n_rows)
    n_trees = int(model.n_trees_)
    n_cells = n * n_trees
    routing = _ROUTING * (n_cells + n_rows * n_trees)
    by_row = _A_ROW * n_rows * n_trees
    if method == "leaf-influence":
        is_one_pass = update_set in ("all", "single")
        return routing + (0.0 if is_one_pass else n * (_DERIVATIVE * n_cells + by_row))
    followed = 0 if update_set == "single" else n_cells
    return routing + n * (_A_CHANGE + _REFIT * followed + by_row)


def _seconds_without_one(model: Any, method: str, n_rows: int) -> float:
    if model.kind == "forest":
        settings = model.settings_
        by_tree = _UNLEARNED
        if method == "leaf-refit":
            by_tree = _FOLLOWED
        elif n_rows <= _FEW_ROWS:
            by_tree = _READ * n_rows
        return by_tree * int(settings.occurrences) + _A_ROW * n_rows * int(settings.n_trees)
    by_tree = _WITH_GRIDS if model.settings_.is_quantised else _REBUILT * int(model.n_samples_)
    return (by_tree + _A_ROW * n_rows) * int(model.n_trees_)


_LONG = 1.0  # seconds from which on a question is a job
_MOST_KEPT = 20  # rankings, and comparisons


@dataclass(frozen=True, slots=True)
class Question:
    """What is asked.

    Attributes
    ----------
    rows : instances, in feature order.
    labels : theirs; None stands for the predicted ones.
    method, update_set : as `oubli.core.influence.influence` takes them; None: the method that fits the kind.
    top : most samples of each sort that are named.
    names : the samples whose scores are returned instead of a ranking of all; None: the ranking.
    """

    rows: list[list[Any]]
    labels: list[Any] | None
    method: str | None
    update_set: Any
    top: int
    names: frozenset[str] | None = None


Ranking = dict[str, Any]
"""What is answered; see `ranking_content`."""


@dataclass(eq=False, repr=False)
class InfluenceRanker:
    """Answers questions about the live model.

    Parameters
    ----------
    live
        The live model and who may use it.
    jobs
        Long questions.
    """

    _live: LiveModel
    _jobs: JobBoard
    _kept: KeptAnswers[Ranking] = field(init=False)

    def __post_init__(self) -> None:
        self._kept = KeptAnswers("rankings", _MOST_KEPT, self._live.holders)

    def method_of(self, question: Question) -> str:
        """Return the method that a question is answered by.

        Raises
        ------
        UnfitError
            When it does not go with the kind of the model.
        """
        return method_for(self._live.state.model, question.method, question.update_set)

    def takes_long(self, question: Question) -> bool:
        """Whether a question is to be a job; see `method_of` for what is raised."""
        method = self.method_of(question)
        return seconds_for(self._live.state.model, method, question.update_set, len(question.rows)) > _LONG

    def is_long(self, question: Question) -> bool:
        """Whether a question takes long, or may take long: the time of kernels that are not loaded yet is not known."""
        return self.takes_long(question) or not is_influence_prepared(self._live.state.model)

    async def ask(self, question: Question) -> Ranking | Job:
        """Answer a question, or begin a job when that takes long; see `answer` for what is raised.

        How long kernels take that are not loaded yet cannot be foreseen: then it is tried for a moment, and what is not
        answered by then continues as a job.
        """
        if self.takes_long(question):
            return self.job(question)
        if is_influence_prepared(self._live.state.model):
            return await self.answer(question)
        asked = Asked(self._live.holders.hold("influence"))
        answering = self._live.threads.begin(self._answer_held(question, asked))
        return await soon_or_job(asked, answering, _LONG, self._jobs, "influence", _kept_as)

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
            When samples were erased after the question began.
        """
        # A thread cannot be called back: it holds what it works on also when no caller waits for it any more.
        return await self._live.threads.finish(self._answer_held(question, Asked(self._live.holders.hold("influence"))))

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
        while not is_influence_prepared(self._live.state.model):  # another model may take its place
            await self._live.threads.compile(partial(prepare_influence, self._live.state.model))
        method, state = self.method_of(question), self._live.state
        if state.model.n_samples_ == 0:
            raise EmptyModelError("the model holds no samples: add some before asking what they do")
        if method == "leave-one-out" or state.model.kind == "forest":
            async with self._live.lock.mutation():
                copy = await self._live.copied()
                version = state.version
            n_samples = copy.n_samples_
            try:
                found = await self._live.threads.ask(partial(_ask, copy, copy, question, method, progress))
            finally:
                await self._live.threads.ask(partial(let_go_of, copy))
            return ranking_content(found, question.top, n_samples, question.names) | {"model_version": version}
        async with self._live.lock.long_read():
            await self._live.lock.pass_turnstile()
            model, version = state.model, state.version
            with self._live.lock.reading():
                seen, labels = await self._live.threads.ask(partial(_look, model, question))
                n_samples = model.n_samples_
        asked = Question(question.rows, labels, method, question.update_set, question.top)
        found = await self._live.threads.ask(partial(_ask, seen, None, asked, method, progress))
        return ranking_content(found, question.top, n_samples, question.names) | {"model_version": version}

    def job(self, question: Question) -> Job:
        """Begin to answer a question that takes long; the job's result says under which id the ranking is kept."""

        async def answer(question: Question, asked: Asked) -> Ranking:
            return await self._live.threads.finish(self._answer_held(question, asked))

        return held_job(self._jobs, "influence", self._live.holders, "influence", question, answer, _kept_as)

    def kept(self, name: str) -> Ranking | None:
        """Return the ranking that a job has made; None when it is not known any more, or names a restricted sample."""
        ranking, holds = self._kept.get(name), self._live.state.model.samples_.restricted.contains
        if ranking is None or not any(holds(one["id"]) for one in (*ranking["helpful"], *ranking["harmful"])):
            return ranking
        self._kept.drop(name)
        return None


def _kept_as(asked: Asked, ranking: Ranking) -> dict[str, Any]:
    return {"influence": asked.name, "n_samples": ranking["n_samples"], "model_version": ranking["model_version"]}


def ranking_content(found: Influence, top: int, n_samples: int, names: Collection[str] | None = None) -> Ranking:
    """Return what is answered but for the version: the samples that help and harm most, or the scores of some."""
    content: Ranking = {"method": found.method, "note": found.note or None, "n_samples": n_samples}
    if names is None:
        chosen = {"helpful": found.helpful(top), "harmful": found.harmful(top)}
    else:
        scores = zip(found.ids, found.scores.tolist(), strict=True)
        chosen = {"scores": [(name, score) for name, score in scores if name in names]}
    named = {kind: [{"id": name, "score": score} for name, score in pairs] for kind, pairs in chosen.items()}
    return named | content


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
    if predicts is not None:
        return influence(asked, question.rows, labels, method=method, progress=progress)
    return influence(asked, question.rows, labels, method=method, update_set=question.update_set, progress=progress)


_MOST_OPEN = 4  # questions about predictions without samples, the one that has the copy included


@dataclass(frozen=True, slots=True)
class Absence:
    """Asks what would be predicted without some samples.

    Attributes
    ----------
    rows
        Instances, in feature order.
    ids, subjects
        Whose samples are left out; one of the two is None.
    """

    rows: list[list[Any]]
    ids: Sequence[str] | None
    subjects: Sequence[str] | None


@dataclass(frozen=True, slots=True)
class Comparison:
    """Predictions with and without some samples.

    Attributes
    ----------
    with_them, without_them
        Predictions; None when no sample would be left.
    removed
        Samples that were left out.
    absent
        Ids or subjects named that the model has learned nothing of.
    n_samples
        Samples that are left.
    model_version
        Of the model that was copied.
    """

    with_them: QueryResult
    without_them: QueryResult | None
    removed: int
    absent: int
    n_samples: int
    model_version: int


@dataclass(eq=False, repr=False)
class Comparer:
    """Asks copies of the live model.

    Parameters
    ----------
    live
        The live model and who may use it.
    jobs
        Long questions.
    """

    _live: LiveModel
    _jobs: JobBoard
    _one_copy: asyncio.Lock = field(default_factory=asyncio.Lock, init=False)
    _n_open: int = field(default=0, init=False)
    _kept: KeptAnswers[Comparison] = field(init=False)

    def __post_init__(self) -> None:
        self._kept = KeptAnswers("comparisons", _MOST_KEPT, self._live.holders)

    async def ask(self, absence: Absence) -> Comparison | Job:
        """Answer a question; when it is not answered after a moment, continue it as a job.

        Raises
        ------
        NotExactError
            When the model is not exact: a copy that has unlearned them would not be the model without them.
        EmptyModelError
            When it holds no samples.
        BusyError
            When too many questions wait.
        SupersededError
            When samples were erased after the question began.
        InputError
            When the rows are refused.
        """
        self._require_exact()
        if self._n_open >= _MOST_OPEN:
            raise BusyError
        self._n_open += 1
        asked = Asked(self._live.holders.hold("without"))
        # A thread cannot be called back: it holds the copy also when no caller waits for it any more.
        answering = self._live.threads.begin(self._answer(absence, asked))
        return await soon_or_job(asked, answering, _LONG, self._jobs, "without", _comparison_kept)

    def kept(self, name: str) -> Comparison | None:
        """Return the comparison that a job has made, None when it is not known any more."""
        return self._kept.get(name)

    async def _answer(self, absence: Absence, asked: Asked) -> Comparison:
        try:
            with asked.hold as hold:
                async with self._one_copy:
                    asked.hold.require()
                    async with self._live.lock.mutation():
                        self._require_exact()
                        copy = await self._live.copied()
                        version = self._live.state.version
                    asked.tell(0.2)
                    try:
                        found = await self._live.threads.look(partial(_compare, copy, absence, asked, version))
                    finally:
                        await self._live.threads.look(partial(let_go_of, copy))
                asked.hold.require()
                if asked.name is not None:
                    self._kept.keep(asked.name, hold.period, found)
                return found
        finally:
            self._n_open -= 1

    def _require_exact(self) -> None:
        if self._live.state.model.guarantee != "exact":
            raise NotExactError
        if self._live.state.model.n_samples_ == 0:
            raise EmptyModelError("the model holds no samples: add some before asking what they do")


def _comparison_kept(asked: Asked, found: Comparison) -> dict[str, Any]:
    return {"without": asked.name, "model_version": found.model_version}


def _compare(copy: Model, absence: Absence, asked: Asked, version: int) -> Comparison:
    """Ask a copy before and after it has unlearned samples; called in a thread."""
    before = copy.query(absence.rows)
    names, absent = _found(copy.samples_, absence)
    asked.hold.require()
    copy.delete(names)
    asked.tell(0.7)
    asked.hold.require()
    after = copy.query(absence.rows) if copy.n_samples_ else None
    return Comparison(before, after, len(names), absent, copy.n_samples_, version)


def _found(store: SampleStore, absence: Absence) -> tuple[list[str], int]:
    """Return the samples held of those that a question names, and how many of its names have none."""
    if absence.ids is not None:
        wanted = list(dict.fromkeys(absence.ids))
        held = [name for name in wanted if store.contains(name)]
        return held, len(wanted) - len(held)
    subjects = list(dict.fromkeys(absence.subjects or ()))
    by_subject = [store.ids_of_subject(subject) for subject in subjects]
    return [name for names in by_subject for name in names], sum(not names for names in by_subject)
