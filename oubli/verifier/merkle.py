"""Merkle trees as RFC 6962 defines them, and the checks of proofs as RFC 9162 writes them down (section 2.1)."""

import hashlib
from collections.abc import Iterable, Sequence

HASH_BYTES = 32
EMPTY_ROOT = hashlib.sha256().digest()


class ProofError(Exception):
    """A proof does not lead from what is to be proved to the root."""


def hash_leaf(content: bytes) -> bytes:
    """Return the hash of a leaf."""
    return hashlib.sha256(b"\x00" + content).digest()


def hash_node(left: bytes, right: bytes) -> bytes:
    """Return the hash of a node with two children."""
    return hashlib.sha256(b"\x01" + left + right).digest()


class Frontier:
    """The root of leaves that come one after the other; it keeps one hash a level."""

    def __init__(self) -> None:
        self.size = 0
        self._peaks: list[bytes] = []  # of the whole subtrees, the largest first

    def add(self, leaf: bytes) -> None:
        """Take in the hash of the next leaf."""
        self.size += 1
        self._peaks.append(leaf)
        rest = self.size
        while rest % 2 == 0:
            right = self._peaks.pop()
            self._peaks.append(hash_node(self._peaks.pop(), right))
            rest //= 2

    def root(self) -> bytes:
        """Return the root of the leaves so far."""
        if not self._peaks:
            return EMPTY_ROOT
        found = self._peaks[-1]
        for peak in reversed(self._peaks[:-1]):
            found = hash_node(peak, found)
        return found


def root_of(leaves: Iterable[bytes]) -> bytes:
    """Return the root of a tree with some hashes of leaves."""
    frontier = Frontier()
    for leaf in leaves:
        frontier.add(leaf)
    return frontier.root()


def check_inclusion(leaf: bytes, index: int, size: int, path: Sequence[bytes], root: bytes) -> None:
    """Check that a leaf is in a tree (RFC 9162, 2.1.3.2).

    Parameters
    ----------
    leaf
        Hash of the leaf.
    index, size
        Its place, from 0, and how many leaves the tree has.
    path
        The proof, from the leaf's sibling upwards.
    root
        Of the tree.

    Raises
    ------
    ProofError
        When the proof does not show it.
    """
    if not 0 <= index < size:
        raise ProofError
    node, last, found = index, size - 1, leaf
    for sibling in path:
        if last == 0:
            raise ProofError
        if node % 2 == 1 or node == last:
            found = hash_node(sibling, found)
            while node % 2 == 0 and node != 0:
                node, last = node >> 1, last >> 1
        else:
            found = hash_node(found, sibling)
        node, last = node >> 1, last >> 1
    if last != 0 or found != root:
        raise ProofError


def check_consistency(old: int, new: int, proof: Sequence[bytes], old_root: bytes, new_root: bytes) -> None:
    """Check that a tree continues an earlier one (RFC 9162, 2.1.4.2).

    Parameters
    ----------
    old, new
        How many leaves the two have.
    proof
        Hashes that show it.
    old_root, new_root
        Their roots.

    Raises
    ------
    ProofError
        When the proof does not show it.
    """
    if not 0 <= old <= new:
        raise ProofError
    if old in (0, new):
        # Every tree continues the empty one, and itself.
        expected = EMPTY_ROOT if old == 0 else new_root
        if proof or old_root != expected:
            raise ProofError
        return
    hashes = list(proof)
    if old & (old - 1) == 0:
        hashes.insert(0, old_root)  # it is a node of the new tree
    if not hashes:
        raise ProofError
    node, last = old - 1, new - 1
    while node % 2 == 1:
        node, last = node >> 1, last >> 1
    first = second = hashes[0]
    for sibling in hashes[1:]:
        if last == 0:
            raise ProofError
        if node % 2 == 1 or node == last:
            first, second = hash_node(sibling, first), hash_node(sibling, second)
            while node % 2 == 0 and node != 0:
                node, last = node >> 1, last >> 1
        else:
            second = hash_node(second, sibling)
        node, last = node >> 1, last >> 1
    if last != 0 or first != old_root or second != new_root:
        raise ProofError
