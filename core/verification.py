"""The digest of a model, and what `verify` answers: the live model beside what the samples held say."""

import hashlib
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import zip_longest
from typing import Any


@dataclass(frozen=True)
class TreeComparison:
    """One tree of the live model and of the fresh one.

    Attributes
    ----------
    tree : int
        Number of the tree.
    live_digest, fresh_digest : str
        Hashes of their canonical forms; empty where one model has fewer trees.
    """

    tree: int
    live_digest: str
    fresh_digest: str

    @property
    def ok(self) -> bool:
        """Whether the trees are the same."""
        return self.live_digest == self.fresh_digest


@dataclass(frozen=True)
class Verification:
    """Outcome of checking a model against the samples it holds.

    Of a model that is exact, the other one is a fresh fit. Of one that is not, it has the same splits, and all that
    is counted is counted anew; after a fit or a `scrub` it is a fresh fit as well.

    Attributes
    ----------
    live_digest, fresh_digest : str
        Digests of the models.
    trees : list of TreeComparison
        The same, tree by tree.
    wrong_counters : list of str
        What the live model keeps beside the trees (counters, ranges, memberships) that a recount
        does not confirm. Such an error does not show in the digest until a later mutation.
    broken_promises : list of str
        Nodes that are not what the guarantee says.
    distance_to_fresh : float or None
        Of an approximate model with a history: how far its predictions for the samples held are from a fresh fit's.
        The share of other classes, or the root mean squared difference in standard deviations of the targets.
    """

    live_digest: str
    fresh_digest: str
    trees: list[TreeComparison]
    wrong_counters: list[str]
    broken_promises: list[str] = field(default_factory=list)
    distance_to_fresh: float | None = None

    @property
    def ok(self) -> bool:
        """Whether the live model is the other one, down to the last counter, and what it says it is."""
        return self.live_digest == self.fresh_digest and not self.wrong_counters and not self.broken_promises


def compare_trees(live: Sequence[str], fresh: Sequence[str]) -> list[TreeComparison]:
    """Put the digests of trees beside each other."""
    return [TreeComparison(tree, a, b) for tree, (a, b) in enumerate(zip_longest(live, fresh, fillvalue=""))]


def named_classes(values: Iterable[Any]) -> list[list[str]]:
    """Classes by type and text, for a header."""
    return [[type(value).__name__, value.hex() if isinstance(value, float) else str(value)] for value in values]


def header_text(header: dict[str, Any]) -> str:
    """Canonical JSON of all but the trees that decides a prediction."""
    return json.dumps(header, sort_keys=True, separators=(",", ":"), ensure_ascii=True)


def model_digest(header: str, tree_digests: Sequence[str]) -> str:
    """SHA-256 of a header's text and the trees' digests, a line each, hexadecimal."""
    return hashlib.sha256("\n".join([header, *tree_digests]).encode("ascii")).hexdigest()
