"""Plays histories on a model and on the oracle, and compares the two trees after every single update.

`Player` knows which samples are held; every method is one operation of `streams.py`. It applies the operation to the
model and to the oracle's tree. After each update and each query

* the two are the same, node by node: splits, s(v), c(v), tags, and which samples are in which leaf;
* Lemma 3.4 holds at every node;
* if the model says that it is epsilon-feasible, its tree is, by Definition 3.1, for the samples held.
"""

from __future__ import annotations

import random
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest

from oubli.core import DynamicTreeClassifier, load
from oubli.core.data.schema import Column, ColumnType, LabelType, Schema, Task
from oubli.core.errors import DuplicateIdError, EmptyModelError, InputError, UnknownIdError
from oubli.core.tree import engine as engine_module
from tests.exact.core.tree.reading import difference, read
from tests.exact.core.tree.streams import N_PHASES, History, World
from tests.exact.core.tree.tally import TALLY
from tests.oracles import tree as oracle
from tests.oracles.forest import cell


def schema_of(world: World) -> Schema:
    """The world's column and label types in the words of `core`."""
    columns = tuple(Column(f"x{i}", ColumnType(c.type), c.dtype) for i, c in enumerate(world.columns))
    return Schema(columns, Task.CLASSIFICATION, LabelType(world.label_type))


def oracle_parameters(parameters: dict[str, Any]) -> oracle.Parameters:
    """The estimator's arguments in the words of the oracle; epsilon by Theorem 3.2 when left out."""
    k, alpha, beta, epsilon = (parameters[name] for name in ("pruning_size", "alpha", "beta", "epsilon"))
    if epsilon is None:
        epsilon = float(np.nextafter(min(1 / (k + 1), alpha / 5, beta / 12.5), 0.0))
    return oracle.Parameters(parameters["max_depth"], k, alpha, beta, epsilon, parameters["lazy"])


class Player:
    """A model under test, the oracle's tree, and what they should hold."""

    def __init__(self, world: World, seed: int = 0) -> None:
        self.world = world
        self.rng = random.Random(seed)
        self.parameters = oracle_parameters(world.parameters)
        self.held: dict[str, oracle.Sample] = {}  # in the order of their arrival
        self.features: dict[str, Sequence[Any]] = {}
        self.phase = 0
        self.n_ids = 0
        self.fit(0)

    # --- doing ------------------------------------------------------------------------------------

    def play(self, operation: str, n: int) -> None:
        """Do one operation."""
        TALLY.seen[operation] = TALLY.seen.get(operation, 0) + 1
        getattr(self, operation.replace(" ", "_"))(n)
        self.model.check_invariants()
        assert self.model.n_samples_ == len(self.held)

    def names(self, n: int) -> list[str]:
        """New ids."""
        self.n_ids += n
        return [f"id {i}" for i in range(self.n_ids - n, self.n_ids)]

    def row(self, row: tuple[tuple[Any, ...], tuple[Any, ...]]) -> tuple[tuple[Any, ...], Any]:
        """A row of the pool with the label of the phase."""
        features, labels = row
        return features, labels[self.phase]

    def drawn(self, n: int) -> list[tuple[tuple[Any, ...], Any]]:
        """Rows of the pool."""
        return [self.row(self.rng.choice(self.world.rows)) for _ in range(n)]

    def some_held(self, n: int) -> list[str]:
        """Ids that are held, as many as there are."""
        return self.rng.sample(list(self.held), min(n, len(self.held)))

    def insert(self, rows: Sequence[tuple[tuple[Any, ...], Any]], *, at_once: bool = False) -> list[str]:
        """Add rows, one by one or in one call."""
        names, n_held = self.names(len(rows)), len(self.held)
        if at_once and rows:
            self.model.add([list(f) for f, _ in rows], [y for _, y in rows], ids=names)
        for name, (features, label) in zip(names, rows, strict=True):
            self.features[name] = features
            self.take_in(name, oracle.sample_of(features, label, self.world.columns))
            if not at_once:
                self.model.add([list(features)], [label], ids=[name])
                self.check()
        if at_once:
            self.build_anew_after(len(rows), n_held + len(rows))
            self.check()
        return names

    def take_in(self, name: str, sample: oracle.Sample) -> None:
        """Insert a sample into the oracle's tree; then the oldest leaves a window that is too full."""
        self.held[name] = sample
        self.tree.insert(name, sample)
        window = self.world.parameters["window"]
        if window is not None and len(self.held) > window:
            oldest = next(iter(self.held))
            self.tree.delete(oldest, self.held.pop(oldest))

    def build_anew_after(self, n_changed: int, n_held: int) -> None:
        """Let go of the oracle's tree after a batch that is so large that the model builds its own anew."""
        if n_changed > max(self.world.rebuild_size, engine_module._REBUILD_SHARE * n_held):
            self.tree.root = oracle.Node(0, 0, samples=dict(self.held), tagged=True)
            if not self.parameters.lazy:
                self.tree.resolve()

    def remove(self, names: Sequence[str], *, at_once: bool = False) -> None:
        """Delete samples, one by one or in one call."""
        n_held = len(self.held)
        if at_once and names:
            self.model.delete(list(names))
        for name in names:
            self.tree.delete(name, self.held.pop(name))
            if not at_once:
                self.model.delete(name)
                self.check()
        if at_once:
            self.build_anew_after(len(names), n_held)
            self.check()

    # --- checking -----------------------------------------------------------------------------------

    def check(self) -> None:
        """Compare the trees as they are, and check what must hold of them at every time."""
        TALLY.updates += 1
        seen = read(self.model, self.held)
        found = difference(seen, self.tree.root)
        assert found is None, found
        assert not oracle.wrong_sizes(seen, self.held, self.parameters.epsilon)
        if self.model.guarantee == "epsilon-feasible":
            wrong = oracle.violations(seen, self.held, self.parameters, self.world.columns)
            assert not wrong, wrong
            TALLY.feasible += 1

    def ask(self, queries: Sequence[Sequence[Any]], *, frozen: bool = False) -> None:
        """Compare the answers to queries with the oracle's, bit for bit, and check condition 3."""
        if not self.held:
            with pytest.raises(EmptyModelError):
                self.model.predict([list(q) for q in queries])
            return
        cells = [[cell(x, c) for x, c in zip(q, self.world.columns, strict=True)] for q in queries]
        result = self.model.query([list(q) for q in queries], frozen=frozen)
        before = self.tree.copy() if frozen else None
        paths = [self.tree.query(row) for row in cells]
        classes = oracle.classes_of(self.held)
        expected = [oracle.shares(path, classes) for path in paths]
        answers = classes_of(result.labels)
        assert classes_of(result.classes) == list(classes)
        assert result.probabilities.tolist() == expected
        assert answers == [classes[shares.index(max(shares))] for shares in expected]
        wrong = oracle.wrong_labels(self.tree.root, cells, answers, self.held)
        assert not wrong, wrong
        self.tree = before or self.tree
        self.check()

    def finish(self) -> None:
        """Ask about everything; then forget the history: the tree must be the one of a fresh fit."""
        self.query(1)
        self.verify(1)
        self.scrub(1)
        TALLY.histories += 1

    # --- operations: samples come -----------------------------------------------------------------

    def fit(self, n: int) -> None:
        """Fit on the first n rows of the pool, which replaces what was held."""
        rows = [self.row(row) for row in self.world.rows[:n]]
        names = self.names(len(rows))
        self.features = {name: f for name, (f, _) in zip(names, rows, strict=True)}
        window = self.world.parameters["window"]
        arrived = [(i, oracle.sample_of(*row, self.world.columns)) for i, row in zip(names, rows, strict=True)]
        self.held = dict(arrived)
        self.model = self.fresh(shuffled=False)
        self.held = dict(arrived[-window:] if window else arrived)
        self.tree = oracle.Tree(self.held, self.parameters, self.world.columns)
        self.check()

    def fresh(self, *, shuffled: bool = True) -> Any:
        """A model fitted to what is held, in another order."""
        model, schema = DynamicTreeClassifier(**self.world.parameters), schema_of(self.world)
        names = self.some_held(len(self.held)) if shuffled else list(self.held)
        if not names:
            return model.start(schema)
        X, y = [list(self.features[i]) for i in names], [self.held[i].label[1] for i in names]
        return model.fit(X, y, ids=names, schema=schema)

    def add(self, n: int) -> None:
        """Rows of the pool."""
        self.insert(self.drawn(n))

    def add_batch(self, n: int) -> None:
        """The same in one call."""
        self.insert(self.drawn(n), at_once=True)

    def add_sorted(self, n: int) -> None:
        """Rows in the order of a column: each update goes to the same end of the tree."""
        column = self.rng.randrange(len(self.world.columns))
        self.insert(sorted(self.drawn(n), key=lambda row: _order(row[0][column])))

    def add_one_class(self, n: int) -> None:
        """Rows that have one label."""
        _, label = self.drawn(1)[0]
        self.insert([row for row in self.drawn(3 * n) if row[1] == label][:n])

    def add_one_row(self, n: int) -> None:
        """The same row again and again."""
        self.insert(self.drawn(1) * n)

    def add_and_delete(self, n: int) -> None:
        """The same row comes and goes."""
        (row,) = self.drawn(1)
        for _ in range(n):
            self.remove(self.insert([row]))

    # --- operations: samples go -------------------------------------------------------------------

    def delete(self, n: int) -> None:
        """Any samples."""
        self.remove(self.some_held(n))

    def delete_batch(self, n: int) -> None:
        """The same in one call."""
        self.remove(self.some_held(n), at_once=True)

    def delete_one_class(self, n: int) -> None:
        """Samples that have one label."""
        label = self.held[self.some_held(1)[0]].label if self.held else None
        self.remove([i for i in self.some_held(len(self.held)) if self.held[i].label == label][:n])

    def delete_one_leaf(self, n: int) -> None:
        """Samples that lie together."""
        if self.held:
            leaf = self.tree.root.path(self.held[self.some_held(1)[0]].cells)[-1]
            self.remove(sorted(leaf.samples)[:n])

    def delete_oldest(self, n: int) -> None:
        """Samples that came first."""
        self.remove(list(self.held)[:n])

    def delete_newest(self, n: int) -> None:
        """Samples that came last."""
        self.remove(list(self.held)[::-1][:n])

    def delete_sorted(self, n: int) -> None:
        """The samples that are smallest in a column."""
        column = self.rng.randrange(len(self.world.columns))
        self.remove(sorted(self.held, key=lambda i: _order(self.features[i][column]))[:n])

    def delete_everything(self, n: int) -> None:
        """All samples, most of them in one call."""
        names = self.some_held(len(self.held))
        self.remove(names[n:], at_once=True)
        self.remove(names[:n])

    # --- operations: both -------------------------------------------------------------------------

    def replace(self, n: int) -> None:
        """New content under an id that is held."""
        for name in self.some_held(n):
            ((features, label),) = self.drawn(1)
            self.model.replace(name, list(features), label)
            self.tree.delete(name, self.held.pop(name))
            self.features[name] = features
            self.take_in(name, oracle.sample_of(features, label, self.world.columns))
            self.check()

    def slide(self, n: int) -> None:
        """A window moves on."""
        for row in self.drawn(n):
            if self.world.parameters["window"] is None:
                self.remove(list(self.held)[:1])
            self.insert([row])

    def drift(self, n: int) -> None:
        """From now on labels are others."""
        self.phase = (self.phase + n) % N_PHASES

    # --- operations: the rest -----------------------------------------------------------------------

    def query(self, n: int) -> None:
        """Queries, and rows that are held."""
        self.ask([*self.world.queries, *(self.features[i] for i in self.some_held(3 * n))])

    def query_frozen(self, n: int) -> None:
        """The same, writing nothing."""
        self.ask([*self.world.queries, *(self.features[i] for i in self.some_held(3 * n))], frozen=True)

    def resolve(self, n: int) -> None:
        """Clear all tags."""
        self.model.resolve()
        self.tree.resolve()
        assert self.model.n_lazy_tags_ == 0
        self.check()

    def verify(self, n: int) -> None:
        """The model's own recount and checker agree; and a copy cannot be told from it. Both resolve."""
        report = self.model.verify()
        assert report.ok, report
        assert self.model.digest() == self.model.copy().digest()
        self.tree.resolve()
        self.check()

    def scrub(self, n: int) -> None:
        """Build from the samples held: the same as a fresh fit, s(v), c(v) and all."""
        self.model.scrub()
        self.tree = oracle.Tree(self.held, self.parameters, self.world.columns)
        self.check()
        fresh = self.fresh()
        found = difference(read(fresh, self.held), self.tree.root)
        assert found is None, found
        assert self.model.digest() == fresh.digest()

    def save_and_load(self, n: int) -> None:
        """Through a file; saving resolves."""
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "model.safetensors"
            self.model.save(path)
            self.model = load(path)
        self.tree.resolve()
        self.check()

    def copy(self, n: int) -> None:
        """Go on with a copy."""
        self.model = self.model.copy()
        self.check()

    def refuse(self, n: int) -> None:
        """What is refused changes nothing."""
        good = list(self.world.queries[0])
        attempts: list[tuple[type[Exception], Callable[[], object]]] = [
            (UnknownIdError, lambda: self.model.delete([*self.some_held(1), "never held"])),
            (InputError, lambda: self.model.add([good, good[:-1]], [0, 0])),
        ]
        if self.held:
            (name,) = self.some_held(1)
            label = self.held[name].label[1]
            attempts.append((DuplicateIdError, lambda: self.model.add([good], [label], ids=[name])))
        for error, attempt in attempts:
            with pytest.raises(error):
                attempt()
        self.check()


def classes_of(labels: Sequence[Any]) -> list[tuple[str, Any]]:
    """Labels as the oracle tells them apart."""
    return [oracle.class_of(label.item() if isinstance(label, np.generic) else label) for label in labels]


def _order(value: Any) -> tuple[bool, str, float]:
    """A key that sorts the cells of any column, missing ones last."""
    missing = value is None or value != value
    number = float(value) if not missing and isinstance(value, int | float) else 0.0
    return missing, value if isinstance(value, str) else "", number


def play(history: History) -> Player:
    """Play a history to its end."""
    try:
        with patch.object(engine_module, "_REBUILD_SIZE", history.world.rebuild_size):
            player = Player(history.world, history.seed)
            for operation, n in history.operations:
                player.play(operation, n)
            player.finish()
    except BaseException as error:
        error.add_note(f"the history: {history}")
        raise
    return player
