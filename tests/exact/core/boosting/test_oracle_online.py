"""Online boosting against its oracle: after every operation of a history the same trees, and the same derivatives."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from numba import config

from oubli.core.boosting.online.estimator import OnlineBoostingClassifier
from tests.exact.core.boosting.player import OnlinePlayer, play
from tests.exact.core.boosting.reading import assert_same, read
from tests.exact.core.boosting.worlds import histories, random_history
from tests.oracles.boosting import online as oracle
from tests.strategies import History, World

N = 2 if config.DISABLE_JIT else 12


class Player(OnlinePlayer):
    """Of this engine, and the oracle beside it."""

    def __init__(self, world: World, seed: int = 0) -> None:
        super().__init__(world, seed)
        self.slow = self.new_oracle()

    def new_oracle(self) -> oracle.OnlineBoosting:
        """The oracle without samples."""
        parameters = oracle.Parameters(**self.world.parameters)
        return oracle.OnlineBoosting(
            parameters, self.world.columns, self.world.task, grows_for_batches=self.world.replant_share != math.inf
        )

    def sample(self, name: str, row: tuple[Sequence[Any], Any]) -> oracle.Sample:
        """A row as the oracle holds it."""
        return oracle.sample_of(name, row[0], row[1], self.world.columns, self.world.task)

    def fit(self, n: int) -> None:
        """Fit both."""
        super().fit(n)
        self.slow = self.new_oracle()
        self.slow.samples = {name: self.sample(name, row) for name, row in self.held.items()}
        self.slow.grow()

    def add_rows(self, ids: list[Any] | None, rows: list[tuple[Sequence[Any], Any]]) -> None:
        """Add to both."""
        before = set(self.held)
        super().add_rows(ids, rows)
        names = [i for i in self.held if i not in before] if ids is None else [str(i) for i in ids]
        if names:
            self.slow.add({name: self.sample(name, row) for name, row in zip(names, rows, strict=True)})

    def delete_ids(self, ids: list[str]) -> None:
        """Delete from both."""
        super().delete_ids(ids)
        self.slow.delete(ids)

    def rectified(self, name: str) -> None:
        """A replacement is a delete and an add."""
        self.slow.delete([name])
        self.slow.add({name: self.sample(name, self.held[name])})

    def scrub(self, n: int) -> None:
        """Forget the history of both."""
        super().scrub(n)
        self.slow.grow()

    def check(self) -> None:
        """Compare the trees node by node, and what every sample last contributed to each of them."""
        super().check()
        slow, forest = self.slow, self.model.engine_.forest
        assert_same(self.model.engine_.trees, slow.ensemble())
        names = list(self.held)
        slots = self.model.samples_.find(names)
        given = [groups for iteration in slow.given for groups in iteration]
        for kept, wanted in zip(forest.gh, given, strict=True):
            if self.world.task == "regression":
                assert kept[slots].tolist() == [wanted[name].g for name in names]
            else:
                assert kept[slots].tolist() == [256 * wanted[name].g + wanted[name].h for name in names]


@pytest.mark.parametrize("part", range(2))
def test_random_histories(part: int) -> None:
    for number in range(N * part, N * part + N):
        play(Player, random_history("online", 10_000 + number, max_operations=8, max_rows=40))


@settings(max_examples=10)
@given(histories("online"))
def test_histories_that_shrink(history: History) -> None:
    """Fewer and simpler than the random ones; what fails here comes as its smallest example."""
    play(Player, history)


def test_a_fit_by_hand() -> None:
    """One tree of two leaves; the derivatives of F = 0 are known: g = +-127 / 2 and h = 254, rounded up or down."""
    X, y = [[float(i)] for i in range(8)], [0, 0, 0, 0, 1, 1, 1, 1]
    model = OnlineBoostingClassifier(1, max_leaf_nodes=2, l2_regularization=0.0, random_state=0).fit(X, y)
    (tree,) = read(model.engine_.trees).trees()
    assert tree.split is not None
    assert tree.split.threshold == 3.5
    # -G / H of four samples each: 63 or 64 in 127 each, over 254 in 1016 each
    assert [leaf.value for leaf in tree.leaves()] == [
        pytest.approx(-8 * g / h) for g, h in _sums_of_halves(model, tree)
    ]
    assert all(1.98 < abs(leaf.value) < 2.02 for leaf in tree.leaves())
    assert np.sign([leaf.value for leaf in tree.leaves()]).tolist() == [-1.0, 1.0]


def _sums_of_halves(model: Any, tree: Any) -> list[tuple[int, int]]:
    gh = model.engine_.forest.gh[0, model.samples_.find([str(i) for i in range(8)])].astype(int)
    g, h = gh >> 8, gh & 255
    assert set(abs(g).tolist()) <= {63, 64}
    assert set(h.tolist()) <= {254}
    return [(int(g[:4].sum()), int(h[:4].sum())), (int(g[4:].sum()), int(h[4:].sum()))]
