"""The forest's estimators, as users meet them."""

from typing import Any, Self

import numpy as np
import numpy.typing as npt

from oubli.core.classification import Classifier
from oubli.core.forest import quantisation
from oubli.core.forest.model import DynamicForest
from oubli.core.jit import aligned
from oubli.core.model import QueryResult
from oubli.core.regression import Regressor

_LARGEST_EXPONENT = 1024  # of targets next to the largest number

__all__ = ["DynamicForestClassifier", "DynamicForestRegressor", "QueryResult"]


class DynamicForestClassifier(DynamicForest, Classifier):
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
    counters. See `core/forest/blocks.py` and `core/forest/state.py`.

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

    def _probabilities(self, X: Any, frozen: bool) -> npt.NDArray[np.float64]:
        sums, n_planted = self._sum_leaves(X, frozen)
        probabilities: npt.NDArray[np.float64] = sums.take(self.class_order(), axis=1)
        probabilities /= n_planted
        return probabilities


class DynamicForestRegressor(DynamicForest, Regressor):
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

    _criteria = ("squared_error",)

    _quantised: npt.NDArray[np.int64]
    _scale: quantisation.TargetScale
    _quantised_exponent: int  # that of the scale

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
        scale = quantisation.TargetScale()
        scale.count(self.samples_.y[self.samples_.slots()], 1)
        self._set_targets((scale, scale.exponent, quantisation.quantise(self.samples_.y, scale.exponent)))

    def _copy_targets(self, other: Self) -> None:
        self._set_targets((other._scale.copy(), other._quantised_exponent, other._quantised.copy()))

    def _shred_targets(self) -> None:
        aligned.shred([self._quantised])

    def _set_targets(self, targets: Any) -> None:
        # One statement: no exception comes between its parts.
        self._scale, self._quantised_exponent, self._quantised = targets

    def _numbers_of(self, targets: Any) -> npt.NDArray[np.int64]:
        numbers: npt.NDArray[np.int64] = targets[2]
        return numbers

    def _take_targets(self, slots: npt.NDArray[np.int64]) -> bool:
        store, old = self.samples_, (self._scale, self._quantised_exponent, self._quantised)
        y = store.y[slots]
        scale, quantised = self._scale.copy(), self._quantised
        scale.count(y, 1)
        exponent = scale.exponent
        has_moved = exponent != self._quantised_exponent
        if has_moved:
            quantised = quantisation.quantise(store.y, exponent)
        elif len(quantised) < len(store.y):
            quantised = np.zeros(len(store.y), np.int64)
            quantised[: len(self._quantised)] = self._quantised
        numbers = quantisation.quantise(y, exponent)
        if store.changes.undo is not None:
            store.changes.undo += [(self._set_targets, old), (self._wipe_quantised, slots)]
        self._set_targets((scale, exponent, quantised))
        quantised[slots] = numbers
        return has_moved

    def _wipe_quantised(self, slots: npt.NDArray[np.int64]) -> None:
        self._quantised[slots] = 0

    def _scale_moves_without(self, slots: npt.NDArray[np.int64]) -> bool:
        y = self.samples_.y[slots]
        # A target far below the scale cannot move it.
        if float(np.abs(y).max()) * 2.0**quantisation.EXPONENT_STEP < 2.0 ** min(self._quantised_exponent, 1023):
            return False
        scale = self._scale.copy()
        scale.count(y, -1)
        return scale.exponent != self._quantised_exponent

    def _let_go_of_targets(self, slots: npt.NDArray[np.int64]) -> None:
        self._scale.count(self.samples_.y[slots], -1)
        self._quantised[slots] = 0

    def _targets_without(self, slots: npt.NDArray[np.int64]) -> Any:
        y = self.samples_.y.copy()
        scale = self._scale.copy()
        scale.count(y[slots], -1)
        y[slots] = 0.0
        return scale, scale.exponent, quantisation.quantise(y, scale.exponent)

    def query(self, X: Any, *, frozen: bool = False) -> QueryResult:  # noqa: D102 - inherited
        sums, n_planted = self._sum_leaves(X, frozen)
        means = sums[:, 0] / n_planted
        if self._quantised_exponent < _LARGEST_EXPONENT:
            return QueryResult(quantisation.restore(means, self._quantised_exponent), None, None)
        with np.errstate(over="ignore"):  # rounded up to a power of two, the largest number is none
            values = quantisation.restore(means, self._quantised_exponent)
        largest = np.finfo(np.float64).max
        return QueryResult(values.clip(-largest, largest), None, None)
