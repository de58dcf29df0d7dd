"""What is wrong in an engine is found and named, and arrays of a file that are no trees of its samples are refused."""

import re
from collections.abc import Callable, Iterator
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest

from oubli.core.boosting.quantised import split
from oubli.core.boosting.quantised.state import NO_BLOCK
from oubli.core.boosting.state import LEAF
from oubli.core.data.schema import Task
from oubli.core.forest.engine import ForestEngine
from oubli.core.forest.layout.blocks import N_ATTRIBUTES, NEXT_FREE
from oubli.core.forest.state import FREE_ROOMS, MAX_ROOM, N_MEMBERS
from oubli.core.jit.nodes import NIL, ONE_VS_REST
from oubli.core.tree.state import ROOT
from tests.exact.core.contracts.test_contract import CASES, history
from tests.histories.cases import Case, small

NUMBERS = Task.REGRESSION
KINDS = {
    "forest": small("forest"), "forest numbers": small("forest", NUMBERS), "tree": small("tree"),
    "online": small("online-boosting", robustness=0.0), "online numbers": small("online-boosting", NUMBERS),
    "quantised": small("incremental-boosting"), "statistics": small("incremental-boosting", category_statistics=2),
    "presorted": small("incremental-boosting", NUMBERS, quantization=None),
}  # fmt: skip


@pytest.fixture(autouse=True)
def _as_large_sets_are() -> Iterator[None]:
    """Let small sets have regions, and small nodes counters."""
    with (
        patch.object(split, "LEAST_SIZE", 5),
        patch.object(ForestEngine, "_block_minimum", lambda self: self.smallest_block or 8),
    ):
        yield


def aged(case: Case) -> Any:
    """A model without tags that has a history."""
    model = case.fitted()
    history(model, case)
    model.resolve()
    return model


# -- engines -----------------------------------------------------------------------------------------


def add(array: Any, *place: Any) -> None:
    array[place] += 1


def nodes_of(engine: Any, *, inner: bool) -> Any:
    """Rows of a tree's inner nodes, or of its leaves that hold samples."""
    nodes = engine.tree.nodes
    return np.flatnonzero(nodes["child"] != NIL if inner else (nodes["child"] == NIL) & (nodes["n_samples"] > 0))


def move_a_threshold(engine: Any) -> None:
    inner = nodes_of(engine, inner=True)
    engine.tree.nodes["threshold"][inner[engine.tree.nodes["kind"][inner] < ONE_VS_REST]] += 1e7


def miscount_a_leaf(engine: Any) -> None:
    leaf = nodes_of(engine, inner=False)[0]
    engine.tree.counts[leaf] = engine.tree.counts[leaf][::-1] + 1


def turn_a_leaf(engine: Any) -> None:
    statistics = engine.trees.statistics
    leaf = int(np.argmax(statistics.sum(axis=1)))
    statistics[leaf] = np.roll(statistics[leaf], 1)


def change_a_candidate(engine: Any) -> None:
    """It decides only after a later deletion; no prediction reads it yet."""
    block = int(np.flatnonzero(engine.blocks.longs[1:, N_ATTRIBUTES] > 0)[0]) + 1
    add(engine.blocks.counters, block, engine.layout.counters_at)


def change_a_histogram(engine: Any) -> None:
    blocks = engine.forest.nodes["block"][2]
    add(engine.forest.pool, blocks[np.flatnonzero(blocks != NO_BLOCK)[0]], 0)


def miscount_a_value(engine: Any) -> None:
    held = engine.edges.columns[2].held
    held[next(iter(held))] = 10**6


def miscount_a_bin(engine: Any) -> None:
    add(engine.regions.counts, 0, int(engine.bins.first_bin[2]) + 1)


def change_a_gradient(engine: Any) -> None:
    add(engine.regions.sums, 0, 2, int(engine.bins.first_bin[2]))


def repeat_a_sample(engine: Any) -> None:
    engine.orders.order[0, :2] = engine.orders.order[0, 0]


DAMAGES: list[tuple[str, Callable[[Any], Any], str]] = [
    ("forest", turn_a_leaf, ""),
    ("forest", change_a_candidate, ""),
    ("tree", lambda e: add(e.tree.nodes["n_samples"], nodes_of(e, inner=False)[1]), "samples"),
    ("tree", miscount_a_leaf, "class counts"),
    ("tree", lambda e: e.tree.nodes["touched"].__setitem__(ROOT, 10**6), "should have been rebuilt"),
    ("tree", lambda e: e.tree.nodes["built"].__setitem__(nodes_of(e, inner=True)[1], 900), "samples come and go"),
    ("tree", move_a_threshold, "not where the splits lead"),
    ("online", lambda e: add(e.forest.stats, 2, 0, 0), "stats, tree 2, place 0: .*; wrong places: 1"),
    ("online", lambda e: add(e.forest.states["sums"], 3 * e.forest.n_places), "sums, tree 3, place 0: "),
    ("quantised", lambda e: add(e.class_counts, 1), "the classes, rank 1: .*; wrong places: 1"),
    ("quantised", lambda e: add(e.forest.nodes["total"], 3, 1), "the nodes: total, tree 3, node 1: "),
    ("quantised", miscount_a_bin, "the regions: the samples of feature 2, node 0, bin 1: "),
    ("quantised", change_a_gradient, "the regions: the gradients of feature 2, node 0, group 2, bin 0: "),
    ("quantised", lambda e: add(e.first, 2, np.flatnonzero(e.roles)[0]), "the derivatives at F_0, group 2: wrong"),
    ("quantised", lambda e: add(e.labels, np.flatnonzero(e.roles)[0]), "the labels of samples: wrong places: 1"),
    ("quantised", miscount_a_value, "the edges of column 2: .*; values counted wrong: 1"),
    ("quantised", change_a_histogram, r"the histograms, tree 2, node \d+, bin 0: "),
    ("statistics", lambda e: add(e.statistics.tables[0].counts, 1, 2), "of column .*: counts, category 1"),
    ("statistics", lambda e: add(e.statistics.tables[0].sums, 0, 1, 0), "of column .*: sums, category 0"),
    ("statistics", lambda e: add(e.cells, e.roles > 0, -1), "the statistics that samples read: wrong places"),
    ("presorted", repeat_a_sample, "column 0: not every sample is in the presorted column once"),
    ("presorted", lambda e: add(e.trees.base, 0), "boosting should begin elsewhere"),
    ("presorted", lambda e: e.trees.nodes["value"].__setitem__(0, np.nan), ""),
]


@pytest.mark.parametrize(("kind", "damage", "text"), DAMAGES)
def test_verify_names_what_it_does_not_confirm(kind: str, damage: Callable[[Any], Any], text: str) -> None:
    """The counter, its place, and the numbers kept and recounted."""
    model = aged(KINDS[kind])
    assert model.verify().ok
    damage(model.engine_)
    result = model.verify()
    assert not result.ok
    (found,) = [line for line in result.wrong_counters if re.search(text, line)][:1] or [str(result.wrong_counters)]
    assert re.search(text, found), found
    numbers = re.search(r": (-?\d+) kept, (-?\d+) recounted", found)
    assert numbers is None or numbers[1] != numbers[2], found


# -- arrays of files ---------------------------------------------------------------------------------

NOT_OF_THE_TREES = ("held", "class_counts")


def taken_over(model: Any, arrays: Any) -> Any:
    engine = model.engine_.counterpart()
    engine.take_over(arrays, model.problem(), model.samples_.slots())
    return engine


@pytest.mark.parametrize("case", [case for case in CASES if case.kind != "forest"], ids=str)
def test_arrays_of_another_length_or_type_are_refused(case: Case) -> None:
    model = aged(case)
    arrays = model.engine_.arrays()
    order = model.class_order()
    assert taken_over(model, dict(arrays)).digests(order) == model.engine_.digests(order)
    for name, array in arrays.items():
        is_read = name not in NOT_OF_THE_TREES and not (name == "ranks" and case.task is NUMBERS)
        if not is_read or not array.size:
            continue
        others = {key: one for key, one in arrays.items() if key != name}
        half = array[..., : array.shape[-1] // 2]
        for wrong in ({}, {name: half}, {name: array.astype(np.complex128)}, {name: array[np.newaxis]}):
            with pytest.raises((ValueError, KeyError)):
                taken_over(model, {**others, **wrong})


def bits_of(value: float) -> Any:
    return np.array(value).view(np.uint64)


FAR, ALL = 2**31 - 1, slice(None)
# By kind: a name, a place, and values. A kernel that followed some of them would end the process.
POKES: dict[str, list[tuple[Any, ...]]] = {
    "forest": [
        ("nodes.child", ROOT, FAR, -FAR, 0, 5),  # its own child, and one between two pairs
        ("nodes.block", ROOT, 10_000, 0),  # the working space
        ("nodes.attribute", ROOT, 4, -1), ("nodes.kind", ROOT, 4), ("nodes.n_samples", ROOT, FAR, 0, -5),
        ("leaves.starts", ALL, 0, FAR, -2),  # all leaves in one room
        ("leaves.rooms", ALL, 0, MAX_ROOM, 255),  # too small
        ("leaves.statistics", 0, 1000), ("members", ALL, 0), ("members", 3, FAR, -FAR), ("places", ALL, 0),
        ("places", 3, FAR, -FAR), *(("meta", place, 2**62) for place in (0, 1, 2, 4, 5, N_MEMBERS, FREE_ROOMS)),
        *(("meta", place, 0) for place in (1, 4, 7)), ("meta", 8, -1), ("meta", 9, 1),
        ("meta", FREE_ROOMS + MAX_ROOM, 0),  # no room of that size
        ("blocks", (1, N_ATTRIBUTES), 2**30, -1), ("blocks", (1, NEXT_FREE), 2**30),
        # An attribute and the number of its cells are the halves of two numbers at the end of an attribute.
        ("blocks", (1, slice(16, None)), 2**40 + 4, -1),
    ],
    "tree": [
        ("child", 0, 0, 10**6, -7, NIL), ("child", 1, 2), ("attribute", 0, 99, -1), ("kind", "number", ONE_VS_REST),
        ("kind", 0, 200), ("category", "number", *map(bits_of, (np.nan, -np.inf, 1e9))), ("flags", 0, 1, 2),
        ("built", 0, -1), ("touched", 0, -1), ("sizes", 0, -1, 10**6), ("members", 0, 10**6, -1, 1),
    ],
    "online": [
        ("n_grown", 0, 0, 3, 2**40), ("scale", 0, np.nan), ("scale", 2, 1.0), ("limit", 0, 5), ("ranks", 0, 1),
        ("first", 0, 1), ("first", 1, 2**32 - 1), ("first", 2, 0), ("edges", 0, np.nan), ("edges", 1, np.inf),
        ("n_inner", 0, -1, 2**62), ("n_inner", 3, 2), ("n_outer", 0, 2**62), ("n_taken", 0, 1), ("n_taken", 1, 9),
        ("sizes", 0, 2**31 - 1, 1), ("sizes", slice(0, 2), 5), ("place", 0, 1), ("place", 1, 99, 0, -3),
        ("place", 2, 1), ("parent", 0, 0), ("parent", 1, 1, -1), ("parent", 2, 77), ("feature", 0, -1, 5, -2),
        ("bin", 0, -1, 10**6), ("missing_left", 0, 2), ("missing_left", ALL, 1),
    ],
    "online numbers": [
        ("scale", 1, np.inf), ("scale", 2, 0.0), ("scale", 3, 0.0), ("limit", 0, 0), ("gh", 0, 2**31 - 1),
    ],
    "presorted": [
        ("left", 0, 10**6, 0, -1), ("left", "leaf", 1), ("feature", 0, 99, -2), ("feature", "leaf", 0),
        ("missing_left", 0, 2), ("is_categorical", 0, 7), ("gains", 0, np.nan, -1.0), ("gains", "leaf", 1.0),
        ("roots", 0, 1), ("category", "number", bits_of(np.nan), bits_of(-np.inf)), ("category", "leaf", 3),
        ("value", 0, 1.0), ("value", "leaf", np.nan, 1e300, 0.5),
    ],
}  # fmt: skip


POKES["forest numbers"] = POKES["forest"]


@pytest.mark.parametrize("kind", POKES)
def test_arrays_that_are_no_trees_of_the_samples_are_refused(kind: str) -> None:
    model = aged(KINDS[kind])
    for name in model.samples_.ids()[50:]:
        model.delete(name)
        model.resolve()
    arrays = model.engine_.arrays()
    if kind.startswith("forest"):
        assert arrays["meta"][[2, 5, 8]].all(), "pairs of nodes, leaves and counters are free"
    if kind == "presorted":
        leaves, numbers = arrays["feature"] == LEAF, (arrays["feature"] >= 0) & (arrays["is_categorical"] == 0)
    elif kind == "tree":
        leaves = arrays["child"] == NIL
        numbers = ~leaves & (arrays["attribute"] == 2)  # no value is missing there
    else:
        leaves = numbers = np.zeros(0)
    places = {"leaf": np.flatnonzero(leaves)[-1:], "number": np.flatnonzero(numbers)[:1]}
    for name, place, value in ((name, place, value) for name, place, *values in POKES[kind] for value in values):
        changed = {key: array.copy() for key, array in arrays.items()}
        changed[name][places[place] if isinstance(place, str) else place] = value
        try:
            taken_over(model, changed)
        except ValueError:
            continue
        pytest.fail(f"{name}[{place}] = {value} is taken")


@pytest.mark.parametrize("kind", ["tree", "online"])
def test_trees_of_other_samples_are_refused(kind: str) -> None:
    model = aged(KINDS[kind])
    arrays = model.engine_.arrays()
    model.delete(model.samples_.ids()[:5])
    with pytest.raises((ValueError, IndexError)):
        taken_over(model, arrays)


def test_trees_are_as_many_and_as_deep_as_the_settings_say() -> None:
    case = KINDS["presorted"]
    model = aged(case)
    for changed in ({"n_estimators": 7}, {"n_estimators": 9}, {"max_depth": 2}):
        other = Case(case.kind, case.task, {**case.parameters, **changed}).make()
        other.fit_held(model.samples_.copy())
        with pytest.raises(ValueError, match=r"number of trees|do not form trees"):
            taken_over(other, model.engine_.arrays())
