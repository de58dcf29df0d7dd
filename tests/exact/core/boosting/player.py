"""Plays histories on boosted models and compares after every single operation.

`BoostingPlayer` knows which samples are held; every method is one operation of `worlds.py`. What is compared:

* `ExactPlayer`: after every operation the digest is that of a fresh fit on what is held, in another order and so
  with other slots, and predictions are the same bit for bit;
* `OnlinePlayer`: after every operation all that is counted is what a recount says, and a twin that went through the
  same operations, but never answers a query and is saved and loaded on its way, has the same digest; after
  `fit` and `scrub` it is the digest of a fresh fit.
"""

from __future__ import annotations

import math
import random
import tempfile
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any, ClassVar
from unittest.mock import patch

import pytest

from oubli.core import load
from oubli.core.boosting.incremental.estimator import IncrementalBoostingClassifier, IncrementalBoostingRegressor
from oubli.core.boosting.online import engine
from oubli.core.boosting.online.estimator import OnlineBoostingClassifier, OnlineBoostingRegressor
from oubli.core.errors import EmptyModelError
from tests.exact.core.boosting.tally import TALLY
from tests.exact.core.forest import player as forest
from tests.exact.core.forest.player import schema_of
from tests.strategies import History, World

INCREMENTAL: dict[str, Any] = {
    "classification": IncrementalBoostingClassifier,
    "regression": IncrementalBoostingRegressor,
}
ONLINE: dict[str, Any] = {"classification": OnlineBoostingClassifier, "regression": OnlineBoostingRegressor}


class BoostingPlayer(forest.Player, ABC):
    """A model under test, and what it should hold."""

    estimators: ClassVar[dict[str, Any]]  # by task

    def __init__(self, world: World, seed: int = 0) -> None:
        self.world = world
        self.rng = random.Random(seed)
        self.held: dict[str, tuple[Sequence[Any], Any]] = {}
        self.gone: list[str] = []
        self.next_id = 0
        self.model: Any = self.new_model().start(schema_of(world))

    @classmethod
    def tuned(cls, world: World) -> AbstractContextManager[Any]:
        """Let small sets be treated as large ones are."""
        return nullcontext()

    @staticmethod
    @abstractmethod
    def outcome(update: Any) -> str:
        """What an update came to, in a few words; of the engine's `last_update`."""

    def new_model(self) -> Any:
        """Make an unfitted estimator."""
        return self.estimators[self.world.task](**self.world.parameters)

    def fitted(self, rows: Sequence[tuple[str, Sequence[Any], Any]]) -> Any:
        """A new model fitted to these samples (an empty one when there are none)."""
        model, schema = self.new_model(), schema_of(self.world)
        if not rows:
            return model.start(schema)
        X, y, ids = [list(f) for _, f, _ in rows], [y for _, _, y in rows], [i for i, _, _ in rows]
        return model.fit(X, y, ids=ids, schema=schema)

    def fresh(self) -> Any:
        """A model fitted to what is held, in another order."""
        rows = [(i, f, y) for i, (f, y) in self.held.items()]
        self.rng.shuffle(rows)
        return self.fitted(rows)

    def play(self, operation: str, n: int) -> None:
        """Do one operation and check everything afterwards."""
        getattr(self, operation.replace(" ", "_"))(n)
        TALLY.operations += 1
        TALLY.seen[operation] += 1
        self.check()

    # --- operations that the forest does not have, or has otherwise -----------------------------------

    def fit(self, n: int) -> None:
        """Fit on the first n rows of the pool, which replaces what was held."""
        rows = self.world.rows[:n]
        ids = [str(i) for i in self.new_ids(len(rows))]
        self.model = self.fitted([(i, f, y) for i, (f, y) in zip(ids, rows, strict=True)])
        self.held = dict(zip(ids, rows, strict=True))
        self.gone = []

    def maybe_resolve(self) -> None:
        """Nothing is ever put off; between two single mutations of an operation all is checked as well."""
        self.check()

    def a_class_comes_and_goes(self, n: int) -> None:
        """All samples of one label go, in one call or one by one, and some of them come back."""
        if not self.held:
            return
        label = self.rng.choice(sorted(self.held.items()))[1][1]
        same = [i for i, (_, y) in self.held.items() if type(y) is type(label) and y == label]
        back = {i: self.held[i] for i in same[:n]}
        step = len(same) if n % 2 else 2
        for start in range(0, len(same), step):
            self.delete_ids(same[start : start + step])
            self.check()
        self.add_rows(list(back), list(back.values()))

    def predict(self, n: int) -> None:
        """Ask; answers do not depend on what is asked together."""
        queries = [list(self.rng.choice(self.world.queries)) for _ in range(n)]
        if not self.held:
            with pytest.raises(EmptyModelError):
                self.model.predict(queries)
            return
        digest = self.model.digest()
        together = self.model.query(queries)
        for i, query in enumerate(queries):
            assert self.answers(self.model, [query]) == [self.answers(self.model, queries)[i]]
            assert self.model.predict([query]).tolist() == [together.labels.tolist()[i]]
        assert self.model.digest() == digest

    def predict_frozen(self, n: int) -> None:
        """The same, frozen."""
        queries = [list(self.rng.choice(self.world.queries)) for _ in range(n)]
        if self.held:
            frozen, other = self.model.query(queries, frozen=True), self.model.query(queries)
            assert frozen.labels.tolist() == other.labels.tolist()

    def save_and_load(self, n: int) -> None:
        """Go on with what a file gives back."""
        self.model = through_a_file(self.model)

    def scrub(self, n: int) -> None:
        """Forget the history: what is left is a fresh fit."""
        self.model.scrub()
        assert self.model.digest() == self.fresh().digest()

    def wipe(self, n: int) -> None:
        """Overwrite working space; nothing else."""
        before = self.model.digest()
        self.model.wipe()
        assert self.model.digest() == before

    def verify(self, n: int) -> None:
        """The model's own check finds nothing; a copy is the same."""
        report = self.model.verify()
        assert report.ok, report
        assert self.model.copy().digest() == self.model.digest()

    # --- comparing ------------------------------------------------------------------------------------

    def check_answers(self) -> None:
        """Probabilities add up to 1; values are numbers, finite ones unless the targets themselves hardly are."""
        is_classification = self.world.task == "classification"
        may_overflow = not is_classification and any(abs(y) > 1e300 for _, y in self.held.values())
        for row in self.answers(self.model, self.world.queries):
            assert not any(math.isnan(value) for value in row), row
            assert may_overflow or all(math.isfinite(value) for value in row), row
            assert not is_classification or abs(sum(row) - 1) < 1e-12, row

    def answers(self, model: Any, queries: Sequence[Sequence[Any]]) -> list[list[float]]:
        """Probabilities, or values."""
        rows = [list(query) for query in queries]
        if self.world.task == "regression":
            return [[value] for value in model.predict(rows).tolist()]
        result: list[list[float]] = model.predict_proba(rows).tolist()
        return result

    def check(self) -> None:
        """Check the model's own invariants and its counts."""
        self.model.check_invariants()
        assert self.model.n_samples_ == len(self.held)
        assert set(self.model.samples_.ids()) == set(self.held)
        wrong = self.model.engine_.recount(self.model.problem(), self.model.samples_.slots())
        assert wrong == [], wrong
        if self.held:
            self.check_answers()
        TALLY.checks += 1
        TALLY.updates[self.outcome(self.model.engine_.last_update)] += 1

    def finish(self) -> None:
        """At the end of a history."""
        self.verify(1)
        self.scrub(1)
        self.check()
        TALLY.histories += 1


class ExactPlayer(BoostingPlayer):
    """Incremental boosting: the same as a fresh fit after every operation."""

    def check(self) -> None:
        """Compare with a fresh fit."""
        super().check()
        fresh = self.fresh()
        assert self.model.digest() == fresh.digest(), "the digest differs from a fresh fit's"
        if self.held:
            queries = [*self.world.queries, *(f for f, _ in self.held.values())]
            assert self.answers(self.model, queries) == self.answers(fresh, queries)
            assert self.model.feature_importances_.tolist() == fresh.feature_importances_.tolist()


class QuantisedPlayer(ExactPlayer):
    """The same with quantization."""

    estimators: ClassVar[dict[str, Any]] = INCREMENTAL

    @staticmethod
    def outcome(update: Any) -> str:
        """What an update came to."""
        if update.nothing_changed:
            return "nothing changed"
        if update.grown_from >= 0:
            return "all grown anew" if update.grown_from == 0 else "the rest grown anew"
        return "subtrees grown anew" if update.n_nodes_rebuilt else "leaves changed"


class PresortedPlayer(ExactPlayer):
    """The same without quantization."""

    estimators: ClassVar[dict[str, Any]] = INCREMENTAL

    @staticmethod
    def outcome(update: Any) -> str:
        """What an update came to."""
        if update.first_tree_changed >= 0:
            return "roots changed"
        return "nodes changed" if update.nodes_changed else "nodes kept" if update.nodes_kept else "nothing kept"


class OnlinePlayer(BoostingPlayer):
    """Online boosting: all counters right, and a function of the operations alone."""

    estimators: ClassVar[dict[str, Any]] = ONLINE

    @classmethod
    def tuned(cls, world: World) -> AbstractContextManager[Any]:
        """By default a batch of a fifth of the samples has all trees grown anew, which is any batch of a small set."""
        if world.replant_share == math.inf:
            return patch.object(engine, "is_too_much", lambda n_moved, n_held: False)
        return nullcontext()

    @staticmethod
    def outcome(update: Any) -> str:
        """What an update came to."""
        if update.grown:
            return "all grown anew"
        return "subtrees retrained" if update.nodes_retrained else "splits kept" if update.nodes_checked else "nothing"

    def __init__(self, world: World, seed: int = 0) -> None:
        super().__init__(world, seed)
        self.twin: Any = self.model.copy()

    def fit(self, n: int) -> None:
        """Fit, the twin as well."""
        super().fit(n)
        self.twin = self.model.copy()
        assert self.model.digest() == self.fresh().digest()

    def add_rows(self, ids: list[Any] | None, rows: list[tuple[Sequence[Any], Any]]) -> None:
        """Add to both."""
        before = set(self.held)
        super().add_rows(ids, rows)
        names = [i for i in self.held if i not in before] if ids is None else [str(i) for i in ids]
        self.twin.add([list(f) for f, _ in rows], [y for _, y in rows], ids=names)

    def delete_ids(self, ids: list[str]) -> None:
        """Delete from both."""
        super().delete_ids(ids)
        self.twin.delete(ids)

    def replace(self, n: int) -> None:
        """Rectify samples of both."""
        for i in self.draw_held(1 + n // 2):
            features, label = self.draw_rows(1)[0]
            for model in (self.model, self.twin):
                model.replace(i, list(features), label)
            self.held[i] = (features, label)
            self.rectified(i)

    def rectified(self, name: str) -> None:
        """A sample has other content now."""

    def scrub(self, n: int) -> None:
        """Forget the history of both."""
        super().scrub(n)
        assert self.model.n_mutations_since_scrub_ == 0
        self.twin.scrub()

    def save_and_load(self, n: int) -> None:
        """Go on with what a file gives back, of one of the two."""
        if n % 2:
            super().save_and_load(n)
        else:
            self.twin = through_a_file(self.twin)

    def check(self) -> None:
        """Compare with the twin."""
        super().check()
        assert self.model.digest() == self.twin.digest(), "the digest differs from the twin's"


def through_a_file(model: Any) -> Any:
    """Save and load."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.safetensors"
        model.save(path)
        return load(path)


def play_all(player_type: type[BoostingPlayer], histories: Iterable[History], outcomes: set[str]) -> None:
    """Play histories to their ends; among their updates there must be some of each kind."""
    before = TALLY.updates.copy()
    for history in histories:
        play(player_type, history)
    assert outcomes <= set(TALLY.updates - before), "not all kinds of updates were tested"


def play(player_type: type[BoostingPlayer], history: History) -> BoostingPlayer:
    """Play a history to its end."""
    try:
        with player_type.tuned(history.world):
            player = player_type(history.world, history.seed)
            for operation, n in history.operations:
                player.play(operation, n)
            player.finish()
    except BaseException as error:
        error.add_note(f"the history: {history}")
        raise
    return player
