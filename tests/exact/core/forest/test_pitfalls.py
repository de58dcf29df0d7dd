"""Each known way to get an exact forest almost right, by name.

Every test builds the situation on purpose, checks with the oracle that it really arises, and then
compares with a fresh fit and with the oracle. `small` plays it lazily and eagerly, with candidate
counters in every node and in none, and with several seeds: a slip may show in one of them only.
"""

from __future__ import annotations

import math
import random
from typing import Any

import numpy as np
import pytest

from tests.exact.core.forest.pitfalls import (
    BOOLEAN,
    CATEGORY,
    NUMERIC,
    WIDE,
    Make,
    Sample,
    add,
    change,
    delete,
    live,
    ramp,
    root_attributes,
    root_split,
    start,
)
from tests.histories.worlds import FLOAT32_MAX, FLOAT64_MAX, neighbours
from tests.oracles.common import Column
from tests.oracles.forest_digest import preorder

# --- attributes -----------------------------------------------------------------------------------


def test_a_skipped_attribute_becomes_usable_by_an_add(small: Make) -> None:
    changed = 0
    samples = [(f"s{i}", (5.0, float(i), 7.0), i % 2) for i in range(8)]
    for player in small([NUMERIC] * 3, samples):
        before = root_attributes(player)
        add(player, ("new", (6.0, 3.0, 7.0), 1))
        changed += before != root_attributes(player)
        player.beside.finish()
    assert changed


def test_a_used_attribute_becomes_unusable_by_a_delete(small: Make) -> None:
    changed = 0
    samples = [(f"s{i}", (5.0, float(i)), i % 2) for i in range(8)] + [("odd", (6.0, 3.0), 1)]
    for player in small([NUMERIC] * 2, samples):
        before = root_attributes(player)
        delete(player, "odd")
        changed += before != root_attributes(player)
        player.beside.finish()
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
        player.beside.finish()
    assert changed


def test_a_categorical_attribute_becomes_usable_and_unusable(small: Make) -> None:
    changed = 0
    samples = [(f"s{i}", ("a", float(i), "x"), i % 2) for i in range(8)]
    for player in small([CATEGORY, NUMERIC, CATEGORY], samples):
        before = root_attributes(player)
        add(player, ("new", ("b", 3.0, "x"), 1))
        changed += before != root_attributes(player)
        change(player, ..., ["new"])
        assert before == root_attributes(player)
        live(player, [("again", (None, 3.0, "x"), 1)])
    assert changed


def test_all_attributes_constant_is_a_leaf_until_one_is_not(small: Make) -> None:
    """Four equal rows with different labels cannot be split; a fifth row can be split off."""
    samples = [(f"s{i}", (1.0, "a"), i % 2) for i in range(4)]
    for player in small([NUMERIC, CATEGORY], samples):
        assert root_split(player) is None
        add(player, ("new", (1.0, "b"), 1))
        assert root_split(player) is not None
        live(player, ..., ["new"])


# --- thresholds -----------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [np.float32, np.float64])
@pytest.mark.parametrize("low", [1.0, -1.0, 2.0**24, 0.0, -1e-45])
def test_thresholds_on_a_narrow_range_never_leave_a_side_empty(small: Make, kind: type[Any], low: float) -> None:
    """Of two adjacent floats every threshold must be the lower one; rounding would reach the upper."""
    lo, hi = neighbours(low, 2, kind)
    column = NUMERIC if kind is np.float32 else WIDE
    for player in small([column], [("a", (lo,), 0), ("b", (hi,), 1)], n_thresholds=7):
        assert player.model.predict_proba([[lo], [hi]]).tolist() == [[1.0, 0.0], [0.0, 1.0]]
        live(player, [("c", (lo,), 0), ("d", (hi,), 1)])


@pytest.mark.parametrize(("column", "largest"), [(NUMERIC, FLOAT32_MAX), (WIDE, FLOAT64_MAX)])
def test_the_width_of_a_range_may_overflow(small: Make, column: Column, largest: float) -> None:
    samples = [("lo", (-largest,), 0), ("hi", (largest,), 1), ("mid", (0.0,), 0), ("mid 2", (1.0,), 1)]
    for player in small([column], samples, n_thresholds=6):
        live(player, ..., [("lo 2", (-largest,), 1)], ["hi"])


def test_thresholds_of_float64_columns_are_float64(small: Make) -> None:
    """These values are one float32; a threshold rounded to float32 would not tell them apart."""
    values = neighbours(16777217.0, 4, np.float64)
    samples = [(f"s{i}", (x,), i) for i, x in enumerate(values)]
    for player in small([WIDE], samples):
        assert player.model.predict([[x] for x in values]).tolist() == [0, 1, 2, 3]
        live(player, ["s1"])


# --- ranges ---------------------------------------------------------------------------------------


def test_an_extreme_with_duplicates_leaves_copy_by_copy(small: Make) -> None:
    """Two copies of each end: the range changes with the last copy, not with the first."""
    changed = 0
    samples = [*ramp(6), ("hi 1", (50.0,), 0), ("hi 2", (50.0,), 1), ("lo 1", (-9.0,), 1), ("lo 2", (-9.0,), 0)]
    for player in small([NUMERIC], samples):
        for name in ("hi 1", "lo 2", "lo 1", "hi 2"):
            before = player.beside.expected().trees[0]
            delete(player, name)
            after = player.beside.expected().trees[0]
            assert before is not None
            assert after is not None
            changed += "rule" in before and before["rule"] != after.get("rule")
            player.beside.resolved()
        player.beside.finish()
    assert changed


def test_the_last_copy_of_an_extreme_leaves_in_a_batch_with_others(small: Make) -> None:
    samples = [*ramp(8), ("hi", (50.0,), 0), ("lo", (-9.0,), 1)]
    for player in small([NUMERIC, NUMERIC], [(i, (f[0], -f[0]), y) for i, f, y in samples]):
        live(player, ["r3", "hi", "r5", "lo"])


def test_an_extreme_leaves_and_another_takes_its_place(small: Make) -> None:
    samples = [*ramp(8), ("hi", (50.0,), 0)]
    for player in small([NUMERIC], samples):
        live(player, ["hi"], [("new hi", (50.0,), 1)], ..., [("higher", (51.0,), 0)], ["new hi", "higher"])


# --- missing values -------------------------------------------------------------------------------


def test_the_missing_direction_is_a_hash_even_where_nothing_is_missing(small: Make) -> None:
    """Rows without missing values must still send a query's missing value both ways."""
    directions = set()
    for player in small([NUMERIC], ramp(8)):
        for tree in player.beside.expected().trees:
            assert tree is not None
            directions |= {n["rule"]["missing_left"] for n in preorder(tree) if n["split"]}
        player.beside.ask([[None]], frozen=False)
        live(player, [("gap", (None,), 1)], ..., ["gap"])
    assert directions == {False, True}


def test_an_attribute_constant_but_for_missing_values_has_one_candidate(small: Make) -> None:
    """Missing against the rest: infinite threshold, missing on the right."""
    samples = [("a", (2.0,), 0), ("b", (2.0,), 0), ("c", (None,), 1), ("d", (None,), 1)]
    for player in small([NUMERIC], samples):
        root = player.beside.expected().trees[0]
        assert root is not None
        assert root["rule"] == {"kind": "threshold", "threshold": math.inf, "missing_left": False}
        assert player.model.predict([[2.0], [None], [1e30]]).tolist() == [0, 1, 0]
        live(player, ["c"], ..., ["d"], ..., [("e", (3.0,), 1)], ..., [("f", (None,), 0)], ["e"])


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
        change(player, ..., ["gap 2"])
        changed += before != root_attributes(player)
        player.beside.finish()
    assert changed


# --- categories -----------------------------------------------------------------------------------


def test_categories_are_never_compared_by_internal_code(small: Make) -> None:
    """The same set, reached in two orders, gives every category another code, and the same trees."""
    names = ["red", "green", "blue", "grey", "pink"]
    samples: list[Sample] = [(f"s{i}", (names[i % 5], names[(i * 3) % 4]), i % 3) for i in range(15)]
    columns = [CATEGORY, CATEGORY]
    for one, other in zip(
        small(columns, samples, max_features=2), small(columns, samples[::-1], max_features=2), strict=True
    ):
        held = {features[0] for _, features, _ in samples}
        codes = [{name: p.model.samples_.categories.codes[0].get(name) for name in held} for p in (one, other)]
        assert codes[0] != codes[1]
        assert one.model.digest() == other.model.digest()
        one.beside.finish()


def test_a_new_category_arrives_and_the_last_sample_of_one_leaves(small: Make) -> None:
    """A vanishing category frees its code, which another category then takes over."""
    changed = 0
    samples = [(f"s{i}", ("abc"[i % 3], float(i)), i % 2) for i in range(9)]
    for player in small([CATEGORY, NUMERIC], samples, max_features=2):
        before = root_split(player)
        code = player.model.samples_.categories.codes[0].get("b")
        delete(player, "s1", "s4", "s7")  # all of "b"
        assert player.model.samples_.categories.codes[0].get("b") is None
        add(player, ("n1", ("zebra", 1.0), 0), ("n2", ("zebra", 4.0), 1))
        changed += player.model.samples_.categories.codes[0].get("zebra") == code
        changed += before != root_split(player)
        player.beside.finish()
    assert changed


def test_the_isolated_category_changes_with_the_categories_present(small: Make) -> None:
    """One against the rest: the chosen one leaves; one with a smaller hash arrives."""
    chosen = set()
    samples = [(f"s{i}", (f"c{i % 6}",), i % 2) for i in range(12)]
    for player in small([CATEGORY], samples, n_thresholds=1):
        for i in range(6):
            root = player.beside.expected().trees[0]
            assert root is not None
            if "rule" in root:
                chosen.add(root["rule"]["category"])
            change(player, [f"s{i}", f"s{i + 6}"], ...)
        for i in range(6):
            change(player, [(f"t{i}", (f"c{5 - i}",), i % 2)], ...)
    assert len(chosen) > 2


def test_an_unseen_category_goes_where_its_hash_says(small: Make) -> None:
    samples = [(f"s{i}", (f"c{i % 8}",), i % 2) for i in range(16)]
    queries = [[f"never seen {i}"] for i in range(10)] + [[None], ["c3"]]
    for player in small([CATEGORY], samples, n_thresholds=4):
        player.beside.ask(queries, frozen=False)
        delete(player, "s3", "s11")  # "c3" is unseen now
        player.beside.ask(queries, frozen=True)
        player.beside.ask(queries, frozen=False)


def test_many_categories(lazy: bool) -> None:
    rng = random.Random(5)
    samples = [(f"s{i}", (f"shop {rng.randrange(300)}", rng.random()), rng.randrange(2)) for i in range(600)]
    player = start([CATEGORY, NUMERIC], samples, lazy=lazy, n_thresholds=5, max_features=2, min_samples_split=10)
    for i in range(40):
        player.delete_ids([f"s{7 * i}"])
        player.add_rows([f"n{i}"], [((f"shop {200 + 9 * i}", 0.5), i % 2)])
    player.beside.finish()


def test_category_and_boolean_values_are_canonical(small: Make, seeds: range) -> None:
    """1, 1.0 and "1" are one category; True and 1 one boolean."""
    forms = [[(1, True), ("b", False)], [("1", 1), ("b", 0)], [(1.0, True), ("b", 0.0)]]
    digests = set()
    for form in forms:
        samples = [(f"s{i}", form[i % 2], i % 2) for i in range(6)]
        for player in small([CATEGORY, BOOLEAN], samples):
            digests.add((player.world.parameters["random_state"], player.model.digest()))
            player.beside.finish()
    assert len(digests) == len(seeds)
