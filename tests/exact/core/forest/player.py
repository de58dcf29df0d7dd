"""Plays histories on a model and compares it, bit for bit, with a fresh fit and with the oracle.

`Player` keeps the one truth a test needs: which samples are held. Every method is one operation of
`tests.strategies.OPERATIONS`; it applies the operation to the model and to that truth.
"""

from __future__ import annotations

import math
import random
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest

from oubli.core import DynamicForestClassifier, DynamicForestRegressor, load
from oubli.core.data.schema import Column, ColumnType, LabelType, Schema, Task
from oubli.core.errors import DuplicateIdError, EmptyModelError, InputError, UnknownIdError
from oubli.core.forest import engine as dynamic_forest
from oubli.core.forest.engine import ForestEngine
from tests.oracles import forest as oracle
from tests.strategies import History, World


@dataclass
class Tally:
    """What has been compared so far; printed at the end of the run."""

    histories: int = 0
    operations: int = 0
    comparisons: int = 0
    seen: dict[str, int] = field(default_factory=dict)


TALLY = Tally()


@contextmanager
def tuned(counters_from: int, replant_share: float = math.inf) -> Iterator[None]:
    """Let small models work as large ones do.

    Parameters
    ----------
    counters_from : samples from which on a node keeps candidate counters; by default far more than
        small data has, so that its counters would never be tested.
    replant_share : a batch of a larger share of the samples is not learned or unlearned one by one, but
        the trees are planted anew; by default so small that all that happens to a few samples does
        that, and their updating would never be tested.

    Neither may ever show in the model.
    """

    def block_minimum(ensemble: ForestEngine) -> int:
        return counters_from if ensemble.smallest_block is None else ensemble.smallest_block

    with (
        patch.object(ForestEngine, "_block_minimum", block_minimum),
        patch.object(dynamic_forest, "_REPLANT_SHARE", replant_share),
    ):
        yield


def schema_of(world: World) -> Schema:
    """The world's column and label types in the words of `core`."""
    columns = tuple(
        Column(f"x{i}", ColumnType(c.type), c.dtype)  # type: ignore[arg-type]
        for i, c in enumerate(world.columns)
    )
    return Schema(columns, Task(world.task), LabelType(world.label_type))


def new_model(world: World) -> Any:
    """Make an unfitted estimator."""
    estimator = DynamicForestClassifier if world.task == "classification" else DynamicForestRegressor
    return estimator(**world.parameters)


def oracle_parameters(world: World) -> oracle.Parameters:
    """The world's parameters in the words of the oracle."""
    p = world.parameters
    return oracle.Parameters(
        seed=p["random_state"],
        n_estimators=p["n_estimators"],
        occurrence=p["occurrence"],
        max_depth=p["max_depth"],
        min_samples_split=p["min_samples_split"],
        n_thresholds=p["n_thresholds"],
        n_attributes=p["max_features"],
        criterion=p["criterion"],
    )


def bits(values: Any) -> bytes:
    """The exact bits of an array of floats."""
    return np.ascontiguousarray(values, dtype=np.float64).tobytes()


class Player:
    """A model under test, and what it should hold."""

    def __init__(self, world: World, seed: int = 0) -> None:
        self.world = world
        self.rng = random.Random(seed)
        self.held: dict[str, tuple[Sequence[Any], Any]] = {}
        self.gone: list[str] = []
        self.next_id = 0
        self.model: Any = new_model(world).start(schema_of(world))

    # --- choosing ---------------------------------------------------------------------------------

    def new_id(self) -> str | int:
        """An id that is not held: text, or an int that stands for its decimal text."""
        if self.rng.random() < 0.7:
            self.next_id += 1
            return f"id {self.next_id}"
        number = self.rng.randrange(200)  # where the model's own counter is, too
        while str(number) in self.held:
            number += 1
        return number

    def new_ids(self, n: int) -> list[str | int]:
        """Distinct new ids."""
        ids: dict[str, str | int] = {}
        while len(ids) < n:
            name = self.new_id()
            ids[str(name)] = name
        return list(ids.values())

    def draw_rows(self, n: int) -> list[tuple[Sequence[Any], Any]]:
        """Draw rows from the pool."""
        return [self.rng.choice(self.world.rows) for _ in range(n)]

    def draw_held(self, n: int) -> list[str]:
        """Draw distinct ids that are held, as many as there are."""
        return self.rng.sample(sorted(self.held), min(n, len(self.held)))

    def maybe_resolve(self) -> None:
        """Resolve now and then between two mutations: only a node without a tag checks its split."""
        if self.rng.random() < 0.5:
            self.model.resolve()

    # --- operations -------------------------------------------------------------------------------

    def fit(self, n: int) -> None:
        """Fit on the first n rows of the pool, which replaces what was held."""
        rows = self.world.rows[:n]
        self.held = {}
        ids = self.new_ids(len(rows))
        self.model = fresh_fit(self.world, [(str(i), f, y) for i, (f, y) in zip(ids, rows, strict=True)])
        self.held = {str(i): row for i, row in zip(ids, rows, strict=True)}
        self.gone = []

    def add_rows(self, ids: list[Any] | None, rows: list[tuple[Sequence[Any], Any]]) -> None:
        """Add these rows; ids None: let the model name them."""
        got = self.model.add([list(f) for f, _ in rows], [y for _, y in rows], ids=ids)
        assert len(got) == len(rows)
        assert all(isinstance(i, str) for i in got)
        assert ids is None or got == [str(i) for i in ids]
        assert not set(got) & set(self.held)
        assert ids is not None or not set(got) & set(self.gone), "a generated id was issued again"
        self.held.update(zip(got, rows, strict=True))
        self.gone = [i for i in self.gone if i not in self.held]

    def add(self, n: int) -> None:
        """Add samples one at a time."""
        for row in self.draw_rows(n):
            self.add_rows([self.new_id()] if self.rng.random() < 0.7 else None, [row])
            self.maybe_resolve()

    def add_batch(self, n: int) -> None:
        """Add samples in one call: a few, or up to 37 of them, which is a large share of all."""
        n = n if self.rng.random() < 0.6 else 1 + n * n // 4
        rows = self.draw_rows(n)
        self.add_rows(self.new_ids(n) if self.rng.random() < 0.7 else None, rows)

    def delete_ids(self, ids: list[str]) -> None:
        """Delete these ids in one call."""
        self.model.delete(ids)
        for i in ids:
            del self.held[i]
        self.gone += ids

    def delete(self, n: int) -> None:
        """Delete samples one at a time."""
        for i in self.draw_held(n):
            self.delete_ids([i])
            self.maybe_resolve()

    def delete_batch(self, n: int) -> None:
        """Delete samples in one call: few of them, or most."""
        count = n if self.rng.random() < 0.85 else max(1, (len(self.held) * 9) // 10)
        ids = self.draw_held(count)
        if ids:
            self.delete_ids(ids)

    def delete_everything(self, n: int) -> None:
        """Delete all, at once or one by one."""
        ids = self.draw_held(len(self.held))
        step = 1 if n % 2 else max(1, len(ids))
        for start in range(0, len(ids), step):
            self.delete_ids(ids[start : start + step])

    def add_again(self, n: int) -> None:
        """Bring deleted ids back, with other content."""
        ids = self.rng.sample(self.gone, min(n, len(self.gone)))
        if ids:
            self.add_rows(list(ids), self.draw_rows(len(ids)))

    def replace(self, n: int) -> None:
        """Rectify samples."""
        for i in self.draw_held(1 + n // 2):
            features, label = self.draw_rows(1)[0]
            self.model.replace(i, list(features), label)
            self.held[i] = (features, label)

    def refuse(self, n: int) -> None:
        """Ask for what must be refused as a whole, and see that nothing has changed."""
        held = self.draw_held(n)
        features, label = self.draw_rows(1)[0]
        row = list(features)
        with pytest.raises(KeyError):
            self.model.delete([*held, "never held"])
        with pytest.raises(UnknownIdError):
            self.model.delete(["never held"])
        with pytest.raises(InputError):
            self.model.add([row, [*row, 1.0]], [label, label], ids=["new a", "new b"])
        with pytest.raises(DuplicateIdError):
            self.model.add([row, row], [label, label], ids=["new a", "new a"])
        if held:
            with pytest.raises(DuplicateIdError):
                self.model.add([row, row], [label, label], ids=["new a", held[0]])
            with pytest.raises(InputError):
                self.model.replace(held[0], [*row, 1.0], label)

    def predict(self, n: int) -> None:
        """Predict a few queries, which resolves what they meet; equal to the oracle."""
        queries = [list(self.rng.choice(self.world.queries)) for _ in range(n)]
        if not self.held:
            with pytest.raises(EmptyModelError):
                self.model.predict(queries)
            return
        expected = self.oracle()
        if self.world.task == "regression":
            assert bits(self.model.predict(queries)) == bits(oracle.predict(expected, queries))
            return
        if n % 2:
            assert bits(self.model.predict_proba(queries)) == bits(oracle.predict_proba(expected, queries))
        assert_labels(self.model.predict(queries), oracle.predict(expected, queries))

    def predict_frozen(self, n: int) -> None:
        """Predict without writing: the tags stay, the answers are the same."""
        queries = [list(self.rng.choice(self.world.queries)) for _ in range(n)]
        tags = self.model.n_lazy_tags_
        if not self.held:
            with pytest.raises(EmptyModelError):
                self.model.query(queries, frozen=True)
            return
        self.assert_result(self.model.query(queries, frozen=True), queries)
        assert self.model.n_lazy_tags_ == tags

    def resolve(self, n: int) -> None:
        """Resolve some tags, or all."""
        before = self.model.n_lazy_tags_
        cleared = self.model.resolve(None if n % 4 == 0 else n)
        assert cleared >= 0
        if n % 4 == 0:
            assert self.model.n_lazy_tags_ == 0
            assert self.model.resolve() == 0
        elif before:
            assert cleared > 0

    def digest(self, n: int) -> None:
        """Compare with a fresh fit in the middle of a history; twice in a row it is the same."""
        self.compare_digest()
        if n % 2:
            report = self.model.verify()
            assert report.ok, report.wrong_counters

    def save_and_load(self, n: int) -> None:
        """Go on with what a file gives back."""
        with tempfile.TemporaryDirectory() as directory:
            path = Path(directory) / "model.safetensors"
            self.model.save(path)
            self.model = type(self.model).load(path) if n % 2 else load(path)

    def copy(self, n: int) -> None:
        """Go on with a copy, or with the original; a change of the other must not show."""
        other = self.model.copy()
        if n % 2:
            self.model, other = other, self.model
        other.delete(sorted(self.held))
        other.add([list(self.world.rows[0][0])], [self.world.rows[0][1]])

    def play(self, operation: str, n: int) -> None:
        """Do one operation and check every invariant afterwards."""
        getattr(self, operation.replace(" ", "_"))(n)
        TALLY.operations += 1
        TALLY.seen[operation] = TALLY.seen.get(operation, 0) + 1
        self.check()

    # --- comparing --------------------------------------------------------------------------------

    def oracle(self) -> oracle.Forest:
        """The oracle's forest of what is held."""
        rows = [oracle.Row(i, tuple(f), y) for i, (f, y) in self.held.items()]
        return oracle.fit(rows, oracle_parameters(self.world), self.world.columns, self.world.task)

    def fresh(self) -> Any:
        """A model fitted to what is held, in another order."""
        rows = [(i, f, y) for i, (f, y) in self.held.items()]
        self.rng.shuffle(rows)
        return fresh_fit(self.world, rows)

    def check(self) -> None:
        """Check the model's own invariants and its counts."""
        self.model.check_invariants()
        assert self.model.n_samples_ == len(self.held)
        assert set(self.model.samples_.ids()) == set(self.held)
        if not self.world.parameters["lazy"]:
            assert self.model.n_lazy_tags_ == 0

    def compare_digest(self) -> None:
        """Compare with a fresh fit and with the oracle: trees one by one, then digests."""
        expected = self.oracle()
        digest = self.model.digest()
        trees = range(self.world.parameters["n_estimators"])
        assert self.model.tree_digests() == [oracle.tree_digest(expected, t) for t in trees]
        assert digest == oracle.digest(expected)
        assert self.model.n_lazy_tags_ == 0
        assert digest == self.model.digest()
        assert digest == self.fresh().digest(), "digest differs from a fresh fit's"
        TALLY.comparisons += 1

    def assert_result(self, result: Any, queries: list[list[Any]]) -> None:
        """Compare a query's answer with the oracle's, bit for bit."""
        expected = self.oracle()
        if self.world.task == "regression":
            assert bits(result.labels) == bits(oracle.predict(expected, queries))
            return
        assert bits(result.probabilities) == bits(oracle.predict_proba(expected, queries))
        assert_labels(result.labels, oracle.predict(expected, queries))
        assert_labels(result.classes, expected.classes)

    def compare(self) -> None:
        """Compare everything: predictions through tags, then digest and trees, then predictions."""
        queries = [list(q) for q in self.world.queries] + [list(f) for f, _ in self.held.values()]
        if self.held:
            self.assert_result(self.model.query(queries, frozen=True), queries)
            self.assert_result(self.model.query(queries), queries)
            self.check()
        self.compare_digest()
        self.check()
        if self.held:
            fresh = self.fresh()
            self.assert_result(self.model.query(queries, frozen=True), queries)
            self.assert_result(fresh.query(queries), queries)
            assert bits(self.model.feature_importances_) == bits(oracle.feature_importances(self.oracle()))
        TALLY.comparisons += 1

    def finish(self) -> None:
        """Compare at the end of a history."""
        self.compare()
        TALLY.histories += 1


def assert_labels(got: Any, expected: Sequence[Any]) -> None:
    """Labels are equal, and of the same Python type."""
    got = [x.item() if isinstance(x, np.generic) else x for x in got]
    assert [(type(x), x) for x in got] == [(type(x), x) for x in expected]


def fresh_fit(world: World, rows: Sequence[tuple[str, Sequence[Any], Any]]) -> Any:
    """Fit a new model on these samples (start an empty one when there are none)."""
    model = new_model(world)
    if not rows:
        return model.start(schema_of(world))
    X, y, ids = [list(f) for _, f, _ in rows], [y for _, _, y in rows], [i for i, _, _ in rows]
    return model.fit(X, y, ids=ids, schema=schema_of(world))


def play(history: History) -> Player:
    """Play a history and compare at its end."""
    with tuned(history.world.counters_from, history.world.replant_share):
        player = Player(history.world, history.seed)
        for operation, n in history.operations:
            player.play(operation, n)
        player.finish()
    return player
