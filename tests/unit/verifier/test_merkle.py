"""Trees against the published roots and an oracle by recursion; proofs that are altered are refused."""

import random

import pytest

from oubli.verifier import merkle
from tests.oracles.merkle import mth, path, proof

# The leaves and roots that implementations of RFC 6962 are compared by, in the tests of Certificate Transparency.
ENTRIES = [
    bytes.fromhex(text)
    for text in ("", "00", "10", "2021", "3031", "40414243", "5051525354555657", "606162636465666768696a6b6c6d6e6f")
]
ROOTS = (
    "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
    "6e340b9cffb37a989ca544e6bb780a2c78901d3fb33738768511a30617afa01d",
    "fac54203e7cc696cf0dfcb42c92a1d9dbaf70ad9e621f4bd8d98662f00e3c125",
    "aeb6bcfe274b70a14fb067a5e5578264db0fa9b51af5e0ba159158f329e06e77",
    "d37ee418976dd95753c1c73862b9398fa2a2cf9b4ff0fdfe8b30cd95209614b7",
    "4e3bbb1f7b478dcfe71fb631631519a3bca12c9aefca1612bfce4c13a86264d4",
    "76e67dadbcdf1e10e1b74ddc608abd2f98dfb16fbce75277b5232a127f2087ef",
    "ddb89be403809e325750d3d263cd78929c2942b7942a34b77e122c9594a74c8c",
    "5dc9da79a70659a9ad559cb701ded9a2ab9d823aad2f4960cfe370eff4604328",
)
MOST = 70
MANY = [str(i).encode() for i in range(MOST)]
MTH = [mth(MANY[:n]) for n in range(MOST + 1)]


def test_published_roots():
    for size, root in enumerate(ROOTS):
        assert merkle.root_of(map(merkle.hash_leaf, ENTRIES[:size])).hex() == mth(ENTRIES[:size]).hex() == root


def test_every_root_every_inclusion_and_every_consistency():
    frontier = merkle.Frontier()
    for size in range(MOST + 1):
        assert (frontier.size, frontier.root()) == (size, MTH[size])
        for index in range(size):
            merkle.check_inclusion(merkle.hash_leaf(MANY[index]), index, size, path(index, MANY[:size]), MTH[size])
        for old in range(size + 1):
            merkle.check_consistency(old, size, proof(old, MANY[:size]), MTH[old], MTH[size])
        frontier.add(merkle.hash_leaf(str(size).encode()))


def flipped(hash_: bytes, bit: int) -> bytes:
    changed = bytearray(hash_)
    changed[bit // 8] ^= 1 << bit % 8
    return bytes(changed)


@pytest.mark.parametrize("seed", range(10))
def test_an_inclusion_that_is_altered_in_one_bit_or_number_is_refused(seed):
    draw = random.Random(seed)
    size = draw.randint(2, MOST)
    index = draw.randrange(size)
    leaf, hashes = merkle.hash_leaf(MANY[index]), path(index, MANY[:size])
    bit, place = draw.randrange(256), draw.randrange(len(hashes))
    altered = [*hashes[:place], flipped(hashes[place], bit), *hashes[place + 1 :]]
    paths = (altered, hashes[:-1], hashes[1:], [*hashes, bytes(32)], [bytes(32), *hashes])
    indices = ((index + draw.randint(1, size - 1)) % size, size, -1)
    wrong = [
        (flipped(leaf, bit), index, size, hashes, MTH[size]),
        *((leaf, another, size, hashes, MTH[size]) for another in indices),
        *((leaf, index, size, others, MTH[size]) for others in paths),
        *((leaf, index, size, hashes, root) for root in (flipped(MTH[size], bit), MTH[size - 1])),
    ]
    for case in wrong:
        with pytest.raises(merkle.ProofError):
            merkle.check_inclusion(*case)


@pytest.mark.parametrize("seed", range(10))
def test_a_consistency_that_is_altered_in_one_bit_or_number_is_refused(seed):
    draw = random.Random(seed)
    new = draw.randint(2, MOST)
    old = draw.randint(1, new - 1)
    hashes = proof(old, MANY[:new])
    bit, place = draw.randrange(256), draw.randrange(len(hashes))
    altered = [*hashes[:place], flipped(hashes[place], bit), *hashes[place + 1 :]]
    sizes = ((old - 1 or new, new), (new, old), (old, old), (-1, new))
    wrong = [
        *((old, new, others, MTH[old], MTH[new]) for others in (altered, hashes[:-1], [*hashes, bytes(32)], [])),
        *((*pair, hashes, MTH[old], MTH[new]) for pair in sizes),
        *((old, new, hashes, flipped(MTH[old], bit), MTH[new]), (old, new, hashes, MTH[old], flipped(MTH[new], bit))),
        *((old, new, hashes, MTH[new], MTH[old]), (0, new, hashes, merkle.EMPTY_ROOT, MTH[new])),
    ]
    for case in wrong:
        with pytest.raises(merkle.ProofError):
            merkle.check_consistency(*case)
