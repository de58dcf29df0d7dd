"""What every kind of model is: samples that come and go, an engine over them, and all that surrounds both.

    estimator.py    what users see: parameters, documentation, what only this kind offers
    Model           checks input, owns the sample store, translates ids, labels and categories into slots and codes;
                    digests, checks, copies, saves, loads
    Engine          the trees (`core/engine.py`)

What a service needs of a model is public.
"""

from abc import abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import date
from typing import Any, NamedTuple, Self

import numpy as np

from oubli.core.array_types import Array, Hashes, Ints, Reals, Slots
from oubli.core.data.schema import Schema
from oubli.core.data.targets import read_label_column
from oubli.core.errors import DuplicateIdError, EmptyModelError, InputError
from oubli.core.keeping import Keepable
from oubli.core.samples.arrays import Data, Problem
from oubli.core.samples.restricted import Mark
from oubli.core.samples.slots import ids_of_index
from oubli.core.samples.store import Prepared, SampleStore
from oubli.core.threads import threads_of

Progress = Callable[[int, int], None]
# What `delete` takes for one id rather than for a list of them, so that the error of one that is none says so.
_SINGLE = (str, int, float, np.generic, date)


class QueryResult(NamedTuple):
    """Predictions for n rows.

    Attributes
    ----------
    labels : the predicted classes, or float64[n] values.
    probabilities : float64[n, n_classes]; None for regression.
    classes : the classes held, in the order of the columns; None for regression.
    """

    labels: Array
    probabilities: Reals | None
    classes: Array | None


class Model(Keepable):
    """An engine over a sample store."""

    # -- learning -------------------------------------------------------------------------------

    def fit(
        self,
        X: Any,
        y: Any,
        *,
        ids: Iterable[Any] | None = None,
        categorical_features: Any = None,
        schema: Schema | None = None,
        progress: Progress | None = None,
    ) -> Self:
        """Grow the trees on samples, forgetting whatever was held before.

        Parameters
        ----------
        X : array, DataFrame or list of rows, shape (n, d)
            NaN and None are missing values. Numbers are held as float32, see `Schema.infer`.
        y : array or list, shape (n,)
            Matched with X by position; the index of a Series is ignored.
        ids : sequence of str or int, length n, optional
            Names to delete the samples by. When left out, the labels of the index if X is a DataFrame with one,
            unless they are 0, 1, ..., n - 1; else "0", "1", ...
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

        Warns
        -----
        IndexWarning
            When labels of the index are missing, repeated, or neither text nor integers nor dates; then ids are
            generated for all rows.

        Whatever is raised, also MemoryError and KeyboardInterrupt, the estimator is as it was.
        """
        if schema is None:
            schema = Schema.infer(X, y, task=self.task, categorical_features=categorical_features)
        settings = self.checked_settings(schema)
        store = SampleStore(schema, owner=type(self).__name__)
        store.n_threads = threads_of(self.n_jobs)
        prepared = store.prepare(X, y, ids_of_index(X) if ids is None else ids)
        self.engine_type(settings).check_capacity(settings, prepared.n)
        store.commit(prepared)
        return self._fit_store(settings, store, progress)

    def start(self, schema: Schema) -> Self:
        """Begin with no samples; `add` does the rest.

        Raises
        ------
        InputError
            When a parameter or the schema does not fit.
        """
        fitted = self._beside()
        fitted.begin(schema, self.checked_settings(schema))
        self._become(fitted)
        return self

    def fit_held(self, store: SampleStore, progress: Progress | None = None) -> Self:
        """Fit on the samples of a store, which belongs to this model from now on; as `fit` on the same samples.

        `progress` is that of `fit`.

        Raises
        ------
        InputError
            When a parameter does not fit.
        CapacityError
            When there are too many samples.
        """
        settings = self.checked_settings(store.schema)
        self.engine_type(settings).check_capacity(settings, len(store), store.n_slots)
        store.changes.check()
        store.build_index()
        return self._fit_store(settings, store, progress)

    def _fit_store(self, settings: Any, store: SampleStore, progress: Progress | None) -> Self:
        fitted = self._beside()
        fitted.begin(store.schema, settings, store)
        fitted.refit(progress)
        self._become(fitted)
        return self

    def refit(self, progress: Progress | None = None) -> None:
        """Fit the trees anew on the samples held."""
        store = self.samples_
        self.engine_.fit(store.problem(), store.slots(), progress)

    def add(self, X: Any, y: Any, *, ids: Iterable[Any] | None = None) -> list[str]:
        """Learn samples in place.

        Parameters are those of `fit`, and ids come from the index of a DataFrame as there.

        Returns
        -------
        list of str
            The ids, generated when there were none. An id that was generated or given is never generated later.

        Raises
        ------
        InputError
            Also when an id is held already (`DuplicateIdError`); nothing has changed.
        """
        if ids is None and type(X) is list and len(X) == 1:
            self.check_is_fitted()
            store = self.samples_
            self.require_room(1)
            with store.changes as changes:
                slot = store.admit(X[0], y)
                if slot is not None:
                    name = store.id_of(slot)
                    changes.undo = [(store.remove, (slot,))]
                    self._learn(np.array((slot,)))
            if slot is not None:
                self._settle()
                return [name]
        self._check_names(X)
        try:
            prepared = self.samples_.prepare(X, y, ids_of_index(X) if ids is None else ids)
        except DuplicateIdError as error:
            if ids is None:
                error.add_note("the ids are the labels of X's index: pass ids= or X.reset_index(drop=True)")
            raise
        return self.add_prepared(prepared)

    def add_prepared(self, prepared: Prepared) -> list[str]:
        """Learn samples that `samples_.prepare` has checked."""
        self.check_is_fitted()
        store = self.samples_
        self.require_room(prepared.n)
        if not prepared.n:
            return []
        arrivals = store.stage(prepared)
        with store.changes as changes:
            slots = store.hold(arrivals)
            changes.undo = [(store.remove, slots)]
            self._learn(slots)
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
        ids : str, int, date, or iterable of them
            Labels of a DataFrame's index, if they gave the ids; a date or a time is its ISO text.

        Raises
        ------
        UnknownIdError
            (a KeyError) when an id is not held; nothing has changed.
        """
        self.check_is_fitted()
        store = self.samples_
        slots = store.find([ids] if isinstance(ids, _SINGLE) else ids)
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
        self.check_is_fitted()
        store = self.samples_
        belongings = store.belongings(sample_id)._replace(nonce=None)  # it belongs to the content that goes
        prepared = store.prepare(x if getattr(x, "ndim", 1) == 2 else [x], [y], [sample_id], allow_held=True)
        if prepared.n != 1:
            raise InputError(f"x has {prepared.n} rows: give one")
        slots = store.find([sample_id])
        store.reserve(prepared)
        with store.changes as changes:
            changes.undo = []
            self._unlearn(slots)
            changes.undo = None
            slots = store.hold(store.stage(prepared))
            self._learn(slots)
            store.attach(int(slots[0]), belongings)
        self._settle()

    def restrict(self, ids: Sequence[str], marks: Mapping[str, Mark] | None = None) -> None:
        """Keep samples, and unlearn them: they may be looked at and corrected, and are not learned from.

        Parameters
        ----------
        ids : which.
        marks : by subject, what is noted in `samples_.restricted.marks`.

        Raises
        ------
        UnknownIdError
            When an id is not held; nothing has changed.
        """
        self.check_is_fitted()
        store, restricted = self.samples_, self.samples_.restricted
        slots = store.find(ids)
        if len(slots):
            arrivals = restricted.stage([store.get(name) for name in ids])
            belongings = [store.belongings(name) for name in ids]
            with store.changes as changes:
                restricted.samples.hold(arrivals)
                restricted.attach(arrivals, belongings)
                changes.undo = [(restricted.let_go, ids)]
                self._unlearn(slots)
                restricted.marks.update(marks or {})
            self._settle()

    def release(self, ids: Sequence[str]) -> None:
        """Learn samples again that were restricted: the model is as if they had just been added.

        The mark of a subject goes with its last restricted sample.

        Raises
        ------
        UnknownIdError
            When an id is not restricted; nothing has changed.
        """
        self.check_is_fitted()
        store, restricted = self.samples_, self.samples_.restricted
        if not ids:
            return
        held = [(restricted.get(name), restricted.samples.belongings(name)) for name in ids]
        prepared = store.prepare([s.features for s, _ in held], [s.label for s, _ in held], ids, allow_held=True)
        self.require_room(prepared.n)
        arrivals, subjects = store.stage(prepared), {sample.subject for sample, _ in held}
        with store.changes as changes:
            slots = store.hold(arrivals)
            for slot, (_, belongings) in zip(slots.tolist(), held, strict=True):
                store.attach(slot, belongings)
            changes.undo = [(store.remove, slots)]
            self._learn(slots)
            changes.undo = None
            restricted.let_go(ids)
            restricted.drop_marks(subjects)
        self._settle()

    def require_room(self, n_more: int) -> None:
        """CapacityError when so many samples more cannot be held."""
        # Of slots there are as many, or no more than there have been.
        self.engine_.check_capacity(self.engine_.settings, len(self.samples_) + n_more)

    def _learn(self, slots: Slots) -> None:
        """Take samples into the trees that have just joined the others in the store; in a critical section."""
        store, engine = self.samples_, self.engine_
        leaving = engine.leaving(len(slots), slots.tolist()) if engine.keeps_order else None
        departures = store.stage_removal(leaving) if leaving else None
        engine.add(store.problem(), slots, lazy=self.lazy)
        if departures is not None:
            store.let_go(departures)

    def _unlearn(self, slots: Slots) -> None:
        """Take samples out of the trees, and out of the store; in a critical section."""
        store, engine = self.samples_, self.engine_
        if len(slots) == 1:
            engine.delete(store.problem(), slots, lazy=self.lazy)
            store.let_go_of_one(slots.item())
        else:
            departures = store.stage_removal(slots)
            engine.delete(store.problem(), slots, lazy=self.lazy)
            store.let_go(departures)

    def _settle(self) -> None:
        """Do what a change has put off that nobody has to wait for; what fails here, queries do later."""
        if not self.lazy and self.engine_.n_tags:
            # The samples are learned. Tags that there is no memory to resolve are left to the queries that meet them.
            with suppress(MemoryError):
                self.engine_.resolve(self.problem())

    def holds(self, sample_id: object) -> bool:
        """Whether a sample is held under an id.

        Raises
        ------
        InputError
            When it is no id.
        """
        self.check_is_fitted()
        return self.samples_.contains(sample_id)

    def takes_long(self, adds: Prepared | None, deletes: Sequence[str], n_others: int, seconds: float) -> bool:
        """Whether a change may set off building for more than some seconds, and had better be made on a copy.

        Parameters
        ----------
        adds : what `samples_.prepare` returned, or None.
        deletes : ids that are held.
        n_others : how many other samples come or go before.
        seconds : what is not long yet, roughly.
        """
        if self.lazy:
            return False
        n_changed = (0 if adds is None else adds.n) + len(deletes) + n_others

        def row() -> tuple[Array, Hashes]:
            return self._encode_queries([self._features_of(adds, deletes)])

        return self.engine_.takes_long(n_changed, row, self.problem, seconds)

    def _features_of(self, adds: Prepared | None, deletes: Sequence[str]) -> list[Any]:
        """The features of the first sample that is to come or go."""
        if adds is None:
            return self.samples_.get(deletes[0]).features
        row: list[Any] = adds.cells[0].tolist()
        for column, texts in adds.texts.items():
            row[column] = texts[0]
        return row

    def leaving(self, n_new: int) -> list[str]:
        """The ids that leave by themselves when so many samples are added: those that slide out of a window."""
        return [self.samples_.id_of(slot) for slot in self.engine_.leaving(n_new)]

    def resolve(self, max_tags: int | None = None) -> int:
        """Rebuild what was put off and return how many tags there were; or work on `max_tags` of them at most.

        Queries do this by themselves, for their own paths. Resolving ahead keeps them fast. With `max_tags` each call
        is short, if the kind can work on a part of a tag: then it may leave tags further down, and there are none left
        when `n_lazy_tags_` is 0.
        """
        self.check_is_fitted()
        return self.engine_.resolve(self.problem(), max_tags)

    def resolve_until(self, stop: Ints) -> int:
        """Rebuild what was put off until nothing is left, or `stop` is set, and return how many tags were worked on.

        For a thread that has the model to itself meanwhile: who wants it back sets `stop`, and waits for one node at
        most if the model `yields_`.

        Parameters
        ----------
        stop : int64 array of shape (1,)
            Set by another thread to something else than 0.
        """
        self.check_is_fitted()
        return self.engine_.resolve_until(self.problem(), stop)

    def wipe(self) -> None:
        """Overwrite what is kept of samples no longer held: the working space; resolves all tags.

        What a sample leaves in slots, tables, leaves and pools is overwritten when it goes. Splits that were chosen
        with it stay in a model that is not exact, until `scrub`.
        """
        self.resolve()
        self.engine_.wipe()

    def scrub(self) -> None:
        """Leave no trace of samples that were deleted, not even in the choice of splits; resolves all tags.

        A model that is not exact is built anew.
        """
        self.check_is_fitted()
        if self.guarantee != "exact":
            self.refit()
        self.wipe()

    def shred(self) -> None:
        """Overwrite the samples and trees of a model that is about to be let go of: it cannot be used afterwards.

        Freed memory then holds no sample, texts aside. No other thread may be reading the model; copies and answers
        share nothing with it that is overwritten.
        """
        if self.__sklearn_is_fitted__():
            store, engine = self.samples_, self.engine_
            del self.samples_, self.schema_  # whoever uses it all the same is told that it is not fitted
            engine.shred()
            store.shred()

    # -- reading --------------------------------------------------------------------------------

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

    def problem(self) -> Problem:
        """The samples as engines read them; anew after each change."""
        return self.samples_.problem()

    def data(self) -> Data:
        """The samples as kernels read them; anew after each change."""
        return self.problem().data

    def _encode_queries(self, X: Any) -> tuple[Array, Hashes]:
        """Encode rows to be predicted; see `SampleStore.encode_queries`."""
        self.check_is_fitted()
        encoded = self.samples_.encode_queries(X)
        if len(self.samples_) == 0:
            raise EmptyModelError("the model holds no samples: add some before predicting")
        return encoded

    @property
    def n_samples_(self) -> int:
        """Number of samples held."""
        self.check_is_fitted()
        return len(self.samples_)

    @property
    def n_lazy_tags_(self) -> int:
        """Number of tagged nodes."""
        self.check_is_fitted()
        return self.engine_.n_tags

    @property
    def yields_(self) -> bool:
        """Whether `resolve_until` stops soon."""
        self.check_is_fitted()
        return self.engine_.yields

    @property
    def n_mutations_since_scrub_(self) -> int:
        """Samples added and deleted since the last `fit` or `scrub`; of a model that is not exact."""
        self.check_is_fitted()
        return self.engine_.n_mutations

    @property
    def nbytes_(self) -> int:
        """Bytes of trees and samples, unused capacity included."""
        self.check_is_fitted()
        return self.engine_.nbytes + self.samples_.nbytes

    @property
    def feature_importances_(self) -> Reals:
        """Share of each feature in what all splits gain, float64[d]; resolves all tags. O(model)."""
        self.resolve()
        return self.engine_.importances()

    def seconds_to_verify(self) -> float:
        """How long `verify` takes, roughly."""
        return self.engine_.seconds_to_verify(self.problem())

    def check_invariants(self) -> None:
        """Check samples and trees for internal soundness; slow, for tests.

        Raises
        ------
        AssertionError
            Naming what is broken.
        """
        self.check_is_fitted()
        store, engine = self.samples_, self.engine_
        store.check_invariants()
        engine.check_invariants(self.problem(), store.slots_in_order() if engine.keeps_order else store.slots())
