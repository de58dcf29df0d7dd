"""Known ways to get updates of an exact forest almost right: what changes a leaf, a class, a counter or a scale."""

from __future__ import annotations

import itertools
import math
import random
from typing import Any

import numpy as np
import pytest

from oubli.core.forest.layout.blocks import N_ATTRIBUTES
from tests.exact.core.forest.pitfalls import (
    BOOLEAN,
    CATEGORY,
    FOREST,
    MIXED,
    NUMERIC,
    WIDE,
    Make,
    Sample,
    add,
    change,
    delete,
    live,
    mixed_samples,
    ramp,
    root_split,
    start,
)
from tests.histories.comparisons import bits
from tests.oracles import forest as oracle

# --- transitions ----------------------------------------------------------------------------------


def test_crossing_the_minimum_split_size_both_ways(small: Make) -> None:
    for player in small([NUMERIC], ramp(6), min_samples_split=6):
        assert root_split(player) is not None
        delete(player, "r2")
        assert root_split(player) is None
        change(player, ..., [("r2", (2.0,), 0)])
        assert root_split(player) is not None
        live(player, ..., ["r1", "r3"], [("x", (9.0,), 1), ("y", (9.5,), 0)])


def test_becoming_pure_and_impure(small: Make) -> None:
    samples = [(f"s{i}", (float(i),), 0) for i in range(6)] + [("odd", (2.5,), 1)]
    for player in small([NUMERIC], samples):
        delete(player, "odd")
        assert root_split(player) is None
        change(player, ..., [("odd 2", (3.5,), 1)])
        assert root_split(player) is not None
        live(player, ..., [*(f"s{i}" for i in range(6))])


def test_becoming_pure_and_impure_in_regression(small: Make) -> None:
    """Pure means one quantised target; the end of the targets' range may have copies."""
    samples = [(f"s{i}", (float(i),), 2.0) for i in range(6)] + [("odd", (2.5,), 7.0), ("odd 2", (1.5,), 7.0)]
    for player in small([NUMERIC], samples, task="regression"):
        delete(player, "odd")
        assert root_split(player) is not None
        change(player, ..., ["odd 2"])
        assert root_split(player) is None
        change(player, ..., [("low", (3.5,), -1.0)])
        assert root_split(player) is not None
        player.beside.finish()


def test_equal_scores_go_to_the_lower_attribute_and_candidate(small: Make) -> None:
    """Two values a column: every candidate of every column makes the same partition."""
    samples = [(f"s{i}", (float(i % 2), float(i % 2), "ab"[i % 2]), i % 2) for i in range(6)]
    columns = [NUMERIC, BOOLEAN, CATEGORY]
    for player in small(columns, samples, max_features=3, n_thresholds=4):
        assert root_split(player) == (0, 0)
        change(player, ..., [("tie", (0.5, 1.0, "b"), 1)], ..., ["tie"])
        assert root_split(player) == (0, 0)
        player.beside.finish()


def test_a_zero_gain_split_is_taken(small: Make) -> None:
    """Exclusive or: no split gains anything, and all the same the trees tell the classes apart."""
    samples = [("a", (0.0, 0.0), 0), ("b", (1.0, 1.0), 0), ("c", (0.0, 1.0), 1), ("d", (1.0, 0.0), 1)]
    for player in small([NUMERIC, NUMERIC], samples):
        assert player.model.predict([list(f) for _, f, _ in samples]).tolist() == [0, 0, 1, 1]
        live(player, ["d"], [("d", (1.0, 0.0), 1)])


def test_the_last_sample_of_a_class_takes_it_along(small: Make) -> None:
    samples = [*ramp(6), ("rare", (2.5,), 7)]
    for player in small([NUMERIC], samples):
        assert player.model.classes_.tolist() == [0, 1, 7]
        delete(player, "rare")
        assert player.model.classes_.tolist() == [0, 1]
        assert player.model.predict_proba([[2.5]]).shape == (1, 2)
        change(player, ..., [("other", (0.5,), -3)])
        assert player.model.classes_.tolist() == [-3, 0, 1]
        player.beside.finish()


def test_many_new_classes_at_any_time(small: Make) -> None:
    """Class codes are reused and their table grows; counts of the classes before stay."""
    for player in small([NUMERIC], ramp(4), criterion="entropy"):
        for c in range(2, 12):
            add(player, (f"c{c}", (float(c) / 3,), c))
        live(player, [*(f"c{c}" for c in range(2, 8))], [*((f"d{c}", (float(c) / 5,), 100 - c) for c in range(9))])


def test_trees_without_samples_are_left_out_of_the_divisor(small: Make) -> None:
    """One sample in one of ten trees: its class has probability 1, not 1/10."""
    for player in small([NUMERIC], [("only", (1.0,), 4)], n_estimators=10, occurrence=0.1):
        assert player.model.predict_proba([[1.0]]).tolist() == [[1.0]]
        change(player, [("second", (2.0,), 5), ("third", (3.0,), 4)], ..., ["only"], ..., ["third"])
        assert player.model.predict_proba([[1.0]]).tolist() == [[1.0]]
        player.beside.finish()


def test_an_empty_tree_is_planted_again(small: Make) -> None:
    emptied = 0
    for player in small([NUMERIC], ramp(3), n_estimators=6, occurrence=0.3):
        for name in ("r0", "r1", "r2"):
            delete(player, name)
            emptied += None in player.beside.expected().trees
            player.beside.resolved()
        live(player, [*ramp(5)])
    assert emptied


def test_a_slot_is_reused_under_a_tag(lazy: bool, seeds: range) -> None:
    """Delete, take the slot over by a sample of other trees, resolve: no one may be found twice."""
    reused = other_trees = 0
    for minimum, seed in itertools.product((2, 10**9), seeds):
        with FOREST.tuned(minimum):
            player = start(
                [NUMERIC], ramp(12), n_estimators=6, occurrence=0.34, random_state=seed, lazy=lazy, min_samples_split=3
            )
            parameters = oracle.Parameters(seed=seed, n_estimators=6, occurrence=0.34)
            for i in range(6):
                slot = int(player.model.samples_.find([f"r{i}"])[0])
                change(player, [f"r{i}"], [(f"n{i}", (float(i) + 0.5,), i % 2)])
                reused += slot == int(player.model.samples_.find([f"n{i}"])[0])
                trees = [set(oracle.trees_of(name, parameters)) for name in (f"r{i}", f"n{i}")]
                other_trees += trees[0] != trees[1]
                if i % 3 == 1:
                    player.model.resolve(1)
                    player.check()
            player.beside.finish()
    assert reused
    assert other_trees


# --- counters -------------------------------------------------------------------------------------


def test_the_best_score_is_raised_again(small: Make) -> None:
    """The best split gets worse, loses to another, and wins again: each time it is noticed."""
    samples: list[Sample] = [(f"s{i}", (float(i // 6), float(i % 2)), i // 6) for i in range(12)]
    worse: list[Sample] = [(f"w{i}", (float(i % 2), float(i % 2)), i % 2 ^ (i > 40)) for i in range(12)]
    noise: list[Sample] = [(f"x{i}", (float(i % 2), float(i // 2 % 2)), i // 2 % 2) for i in range(20)]
    seen = set()
    for player in small([NUMERIC, NUMERIC], samples, max_features=2, n_thresholds=2):
        first = root_split(player)
        for extra in (noise, worse):
            for sample in extra:
                add(player, sample)
                seen.add(root_split(player) == first)
            player.beside.resolved()
            for name, _, _ in extra:
                delete(player, name)
            assert root_split(player) == first
        player.beside.finish()
    assert seen == {True, False}


@pytest.mark.parametrize("task", ["classification", "regression"])
@pytest.mark.parametrize("kept", [0, 1, 7, 30, 155])
def test_a_large_batch_delete_keeps_every_counter_right(lazy: bool, task: str, kept: int) -> None:
    rng = random.Random(kept)
    samples = [
        (f"s{i}", (rng.random(), rng.choice([None, 1.0, 2.0]), rng.choice("abcd")), rng.randrange(3))
        for i in range(200)
    ]
    for minimum, share in ((2, math.inf), (20, math.inf), (10**9, 0.08)):
        with FOREST.tuned(minimum, share):
            player = start([NUMERIC, NUMERIC, CATEGORY], samples, task=task, lazy=lazy, max_features=2)
            names = sorted(player.held)
            rng.shuffle(names)
            delete(player, *names[kept:])
            if kept and task == "classification":
                probabilities = player.model.predict_proba([list(f) for _, f, _ in samples[:50]])
                assert (probabilities <= 1.0).all()
                assert (probabilities >= 0.0).all()
                assert np.allclose(probabilities.sum(axis=1), 1.0)
            live(player, [*(s for s in samples if s[0] in names[kept : kept + 30])])


# --- the rules of exactness -----------------------------------------------------------------------


@pytest.mark.parametrize("task", ["classification", "regression"])
def test_the_order_of_adds_and_the_sizes_of_batches_do_not_matter(small: Make, task: str) -> None:
    samples = mixed_samples()
    for player in small(MIXED, samples, task=task, occurrence=0.5, n_estimators=4):
        rng = random.Random(player.world.parameters["random_state"])
        for size in (1, 5, len(samples)):
            rng.shuffle(samples)
            other = start(
                MIXED, [], task=task, **{k: v for k, v in player.world.parameters.items() if k != "criterion"}
            )
            for i in range(0, len(samples), size):
                add(other, *samples[i : i + size])
            assert other.model.digest() == player.model.digest()
        player.beside.finish()


def test_ids_decide_the_trees_and_nothing_else(small: Make) -> None:
    """With q = 1 all samples are in all trees: then the digest must not know the ids.

    A digest that hashed the sample store would pass every other test, and prove nothing.
    """
    samples = mixed_samples()
    renamed = [(f"other {i}", f, y) for i, f, y in samples]
    for one, other in zip(small(MIXED, samples), small(MIXED, renamed), strict=True):
        assert one.model.digest() == other.model.digest()
    different = 0
    for one, other in zip(small(MIXED, samples, occurrence=0.34), small(MIXED, renamed, occurrence=0.34), strict=True):
        different += one.model.digest() != other.model.digest()
    assert different


def test_classes_are_ordered_by_type_and_value(small: Make) -> None:
    labels = ["b", 2, True, 0.5, "a", 1, False, -1]
    expected = [False, True, 0.5, -1, 1, 2, "a", "b"]
    samples = [(f"s{i}", (float(i),), label) for i, label in enumerate(labels)]
    for player in small([NUMERIC], samples, label_type="scalar"):
        classes = list(player.model.classes_)
        assert [(type(c), c) for c in classes] == [(type(c), c) for c in expected]
        delete(player, "s2", "s4")  # True is not 1: its class leaves, 1 stays
        assert list(player.model.classes_) == [False, 0.5, -1, 1, 2, "b"]
        player.beside.finish()


def test_equal_probabilities_go_to_the_smaller_class(small: Make) -> None:
    """The smaller class arrives last and has the higher internal code."""
    samples = [("first", (1.0,), 9), ("second", (1.0,), 2)]
    for player in small([NUMERIC], samples):
        assert player.model.predict_proba([[1.0]]).tolist() == [[0.5, 0.5]]
        assert player.model.predict([[1.0]]).tolist() == [2]
        add(player, ("third", (1.0,), -5), ("fourth", (1.0,), -5), ("fifth", (1.0,), 9))
        assert player.model.predict([[1.0]]).tolist() == [-5]


def test_targets_are_requantised_when_the_largest_crosses_the_scale(small: Make) -> None:
    """16 and less: e = 4; above: e = 8. With every crossing all sums change their unit."""
    samples = [(f"s{i}", (float(i),), 0.1 * i) for i in range(10)]
    exponents = []
    for player in small([NUMERIC], samples, task="regression"):
        for name, y in (("a", 16.0), ("b", math.nextafter(16.0, 17.0)), ("c", -1e9), ("d", 1e-9)):
            add(player, (name, (4.5,), y))
            exponents.append(player.beside.expected().exponent)
            player.beside.resolved()
        for name in ("c", "b", "a"):
            delete(player, name)
            exponents.append(player.beside.expected().exponent)
            player.beside.resolved()
        player.beside.finish()
    assert exponents[:7] == [4, 8, 32, 32, 8, 4, 0]


def test_minus_zero_is_zero(small: Make) -> None:
    """In features, in queries and in targets."""
    signs = [(0.0, 1.0), (-0.0, 1.0)]
    digests: dict[int, set[str]] = {}
    for zero, one in signs:
        samples = [(f"s{i}", (zero if i % 2 else one, zero), zero if i % 3 else one) for i in range(8)]
        for player in small([NUMERIC, NUMERIC], samples, task="regression"):
            digests.setdefault(player.world.parameters["random_state"], set()).add(player.model.digest())
            both = player.model.predict([[0.0, 0.0], [-0.0, -0.0]])
            assert bits(both[:1]) == bits(both[1:])
            live(player, ["s1"])
    assert all(len(found) == 1 for found in digests.values())


def test_lazy_is_not_part_of_the_model(small: Make) -> None:
    samples = mixed_samples()
    for player in small(MIXED, samples):
        other = start(MIXED, samples, **{**player.world.parameters, "lazy": not player.world.parameters["lazy"]})
        for p in (player, other):
            delete(p, "s1", "s2")
            add(p, ("n", (7.0, "d", None), 2))
        assert player.model.digest() == other.model.digest()


def test_parameters_and_types_are_part_of_the_digest() -> None:
    samples = ramp(6)
    variants: list[dict[str, Any]] = [
        {},
        {"random_state": 1},
        {"n_estimators": 4},
        {"occurrence": 0.5},
        {"max_depth": 9},
        {"min_samples_split": 3},
        {"n_thresholds": 4},
        {"criterion": "entropy"},
    ]
    digests = [start([NUMERIC], samples, **variant).model.digest() for variant in variants]
    digests.append(start([WIDE], samples).model.digest())
    digests.append(start([NUMERIC], samples, task="regression").model.digest())
    assert len(set(digests)) == len(digests)


@pytest.mark.parametrize("order", [("s", "c"), ("c", "s")])
def test_subjects_are_not_part_of_the_digest(order: tuple[str, str]) -> None:
    player = start([NUMERIC], ramp(6))
    before = player.model.digest()
    player.model.samples_.set_subject("r1", f"person {order[0]}")
    player.model.samples_.set_subject("r2", f"person {order[1]}")
    assert player.model.digest() == before


# --- verification ---------------------------------------------------------------------------------


def test_verify_notices_one_wrong_count() -> None:
    """A leaf that counts a sample of the wrong class must not pass."""
    player = start(MIXED, mixed_samples())
    statistics = player.model.engine_.trees.statistics
    leaf = int(np.argmax(statistics.sum(axis=1)))
    statistics[leaf] = np.roll(statistics[leaf], 1)
    assert not player.model.verify().ok


def test_verify_notices_a_wrong_counter_that_no_prediction_reads_yet() -> None:
    """A candidate's counter decides only after a later delete; verify recounts it all the same."""
    rng = random.Random(0)
    samples = [(f"s{i}", (rng.random(), rng.random()), rng.randrange(2)) for i in range(60)]
    with FOREST.tuned(8):
        player = start([NUMERIC, NUMERIC], samples, max_features=2)
        assert player.model.verify().ok
        ensemble = player.model.engine_
        block = int(np.flatnonzero(ensemble.blocks.longs[1:, N_ATTRIBUTES] > 0)[0]) + 1
        ensemble.blocks.counters[block, ensemble.layout.counters_at] += 1
        assert not player.model.verify().ok
