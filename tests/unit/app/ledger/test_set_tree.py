"""The root of a set is that of a fresh tree after any history, and absence is proved."""

import hashlib
import random
from array import array
from collections.abc import Callable

import pytest

from oubli.app.ledger.set_tree import Positions, SetTree
from oubli.core.samples.set_tree import DEPTH, EMPTY_ROOT, HASH_BYTES
from oubli.verifier.sets import root_of_way
from tests.oracles.set_tree import root

# All over the place; close together, so that ways part at the last bits; and the edges.
PLACES = {
    "anywhere": lambda draw: draw.getrandbits(DEPTH),
    "close": lambda draw: draw.getrandbits(5),
    "edges": lambda draw: draw.choice([0, 1, 2**47, 2**48 - 1, 2**47 - 1, 2**46]) ^ draw.getrandbits(2),
}


def leaf(draw: random.Random) -> bytes:
    return draw.randbytes(HASH_BYTES)


def filled(held: dict[int, bytes]) -> SetTree:
    tree, places = SetTree(len(held)), sorted(held)
    tree.fill(places, b"".join(held[place] for place in places))
    return tree


def kept_by(tree: SetTree) -> list[bytes]:
    return [bytes(one) for one in vars(tree).values() if isinstance(one, bytearray | array)]


def check_absence(tree: SetTree, held: dict[int, bytes], position: int) -> None:
    others = tree.prove_absence(position)
    assert (others is None) is (position in held)
    if others is not None:
        assert list(others) == sorted(others)
        assert root_of_way(position, others) == tree.root()


@pytest.mark.parametrize("where", PLACES)
@pytest.mark.parametrize("n_expected", [0, 1000, 10**9])
def test_the_root_after_any_history_is_that_of_the_definition_and_absence_is_proved(n_expected, where):
    draw, held, tree = random.Random(f"{where} {n_expected}"), {}, SetTree(n_expected)
    assert tree.root() == EMPTY_ROOT == root({})
    for _ in range(80):
        position = PLACES[where](draw)
        if held and draw.random() < 0.45:
            position = draw.choice(sorted(held))
            del held[position]
            assert tree.remove(position)
        else:
            is_new = position not in held
            held[position] = leaf(draw)
            assert tree.put(position, held[position]) is is_new
        assert not tree.remove(next(one for one in range(2**47, 2**48) if one not in held))
        assert (len(tree), tree.root()) == (len(held), root(held))
        for one in (position, position ^ 1, PLACES[where](draw)):
            check_absence(tree, held, one)
    for position in sorted(held, key=lambda _: draw.random()):
        tree.remove(position)
    assert (len(tree), tree.root()) == (0, EMPTY_ROOT)


@pytest.mark.parametrize("where", PLACES)
@pytest.mark.parametrize("n", [0, 1, 2, 3, 20, 90])
def test_a_tree_that_was_filled_at_once_goes_on_like_any_other(n, where):
    draw = random.Random(f"{where} {n}")
    held = {PLACES[where](draw): leaf(draw) for _ in range(n)}
    tree = filled(held)
    assert (tree.root(), len(tree)) == (root(held), len(held))
    if n:
        with pytest.raises(ValueError, match="not empty"):
            tree.fill([7], bytes(HASH_BYTES))
    for _ in range(20):
        position = PLACES[where](draw)
        held[position] = leaf(draw)
        tree.put(position, held[position])
        assert tree.root() == root(held)
        gone = draw.choice(sorted(held))
        assert tree.get(gone) == held.pop(gone)
        tree.remove(gone)
        assert tree.get(gone) is None
        assert tree.root() == root(held)


def test_what_was_removed_is_overwritten_and_room_is_used_again():
    draw, tree = random.Random(9), SetTree()
    secret, place = leaf(draw), 0x1234_5678_9ABC
    for _ in range(100):
        tree.put(draw.getrandbits(DEPTH), leaf(draw))
    tree.put(place, secret)
    size = tree.nbytes
    tree.remove(place)
    secrets = [secret, hashlib.sha256(b"\x00" + secret).digest(), place.to_bytes(8, "little")]
    assert not [one for one in secrets for kept in kept_by(tree) if one in kept]
    tree.put(place, secret)
    assert tree.nbytes <= size + 64
    assert size / 101 < 150
    tree.shred()  # which leaves nothing
    kept = kept_by(tree)
    assert sum(map(len, kept)) > 101 * 100
    assert not [one for one in kept if any(one)]


def test_the_shape_of_a_proof_names_no_member():
    """Where a way has another child, a name is held whose position parts from it there.

    Who can compute positions, and knows all names that may be held, twice as many as are, finds the only one that it
    can be. With a key nobody can: what an adversary concludes from hashes of names is right by chance alone.
    """
    key = b"k" * 32
    told = {True: _named(lambda name: Positions(key).of(("id", name))), False: _named(_public)}
    right, wrong = told[False]
    assert right > 30, "the attack is blind"
    assert wrong == 0
    right, wrong = told[True]
    assert 0.35 < right / (right + wrong) < 0.65


def _public(name: str) -> int:
    return int.from_bytes(hashlib.sha256(name.encode()).digest()[:6], "big")


def _named(place: Callable[[str], int]) -> tuple[int, int]:
    """Of how many names an adversary is sure that they are held: rightly, and wrongly."""
    found = []
    for trial in range(100):
        draw = random.Random(trial)
        names = [f"{trial} {number}" for number in range(200)]
        held = set(draw.sample(names, 100))
        tree = filled({place(name): leaf(draw) for name in names if name in held})
        for depth in tree.prove_absence(place("absent")) or ():
            possible = [name for name in names if DEPTH - (_public(name) ^ _public("absent")).bit_length() == depth]
            if len(possible) == 1:
                found.append(possible[0] in held)
    return sum(found), len(found) - sum(found)
