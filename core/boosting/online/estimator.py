"""The estimators of online boosting."""

from collections.abc import Mapping
from typing import Any

from oubli.core.boosting.estimator import BoostedModel, StagedProbabilities
from oubli.core.boosting.online.engine import OnlineTrees
from oubli.core.boosting.online.parameters import PARAMETERS, OnlineSettings
from oubli.core.boosting.parameters import read_shared
from oubli.core.data.schema import Schema
from oubli.core.estimators import Classifier, Regressor
from oubli.core.parameters import check_parameters


class OnlineBoosting(BoostedModel):
    """What the classifier and the regressor share."""

    kind = "online-boosting"
    guarantee = "approximate"
    influence_methods = ("leaf-influence", "leaf-refit")
    small_parameters = (
        {"n_estimators": 3, "random_state": 0},
        {
            "n_estimators": 3,
            "random_state": 0,
            "split_sampling": 1.0,
            "robustness": 0.0,
            "min_child_weight": 0.0,
        },
    )

    def __init__(
        self,
        n_estimators: int = 100,
        *,
        learning_rate: float = 0.1,
        max_leaf_nodes: int = 20,
        max_bins: int = 1024,
        split_sampling: float = 0.1,
        robustness: float = 0.1,
        l2_regularization: float = 0.3,
        min_child_weight: float = 0.03,
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
    def read_settings(cls, parameters: Mapping[str, Any], schema: "Schema") -> OnlineSettings:
        return OnlineSettings(**read_shared(check_parameters(PARAMETERS, parameters), schema))

    @staticmethod
    def engine_type(settings: OnlineSettings) -> type[OnlineTrees]:
        return OnlineTrees


class OnlineBoostingClassifier(OnlineBoosting, StagedProbabilities, Classifier):
    """Gradient boosting whose trees are updated in place when samples come and go (Online GBDT).

    Robust LogitBoost with best-first trees. An update touches the samples that come or go, not those held: every
    node keeps the sums of gradients and hessians of its candidate splits, and a subtree is retrained only when its
    split has lost its place among the best. So the trees are not those of retraining: the guarantee is `approximate`,
    and a deleted sample leaves no trace only after `scrub`. A batch of more than a sixtieth of the samples, and of
    more than a hundred, has all trees grown again.

    Parameters
    ----------
    n_estimators : int, default 100
        Iterations, M; each grows one tree for two classes, and one a class for more.
    learning_rate : float in (0, 1], default 0.1
        Shrinkage of each tree.
    max_leaf_nodes : int in [2, 256], default 20
        Leaves of a tree, J, grown best first.
    max_bins : int in [2, 4096], default 1024
        Bins that the values of a numeric column are put into, B.
    split_sampling : float in (0, 1], default 0.1
        Share of the candidate splits that a tree looks at, alpha. Fewer of them are steadier and cheaper to keep.
    robustness : float in [0, 1], default 0.1
        Share of a node's candidates among which its split may rank before the subtree is retrained, sigma, when
        2 % of the samples or more come or go at once; in proportion for fewer, a tenth of it at least. 0 lets only
        the best one stay.
    l2_regularization : float, default 0.3
        Number added to the hessian of a leaf.
    min_child_weight : float, default 0.03
        Minimum hessian of each side of a split.
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
    engine_ : OnlineTrees
        The trees with what is kept to update them.
    n_mutations_since_scrub_ : samples added and deleted since the last `fit` or `scrub`.
    n_samples_, n_trees_, nbytes_, feature_importances_, seed_, schema_

    Notes
    -----
    Paper: "Online Gradient Boosting Decision Tree: In-Place Updates for Efficient Adding/Deleting Data" (Lin, Chung,
    Lao, Zhao 2025), Algorithms 1 to 4 and Appendices A, D, E and M. `core/boosting/online` says where it deviates.

    Examples
    --------
    >>> import numpy as np
    >>> X = np.arange(40.0).reshape(-1, 1)
    >>> model = OnlineBoostingClassifier(random_state=0).fit(X, ["low"] * 20 + ["high"] * 20)
    >>> model.add([[50.0]], ["high"])
    ['40']
    >>> model.delete("3")
    >>> model.predict([[4.0], [35.0]]).tolist()
    ['low', 'high']
    """


class OnlineBoostingRegressor(OnlineBoosting, Regressor):
    """Gradient boosting for numbers whose trees are updated in place when samples come and go (Online GBDT).

    For what the guarantee means, see `OnlineBoostingClassifier`.

    Parameters
    ----------
    n_estimators : int, default 100
        Iterations, M; each grows one tree for two classes, and one a class for more.
    learning_rate : float in (0, 1], default 0.1
        Shrinkage of each tree.
    max_leaf_nodes : int in [2, 256], default 20
        Leaves of a tree, J, grown best first.
    max_bins : int in [2, 4096], default 1024
        Bins that the values of a numeric column are put into, B.
    split_sampling : float in (0, 1], default 0.3
        Share of the candidate splits that a tree looks at, alpha. Fewer of them are steadier and cheaper to keep;
        more of them are more accurate.
    robustness : float in [0, 1], default 0.1
        Share of a node's candidates among which its split may rank before the subtree is retrained, sigma, when
        2 % of the samples or more come or go at once; in proportion for fewer, a tenth of it at least. 0 lets only
        the best one stay.
    l2_regularization : float, default 1.0
        Number added to the hessian of a leaf.
    min_child_weight : float, default 20.0
        Minimum hessian of each side of a split.
    loss : "squared_error", "quantile", "huber" or "poisson", default "squared_error"
        What is minimised. "quantile" predicts a quantile; "huber" is squared error that is linear beyond `huber_delta`,
        for targets with outliers; "poisson" is for counts and other targets of 0 and more, and predicts their mean as
        e to the power of the raw score.
    quantile : float in [0.001, 0.999], default 0.5
        Share of the targets below predictions; with `loss="quantile"` only.
    huber_delta : float or None, default None
        Error from which on the loss is linear; None: the spread of the targets when all trees were grown last, a power
        of two near their standard deviation. With `loss="huber"` only.
    monotone_constraints : dict, list of str or None, default None
        1 or -1 by name or position of a numeric column: the prediction never falls, or never rises, in it.
        In a list, texts like "income:1". Missing values have no order.
    random_state : int, RandomState, Generator or None
        Seed; None draws one, kept in `seed_`.
    n_jobs : int or None, default None
        Threads for long work: fit, resolve, verify, digest and large batches. None is one, -1 all cores that the
        process may use, as in scikit-learn; never more than those. It changes no bit of the model.

    Attributes
    ----------
    n_features_in_, feature_names_in_ : the columns; names only when given.
    samples_ : SampleStore
    engine_ : OnlineTrees
        The trees with what is kept to update them.
    n_mutations_since_scrub_ : samples added and deleted since the last `fit` or `scrub`.
    n_samples_, n_trees_, nbytes_, feature_importances_, seed_, schema_

    Examples
    --------
    >>> X = [[float(i)] for i in range(40)]
    >>> model = OnlineBoostingRegressor(n_estimators=20, random_state=0).fit(X, [2 * row[0] for row in X])
    >>> model.add([[100.0]], [200.0])
    ['40']
    >>> model.guarantee
    'approximate'
    """

    def __init__(
        self,
        n_estimators: int = 100,
        *,
        learning_rate: float = 0.1,
        max_leaf_nodes: int = 20,
        max_bins: int = 1024,
        split_sampling: float = 0.3,
        robustness: float = 0.1,
        l2_regularization: float = 1.0,
        min_child_weight: float = 20.0,
        loss: str = "squared_error",
        quantile: float = 0.5,
        huber_delta: float | None = None,
        monotone_constraints: Any = None,
        random_state: Any = None,
        n_jobs: int | None = None,
    ) -> None:
        self._keep(locals())
