"""What the model would say without some samples: a copy unlearns them and is asked.

    turn of the mutations      the model copied                                           in a thread
    mutations go on            the copy asked, samples unlearned, the copy asked again    in a thread
                               the copy overwritten

Of an exact model the copy is then the model that was never told of them. There is one copy at a time, and few questions
wait for it. What takes long goes on as a job, whose comparison is kept until somebody asks for it. Before an erasure is
finished, comparisons from before it are forgotten, and the copy is gone.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

from oubli.app.errors import BusyError, NotExactError
from oubli.app.service.answers import Asked, KeptAnswers, continued
from oubli.app.service.memory import let_go_of
from oubli.core.errors import EmptyModelError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from oubli.app.service.copies import ModelCopier
    from oubli.app.service.holders import Holders
    from oubli.app.service.jobs import Job, JobBoard
    from oubli.app.service.lock import ModelLock
    from oubli.app.service.results import Row
    from oubli.app.service.state import ModelState
    from oubli.app.threads import Threads
    from oubli.core.model import Model, QueryResult
    from oubli.core.samples.store import SampleStore

_LONG = 1.0  # seconds after which a question goes on as a job
_MOST_OPEN = 4  # questions, the one that has the copy included
_MOST_KEPT = 20  # comparisons


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

    rows: list[Row]
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
    state
        Has the live model.
    copier
        Copies it.
    lock, threads
        Who may touch the model, and the threads.
    jobs
        Long questions.
    holders
        Told of copies, and of comparisons that are kept.
    """

    _state: ModelState
    _copier: ModelCopier
    _lock: ModelLock
    _threads: Threads
    _jobs: JobBoard
    _holders: Holders
    _one_copy: asyncio.Lock = field(default_factory=asyncio.Lock, init=False)
    _n_open: int = field(default=0, init=False)
    _kept: KeptAnswers[Comparison] = field(init=False)

    def __post_init__(self) -> None:
        self._kept = KeptAnswers("comparisons", _MOST_KEPT, self._holders)

    async def ask(self, absence: Absence) -> Comparison | Job:
        """Answer a question, or go on with it as a job when it is not answered after a moment.

        Raises
        ------
        NotExactError
            When the model is not exact: a copy that has unlearned them would not be the model without them.
        EmptyModelError
            When it holds no samples.
        BusyError
            When too many questions wait.
        SupersededError
            When samples were erased meanwhile.
        InputError
            When the rows are refused.
        """
        self._require_exact()
        if self._n_open >= _MOST_OPEN:
            raise BusyError
        self._n_open += 1
        asked = Asked(self._holders.hold("without"))
        # A thread cannot be called back: it holds the copy also when nobody waits for it any more.
        answering = self._threads.begin(self._answer(absence, asked))
        done, _ = await asyncio.wait({answering}, timeout=_LONG)
        return answering.result() if done else continued(asked, answering, self._jobs, "without", _kept_as)

    def kept(self, name: str) -> Comparison | None:
        """Return the comparison that a job has made, None when it is not known any more."""
        return self._kept.get(name)

    async def _answer(self, absence: Absence, asked: Asked) -> Comparison:
        try:
            with asked.hold as hold:
                async with self._one_copy:
                    asked.hold.require()
                    async with self._lock.mutation():
                        self._require_exact()
                        copy = await self._copier.copied()
                        version = self._state.version
                    asked.tell(0.2)
                    try:
                        found = await self._threads.look(partial(_compare, copy, absence, asked, version))
                    finally:
                        await self._threads.look(partial(let_go_of, copy))
                asked.hold.require()
                if asked.name is not None:
                    self._kept.keep(asked.name, hold.period, found)
                return found
        finally:
            self._n_open -= 1

    def _require_exact(self) -> None:
        if self._state.model.guarantee != "exact":
            raise NotExactError
        if self._state.model.n_samples_ == 0:
            raise EmptyModelError("the model holds no samples: add some before asking what they do")


def _kept_as(asked: Asked, found: Comparison) -> dict[str, Any]:
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
