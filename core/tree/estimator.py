"""The estimator of the fully dynamic decision tree."""

from collections.abc import Mapping
from typing import Any

from oubli.core.array_types import Array
from oubli.core.concurrency.locks import reads_rows
from oubli.core.data.schema import Schema
from oubli.core.estimators import Classifier
from oubli.core.tree.engine import TreeEngine
from oubli.core.tree.parameters import TreeParameters, read_settings


class DynamicTreeClassifier(Classifier):
    """One decision tree that follows its samples under any sequence of adds and deletes (FuDyADT).

    Each node is rebuilt when more than `epsilon` times as many samples have come or gone as it was built on. With
    `alpha`, `beta` and `epsilon` by Theorem 3.2 every split's gain is within `beta` of the best one's at all times; the
    model is then `epsilon-feasible`. With the defaults it is `approximate`: no such bound holds. Right after `fit` or
    `scrub` the tree is the greedy one, a pure function of the samples held, whatever their order.

    Parameters
    ----------
    max_depth : int in [0, 64] or None, default 10
        Greatest depth of a leaf, h; None stands for 64.
    pruning_size : int, default 1
        A node with at most so many samples is a leaf, k. (scikit-learn's `min_samples_split` is k + 1.)
    alpha : float in [0, 1), default 0.0
        A node is a leaf when it is built with a Gini index of at most alpha / 2, and is split from alpha on.
    beta : float in [0, 1), default 0.0
        What the gain of a split may be below the best one's. Says what is claimed and, when epsilon is None,
        how often nodes are rebuilt.
    epsilon : float or None, default 0.1
        Share of a node's samples that may come and go before it is rebuilt; 0 rebuilds the whole tree with
        every sample. None: the largest that makes the tree epsilon-feasible, below
        min(1 / (pruning_size + 1), alpha / 5, beta / 12.5).
    window : int or None, default None
        Samples held at most: the oldest leaves when one more comes. A replaced sample counts as new.
    lazy : bool, default False
        Put rebuilding off until a query needs it (or `resolve`). Then the guarantee holds at every query.
    class_weight : dict, "balanced" or None, default None
        Weights by class, which those of samples are multiplied by; 1 for classes left out. "balanced" gives all classes
        the same weight together when the model is fitted; the numbers stay, in `schema_.class_weight`.
    random_state : int, RandomState, Generator or None
        Draws nothing; every estimator has it.
    n_jobs : int or None, default None
        Threads for long work: fit, resolve, verify, digest and large batches. None is one, -1 all cores that the
        process may use, as in scikit-learn; never more than those. It changes no bit of the model.

    Attributes
    ----------
    classes_ : the classes held, ordered; they follow the samples.
    n_features_in_, feature_names_in_ : the columns; names only when given.
    samples_ : SampleStore
    guarantee : "epsilon-feasible", or "approximate" when Theorem 3.2 does not apply.
    n_mutations_since_scrub_ : samples added and deleted since the last `fit` or `scrub`.
    engine_, settings_ : the tree, and its parameters as numbers.
    n_samples_, n_lazy_tags_, nbytes_, feature_importances_, seed_, schema_

    Notes
    -----
    Paper: "Fully-Dynamic Decision Trees" (Bressan, Damay, Sozio 2022), Algorithms 1 and 2, with these
    deviations: a) several classes, with the Gini index 1 - sum p_c^2; `core/tree/parameters.py` says why the theorem
    holds for them; b) missing values, which go to either side; categories, one of which goes left; c) a node whose
    samples cannot be told apart is a leaf; d) a batch of more than 100 samples that is more than a tenth of those held,
    or more updates than the root takes, rebuilds the whole tree once, other batches are learned one by one; e) see
    `core/tree/update.py`. A sample of weight w counts as w equal samples everywhere but for `pruning_size`.

    Examples
    --------
    >>> import numpy as np
    >>> X = np.array([[0.0], [1.0], [2.0], [3.0]])
    >>> tree = DynamicTreeClassifier().fit(X, ["a", "a", "b", "b"])
    >>> tree.delete("3")
    >>> tree.add([[9.0]], ["c"])
    ['4']
    >>> tree.predict([[8.5]]).tolist()
    ['c']
    >>> print(tree.export_text(["length"]))
    length <= 1.50
        a (2 samples): a 100%
    else
        length <= 5.50
            b (1 sample): b 100%
        else
            c (1 sample): c 100%
    """

    kind = "tree"

    engine_: TreeEngine

    def __init__(
        self,
        max_depth: int | None = 10,
        *,
        pruning_size: int = 1,
        alpha: float = 0.0,
        beta: float = 0.0,
        epsilon: float | None = 0.1,
        window: int | None = None,
        lazy: bool = False,
        class_weight: Any = None,
        random_state: Any = None,
        n_jobs: int | None = None,
    ) -> None:
        self._keep(locals())

    @staticmethod
    def engine_type(settings: TreeParameters) -> type[TreeEngine]:
        return TreeEngine

    @classmethod
    def read_settings(cls, parameters: Mapping[str, Any], schema: "Schema | None" = None) -> TreeParameters:
        return read_settings(parameters)

    @property
    def guarantee(self) -> str:
        """What the parameters in force promise; before `fit`, those that are set.

        Raises
        ------
        InputError
            Before `fit`, when a parameter does not fit.
        """
        settings = self.settings_ if self.__sklearn_is_fitted__() else self.read_settings(self.get_params())
        return "epsilon-feasible" if settings.is_feasible else "approximate"

    @reads_rows
    def predict(self, X: Any) -> Array:
        """Predict the class that most samples of each row's leaf have; the smaller class wins a tie.

        Examples
        --------
        >>> model = DynamicTreeClassifier().fit([[0.0], [1.0], [2.0]], ["a", "b", "b"])
        >>> model.predict([[5.0]]).tolist()
        ['b']
        """
        self._check_names(X)
        classes, counts = self.samples_.classes, self._read_trees(self.engine_.counts, X)
        if counts.ndim == 1:  # of one row: faster than its shares
            best = counts.argmax()
            return classes.classes_array()[best : best + 1].copy()
        labels: Array = classes.classes_array()[counts.argmax(axis=1)]
        return labels
