"""What goes along with a model, and is compared with it: fresh fits, a twin, and the oracles."""

# ruff: noqa: B027 - hooks that do nothing unless a comparison needs them
from __future__ import annotations

import contextlib
import math
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from oubli.core.errors import UnavailableError
from oubli.core.tree import engine as tree_engine
from tests.exact.core.boosting import reading as boosted
from tests.exact.core.tree import reading
from tests.oracles import forest as forest_oracle
from tests.oracles import forest_digest
from tests.oracles import tree as tree_oracle
from tests.oracles.boosting import online as online_oracle
from tests.oracles.boosting import trees as boosted_trees
from tests.oracles.common import cell

if TYPE_CHECKING:
    from tests.histories.player import Player


class Comparison(ABC):
    """Follows the operations of a player; `player.held` is already what it is afterwards."""

    resolves_in_part = True  # whether the comparison stands when only some tags are resolved

    def __init__(self, player: Player) -> None:
        self.player = player
        self.fitted()

    def fitted(self) -> None:
        """The model was fitted to what is held, or built again from it."""

    def added(self, names: Sequence[str]) -> None:
        """Samples came, in one call; a window is not yet enforced."""

    def deleted(self, names: Sequence[str]) -> None:
        """Samples went, in one call."""

    def replaced(self, name: str) -> None:
        """A sample has other content."""
        self.deleted([name])
        self.added([name])

    def resolved(self) -> None:
        """All tags are gone."""

    def between(self) -> None:
        """Compare between two single mutations of an operation."""
        self.player.check()

    def check(self) -> None:
        """Compare after any mutation, without changing the model."""

    @abstractmethod
    def ask(self, queries: list[list[Any]], *, frozen: bool) -> None:
        """Compare predictions; some samples are held."""

    def finish(self) -> None:
        """Compare everything at the end of a history."""
        self.player.predict(4)

    def together(self, name: str) -> Collection[str]:
        """Samples that lie in one leaf with this one, or are equal to it."""
        held = self.player.held
        return [i for i, (features, _) in held.items() if features == held[name][0]]


# --- forests ----------------------------------------------------------------------------------------


def bits(values: Any) -> bytes:
    """The exact bits of an array of floats."""
    return np.ascontiguousarray(values, dtype=np.float64).tobytes()


def plain(labels: Iterable[Any]) -> list[Any]:
    """Labels as Python's own types."""
    return [x.item() if isinstance(x, np.generic) else x for x in labels]


def assert_labels(got: Any, expected: Sequence[Any]) -> None:
    """Labels are equal, and of the same Python type."""
    assert [(type(x), x) for x in plain(got)] == [(type(x), x) for x in expected]


def unseen_answers(model: Any, queries: Iterable[Sequence[Any]]) -> list[object]:
    """What a model says by trees that have not learned samples: sets or intervals, and the worth of samples."""
    answers: list[object] = []
    rows = [list(query) for query in queries]
    for coverage in (0.5, 0.8):
        try:
            if model.task == "regression":
                answers.append(bits(model.predict_interval(rows, coverage)))
            else:
                answers += [model.predict_set(rows, coverage, by_class=by_class).tolist() for by_class in (False, True)]
        except UnavailableError:
            answers.append("no samples that trees have not learned")
    with contextlib.suppress(UnavailableError):
        found = model.data_values()
        answers.append(sorted(zip(found.ids, found.values.tolist(), strict=True)))
    return answers


class ForestOracle(Comparison):
    """Trees, digest, answers and importances are those of a fresh fit and of the oracle, bit for bit."""

    def between(self) -> None:
        """Resolve now and then: only a node without a tag checks its split."""
        if self.player.rng.random() < 0.5:
            self.player.model.resolve()

    def expected(self) -> forest_oracle.Forest:
        """The oracle's forest of what is held."""
        world, p = self.player.world, self.player.world.parameters
        others = ("random_state", "max_features", "lazy", "disclosure")
        values = {name: value for name, value in p.items() if name not in others}
        is_low = p.get("disclosure") == "low"
        if is_low:
            values |= {"n_estimators": 3 * p["n_estimators"], "occurrence": min(p["occurrence"], 0.7)}
        parameters = forest_oracle.Parameters(
            seed=p["random_state"], n_attributes=p["max_features"], has_low_disclosure=is_low, **values
        )
        held = self.player.held.items()
        rows = [forest_oracle.Row(i, tuple(f), y, world.weight((f, y))) for i, (f, y) in held]
        return forest_oracle.fit(rows, parameters, world.columns, world.task)

    def ask(self, queries: list[list[Any]], *, frozen: bool) -> None:
        """Compare answers with the oracle's."""
        model, expected = self.player.model, self.expected()
        self.assert_result(model.query(queries, frozen=frozen), queries, expected)
        if not frozen:
            labels = forest_oracle.predict(expected, queries)
            if self.player.world.task == "regression":
                assert bits(model.predict(queries)) == bits(labels)
            else:
                assert bits(model.predict_proba(queries)) == bits(forest_oracle.predict_proba(expected, queries))
                assert_labels(model.predict(queries), labels)

    def assert_result(self, result: Any, queries: list[list[Any]], expected: forest_oracle.Forest) -> None:
        """Compare a query's answer with the oracle's."""
        if self.player.world.task == "regression":
            assert bits(result.labels) == bits(forest_oracle.predict(expected, queries))
            return
        assert bits(result.probabilities) == bits(forest_oracle.predict_proba(expected, queries))
        assert_labels(result.labels, forest_oracle.predict(expected, queries))
        assert_labels(result.classes, expected.classes)

    def resolved(self) -> None:
        """Compare with a fresh fit and with the oracle: trees one by one, then digests."""
        model, expected = self.player.model, self.expected()
        digest = model.digest()
        trees = range(len(expected.trees))
        assert model.tree_digests() == [forest_digest.tree_digest(expected, t) for t in trees]
        assert digest == forest_digest.digest(expected) == model.digest()
        assert model.n_lazy_tags_ == 0
        fresh = self.player.fresh()
        assert digest == fresh.digest(), "digest differs from a fresh fit's"
        if self.player.held:
            assert unseen_answers(model, self.player.world.queries) == unseen_answers(fresh, self.player.world.queries)

    def finish(self) -> None:
        """Predictions through tags, then digest and trees, then predictions."""
        player, expected = self.player, self.expected()
        queries = [list(q) for q in (*player.world.queries, *(f for f, _ in player.held.values()))]
        if player.held:
            for frozen in (True, False):
                self.assert_result(player.model.query(queries, frozen=frozen), queries, expected)
            player.check()
        self.resolved()
        player.check()
        if player.held:
            self.assert_result(player.model.query(queries, frozen=True), queries, expected)
            self.assert_result(player.fresh().query(queries), queries, expected)
            assert bits(player.model.feature_importances_) == bits(forest_oracle.feature_importances(expected))


# --- the tree ---------------------------------------------------------------------------------------


def tree_parameters(parameters: dict[str, Any]) -> tree_oracle.Parameters:
    """The estimator's arguments in the words of the oracle; epsilon by Theorem 3.2 when left out."""
    k, alpha, beta, epsilon = (parameters[name] for name in ("pruning_size", "alpha", "beta", "epsilon"))
    if epsilon is None:
        epsilon = float(np.nextafter(min(1 / (k + 1), alpha / 5, beta / 12.5), 0.0))
    return tree_oracle.Parameters(parameters["max_depth"], k, alpha, beta, epsilon, parameters["lazy"])


class TreeOracle(Comparison):
    """The oracle's tree, which has the same history.

    The two are the same node by node: splits, s(v), c(v), tags, and which samples are in which leaf; Lemma 3.4 holds at
    every node; a tree that its model calls epsilon-feasible is, by Definition 3.1, for the samples held.
    """

    resolves_in_part = False

    def fitted(self) -> None:
        world = self.player.world
        self.parameters = tree_parameters(world.parameters)
        self.samples = {name: self.sample(name) for name in self.player.held}
        self.tree = tree_oracle.Tree(self.samples, self.parameters, world.columns)

    def sample(self, name: str) -> tree_oracle.Sample:
        return tree_oracle.sample_of(*self.player.held[name], self.player.world.columns)

    def added(self, names: Sequence[str]) -> None:
        """Insert one by one; then the oldest leaves a window that is too full."""
        n, window = len(self.samples) + len(names), self.player.world.parameters["window"]
        is_large = self.is_large(len(names), n)
        for name in names:
            self.samples[name] = self.sample(name)
            self.tree.insert(name, self.samples[name])
            if window is not None and len(self.samples) > window:
                oldest = next(iter(self.samples))
                self.tree.delete(oldest, self.samples.pop(oldest))
        self.build_anew(is_large)

    def deleted(self, names: Sequence[str]) -> None:
        is_large = self.is_large(len(names), len(self.samples))
        for name in names:
            self.tree.delete(name, self.samples.pop(name))
        self.build_anew(is_large)

    def is_large(self, n_changed: int, n_held: int) -> bool:
        """Whether a batch is so large that the model builds its tree again: the root would be rebuilt on the way."""
        root, share = self.tree.root, tree_engine._REBUILD_SHARE * n_held
        left = math.inf if root.tagged else self.parameters.epsilon * root.s - root.c
        return n_changed > tree_engine._REBUILD_SIZE and n_changed > min(share, left)

    def build_anew(self, is_large: bool) -> None:
        """Let go of the tree after a large batch."""
        if is_large:
            self.tree.root = tree_oracle.Node(0, 0, samples=dict(self.samples), tagged=True)
            if not self.parameters.lazy:
                self.tree.resolve()

    def resolved(self) -> None:
        self.tree.resolve()

    def check(self) -> None:
        seen = reading.read(self.player.model, self.samples)
        found = reading.difference(seen, self.tree.root)
        assert found is None, found
        assert not tree_oracle.wrong_sizes(seen, self.samples, self.parameters.epsilon)
        if self.player.model.guarantee == "epsilon-feasible":
            wrong = tree_oracle.violations(seen, self.samples, self.parameters, self.player.world.columns)
            assert not wrong, wrong
            self.player.tally.outcomes["feasible"] += 1

    def ask(self, queries: list[list[Any]], *, frozen: bool) -> None:
        """Compare the answers with the oracle's, bit for bit, and check condition 3."""
        columns = self.player.world.columns
        cells = [[cell(x, c) for x, c in zip(q, columns, strict=True)] for q in queries]
        result = self.player.model.query(queries, frozen=frozen)
        before = self.tree.copy() if frozen else None
        paths = [self.tree.query(row) for row in cells]
        classes = tree_oracle.classes_of(self.samples)
        expected = [tree_oracle.shares(path, classes) for path in paths]
        answers = [tree_oracle.class_of(label) for label in plain(result.labels)]
        assert [tree_oracle.class_of(label) for label in plain(result.classes)] == list(classes)
        assert result.probabilities.tolist() == expected
        assert answers == [classes[shares.index(max(shares))] for shares in expected]
        wrong = tree_oracle.wrong_labels(self.tree.root, cells, answers, self.samples)
        assert not wrong, wrong
        self.tree = before or self.tree

    def finish(self) -> None:
        """Ask for everything."""
        if self.player.held:
            self.ask(
                [list(q) for q in (*self.player.world.queries, *(f for f, _ in self.player.held.values()))],
                frozen=False,
            )
            self.player.check()

    def together(self, name: str) -> Collection[str]:
        """The samples of the leaf."""
        return self.tree.root.path(self.samples[name].cells)[-1].samples


# --- boosted trees ----------------------------------------------------------------------------------


class Boosted(Comparison):
    """Answers do not depend on what is asked together; the engine's own check recounts all that is counted."""

    def answers(self, model: Any, queries: Iterable[Sequence[Any]]) -> list[list[float]]:
        """Probabilities, or values."""
        rows = [list(query) for query in queries]
        if self.player.world.task == "regression":
            return [[value] for value in model.predict(rows).tolist()]
        result: list[list[float]] = model.predict_proba(rows).tolist()
        return result

    def ask(self, queries: list[list[Any]], *, frozen: bool) -> None:
        """Ask together, and one by one."""
        model = self.player.model
        digest = model.digest()
        together, answers = model.query(queries, frozen=frozen).labels.tolist(), self.answers(model, queries)
        for i, query in enumerate(queries):
            assert self.answers(model, [query]) == [answers[i]]
            assert model.predict([query]).tolist() == [together[i]]
        assert model.digest() == digest

    def check(self) -> None:
        """Probabilities add up to 1; values are finite, unless the targets themselves hardly are."""
        player, model = self.player, self.player.model
        is_classification = player.world.task == "classification"
        may_overflow = not is_classification and any(abs(y) > 1e300 for _, y in player.held.values())
        for row in self.answers(model, player.world.queries) if player.held else []:
            assert not any(math.isnan(value) for value in row), row
            assert may_overflow or all(math.isfinite(value) for value in row), row
            assert not is_classification or abs(sum(row) - 1) < 1e-12, row
        if player.held:
            self.assert_monotone()
        player.tally.outcomes[player.kind.outcome(model.engine_.last_update)] += 1

    def assert_monotone(self) -> None:
        """Predictions follow the constraints along each of their columns, by brute force."""
        world, model = self.player.world, self.player.model
        for column, direction in (world.parameters.get("monotone_constraints") or {}).items():
            seen = {f[column] for f, _ in world.rows} - {None}
            values = sorted({float(x) for x in seen if x == x} | {-1e30, 0.25, 1e30})
            if world.columns[column].type == "boolean":
                values = [0.0, 1.0]
            for query in world.queries:
                row = list(query)
                rows = [[*row[:column], value, *row[column + 1 :]] for value in values]
                answers = [answer[-1] for answer in self.answers(model, rows)]
                if len(self.answers(model, rows)[0]) == 1 and world.task == "classification":
                    continue  # one class
                steps = [(b - a) * direction for a, b in pairwise(answers)]
                assert min(steps) >= 0.0, (column, direction, answers)


class FreshFit(Boosted):
    """Incremental boosting: all is as of a fresh fit in other slots; the trees are the oracle's, if there is one."""

    def check(self) -> None:
        super().check()
        player, fresh = self.player, self.player.fresh()
        assert player.model.digest() == fresh.digest(), "the digest differs from a fresh fit's"
        if player.held:
            queries = [*player.world.queries, *(f for f, _ in player.held.values())]
            assert self.answers(player.model, queries) == self.answers(fresh, queries)
            assert unseen_answers(player.model, queries) == unseen_answers(fresh, queries)
            assert player.model.feature_importances_.tolist() == fresh.feature_importances_.tolist()
            if player.kind.oracle is not None:
                trees = boosted.expected(player.kind.oracle, player.world, player.held, player.model)
                boosted.assert_same(player.model.engine_.trees, trees)
                if player.world.task == "classification":
                    rows = [[cell(x, c) for x, c in zip(q, player.world.columns, strict=True)] for q in queries]
                    assert self.answers(player.model, queries) == [trees.probabilities(row) for row in rows]


def outcome_of_quantised(update: Any) -> str:
    """What an update came to, in a few words; of the engine's `last_update`."""
    if update.nothing_changed:
        return "nothing changed"
    if update.grown_from >= 0:
        return "all grown again" if update.grown_from == 0 else "the rest grown again"
    return "subtrees grown again" if update.n_nodes_rebuilt else "leaves changed"


def outcome_of_presorted(update: Any) -> str:
    """The same without quantization."""
    if update.first_tree_changed >= 0:
        return "roots changed"
    return "nodes changed" if update.nodes_changed else "nodes kept" if update.nodes_kept else "nothing kept"


def outcome_of_online(update: Any) -> str:
    """The same of online boosting."""
    if update.grown:
        return "all grown again"
    return "subtrees retrained" if update.nodes_retrained else "splits kept" if update.nodes_checked else "nothing"


class Twin(Boosted):
    """Online boosting: a twin with the same operations, which is never asked nor saved, has the same digest."""

    def fitted(self) -> None:
        """The history is forgotten: begin with a fresh fit."""
        self.twin = self.player.fresh()
        assert self.player.model.n_mutations_since_scrub_ == 0

    def added(self, names: Sequence[str]) -> None:
        rows = [self.player.held[name] for name in names]
        weights = self.player.world.weights_of(rows)
        self.twin.add([list(f) for f, _ in rows], [y for _, y in rows], ids=names, sample_weight=weights)

    def deleted(self, names: Sequence[str]) -> None:
        self.twin.delete(list(names))

    def replaced(self, name: str) -> None:
        features, label = self.player.held[name]
        weight = self.player.world.weight((features, label))
        self.twin.replace(name, list(features), label, sample_weight=weight)

    def check(self) -> None:
        super().check()
        assert self.player.model.digest() == self.twin.digest(), "the digest differs from the twin's"


class OnlineOracle(Twin):
    """And the oracle's trees node by node, with what every sample last contributed to each of them."""

    def fitted(self) -> None:
        super().fitted()
        world, held = self.player.world, self.player.held
        self.slow = online_oracle.OnlineBoosting(
            online_oracle.Parameters(**world.parameters), world.columns, world.task,
            grows_for_batches=world.tuning.get("replant_share", math.inf) != math.inf,
        )  # fmt: skip
        self.slow.samples = {name: self.sample(name) for name in held}
        if held:
            self.slow.grow()

    def sample(self, name: str) -> boosted_trees.Sample:
        world, held = self.player.world, self.player.held[name]
        return boosted_trees.sample_of(name, *held, world.columns, world.task, world.weight(held))

    def added(self, names: Sequence[str]) -> None:
        super().added(names)
        self.slow.add({name: self.sample(name) for name in names})

    def deleted(self, names: Sequence[str]) -> None:
        super().deleted(names)
        self.slow.delete(names)

    def replaced(self, name: str) -> None:
        """A replacement is a delete and an add."""
        super().replaced(name)
        self.slow.delete([name])
        self.slow.add({name: self.sample(name)})

    def check(self) -> None:
        super().check()
        player, forest = self.player, self.player.model.engine_.forest
        boosted.assert_same(player.model.engine_.trees, self.slow.ensemble())
        names = list(player.held)
        slots = player.model.samples_.find(names)
        given = [groups for iteration in self.slow.given for groups in iteration]
        is_packed = player.world.parameters.get("loss", "poisson") in ("quantile", "poisson")  # classes have none
        for kept, wanted in zip(forest.gh, given, strict=True):
            sums = [wanted[name] for name in names]
            assert kept[slots].tolist() == [256 * one.g + one.h if is_packed else one.g for one in sums]
