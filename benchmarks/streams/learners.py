"""Ours and the peers behind one interface: predict a sample, then learn it."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol

from benchmarks.streams.sets import Stream
from oubli.core import DynamicForestClassifier, DynamicTreeClassifier

PREVIOUS = "previous label"
EFDT, HAT, ARF = "EFDT", "HAT", "ARF(10)"
PEERS = (EFDT, HAT, ARF)


class Learner(Protocol):
    """A learner of a stream, one sample after the other."""

    def rows(self, stream: Stream) -> list[Any]:
        """The rows as this learner takes them; not measured."""

    def begin(self, row: Any, label: bool) -> None:
        """Take in the first sample."""

    def predict(self, row: Any) -> bool:
        """The label of a row."""

    def learn(self, row: Any, label: bool) -> None:
        """Take in a sample."""


@dataclass
class Tree:
    """Ours: one call of `predict` and one of `add` a sample; with `window=` the oldest sample leaves by itself."""

    parameters: dict[str, Any]
    model: DynamicTreeClassifier = field(init=False)
    categorical: list[int] | None = None

    def rows(self, stream: Stream) -> list[Any]:
        """Tables of one row, as a user has them."""
        self.categorical = stream.categorical or None
        return [[row] for row in stream.rows]

    def begin(self, row: Any, label: bool) -> None:
        """Fit on one sample."""
        self.model = DynamicTreeClassifier(**self.parameters)
        self.model.fit(row, [label], categorical_features=self.categorical)

    def predict(self, row: Any) -> bool:
        """One call."""
        return bool(self.model.predict(row)[0])

    def learn(self, row: Any, label: bool) -> None:
        """One call."""
        self.model.add(row, [label])


@dataclass
class Forest(Tree):
    """The exact forest over the last samples: at each moment it is the one that a fit on these gives."""

    window: int = 1_000

    def begin(self, row: Any, label: bool) -> None:
        """Fit on one sample."""
        self.forest = DynamicForestClassifier(**self.parameters, random_state=0)
        self.forest.fit(row, [label], categorical_features=self.categorical, dtype="float32")
        self.held = deque(self.forest.samples_.ids())

    def predict(self, row: Any) -> bool:
        """One call."""
        return bool(self.forest.predict(row)[0])

    def learn(self, row: Any, label: bool) -> None:
        """Two calls: the oldest sample goes."""
        self.held += self.forest.add(row, [label])
        if len(self.held) > self.window:
            self.forest.delete([self.held.popleft()])


@dataclass
class RandomUpdates(Tree):
    """Ours in the paper's model RU: a sample is added, or one of those held is deleted, with equal probability.

    As there, the first samples are all added.
    """

    n_first: int = 1_000

    def begin(self, row: Any, label: bool) -> None:
        """Fit on one sample."""
        super().begin(row, label)
        self.random = random.Random(0)
        self.ids = list(self.model.samples_.ids())

    def learn(self, row: Any, label: bool) -> None:
        """Add or delete."""
        if self.n_first > 1:
            self.n_first -= 1
        elif len(self.ids) > 1 and self.random.random() < 0.5:
            # In constant time: the last one takes the place of the one that leaves.
            place = self.random.randrange(len(self.ids))
            self.ids[place], self.ids[-1] = self.ids[-1], self.ids[place]
            self.model.delete(self.ids.pop())
            return
        self.ids += self.model.add(row, [label])


@dataclass
class River:
    """A model of river, with its defaults."""

    make: Callable[[], Any]
    names: list[str] = field(default_factory=list)

    def rows(self, stream: Stream) -> list[Any]:
        """Dictionaries; text is nominal to river."""
        return [dict(zip(stream.names, row, strict=True)) for row in stream.rows]

    def begin(self, row: Any, label: bool) -> None:
        """Make the model; learn."""
        self.model = self.make()
        self.model.learn_one(row, label)

    def predict(self, row: Any) -> bool:
        """One call."""
        return bool(self.model.predict_one(row))

    def learn(self, row: Any, label: bool) -> None:
        """One call."""
        self.model.learn_one(row, label)


class Previous:
    """The baseline: every label is the one before."""

    def rows(self, stream: Stream) -> list[Any]:
        """Any."""
        return stream.rows

    def begin(self, _row: Any, label: bool) -> None:
        """Remember the label."""
        self.label = label

    def predict(self, _row: Any) -> bool:
        """The label that is remembered."""
        return self.label

    def learn(self, _row: Any, label: bool) -> None:
        """Remember the label."""
        self.label = label


def peer(name: str) -> Learner:
    """A peer by its name."""
    from river import forest, tree

    makers: dict[str, Callable[[], Any]] = {
        EFDT: tree.ExtremelyFastDecisionTreeClassifier,
        HAT: lambda: tree.HoeffdingAdaptiveTreeClassifier(seed=0),
        ARF: lambda: forest.ARFClassifier(n_models=10, seed=0),
    }
    return Previous() if name == PREVIOUS else River(makers[name])
