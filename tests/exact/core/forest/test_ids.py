"""Ids decide which trees learn a sample and nothing else, and a slot may go to another sample below a tag."""

from __future__ import annotations

import itertools

import pytest

from oubli.core import DynamicForestClassifier
from tests.exact.core.forest.situations import FOREST, NUMERIC, change, start
from tests.oracles import common
from tests.oracles import forest as oracle

X = [[float(i * 7 % 5), "abc"[i % 3], i % 2 == 0] for i in range(24)]
Y = [i * i % 4 for i in range(24)]


@pytest.mark.parametrize(("occurrence", "n_digests"), [(1.0, 1), (0.34, 2)])
def test_ids_decide_the_trees_and_nothing_else(occurrence: float, n_digests: int) -> None:
    """With q = 1 all samples are in all trees: then the digest must not know the ids.

    A digest that hashed the sample store would pass every other test, and prove nothing.
    """
    make = DynamicForestClassifier(3, occurrence=occurrence, random_state=0)
    names = ([f"{name} {i}" for i in range(24)] for name in ("one", "other"))
    assert len({make.fit(X, Y, ids=ids).digest() for ids in names}) == n_digests


@pytest.mark.parametrize("lazy", [True, False])
def test_a_slot_is_reused_under_a_tag(lazy: bool) -> None:
    """Delete, take the slot over by a sample of other trees, resolve: no one may be found twice."""
    reused = other_trees = 0
    samples = [(f"r{i}", (float(i),), i % 2) for i in range(12)]
    for minimum, seed in itertools.product((2, 10**9), range(2)):
        with FOREST.tuned(minimum):
            forest = {"n_estimators": 6, "occurrence": 0.34}
            player = start([NUMERIC], samples, random_state=seed, lazy=lazy, min_samples_split=3, **forest)
            parameters = oracle.Parameters(seed=seed, **forest)  # type: ignore[arg-type]
            for i in range(6):
                slot = int(player.model.samples_.find([f"r{i}"])[0])
                change(player, [f"r{i}"])
                change(player, [(f"n{i}", (float(i) + 0.5,), i % 2)])
                reused += slot == int(player.model.samples_.find([f"n{i}"])[0])
                hashes = [common.hash_bytes(f"{letter}{i}".encode()) for letter in "rn"]
                trees = [set(oracle.drawn_of(hashed, parameters)[0]) for hashed in hashes]
                other_trees += trees[0] != trees[1]
                if i % 3 == 1:
                    player.model.resolve(1)
                    player.check()
            player.beside.finish()
    assert reused
    assert other_trees
