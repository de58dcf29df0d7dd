"""The root of a set is that of a fresh tree after any history; presence and absence are proved, and lies are not."""

from __future__ import annotations

import random

import pytest

from oubli.app.ledger.set_tree import DEPTH, EMPTY_ROOT, HASH_BYTES, SetTree
from oubli.verifier.merkle import ProofError
from oubli.verifier.sets import check_way
from tests.oracles.set_tree import root

# All over the place; close together, so that ways part at the last bits; and the edges.
PLACES = {
    "anywhere": lambda draw: draw.getrandbits(DEPTH),
    "close": lambda draw: draw.getrandbits(5),
    "edges": lambda draw: draw.choice([0, 1, 2**63, 2**64 - 1, 2**63 - 1, 2**62]) ^ draw.getrandbits(2),
}


def leaf(draw: random.Random) -> bytes:
    return draw.randbytes(HASH_BYTES)


@pytest.mark.parametrize("where", PLACES)
@pytest.mark.parametrize("seed", range(3))
def test_the_root_after_any_history_is_that_of_the_definition(seed, where):
    draw, held, tree = random.Random(f"{where} {seed}"), {}, SetTree()
    assert tree.root() == EMPTY_ROOT == root({})
    for _ in range(80):
        position = PLACES[where](draw)
        if held and draw.random() < 0.45:
            position = draw.choice(sorted(held))
            del held[position]
            tree.remove(position)
        else:
            held[position] = leaf(draw)
            tree.put(position, held[position])
        assert len(tree) == len(held)
        assert tree.root() == root(held)
    for position in sorted(held, key=lambda _: draw.random()):
        tree.remove(position)
    assert (len(tree), tree.root()) == (0, EMPTY_ROOT)


@pytest.mark.parametrize("seed", range(3))
def test_the_order_does_not_matter(seed):
    draw = random.Random(seed)
    held = {draw.getrandbits(DEPTH): leaf(draw) for _ in range(120)}
    roots = set()
    for _ in range(3):
        tree = SetTree()
        for position in sorted(held, key=lambda _: draw.random()):
            tree.put(position, held[position])
        roots.add(tree.root())
    assert roots == {root(held)}


@pytest.mark.parametrize("where", PLACES)
def test_presence_and_absence_are_proved(where):
    draw, tree = random.Random(where), SetTree()
    held = {PLACES[where](draw): leaf(draw) for _ in range(40)}
    for position, one in held.items():
        tree.put(position, one)
    for position in [*held, *(PLACES[where](draw) for _ in range(200)), *(one ^ 1 for one in held)]:
        proof = tree.prove(position)
        assert check_way(tree.root(), position, *proof) is (position in held)
        if position in held:
            assert proof.last == held[position]


def test_an_empty_set_holds_nothing():
    tree = SetTree()
    assert check_way(EMPTY_ROOT, 7, *tree.prove(7)) is False
    with pytest.raises(ProofError):
        check_way(bytes(HASH_BYTES), 7, *tree.prove(7))


def test_what_is_not_there_cannot_be_removed():
    tree = SetTree()
    with pytest.raises(KeyError):
        tree.remove(1)
    tree.put(1, bytes(HASH_BYTES))
    before = tree.root()
    for position in (0, 2, 2**63):
        with pytest.raises(KeyError):
            tree.remove(position)
    assert tree.root() == before


@pytest.mark.parametrize("seed", range(20))
def test_a_proof_that_is_altered_is_refused(seed):
    draw, tree = random.Random(seed), SetTree()
    held = {draw.getrandbits(DEPTH): leaf(draw) for _ in range(60)}
    for position, one in held.items():
        tree.put(position, one)
    present, absent = draw.choice(sorted(held)), draw.getrandbits(DEPTH)
    for position in (present, absent):
        end, last, siblings = tree.prove(position)
        depth = draw.choice(sorted(siblings))
        bit = draw.randrange(8 * HASH_BYTES)
        flipped = bytearray(siblings[depth])
        flipped[bit // 8] ^= 1 << bit % 8
        wrong = [
            (tree.root(), position ^ 1 << 63 - depth, end, last, siblings),
            (tree.root(), position, end, last, {**siblings, depth: bytes(flipped)}),
            (tree.root(), position, end, last, {at: one for at, one in siblings.items() if at != depth}),
            (tree.root(), position, end, last, {**siblings, max(siblings) + 1: leaf(draw)}),
            (tree.root(), position, end, bytes(HASH_BYTES), siblings),
            (tree.root(), position, end - 1, last, siblings),
            (tree.root(), position, DEPTH + 1, last, siblings),
            (tree.root(), position, end, None, siblings),
            (tree.root(), position, end, last[:-1], siblings),
            (root({**held, absent: leaf(draw)}), position, end, last, siblings),
        ]
        for case in wrong:
            with pytest.raises(ProofError):
                check_way(*case)


def test_a_position_in_the_set_has_no_proof_of_absence():
    """Whatever depth a liar says that the way ends at: the hashes that the root is made of do not fit."""
    draw, tree = random.Random(5), SetTree()
    for _ in range(50):
        tree.put(draw.getrandbits(DEPTH), leaf(draw))
    position = 3
    tree.put(position, leaf(draw))
    proof, root_ = tree.prove(position), tree.root()
    for end in range(DEPTH):
        siblings = {depth: one for depth, one in proof.siblings.items() if depth < end}
        for last in (proof.last, proof.siblings.get(end, bytes(HASH_BYTES)), tree.prove(position ^ 1 << 63 - end).last):
            with pytest.raises(ProofError):
                check_way(root_, position, end, last, siblings)


def test_what_was_removed_is_overwritten_and_room_is_used_again():
    draw, tree = random.Random(9), SetTree()
    secret, place = leaf(draw), 0x1234_5678_9ABC_DEF0
    for _ in range(100):
        tree.put(draw.getrandbits(DEPTH), leaf(draw))
    tree.put(place, secret)
    size = tree.nbytes
    tree.remove(place)
    arrays = [bytes(one) for one in vars(tree).values() if isinstance(one, bytearray)]
    arrays += [one.tobytes() for one in (tree._ways, tree._positions)]
    assert all(secret not in one and place.to_bytes(8, "little") not in one for one in arrays)
    tree.put(place, secret)
    assert tree.nbytes <= size + 8
    assert size / 101 < 100
