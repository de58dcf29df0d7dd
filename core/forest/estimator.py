"""The estimators of the forest."""

from collections.abc import Mapping
from typing import Any

from oubli.core.data.schema import Schema
from oubli.core.estimators import Classifier, Regressor
from oubli.core.forest.engine import ForestEngine
from oubli.core.forest.parameters import LOW, ForestSettings, read_settings
from oubli.core.model import Model


class _Forest(Model):
    """What the classifier and the regressor share."""

    kind = "forest"
    guarantee = "exact"
    disclosure: str
    small_parameters = ({"n_estimators": 4, "random_state": 0},)  # so many that a sample is not in all trees

    @property
    def influence_methods(self) -> tuple[str, ...]:  # type: ignore[override]
        # With low disclosure other trees answer each row.
        return ("leave-one-out",) if self.disclosure == LOW else ("leaf-refit", "leave-one-out")

    @staticmethod
    def engine_type(settings: ForestSettings) -> type[ForestEngine]:
        return ForestEngine

    @classmethod
    def read_settings(cls, parameters: Mapping[str, Any], schema: "Schema") -> ForestSettings:
        return read_settings(parameters, schema.n_features, cls.task)


class DynamicForestClassifier(_Forest, Classifier):
    """A forest of extremely randomized trees that learns and unlearns single samples exactly.

    After any history of `add` and `delete` the trees, the digest and every prediction are those of
    a fresh fit on the samples held, bit for bit.

    Parameters
    ----------
    n_estimators : int, default 100
        Number of trees, T. Half as many cost half as much, and lose up to half a point on most data.
    occurrence : float in (0, 1], default 0.7
        Share of the trees that learn a sample, q. The default is chosen for accuracy on data of all
        kinds. Lower it for cheaper adds and deletes: they visit only these trees, and training and
        memory become cheaper too. 0.1 is the paper's choice for speed, and often more accurate on noisy data.
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
    disclosure : "standard" or "low", default "standard"
        How much answers may show of single samples. With "low" a row is answered by trees that have learned no sample
        of the same values, and class probabilities are rounded to bands of a quarter. So the answer for a person's row
        is the same before and after a deletion. The forest then grows `3 n_estimators` trees, and a sample is in at
        most 0.7 of them.
    class_weight : dict, "balanced" or None, default None
        Weights by class, which those of samples are multiplied by; 1 for classes left out. "balanced" gives all classes
        the same weight together when the model is fitted; the numbers stay, in `schema_.class_weight`.
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
    n_samples_, n_lazy_tags_, nbytes_, feature_importances_, seed_, schema_

    Notes
    -----
    DynFrs (OCC(q), LZY and extremely randomized trees) with these deviations: a) splits are checked
    against all candidates after every mutation, so none is ever out of date; b) thresholds are
    stratified; c) categories and missing values are split natively; d) small nodes keep no
    counters. See `core/forest/layout/blocks.py` and `core/forest/state.py`.

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
        disclosure: str = "standard",
        class_weight: Any = None,
        random_state: Any = None,
        n_jobs: int | None = None,
    ) -> None:
        self._keep(locals())


class DynamicForestRegressor(_Forest, Regressor):
    """The regression counterpart of `DynamicForestClassifier`: variance reduction, mean leaves.

    Targets are held in float64 and summed in fixed point (`core/samples/fixed_point.py`), with an
    error below 2**-34 of the largest target held.

    Parameters
    ----------
    n_estimators, max_depth, lazy, disclosure, random_state, n_jobs
        As for `DynamicForestClassifier`.
    occurrence : float in (0, 1], default 0.5
    min_samples_split : int, default 5
    n_thresholds : int, default 30
    max_features : default 0.5
        Half of the attributes at every node.
    criterion : "squared_error"

    Examples
    --------
    >>> forest = DynamicForestRegressor(n_estimators=10, random_state=0).fit([[0.0], [1.0], [2.0]], [0.0, 1.0, 2.0])
    >>> forest.delete(["0", "2"])
    >>> forest.predict([[5.0]]).tolist()
    [1.0]
    """

    def __init__(
        self,
        n_estimators: int = 100,
        *,
        occurrence: float = 0.5,
        max_depth: int | None = None,
        min_samples_split: int = 5,
        n_thresholds: int = 30,
        max_features: Any = 0.5,
        criterion: str = "squared_error",
        lazy: bool = True,
        disclosure: str = "standard",
        random_state: Any = None,
        n_jobs: int | None = None,
    ) -> None:
        self._keep(locals())
