"""Answers that take long: how far a question is, and what is kept of answers until somebody asks for them.

They name samples or hold them, so that those from before an erasure are forgotten before it is finished.
"""

from __future__ import annotations

import asyncio
import uuid
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

    from oubli.app.service.holders import Hold, Holders
    from oubli.app.service.jobs import Job, JobBoard, Report

Answer = TypeVar("Answer")


@dataclass(slots=True)
class Asked:
    """A question that is being answered, or is going to be.

    Attributes
    ----------
    hold
        On what it holds of samples.
    name
        Under which the answer is kept; None when it is not.
    report
        Takes in the progress of a job.
    """

    hold: Hold
    name: str | None = None
    report: Report | None = None

    def tell(self, share: float) -> None:
        """Tell how far it is."""
        if self.report is not None:
            self.report(share)


class KeptAnswers(Generic[Answer]):
    """The newest answers of jobs, by name.

    Parameters
    ----------
    kind
        A key of `holders.KINDS`.
    most
        Answers that are kept.
    holders
        Say when to forget.
    """

    def __init__(self, kind: str, most: int, holders: Holders) -> None:
        self._most = most
        self._answers: dict[str, tuple[int, Answer]] = {}  # with the period in which they were asked for
        holders.register(kind, self.forget)

    def keep(self, name: str, period: int, answer: Answer) -> None:
        """Keep an answer to a question of a period."""
        self._answers[name] = period, answer
        for old in list(self._answers)[: -self._most]:
            del self._answers[old]

    def get(self, name: str) -> Answer | None:
        """Return an answer; None when it is not known any more."""
        kept = self._answers.get(name)
        return None if kept is None else kept[1]

    def drop(self, name: str) -> None:
        """Forget one answer."""
        self._answers.pop(name, None)

    def forget(self, period: int) -> None:
        """Forget the answers to questions of a period or before it."""
        self._answers = {name: kept for name, kept in self._answers.items() if kept[0] > period}


def continued(
    asked: Asked,
    answering: asyncio.Future[Answer],
    jobs: JobBoard,
    kind: str,
    result: Callable[[Asked, Answer], dict[str, Any]],
) -> Job:
    """Go on as a job with an answer that has been begun, which is kept from now on."""

    async def work(report: Report) -> dict[str, Any]:
        asked.report = report
        return result(asked, await asyncio.shield(answering))

    job = jobs.start(kind, work)
    asked.name = str(uuid.uuid4())
    return job
