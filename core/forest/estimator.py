"""The dynamic forest as estimators: DynFrs with exact adds and deletes.

Paper: "DynFrs: An Efficient Framework for Machine Unlearning in Random Forest". The estimators check
input, own the sample store and the trees, and translate between ids, labels and categories on one
side and slots and codes on the other. The algorithm is in the kernels beside this file.
"""

from collections.abc import Callable, Iterable, Mapping
from os import PathLike
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
import numpy.typing as npt

from core import persistence
from core.base import Estimator
from core.errors import CapacityError, EmptyModelError, InputError
from core.forest import quantisation
from core.forest.compare import Part, compare_forests
from core.forest.digest import forest_digest, tree_digest
from core.forest.ensemble import MAX_ENTRIES, Ensemble, ForestSettings
from core.forest.importances import feature_importances
from core.forest.inputs import Data
from core.forest.invariants import check_invariants
from core.forest.parameters import read_settings
from core.samples import Prepared, SampleStore
from core.schema import Schema, Task
from core.verification import TreeComparison, Verification

# A batch above this share of the samples held costs more to take out one by one than to plant the
# rest anew.
_REPLANT_SHARE = 0.25


class QueryResult(NamedTuple):
    """Predictions for n rows.

    Attributes
    ----------
    labels : the predicted classes, or float64[n] values.
    probabilities : float64[n, n_classes]; None for regression.
    classes : the classes held, in the order of the columns; None for regression.
    """

    labels: npt.NDArray[Any]
    probabilities: npt.NDArray[np.float64] | None
    classes: npt.NDArray[Any] | None


class _DynamicForest(Estimator):
    """What the classifier and the regressor share."""

    kind: ClassVar[str] = "forest"
    guarantee: ClassVar[str] = "exact"
    task: ClassVar[Task]
    _criteria: ClassVar[tuple[str, ...]]

    schema_: Schema
    samples_: SampleStore
    seed_: int
    _ensemble: Ensemble
    lazy: bool

    def __init__(
        self,
        n_estimators: int,
        occurrence: float,
        max_depth: int | None,
        min_samples_split: int,
        n_thresholds: int,
        max_features: Any,
        criterion: str,
        lazy: bool,
        random_state: Any,
    ) -> None:
        self.n_estimators = n_estimators
        self.occurrence = occurrence
        self.max_depth = max_depth
        self.min_samples_split = min_samples_split
        self.n_thresholds = n_thresholds
        self.max_features = max_features
        self.criterion = criterion
        self.lazy = lazy
        self.random_state = random_state

    # -- learning -------------------------------------------------------------------------------

    def fit(
        self,
        X: Any,
        y: Any,
        *,
        ids: Iterable[Any] | None = None,
        categorical_features: Any = None,
        schema: Schema | None = None,
        progress: Callable[[int, int], None] | None = None,
    ) -> Self:
        """Grow the forest on samples, forgetting whatever was held before.

        Parameters
        ----------
        X : array, DataFrame or list of rows, shape (n, d)
            NaN and None are missing values. Numbers are held as float32, see `Schema.infer`.
        y : array or list, shape (n,)
        ids : sequence of str or int, length n, optional
            Names to delete the samples by; "0", "1", ... when left out.
        categorical_features : list of indices or names, or mask of shape (d,), optional
            Columns to treat as categories; inferred from their types when left out.
        schema : Schema, optional
            Column and label types, instead of inferring them.
        progress : callable(done, total), optional
            Called after each tree.

        Raises
        ------
        InputError
            With the row, the field and the rule; the estimator is as it was.
        """
        self._check_target(y)
        if schema is None:
            schema = Schema.infer(X, y, task=self.task, categorical_features=categorical_features)
        settings = self._read_settings(schema)
        store = SampleStore(schema, owner=type(self).__name__)
        prepared = store.prepare(X, y, ids)
        self._check_capacity(settings, prepared.n)
        store.commit(prepared)
        self._begin(schema, settings, store)
        self._grow_all(progress)
        return self

    def _grow_all(self, progress: Callable[[int, int], None] | None = None) -> None:
        """Grow the forest on the samples in the store."""
        self._ensemble.widen(self.samples_.classes.capacity)
        self._refresh_targets()
        self._ensemble.fit(self._data(), self.samples_.slots(), progress)

    def start(self, schema: Schema) -> Self:
        """Begin with no samples; `add` does the rest.

        Raises
        ------
        InputError
            When a parameter or the schema does not fit.
        """
        settings = self._read_settings(schema)
        self._begin(schema, settings, SampleStore(schema, owner=type(self).__name__))
        self._refresh_targets()
        return self

    def _read_settings(self, schema: Schema) -> ForestSettings:
        if schema.task != self.task:
            raise InputError(
                f"the schema is for {schema.task.value}, {type(self).__name__} is for {self.task.value}: "
                "use the other estimator"
            )
        if not isinstance(self.lazy, bool | np.bool_):
            raise InputError(f"lazy={self.lazy!r} must be True or False")
        return read_settings(self.get_params(), schema.n_features, self._criteria)

    def _begin(self, schema: Schema, settings: ForestSettings, store: SampleStore) -> None:
        self.schema_ = schema
        self.samples_ = store
        self.seed_ = settings.seed
        self.n_features_in_ = schema.n_features
        if schema.named:
            self.feature_names_in_ = np.array(schema.names, dtype=object)
        elif hasattr(self, "feature_names_in_"):
            del self.feature_names_in_
        self._ensemble = Ensemble(
            settings, schema.n_features, store.classes.capacity, schema.cell_dtype
        )

    def add(self, X: Any, y: Any, *, ids: Iterable[Any] | None = None) -> list[str]:
        """Learn samples in place; the model is then the one `fit` would give on all samples held.

        Returns
        -------
        list of str
            The ids, generated when none were given.

        Raises
        ------
        InputError
            Also when an id is held already (`DuplicateIdError`); nothing has changed.
        """
        self._check_is_fitted()
        return self.add_prepared(self.samples_.prepare(X, y, ids))

    def add_prepared(self, prepared: Prepared) -> list[str]:
        """Learn samples that `samples_.prepare` has checked."""
        self._check_is_fitted()
        self._check_capacity(self._ensemble.settings, len(self.samples_) + prepared.n)
        n_before = len(self.samples_)
        slots = self.samples_.commit(prepared)
        self._ensemble.widen(self.samples_.classes.capacity)
        scale_moved = self._take_targets(slots)
        if scale_moved or prepared.n > _REPLANT_SHARE * n_before:
            self._ensemble.plant(self._data(), self.samples_.slots())
        else:
            self._ensemble.add(self._data(), slots)
        self._settle()
        assert prepared.ids is not None
        return prepared.ids

    def partial_fit(self, X: Any, y: Any, classes: Any = None) -> Self:
        """Add samples, or fit when nothing has been fitted yet.

        `classes` is only checked: labels outside it are refused. The classes follow the samples.
        """
        if classes is not None:
            allowed = set(np.asarray(classes).tolist())
            for row, label in enumerate(np.asarray(y).tolist()):
                if label not in allowed:
                    raise InputError(
                        "must be one of `classes`: add it there or correct it", row=row, field="label", value=label
                    )
        if not self.__sklearn_is_fitted__():
            return self.fit(X, y)
        self.add(X, y)
        return self

    def delete(self, ids: Any) -> None:
        """Unlearn samples in place; the model is then the one `fit` would give on the rest.

        Parameters
        ----------
        ids : str, int, or iterable of them

        Raises
        ------
        UnknownIdError
            (a KeyError) when an id is not held; nothing has changed.
        """
        self._check_is_fitted()
        slots = self.samples_.find([ids] if isinstance(ids, str | int) else ids)
        if len(slots) == 0:
            return
        replants = len(slots) > _REPLANT_SHARE * len(self.samples_)
        scale_moved = self._let_go_of_targets(slots)
        if not (replants or scale_moved):
            self._ensemble.delete(self._data(), slots)
        self.samples_.remove(slots)
        if scale_moved:
            self._requantise()
        if replants or scale_moved:
            self._ensemble.plant(self._data(), self.samples_.slots())
        self._wipe_targets(slots)
        self._settle()

    def replace(self, sample_id: str | int, x: Any, y: Any) -> None:
        """Rectify one sample: new features and label under the id it has; its subject stays.

        Raises
        ------
        UnknownIdError
            When the id is not held.
        InputError
            When the new content is refused; nothing has changed.
        """
        self._check_is_fitted()
        subject = self.samples_.subject(sample_id)
        prepared = self.samples_.prepare([x] if isinstance(x, list | tuple) else x, [y], [sample_id], allow_held=True)
        self.delete([sample_id])
        self.add_prepared(prepared)
        self.samples_.set_subject(sample_id, subject)

    def resolve(self, max_tags: int | None = None) -> int:
        """Resolve lazy tags, all or about `max_tags` of them; returns how many there are fewer.

        Queries do this by themselves, for their own paths. Resolving ahead keeps them fast.
        """
        self._check_is_fitted()
        return self._ensemble.resolve(self._data(), max_tags)

    def _settle(self) -> None:
        if not self.lazy:
            self._ensemble.resolve(self._data())

    @staticmethod
    def _check_capacity(settings: ForestSettings, n_samples: int) -> None:
        if n_samples * settings.occurrences > MAX_ENTRIES:
            raise CapacityError(
                f"{n_samples} samples in {settings.occurrences} trees each exceed {MAX_ENTRIES} "
                "memberships: lower `occurrence` or `n_estimators`"
            )
        if settings.is_regression and n_samples > quantisation.MAX_SAMPLES:
            raise CapacityError(f"a regression holds at most {quantisation.MAX_SAMPLES} samples")

    # -- targets: class codes as they are, or regression values in fixed point --------------------

    def _check_target(self, y: Any) -> None:
        """Refuse, by its type, a target that is for the other estimator."""

    def _targets(self) -> npt.NDArray[np.int64]:
        raise NotImplementedError

    def _refresh_targets(self) -> None:
        """Derive all targets from the store."""

    def _take_targets(self, slots: npt.NDArray[np.int64]) -> bool:
        """Take in the targets of new samples; whether the scale of all has moved."""
        return False

    def _let_go_of_targets(self, slots: npt.NDArray[np.int64]) -> bool:
        """Let go of the targets of samples about to leave; whether the scale will move."""
        return False

    def _requantise(self) -> None:
        """Bring all targets to the scale of those held."""

    def _wipe_targets(self, slots: npt.NDArray[np.int64]) -> None:
        """Overwrite what is kept of the targets of samples that have left."""

    # -- reading --------------------------------------------------------------------------------

    def _data(self) -> Data:
        store = self.samples_
        return Data(
            store.cells,
            self._targets(),
            store.id_hashes,
            store.categories.hashes,
            self.schema_.categorical_mask,
        )

    def _class_order(self) -> npt.NDArray[np.int64]:
        return self.samples_.classes.order()

    def _sum_leaves(self, X: Any, frozen: bool) -> tuple[npt.NDArray[np.float64], int]:
        self._check_is_fitted()
        cells, category_hashes = self.samples_.encode_queries(X)
        if len(self.samples_) == 0:
            raise EmptyModelError("the model holds no samples: add some before predicting")
        return self._ensemble.sum_leaves(self._data(), cells, category_hashes, frozen=frozen)

    def query(self, X: Any, *, frozen: bool = False) -> QueryResult:
        """Predict labels and probabilities at once.

        Parameters
        ----------
        X : array, DataFrame or list of rows, shape (n, d)
        frozen : bool
            Write nothing, not even resolved tags: the trees may be read by another thread
            meanwhile (but not with `frozen`, which uses the working space).

        Raises
        ------
        InputError
            When the input is refused.
        EmptyModelError
            With no samples left.
        """
        raise NotImplementedError

    @property
    def n_samples_(self) -> int:
        """Number of samples held."""
        self._check_is_fitted()
        return len(self.samples_)

    @property
    def n_lazy_tags_(self) -> int:
        """Number of tagged nodes."""
        self._check_is_fitted()
        return self._ensemble.n_tags

    @property
    def nbytes_(self) -> int:
        """Bytes of trees and samples, unused capacity included."""
        self._check_is_fitted()
        return self._ensemble.nbytes + self.samples_.nbytes

    @property
    def feature_importances_(self) -> npt.NDArray[np.float64]:
        """Share of each feature in the impurity decrease, float64[d]; resolves all tags. O(model)."""
        self._check_is_fitted()
        self.resolve()
        ensemble = self._ensemble
        return feature_importances(ensemble.trees, self.n_features_in_, ensemble.settings.criterion)

    # -- checking -------------------------------------------------------------------------------

    def _header(self) -> dict[str, Any]:
        """All but the trees that decides a prediction; part of the digest."""
        settings = self._ensemble.settings
        classes = self.samples_.classes.values(self._class_order())
        return {
            "format": 1,
            "kind": self.kind,
            "task": self.task.value,
            "seed": settings.seed,
            "n_estimators": settings.n_trees,
            "occurrences": settings.occurrences,
            "max_depth": settings.max_depth,
            "min_samples_split": settings.min_samples_split,
            "n_thresholds": settings.n_thresholds,
            "max_features": settings.max_features,
            "criterion": settings.criterion,
            "types": [f"{column.type.value}:{column.dtype}" for column in self.schema_.columns],
            "classes": [[type(value).__name__, _canonical_text(value)] for value in classes],
            "exponent": self._exponent(),
        }

    def _exponent(self) -> int:
        return 0

    def tree_digests(self) -> list[str]:
        """Digest of each tree, in order; resolves all tags."""
        self._check_is_fitted()
        self.resolve()
        ensemble = self._ensemble
        order = self._class_order()
        return [
            tree_digest(ensemble.trees, tree, ensemble.settings.is_regression, order)
            for tree in range(ensemble.settings.n_trees)
        ]

    def digest(self) -> str:
        """Hash of everything that can influence a prediction, whatever the history; resolves all tags.

        Two models of the same parameters that hold the same samples have the same digest.
        """
        digests = self.tree_digests()
        return forest_digest(self._header(), digests)

    def _fresh(self) -> Self:
        """Fit anew on the samples held, read one by one and in another order, with the same types.

        It keeps candidate counters for every node for which this model keeps some.
        """
        fresh = type(self)(**{**self.get_params(), "random_state": self.seed_}).start(self.schema_)
        names = sorted(self.samples_.ids())
        if names:
            held = [self.samples_.get(name) for name in names]
            rows = [sample.features for sample in held]
            fresh.samples_.commit(
                fresh.samples_.prepare(rows, [sample.label for sample in held], names)
            )
        fresh._ensemble.keep_blocks_like(self._ensemble)
        fresh._grow_all()
        return fresh

    def verify(self) -> Verification:
        """Train a fresh model on the samples held and compare everything; resolves all tags.

        Also recounts every counter, range and membership that is kept for later mutations.
        """
        live = self.tree_digests()
        fresh_model = self._fresh()
        fresh = fresh_model.tree_digests()
        trees = [
            TreeComparison(tree, a, b) for tree, (a, b) in enumerate(zip(live, fresh, strict=True))
        ]
        live_digest = forest_digest(self._header(), live)
        fresh_digest = forest_digest(fresh_model._header(), fresh)
        wrong_counters: list[str] = []
        if live_digest == fresh_digest:
            wrong_counters = compare_forests(self._membership(), fresh_model._membership())
        return Verification(live_digest, fresh_digest, trees, wrong_counters)

    def check_invariants(self) -> None:
        """Check samples and trees for internal soundness; slow, for tests.

        Raises
        ------
        AssertionError
            Naming what is broken.
        """
        self._check_is_fitted()
        self.samples_.check_invariants()
        check_invariants(self._ensemble, self._data(), self.samples_.slots())

    def _membership(self) -> Part:
        """The trees, with slots and class codes in an order that does not depend on the history."""
        names = sorted(self.samples_.ids())
        slots = self.samples_.find(names) if names else np.zeros(0, np.int64)
        return self._ensemble, slots, self._class_order(), self.schema_.categorical_mask

    # -- keeping --------------------------------------------------------------------------------

    def copy(self) -> Self:
        """An independent copy; O(size), without resolving anything."""
        self._check_is_fitted()
        other = type(self)(**self.get_params())
        other._begin(self.schema_, self._ensemble.settings, self.samples_.copy())
        other._ensemble = self._ensemble.copy()
        other._copy_targets(self)
        return other

    def _copy_targets(self, original: Any) -> None:
        self._refresh_targets()

    def __sklearn_clone__(self) -> Self:
        """An unfitted estimator with the same parameters."""
        return type(self)(**self.get_params())

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        return self.copy() if self.__sklearn_is_fitted__() else type(self)(**self.get_params())

    def save(self, path: str | PathLike[str], extra: Mapping[str, str] | None = None) -> None:
        """Write the model to one file; resolves all tags.

        The file is complete or not there: it is written beside the place and moved there. It holds
        nothing of deleted samples.

        Parameters
        ----------
        path : where to.
        extra : text to keep with the model, for the caller.
        """
        self._check_is_fitted()
        digest = self.digest()
        arrays = {f"forest.{name}": array for name, array in self._ensemble.state().items()}
        arrays.update(self.samples_.state())
        persistence.write(
            path,
            arrays,
            {
                "kind": self.kind,
                "task": self.task.value,
                "guarantee": self.guarantee,
                "parameters": {**self.get_params(), "random_state": self.seed_},
                "settings": vars(self._ensemble.settings),
                "schema": self.schema_.to_dict(),
                "digest": digest,
                "n_samples": len(self.samples_),
                "n_classes": self._ensemble.width,
                "extra": dict(extra or {}),
            },
        )

    @classmethod
    def load(cls, path: str | PathLike[str]) -> Self:
        """Read a model that `save` wrote.

        Raises
        ------
        FileError
            When the file is unreadable, truncated, altered, foreign or of a newer format.
        """
        model = persistence.load(path)
        if not isinstance(model, cls):
            raise InputError(f"the file holds a {type(model).__name__}: use its `load`, or `core.load`")
        return model

    @classmethod
    def _from_file(cls, metadata: dict[str, Any], arrays: dict[str, npt.NDArray[Any]]) -> Self:
        schema = Schema.from_dict(metadata["schema"])
        model = cls(**metadata["parameters"])
        settings = ForestSettings(**metadata["settings"])
        model._begin(schema, settings, SampleStore.from_state(schema, arrays, owner=cls.__name__))
        forest = {name[len("forest.") :]: a for name, a in arrays.items() if name.startswith("forest.")}
        model._ensemble = Ensemble(
            settings, schema.n_features, int(metadata["n_classes"]), schema.cell_dtype
        )
        model._ensemble.restore(forest)
        model._refresh_targets()
        return model

    def __getstate__(self) -> dict[str, Any]:
        """Pickled by scikit-learn's tools (not by `save`): the fitted state as plain arrays."""
        if not self.__sklearn_is_fitted__():
            return {"params": self.get_params()}
        self.resolve()
        return {
            "params": self.get_params(),
            "settings": vars(self._ensemble.settings),
            "schema": self.schema_.to_dict(),
            "n_classes": self._ensemble.width,
            "samples": self.samples_.state(),
            "forest": self._ensemble.state(),
        }

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Undo `__getstate__`."""
        for name, value in state["params"].items():
            setattr(self, name, value)
        if "schema" not in state:
            return
        arrays = {f"forest.{name}": array for name, array in state["forest"].items()}
        metadata = {
            "schema": state["schema"],
            "parameters": state["params"],
            "settings": state["settings"],
            "n_classes": state["n_classes"],
        }
        restored = self._from_file(metadata, {**arrays, **state["samples"]})
        self.__dict__.update(restored.__dict__)


def _canonical_text(value: Any) -> str:
    """Text of a label that tells any two values of a type apart on every platform."""
    return value.hex() if isinstance(value, float) else str(value)


class DynamicForestClassifier(_DynamicForest):
    """A forest of extremely randomized trees that learns and unlearns single samples exactly.

    After any history of `add` and `delete` the trees, the digest and every prediction are those of
    a fresh fit on the samples held, bit for bit.

    Parameters
    ----------
    n_estimators : int, default 100
        Number of trees, T.
    occurrence : float in (0, 1], default 1.0
        Share of the trees that learn a sample, q. Lower it for cheaper adds and deletes: their cost
        and the training's fall in proportion. 0.1 is the paper's choice for speed.
    max_depth : int or None, default None
        Greatest depth of a leaf.
    min_samples_split : int, default 2
        Nodes with fewer samples are leaves.
    n_thresholds : int, default 10
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
        occurrence: float = 1.0,
        max_depth: int | None = None,
        min_samples_split: int = 2,
        n_thresholds: int = 10,
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

    def _check_target(self, y: Any) -> None:
        values = y if isinstance(y, np.ndarray) else getattr(y, "to_numpy", lambda: None)()
        if isinstance(values, np.ndarray) and values.dtype.kind == "f":
            finite = values[np.isfinite(values)]
            if (finite != np.floor(finite)).any():
                raise InputError(
                    "Unknown label type: continuous. Classes cannot be fractions: use "
                    "DynamicForestRegressor, or give the classes as text",
                    field="label",
                )

    def _targets(self) -> npt.NDArray[np.int64]:
        return self.samples_.class_codes

    @property
    def classes_(self) -> npt.NDArray[Any]:
        """The classes held, ordered by type and value."""
        self._check_is_fitted()
        return self.samples_.classes.classes_array()

    def query(self, X: Any, *, frozen: bool = False) -> QueryResult:  # noqa: D102 - inherited
        sums, n_planted = self._sum_leaves(X, frozen)
        probabilities = sums[:, self._class_order()]
        probabilities /= n_planted
        classes = self.classes_
        return QueryResult(classes[probabilities.argmax(axis=1)], probabilities, classes)

    def predict(self, X: Any) -> npt.NDArray[Any]:
        """Predict the most probable class of each row; the smaller class wins a tie."""
        return self.query(X).labels

    def predict_proba(self, X: Any) -> npt.NDArray[np.float64]:
        """Predict class probabilities, float64[n, n_classes], in the order of `classes_`."""
        probabilities = self.query(X).probabilities
        assert probabilities is not None
        return probabilities

    def predict_log_proba(self, X: Any) -> npt.NDArray[np.float64]:
        """Natural logarithm of `predict_proba`."""
        with np.errstate(divide="ignore"):
            return np.log(self.predict_proba(X))

    def score(self, X: Any, y: Any) -> float:
        """Share of rows whose predicted class is y."""
        return float(np.mean(self.predict(X) == np.asarray(y)))


class DynamicForestRegressor(_DynamicForest):
    """The regression counterpart of `DynamicForestClassifier`: variance reduction, mean leaves.

    Targets are held in float64 and summed in fixed point (`core/forest/quantisation.py`), with an
    error below 2**-34 of the largest target held.

    Parameters
    ----------
    n_estimators, occurrence, max_depth, n_thresholds, lazy, random_state
        As for `DynamicForestClassifier`.
    min_samples_split : int, default 2
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
        occurrence: float = 1.0,
        max_depth: int | None = None,
        min_samples_split: int = 2,
        n_thresholds: int = 10,
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

    def _exponent(self) -> int:
        return self._quantised_exponent

    def _targets(self) -> npt.NDArray[np.int64]:
        return self._quantised

    def _refresh_targets(self) -> None:
        self._scale = quantisation.TargetScale()
        self._scale.count(self.samples_.y[self.samples_.slots()], 1)
        self._requantise()

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
        return self.query(X).labels

    def score(self, X: Any, y: Any) -> float:
        """Coefficient of determination R^2 of the predictions."""
        y = np.asarray(y, np.float64)
        residual = float(((y - self.predict(X)) ** 2).sum())
        total = float(((y - y.mean()) ** 2).sum())
        return 1.0 - residual / total if total > 0 else float(residual == 0)
