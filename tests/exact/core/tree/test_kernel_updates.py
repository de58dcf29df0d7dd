"""UPDATE and reading below the estimator: against the oracle, and by hand."""

from __future__ import annotations

import numpy as np
import pytest

from oubli.core.samples.arrays import Data
from oubli.core.tree import engine as tree_module
from oubli.core.tree.state import TAGGED
from oubli.core.tree.update import NEVER, count_built, count_short_updates
from oubli.core.tree.workspace import STACK_SIZE
from tests.exact.core.tree.direct import ORDER, Tree, make_data, make_tree, plain, read


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
    """While there are short updates left none builds many samples again; and without any left it does come to that."""
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
