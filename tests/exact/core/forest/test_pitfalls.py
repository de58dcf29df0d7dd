"""Each known way to get an exact forest almost right, by name.

A pitfall is a situation built on purpose: samples, and steps that change them. It is played lazily and eagerly, with
candidate counters in every node and in none, and with several seeds: a slip may show in one of them only. The oracle
says after each step what the root is like, so that the situation really arises; at the end the trees are compared with
a fresh fit and with the oracle, and so are the answers for all samples and for some queries.
"""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest

from tests.exact.core.forest.pitfalls import BOOLEAN, CATEGORY, FOREST, NUMERIC, WIDE, Sample, change, start
from tests.histories.player import Player
from tests.histories.worlds import neighbours
from tests.oracles import common
from tests.oracles import forest as oracle
from tests.oracles.common import Column
from tests.tiers import covering

MODES = ["lazy", "eager", "lazy, no counters"]
SEEDS = [range(2), pytest.param(range(2, 8), marks=pytest.mark.long)]

modes = pytest.mark.parametrize("mode", MODES)
seeds = pytest.mark.parametrize("seeds", SEEDS, ids=["first seeds", "more seeds"])


@contextmanager
def small(mode: str) -> Iterator[dict[str, Any]]:
    """Parameters of a mode, while small nodes have counters or none have."""
    with FOREST.tuned(10**9 if mode == "lazy, no counters" else 2):
        yield {"lazy": mode != "eager"}


# --- what the oracle says of a situation -------------------------------------------------------------


def attributes(player: Player) -> list[int]:
    """The attributes that the first root uses, all samples being in every tree."""
    p = player.world.parameters
    samples = [
        oracle._Sample(tuple(common.cell(v, c) for v, c in zip(f, player.world.columns, strict=True)), 0, 0)
        for f, _ in player.held.values()
    ]
    return oracle.attributes_of(common.tree_key(p["random_state"], 0), samples, p["max_features"])


def root(player: Player) -> Any:
    return player.beside.expected().trees[0] or {"split": None}  # type: ignore[attr-defined]


def split(player: Player) -> tuple[int, int] | None:
    """(attribute, candidate)"""
    found: tuple[int, int] | None = root(player)["split"]
    return found


def is_split(player: Player) -> bool:
    return split(player) is not None


def rule(player: Player) -> str:
    return repr(root(player).get("rule"))


def has_empty_trees(player: Player) -> bool:
    return None in player.beside.expected().trees  # type: ignore[attr-defined]


def exponent(player: Player) -> int:
    found: int = player.beside.expected().exponent  # type: ignore[attr-defined]
    return found


def classes(player: Player) -> str:
    """With their types: 1 is not True."""
    return repr(list(player.model.classes_.tolist()))


PITFALLS: dict[str, tuple[Any, ...]] = {}


def pitfall(
    name: str,
    columns: list[Column],
    samples: Sequence[Sample],
    *steps: Any,
    watched: Callable[[Player], Any] = split,
    expected: Sequence[Any] | None = None,
    n_seen: int = 1,
    **parameters: Any,
) -> None:
    """Name a situation.

    columns, samples, steps, parameters : see `pitfalls.py`.
    watched : is asked of the player at first, and after each step that changes the samples.
    expected : what that must be, where it is the same for all seeds; `...`: anything.
    n_seen : how many different answers there must have been for one seed at least.
    """
    PITFALLS[name] = columns, samples, steps, watched, expected, n_seen, parameters


def ramp(n: int) -> list[Sample]:
    """Samples on a line, classes in turn."""
    return [(f"r{i}", (float(i),), i % 2) for i in range(n)]


def some(*features: Any) -> list[Sample]:
    """Samples of two classes in turn."""
    return [(f"s{i}", tuple(row), i % 2) for i, row in enumerate(features)]


def mixed_samples(n: int = 24) -> list[Sample]:
    rng = random.Random(n)
    return [
        (f"s{i}", (rng.choice([0.5, 1.0, 2.5, None]), rng.choice("abc"), rng.random() < 0.5), rng.randrange(4))
        for i in range(n)
    ]


MIXED = [NUMERIC, CATEGORY, BOOLEAN]

# --- attributes

pitfall(
    "a skipped attribute becomes usable by an add",
    [NUMERIC] * 3, some(*((5.0, float(i), 7.0) for i in range(8))), [("new", (6.0, 3.0, 7.0), 1)],
    watched=attributes, n_seen=2,
)  # fmt: skip
pitfall(
    "a used attribute becomes unusable by a delete",
    [NUMERIC] * 2, [*some(*((5.0, float(i)) for i in range(8))), ("odd", (6.0, 3.0), 1)], ["odd"],
    watched=attributes, n_seen=2,
)  # fmt: skip
for _name, _value, _other in (("a missing", None, 4.0), ("the first present", 4.0, None)):
    pitfall(
        f"a skipped attribute becomes usable by {_name} value",
        [NUMERIC] * 2, some(*((_other, float(i)) for i in range(8))), [("new", (_value, 3.0), 1)],
        watched=attributes, n_seen=2,
    )  # fmt: skip
pitfall(
    "a categorical attribute becomes usable and unusable",
    [CATEGORY, NUMERIC, CATEGORY], some(*(("a", float(i), "x") for i in range(8))),
    [("new", ("b", 3.0, "x"), 1)], ..., ["new"], [("again", (None, 3.0, "x"), 1)],
    watched=attributes, n_seen=2,
)  # fmt: skip
pitfall(
    "equal rows are a leaf until another comes",
    [NUMERIC, CATEGORY], some(*[(1.0, "a")] * 4), [("new", (1.0, "b"), 1)], ..., ["new"],
    watched=is_split, expected=[False, True, False],
)  # fmt: skip

# --- thresholds and ranges

for _kind, _column in ((np.float32, NUMERIC), (np.float64, WIDE)):
    for _low in (1.0, -1.0, 2.0**24, 0.0, -1e-45):  # every threshold must be the lower one; rounding reaches the upper
        _lo, _hi = neighbours(_low, 2, _kind)
        pitfall(
            f"two adjacent numbers, {_column.dtype} {_low}",
            [_column], some((_lo,), (_hi,)), [("c", (_lo,), 0), ("d", (_hi,), 1)], n_thresholds=7,
        )  # fmt: skip
pitfall(
    "an extreme with duplicates leaves copy by copy",
    [NUMERIC], [*ramp(6), ("hi 1", (50.0,), 0), ("hi 2", (50.0,), 1), ("lo 1", (-9.0,), 1), ("lo 2", (-9.0,), 0)],
    ["hi 1"], ..., ["lo 2"], ..., ["lo 1"], ..., ["hi 2"], watched=rule, n_seen=2,
)  # fmt: skip

# --- missing values

pitfall(
    "the missing direction is a hash even where nothing is missing",
    [NUMERIC], ramp(8), ..., [("gap", (None,), 1)], ..., ["gap"], queries=[(None,)],
)  # fmt: skip
pitfall(
    "an attribute constant but for missing values has one candidate",
    [NUMERIC], [("a", (2.0,), 0), ("b", (2.0,), 0), ("c", (None,), 1), ("d", (None,), 1)],
    ["c"], ..., ["d"], ..., [("e", (3.0,), 1)], ..., [("f", (None,), 0)], ["e"],
    watched=rule, queries=[(1e30,)],
    expected=[repr({"kind": "threshold", "threshold": math.inf, "missing_left": False}), ..., "None", ..., ..., ...],
)  # fmt: skip
for _column, _value in ((NUMERIC, 2.0), (BOOLEAN, True), (CATEGORY, "a")):
    for _n in (1, 2):  # what is left of the attribute is a constant: the node takes another in its place
        pitfall(
            f"the last missing value leaves, {_column.type}, {_n}",
            [_column, NUMERIC, NUMERIC],
            [
                *some(*((_value, float(i), float(i // 3)) for i in range(9))),
                *(("gap", (None, 3.0, 1.0), 1), ("gap 2", (None, 4.0, 2.0), 0)),
            ],
            ["gap"], ..., ["gap 2"], watched=attributes, n_seen=2, max_features=_n,
        )  # fmt: skip

# --- categories

pitfall(
    "a new category arrives and the last sample of one leaves",  # it takes over the code of "b"
    [CATEGORY, NUMERIC], some(*(("abc"[i % 3], float(i)) for i in range(9))),
    ["s1", "s4", "s7"], [("n1", ("zebra", 1.0), 0), ("n2", ("zebra", 4.0), 1)], n_seen=2, max_features=2,
)  # fmt: skip
pitfall(
    "the isolated category changes with the categories present",
    [CATEGORY], some(*((f"c{i % 6}",) for i in range(12))),
    *(step for i in range(6) for step in ([f"s{i}", f"s{i + 6}"], ...)),
    *(step for i in range(6) for step in ([(f"t{i}", (f"c{5 - i}",), i % 2)], ...)),
    watched=rule, n_seen=3, n_thresholds=1,
)  # fmt: skip
pitfall(
    "an unseen category goes where its hash says",
    [CATEGORY], some(*((f"c{i % 8}",) for i in range(16))), ["s3", "s11"],  # "c3" is unseen now
    n_thresholds=4, queries=[*((f"never seen {i}",) for i in range(10)), (None,), ("c3",)],
)  # fmt: skip

# --- leaves, classes and trees

pitfall(
    "crossing the minimum split size both ways",
    [NUMERIC], ramp(6),
    ["r2"], ..., [("r2", (2.0,), 0)], ..., ["r1", "r3"], [("x", (9.0,), 1), ("y", (9.5,), 0)],
    watched=is_split, expected=[True, False, True, False, True], min_samples_split=6,
)  # fmt: skip
pitfall(
    "becoming pure and impure in regression",  # one quantised target; the ends of the range may have copies
    [NUMERIC], [*((f"s{i}", (float(i),), 2.0) for i in range(6)), ("odd", (2.5,), 7.0), ("odd 2", (1.5,), 7.0)],
    ["odd"], ..., ["odd 2"], ..., [("low", (3.5,), -1.0)],
    watched=is_split, expected=[True, True, False, True], task="regression",
)  # fmt: skip
pitfall(
    "equal scores go to the lower attribute and candidate",  # all candidates make the same partition
    MIXED[:1] + MIXED[:0:-1], some(*((float(i % 2), float(i % 2), "ab"[i % 2]) for i in range(6))),
    ..., [("tie", (0.5, 1.0, "b"), 1)], ..., ["tie"],
    expected=[(0, 0), ..., (0, 0)], max_features=3, n_thresholds=4,
)  # fmt: skip
pitfall(
    "the last sample of a class takes it along",
    [NUMERIC], [*ramp(6), ("rare", (2.5,), 7)], ["rare"], ..., [("other", (0.5,), -3)],
    watched=classes, expected=["[0, 1, 7]", "[0, 1]", "[-3, 0, 1]"],
)  # fmt: skip
pitfall(
    "classes are ordered by type and value",  # True is not 1: its class leaves, 1 stays
    [NUMERIC], [(f"s{i}", (float(i),), label) for i, label in enumerate(["b", 2, True, 0.5, "a", 1, False, -1])],
    ["s2", "s4"], label_type="scalar", watched=classes,
    expected=["[False, True, 0.5, -1, 1, 2, 'a', 'b']", "[False, 0.5, -1, 1, 2, 'b']"],
)  # fmt: skip
pitfall(
    "equal probabilities go to the smaller class",  # which arrives last and has the higher code
    [NUMERIC], [("first", (1.0,), 9), ("second", (1.0,), 2)],
    ..., [("third", (1.0,), -5), ("fourth", (1.0,), -5), ("fifth", (1.0,), 9)],
    watched=lambda player: player.model.predict([[1.0]]).tolist(), expected=[[2], [-5]],
)  # fmt: skip
pitfall(
    "an empty tree is planted again",
    [NUMERIC], ramp(3), ["r0"], ..., ["r1"], ..., ["r2"], ramp(5),
    watched=has_empty_trees, n_seen=2, n_estimators=6, occurrence=0.3,
)  # fmt: skip

# --- counters and scales

_NOISE = [(f"x{i}", (float(i % 2), float(i // 2 % 2)), i // 2 % 2) for i in range(20)]
_WORSE = [(f"w{i}", (float(i % 2), float(i % 2)), i % 2 ^ (i > 40)) for i in range(12)]
pitfall(
    "the best score is raised again",  # the best split gets worse, loses to another, and wins again
    [NUMERIC, NUMERIC], [(f"s{i}", (float(i // 6), float(i % 2)), i // 6) for i in range(12)],
    *(step for extra in (_NOISE, _WORSE) for step in (*([one] for one in extra), ..., *([one[0]] for one in extra))),
    n_seen=2, max_features=2, n_thresholds=2,
)  # fmt: skip
pitfall(
    "targets are requantised when the largest crosses the scale",  # 16 and less: e = 4; above: e = 8
    [NUMERIC], [(f"s{i}", (float(i),), 0.1 * i) for i in range(10)],
    [("a", (4.5,), 16.0)], ..., [("b", (4.5,), math.nextafter(16.0, 17.0))], ..., [("c", (4.5,), -1e9)], ...,
    [("d", (4.5,), 1e-9)], ..., ["c"], ..., ["b"], ..., ["a"],
    watched=exponent, expected=[0, 4, 8, 32, 32, 8, 4, 0], task="regression",
)  # fmt: skip


@seeds
@pytest.mark.parametrize(("name", "mode"), covering(PITFALLS, MODES))
def test_pitfall(name: str, mode: str, seeds: range) -> None:
    columns, samples, steps, watched, expected, n_needed, changed = PITFALLS[name]
    n_seen = 0
    for seed in seeds:
        with small(mode) as parameters:
            player = start(columns, samples, **{"random_state": seed, **parameters, **changed})
            seen = [watched(player)]
            for step in steps:
                change(player, step)
                if step is not ... and player.held:
                    seen.append(watched(player))
            player.beside.finish()
        if expected is not None:
            assert len(seen) == len(expected)
            assert all(wanted is ... or found == wanted for found, wanted in zip(seen, expected, strict=True)), seen
        n_seen = max(n_seen, len({repr(found) for found in seen}))
    assert n_seen >= n_needed, "the situation did not arise"


# --- pitfalls between two models ---------------------------------------------------------------------


@seeds
@modes
def test_categories_are_never_compared_by_internal_code(mode: str, seeds: range) -> None:
    """The same set, reached in two orders, gives every category another code, and the same trees."""
    names = ["red", "green", "blue", "grey", "pink"]
    samples: list[Sample] = [(f"s{i}", (names[i % 5], names[(i * 3) % 4]), i % 3) for i in range(15)]
    for seed in seeds:
        with small(mode) as parameters:
            made = [
                start([CATEGORY] * 2, given, max_features=2, random_state=seed, **parameters).model
                for given in (samples, samples[::-1])
            ]
        codes = [{name: model.samples_.categories.codes[0].get(name) for name in names} for model in made]
        assert codes[0] != codes[1]
        assert made[0].digest() == made[1].digest()


@seeds
@modes
def test_values_are_canonical(mode: str, seeds: range) -> None:
    """1, 1.0 and "1" are one category; True and 1 one boolean; -0.0 is 0.0, also in queries and targets."""
    categories = [[(1, True), ("b", False)], [("1", 1), ("b", 0)], [(1.0, True), ("b", 0.0)]]
    for seed in seeds:
        with small(mode) as parameters:
            parameters["random_state"] = seed
            forms = [start([CATEGORY, BOOLEAN], some(*form * 3), **parameters) for form in categories]
            zeros = [
                start(
                    [NUMERIC] * 2,
                    [(f"s{i}", (zero if i % 2 else 1.0, zero), zero if i % 3 else 1.0) for i in range(8)],
                    task="regression",
                    queries=[(0.0, 0.0), (-0.0, -0.0)],
                    **parameters,
                )
                for zero in (0.0, -0.0)
            ]
            for players in (forms, zeros):
                for player in players:
                    player.beside.finish()
                assert len({player.model.digest() for player in players}) == 1


@seeds
@pytest.mark.parametrize("task", ["classification", "regression"])
@modes
def test_the_order_of_adds_and_the_sizes_of_batches_do_not_matter(mode: str, task: str, seeds: range) -> None:
    samples = mixed_samples()
    for seed in seeds:
        rng = random.Random(seed)
        with small(mode) as parameters:
            parameters |= {"task": task, "occurrence": 0.5, "n_estimators": 4, "random_state": seed}
            expected = start(MIXED, samples, **parameters).model.digest()
            for size in (1, 5, len(samples)):
                rng.shuffle(samples)
                other = start(MIXED, [], **parameters)
                for i in range(0, len(samples), size):
                    change(other, samples[i : i + size])
                assert other.model.digest() == expected


@seeds
def test_ids_decide_the_trees_and_nothing_else(seeds: range) -> None:
    """With q = 1 all samples are in all trees: then the digest must not know the ids.

    A digest that hashed the sample store would pass every other test, and prove nothing.
    """
    samples = mixed_samples()
    renamed = [(f"other {i}", f, y) for i, f, y in samples]
    for occurrence in (1.0, 0.34):
        digests = {
            start(MIXED, given, occurrence=occurrence, random_state=seed).model.digest()
            for seed in seeds
            for given in (samples, renamed)
        }
        assert (len(digests) == len(seeds)) == (occurrence == 1.0)


@pytest.mark.parametrize("lazy", [True, False])
def test_a_slot_is_reused_under_a_tag(lazy: bool) -> None:
    """Delete, take the slot over by a sample of other trees, resolve: no one may be found twice."""
    reused = other_trees = 0
    for minimum, seed in itertools.product((2, 10**9), range(2)):
        with FOREST.tuned(minimum):
            forest = {"n_estimators": 6, "occurrence": 0.34}
            player = start([NUMERIC], ramp(12), random_state=seed, lazy=lazy, min_samples_split=3, **forest)
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
