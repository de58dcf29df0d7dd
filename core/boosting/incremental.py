"""Incremental boosting, as users meet it."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from oubli.core.boosting.incremental_parameters import IncrementalSettings, read_settings
from oubli.core.boosting.model import BoostedClassifier, BoostedModel, BoostedRegressor
from oubli.core.boosting.presorted.engine import PresortedTrees
from oubli.core.boosting.quantised.engine import QuantisedTrees

IncrementalTrees = QuantisedTrees | PresortedTrees


class IncrementalBoosting(BoostedModel):
    """What the classifier and the regressor share."""

    kind = "incremental-boosting"
    guarantee = "exact"

    engine_: IncrementalTrees
    settings_: IncrementalSettings

    def __init__(
        self,
        n_estimators: int = 100,
        *,
        learning_rate: float = 0.1,
        max_depth: int = 5,
        l2_regularization: float = 1.0,
        min_child_weight: float = 1.0,
        split_sampling: float = 1.0,
        max_bins: int = 255,
        quantization: Any = "auto",
        early_stopping: int | None = None,
        validation_fraction: float = 0.1,
        random_state: Any = None,
    ) -> None:
        self.n_estimators = n_estimators
        self.learning_rate = learning_rate
        self.max_depth = max_depth
        self.l2_regularization = l2_regularization
        self.min_child_weight = min_child_weight
        self.split_sampling = split_sampling
        self.max_bins = max_bins
        self.quantization = quantization
        self.early_stopping = early_stopping
        self.validation_fraction = validation_fraction
        self.random_state = random_state

    @classmethod
    def read_parameters(cls, parameters: Mapping[str, Any]) -> IncrementalSettings:  # noqa: D102 - inherited
        return read_settings(parameters)

    @staticmethod
    def _engine_type(settings: IncrementalSettings) -> type[IncrementalTrees]:
        return QuantisedTrees if settings.is_quantised else PresortedTrees

    def _is_grown_with(self, slots: npt.NDArray[np.int64]) -> bool:
        return self.engine_.n_trees == 0 or self._changes_classes(slots)

    def _is_grown_without(self, slots: npt.NDArray[np.int64]) -> bool:
        return len(slots) == len(self.samples_) or self.engine_.n_trees == 0 or self._changes_classes(slots)

    def _seconds_of(self, n_changed: int) -> float:
        # Mostly a small part of it, but how far a change goes on is not known before it is made.
        return self._seconds_of_growing()

    def scrub(self) -> None:
        """Leave no trace of samples that were deleted: `wipe`, since the trees are those of a fresh fit anyway."""
        self.wipe()


class IncrementalBoostingClassifier(IncrementalBoosting, BoostedClassifier):
    """Gradient boosting that equals retraining after any history of adds and deletes, bit for bit.

    With `quantization` (the default) gradients and leaf values lie on coarse grids, with an offset that is a hash of
    the sample's id or of the leaf, and each tree looks at a share of the candidate splits, chosen by a hash. So one
    sample more or less usually changes no leaf, hence no other sample's gradient, and only the sums along its own
    paths; where a grid point is crossed, only the samples whose gradients move are touched. Without it (iGBDT) splits
    are searched exactly and everything follows the residuals: an update saves sorting, no more.

    Parameters
    ----------
    n_estimators : int, default 100
        Iterations; each grows one tree for two classes, and one a class for more.
    learning_rate : float in (0, 1], default 0.1
        Shrinkage of each tree.
    max_depth : int in [1, 8], default 5
        Greatest depth of a leaf.
    l2_regularization : float, default 1.0
        What is added to the hessian of a leaf.
    min_child_weight : float, default 1.0
        Hessian that each side of a split has to have.
    split_sampling : float in (0, 1], default 1.0
        Share of the candidate splits that a tree looks at; with quantization only.
    max_bins : int in [2, 255], default 255
        Bins that the values of a numeric column are put into; with quantization only.
    quantization : "auto", None or (float, float), default "auto"
        The grids of gradients and of leaf values; None: none.
    early_stopping : int or None, default None
        Stop after so many iterations without a lower loss on the validation samples, and predict with the trees up to
        the lowest.
    validation_fraction : float in (0, 0.5], default 0.1
        Share of the samples that validate, chosen by a hash of their ids; with `early_stopping` only.
    random_state : int, RandomState, Generator or None
        Seed; None draws one, kept in `seed_`.

    Attributes
    ----------
    classes_ : the classes held, ordered; they follow the samples.
    n_features_in_, feature_names_in_ : the columns; names only when given.
    samples_ : SampleStore
    engine_ : QuantisedTrees or PresortedTrees
        The trees with what is kept to update them; `engine_.last_update` says what the last update did.
    n_samples_, n_trees_, nbytes_, feature_importances_, seed_, schema_

    Notes
    -----
    Paper: "On Incremental Learning for Gradient Boosting Decision Trees" (Zhang et al. 2019), to which Oubli adds
    deletion, log-loss, missing values and categories, equality bit for bit, and all that `quantization` is.

    Examples
    --------
    >>> import numpy as np
    >>> X = np.arange(40.0).reshape(-1, 1)
    >>> model = IncrementalBoostingClassifier(random_state=0).fit(X, ["low"] * 20 + ["high"] * 20)
    >>> before = model.digest()
    >>> model.add([[50.0]], ["high"])
    ['40']
    >>> model.delete("40")
    >>> model.digest() == before
    True
    >>> model.predict([[4.0], [35.0]]).tolist()
    ['low', 'high']
    """


class IncrementalBoostingRegressor(IncrementalBoosting, BoostedRegressor):
    """Gradient boosting for numbers that equals retraining after any history of adds and deletes, bit for bit.

    Squared error. For what `quantization` is good for, see `IncrementalBoostingClassifier`.

    Parameters
    ----------
    n_estimators : int, default 100
        Iterations; each grows one tree for two classes, and one a class for more.
    learning_rate : float in (0, 1], default 0.1
        Shrinkage of each tree.
    max_depth : int in [1, 8], default 5
        Greatest depth of a leaf.
    l2_regularization : float, default 1.0
        What is added to the hessian of a leaf.
    min_child_weight : float, default 1.0
        Hessian that each side of a split has to have.
    split_sampling : float in (0, 1], default 1.0
        Share of the candidate splits that a tree looks at; with quantization only.
    max_bins : int in [2, 255], default 255
        Bins that the values of a numeric column are put into; with quantization only.
    quantization : "auto", None or (float, float), default "auto"
        The grids of gradients and of leaf values; None: none.
    early_stopping : int or None, default None
        Stop after so many iterations without a lower loss on the validation samples, and predict with the trees up to
        the lowest.
    validation_fraction : float in (0, 0.5], default 0.1
        Share of the samples that validate, chosen by a hash of their ids; with `early_stopping` only.
    random_state : int, RandomState, Generator or None
        Seed; None draws one, kept in `seed_`.

    Attributes
    ----------
    n_features_in_, feature_names_in_ : the columns; names only when given.
    samples_ : SampleStore
    engine_ : QuantisedTrees or PresortedTrees
        The trees with what is kept to update them; `engine_.last_update` says what the last update did.
    n_samples_, n_trees_, nbytes_, feature_importances_, seed_, schema_
    """
