"""The tree below its estimator: large builds, room that is short, work that is foreseen, and what `verify` counts."""

import random
from typing import Any

import numpy as np
import pytest
from numba import njit

from oubli.core import DynamicTreeClassifier
from oubli.core.data.schema import Column, ColumnType, LabelType, Schema, Task
from oubli.core.samples.arrays import Data
from oubli.core.tree import engine as tree_module
from oubli.core.tree.invariants import find_broken_promises
from oubli.core.tree.presort import list_order, presort_column
from oubli.core.tree.state import MAX_DEPTH, ROOT, TAGGED
from oubli.core.tree.update import NEVER, count_built, count_short_updates
from oubli.core.tree.workspace import STACK_SIZE, STRIDE, Scratch, make_room
from tests.exact.core.tree.reading import columns_of, difference, read, samples_of
from tests.histories.comparisons import tree_parameters
from tests.oracles import tree as oracle


def table(
    n: int, seed: int = 1, *, n_values: int | None = 12, missing: float = 0.0, n_categories: int = 0, n_classes: int = 2
) -> tuple[Any, Any]:
    """Three columns that say something about the class; with categories, a fourth one."""
    rng = np.random.default_rng(seed)
    y = rng.integers(0, n_classes, n)
    X = rng.normal(size=(n, 3)) + 0.7 * y[:, np.newaxis] * rng.integers(0, 2, 3)
    if n_values is not None:
        X = np.round(X * n_values / 6)
    if n_categories:
        X = np.column_stack([X, np.where(rng.random(n) < 0.5, y, rng.integers(0, n_categories, n))])
    X[rng.random(X.shape) < missing] = np.nan
    return X.astype(np.float32), y


def fitted(X: Any, y: Any, **parameters: Any) -> Any:
    return DynamicTreeClassifier(**parameters).fit(X, y, categorical_features=[3] if X.shape[1] == 4 else None)


# -- building ----------------------------------------------------------------------------------------


def test_a_large_build_keeps_histograms_and_sorts_by_digits() -> None:
    """More samples than any test with the oracle; parts of it are as good as the whole for that."""
    model = fitted(*table(9000, n_values=None, missing=0.05, n_categories=9), max_depth=6)
    model.check_invariants()
    checked, waiting = 0, [read(model)]
    while waiting:
        node = waiting.pop()
        if node.children is not None:
            rows = list(node.held().values())
            if len(rows) < 1500:
                assert node.split == oracle.best_split(rows, columns_of(model))
                checked += 1
            waiting += node.children
    assert checked > 5


def test_subtrees_larger_than_the_working_space_are_built_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    X, y = table(600, missing=0.1)

    def grown() -> Any:
        model = fitted(X[:300], y[:300])
        model.add(X[300:], y[300:])
        return model

    roomy = grown()
    monkeypatch.setattr(tree_module, "_KEPT_ENTRIES", 40)
    tight = grown()
    assert tight.engine_.space.n_rows < 300
    assert difference(read(tight), read(roomy)) is None


@pytest.mark.parametrize("method", ["_make_room", "_enlarge_pool"])
def test_without_memory_updates_are_lazy(method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    X, y = table(2000, n_values=None)
    model = fitted(X[:100], y[:100], max_depth=None)
    model.wipe()

    def refuse(*_: int) -> None:
        raise MemoryError

    with monkeypatch.context() as patch:
        patch.setattr(model.engine_, method, refuse)
        model.add(X[100:], y[100:])
        model.check_invariants()
        assert model.n_lazy_tags_ > 0
        with pytest.raises(MemoryError):
            model.resolve()
        model.delete(model.samples_.ids()[:50])
    assert model.resolve() > 0
    model.check_invariants()
    assert model.verify().ok


@pytest.mark.long
def test_entries_that_need_more_than_32_bits(monkeypatch: pytest.MonkeyPatch) -> None:
    """So many samples and classes that position and class do not fit are held in wider lists; here they always are."""
    X, y = table(500, missing=0.1, n_categories=6, n_classes=3)
    narrow = fitted(X, y)

    def with_wide_lists(*arguments: Any) -> Scratch:
        space = make_room(*arguments)
        return space._replace(lists=space.lists.astype(np.uint64))

    monkeypatch.setattr(tree_module, "make_room", with_wide_lists)
    wide = fitted(X, y)
    assert wide.engine_.space.lists.dtype == np.uint64
    assert difference(read(wide), read(narrow)) is None
    assert make_room(2**17, 0, 2, np.float32, np.zeros(1, np.bool_), np.zeros(4)).lists.dtype == np.uint32
    assert make_room(2**17, 0, 2**15, np.float32, np.zeros(1, np.bool_), np.zeros(4)).lists.dtype == np.uint64


@njit
def presort(samples: Any, scratch: Any) -> None:
    n = samples.cells.shape[0]
    for i in range(n):
        scratch.slots[i] = i
    scratch.state[STRIDE] = scratch.lists.shape[0] // 4  # one column and three lists more
    list_order(samples, scratch, n)
    presort_column(samples.cells, 0, scratch, n)


SPECIAL = [0.0, -0.0, np.inf, -np.inf, np.nan, 1e-45, -1e-45, 3.4e38, -3.4e38, 1.0, -1.0]


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("values", ["distinct", "equal", "few", "special"])
def test_lists_are_sorted_and_say_where_values_change(dtype: Any, values: str) -> None:
    for n in (1, 2, 7, 64, 192, 193, 1024, 1025, 5000):
        rng = np.random.default_rng(n)
        column = {
            "distinct": rng.normal(size=n) * 10.0 ** rng.integers(-30, 30, n),
            "equal": np.full(n, -2.5),
            "few": rng.integers(-3, 3, n) / 2.0,
            "special": rng.choice(SPECIAL, n),
        }[values]
        cells, targets = column.astype(dtype).reshape(-1, 1), rng.integers(0, 3, n)
        space = make_room(n, 0, 3, dtype, np.zeros(1, np.bool_), np.zeros(4))
        presort(Data(cells, targets, np.zeros(n, np.uint64), np.zeros(0, np.uint64), np.zeros(1, np.bool_)), space)
        entries = space.lists[:n].astype(np.int64)
        positions, classes, changes = entries >> 3, (entries >> 1) & 3, entries & 1
        expected = np.argsort(cells[:, 0] + 0.0, kind="stable")  # NumPy puts NaN last, too
        assert np.array_equal(positions, expected)
        assert np.array_equal(classes, targets[expected])
        assert space.has_missing[0] == np.isnan(cells).any()
        ordered = cells[expected, 0]
        differ = (ordered[1:] != ordered[:-1]) & ~(np.isnan(ordered[1:]) & np.isnan(ordered[:-1]))
        assert np.array_equal(changes[1:] == 1, differ)


def test_a_batch_that_would_have_the_root_rebuilt_on_the_way_has_the_tree_rebuilt_once() -> None:
    rng = np.random.default_rng(5)
    X, n_left = rng.random((6000, 2)), 120  # updates that the root takes
    y, gone = (X[:, 0] > rng.random(6000)).astype(int), [str(i) for i in range(n_left + 1)]

    def fitted() -> Any:
        return DynamicTreeClassifier(epsilon=n_left / 6000).fit(X, y)

    def digest_of_trees(model: Any) -> str:
        return str(model.engine_.digests(model.class_order())[0])

    at_once, one_by_one = fitted(), fitted()
    at_once.delete(gone[:-1])
    for name in gone[:-1]:
        one_by_one.delete(name)
    assert at_once.digest() == one_by_one.digest()
    again = fitted()
    again.delete(gone)
    rest = DynamicTreeClassifier().fit(X[len(gone) :], y[len(gone) :])
    assert digest_of_trees(again) == digest_of_trees(rest) != digest_of_trees(at_once)
    assert again.verify().ok


def test_two_values_with_one_hash_are_one_category() -> None:
    X = np.array([[0.0], [1.0], [2.0], [2.0]])
    model = DynamicTreeClassifier().fit(X, [0, 1, 1, 1], categorical_features=[0])
    problem, slots = model.problem(), model.samples_.slots()
    hashes = np.where(np.arange(len(problem.data.category_hashes)) < 2, 6, 2).astype(np.uint64)
    problem = problem._replace(data=problem.data._replace(category_hashes=hashes))
    model.engine_.fit(problem, slots)
    model.engine_.check_invariants(problem, slots)
    assert (model.engine_.tree.nodes[ROOT]["category"], model.engine_.n_nodes) == (2, 3)


def test_a_chain_as_deep_as_the_limit() -> None:
    """Alternating classes: every split takes off one end, and only the limit ends that; all walks have room for it."""
    X, y = np.arange(300, dtype=np.float32).reshape(-1, 1), np.arange(300) % 2
    model = DynamicTreeClassifier(max_depth=None, epsilon=0.05, lazy=True).fit(X[:-1], y[:-1])
    assert model.engine_.tree.nodes["depth"].max() == MAX_DEPTH
    assert model.copy().digest() == model.digest()
    model.add(X[-1:], y[-1:])
    model.delete(model.samples_.ids())
    assert model.resolve() <= MAX_DEPTH
    model.check_invariants()
    model.wipe()
    assert not model.engine_.space.lists.any()
    assert not model.engine_.space.keys.any()
    assert DynamicTreeClassifier(max_depth=0).fit(X, y).engine_.n_nodes == 1


# -- reading -----------------------------------------------------------------------------------------


def test_importances_by_hand() -> None:
    model = DynamicTreeClassifier().fit([[0.0, 5.0], [0.0, 6.0], [1.0, 5.0], [1.0, 6.0]], [0, 0, 1, 2])
    # At the root 6/4 becomes 4/2 + 2/2, at the right child 2/2 becomes 2.
    assert model.feature_importances_.tolist() == [1.5 / 2.5, 1.0 / 2.5]
    assert DynamicTreeClassifier().fit([[0.0, 5.0]], [0]).feature_importances_.tolist() == [0, 0]


def test_the_digest_tells_what_predictions_tell() -> None:
    model = fitted(*table(90), epsilon=0.9)
    digest = model.digest()
    model.engine_.tree.nodes["touched"] += 1
    model.engine_.tree.nodes["built"] += 1
    assert model.digest() == digest
    model.add([[0.0, 0.0, 0.0]], [1])
    assert model.digest() != digest


# -- work that is put off ----------------------------------------------------------------------------


def short_updates(model: Any, n_samples: int) -> int:
    walk, epsilon = np.empty(STACK_SIZE, np.int64), model.settings_.tree.epsilon
    return int(count_short_updates(model.engine_.tree.nodes, epsilon, n_samples, walk))


@pytest.mark.parametrize("epsilon", [0.02, 0.3, 0.7])
def test_long_work_is_foreseen(epsilon: float) -> None:
    """While there are short updates left none builds many samples again; and without any left it does come to that."""
    X, y = table(600, 9)
    model = fitted(X[:300], y[:300], epsilon=epsilon, lazy=True)
    limit, n_long, promised = 64, 0, 0
    for i in range(300, 600):
        promised = max(promised - 1, short_updates(model, limit))
        nodes = model.engine_.tree.nodes
        n_expected = count_built(nodes, epsilon, X[i : i + 1], 0, model.data().category_hashes, 1)
        model.add(X[i : i + 1], y[i : i + 1])
        nodes = model.engine_.tree.nodes
        n_built = int(nodes["built"][nodes["flags"] & TAGGED != 0].max(initial=0))
        assert n_built <= n_expected
        assert (n_expected > 0) is (model.n_lazy_tags_ > 0)
        assert n_expected <= limit or promised == 0
        n_long += n_expected > limit
        model.resolve()
    assert n_long > 0
    assert short_updates(model, 2048) == NEVER


# -- what `verify` computes again, beside the oracle, which computes it in another way ------------------

TYPES = (("numeric", "float32"), ("numeric", "float64"), ("categorical", "float32"), ("boolean", "float32"))
COLUMNS = tuple(Column(f"x{j}", ColumnType(kind), dtype) for j, (kind, dtype) in enumerate(TYPES))
SCHEMA = Schema(COLUMNS, Task.CLASSIFICATION, LabelType.STRING)
# Few, so that there are ties, and missing ones.
NUMERIC: list[list[Any]] = [[0.5, 1.0, 2.5, None], [1e9, 1e9 + 1, -3.0, None]]
VALUES = [*NUMERIC, ["u", "v", "w", None], [True, False, None]]


def rows(rng: random.Random, n: int) -> list[list[Any]]:
    return [[rng.choice(some) for some in VALUES] for _ in range(n)]


def test_promises_are_broken_where_the_oracle_says_so() -> None:
    """Trees that have drifted, judged by bounds that they were not grown for."""
    broken: set[str] = set()
    for seed in range(30):
        rng = random.Random(seed)
        bounds = {"alpha": 0.1, "beta": rng.choice([0.01, 0.05, 0.2]), "pruning_size": rng.choice([1, 4])}
        model = DynamicTreeClassifier(max_depth=4, epsilon=rng.choice([0.1, 1.0, 2.0]), **bounds)
        X, first = rows(rng, 90), rng.choice(["a", "ab"])
        model.fit(X[:30], [rng.choice(first) for _ in range(30)], schema=SCHEMA)
        model.add(X[30:], ["a" if row[0] == 0.5 else "c" if row[2] == "u" else "b" for row in X[30:]])
        for name in rng.sample(model.samples_.ids(), 25):
            model.delete(name)
        model.check_invariants()
        mine = find_broken_promises(model.engine_.tree, model.settings_, model.data(), model.samples_.slots())
        settings = tree_parameters({**model.get_params(), "lazy": False})
        assert len(mine) == len(oracle.violations(read(model), samples_of(model), settings, columns_of(model)))
        broken.update(text.split()[1] for text in mine)
    assert broken == {"node", "leaf", "split"}
