"""Long work on the model that requests begin as jobs: verify, scrub, fit; and the board of all jobs.

A fit says how much better or worse it has made the model: scored before and after, never on samples that were learned.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from oubli.app.logs import cause_of
from oubli.app.progress import Activities
from oubli.app.service.changes.command import IdempotencyKey
from oubli.app.service.erasure.checkpoint import Checkpointer
from oubli.app.service.erasure.holders import Fingerprints, Hold
from oubli.app.service.jobs.exports import Exporter
from oubli.app.service.jobs.fits import estimator_of
from oubli.app.service.jobs.jobs import Job, JobBoard, Report
from oubli.app.service.measurements import Check
from oubli.app.service.model.live import LiveModel
from oubli.app.service.recovery.rebuild import Rebuilder
from oubli.core.model import Model
from oubli.core.samples.store import SampleStore
from oubli.core.unseen.folds import FOLDED, FOLDS, answer_fold, take_samples
from oubli.core.unseen.scoring import Answers, Score, metric_of, out_of_bag, score_of


@dataclass(eq=False, repr=False)
class Jobs:
    """Begins jobs on the model as a whole.

    Parameters
    ----------
    live
        The live model and who may use it.
    rebuilder, checkpointer, scorer
        Do the work.

    Attributes
    ----------
    board
        All jobs.
    exporter
        Makes bundles of what is held about a subject.
    activities
        Long operations that are no jobs.
    last_check
        The last comparison with a fresh fit since the start; None when there was none.
    """

    _live: LiveModel
    board: JobBoard
    exporter: Exporter
    activities: Activities
    _rebuilder: Rebuilder
    _checkpointer: Checkpointer
    _scorer: Scorer
    last_check: Check | None = field(default=None, init=False)

    def verify(self) -> Job:
        """Begin to compare the model with a fresh fit."""
        self._live.state.require_started()
        return self.board.start("verify", self._verify)

    def scrub(self) -> Job:
        """Begin to erase from all files what was unlearned."""
        self._checkpointer.require_kept()
        return self.board.start("scrub", self._checkpointer.scrub)

    def fit(
        self,
        kind: str,
        parameters: dict[str, Any],
        key: IdempotencyKey | None = None,
        *,
        scores: bool = True,
        classes: str | None = None,
        max_classes: int | None = None,
    ) -> Job:
        """Start a fit on the samples held with other parameters, or return the job that the key started.

        Its result has scores before and after unless `scores` is false. For the rest see `Model.set_classes`.
        """
        self._live.state.require_open()
        work = partial(self._rebuilder.fit, kind, parameters, key=key, classes=classes, max_classes=max_classes)
        if scores:
            work = partial(self._scorer.around, work)
        if key is None:
            return self.board.start("fit", work)
        job_id = key.as_uuid()
        if key.earlier is None:
            return self.board.start("fit", work, job_id, key.body)
        result = {"model_version": key.earlier.model_version, "n_samples": key.earlier.n_samples}
        return self.board.get(job_id) or Job(job_id, "fit", "succeeded", 1.0, result)

    async def _verify(self, report: Report) -> dict[str, Any]:
        result = await self._rebuilder.verify(report)
        self.last_check = Check(self._live.clock.latest_ms() / 1000, result["model_version"], result["ok"])
        return result


log = logging.getLogger("oubli.service")
MOST_SCORED = 20_000  # samples
_FITTED = 0.8  # share of a job that its fit is


@dataclass(frozen=True, slots=True)
class _Recipe:
    """What a model is made by, and its score as far as that is known already."""

    kind: str
    parameters: dict[str, Any]
    score: Score | None


@dataclass(eq=False, repr=False)
class Scorer:
    """Scores the live model before and after a fit.

    Parameters
    ----------
    live
        The live model and who may use it.
    fingerprints
        Registers the scores in results.
    """

    _live: LiveModel
    _fingerprints: Fingerprints

    async def around(self, fit: Callable[[Report], Awaitable[dict[str, Any]]], report: Report) -> dict[str, Any]:
        """Make a fit, and return its result with the scores before and after it."""
        period = self._live.holders.period
        before = await self._recipe()
        result = await fit(lambda share: report(_FITTED * share))
        after = await self._recipe()
        report(_FITTED)
        n_folds = FOLDS * sum(one.score is None for one in (before, after))
        n_done = 0

        def done() -> None:
            nonlocal n_done
            n_done += 1
            report(_FITTED + (1 - _FITTED) * n_done / n_folds)

        scores = [one.score for one in (before, after)]
        if n_folds:
            try:
                # A thread cannot be called back: the samples are held until it has ended.
                scoring = self._score_folds((before, after), self._live.holders.hold("score"), done)
                scores = await self._live.threads.finish(scoring)
            except Exception as error:  # whatever it was: the fit is made and in force
                log.warning("the model could not be scored: %s", cause_of(error))
        named = zip(("before", "after"), scores, strict=True)
        score = {name: None if one is None else one._asdict() for name, one in named}
        result = {**result, "score": {"metric": metric_of(self._live.state.model.task), **score}}
        self._fingerprints.keep(period, result, ("score",))
        return result

    async def _recipe(self) -> _Recipe:
        def look(model: Model) -> _Recipe:
            parameters = {**model.parameters_of_model(), "random_state": model.seed_}
            return _Recipe(model.kind, parameters, out_of_bag(model, MOST_SCORED))

        recipe, _ = await self._live.read(look, self._live.threads.look, refusable=False)
        return recipe

    async def _score_folds(
        self, recipes: tuple[_Recipe, ...], hold: Hold, done: Callable[[], None]
    ) -> list[Score | None]:
        with hold:
            take = partial(_take, MOST_SCORED)
            samples, _ = await self._live.read(take, self._live.threads.look, refusable=False)
            try:
                return [
                    one.score if one.score is not None else await self._score(one, samples, hold, done)
                    for one in recipes
                ]
            finally:
                await self._live.threads.build(samples.shred)

    async def _score(self, recipe: _Recipe, samples: SampleStore, hold: Hold, done: Callable[[], None]) -> Score | None:
        """Score what a recipe makes, in folds; None when samples were erased since it began."""
        task = samples.schema.task
        answers: list[Answers] = []
        for number in range(FOLDS):
            if hold.is_ended:
                return None
            new = partial(estimator_of, recipe.kind, task, recipe.parameters)
            answers.append(await self._live.threads.build(partial(answer_fold, new, samples, number)))
            done()
        return score_of(task, answers, FOLDED)


def _take(most: int, model: Model) -> SampleStore:
    return take_samples(model.samples_, most)
