"""Boosting on presorted columns: what updates keep and when they begin from nothing, and the peer of the benchmarks."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numba import config

from benchmarks.boosting.straightforward import StraightforwardTrees
from oubli.core import IncrementalBoostingRegressor
from oubli.core.boosting.engine import tree_digests
from oubli.core.boosting.presorted.engine import LastUpdate
from oubli.core.boosting.state import LEAF
from tests.histories.kinds import BY_NAME
from tests.histories.player import fresh_fit
from tests.histories.worlds import Chooser

PARAMETERS: dict[str, Any] = {
    "learning_rate": 0.3, "l2_regularization": 0.0, "min_child_weight": 0.0, "quantization": None, "random_state": 0,
}  # fmt: skip

KNOWN_TO_THE_PEER = (
    *("n_estimators", "learning_rate", "max_depth", "l2_regularization", "min_child_weight", "random_state"),
    "quantization",
)


def test_a_pure_node_is_not_split_by_rounding() -> None:
    X = np.random.default_rng(0).normal(size=(1000, 3))
    model = IncrementalBoostingRegressor(1, max_depth=4, **PARAMETERS).fit(X, (X[:, 0] > 0) * 0.1 + 0.1)
    assert (model.engine_.trees.nodes["feature"] >= 0).sum() == 1


def test_an_update_counts_what_it_keeps() -> None:
    X = np.column_stack([np.arange(8) // 4, np.arange(8) % 2]).astype(float)
    model = IncrementalBoostingRegressor(1, max_depth=2, **{**PARAMETERS, "learning_rate": 1.0})
    engine = model.fit(X, 10.0 * X[:, 0] + X[:, 1]).engine_
    assert engine.last_update == LastUpdate()
    assert engine.trees.nodes["feature"].tolist() == [0, 1, 1, LEAF, LEAF, LEAF, LEAF]
    model.add([[0.0, 1.0]], [1.0])
    assert model.engine_.last_update == LastUpdate(nodes_kept=3, nodes_changed=0, first_tree_changed=-1)
    model.add(np.tile([[0.0, 1.0], [1.0, 0.0]], (60, 1)), np.tile([50.0, 0.0], 60))
    assert model.engine_.trees.nodes["feature"][0] == 1
    assert model.engine_.last_update == LastUpdate(nodes_kept=0, nodes_changed=1, first_tree_changed=0)


@pytest.mark.parametrize("early_stopping", [None, 3])
def test_when_most_samples_come_or_go_it_begins_from_nothing(early_stopping: int | None) -> None:
    rng = np.random.default_rng(1)
    X, y = rng.normal(size=(900, 3)).round(1), rng.normal(size=900).round(2)
    changed = {"early_stopping": early_stopping, "validation_fraction": 0.25}

    def fitted(n: int) -> Any:
        return IncrementalBoostingRegressor(4, max_depth=3, **PARAMETERS, **changed).fit(X[:n], y[:n])

    model = fitted(300)
    model.add(X[300:], y[300:])
    assert (model.engine_.last_update, model.digest()) == (LastUpdate(), fitted(900).digest())
    model.delete([str(i) for i in range(300, 900)])
    assert (model.engine_.last_update, model.digest()) == (LastUpdate(), fitted(300).digest())
    model.check_invariants()


@pytest.mark.long
@pytest.mark.skipif(bool(config.DISABLE_JIT), reason="a peer is compiled; ours is what is tested")
def test_a_peer_that_sorts_every_column_at_every_node_grows_the_same_trees() -> None:
    kind = BY_NAME["presorted"]
    for seed in range(24):
        world = kind.choose_world(Chooser.of_seed(seed), 600)
        world = replace(world, parameters={name: world.parameters[name] for name in KNOWN_TO_THE_PEER})
        rows = [(str(i), *world.row(i)) for i in range(len(world.rows))]
        ours = fresh_fit(kind, world, rows)
        theirs, slots = StraightforwardTrees(ours.settings_), ours.samples_.slots()
        theirs.fit(ours.problem(), np.random.default_rng(seed).permutation(slots))
        assert tree_digests(ours.engine_.trees) == tree_digests(theirs.trees)
        assert ours.engine_.trees.base.tobytes() == theirs.trees.base.tobytes()
        assert ours.engine_.trees.unit == theirs.trees.unit
