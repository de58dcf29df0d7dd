"""The estimators of incremental boosting."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from oubli.core.boosting.estimator import BoostedModel, StagedProbabilities
from oubli.core.boosting.incremental.parameters import IncrementalSettings, read_settings
from oubli.core.boosting.presorted.engine import PresortedTrees
from oubli.core.boosting.quantised.engine import QuantisedTrees
from oubli.core.data.schema import Schema
from oubli.core.estimators import Classifier, Regressor

IncrementalTrees = QuantisedTrees | PresortedTrees


class IncrementalBoosting(BoostedModel):
    """What the classifier and the regressor share."""

    kind = "incremental-boosting"
    guarantee = "exact"
    influence_methods = ("leaf-influence", "leaf-refit", "leave-one-out")
    earlier_parameters = MappingProxyType({"category_statistics": None})
    small_parameters = (
        {"n_estimators": 3, "random_state": 0, "min_child_weight": 0.0},
        {"n_estimators": 3, "random_state": 0, "min_child_weight": 0.0, "category_statistics": 2},
    )

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
        category_statistics: int | None = 48,
        loss: str = "squared_error",
        quantile: float = 0.5,
        huber_delta: float | None = None,
        monotone_constraints: Any = None,
        class_weight: Any = None,
        scale_pos_weight: float | None = None,
        random_state: Any = None,
        n_jobs: int | None = None,
    ) -> None:
        self._keep(locals())

    @classmethod
    def read_settings(cls, parameters: Mapping[str, Any], schema: "Schema") -> IncrementalSettings:
        return read_settings(parameters, schema)

    @staticmethod
    def engine_type(settings: IncrementalSettings) -> type[IncrementalTrees]:
        return QuantisedTrees if settings.is_quantised else PresortedTrees


class IncrementalBoostingClassifier(IncrementalBoosting, StagedProbabilities, Classifier):
    """Gradient boosting that equals retraining after any history of adds and deletes, bit for bit.

    With `quantization` (the default) gradients and leaf values lie on coarse grids, with an offset that is a hash of
    the sample's id or of the leaf, and each tree looks at a share of the candidate splits, chosen by a hash. So one
    sample more or less often changes no leaf (in half of the updates on Adult), hence no other sample's gradient, and
    only the sums along its own paths; where a grid point is crossed, only the samples whose gradients move are touched.
    With three or more classes all trees begin with the same splits, of up to eight regions of some thousand samples
    each, and an update concerns one region only.
    Without it (iGBDT) splits are searched exactly and everything follows the residuals: an update saves sorting, no
    more.

    Parameters
    ----------
    n_estimators : int, default 100
        Iterations; each grows one tree for two classes, and one a class for more.
    learning_rate : float in (0, 1], default 0.1
        Shrinkage of each tree.
    max_depth : int in [1, 8], default 5
        Greatest depth of a leaf; below the splits that part regions, of which there are up to three levels.
    l2_regularization : float, default 1.0
        Number added to the hessian of a leaf.
    min_child_weight : float, default 1.0
        Minimum hessian of each side of a split.
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
    category_statistics : int or None, default 48
        A column with more categories is also read by statistics of the labels by category, and its categories with
        fewer samples are read as one, as are those that no sample has; None: never. With quantization only.
    loss, quantile, huber_delta
        Of regressors.
    monotone_constraints : dict, list of str or None, default None
        1 or -1 by name or position of a numeric column: the probability of the second
        class never falls, or never rises, in it. In a list, texts like "income:1". Missing values have no order.
        Of two classes only: with more, a constraint would hold for scores and not for probabilities.
    class_weight : dict, "balanced" or None, default None
        Weights by class, which those of samples are multiplied by; 1 for classes left out. "balanced" gives all classes
        the same weight together when the model is fitted; the numbers stay, in `schema_.class_weight`.
    scale_pos_weight : float or None, default None
        Weight of the second of two classes, in place of `class_weight`.
    random_state : int, RandomState, Generator or None
        Seed; None draws one, kept in `seed_`.
    n_jobs : int or None, default None
        Threads for long work: fit, resolve, verify, digest and large batches. None is one, -1 all cores that the
        process may use, as in scikit-learn; never more than those. It changes no bit of the model.

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


class IncrementalBoostingRegressor(IncrementalBoosting, Regressor):
    """Gradient boosting for numbers that equals retraining after any history of adds and deletes, bit for bit.

    For what `quantization` is good for, see `IncrementalBoostingClassifier`. With it all trees begin
    with the same splits, of up to eight regions of some thousand samples each, and an update concerns one region only.

    Parameters
    ----------
    n_estimators : int, default 100
        Iterations; each grows one tree for two classes, and one a class for more.
    learning_rate : float in (0, 1], default 0.1
        Shrinkage of each tree.
    max_depth : int in [1, 8], default 5
        Greatest depth of a leaf; below the splits that part regions, of which there are up to three levels.
    l2_regularization : float, default 1.0
        Number added to the hessian of a leaf.
    min_child_weight : float, default 1.0
        Minimum hessian of each side of a split.
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
    category_statistics : int or None, default 48
        A column with more categories is also read by statistics of the labels by category, and its categories with
        fewer samples are read as one, as are those that no sample has; None: never. With quantization only.
    loss : "squared_error", "quantile", "huber" or "poisson", default "squared_error"
        What is minimised. "quantile" predicts a quantile; "huber" is squared error that is linear beyond `huber_delta`,
        for targets with outliers; "poisson" is for counts and other targets of 0 and more, and predicts their mean as
        e to the power of the raw score.
    quantile : float in [0.001, 0.999], default 0.5
        Share of the targets below predictions; with `loss="quantile"` only.
    huber_delta : float or None, default None
        Error from which on the loss is linear; None: the spread of the targets, a power of two near their standard
        deviation. With `loss="huber"` only.
    monotone_constraints : dict, list of str or None, default None
        1 or -1 by name or position of a numeric column: the prediction never falls, or never rises, in it.
        In a list, texts like "income:1". Missing values have no order.
    class_weight, scale_pos_weight : None
        Of classifiers.
    random_state : int, RandomState, Generator or None
        Seed; None draws one, kept in `seed_`.
    n_jobs : int or None, default None
        Threads for long work: fit, resolve, verify, digest and large batches. None is one, -1 all cores that the
        process may use, as in scikit-learn; never more than those. It changes no bit of the model.

    Attributes
    ----------
    n_features_in_, feature_names_in_ : the columns; names only when given.
    samples_ : SampleStore
    engine_ : QuantisedTrees or PresortedTrees
        The trees with what is kept to update them; `engine_.last_update` says what the last update did.
    n_samples_, n_trees_, nbytes_, feature_importances_, seed_, schema_

    Examples
    --------
    >>> X = [[float(i)] for i in range(40)]
    >>> model = IncrementalBoostingRegressor(n_estimators=20, random_state=0).fit(X, [2 * row[0] for row in X])
    >>> model.delete([str(i) for i in range(30)])
    >>> model.n_samples_, model.verify().ok
    (10, True)
    """
