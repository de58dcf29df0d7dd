"""Digests of trees against the digest of a model, with hashes that are written out here."""

from __future__ import annotations

from hashlib import sha256
from typing import Any

import pytest

from oubli.verifier import CheckedState, Checkpoint, FailedError, check_trees

HEADER = '{"format":2,"kind":"forest"}'
TREES = ["aa" * 32, "bb" * 32, "cc" * 32]
DIGEST = sha256("\n".join((HEADER, *TREES)).encode()).hexdigest()


def state(trees: list[str] | None = TREES, digest: str | None = DIGEST) -> CheckedState:
    checkpoint: Any = Checkpoint
    return CheckedState(checkpoint, [], {}, {}, {}, bytes(32), digest, trees)


@pytest.mark.parametrize("grown", [{}, {0: TREES[0]}, {2: TREES[2], 1: TREES[1]}])
def test_trees_that_are_in_the_list_hold(grown):
    check_trees(state(), HEADER, 3, grown)


def rule_of(told: CheckedState, header: str = HEADER, n_trees: int = 3, grown: Any = None) -> str:
    with pytest.raises(FailedError) as caught:
        check_trees(told, header, n_trees, grown or {})
    return caught.value.rule


def test_a_tree_that_is_another_is_found():
    assert rule_of(state(), grown={0: TREES[0], 1: TREES[0]}) == "digest"


def test_a_list_that_the_digest_is_not_made_of_is_found():
    for trees in (None, [], TREES[:2], [*TREES, TREES[0]], TREES[::-1]):
        assert rule_of(state(trees)) == "tree-digests"
    assert rule_of(state(), header="{}") == "tree-digests"
    assert rule_of(state(), n_trees=4) == "tree-digests"
    assert rule_of(state(digest=None)) == "tree-digests"
    assert rule_of(state(digest="00" * 32)) == "tree-digests"
