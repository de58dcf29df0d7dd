"""`oubli.core.rng` against the oracle's big-integer arithmetic, and against known answers."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from oubli.core import rng
from tests.oracles import common
from tests.oracles import forest as oracle

words = st.one_of(
    st.integers(0, 2**64 - 1),
    st.sampled_from([0, 1, 2**31, 2**32 - 1, 2**32, 2**63 - 1, 2**63, 2**64 - 1]),
)


def u64(value: int) -> np.uint64:
    """A word as kernels take it: a compiled kernel returns a plain int, which would be read as int64."""
    return np.uint64(value)


@given(words)
def test_mix_is_the_finaliser_of_splitmix64(word: int) -> None:
    assert int(rng.mix(u64(word))) == common.mix(word)


def test_mix_gives_the_published_sequence() -> None:
    """splitmix64 seeded with 1234567: the widely published first outputs."""
    state, outputs = 1234567, []
    for _ in range(3):
        state = (state + common.GOLDEN) % 2**64
        outputs.append(int(rng.mix(u64(state))))
    assert outputs == [6457827717110365317, 3203168211198807973, 9817491932198370423]


@given(words, words)
def test_combine(key: int, value: int) -> None:
    assert int(rng.combine(u64(key), u64(value))) == common.combine(key, value)


@given(words, st.integers(1, 2**31 - 1))
def test_bounded_stays_below_its_bound(word: int, bound: int) -> None:
    result = int(rng.bounded(u64(word), bound))
    assert result == common.bounded(word, bound)
    assert 0 <= result < bound


@given(words)
def test_unit_is_below_one_and_coin_the_highest_bit(word: int) -> None:
    result = float(rng.unit(u64(word)))
    assert result == common.unit(word)
    assert 0.0 <= result < 1.0
    assert bool(rng.coin(u64(word))) == (word >= 2**63)


@given(words, st.integers(0, 1000))
def test_tree_key(seed: int, tree: int) -> None:
    seed_key = u64(rng.mix(u64(seed)))
    assert int(rng.tree_key(seed_key, tree)) == common.tree_key(seed, tree)


@given(st.integers(0, 2**64 - 1), st.text(max_size=20), st.integers(1, 40), st.data())
def test_draw_trees_and_back(seed: int, text: str, n_trees: int, data: st.DataObject) -> None:
    """The drawn trees are those of the oracle, distinct; the scratch order is the identity again."""
    n_draws = data.draw(st.integers(1, n_trees))
    id_hash = common.hash_bytes(text.encode())
    order = np.arange(n_trees, dtype=np.int32)
    arguments = (u64(rng.mix(u64(seed))), u64(id_hash), n_trees, n_draws, order)
    rng.draw_trees(*arguments)
    drawn = [int(t) for t in order[:n_draws]]
    parameters = oracle.Parameters(seed=seed, n_estimators=n_trees, occurrence=n_draws / n_trees)
    assert set(drawn) == set(oracle.drawn_of(id_hash, parameters)[0])
    assert len(set(drawn)) == n_draws
    rng.restore_order(*arguments)
    assert order.tolist() == list(range(n_trees))


@given(st.text(max_size=40))
def test_hash_text_hashes_utf8(text: str) -> None:
    assert rng.hash_text(text) == common.hash_bytes(text.encode("utf-8"))
    assert int(rng.MISSING_CATEGORY) == common.MISSING_CATEGORY != rng.hash_text(text)


def test_draws_spread_evenly() -> None:
    """Chi-square of 200,000 bounded draws over 20 cells: below the 0.9999 quantile, 55."""
    seed_key = u64(rng.mix(u64(3)))
    counts = np.zeros(20, np.int64)
    for i in range(20_000):
        key = u64(rng.combine(seed_key, u64(i)))
        for j in range(10):
            counts[int(rng.bounded(u64(rng.combine(key, u64(j))), 20))] += 1
    expected = counts.sum() / 20
    assert ((counts - expected) ** 2 / expected).sum() < 55
