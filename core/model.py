"""What every kind of model shares: samples that come and go, and all that surrounds the trees.

    estimator.py    what users see: parameters, documentation
    Model           checks input, owns the sample store, translates ids, labels and categories into slots and
                    codes
    Keepable        copies, saves, loads (`core/keeping.py`)
    a kind          says what the trees are (`forest/dynamic_forest.py`, `tree/estimator.py`)

A kind fills in the abstract methods. What a service needs of a model is public.
"""

from abc import abstractmethod
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple, Self

import numpy as np
import numpy.typing as npt

from oubli.core.data.schema import Schema
from oubli.core.data.targets import read_label_column
from oubli.core.errors import EmptyModelError, InputError
from oubli.core.keeping import Keepable
from oubli.core.samples.arrays import Data
from oubli.core.samples.store import Prepared, SampleStore
from oubli.core.verification import Verification


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


class Model(Keepable):
    """Trees over a sample store."""

    lazy: bool

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
        """Grow the trees on samples, forgetting whatever was held before.

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
            With the row, the field and the rule.

        Whatever is raised, also MemoryError and KeyboardInterrupt, the estimator is as it was.
        """
        if schema is None:
            schema = Schema.infer(X, y, task=self.task, categorical_features=categorical_features)
        settings = self._checked_settings(schema)
        store = SampleStore(schema, owner=type(self).__name__)
        prepared = store.prepare(X, y, ids)
        self._check_capacity(settings, prepared.n)
        store.commit(prepared)
        fitted = self._beside()
        fitted.begin(schema, settings, store)
        fitted.grow_all(progress)
        self._become(fitted)
        return self

    def start(self, schema: Schema) -> Self:
        """Begin with no samples; `add` does the rest.

        Raises
        ------
        InputError
            When a parameter or the schema does not fit.
        """
        fitted = self._beside()
        fitted.begin(schema, self._checked_settings(schema))
        self._become(fitted)
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
        settings = self._checked_settings(store.schema)
        self._check_capacity(settings, len(store), store.n_slots)
        store.changes.check()
        store.build_index()
        fitted = self._beside()
        fitted.begin(store.schema, settings, store)
        fitted.grow_all()
        self._become(fitted)
        return self

    def _checked_settings(self, schema: Schema) -> Any:
        if schema.task != self.task:
            raise InputError(
                f"the schema is for {schema.task.value}, {type(self).__name__} is for {self.task.value}: "
                "use the other estimator"
            )
        if not isinstance(self.lazy, bool | np.bool_):
            raise InputError(f"lazy={self.lazy!r} must be True or False")
        return self._read_settings(schema)

    def begin(self, schema: Schema, settings: Any, store: SampleStore | None = None) -> None:
        """Hold the samples of a store (none when left out), over trees yet to be grown.

        settings : what `_read_settings` returned, of this model or of another one of its kind.
        """
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
        self._begin_trees(settings)

    def add(self, X: Any, y: Any, *, ids: Iterable[Any] | None = None) -> list[str]:
        """Learn samples in place.

        Returns
        -------
        list of str
            The ids, generated when none were given.

        Raises
        ------
        InputError
            Also when an id is held already (`DuplicateIdError`); nothing has changed.
        """
        if ids is None and type(X) is list and len(X) == 1:
            self._check_is_fitted()
            store = self.samples_
            n_before = len(store)
            self._check_capacity(self._settings, n_before + 1)
            with store.changes as changes:
                slot = store.admit(X[0], y)
                if slot is not None:
                    name = store.id_of(slot)
                    changes.undo = [(store.remove_one, slot)]
                    self._learn_one(slot, n_before)
            if slot is not None:
                self._settle()
                return [name]
        self._check_names(X)
        return self.add_prepared(self.samples_.prepare(X, y, ids))

    def add_prepared(self, prepared: Prepared) -> list[str]:
        """Learn samples that `samples_.prepare` has checked."""
        self._check_is_fitted()
        store = self.samples_
        n_before = len(store)
        # Of slots there are as many, or no more than there have been.
        self._check_capacity(self._settings, n_before + prepared.n)
        if not prepared.n:
            return []
        arrivals = store.stage(prepared)
        with store.changes as changes:
            slots = store.hold(arrivals)
            changes.undo = [(store.remove, slots)]
            self._learn(slots, n_before)
        self._settle()
        return list(arrivals.names)

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
        """Unlearn samples in place.

        Parameters
        ----------
        ids : str, int, or iterable of them

        Raises
        ------
        UnknownIdError
            (a KeyError) when an id is not held; nothing has changed.
        """
        self._check_is_fitted()
        store = self.samples_
        slots = store.find([ids] if isinstance(ids, (str, int, np.integer)) else ids)
        if len(slots):
            with store.changes as changes:
                changes.undo = []
                self._unlearn(slots)
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
        prepared = store.prepare(row, [y], [sample_id], allow_held=True)
        if prepared.n != 1:
            raise InputError(f"x has {prepared.n} rows: give one")
        slots = store.find([sample_id])
        store.reserve(prepared)
        with store.changes as changes:
            changes.undo = []
            self._unlearn(slots)
            changes.undo = None
            n_before = len(store)
            slots = store.hold(store.stage(prepared))
            self._learn(slots, n_before)
            store.attach(int(slots[0]), subject, expiry, origin)
        self._settle()

    def takes_long(self, adds: Prepared | None, deletes: Sequence[str], n_others: int, seconds: float) -> bool:
        """Whether a change may set off building for more than some seconds, and had better be made on a copy.

        Parameters
        ----------
        adds : what `samples_.prepare` returned, or None.
        deletes : ids that are held.
        n_others : how many other samples come or go before.
        seconds : what is not long yet, roughly.
        """
        return False

    def leaving(self, n_new: int) -> list[str]:
        """The ids that leave by themselves when so many samples are added: those that slide out of a window."""
        return []

    # -- what a kind says -----------------------------------------------------------------------

    @abstractmethod
    def _read_settings(self, schema: Schema) -> Any:
        """Check the parameters; InputError names the one that does not fit."""

    @staticmethod
    @abstractmethod
    def _check_capacity(settings: Any, n_samples: int, n_slots: int = 0) -> None:
        """CapacityError when so many samples, or slots, are too many."""

    @abstractmethod
    def _begin_trees(self, settings: Any) -> None:
        """Make empty trees for the samples in the store, to be grown or restored."""

    @abstractmethod
    def grow_all(self, progress: Callable[[int, int], None] | None = None) -> None:
        """Grow the trees from nothing on the samples in the store."""

    @abstractmethod
    def _learn(self, slots: npt.NDArray[np.int64], n_before: int) -> None:
        """Take samples into the trees that have just joined the `n_before` others in the store.

        Called in a critical section that can be taken back: a kind adds to `samples_.changes.undo` what undoes its
        own preparations, and sets it to None before the first write that nothing undoes.
        """

    def _learn_one(self, slot: int, n_before: int) -> None:
        """Take in a sample of a class that others have."""
        self._learn(np.array([slot]), n_before)

    @abstractmethod
    def _unlearn(self, slots: npt.NDArray[np.int64]) -> None:
        """Take samples out of the trees, and out of the store; in a critical section, as `_learn` is."""

    def _settle(self) -> None:
        """Do what a change leaves to be done that nobody has to wait for; what fails here, queries do later."""

    @abstractmethod
    def _trees_nbytes(self) -> int:
        """Bytes of the trees."""

    # -- reading --------------------------------------------------------------------------------

    @abstractmethod
    def wipe(self) -> None:
        """Overwrite what is kept of samples no longer held; resolves all tags.

        That is the working space. What a sample leaves in slots, tables, leaves and pools is overwritten when it
        goes.
        """

    @abstractmethod
    def scrub(self) -> None:
        """Leave no trace of samples that were deleted, not even in the choice of splits; resolves all tags."""

    def shred(self) -> None:
        """Overwrite the samples and trees of a model that is about to be let go of: it cannot be used afterwards.

        Freed memory then holds no sample, texts aside. No other thread may be reading the model; copies and answers
        share nothing with it that is overwritten.
        """
        if self.__sklearn_is_fitted__():
            store = self.samples_
            del self.samples_, self.schema_  # whoever uses it all the same is told that it is not fitted
            self._shred_trees()
            store.shred()

    @abstractmethod
    def _shred_trees(self) -> None:
        """Overwrite the arrays of the trees that belong to this model alone."""

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

    def _targets(self) -> npt.NDArray[np.int64]:
        """The targets by slot, as the kernels count them: class codes unless a kind says otherwise."""
        return self.samples_.class_codes

    def data(self) -> Data:
        """The samples as the kernels read them; anew after each mutation."""
        store = self.samples_
        return Data(
            store.cells, self._targets(), store.id_hashes, store.categories.hashes, self.schema_.categorical_mask
        )

    def class_order(self) -> npt.NDArray[np.int64]:
        """Codes of the classes held, in the order of their values."""
        return self.samples_.classes.order()

    def _encode_queries(self, X: Any) -> tuple[npt.NDArray[Any], npt.NDArray[np.uint64]]:
        """Encode rows to be predicted; see `SampleStore.encode_queries`."""
        self._check_is_fitted()
        encoded = self.samples_.encode_queries(X)
        if len(self.samples_) == 0:
            raise EmptyModelError("the model holds no samples: add some before predicting")
        return encoded

    @property
    def n_samples_(self) -> int:
        """Number of samples held."""
        self._check_is_fitted()
        return len(self.samples_)

    @property
    @abstractmethod
    def n_lazy_tags_(self) -> int:
        """Number of tagged nodes."""

    @property
    def nbytes_(self) -> int:
        """Bytes of trees and samples, unused capacity included."""
        self._check_is_fitted()
        return self._trees_nbytes() + self.samples_.nbytes

    # -- checking -------------------------------------------------------------------------------

    @abstractmethod
    def verify(self) -> Verification:
        """Check all that is kept against the samples held; resolves all tags."""

    @abstractmethod
    def check_invariants(self) -> None:
        """Check samples and trees for internal soundness; slow, for tests.

        Raises
        ------
        AssertionError
            Naming what is broken.
        """
