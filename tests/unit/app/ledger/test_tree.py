"""The tree of the signing side: its roots, proofs and tiles against an oracle, the verifier and another library."""

import random

import pytest

from oubli.app.ledger.entries import HASH_BYTES, hash_leaf, root_of
from oubli.app.ledger.log import TILE, Tree
from oubli.verifier.merkle import Frontier, check_consistency, check_inclusion
from tests.oracles.merkle import mth, path, proof

MOST = 70
MANY = [str(i).encode() for i in range(70_000)]


def grown(n: int, kept: dict[tuple[int, int], bytes] | None = None) -> Tree:
    """A tree over the texts of the numbers."""
    kept = {} if kept is None else kept
    tree = Tree(lambda level, number, hashes: kept.update({(level, number): hashes}), lambda *place: kept[place])
    for i in range(n):
        tree.append(hash_leaf(MANY[i]))
    return tree


def test_every_root_and_every_proof_of_small_trees_is_that_of_the_definition():
    tree = grown(MOST)
    for new in range(MOST + 1):
        assert tree.root(new) == mth(MANY[:new])
        assert root_of([hash_leaf(one) for one in MANY[:new]]) == mth(MANY[:new]).hex()
        for old in range(new):
            assert tree.inclusion(old, new) == path(old, MANY[:new])
            assert tree.consistency(old, new) == proof(old, MANY[:new])
        assert tree.consistency(new, new) == []


def test_proofs_across_many_tiles_hold_at_every_size():
    kept: dict[tuple[int, int], bytes] = {}
    draw, n = random.Random(7), TILE * TILE + 3 * TILE + 5
    sizes = {n, TILE * TILE, *(TILE * draw.randint(1, n // TILE) for _ in range(20)), *draw.choices(range(n), k=99)}
    tree, frontier, leaves, roots = grown(0, kept), Frontier(), [], {}
    for i in range(n):
        leaves.append(hash_leaf(MANY[i]))
        tree.append(leaves[-1])
        frontier.add(leaves[-1])
        if i + 1 in sizes:
            roots[i + 1] = frontier.root()
    assert sorted(kept) == [*((0, number) for number in range(n // TILE)), (1, 0)]
    for _ in range(300):
        old, new = sorted(draw.choices(list(roots), k=2))
        index = draw.randrange(new)
        check_inclusion(leaves[index], index, new, tree.inclusion(index, new), roots[new])
        check_consistency(old, new, tree.consistency(old, new), roots[old], roots[new])


def test_tiles_are_those_of_the_specification():
    """c2sp.org/tlog-tiles: 70,000 entries have 273 whole tiles and one of 112, above them a whole one and one of 17."""
    tree = grown(70_000)
    leaves = [hash_leaf(one) for one in MANY]
    for number, width in ((0, TILE), (1, TILE), (272, TILE), (273, 112), (3, 5)):
        assert tree.tile(0, number, width) == b"".join(leaves[number * TILE : number * TILE + width])
    above = tree.tile(1, 0, TILE)
    assert above is not None
    assert above[:HASH_BYTES] == grown(TILE).tile(1, 0, 1) == mth(MANY[:TILE])
    assert tree.tile(1, 1, 17) is not None
    assert tree.tile(2, 0, 1) == mth(MANY[: TILE * TILE])
    for nothing in ((0, 273, 113), (0, 274, 1), (1, 1, 18), (2, 0, 2), (3, 0, 1), (0, 0, 0)):
        assert tree.tile(*nothing) is None


@pytest.mark.parametrize("n", [0, 1, TILE - 1, TILE, TILE + 1, 3 * TILE])
def test_a_tree_comes_back_to_a_mark(n):
    kept: dict[tuple[int, int], bytes] = {}
    tree = grown(n, kept)
    mark, root = tree.mark(), tree.root()
    for _ in range(2 * TILE):
        tree.append(bytes(HASH_BYTES))
    tree.rewind(mark)
    assert (tree.size, tree.root()) == (n, root)
    for text in MANY[n : n + 2 * TILE]:
        tree.append(hash_leaf(text))
    assert tree.root() == grown(n + 2 * TILE).root()
