"""A tree as arrays and back, copies, wiping."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from oubli.core.jit.nodes import NIL, ONE_VS_REST
from oubli.core.samples.arrays import Data
from oubli.core.tree.state import MAX_DEPTH, PREVIOUS, ROOT
from tests.exact.core.tree.direct import KINDS, ORDER, make_data, make_tree, plain, read


@pytest.mark.parametrize("kind", KINDS)
def test_arrays_and_back(kind: str) -> None:
    n_classes = KINDS[kind].get("n_classes", 2)
    data = make_data(8, 200, **KINDS[kind])
    tree = make_tree(data, n_classes, epsilon=0.3)
    tree.build(data, np.arange(120))
    tree.learn(data, np.arange(120, 200))
    tree.unlearn(data, np.arange(30))
    tree.learn(data, np.arange(2), lazy=True)
    slots = np.array([0, 1, *range(30, 200)])
    again = tree.taken_over(tree.arrays(), data, slots)
    again.check(data, slots)
    assert again.n_tags == tree.n_tags
    assert plain(read(again, data)) == plain(read(tree, data))
    for name, array in again.arrays().items():
        assert np.array_equal(array, tree.arrays()[name]), name
    empty = make_tree(data, n_classes)
    tree.taken_over(empty.arrays(), data, np.zeros(0, np.int64))


def set_value(name: str, place: int, value: Any) -> Any:
    def change(arrays: dict[str, Any]) -> None:
        arrays[name][place] = value

    return change


def swap_ends(arrays: dict[str, Any]) -> None:
    arrays["members"][[0, -1]] = arrays["members"][[-1, 0]]


def lengthen(arrays: dict[str, Any]) -> None:
    arrays["kind"] = np.append(arrays["kind"], np.uint8(0))


def retype(arrays: dict[str, Any]) -> None:
    arrays["touched"] = arrays["touched"].astype(np.int32)


def forget(arrays: dict[str, Any]) -> None:
    del arrays["built"]


@pytest.mark.parametrize(
    "damage",
    [
        set_value("child", 0, 0),
        set_value("child", 0, 10**6),
        set_value("child", 0, -7),
        set_value("child", 1, 2),
        set_value("child", 0, NIL),
        set_value("attribute", 0, 99),
        set_value("attribute", 0, -1),
        set_value("kind", 0, ONE_VS_REST),
        set_value("kind", 0, 200),
        set_value("category", 0, np.array(np.nan).view(np.uint64)),
        set_value("category", 0, np.array(-np.inf).view(np.uint64)),
        set_value("category", 0, np.array(1e9).view(np.uint64)),
        set_value("flags", 0, 1),
        set_value("flags", 0, 2),
        set_value("built", 0, -1),
        set_value("touched", 0, -1),
        set_value("sizes", 0, -1),
        set_value("sizes", 0, 10**6),
        set_value("members", 0, 10**6),
        set_value("members", 0, -1),
        set_value("members", 0, 1),
        swap_ends,
        lengthen,
        retype,
        forget,
    ],
)
def test_arrays_that_are_no_tree_of_the_samples_are_refused(damage: Any) -> None:
    data = make_data(8, 100)
    slots = np.arange(100)
    tree = make_tree(data, 2)
    tree.build(data, slots)
    assert tree.tree.nodes["attribute"][ROOT] < 3
    arrays = {name: array.copy() for name, array in tree.arrays().items()}
    damage(arrays)
    with pytest.raises(ValueError):  # noqa: PT011 - each says something else
        tree.taken_over(arrays, data, slots)


def test_what_has_gone_leaves_nothing_behind() -> None:
    data = make_data(8, 200, n_categories=(7,))
    tree = make_tree(data, 2)
    tree.build(data, np.arange(200))
    tree.unlearn(data, np.arange(199))
    tree.unlearn(data, np.array([199]))
    tree.wipe()
    tree.check(data, np.zeros(0, np.int64))
    assert (tree.tree.links == NIL).all()
    assert not tree.space.lists.any()
    assert not tree.space.keys.any()
    assert tree.tree.links[:, PREVIOUS].max() == NIL


def test_widening_keeps_the_tree() -> None:
    data = make_data(8, 200, n_classes=5)
    two = data._replace(targets=np.minimum(data.targets, 1))
    tree = make_tree(data, 2)
    tree.build(two, np.arange(100))
    before = plain(read(tree, two))
    tree._widen(5)
    assert plain(read(tree, two)) == before
    assert tree.width == 5
    targets = np.concatenate([two.targets[:100], data.targets[100:]])
    mixed = data._replace(targets=targets)
    tree.learn(mixed, np.arange(100, 200))
    tree.check(mixed, np.arange(200))


def test_a_chain_as_deep_as_the_limit() -> None:
    """Alternating classes: every split takes off one end. All walks have to find room for that."""
    n = 300
    cells = np.arange(n, dtype=np.float32).reshape(-1, 1)
    data = Data(cells, np.arange(n) % 2, np.zeros(n, np.uint64), np.zeros(0, np.uint64), np.zeros(1, np.bool_))
    tree = make_tree(data, 2, max_depth=1000, epsilon=0.05)
    tree.build(data, np.arange(n - 1))
    assert tree.tree.nodes["depth"].max() == MAX_DEPTH
    again = tree.taken_over(tree.arrays(), data, np.arange(n - 1))
    assert again.digest(ORDER[:2]) == tree.digest(ORDER[:2])
    assert np.array_equal(again.importances(), tree.importances())
    tree.learn(data, np.arange(n - 1, n), lazy=True)
    tree.unlearn(data, np.arange(n))
    assert tree.resolve_some(data) <= MAX_DEPTH
    tree.check(data, np.zeros(0, np.int64))
