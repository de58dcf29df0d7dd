"""What the forest's classifier and regressor share: DynFrs with exact adds and deletes.

Paper: "DynFrs: An Efficient Framework for Machine Unlearning in Random Forest". The estimators check
input, own the sample store and the trees, and translate between ids, labels and categories on one
side and slots and codes on the other. The algorithm is in the kernels beside this file.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from copy import deepcopy
from os import PathLike
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
import numpy.typing as npt

from core import persistence
from core.base import Estimator
from core.errors import CapacityError, EmptyModelError, FileError, InputError
from core.forest import checking, quantisation, soundness, storing
from core.forest.ensemble import MAX_ENTRIES, MAX_SAMPLES, Ensemble, ForestSettings
from core.forest.importances import feature_importances
from core.forest.inputs import Data
from core.forest.invariants import check_invariants
from core.forest.parameters import read_settings
from core.samples import Prepared, SampleStore
from core.schema import Schema, Task
from core.targets import read_label_column
from core.verification import Verification

# A batch above this share of the samples held costs more to take out one by one than to plant the
# rest anew.
_REPLANT_SHARE = 0.08


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


class DynamicForest(Estimator, ABC):
    """A forest over a sample store; the subclasses say what a target is."""

    kind: ClassVar[str] = "forest"
    guarantee: ClassVar[str] = "exact"
    task: ClassVar[Task]
    _criteria: ClassVar[tuple[str, ...]]

    schema_: Schema
    samples_: SampleStore
    seed_: int
    ensemble_: Ensemble
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
        if schema is None:
            schema = Schema.infer(X, y, task=self.task, categorical_features=categorical_features)
        settings = self._read_settings(schema)
        store = SampleStore(schema, owner=type(self).__name__)
        prepared = store.prepare(X, y, ids)
        self._check_capacity(settings, prepared.n)
        store.commit(prepared)
        self.begin(schema, settings, store)
        self.grow_all(progress)
        return self

    def grow_all(self, progress: Callable[[int, int], None] | None = None) -> None:
        """Grow the forest on the samples in the store."""
        self.ensemble_.widen(self.samples_.classes.capacity)
        self.refresh_targets()
        self.ensemble_.fit(self.data(), self.samples_.slots(), progress)

    def start(self, schema: Schema) -> Self:
        """Begin with no samples; `add` does the rest.

        Raises
        ------
        InputError
            When a parameter or the schema does not fit.
        """
        settings = self._read_settings(schema)
        self.begin(schema, settings)
        self.refresh_targets()
        return self

    def fit_held(self, store: SampleStore) -> Self:
        """Fit on the samples of a store, which belongs to this model from now on; as `fit` on the same samples.

        Raises
        ------
        InputError
            When a parameter does not fit.
        CapacityError
            When there are too many samples.
        """
        settings = self._read_settings(store.schema)
        self._check_capacity(settings, len(store))
        store.build_index()
        self.begin(store.schema, settings, store)
        self.refresh_targets()
        self.grow_all()
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

    def begin(self, schema: Schema, settings: ForestSettings, store: SampleStore | None = None) -> None:
        """Hold the samples of a store (none when left out), over trees yet to be grown."""
        if store is None:
            store = SampleStore(schema, owner=type(self).__name__)
        self.schema_ = schema
        self.samples_ = store
        self.seed_ = settings.seed
        self.n_features_in_ = schema.n_features
        if schema.named:
            self.feature_names_in_ = np.array(schema.names, dtype=object)
        elif hasattr(self, "feature_names_in_"):
            del self.feature_names_in_
        self.ensemble_ = Ensemble(
            settings,
            schema.n_features,
            store.classes.capacity,
            schema.cell_dtype,
            bool(schema.categorical_mask.any()),
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
        self._check_names(X)
        return self.add_prepared(self.samples_.prepare(X, y, ids))

    def add_prepared(self, prepared: Prepared) -> list[str]:
        """Learn samples that `samples_.prepare` has checked."""
        self._check_is_fitted()
        self._check_capacity(self.ensemble_.settings, len(self.samples_) + prepared.n)
        n_before = len(self.samples_)
        slots = self.samples_.commit(prepared)
        self.ensemble_.widen(self.samples_.classes.capacity)
        scale_moved = self._take_targets(slots)
        if scale_moved or prepared.n > _REPLANT_SHARE * n_before:
            self.ensemble_.plant(self.data(), self.samples_.slots())
        else:
            self.ensemble_.add(self.data(), slots)
        self._settle()
        return list(prepared.ids or ())

    def partial_fit(self, X: Any, y: Any, classes: Any = None) -> Self:
        """Add samples, or fit when nothing has been fitted yet.

        `classes` is only checked: labels outside it are refused. The classes follow the samples.
        """
        if classes is not None:
            self._check_classes(y, classes)
        if not self.__sklearn_is_fitted__():
            return self.fit(X, y)
        self.add(X, y)
        return self

    def _check_classes(self, y: Any, classes: Any) -> None:
        field = self.schema_.label_name if self.__sklearn_is_fitted__() else "label"
        labels, listed = read_label_column(y, field, warn=False), read_label_column(classes, "classes")
        allowed = set(map(listed.value, range(len(listed))))
        for row, label in enumerate(map(labels.value, range(len(labels)))):
            if label not in allowed:
                raise InputError(
                    "must be one of `classes`: add it there or correct it", row=row, field=field, value=label
                )

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
        slots = self.samples_.find([ids] if isinstance(ids, (str, int, np.integer)) else ids)
        if len(slots) == 0:
            return
        replants = len(slots) > _REPLANT_SHARE * len(self.samples_)
        scale_moved = self._let_go_of_targets(slots)
        if not (replants or scale_moved):
            self.ensemble_.delete(self.data(), slots)
        self.samples_.remove(slots)
        if scale_moved:
            self._requantise()
        if replants or scale_moved:
            self.ensemble_.plant(self.data(), self.samples_.slots())
        self._wipe_targets(slots)
        self._settle()

    def replace(self, sample_id: str | int, x: Any, y: Any) -> None:
        """Rectify one sample: new features and label under the id it has; subject and expiry stay.

        Raises
        ------
        UnknownIdError
            When the id is not held.
        InputError
            When the new content is refused; nothing has changed.
        """
        self._check_is_fitted()
        store = self.samples_
        subject, expiry, origin = store.subject(sample_id), store.expiry(sample_id), store.origin(sample_id)
        row = x if getattr(x, "ndim", 1) == 2 else [x]
        prepared = self.samples_.prepare(row, [y], [sample_id], allow_held=True)
        self.delete([sample_id])
        self.add_prepared(prepared)
        store.set_subject(sample_id, subject)
        store.set_expiry(sample_id, expiry)
        store.set_origins([sample_id], origin)

    def resolve(self, max_tags: int | None = None) -> int:
        """Resolve all lazy tags and return how many there were; or work on `max_tags` of them at most.

        Queries do this by themselves, for their own paths. Resolving ahead keeps them fast. With
        `max_tags` each call is short: it ends early when it has looked at some thousand samples, and may
        leave tags further down. Then the return value is the number of tags worked on, and there are none
        left when `n_lazy_tags_` is 0.
        """
        self._check_is_fitted()
        return self.ensemble_.resolve(self.data(), max_tags)

    def wipe(self) -> None:
        """Overwrite what is kept of samples no longer held; resolves all tags. O(largest tree) beyond that.

        That is the working space. What a sample leaves in slots, tables, leaves and pools is overwritten when it
        goes, and what its ranges and thresholds leave behind, when the tags that it leaves are resolved.
        """
        self._check_is_fitted()
        self.resolve()
        self.ensemble_.wipe_working_space()

    def _settle(self) -> None:
        if not self.lazy:
            self.ensemble_.resolve(self.data())

    @staticmethod
    def _check_capacity(settings: ForestSettings, n_samples: int) -> None:
        if n_samples * settings.occurrences > MAX_ENTRIES:
            raise CapacityError(
                f"{n_samples} samples in {settings.occurrences} trees each exceed {MAX_ENTRIES} "
                "memberships: lower `occurrence` or `n_estimators`"
            )
        if n_samples > MAX_SAMPLES:
            raise CapacityError(f"a forest holds at most {MAX_SAMPLES} samples")
        if settings.is_regression and n_samples > quantisation.MAX_SAMPLES:
            raise CapacityError(f"a regression holds at most {quantisation.MAX_SAMPLES} samples")

    # -- targets: class codes as they are, or regression values in fixed point --------------------

    @abstractmethod
    def _targets(self) -> npt.NDArray[np.int64]:
        """The targets by slot, as the kernels count them."""

    def refresh_targets(self) -> None:
        """Derive all targets from the store."""

    def _take_targets(self, slots: npt.NDArray[np.int64]) -> bool:
        """Take in the targets of new samples; whether the scale of all has moved."""
        return False

    def _let_go_of_targets(self, slots: npt.NDArray[np.int64]) -> bool:
        """Let go of the targets of samples about to leave; whether the scale will move."""
        return False

    def _copy_targets(self, other: Self) -> None:
        """Take over what another model has derived from the same samples."""

    def _requantise(self) -> None:
        """Bring all targets to the scale of those held."""

    def _wipe_targets(self, slots: npt.NDArray[np.int64]) -> None:
        """Overwrite what is kept of the targets of samples that have left."""

    # -- reading --------------------------------------------------------------------------------

    def data(self) -> Data:
        """The samples as the kernels read them; anew after each mutation."""
        store = self.samples_
        return Data(
            store.cells,
            self._targets(),
            store.id_hashes,
            store.categories.hashes,
            self.schema_.categorical_mask,
        )

    def class_order(self) -> npt.NDArray[np.int64]:
        """Codes of the classes held, in the order of their values."""
        return self.samples_.classes.order()

    def _sum_leaves(self, X: Any, frozen: bool) -> tuple[npt.NDArray[np.float64], int]:
        self._check_is_fitted()
        cells, category_hashes = self.samples_.encode_queries(X)
        if len(self.samples_) == 0:
            raise EmptyModelError("the model holds no samples: add some before predicting")
        ensemble = self.ensemble_
        if ensemble.n_tags == 0:
            return ensemble.sum_resolved_leaves(cells, category_hashes)
        return ensemble.sum_leaves(self.data(), cells, category_hashes, frozen=frozen)

    @abstractmethod
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

    @property
    def n_samples_(self) -> int:
        """Number of samples held."""
        self._check_is_fitted()
        return len(self.samples_)

    @property
    def n_lazy_tags_(self) -> int:
        """Number of tagged nodes."""
        self._check_is_fitted()
        return self.ensemble_.n_tags

    @property
    def nbytes_(self) -> int:
        """Bytes of trees and samples, unused capacity included."""
        self._check_is_fitted()
        return self.ensemble_.nbytes + self.samples_.nbytes

    @property
    def feature_importances_(self) -> npt.NDArray[np.float64]:
        """Share of each feature in the impurity decrease, float64[d]; resolves all tags. O(model)."""
        self._check_is_fitted()
        self.resolve()
        ensemble = self.ensemble_
        return feature_importances(ensemble.trees, self.n_features_in_, ensemble.settings.criterion)

    # -- checking -------------------------------------------------------------------------------

    def exponent(self) -> int:
        """Scale of the targets, see `quantisation.py`; 0 for classes."""
        return 0

    def tree_digests(self) -> list[str]:
        """Digest of each tree, in order; resolves all tags."""
        self._check_is_fitted()
        return checking.tree_digests(self)

    def digest(self) -> str:
        """Hash of everything that can influence a prediction, whatever the history; resolves all tags.

        Two models of the same parameters that hold the same samples have the same digest.
        """
        self._check_is_fitted()
        return checking.digest(self)

    def verify(self) -> Verification:
        """Train a fresh model on the samples held and compare everything; resolves all tags.

        Also recounts every counter, range and membership that is kept for later mutations.
        """
        self._check_is_fitted()
        return checking.verify(self)

    def check_invariants(self) -> None:
        """Check samples and trees for internal soundness; slow, for tests.

        Raises
        ------
        AssertionError
            Naming what is broken.
        """
        self._check_is_fitted()
        self.samples_.check_invariants()
        check_invariants(self.ensemble_, self.data(), self.samples_.slots())

    # -- keeping --------------------------------------------------------------------------------

    def copy(self) -> Self:
        """An independent copy; O(size), without resolving anything.

        Other threads may read the model meanwhile, and are not kept waiting.
        """
        self._check_is_fitted()
        other = self._unfitted()
        other.begin(self.schema_, self.ensemble_.settings, self.samples_.copy())
        other.ensemble_ = self.ensemble_.copy()
        other._copy_targets(self)
        return other

    def _unfitted(self) -> Self:
        # A RandomState is copied as well: drawing from one model's must not move the other's.
        return type(self)(**deepcopy(self.get_params()))

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        return self.copy() if self.__sklearn_is_fitted__() else self._unfitted()

    def save(self, path: str | PathLike[str], extra: Mapping[str, str] | None = None) -> None:
        """Write the model to one file; resolves all tags.

        The file is complete or not there: it is written beside the place and moved there. It holds
        nothing of deleted samples. Other threads may read the model meanwhile, if it has no tags, and are not
        kept waiting.

        Parameters
        ----------
        path : where to.
        extra : text to keep with the model, for the caller.
        """
        self._check_is_fitted()
        storing.save(self, path, extra)

    @classmethod
    def load(cls, path: str | PathLike[str]) -> Self:
        """Read a model that `save` wrote.

        Raises
        ------
        FileError
            When the file is unreadable, truncated, altered, foreign or of a newer format, or holds
            another kind of model.
        """
        model = persistence.load(path)
        if not isinstance(model, cls):
            raise FileError(f"the file holds a {type(model).__name__}: use its `load`, or `core.load`")
        return model

    @classmethod
    def from_parts(
        cls, document: dict[str, Any], arrays: dict[str, npt.NDArray[Any]], *, with_trees: bool = True
    ) -> Self:
        """Put a model together from what a model file holds, checked; for `core.persistence`.

        Without `with_trees` the trees are grown anew from the samples: those in the file are of another format.
        """
        if not with_trees:
            n_slots = len(arrays["forest.links"]) // document["settings"]["occurrences"]
            soundness.check_description(document, arrays, n_slots=n_slots)
            return storing.put_together(cls(**document["parameters"]), document, arrays, with_trees=False)
        soundness.check_parts(document, arrays)
        model = storing.put_together(cls(**document["parameters"]), document, arrays)
        soundness.check_forest(model.ensemble_, model.data(), model.samples_.slots())
        return model

    def __getstate__(self) -> dict[str, Any]:
        """Pickled by scikit-learn's tools (never by `save`): the fitted state as plain arrays."""
        if not self.__sklearn_is_fitted__():
            return {"parameters": self.get_params()}
        document, arrays = storing.take_apart(self)
        return {"parameters": self.get_params(), "document": document, "arrays": arrays}

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Undo `__getstate__`."""
        for name, value in state["parameters"].items():
            setattr(self, name, value)
        if "document" in state:
            storing.put_together(self, state["document"], state["arrays"])
