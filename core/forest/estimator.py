"""The forest's estimators, as users meet them."""

import math
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from core.forest import quantisation
from core.forest.dynamic_forest import DynamicForest, QueryResult
from core.schema import Task
from core.targets import encode_labels, encode_targets

__all__ = ["DynamicForestClassifier", "DynamicForestRegressor", "QueryResult"]


class DynamicForestClassifier(DynamicForest):
    """A forest of extremely randomized trees that learns and unlearns single samples exactly.

    After any history of `add` and `delete` the trees, the digest and every prediction are those of
    a fresh fit on the samples held, bit for bit.

    Parameters
    ----------
    n_estimators : int, default 100
        Number of trees, T.
    occurrence : float in (0, 1], default 0.7
        Share of the trees that learn a sample, q. The default is chosen for accuracy on data of all
        kinds. Lower it for cheaper adds and deletes: their cost and the training's fall in
        proportion. 0.1 is the paper's choice for speed, and often the more accurate one on noisy data.
    max_depth : int or None, default None
        Greatest depth of a leaf.
    min_samples_split : int, default 2
        Nodes with fewer samples are leaves.
    n_thresholds : int, default 20
        Candidate thresholds an attribute, s.
    max_features : "sqrt", "log2", None, int or float, default "sqrt"
        Attributes a node, p; a float is a share of the columns.
    criterion : "gini" or "entropy", default "gini"
    lazy : bool, default True
        Put rebuilding off until a query needs it (or `resolve`). Never changes a prediction.
    random_state : int, RandomState, Generator or None
        Seed; None draws one, kept in `seed_`.

    Attributes
    ----------
    classes_ : the classes held, ordered; they follow the samples.
    n_features_in_, feature_names_in_ : the columns; names only when given.
    samples_ : SampleStore
    n_samples_, n_lazy_tags_, nbytes_, feature_importances_, seed_, schema_

    Notes
    -----
    DynFrs (OCC(q), LZY and extremely randomized trees) with these deviations: a) splits are checked
    against all candidates after every mutation, so none is ever out of date; b) thresholds are
    stratified; c) categories and missing values are split natively; d) small nodes keep no
    counters. See `core/forest/blocks.py` and `core/forest/nodes.py`.

    Examples
    --------
    >>> import numpy as np
    >>> X = np.array([[0.0], [1.0], [2.0], [3.0]])
    >>> forest = DynamicForestClassifier(n_estimators=10, random_state=0).fit(X, ["a", "a", "b", "b"])
    >>> forest.delete("3")
    >>> forest.add([[9.0]], ["c"])
    ['4']
    >>> forest.predict([[8.5]]).tolist()
    ['c']
    >>> forest.verify().ok
    True
    """

    task = Task.CLASSIFICATION
    _estimator_type = "classifier"
    _criteria = ("gini", "entropy")

    def __init__(
        self,
        n_estimators: int = 100,
        *,
        occurrence: float = 0.7,
        max_depth: int | None = None,
        min_samples_split: int = 2,
        n_thresholds: int = 20,
        max_features: Any = "sqrt",
        criterion: str = "gini",
        lazy: bool = True,
        random_state: Any = None,
    ) -> None:
        super().__init__(
            n_estimators,
            occurrence,
            max_depth,
            min_samples_split,
            n_thresholds,
            max_features,
            criterion,
            lazy,
            random_state,
        )

    def _targets(self) -> npt.NDArray[np.int64]:
        return self.samples_.class_codes

    @property
    def classes_(self) -> npt.NDArray[Any]:
        """The classes held, ordered by type and value."""
        self._check_is_fitted()
        return self.samples_.classes.classes_array().copy()

    def query(self, X: Any, *, frozen: bool = False) -> QueryResult:  # noqa: D102 - inherited
        probabilities = self._probabilities(X, frozen)
        classes = self.samples_.classes.classes_array()
        return QueryResult(classes[probabilities.argmax(axis=1)], probabilities, classes)

    def _probabilities(self, X: Any, frozen: bool) -> npt.NDArray[np.float64]:
        sums, n_planted = self._sum_leaves(X, frozen)
        probabilities: npt.NDArray[np.float64] = sums.take(self.class_order(), axis=1)
        probabilities /= n_planted
        return probabilities

    def predict(self, X: Any) -> npt.NDArray[Any]:
        """Predict the most probable class of each row; the smaller class wins a tie."""
        self._check_names(X)
        return self.query(X).labels

    def predict_proba(self, X: Any) -> npt.NDArray[np.float64]:
        """Predict class probabilities, float64[n, n_classes], in the order of `classes_`."""
        self._check_names(X)
        return self._probabilities(X, frozen=False)

    def predict_log_proba(self, X: Any) -> npt.NDArray[np.float64]:
        """Natural logarithm of `predict_proba`."""
        self._check_names(X)
        with np.errstate(divide="ignore"):
            return np.log(self._probabilities(X, frozen=False))

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Share of rows (of their weights) whose predicted class is y."""
        self._check_names(X)
        predicted = self.query(X).labels.tolist()
        labels = encode_labels(y, len(predicted), self.schema_.label_type, self.schema_.label_name)
        hits = [type(a) is type(b) and a == b for a, b in zip(predicted, labels, strict=True)]
        return float(np.average(hits, weights=sample_weight))


class DynamicForestRegressor(DynamicForest):
    """The regression counterpart of `DynamicForestClassifier`: variance reduction, mean leaves.

    Targets are held in float64 and summed in fixed point (`core/forest/quantisation.py`), with an
    error below 2**-34 of the largest target held.

    Parameters
    ----------
    n_estimators, max_depth, lazy, random_state
        As for `DynamicForestClassifier`.
    occurrence : float in (0, 1], default 0.5
    min_samples_split : int, default 5
    n_thresholds : int, default 30
    max_features : default 1.0
        All attributes at every node, as is usual for regression.
    criterion : "squared_error"
    """

    task = Task.REGRESSION
    _estimator_type = "regressor"
    _criteria = ("squared_error",)

    _quantised: npt.NDArray[np.int64]
    _scale: quantisation.TargetScale
    _quantised_exponent: int

    def __init__(
        self,
        n_estimators: int = 100,
        *,
        occurrence: float = 0.5,
        max_depth: int | None = None,
        min_samples_split: int = 5,
        n_thresholds: int = 30,
        max_features: Any = 1.0,
        criterion: str = "squared_error",
        lazy: bool = True,
        random_state: Any = None,
    ) -> None:
        super().__init__(
            n_estimators,
            occurrence,
            max_depth,
            min_samples_split,
            n_thresholds,
            max_features,
            criterion,
            lazy,
            random_state,
        )

    def exponent(self) -> int:  # noqa: D102 - inherited
        return self._quantised_exponent

    def _targets(self) -> npt.NDArray[np.int64]:
        return self._quantised

    def refresh_targets(self) -> None:  # noqa: D102 - inherited
        self._scale = quantisation.TargetScale()
        self._scale.count(self.samples_.y[self.samples_.slots()], 1)
        self._requantise()

    def _copy_targets(self, other: Self) -> None:
        self._scale = other._scale.copy()
        self._quantised_exponent = other._quantised_exponent
        self._quantised = other._quantised.copy()

    def _requantise(self) -> None:
        self._quantised_exponent = self._scale.exponent
        self._quantised = quantisation.quantise(self.samples_.y, self._quantised_exponent)

    def _take_targets(self, slots: npt.NDArray[np.int64]) -> bool:
        y = self.samples_.y[slots]
        self._scale.count(y, 1)
        if self._scale.exponent != self._quantised_exponent:
            self._requantise()
            return True
        if len(self._quantised) < len(self.samples_.y):
            grown = np.zeros(len(self.samples_.y), np.int64)
            grown[: len(self._quantised)] = self._quantised
            self._quantised = grown
        self._quantised[slots] = quantisation.quantise(y, self._quantised_exponent)
        return False

    def _let_go_of_targets(self, slots: npt.NDArray[np.int64]) -> bool:
        self._scale.count(self.samples_.y[slots], -1)
        return self._scale.exponent != self._quantised_exponent

    def _wipe_targets(self, slots: npt.NDArray[np.int64]) -> None:
        self._quantised[slots] = 0

    def query(self, X: Any, *, frozen: bool = False) -> QueryResult:  # noqa: D102 - inherited
        sums, n_planted = self._sum_leaves(X, frozen)
        means = sums[:, 0] / n_planted
        return QueryResult(quantisation.restore(means, self._quantised_exponent), None, None)

    def predict(self, X: Any) -> npt.NDArray[np.float64]:
        """Predict the target of each row, float64[n]."""
        self._check_names(X)
        return self.query(X).labels

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Coefficient of determination R^2 of the predictions; NaN for less than two rows."""
        self._check_names(X)
        predicted = self.query(X).labels
        y = encode_targets(y, len(predicted), self.schema_.label_name)
        if len(y) < 2:
            return math.nan
        residual = float(np.average((y - predicted) ** 2, weights=sample_weight))
        total = float(np.average((y - np.average(y, weights=sample_weight)) ** 2, weights=sample_weight))
        return 1.0 - residual / total if total > 0 else float(residual == 0)
