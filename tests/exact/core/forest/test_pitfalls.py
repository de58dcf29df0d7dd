"""Each known way to get an exact forest almost right, by name.

Every test builds the situation on purpose, checks with the oracle that it really arises, and then
compares with a fresh fit and with the oracle. `small` plays it lazily and eagerly, with candidate
counters in every node and in none, and with several seeds: a slip may show in one of them only.
"""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import pytest

from oubli.core.errors import DuplicateIdError, EmptyModelError, InputError
from oubli.core.forest.blocks import N_ATTRIBUTES
from tests.exact.core.forest.player import Player, bits, fresh_fit, tuned
from tests.oracles import forest as oracle
from tests.oracles.forest import Column
from tests.strategies import FLOAT32_MAX, FLOAT64_MAX, World, neighbours

NUMERIC, WIDE, CATEGORY, BOOLEAN = Column(), Column("numeric", "float64"), Column("categorical"), Column("boolean")
Sample = tuple[str, tuple[Any, ...], Any]
Make = Callable[..., Iterator[Player]]


@pytest.fixture(params=["lazy", "eager"])
def lazy(request: pytest.FixtureRequest) -> bool:
    return bool(request.param == "lazy")


SEEDS = [range(4), pytest.param(range(4, 8), marks=pytest.mark.long)]


@pytest.fixture(params=SEEDS, ids=["first seeds", "more seeds"])
def seeds(request: pytest.FixtureRequest) -> range:
    found: range = request.param
    return found


@pytest.fixture(params=["lazy", "eager", "lazy, no counters"])
def small(request: pytest.FixtureRequest, seeds: range) -> Iterator[Make]:
    """Make players for several seeds: small(columns, samples, **parameters)."""
    mode = request.param

    def make(columns: Sequence[Column], samples: Sequence[Sample], **parameters: Any) -> Iterator[Player]:
        for seed in seeds:
            yield start(columns, samples, **{"random_state": seed, "lazy": mode != "eager", **parameters})

    with tuned(10**9 if mode == "lazy, no counters" else 2):
        yield make


def start(columns: Sequence[Column], samples: Sequence[Sample], **parameters: Any) -> Player:
    """A player whose model was fitted to these samples."""
    label_type = parameters.pop("label_type", "integer")
    task = parameters.pop("task", "classification")
    defaults = {
        "n_estimators": 3,
        "occurrence": 1.0,
        "max_depth": None,
        "min_samples_split": 2,
        "n_thresholds": 3,
        "max_features": 1,
        "criterion": "gini" if task == "classification" else "squared_error",
        "lazy": True,
        "random_state": 0,
    }
    world = World(
        columns=tuple(columns),
        task=task,
        label_type="number" if task == "regression" else label_type,
        parameters={**defaults, **parameters},
        rows=tuple((features, label) for _, features, label in samples),
        queries=tuple(features for _, features, _ in samples) or ((None,) * len(columns),),
    )
    player = Player(world)
    player.model = fresh_fit(world, samples)
    player.held = {name: (features, label) for name, features, label in samples}
    player.check()
    return player


def add(player: Player, *samples: Sample) -> None:
    player.add_rows([name for name, _, _ in samples], [(f, y) for _, f, y in samples])
    player.check()


def delete(player: Player, *ids: str) -> None:
    player.delete_ids(list(ids))
    player.check()


def root_attributes(player: Player, tree: int = 0) -> list[int]:
    """The attributes that the oracle uses at a root, all samples being in every tree."""
    parameters = oracle.Parameters(
        seed=player.world.parameters["random_state"], n_attributes=player.world.parameters["max_features"]
    )
    samples = [
        oracle._Sample(tuple(oracle.cell(v, c) for v, c in zip(f, player.world.columns, strict=True)), 0)
        for f, _ in player.held.values()
    ]
    return oracle.attributes_of(oracle.tree_key(parameters.seed, tree), samples, parameters.n_attributes)


def root_split(player: Player, tree: int = 0) -> tuple[int, int] | None:
    """(attribute, candidate) of a root as the oracle chooses it."""
    root = player.oracle().trees[tree]
    return None if root is None else root["split"]


def ramp(n: int, columns: int = 1, classes: int = 2) -> list[Sample]:
    """n samples on a line, classes in turn."""
    return [(f"r{i}", (float(i),) * columns, i % classes) for i in range(n)]


# --- attributes -----------------------------------------------------------------------------------


def test_a_skipped_attribute_becomes_usable_by_an_add(small: Make) -> None:
    changed = 0
    samples = [(f"s{i}", (5.0, float(i), 7.0), i % 2) for i in range(8)]
    for player in small([NUMERIC] * 3, samples):
        before = root_attributes(player)
        add(player, ("new", (6.0, 3.0, 7.0), 1))
        changed += before != root_attributes(player)
        player.compare()
    assert changed


def test_a_used_attribute_becomes_unusable_by_a_delete(small: Make) -> None:
    changed = 0
    samples = [(f"s{i}", (5.0, float(i)), i % 2) for i in range(8)] + [("odd", (6.0, 3.0), 1)]
    for player in small([NUMERIC] * 2, samples):
        before = root_attributes(player)
        delete(player, "odd")
        changed += before != root_attributes(player)
        player.compare()
    assert changed


@pytest.mark.parametrize("value", [None, 4.0], ids=["missing", "present"])
def test_a_skipped_attribute_becomes_usable_by_a_missing_value_or_the_first_present_one(
    small: Make, value: float | None
) -> None:
    changed = 0
    constant = 4.0 if value is None else None
    samples = [(f"s{i}", (constant, float(i)), i % 2) for i in range(8)]
    for player in small([NUMERIC] * 2, samples):
        before = root_attributes(player)
        add(player, ("new", (value, 3.0), 1))
        changed += before != root_attributes(player)
        player.compare()
    assert changed


def test_a_categorical_attribute_becomes_usable_and_unusable(small: Make) -> None:
    changed = 0
    samples = [(f"s{i}", ("a", float(i), "x"), i % 2) for i in range(8)]
    for player in small([CATEGORY, NUMERIC, CATEGORY], samples):
        before = root_attributes(player)
        add(player, ("new", ("b", 3.0, "x"), 1))
        changed += before != root_attributes(player)
        player.compare_digest()
        delete(player, "new")
        assert before == root_attributes(player)
        add(player, ("again", (None, 3.0, "x"), 1))
        player.compare()
    assert changed


def test_all_attributes_constant_is_a_leaf_until_one_is_not(small: Make) -> None:
    """Four equal rows with different labels cannot be split; a fifth row can be split off."""
    samples = [(f"s{i}", (1.0, "a"), i % 2) for i in range(4)]
    for player in small([NUMERIC, CATEGORY], samples):
        assert root_split(player) is None
        add(player, ("new", (1.0, "b"), 1))
        assert root_split(player) is not None
        player.compare_digest()
        delete(player, "new")
        player.compare()


# --- thresholds -----------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [np.float32, np.float64])
@pytest.mark.parametrize("low", [1.0, -1.0, 2.0**24, 0.0, -1e-45])
def test_thresholds_on_a_narrow_range_never_leave_a_side_empty(small: Make, kind: type[Any], low: float) -> None:
    """Of two adjacent floats every threshold must be the lower one; rounding would reach the upper."""
    lo, hi = neighbours(low, 2, kind)
    column = NUMERIC if kind is np.float32 else WIDE
    for player in small([column], [("a", (lo,), 0), ("b", (hi,), 1)], n_thresholds=7):
        assert player.model.predict_proba([[lo], [hi]]).tolist() == [[1.0, 0.0], [0.0, 1.0]]
        add(player, ("c", (lo,), 0), ("d", (hi,), 1))
        player.compare()


@pytest.mark.parametrize(("column", "largest"), [(NUMERIC, FLOAT32_MAX), (WIDE, FLOAT64_MAX)])
def test_the_width_of_a_range_may_overflow(small: Make, column: Column, largest: float) -> None:
    samples = [("lo", (-largest,), 0), ("hi", (largest,), 1), ("mid", (0.0,), 0), ("mid 2", (1.0,), 1)]
    for player in small([column], samples, n_thresholds=6):
        player.compare_digest()
        add(player, ("lo 2", (-largest,), 1))
        delete(player, "hi")
        player.compare()


def test_thresholds_of_float64_columns_are_float64(small: Make) -> None:
    """These values are one float32; a threshold rounded to float32 would not tell them apart."""
    values = neighbours(16777217.0, 4, np.float64)
    samples = [(f"s{i}", (x,), i) for i, x in enumerate(values)]
    for player in small([WIDE], samples):
        assert player.model.predict([[x] for x in values]).tolist() == [0, 1, 2, 3]
        delete(player, "s1")
        player.compare()


# --- ranges ---------------------------------------------------------------------------------------


def test_an_extreme_with_duplicates_leaves_copy_by_copy(small: Make) -> None:
    """Two copies of each end: the range changes with the last copy, not with the first."""
    changed = 0
    samples = [*ramp(6), ("hi 1", (50.0,), 0), ("hi 2", (50.0,), 1), ("lo 1", (-9.0,), 1), ("lo 2", (-9.0,), 0)]
    for player in small([NUMERIC], samples):
        for name in ("hi 1", "lo 2", "lo 1", "hi 2"):
            before = player.oracle().trees[0]
            delete(player, name)
            after = player.oracle().trees[0]
            assert before is not None
            assert after is not None
            changed += "rule" in before and before["rule"] != after.get("rule")
            player.compare_digest()
        player.compare()
    assert changed


def test_the_last_copy_of_an_extreme_leaves_in_a_batch_with_others(small: Make) -> None:
    samples = [*ramp(8), ("hi", (50.0,), 0), ("lo", (-9.0,), 1)]
    for player in small([NUMERIC, NUMERIC], [(i, (f[0], -f[0]), y) for i, f, y in samples]):
        delete(player, "r3", "hi", "r5", "lo")
        player.compare()


def test_an_extreme_leaves_and_another_takes_its_place(small: Make) -> None:
    samples = [*ramp(8), ("hi", (50.0,), 0)]
    for player in small([NUMERIC], samples):
        delete(player, "hi")
        add(player, ("new hi", (50.0,), 1))
        player.compare_digest()
        add(player, ("higher", (51.0,), 0))
        delete(player, "new hi", "higher")
        player.compare()


# --- missing values -------------------------------------------------------------------------------


def test_the_missing_direction_is_a_hash_even_where_nothing_is_missing(small: Make) -> None:
    """Rows without missing values must still send a query's missing value both ways."""
    directions = set()
    for player in small([NUMERIC], ramp(8)):
        for tree in player.oracle().trees:
            assert tree is not None
            directions |= {n["rule"]["missing_left"] for n in oracle.preorder(tree) if n["split"]}
        player.assert_result(player.model.query([[None]]), [[None]])
        add(player, ("gap", (None,), 1))
        player.compare_digest()
        delete(player, "gap")
        player.compare()
    assert directions == {False, True}


def test_an_attribute_constant_but_for_missing_values_has_one_candidate(small: Make) -> None:
    """Missing against the rest: infinite threshold, missing on the right."""
    samples = [("a", (2.0,), 0), ("b", (2.0,), 0), ("c", (None,), 1), ("d", (None,), 1)]
    for player in small([NUMERIC], samples):
        root = player.oracle().trees[0]
        assert root is not None
        assert root["rule"] == {"kind": "threshold", "threshold": math.inf, "missing_left": False}
        assert player.model.predict([[2.0], [None], [1e30]]).tolist() == [0, 1, 0]
        delete(player, "c")
        player.compare_digest()
        delete(player, "d")  # now constant
        player.compare_digest()
        add(player, ("e", (3.0,), 1))  # now a range
        player.compare_digest()
        add(player, ("f", (None,), 0))
        delete(player, "e")  # missing against the rest again
        player.compare()


@pytest.mark.parametrize("max_features", [1, 2])
@pytest.mark.parametrize(("kind", "value"), [(NUMERIC, 2.0), (BOOLEAN, True), (CATEGORY, "a")])
def test_the_last_missing_value_leaves(small: Make, kind: Column, value: Any, max_features: int) -> None:
    """What is left of the attribute is a constant, so the node takes another in its place."""
    changed = 0
    samples = [(f"s{i}", (value, float(i), float(i // 3)), i % 2) for i in range(9)]
    samples += [("gap", (None, 3.0, 1.0), 1), ("gap 2", (None, 4.0, 2.0), 0)]
    for player in small([kind, NUMERIC, NUMERIC], samples, max_features=max_features):
        before = root_attributes(player)
        delete(player, "gap")
        assert before == root_attributes(player)
        player.compare_digest()
        delete(player, "gap 2")
        changed += before != root_attributes(player)
        player.compare()
    assert changed


def test_all_present_values_leave(small: Make) -> None:
    samples = [("a", (2.0, 1.0), 0), ("b", (3.0, 2.0), 1), ("c", (None, 3.0), 1), ("d", (None, 4.0), 0)]
    for player in small([NUMERIC, NUMERIC], samples, max_features=2):
        delete(player, "a")
        player.compare_digest()
        delete(player, "b")
        player.compare()


# --- categories -----------------------------------------------------------------------------------


def test_categories_are_never_compared_by_internal_code(small: Make) -> None:
    """The same set, reached in two orders, gives every category another code, and the same trees."""
    names = ["red", "green", "blue", "grey", "pink"]
    samples: list[Sample] = [(f"s{i}", (names[i % 5], names[(i * 3) % 4]), i % 3) for i in range(15)]
    columns = [CATEGORY, CATEGORY]
    for one, other in zip(
        small(columns, samples, max_features=2),
        small(columns, samples[::-1], max_features=2),
        strict=True,
    ):
        codes = [
            {name: p.model.samples_.categories.code(0, name) for name in names if name in {f[0] for _, f, _ in samples}}
            for p in (one, other)
        ]
        assert codes[0] != codes[1]
        assert one.model.digest() == other.model.digest()
        one.compare()


def test_a_new_category_arrives_and_the_last_sample_of_one_leaves(small: Make) -> None:
    """A vanishing category frees its code, which another category then takes over."""
    changed = 0
    samples = [(f"s{i}", ("abc"[i % 3], float(i)), i % 2) for i in range(9)]
    for player in small([CATEGORY, NUMERIC], samples, max_features=2):
        before = root_split(player)
        code = player.model.samples_.categories.code(0, "b")
        delete(player, "s1", "s4", "s7")  # all of "b"
        assert player.model.samples_.categories.code(0, "b") is None
        add(player, ("n1", ("zebra", 1.0), 0), ("n2", ("zebra", 4.0), 1))
        changed += player.model.samples_.categories.code(0, "zebra") == code
        changed += before != root_split(player)
        player.compare()
    assert changed


def test_the_isolated_category_changes_with_the_categories_present(small: Make) -> None:
    """One against the rest: the chosen one leaves; one with a smaller hash arrives."""
    chosen = set()
    samples = [(f"s{i}", (f"c{i % 6}",), i % 2) for i in range(12)]
    for player in small([CATEGORY], samples, n_thresholds=1):
        for i in range(6):
            root = player.oracle().trees[0]
            assert root is not None
            if "rule" in root:
                chosen.add(root["rule"]["category"])
            delete(player, f"s{i}", f"s{i + 6}")
            player.compare_digest()
        for i in range(6):
            add(player, (f"t{i}", (f"c{5 - i}",), i % 2))
            player.compare_digest()
    assert len(chosen) > 2


def test_an_unseen_category_goes_where_its_hash_says(small: Make) -> None:
    samples = [(f"s{i}", (f"c{i % 8}",), i % 2) for i in range(16)]
    queries = [[f"never seen {i}"] for i in range(10)] + [[None], ["c3"]]
    for player in small([CATEGORY], samples, n_thresholds=4):
        player.assert_result(player.model.query(queries), queries)
        delete(player, "s3", "s11")  # "c3" is unseen now
        player.assert_result(player.model.query(queries, frozen=True), queries)
        player.assert_result(player.model.query(queries), queries)


def test_many_categories(lazy: bool) -> None:
    rng = random.Random(5)
    samples = [(f"s{i}", (f"shop {rng.randrange(300)}", rng.random()), rng.randrange(2)) for i in range(600)]
    player = start([CATEGORY, NUMERIC], samples, lazy=lazy, n_thresholds=5, max_features=2, min_samples_split=10)
    for i in range(40):
        player.delete_ids([f"s{7 * i}"])
        player.add_rows([f"n{i}"], [((f"shop {200 + 9 * i}", 0.5), i % 2)])
    player.compare()


def test_category_and_boolean_values_are_canonical(small: Make, seeds: range) -> None:
    """1, 1.0 and "1" are one category; True and 1 one boolean."""
    forms = [[(1, True), ("b", False)], [("1", 1), ("b", 0)], [(1.0, True), ("b", 0.0)]]
    digests = set()
    for form in forms:
        samples = [(f"s{i}", form[i % 2], i % 2) for i in range(6)]
        for player in small([CATEGORY, BOOLEAN], samples):
            digests.add((player.world.parameters["random_state"], player.model.digest()))
            player.compare()
    assert len(digests) == len(seeds)


# --- transitions ----------------------------------------------------------------------------------


def test_crossing_the_minimum_split_size_both_ways(small: Make) -> None:
    for player in small([NUMERIC], ramp(6), min_samples_split=6):
        assert root_split(player) is not None
        delete(player, "r2")
        assert root_split(player) is None
        player.compare_digest()
        add(player, ("r2", (2.0,), 0))
        assert root_split(player) is not None
        player.compare_digest()
        delete(player, "r1", "r3")
        add(player, ("x", (9.0,), 1), ("y", (9.5,), 0))
        player.compare()


def test_becoming_pure_and_impure(small: Make) -> None:
    samples = [(f"s{i}", (float(i),), 0) for i in range(6)] + [("odd", (2.5,), 1)]
    for player in small([NUMERIC], samples):
        delete(player, "odd")
        assert root_split(player) is None
        player.compare_digest()
        add(player, ("odd 2", (3.5,), 1))
        assert root_split(player) is not None
        player.compare_digest()
        delete(player, *(f"s{i}" for i in range(6)))
        player.compare()


def test_becoming_pure_and_impure_in_regression(small: Make) -> None:
    """Pure means one quantised target; the end of the targets' range may have copies."""
    samples = [(f"s{i}", (float(i),), 2.0) for i in range(6)] + [("odd", (2.5,), 7.0), ("odd 2", (1.5,), 7.0)]
    for player in small([NUMERIC], samples, task="regression"):
        delete(player, "odd")
        assert root_split(player) is not None
        player.compare_digest()
        delete(player, "odd 2")
        assert root_split(player) is None
        player.compare_digest()
        add(player, ("low", (3.5,), -1.0))
        assert root_split(player) is not None
        player.compare()


def test_equal_scores_go_to_the_lower_attribute_and_candidate(small: Make) -> None:
    """Two values a column: every candidate of every column makes the same partition."""
    samples = [(f"s{i}", (float(i % 2), float(i % 2), "ab"[i % 2]), i % 2) for i in range(6)]
    columns = [NUMERIC, BOOLEAN, CATEGORY]
    for player in small(columns, samples, max_features=3, n_thresholds=4):
        assert root_split(player) == (0, 0)
        player.compare_digest()
        add(player, ("tie", (0.5, 1.0, "b"), 1))
        player.compare_digest()
        delete(player, "tie")
        assert root_split(player) == (0, 0)
        player.compare()


def test_a_zero_gain_split_is_taken(small: Make) -> None:
    """Exclusive or: no split gains anything, and all the same the trees tell the classes apart."""
    samples = [("a", (0.0, 0.0), 0), ("b", (1.0, 1.0), 0), ("c", (0.0, 1.0), 1), ("d", (1.0, 0.0), 1)]
    for player in small([NUMERIC, NUMERIC], samples):
        assert player.model.predict([list(f) for _, f, _ in samples]).tolist() == [0, 0, 1, 1]
        delete(player, "d")
        add(player, ("d", (1.0, 0.0), 1))
        player.compare()


def test_the_last_sample_of_a_class_takes_it_along(small: Make) -> None:
    samples = [*ramp(6), ("rare", (2.5,), 7)]
    for player in small([NUMERIC], samples):
        assert player.model.classes_.tolist() == [0, 1, 7]
        delete(player, "rare")
        assert player.model.classes_.tolist() == [0, 1]
        assert player.model.predict_proba([[2.5]]).shape == (1, 2)
        player.compare_digest()
        add(player, ("other", (0.5,), -3))  # takes the code of 7, and comes first
        assert player.model.classes_.tolist() == [-3, 0, 1]
        player.compare()


def test_many_new_classes_at_any_time(small: Make) -> None:
    """Class codes are reused and their table grows; counts of the classes before stay."""
    for player in small([NUMERIC], ramp(4), criterion="entropy"):
        for c in range(2, 12):
            add(player, (f"c{c}", (float(c) / 3,), c))
        delete(player, *(f"c{c}" for c in range(2, 8)))
        add(player, *((f"d{c}", (float(c) / 5,), 100 - c) for c in range(9)))
        player.compare()


def test_one_class_only(small: Make) -> None:
    samples = [(f"s{i}", (float(i),), 3) for i in range(5)]
    for player in small([NUMERIC], samples):
        assert player.model.predict_proba([[1.0], [None]]).tolist() == [[1.0], [1.0]]
        delete(player, "s0", "s4")
        add(player, ("n", (9.0,), 3))
        player.compare()


def test_trees_without_samples_are_left_out_of_the_divisor(small: Make) -> None:
    """One sample in one of ten trees: its class has probability 1, not 1/10."""
    for player in small([NUMERIC], [("only", (1.0,), 4)], n_estimators=10, occurrence=0.1):
        assert player.model.predict_proba([[1.0]]).tolist() == [[1.0]]
        add(player, ("second", (2.0,), 5), ("third", (3.0,), 4))
        player.compare_digest()
        delete(player, "only")
        player.compare_digest()
        delete(player, "third")
        assert player.model.predict_proba([[1.0]]).tolist() == [[1.0]]
        player.compare()


def test_an_empty_tree_is_planted_again(small: Make) -> None:
    emptied = 0
    for player in small([NUMERIC], ramp(3), n_estimators=6, occurrence=0.3):
        for name in ("r0", "r1", "r2"):
            delete(player, name)
            emptied += None in player.oracle().trees
            player.compare_digest()
        add(player, *ramp(5))
        player.compare()
    assert emptied


@pytest.mark.parametrize("task", ["classification", "regression"])
def test_an_empty_model_refuses_predictions_and_starts_again(small: Make, task: str) -> None:
    for player in small([NUMERIC], ramp(5), task=task):
        fresh = fresh_fit(player.world, []).digest()
        delete(player, *player.held)
        assert player.model.digest() == fresh
        for ask in (player.model.predict, player.model.query):
            with pytest.raises(EmptyModelError):
                ask([[1.0]])
        assert player.model.n_samples_ == 0
        add(player, *ramp(4))
        player.compare()


def test_a_deleted_id_comes_back_with_other_content(small: Make) -> None:
    samples = ramp(10)
    for player in small([NUMERIC], samples, n_estimators=5, occurrence=0.4):
        before = player.model.digest()
        delete(player, "r4")
        add(player, ("r4", (-8.0,), 1))
        player.compare_digest()
        assert player.model.digest() != before
        delete(player, "r4")
        add(player, samples[4])
        assert player.model.digest() == before
        player.compare()


def test_a_slot_is_reused_under_a_tag(lazy: bool, seeds: range) -> None:
    """Delete, take the slot over by a sample of other trees, resolve: nobody may be found twice."""
    reused = other_trees = 0
    for minimum, seed in itertools.product((2, 10**9), seeds):
        with tuned(minimum):
            player = start(
                [NUMERIC], ramp(12), n_estimators=6, occurrence=0.34, random_state=seed, lazy=lazy, min_samples_split=3
            )
            parameters = oracle.Parameters(seed=seed, n_estimators=6, occurrence=0.34)
            for i in range(6):
                slot = int(player.model.samples_.find([f"r{i}"])[0])
                delete(player, f"r{i}")
                add(player, (f"n{i}", (float(i) + 0.5,), i % 2))
                reused += slot == int(player.model.samples_.find([f"n{i}"])[0])
                trees = [set(oracle.trees_of(name, parameters)) for name in (f"r{i}", f"n{i}")]
                other_trees += trees[0] != trees[1]
                if i % 3 == 1:
                    player.model.resolve(1)
                    player.check()
            player.compare()
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
            player.compare_digest()
            for name, _, _ in extra:
                delete(player, name)
            assert root_split(player) == first
        player.compare()
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
        with tuned(minimum, share):
            player = start([NUMERIC, NUMERIC, CATEGORY], samples, task=task, lazy=lazy, max_features=2)
            names = sorted(player.held)
            rng.shuffle(names)
            delete(player, *names[kept:])
            if kept and task == "classification":
                probabilities = player.model.predict_proba([list(f) for _, f, _ in samples[:50]])
                assert (probabilities <= 1.0).all()
                assert (probabilities >= 0.0).all()
                assert np.allclose(probabilities.sum(axis=1), 1.0)
            add(player, *(s for s in samples if s[0] in names[kept : kept + 30]))
            player.compare()


@pytest.mark.parametrize("criterion", ["gini", "entropy", "squared_error"])
def test_deleting_one_by_one_down_to_nothing(lazy: bool, criterion: str) -> None:
    """The reference code holds a stale split in 7 % of the nodes after half of the samples."""
    rng = random.Random(1)
    task = "regression" if criterion == "squared_error" else "classification"
    samples = [
        (f"s{i}", (rng.gauss(0, 1), rng.gauss(0, 1), rng.choice("abc")), int(rng.random() < 0.4)) for i in range(150)
    ]
    for minimum in (2, 30):
        with tuned(minimum):
            player = start(
                [NUMERIC, NUMERIC, CATEGORY], samples, lazy=lazy, task=task, criterion=criterion, max_features=2,
                n_thresholds=5,
            )  # fmt: skip
            for n, name in enumerate(list(player.held)):
                player.delete_ids([name])
                if n % 25 == 0:
                    player.check()
                    player.compare_digest()
            player.compare()


# --- the rules of exactness -----------------------------------------------------------------------


def mixed_samples(n: int = 24) -> list[Sample]:
    rng = random.Random(n)
    return [
        (f"s{i}", (rng.choice([0.5, 1.0, 2.5, None]), rng.choice("abc"), rng.random() < 0.5), rng.randrange(4))
        for i in range(n)
    ]


MIXED = [NUMERIC, CATEGORY, BOOLEAN]


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
        player.compare()


def test_queries_in_between_do_not_matter(small: Make) -> None:
    samples = mixed_samples()
    queries = [list(f) for _, f, _ in samples]
    for player in small(MIXED, samples[:12], max_features=2):
        for i, sample in enumerate(samples[12:]):
            add(player, sample)
            delete(player, f"s{i}")
            player.model.predict(queries[i : i + 2])
            player.check()
        player.compare()


def test_an_int_is_the_id_of_its_decimal_text(small: Make) -> None:
    samples = ramp(8)
    parameters: dict[str, Any] = {"n_estimators": 8, "occurrence": 0.25}
    for player in small([NUMERIC], samples, **parameters):
        player.add_rows([7], [((3.5,), 1)])
        assert "7" in player.held
        player.compare_digest()
        with pytest.raises(DuplicateIdError):
            player.model.add([[1.0]], [0], ids=["7"])
        with pytest.raises(KeyError):
            player.model.delete(["007"])
        player.model.delete([7])
        del player.held["7"]
        player.add_rows(["007"], [((3.5,), 1)])
        player.compare()


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
        player.compare()


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
            exponents.append(player.oracle().exponent)
            player.compare_digest()
        for name in ("c", "b", "a"):
            delete(player, name)
            exponents.append(player.oracle().exponent)
            player.compare_digest()
        player.compare()
    assert exponents[:7] == [4, 8, 32, 32, 8, 4, 0]


def test_an_outlier_comes_and_goes_under_lazy_tags(small: Make) -> None:
    """The scale moves while tags wait; what waits must be in the new unit, too."""
    samples = [(f"s{i}", (float(i % 7),), 0.3 * (i % 5)) for i in range(14)]
    for player in small([NUMERIC], samples, task="regression"):
        delete(player, "s1", "s5")
        add(player, ("big", (3.0,), 1e12))
        delete(player, "s2")
        delete(player, "big")
        add(player, ("n", (2.0,), 0.7))
        player.compare()


@pytest.mark.parametrize(
    "targets",
    [
        [1e-310, 3e-310, 5e-324, 0.0],
        [1.7e308, -1.7e308, 1e300, 0.0],
        [0.0, -0.0, 0.0, 0.0],
        [1e-300, 1.0, -1e-300, 5.0],
    ],
    ids=["denormal", "largest", "all zero", "mixed"],
)
def test_targets_at_the_ends_of_float64(small: Make, targets: list[float]) -> None:
    samples = [(f"s{i}", (float(i),), targets[i % 4]) for i in range(8)]
    for player in small([NUMERIC], samples, task="regression"):
        assert np.isfinite(player.model.predict([[1.0]])).all()
        delete(player, "s1", "s5")
        player.compare_digest()
        delete(player, "s0", "s4")
        player.compare()


def test_minus_zero_is_zero(small: Make) -> None:
    """In features, in queries and in targets."""
    signs = [(0.0, 1.0), (-0.0, 1.0)]
    digests: dict[int, set[str]] = {}
    for zero, one in signs:
        samples = [(f"s{i}", (zero if i % 2 else one, zero), zero if i % 3 else one) for i in range(8)]
        for player in small([NUMERIC, WIDE], samples, task="regression"):
            digests.setdefault(player.world.parameters["random_state"], set()).add(player.model.digest())
            both = player.model.predict([[0.0, 0.0], [-0.0, -0.0]])
            assert bits(both[:1]) == bits(both[1:])
            delete(player, "s1")
            player.compare()
    assert all(len(found) == 1 for found in digests.values())


def test_values_are_rounded_to_float32_at_the_door(small: Make) -> None:
    """A float64 that rounds to a held float32 is that value: in samples and in queries."""
    tenth = float(np.float32(0.1))
    rows = [(0.1, 0), (0.2, 1), (0.1, 0), (0.2, 1)]
    for player in small([NUMERIC], [(f"s{i}", (x,), y) for i, (x, y) in enumerate(rows)]):
        rounded = start([NUMERIC], [(f"s{i}", (float(np.float32(x)),), y) for i, (x, y) in enumerate(rows)],
                        **player.world.parameters)  # fmt: skip
        assert player.model.digest() == rounded.model.digest()
        both = player.model.predict_proba([[0.1], [tenth]])
        assert bits(both[:1]) == bits(both[1:])
        assert player.model.samples_.get("s0").features == [tenth]


def test_one_nan(small: Make) -> None:
    """None, NaN and a NaN with other bits are one missing value, in every kind of column."""
    (odd,) = np.array([0x7FF8000000000123], np.uint64).view(np.float64)
    digests: dict[int, set[str]] = {}
    for missing in (None, math.nan, float(odd), -math.nan):
        samples = [(f"s{i}", (missing if i % 3 else 1.0, missing if i % 2 else 2.0), i % 2) for i in range(6)]
        for player in small([NUMERIC, WIDE], samples):
            digests.setdefault(player.world.parameters["random_state"], set()).add(player.model.digest())
    assert all(len(found) == 1 for found in digests.values())


def test_one_row_and_a_batch_are_predicted_alike(small: Make) -> None:
    samples = mixed_samples()
    queries = [list(f) for _, f, _ in samples]
    for player in small(MIXED, samples, n_estimators=9, occurrence=0.5):
        delete(player, "s3", "s8", "s13")
        whole = player.model.predict_proba(queries)
        single = np.vstack([player.model.predict_proba([row]) for row in queries])
        assert bits(whole) == bits(single)


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


def test_a_refused_batch_changes_nothing(small: Make) -> None:
    """The good rows before the bad one bring a new category, a new class and new ids: none may stay."""
    samples = mixed_samples()
    good = [[9.0, "new category", True], [8.0, "another", False]]
    refused: list[tuple[list[Any], list[Any], list[Any]]] = [
        ([*good, [math.inf, "a", True]], [90, 91, 92], ["n1", "n2", "n3"]),
        ([*good, ["text", "a", True]], [90, 91, 92], ["n1", "n2", "n3"]),
        ([*good, [1.0, "a", 7]], [90, 91, 92], ["n1", "n2", "n3"]),
        ([*good, [1.0, "a"]], [90, 91, 92], ["n1", "n2", "n3"]),
        ([*good, [1.0, "a", True]], [90, 91, "text"], ["n1", "n2", "n3"]),
        ([*good, [1.0, "a", True]], [90, 91, None], ["n1", "n2", "n3"]),
        ([*good, [1.0, "a", True]], [90, 91, 92], ["n1", "n2", "n1"]),
        ([*good, [1.0, "a", True]], [90, 91, 92], ["n1", "n2", "s5"]),
        ([*good, [1.0, "a", True]], [90, 91, 92], ["n1", "n2", "x" * 257]),
        ([*good, [1.0, "a", True]], [90, 91, 92], ["n1", "n2"]),
        (good, [90, 91, 92], ["n1", "n2", "n3"]),
    ]
    for player in small(MIXED, samples):
        before = player.model.copy().digest()
        store = player.model.samples_
        categories, classes = len(store.categories), player.model.classes_.tolist()
        for X, y, ids in refused:
            with pytest.raises(InputError):
                player.model.add(X, y, ids=ids)
            player.check()
        with pytest.raises(KeyError):
            player.model.delete(["s1", "s2", "absent"])
        with pytest.raises(InputError):
            player.model.replace("s1", [1.0, "new category", math.inf], 0)
        with pytest.raises(KeyError):
            player.model.replace("absent", [1.0, "new category", True], 0)
        player.check()
        assert (len(store.categories), player.model.classes_.tolist()) == (categories, classes)
        assert player.model.digest() == before
        player.compare()


def test_a_replaced_sample_is_a_delete_and_an_add(small: Make) -> None:
    samples = mixed_samples()
    for player in small(MIXED, samples, occurrence=0.67):
        player.model.replace("s4", [9.5, "new", None], 17)
        player.held["s4"] = ((9.5, "new", None), 17)
        player.check()
        assert player.model.samples_.get("s4").features == [9.5, "new", None]
        player.compare()


# --- verification ---------------------------------------------------------------------------------


def test_verify_compares_with_a_fresh_fit(small: Make) -> None:
    for player in small(MIXED, mixed_samples()):
        delete(player, "s1", "s2")
        report = player.model.verify()
        assert report.ok
        assert report.live_digest == report.fresh_digest == player.model.digest()
        assert len(report.trees) == 3


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
    with tuned(8):
        player = start([NUMERIC, NUMERIC], samples, max_features=2)
        assert player.model.verify().ok
        ensemble = player.model.engine_
        block = int(np.flatnonzero(ensemble.blocks.longs[1:, N_ATTRIBUTES] > 0)[0]) + 1
        ensemble.blocks.counters[block, ensemble.layout.counters_at] += 1
        assert not player.model.verify().ok
