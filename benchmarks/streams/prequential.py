"""Prequential evaluation: each sample is predicted, then learned; F1 of all predictions, CPU time a sample.

As in the paper the score is the F1 of the positive class over the whole stream. The first sample is learned only.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from benchmarks.streams.learners import PEERS, PREVIOUS, Learner, Tree, peer
from benchmarks.streams.sets import Stream

CHUNK = 250  # samples between two looks at the clock
WARM_UP = 600


@dataclass(frozen=True)
class Run:
    """Predictions of a learner on a stream, or on its first samples when it ran out of time, and the time they took."""

    stream: Stream
    answers: list[bool]  # from the second sample on
    seconds: float  # CPU time

    @property
    def n(self) -> int:
        """Samples learned."""
        return len(self.answers) + 1

    @property
    def is_whole(self) -> bool:
        """Whether the stream was seen to its end."""
        return self.n == len(self.stream)

    @property
    def microseconds(self) -> float:
        """CPU time to predict and learn a sample."""
        return 1e6 * self.seconds / max(len(self.answers), 1)

    def f1(self, n: int | None = None) -> float:
        """F1 in percent, of the first n samples."""
        answers = self.answers if n is None else self.answers[: n - 1]
        labels = self.stream.labels[1 : len(answers) + 1]
        both = sum(answer and label for answer, label in zip(answers, labels, strict=True))
        return 200.0 * both / max(sum(answers) + sum(labels), 1)

    def accuracy(self, n: int | None = None) -> float:
        """Right answers in percent, of the first n samples."""
        answers = self.answers if n is None else self.answers[: n - 1]
        labels = self.stream.labels[1 : len(answers) + 1]
        return 100.0 * sum(a == b for a, b in zip(answers, labels, strict=True)) / max(len(answers), 1)


def run(learner: Learner, stream: Stream, budget: float) -> Run:
    """Show the stream to a learner; no further samples once it has used up `budget` CPU seconds."""
    return _run(learner, stream, budget, asks=True)


def update_only(learner: Learner, stream: Stream, budget: float) -> Run:
    """Let a learner learn the stream without predictions."""
    return _run(learner, stream, budget, asks=False)


def _run(learner: Learner, stream: Stream, budget: float, asks: bool) -> Run:
    rows, labels = learner.rows(stream), stream.labels
    answers: list[bool] = []
    predict, learn, note = learner.predict, learner.learn, answers.append
    learner.begin(rows[0], labels[0])
    gc.collect()
    gc.disable()
    try:
        spent = 0.0
        for first in range(1, len(rows), CHUNK):
            chunk: list[tuple[Any, bool]] = list(
                zip(rows[first : first + CHUNK], labels[first : first + CHUNK], strict=True)
            )
            started = time.process_time()
            if asks:
                for row, label in chunk:
                    note(predict(row))
                    learn(row, label)
            else:
                for row, label in chunk:
                    learn(row, label)
                answers += [False] * len(chunk)
            spent += time.process_time() - started
            if spent > budget:
                break
    finally:
        gc.enable()
    return Run(stream, answers, spent)


def run_ours(
    parameters: dict[str, Any], stream: Stream, budget: float, make: Callable[[dict[str, Any]], Learner] = Tree
) -> Run:
    """Show the stream to our tree, or another model of ours, compiled before on its beginning."""
    run(make(parameters), stream.first(WARM_UP), budget)
    return run(make(parameters), stream, budget)


class Peers:
    """The peers on each stream: run once, when they are first needed."""

    def __init__(self, budget: float) -> None:
        self.budget = budget
        self._runs: dict[tuple[str, str], Run] = {}

    def __call__(self, name: str, stream: Stream) -> Run:
        """The run of a peer, or of the baseline."""
        key = (name, stream.name)
        if key not in self._runs:
            self._runs[key] = run(peer(name), stream, self.budget)
        return self._runs[key]

    def all(self, stream: Stream) -> dict[str, Run]:
        """Each peer's run, and the baseline's."""
        return {name: self(name, stream) for name in (*PEERS, PREVIOUS)}
