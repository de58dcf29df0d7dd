"""How much better or worse a fit has made the model: scored before and after, never on samples that were learned."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from oubli.app.service.fitting import estimator_of
from oubli.core.scoring import FOLDED, FOLDS, Answers, Score, answer_fold, metric_of, out_of_bag, score_of, take_samples

if TYPE_CHECKING:
    from oubli.app.service.fingerprints import Fingerprints
    from oubli.app.service.holders import Hold, Holders
    from oubli.app.service.jobs import Report
    from oubli.app.service.reading import LongReader
    from oubli.app.service.state import ModelState
    from oubli.app.threads import Threads
    from oubli.core.model import Model
    from oubli.core.samples.store import SampleStore

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
    state
        Has the live model.
    reader
        Reads it.
    threads
        Where models are fitted that only answer for a fold.
    holders
        Told of the samples that these are fitted on.
    fingerprints
        Told of scores in results.
    """

    _state: ModelState
    _reader: LongReader
    _threads: Threads
    _holders: Holders
    _fingerprints: Fingerprints

    async def around(self, fit: Callable[[Report], Awaitable[dict[str, Any]]], report: Report) -> dict[str, Any]:
        """Make a fit, and return its result with the scores before and after it."""
        period = self._holders.period
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
                scoring = self._score_folds((before, after), self._holders.hold("score"), done)
                scores = await self._threads.finish(scoring)
            except Exception as error:  # whatever it was: the fit is made and in force
                log.warning("the model could not be scored (%s)", type(error).__name__)
        named = zip(("before", "after"), scores, strict=True)
        score = {name: None if one is None else one._asdict() for name, one in named}
        result = {**result, "score": {"metric": metric_of(self._state.model.task), **score}}
        self._fingerprints.keep(period, result, ("score",))
        return result

    async def _recipe(self) -> _Recipe:
        def look(model: Model) -> _Recipe:
            parameters = {**model.parameters_of_model(), "random_state": model.seed_}
            return _Recipe(model.kind, parameters, out_of_bag(model, MOST_SCORED))

        recipe, _ = await self._reader.read(look, self._threads.look, refusable=False)
        return recipe

    async def _score_folds(
        self, recipes: tuple[_Recipe, ...], hold: Hold, done: Callable[[], None]
    ) -> list[Score | None]:
        with hold:
            take = partial(_take, MOST_SCORED)
            samples, _ = await self._reader.read(take, self._threads.look, refusable=False)
            try:
                return [
                    one.score if one.score is not None else await self._score(one, samples, hold, done)
                    for one in recipes
                ]
            finally:
                await self._threads.build(samples.shred)

    async def _score(self, recipe: _Recipe, samples: SampleStore, hold: Hold, done: Callable[[], None]) -> Score | None:
        """Score what a recipe makes, in folds; None when samples were erased meanwhile."""
        task = samples.schema.task
        answers: list[Answers] = []
        for number in range(FOLDS):
            if hold.is_ended:
                return None
            new = partial(estimator_of, recipe.kind, task, recipe.parameters)
            answers.append(await self._threads.build(partial(answer_fold, new, samples, number)))
            done()
        return score_of(task, answers, FOLDED)


def _take(most: int, model: Model) -> SampleStore:
    return take_samples(model.samples_, most)
