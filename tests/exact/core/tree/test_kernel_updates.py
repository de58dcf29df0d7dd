"""UPDATE and reading below the estimator: against the oracle, and by hand."""

from __future__ import annotations

import numpy as np
import pytest

from oubli.core.samples.arrays import Data
from oubli.core.tree import engine as tree_module
from oubli.core.tree.foresight import NEVER, count_built, count_short_updates
from oubli.core.tree.state import NIL, ROOT, TAGGED
from oubli.core.tree.workspace import STACK_SIZE
from tests.exact.core.tree.direct import KINDS, ORDER, Tree, build_slowly, make_data, make_tree, plain, read, sample_at
from tests.oracles import tree as oracle


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("epsilon", [0.0, 0.1, 1.5])
@pytest.mark.parametrize("lazy", [False, True])
def test_updates_are_the_oracles_updates(kind: str, epsilon: float, lazy: bool) -> None:
    n_classes = KINDS[kind].get("n_classes", 2)
    data = make_data(11, 90, **KINDS[kind])
    tree = make_tree(data, n_classes, epsilon=epsilon)
    slow = build_slowly(data, np.arange(40), tree)
    slow.parameters = oracle.Parameters(10, 1, 0.0, 0.0, epsilon, lazy)
    tree.build(data, np.arange(40))
    rng = np.random.default_rng(1)
    held, away = list(range(40)), list(range(40, 90))
    for step in range(60):
        adds = bool(away) and (not held or rng.random() < (0.7 if step < 35 else 0.3))
        source, target = (away, held) if adds else (held, away)
        slot = source.pop(int(rng.integers(len(source))))
        target.append(slot)
        (tree.learn if adds else tree.unlearn)(data, np.array([slot]), lazy=lazy)
        (slow.insert if adds else slow.delete)(str(slot), sample_at(data, slot))
        if lazy and step % 7 == 0:
            row = int(rng.integers(90))
            tree.count(data, data.cells[row : row + 1])
            slow.query(sample_at(data, row).cells)
        assert plain(read(tree, data)) == plain(slow.root)
        tree.check(data, np.array(held, np.int64))
    assert (tree.n_tags > 0) is any(node.tagged for node in slow.root.walk())
    tree.resolve_some(data)
    slow.resolve()
    assert tree.n_tags == 0
    assert plain(read(tree, data)) == plain(slow.root)


def test_a_batch_is_its_samples_one_after_the_other() -> None:
    data = make_data(4, 400, n_categories=(5,), missing=0.05)
    one_by_one, at_once, exchanged = (make_tree(data, 2) for _ in range(3))
    for tree in (one_by_one, at_once, exchanged):
        tree.build(data, np.arange(200))
    for slot in range(200, 400):
        one_by_one.learn(data, np.array([slot]))
    for slot in range(150):
        one_by_one.unlearn(data, np.array([slot]))
    at_once.learn(data, np.arange(200, 400))
    at_once.unlearn(data, np.arange(150))
    exchanged.run(data, np.concatenate([np.arange(200, 400), np.arange(150)]), 200, False, NIL)
    expected = plain(read(one_by_one, data))
    assert plain(read(at_once, data)) == expected
    assert plain(read(exchanged, data)) == expected


def test_the_proactive_rule_by_hand() -> None:
    """Eight samples; the root has s = 8, its children 3 and 5, so that an offender with s = 5 takes the root along."""
    cells = np.array([[0], [1], [2], [3], [4], [5], [6], [7], [4.5], [4.6]], np.float32)
    targets = np.array([0, 0, 0, 1, 1, 1, 1, 1, 1, 1])
    data = Data(cells, targets, np.zeros(10, np.uint64), np.zeros(0, np.uint64), np.zeros(1, np.bool_))
    tree = make_tree(data, 2, epsilon=0.25)
    tree.build(data, np.arange(8))
    nodes = tree.tree.nodes
    left = int(nodes["child"][ROOT])
    assert nodes["built"][[ROOT, left, left + 1]].tolist() == [8, 3, 5]
    tree.learn(data, np.array([8]))
    assert nodes["touched"][[ROOT, left, left + 1]].tolist() == [1, 0, 1]
    # The right child's second update: 2 > 0.25 * 5. ceil(log2 5) = 3, and the root has s = 8 <= 2^3.
    tree.learn(data, np.array([9]))
    left = int(nodes["child"][ROOT])
    assert nodes["built"][[ROOT, left, left + 1]].tolist() == [10, 3, 7]
    assert nodes["touched"][[ROOT, left, left + 1]].tolist() == [0, 0, 0]


def test_a_tag_above_swallows_the_tags_below() -> None:
    data = make_data(9, 300)
    tree = make_tree(data, 2, epsilon=0.2)
    tree.build(data, np.arange(100))
    seen = set()
    for slot in range(100, 300):
        tree.learn(data, np.array([slot]), lazy=True)
        seen.add(tree.n_tags)
    assert max(seen) > 1
    assert plain(read(tree, data)) is not None
    root = tree.tree.nodes[ROOT]
    assert root["touched"] <= 0.2 * root["built"] or root["flags"] & TAGGED
    tree.check(data, np.arange(300))


def test_resolving_some_tags() -> None:
    data = make_data(9, 300)
    tree = make_tree(data, 2, epsilon=0.3)
    tree.build(data, np.arange(280))
    tree.learn(data, np.arange(280, 300), lazy=True)
    n_tags = tree.n_tags
    assert n_tags > 2
    assert tree.resolve_some(data, 2) == 2
    assert tree.n_tags == n_tags - 2
    assert tree.resolve_some(data, 1000) == n_tags - 2
    assert tree.resolve_some(data) == 0


def test_subtrees_larger_than_the_working_space_are_built_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    data = make_data(6, 600, missing=0.1)
    roomy, tight = make_tree(data, 2), make_tree(data, 2)
    roomy.build(data, np.arange(300))
    roomy.learn(data, np.arange(300, 600))
    monkeypatch.setattr(tree_module, "_KEPT_ENTRIES", 40)
    tight.build(data, np.arange(300))
    tight.learn(data, np.arange(300, 600))
    assert tight.space.n_rows < 300
    assert plain(read(tight, data)) == plain(read(roomy, data))


def test_without_memory_for_the_working_space_updates_are_lazy(monkeypatch: pytest.MonkeyPatch) -> None:
    data = make_data(6, 600)
    tree = make_tree(data, 2)
    tree.build(data, np.arange(300))
    tree.wipe()
    make_room = tree._make_room

    def refuse(_n_rows: int, _n_codes: int) -> None:
        raise MemoryError

    monkeypatch.setattr(tree, "_make_room", refuse)
    tree.learn(data, np.arange(300, 600))
    tree.check(data, np.arange(600))
    assert tree.n_tags > 0
    with pytest.raises(MemoryError):
        tree.resolve_some(data)
    monkeypatch.setattr(tree, "_make_room", make_room)
    assert tree.resolve_some(data) > 0
    tree.check(data, np.arange(600))


# -- reading ----------------------------------------------------------------------------------------


def test_an_empty_leaf_answers_with_the_last_node_that_has_samples() -> None:
    cells = np.array([[0], [1], [2], [3]], np.float32)
    data = Data(cells, np.array([0, 0, 1, 1]), np.zeros(4, np.uint64), np.zeros(0, np.uint64), np.zeros(1, np.bool_))
    tree = make_tree(data, 2, epsilon=2.0)
    tree.build(data, np.arange(4))
    tree.unlearn(data, np.array([2, 3]))
    assert tree.n_nodes == 3
    assert tree.count(data, cells).tolist() == [[2, 0]] * 4
    assert tree.count(data, cells[3:]).tolist() == [2, 0]
    tree.unlearn(data, np.array([0, 1]))
    assert not tree.count(data, cells).any()


def test_a_frozen_reading_answers_as_a_resolving_one_and_writes_nothing() -> None:
    data = make_data(9, 300, n_categories=(6,), missing=0.1)
    tree = make_tree(data, 2, epsilon=0.3)
    tree.build(data, np.arange(250))
    tree.learn(data, np.arange(250, 300), lazy=True)
    before = [array.copy() for array in tree.tree]
    n_tags = tree.n_tags
    frozen = tree.count(data, data.cells, frozen=True)
    assert all(np.array_equal(a, b) for a, b in zip(before, tree.tree, strict=True))
    assert np.array_equal(tree.count(data, data.cells), frozen)
    assert tree.n_tags < n_tags
    one_by_one = [tree.count(data, data.cells[i : i + 1]).tolist() for i in range(300)]
    assert one_by_one == frozen.tolist()


def test_importances_by_hand() -> None:
    cells = np.array([[0, 5], [0, 6], [1, 5], [1, 6]], np.float32)
    data = Data(cells, np.array([0, 0, 1, 2]), np.zeros(4, np.uint64), np.zeros(0, np.uint64), np.zeros(2, np.bool_))
    tree = make_tree(data, 3)
    tree.build(data, np.arange(4))
    # At the root 6/4 becomes 4/2 + 2/2, at the right child 2/2 becomes 2.
    assert tree.importances().tolist() == [1.5 / 2.5, 1.0 / 2.5]
    tree.build(data, np.arange(1))
    assert tree.importances().tolist() == [0, 0]


def test_the_digest_tells_what_predictions_tell() -> None:
    data = make_data(2, 100)
    tree = make_tree(data, 2, epsilon=0.9)
    tree.build(data, np.arange(90))
    digest = tree.digest(ORDER[:2])
    assert make_tree(data, 2).digest(ORDER[:2]) != digest
    assert tree.digest(ORDER[:2][::-1].copy()) != digest
    moved = tree.copy()
    moved.tree.nodes["touched"] += 1
    moved.tree.nodes["built"] += 1
    assert moved.digest(ORDER[:2]) == digest
    moved.learn(data, np.arange(90, 91))
    assert moved.digest(ORDER[:2]) != digest


def short_updates(tree: Tree, n_samples: int) -> int:
    walk = np.empty(STACK_SIZE, np.int64)
    return int(count_short_updates(tree.tree.nodes, tree.settings.tree.epsilon, n_samples, walk))


@pytest.mark.parametrize("epsilon", [0.02, 0.3, 0.7])
def test_long_work_is_foreseen(epsilon: float) -> None:
    """While there are short updates left none builds many samples anew; and without any left it does come to that."""
    data = make_data(9, 600)
    tree = make_tree(data, 2, epsilon=epsilon)
    tree.build(data, np.arange(300))
    limit, n_long, promised = 64, 0, 0
    for slot in range(300, 600):
        promised = max(promised - 1, short_updates(tree, limit))
        n_expected = count_built(tree.tree.nodes, epsilon, data.cells[slot : slot + 1], 0, data.category_hashes)
        tree.learn(data, np.array([slot]), lazy=True)
        tagged = tree.tree.nodes["flags"] & TAGGED != 0
        n_built = int(tree.tree.nodes["built"][tagged].max(initial=0))
        assert n_built <= n_expected
        assert (n_expected > 0) is (tree.n_tags > 0)
        assert n_expected <= limit or promised == 0
        n_long += n_expected > limit
        tree.resolve_some(data)
    assert n_long > 0
    assert short_updates(tree, 2048) == NEVER
