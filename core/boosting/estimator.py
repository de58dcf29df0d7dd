"""The base of the boosted estimators: what they offer beside what every kind does."""

from collections.abc import Iterator
from typing import Any

import numpy as np

from oubli.core.array_types import Array, Arrays, Hashes, Reals
from oubli.core.boosting.engine import BoostedEngine
from oubli.core.boosting.parameters import LOSSES, as_texts
from oubli.core.boosting.predict import staged_scores
from oubli.core.boosting.state import Trees
from oubli.core.concurrency.locks import reads, reads_long
from oubli.core.data.values import Task
from oubli.core.errors import EmptyModelError
from oubli.core.model import Model


class BoostedModel(Model):
    """Boosted trees over a sample store. Nothing is ever put off: every tree depends on those before it."""

    is_boosted = True

    engine_: BoostedEngine

    @reads
    def raw_scores(self, X: Any) -> Reals:
        """Raw scores F of each row, float64[n, groups]: log-odds of the second class of two, or one score a class.

        Examples
        --------
        >>> from oubli import IncrementalBoostingRegressor
        >>> model = IncrementalBoostingRegressor(n_estimators=3, random_state=0).fit([[1.0], [2.0]], [5.0, 5.0])
        >>> model.raw_scores([[1.5]]).tolist()
        [[5.0]]
        """
        self._check_names(X)
        return self.engine_.raw_scores(*self._encode_queries(X))

    @property
    @reads
    def n_trees_(self) -> int:
        """Number of trees that predictions read."""
        self.check_is_fitted()
        return len(self.engine_.trees.roots)

    @property
    @reads
    def best_iteration_(self) -> int:
        """Iterations that predictions read: with early stopping, those up to the lowest validation loss."""
        self.check_is_fitted()
        trees = self.engine_.trees
        return len(trees.roots) // max(trees.n_groups, 1)

    @property
    @reads_long
    def train_loss_(self) -> Reals:
        """Mean loss on the samples held after each iteration that predictions read, float64[iterations].

        Of a classifier log-loss, of a regressor its `loss`: (F - y)^2, the pinball loss, Huber's with 1/2 r^2, or half
        the Poisson deviance. Samples that validate count, and so do weights. O(n T depth), once for each version of the
        model: it is gone with the next change.
        """
        self.check_is_fitted()
        store, engine = self.samples_, self.engine_
        if len(store) == 0:
            raise EmptyModelError("the model holds no samples: add some before asking how well it knows them")
        kept = store.changes.derived
        if "train_loss" not in kept:
            kept["train_loss"] = engine.mean_losses(store.problem(), store.slots())
        return kept["train_loss"].copy()

    def staged_predict(self, X: Any) -> Iterator[Any]:
        """Yield what `predict` says of rows after each iteration; of the model as it is when the first is asked for.

        Parameters
        ----------
        X : array, DataFrame or list of rows, shape (n, d)

        Yields
        ------
        float64[n], or the classes of n rows.

        Examples
        --------
        >>> from oubli import IncrementalBoostingRegressor
        >>> model = IncrementalBoostingRegressor(n_estimators=3, random_state=0).fit([[1.0], [2.0]], [5.0, 5.0])
        >>> [stage.tolist() for stage in model.staged_predict([[1.5]])]
        [[5.0], [5.0], [5.0]]
        """
        classes = self.samples_.classes.classes_array() if self.task is Task.CLASSIFICATION else None
        for answers in self._staged(X):
            yield answers[:, 0] if classes is None else classes[answers.argmax(axis=1)]

    def _staged(self, X: Any) -> Iterator[Reals]:
        engine, trees, cells, hashes, n_classes = self._stages(X)
        if trees.n_groups == 0:  # one class: there is nothing to choose
            yield np.ones((len(cells), n_classes))
        for scores in staged_scores(trees, cells, hashes):
            yield engine.answers_of(scores)

    @reads
    def _stages(self, X: Any) -> tuple[BoostedEngine, Trees, Array, Hashes, int]:
        """All that stages are read from, copied: a model may change between two of them."""
        self._check_names(X)
        engine, trees = self.engine_, self.engine_.trees
        cells, hashes = engine.read_queries(*self._encode_queries(X))
        copied = trees._replace(nodes=trees.nodes.copy(), roots=trees.roots.copy())
        return engine, copied, cells, hashes.copy(), len(self.samples_.classes)

    def to_parts(self) -> tuple[dict[str, Any], Arrays]:
        """Internal: as every model, without parameters at their defaults that older programs do not know."""
        document, arrays = super().to_parts()
        parameters = document["parameters"]
        parameters["monotone_constraints"] = as_texts(parameters["monotone_constraints"])
        for name, default in {**{one.name: one.default for one in LOSSES}, "monotone_constraints": None}.items():
            if parameters.get(name, default) == default:
                parameters.pop(name, None)
        return document, arrays


class StagedProbabilities(BoostedModel):
    """What boosted classifiers have beside that."""

    def staged_predict_proba(self, X: Any) -> Iterator[Reals]:
        """Yield what `predict_proba` says of rows after each iteration, float64[n, n_classes]; see `staged_predict`.

        Examples
        --------
        >>> from oubli import IncrementalBoostingClassifier
        >>> model = IncrementalBoostingClassifier(n_estimators=3, random_state=0).fit([[1.0], [2.0]], ["a", "b"])
        >>> [stage.shape for stage in model.staged_predict_proba([[1.5]])]
        [(1, 2), (1, 2), (1, 2)]
        """
        yield from self._staged(X)
