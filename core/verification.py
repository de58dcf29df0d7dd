"""What `verify` answers: the live model beside a fresh fit on the samples held."""

from dataclasses import dataclass


@dataclass(frozen=True)
class TreeComparison:
    """One tree of the live model and of the fresh one.

    Attributes
    ----------
    tree : int
        Number of the tree.
    live_digest, fresh_digest : str
        Hashes of their canonical forms.
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
    """Outcome of comparing a model with a fresh fit on the samples it holds.

    Attributes
    ----------
    live_digest, fresh_digest : str
        Digests of the models.
    trees : list of TreeComparison
        The same, tree by tree.
    wrong_counters : list of str
        What the live model keeps beside the trees (counters, ranges, memberships) that a recount
        does not confirm. Such an error does not show in the digest until a later mutation.
    """

    live_digest: str
    fresh_digest: str
    trees: list[TreeComparison]
    wrong_counters: list[str]

    @property
    def ok(self) -> bool:
        """Whether the live model is the fresh one, down to the last counter."""
        return self.live_digest == self.fresh_digest and not self.wrong_counters
