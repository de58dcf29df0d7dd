"""What every kind of model offers: fit and changes, an engine over the samples, answers and tags.

    estimator.py    what users see: parameters, documentation, what only this kind offers
    Model           checks input, owns the sample store, translates ids, labels and categories into slots and codes;
                    digests, checks, copies, saves, loads
    Engine          the trees (`core/engine.py`)

What a service needs of a model is public.
"""

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple, Self, TypeVar, cast

import numpy as np

from oubli.core.array_types import Array, Hashes, Ints, Reals
from oubli.core.concurrency.changes import Changes
from oubli.core.concurrency.locks import reads, reads_long, writes
from oubli.core.concurrency.threads import beside, is_long, threads_of
from oubli.core.data.schema import Schema, label_key
from oubli.core.data.tables import row_blocks
from oubli.core.data.targets import read_label_column
from oubli.core.engine import Progress
from oubli.core.errors import EmptyModelError, InputError, UnknownIdError
from oubli.core.planning import Changeable
from oubli.core.samples.arrays import Data, Problem
from oubli.core.samples.identity import check_rows, read_row, read_rows, read_targets
from oubli.core.samples.records import Prepared, Rows
from oubli.core.samples.store import SampleStore

T = TypeVar("T")

_SPARSE_ROWS = 4096  # of a sparse matrix, that are dense at a time
_INDEXING = 5e-7  # seconds that it takes to index an id, roughly


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


class Model(Changeable):
    """An engine over a sample store, which may be used from any number of threads: see `core/concurrency/locks.py`."""

    # -- learning -------------------------------------------------------------------------------

    def fit(
        self,
        X: Any,
        y: Any,
        *,
        ids: Any = None,
        subjects: Any = None,
        expires_at: Any = None,
        sample_weight: Any = None,
        categorical_features: Any = None,
        dtype: Any = None,
        schema: Schema | None = None,
        classes: str | Sequence[Any] | None = None,
        max_classes: int | None = None,
        extra_columns: str | None = None,
        missing_columns: str | None = None,
        progress: Progress | None = None,
    ) -> Self:
        """Grow the trees on samples, in place of all that was held before.

        Parameters
        ----------
        X : array, table, sparse matrix or list of rows, shape (n, d)
            Columns of a table (pandas, polars, pyarrow, or one with a protocol of theirs) are matched by name. NaN and
            None are missing values; what a sparse matrix (SciPy) does not store is 0. Numbers are held as float32 or
            float64, see `dtype`.
        y : array or list, shape (n,)
            Matched with X by position; the index of a Series is ignored.
        ids : sequence of str or int, length n, name of a column, or "generate", optional
            Names to delete the samples by. When left out, the labels of the index if X is a DataFrame with one that
            is not pandas' default, else "0", "1", ... A column that is named is no feature.
        subjects : sequence of str or int, length n, or name of a column, optional
            Whom the samples are about; missing where there is none.
        expires_at : sequence of datetime, length n, name of a column, or one datetime, optional
            When the samples have to go, with a time zone, or as text (RFC 3339); missing where never. The library
            deletes nothing by itself: `samples_.due` names what has to go.
        sample_weight : sequence of numbers, length n, name of a column, or one number, optional
            Weights from 1/512 to 32,768, rounded to multiples of 1/256; 1 when left out. A sample of weight 2 counts as
            two equal ones, but that a forest gives it the trees of one. A sample of weight 0 is not held.
        categorical_features : list of indices or names, or mask of shape (d,), optional
            Columns to treat as categories; inferred from their types when left out.
        dtype : {"float32", "float64"} or mapping of int or str to it, optional
            How numbers are held, in all columns or by name or position. Otherwise a column is float32, and float64 when
            float32 would make two of its distinct values equal, change an integer, make a value 0, or is too small for
            it; the logger `oubli.numbers` says which are. Later numbers that do not fit are rounded as these are: the
            logger says so once for each column.
        schema : Schema, optional
            Column and label types, instead of inferring them.
        classes : {"open", "closed"} or list of labels, optional
            "open" takes any label. "closed" refuses labels that are not among those of y, or in the schema's list; a
            class stays allowed when no sample of it is held any more. A list names the only ones. When left out, as
            the schema says: it is open unless it has a list.
        max_classes : int, optional
            Most classes that may be held at a time; 1,000 unless the schema says otherwise.
        extra_columns : {"refuse", "ignore"}, optional
            Whether later rows with names (tables, and lists of dictionaries) may have columns that the model does not
            know. When left out, as the schema says: they are refused.
        missing_columns : {"refuse", "missing"}, optional
            Whether such rows may lack columns, whose values are then missing. As `extra_columns`.
        progress : callable(done, total), optional
            Called after each tree.

        Raises
        ------
        InputError
            With the row, the field and the rule.

        Warns
        -----
        IndexWarning
            When no label of the index is text, an integer or a date; then ids are generated.

        Whatever is raised, also MemoryError and KeyboardInterrupt, the estimator is as it was.

        Examples
        --------
        >>> from oubli import DynamicForestClassifier
        >>> X, y = [[21.0, "town"], [64.0, "sea"]], ["rent", "own"]
        >>> DynamicForestClassifier().fit(X, y, ids=["ada-1", "bob-1"], subjects=["ada", "bob"]).n_samples_
        2
        """
        if schema is not None and dtype is not None:
            raise InputError("a schema has the dtype of each column: pass dtype or schema, not both")
        rows = read_rows(X, ids=ids, subjects=subjects, expires_at=expires_at, sample_weight=sample_weight)
        if schema is None:
            schema = Schema.infer(rows.X, y, task=self.task, categorical_features=categorical_features, dtype=dtype)
        if extra_columns is not None:
            schema = replace(schema, extra_columns=extra_columns)
        if missing_columns is not None:
            schema = replace(schema, missing_columns=missing_columns)
        settings = self.checked_settings(schema)
        self.expect_kernels(schema)
        store = SampleStore(schema, owner=type(self).__name__)
        store.n_threads = store.encoder.n_threads = threads_of(self.n_jobs)
        store.take_bounds(settings)
        prepared = store.prepare(rows.X, y, rows.ids, rows.weights, may_be_zero=True)
        if prepared.weights is not None and not prepared.weights.all():
            prepared, rows = _taken(prepared, rows, np.flatnonzero(prepared.weights).tolist())
        self._weigh_classes(store, prepared)
        store.check_total(prepared.units, prepared.n)
        check_rows(rows, prepared.n, store.restricted)
        if classes is not None or max_classes is not None:
            labels = prepared.labels if isinstance(prepared.labels, list) else ()
            store.schema = store.schema.with_classes(classes, max_classes, labels)
        store.admit_classes(prepared)
        self.engine_type(settings).check_capacity(settings, prepared.n)
        store.attach_many(store.commit(prepared), rows, is_first=True)
        return self._fit_store(settings, store, progress)

    def _weigh_classes(self, store: SampleStore, prepared: Prepared) -> None:
        """Give the classes of the first samples the weights that the parameters ask for, if they do."""
        class_weight, factor = getattr(self, "class_weight", None), getattr(self, "scale_pos_weight", None)
        if factor is not None:
            classes = sorted(set(map(label_key, prepared.labels))) if isinstance(prepared.labels, list) else []
            if class_weight is not None or len(classes) != 2:
                raise InputError("needs two classes, and no class_weight beside it", field="scale_pos_weight")
            class_weight = {classes[1][1]: factor}
        if class_weight is not None:
            store.weigh_classes(class_weight, prepared)

    def start(self, schema: Schema) -> Self:
        """Begin with no samples; `add` does the rest.

        Parameters
        ----------
        schema : Schema
            Types of columns and label.

        Raises
        ------
        InputError
            When a parameter or the schema does not fit.

        Examples
        --------
        >>> from oubli import DynamicForestClassifier
        >>> from oubli.core.data.schema import Schema
        >>> schema = Schema.infer([[1.5, "red"]], ["yes"], task="classification")
        >>> DynamicForestClassifier(random_state=0).start(schema).add([[2.5, "blue"]], ["no"])
        ['0']
        """
        if (class_weight := getattr(self, "class_weight", None)) is not None:
            if not isinstance(class_weight, Mapping):
                raise InputError("must be weights by class: there are no samples yet", field="class_weight")
            schema = replace(schema, class_weight=tuple(class_weight.items()))
        fitted = self._beside()
        fitted.begin(schema, self.checked_settings(schema))
        self._become(fitted)
        return self

    def fit_held(self, store: SampleStore, progress: Progress | None = None) -> Self:
        """Internal: fit on the samples of a store, which belongs to this model from now on; as `fit` on the same.

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
        n_threads = store.n_threads if is_long(_INDEXING * len(store)) else 1
        beside(partial(fitted.refit, progress), store.build_index, n_threads)
        self._become(fitted)
        return self

    @writes
    def refit(self, progress: Progress | None = None) -> None:
        """Internal: fit the trees again on the samples held."""
        store = self.samples_
        self.engine_.fit(store.problem(), store.slots(), progress)

    @writes
    def set_classes(self, classes: Any, max_classes: int | None) -> None:
        """Set the rules about classes. Parameters are those of `fit`.

        Closed classes are those of the samples held, restricted or not.

        Raises
        ------
        InputError
            When a rule is none; nothing has changed.

        Examples
        --------
        >>> from oubli import DynamicForestClassifier
        >>> model = DynamicForestClassifier(random_state=0).fit([[0.0], [1.0], [2.0]], ["a", "b", "b"])
        >>> model.set_classes("closed", None)
        >>> model.schema_.classes
        ('a', 'b')
        """
        self.check_is_fitted()
        store = self.samples_
        held = [label for part in store.parts for label in part.classes.values(part.classes.order())]
        self.schema_ = store.schema = self.schema_.with_classes(classes, max_classes, held)

    @writes
    def add(
        self,
        X: Any,
        y: Any,
        *,
        ids: Any = None,
        subjects: Any = None,
        expires_at: Any = None,
        sample_weight: Any = None,
    ) -> list[str]:
        """Learn samples in place.

        Parameters are those of `fit`. The labels of pandas' default index are ids, too, if others of the model came
        from an index. They are refused if the ids of its first samples were given: pass ids.

        Returns
        -------
        list of str
            The ids, generated when there were none. An id that was generated or given is never generated later.

        Raises
        ------
        InputError
            Also when an id is held already (`DuplicateIdError`); nothing has changed.

        Examples
        --------
        >>> from oubli import DynamicForestClassifier
        >>> model = DynamicForestClassifier(random_state=0).fit([[0.0], [1.0], [2.0]], ["a", "b", "b"])
        >>> model.add([[3.0], [4.0]], ["b", "c"], ids=["ada", "bob"])
        ['ada', 'bob']
        >>> model.n_samples_
        5
        """
        if type(X) is list and len(X) == 1 and ids is subjects is expires_at is sample_weight is None:
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
        self.check_is_fitted()
        rows = read_rows(
            X, ids=ids, subjects=subjects, expires_at=expires_at, sample_weight=sample_weight, store=self.samples_
        )
        self._check_names(rows.X)
        prepared = self._prepare(rows, y)
        self.samples_.admit_classes(prepared)
        self._add([(prepared, rows)])
        return list(prepared.ids or ())

    @writes
    def partial_fit(
        self,
        X: Any,
        y: Any,
        classes: Any = None,
        *,
        ids: Any = None,
        subjects: Any = None,
        expires_at: Any = None,
        sample_weight: Any = None,
    ) -> Self:
        """Add samples, or fit when nothing has been fitted yet.

        Parameters are those of `fit`. `classes` is only checked: labels outside it are refused. The classes follow the
        samples.

        Examples
        --------
        >>> from oubli import DynamicForestClassifier
        >>> model = DynamicForestClassifier(random_state=0)
        >>> model.partial_fit([[0.0]], ["a"]).partial_fit([[1.0]], ["b"]).n_samples_
        2
        """
        if classes is not None:
            self._check_classes(y, classes)
        if not self.__sklearn_is_fitted__():
            return self.fit(X, y, ids=ids, subjects=subjects, expires_at=expires_at, sample_weight=sample_weight)
        self.add(X, y, ids=ids, subjects=subjects, expires_at=expires_at, sample_weight=sample_weight)
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

    @writes
    def delete(self, ids: Any = None, *, subjects: Any = None) -> None:
        """Unlearn samples in place.

        Parameters
        ----------
        ids : str, int, date, or iterable of them
            Labels of a DataFrame's index, if they gave the ids; a date or a time is its ISO text.
        subjects : str, int, date, or iterable of them
            Instead of ids: all samples of these subjects, also restricted ones.

        Raises
        ------
        UnknownIdError
            (a KeyError) when an id is not held, or a subject has no sample; nothing has changed.
        InputError
            For what is no list of ids, such as a table or bytes.

        Examples
        --------
        >>> from oubli import DynamicForestClassifier
        >>> model = DynamicForestClassifier(random_state=0).fit([[0.0], [1.0], [2.0]], ["a", "b", "b"])
        >>> model.delete(["0", "2"])
        >>> model.samples_.ids()
        ['1']
        """
        self.check_is_fitted()
        store = self.samples_
        if subjects is None:
            self._delete(store.find(read_targets(store, ids, None)))
            return
        plan = self.plan_delete(ids, subjects=subjects)
        if plan.absent:
            raise UnknownIdError(plan.absent, "subject")
        self.apply(plan)

    @writes
    def replace(
        self,
        sample_id: str | int,
        x: Any,
        y: Any,
        *,
        ids: Any = None,
        subjects: Any = None,
        expires_at: Any = None,
        sample_weight: Any = None,
    ) -> None:
        """Rectify one sample: new features and label under the id it has.

        Parameters
        ----------
        sample_id : which.
        x, y : the new features, as a row or a table of one row, and the new label.
        ids : name of the column of x that holds the id, which is no feature then.
        subjects, expires_at, sample_weight : as in `fit`; what is left out stays.

        Raises
        ------
        UnknownIdError
            When the id is not held.
        InputError
            When the new content is refused, or x has another id; nothing has changed.

        Examples
        --------
        >>> from oubli import DynamicForestClassifier
        >>> model = DynamicForestClassifier(random_state=0).fit([[0.0], [1.0], [2.0]], ["a", "b", "b"])
        >>> model.replace("2", [7.0], "a")
        >>> model.samples_.get("2").features, model.samples_.get("2").label
        ([7.0], 'a')
        """
        self.check_is_fitted()
        store = self.samples_
        belongings = store.belongings(sample_id)._replace(nonce=None)  # it belongs to the content that goes
        weight = store.get(sample_id).weight if sample_weight is None else sample_weight
        rows = read_row(x, sample_id, ids=ids, subjects=subjects, expires_at=expires_at, sample_weight=weight)
        prepared = self._prepare(rows, [y], allow_held=True)
        store.admit_classes(prepared, sample_id)
        if rows.subjects is not None:
            belongings = store.with_subject(belongings, rows.subjects[0])
        if rows.expires is not None:
            expires_ms = rows.expires if isinstance(rows.expires, int) else rows.expires[0]
            belongings = belongings._replace(expires_ms=expires_ms)
        self._relearn(sample_id, prepared, belongings)

    @reads
    def holds(self, sample_id: object) -> bool:
        """Whether a sample is held under an id.

        Parameters
        ----------
        sample_id : str or int

        Raises
        ------
        InputError
            When it is no id.

        Examples
        --------
        >>> from oubli import DynamicForestClassifier
        >>> model = DynamicForestClassifier(random_state=0).fit([[0.0], [1.0], [2.0]], ["a", "b", "b"])
        >>> model.holds("2"), model.holds("ada")
        (True, False)
        """
        self.check_is_fitted()
        return self.samples_.contains(sample_id)

    @reads
    def resolve(self, max_tags: int | None = None) -> int:
        """Rebuild what was put off and return how many tags there were.

        Queries do this by themselves, for their own paths. Resolving ahead keeps them fast.

        Parameters
        ----------
        max_tags : int, optional
            Most tags to work on: then each call is short, if the kind can work on a part of a tag. It may leave tags
            further down, and there are none left when `n_lazy_tags_` is 0.

        Examples
        --------
        >>> from oubli import DynamicForestClassifier
        >>> model = DynamicForestClassifier(random_state=0).fit([[0.0], [1.0], [2.0]], ["a", "b", "b"])
        >>> model.delete("0")
        >>> n_tags = model.resolve()
        >>> model.n_lazy_tags_
        0
        """
        self.check_is_fitted()
        engine, lock = self.engine_, self.lock
        if not (engine.n_tags or lock.resolver):
            return 0
        return lock.resolve(partial(engine.resolve, self.problem(), max_tags))

    def build_planted(self) -> None:
        """Internal: build the trees if all of them have yet to be built, as after a change of very many samples."""
        self.check_is_fitted()
        if self.engine_.is_planted_only:
            self.resolve()

    @reads
    def resolve_until(self, stop: Ints) -> int:
        """Internal: rebuild what was put off until nothing is left, or `stop` is set; returns how many tags were.

        For a thread that has the model to itself during this time. Another thread that needs the model sets `stop`, and
        waits for one node at most if the model `yields_`.

        Parameters
        ----------
        stop : int64 array of shape (1,)
            Set by another thread to something else than 0.
        """
        self.check_is_fitted()
        return self.lock.resolve(partial(self.engine_.resolve_until, self.problem(), stop))

    @writes
    def wipe(self) -> None:
        """Internal: overwrite what is kept of samples no longer held: the working space; resolves all tags.

        What a sample leaves in slots, tables, leaves and pools is overwritten when it goes. Splits that were chosen
        with it stay in a model that is not exact, until `scrub`.
        """
        self.resolve()
        self.lock.resolve(self.engine_.wipe)

    @writes
    def scrub(self) -> None:
        """Leave no trace of samples that were deleted, not even in the choice of splits; resolves all tags.

        A model that is not exact is rebuilt.

        Examples
        --------
        >>> from oubli import OnlineBoostingRegressor
        >>> model = OnlineBoostingRegressor(n_estimators=3, random_state=0).fit([[0.0], [1.0], [2.0]], [1.0, 2.0, 3.0])
        >>> model.delete("0")
        >>> model.scrub()
        >>> model.n_mutations_since_scrub_
        0
        """
        self.check_is_fitted()
        if self.guarantee != "exact":
            self.refit()
        self.wipe()

    @writes
    def shred(self) -> None:
        """Internal: overwrite the samples and trees of a model that is no longer needed: it cannot be used afterwards.

        Freed memory then holds no sample, texts aside. Copies and answers share nothing with it that is overwritten.
        """
        if self.__sklearn_is_fitted__():
            store, engine = self.samples_, self.engine_
            with Changes(self.lock):
                del self.samples_, self.schema_  # a later use raises NotFittedError
            engine.shred()
            store.shred()

    # -- reading --------------------------------------------------------------------------------

    @abstractmethod
    def predict(self, X: Any) -> Array:
        """Predict the class or the number of each row."""

    @abstractmethod
    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """How well the rows are predicted; 1 is best."""

    @abstractmethod
    def query(self, X: Any, *, frozen: bool = False) -> QueryResult:
        """Predict labels and probabilities at once.

        Parameters
        ----------
        X : array, DataFrame or list of rows, shape (n, d)
        frozen : bool
            Write no trees: look through tags instead of resolving them, so that another thread can copy the model
            at the same time.

        Raises
        ------
        InputError
            When the input is refused.
        EmptyModelError
            With no samples left.
        """

    def problem(self) -> Problem:
        """Internal: the samples as engines read them; ask again after each change."""
        return self.samples_.problem()

    def data(self) -> Data:
        """Internal: the samples as kernels read them; ask again after each change."""
        return self.problem().data

    def _read_trees(self, read: Callable[..., T], X: Any, frozen: bool = False) -> T:
        """Predict rows by a method of the engine, of a fitted model; one thread at a time where there are tags."""
        if len(blocks := row_blocks(X, _SPARSE_ROWS)) > 1:
            parts: Any = [self._read_trees(read, block, frozen) for block in blocks]
            return cast(T, np.concatenate(parts))
        (cells, category_hashes), lock = self._encode_queries(X), self.lock
        order = self.samples_.classes.order()
        # In this order: a thread that resolves the last tag is the resolver until it has written all of it.
        if not self.engine_.n_tags and not lock.resolver:
            return read(cells, category_hashes, order, self.problem, frozen)
        if not frozen:
            return lock.resolve(partial(read, cells, category_hashes, order, self.problem, False))
        with lock.room:
            return read(cells, category_hashes, order, self.problem, True)

    def _encode_queries(self, X: Any) -> tuple[Array, Hashes]:
        """Encode rows to be predicted; see `SampleStore.encode_queries`."""
        self.check_is_fitted()
        encoded = self.samples_.encode_queries(X)
        if len(self.samples_) == 0:
            raise EmptyModelError("the model holds no samples: add some before predicting")
        return encoded

    @property
    @reads
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
        """Internal: whether `resolve_until` stops soon."""
        self.check_is_fitted()
        return self.engine_.yields

    @property
    @reads
    def n_mutations_since_scrub_(self) -> int:
        """Samples added and deleted since the last `fit` or `scrub`; of a model that is not exact."""
        self.check_is_fitted()
        return self.engine_.n_mutations

    @property
    @reads_long
    def feature_importances_(self) -> Reals:
        """Share of each feature in what all splits gain, float64[d]; resolves all tags. O(model)."""
        self.resolve()
        return self.engine_.importances()

    def seconds_to_answer(self, n_rows: int) -> float:
        """Internal: how long it takes to predict so many rows, roughly."""
        return self.engine_.seconds_to_answer(n_rows)

    @reads
    def seconds_to_verify(self) -> float:
        """Internal: how long `verify` takes, roughly."""
        return self.engine_.seconds_to_verify(self.problem())

    @reads_long
    def check_invariants(self) -> None:
        """Internal: check samples and trees for internal soundness; slow, for tests.

        Raises
        ------
        AssertionError
            Naming what is broken.
        """
        self.check_is_fitted()
        store, engine = self.samples_, self.engine_
        store.check_invariants()
        engine.check_invariants(self.problem(), store.slots_in_order() if engine.keeps_order else store.slots())


class SomeTrees(NamedTuple):
    """What is known of a fit of which some trees were grown.

    Attributes
    ----------
    header
        All that the digest hashes besides the digests of the trees, see `model_digest`.
    digests
        Of the trees that were grown, by their numbers.
    """

    header: str
    digests: dict[int, str]


def separate_trees_of(model: Model) -> int:
    """Return how many trees a model has each of which can be grown without the others; 0 where they are not separate.

    Parameters
    ----------
    model
        Fitted, or begun (`start`).
    """
    engine = model.engine_
    return engine.n_drawn_trees if engine.has_separate_trees else 0


def grow_some(
    model: Model,
    trees: Sequence[int],
    X: Any,
    y: Any,
    *,
    ids: Sequence[Any],
    sample_weight: Any = None,
    progress: Progress | None = None,
) -> SomeTrees:
    """Grow some trees of the fit on samples, bit for bit as the whole fit does, in the time and memory of so many.

    Parameters
    ----------
    model
        Begun with the schema of the samples (`start`), without any. It cannot be used afterwards.
    trees
        Numbers of trees, each once.
    X, y, ids, sample_weight, progress
        As for `fit`; there may be no samples.

    Raises
    ------
    InputError
        When a sample is refused, when there is no such tree, or when the trees of this kind depend on each other.
    CapacityError
        When the whole fit could not hold so many samples.
    """
    store, engine = model.samples_, model.engine_
    n_trees = separate_trees_of(model)
    if not n_trees:
        raise InputError(f"the trees of a {type(model).__name__} depend on each other: use `fit`")
    if len({*trees}) < len(trees) or not all(0 <= tree < n_trees for tree in trees):
        raise InputError(f"trees must be different numbers from 0 to {n_trees - 1}")
    try:
        prepared = store.prepare(X, y, ids, sample_weight) if ids else None
        model.require_room(len(ids), prepared)
        if prepared is not None:
            store.commit(prepared)
        digests = engine.fit_some(store.problem(), store.slots(), trees, model.class_order(), progress)
        return SomeTrees(model.header_text(), dict(zip(trees, digests, strict=True)))
    finally:
        model.shred()


def _taken(prepared: Prepared, rows: Rows, kept: list[int]) -> tuple[Prepared, Rows]:
    """Take some rows, those of a weight above 0; they have the ids that they had among all."""
    if not kept:
        raise InputError("is zero for all samples: at least one needs a weight above zero", field="sample_weight")
    if prepared.ids is None:
        prepared.ids = list(map(str, range(prepared.n)))
    return prepared.take(kept), rows.take(kept)
