"""The base of the boosted estimators: what they offer beside what every kind does."""

from typing import Any

from oubli.core.array_types import Reals
from oubli.core.boosting.engine import BoostedEngine
from oubli.core.concurrency.locks import reads
from oubli.core.model import Model


class BoostedModel(Model):
    """Boosted trees over a sample store. Nothing is ever put off: every tree depends on those before it."""

    is_boosted = True

    engine_: BoostedEngine

    @reads
    def raw_scores(self, X: Any) -> Reals:
        """Raw scores F of each row, float64[n, groups]: log-odds of the second class of two, or one score a class."""
        self._check_names(X)
        return self.engine_.raw_scores(*self._encode_queries(X))

    @property
    @reads
    def n_trees_(self) -> int:
        """Number of trees that predictions read."""
        self.check_is_fitted()
        return len(self.engine_.trees.roots)
