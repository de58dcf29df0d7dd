"""Models that can be compared with a fresh fit, copied, pickled, written to a file and read again.

What every estimator shares with scikit-learn, without needing it.

scikit-learn's own classes (its NotFittedError, its Tags) are only used once another module has
imported it.
"""

import inspect
import json
import sys
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from copy import deepcopy
from functools import partial
from importlib import import_module
from os import PathLike
from types import MappingProxyType
from typing import Any, ClassVar, Self, TypeVar

import numpy as np

from oubli.core import persistence
from oubli.core.array_types import Array, Arrays, Ints
from oubli.core.bounds import is_same_json, require_sound
from oubli.core.concurrency.changes import Changes
from oubli.core.concurrency.locks import ModelLock, reads, reads_long, writes
from oubli.core.concurrency.threads import beside, threads_of
from oubli.core.data.schema import Schema, Task
from oubli.core.data.tables import is_named
from oubli.core.engine import (
    Counterpart,
    Engine,
    Progress,
    Shape,
    Verification,
    compare_trees,
    header_text,
    model_digest,
    named_classes,
)
from oubli.core.errors import FileError, InputError, NotFittedError, for_scikit_learn, warn_caller
from oubli.core.jit.policy import fill_with
from oubli.core.parameters import N_JOBS, WEIGHTS
from oubli.core.registry import PLACES, variant_of
from oubli.core.samples.serialise import canonical_parts, store_bytes
from oubli.core.samples.store import SampleStore

_joining = threading.Lock()
_INTERNAL = "Internal: "  # how docstrings begin of what is for services and tests
ROUTED = ("fit", "partial_fit", "score")  # methods to which scikit-learn's tools may pass more than X and y


class Estimator:
    """Parameters and tags by scikit-learn's conventions."""

    schema_: "Schema"
    samples_: "SampleStore"
    _estimator_type: str
    # What scikit-learn's tools are to pass on, by method and parameter, where anything was said.
    _requests: Mapping[str, Mapping[str, bool | str | None]] = MappingProxyType({})
    # Attributes without docstrings that are for services and tests.
    _internal: ClassVar[tuple[str, ...]] = ("lock", "is_boosted", "small_parameters", "earlier_parameters")

    __slots__ = ("__dict__", "__weakref__", "lock")  # the lock is no attribute that is fitted
    lock: ModelLock

    def __new__(cls, *_arguments: Any, **_parameters: Any) -> Self:
        """Make an estimator with a lock of its own."""
        _join_scikit_learn(cls)
        estimator = super().__new__(cls)
        estimator.lock = ModelLock()
        return estimator

    def _keep(self, arguments: dict[str, Any]) -> None:
        """Keep the constructor's arguments, as they are, in attributes of their names."""
        self.__dict__.update((name, value) for name, value in arguments.items() if name != "self")

    @classmethod
    def _parameter_names(cls) -> list[str]:
        signature = inspect.signature(cls.__init__)
        return sorted(name for name in signature.parameters if name != "self")

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Return the constructor's parameters by name.

        Examples
        --------
        >>> from oubli import DynamicForestClassifier
        >>> DynamicForestClassifier(n_estimators=5).get_params()["n_estimators"]
        5
        """
        return {name: getattr(self, name) for name in self._parameter_names()}

    def set_params(self, **params: Any) -> Self:
        """Set constructor parameters; they take effect with the next `fit`.

        Raises
        ------
        InputError
            When there is no parameter of this name.
        """
        known = self._parameter_names()
        for name in params:
            if name not in known:
                raise InputError(
                    f"Invalid parameter {name!r} for estimator {type(self).__name__}. Valid parameters are: {known}"
                )
        for name, value in params.items():
            setattr(self, name, value)
        return self

    def __repr__(self) -> str:
        """Name the class and the parameters that are not at their defaults."""
        defaults = inspect.signature(type(self).__init__).parameters
        changed = [
            f"{name}={value!r}"
            for name, value in self.get_params().items()
            if not _is_default(value, defaults[name].default)
        ]
        return f"{type(self).__name__}({', '.join(changed)})"

    def __dir__(self) -> list[str]:
        """Name all but what is said to be internal where it is defined: by a docstring, also of a whole class."""
        hidden = set(self._internal)
        for base in type(self).__mro__:
            is_internal = (base.__doc__ or "").startswith(_INTERNAL)
            hidden |= {name for name, one in vars(base).items() if is_internal or _is_internal(one)}
        return [name for name in super().__dir__() if name not in hidden or name.startswith("_")]

    def __sklearn_is_fitted__(self) -> bool:
        """Whether `fit`, `start` or `load` has been called."""
        return hasattr(self, "schema_")

    def check_is_fitted(self) -> None:
        """Internal: check that there is a model, and that no change of it was broken off.

        Raises
        ------
        NotFittedError, UnusableModelError
        """
        try:
            changes = self.samples_.changes
        except AttributeError:
            raise for_scikit_learn(NotFittedError)(
                f"This {type(self).__name__} instance is not fitted yet: call 'fit' with samples, or "
                "'start' with a schema, before using it"
            ) from None
        if changes.depth:
            changes.check()

    @property
    def is_usable(self) -> bool:
        """Internal: whether there is a model that can be used: fitted, and no change of it was broken off halfway."""
        return self.__sklearn_is_fitted__() and not self.samples_.changes.is_broken

    def _check_names(self, X: Any) -> None:
        """Warn, as scikit-learn does, when only one of X and the schema has names for its columns.

        Lists are left alone: rows in the order of the features are what they are for.
        """
        self.check_is_fitted()
        named = self.schema_.named
        if isinstance(X, (list, tuple)) or (type(X) is not np.ndarray and is_named(X)) is named:
            return
        model = type(self).__name__
        if named:
            text = f"X does not have valid feature names, but {model} was fitted with feature names"
        else:
            text = f"X has feature names, but {model} was fitted without feature names"
        warn_caller(f"{text}: its columns are taken by position", UserWarning)

    def get_metadata_routing(self) -> Any:
        """Internal: what else the methods ask scikit-learn's tools for; called by scikit-learn only."""
        from sklearn.utils.metadata_routing import MetadataRequest

        routing = MetadataRequest(owner=type(self).__name__)
        for method in ROUTED:
            asked = self._requests.get(method, {})
            for name in self._metadata_of(method):
                getattr(routing, method).add_request(param=name, alias=asked.get(name))
        return routing

    def set_fit_request(self, **requests: bool | str | None) -> Self:
        """Say which parameters of `fit` scikit-learn's tools pass on, when its metadata routing is enabled.

        Parameters
        ----------
        requests : by parameter
            True: pass it on; False: do not; None: refuse it; text: pass on what has this name.

        Raises
        ------
        TypeError
            When the method has no such parameter.

        Examples
        --------
        >>> from oubli import DynamicForestClassifier
        >>> DynamicForestClassifier(n_estimators=5).set_fit_request(ids=True, sample_weight=True)
        DynamicForestClassifier(n_estimators=5)
        """
        return self._request("fit", requests)

    def set_partial_fit_request(self, **requests: bool | str | None) -> Self:
        """Say which parameters of `partial_fit` scikit-learn's tools pass on; see `set_fit_request`.

        Examples
        --------
        >>> from oubli import DynamicForestClassifier
        >>> DynamicForestClassifier(n_estimators=5).set_partial_fit_request(ids=True)
        DynamicForestClassifier(n_estimators=5)
        """
        return self._request("partial_fit", requests)

    def set_score_request(self, **requests: bool | str | None) -> Self:
        """Say which parameters of `score` scikit-learn's tools pass on; see `set_fit_request`.

        Examples
        --------
        >>> from oubli import DynamicForestClassifier
        >>> DynamicForestClassifier(n_estimators=5).set_score_request(sample_weight=True)
        DynamicForestClassifier(n_estimators=5)
        """
        return self._request("score", requests)

    def _request(self, method: str, requests: Mapping[str, bool | str | None]) -> Self:
        known = self._metadata_of(method)
        if unknown := [name for name in requests if name not in known]:
            raise TypeError(f"{method} has no parameter {unknown[0]!r} that can be asked for: use one of {known}")
        asked = self._requests
        self._requests = {**asked, method: {**asked.get(method, {}), **requests}}
        return self

    @classmethod
    def _metadata_of(cls, method: str) -> list[str]:
        return [name for name in inspect.signature(getattr(cls, method)).parameters if name not in {"self", "X", "y"}]

    def __sklearn_tags__(self) -> Any:
        """scikit-learn's tags; called by scikit-learn only."""
        from sklearn.utils import ClassifierTags, InputTags, RegressorTags, Tags, TargetTags

        is_classifier = self._estimator_type == "classifier"
        return Tags(
            estimator_type=self._estimator_type,
            target_tags=TargetTags(required=True),
            classifier_tags=ClassifierTags() if is_classifier else None,
            regressor_tags=None if is_classifier else RegressorTags(),
            input_tags=InputTags(allow_nan=True, categorical=True, string=True, sparse=True),
        )


def _is_internal(one: Any) -> bool:
    return not isinstance(one, str) and (getattr(one, "__doc__", None) or "").startswith(_INTERNAL)


def _join_scikit_learn(cls: type[Estimator]) -> None:
    """Make classifiers and regressors know to `isinstance` as scikit-learn's, once another module has imported that.

    Tools ask so that are older than tags. The mixin comes last, so that nothing of it is used.
    """
    name = {"classifier": "ClassifierMixin", "regressor": "RegressorMixin"}.get(getattr(cls, "_estimator_type", ""), "")
    mixin = getattr(sys.modules.get("sklearn.base"), name, None)
    if mixin is None or issubclass(cls, mixin):
        return
    with _joining:  # two threads would add it twice
        owner: Any = next(base for base in cls.__mro__ if "_estimator_type" in vars(base))
        if not issubclass(cls, mixin):
            owner.__bases__ = (*owner.__bases__, mixin)


def _is_default(value: Any, default: Any) -> bool:
    # By type as well: max_features=1 is one feature, 1.0 all of them.
    return value is default or (type(value) is type(default) and bool(value == default))


T = TypeVar("T")

_SHORT = 1.0  # seconds
_MOST_COMPARED = 10_000  # samples that a distance is measured on


def _fill_cache(usage: Any) -> None:
    """Fill the kernel cache; few programs come to that, and what it needs takes long to import."""
    import_module("oubli.core.warmup").fill_cache(usage)


class Keepable(Estimator, ABC):
    """A model as its files know it; `Model` says the rest.

    Attributes
    ----------
    kind : name of the kind, in model files and settings.
    task : classification or regression.
    influence_methods : the questions about influence that the kind answers, the usual one first.
    is_boosted : whether there is a tree for each class, each of which depends on those before it.
    small_parameters : of small models in which a few changes make every kernel run, one model after the other.
    earlier_parameters : what a file means that does not have some parameter, where it is not the default.
    schema_ : types of columns and label.
    samples_ : the samples held.
    engine_ : the trees, over the samples.
    """

    kind: ClassVar[str]
    task: ClassVar[Task]
    influence_methods: ClassVar[tuple[str, ...]] = ()
    is_boosted: ClassVar[bool] = False
    small_parameters: ClassVar[tuple[Mapping[str, Any], ...]] = ({},)
    earlier_parameters: ClassVar[Mapping[str, Any]] = MappingProxyType({})
    lazy: bool = False
    n_jobs: int | None = None
    class_weight: Any

    schema_: Schema
    samples_: SampleStore
    engine_: Engine

    # -- what a kind says -----------------------------------------------------------------------

    @property
    @abstractmethod
    def guarantee(self) -> str:
        """What the trees are, compared with a fresh fit: "exact", "epsilon-feasible" or "approximate"."""

    @property
    def disclosure_(self) -> str:
        """How much answers may show of single samples: "standard", or "low" for a forest that was fitted so."""
        return "low" if getattr(self.engine_.settings, "has_low_disclosure", False) else "standard"

    @staticmethod
    @abstractmethod
    def engine_type(settings: Any) -> type[Engine]:
        """Internal: the class of the engine that some settings ask for."""

    @classmethod
    @abstractmethod
    def read_settings(cls, parameters: Mapping[str, Any], schema: Schema) -> Any:
        """Internal: check the constructor's parameters and return the settings; InputError names what does not fit."""

    @abstractmethod
    def query(self, X: Any, *, frozen: bool = False) -> Any:
        """Predict labels and probabilities at once."""

    @abstractmethod
    def resolve(self, max_tags: int | None = None) -> int:
        """Rebuild what was put off."""

    # -- threads --------------------------------------------------------------------------------

    @reads_long
    def unchanged(self, work: Callable[[], T]) -> T:
        """Internal: call what reads the model several times, and return its result: changes wait for its end."""
        return work()

    def parameters_of_model(self) -> dict[str, Any]:
        """Internal: the parameters without `n_jobs`, which no file knows, and weights, which the schema has."""
        return {name: value for name, value in self.get_params().items() if name not in {N_JOBS, *WEIGHTS}}

    def take_threads(self) -> None:
        """Internal: work with as many threads from now on as `n_jobs` asks for."""
        self.engine_.n_threads = self.samples_.n_threads = threads_of(self.n_jobs)

    def set_params(self, **params: Any) -> Self:
        """Set constructor parameters; they take effect with the next `fit`, but `n_jobs` at once.

        Raises
        ------
        InputError
            When there is no parameter of this name, or no such number of threads.

        Examples
        --------
        >>> from oubli import DynamicForestClassifier
        >>> DynamicForestClassifier().set_params(n_estimators=5, n_jobs=2)
        DynamicForestClassifier(n_estimators=5, n_jobs=2)
        """
        if N_JOBS in params and self.__sklearn_is_fitted__():
            threads_of(params[N_JOBS])
        super().set_params(**params)
        if N_JOBS in params and self.__sklearn_is_fitted__():
            self.take_threads()
        return self

    # -- beginning ------------------------------------------------------------------------------

    def checked_settings(self, schema: Schema) -> Any:
        """Internal: check the parameters and return the settings; InputError names the one that does not fit."""
        if schema.task != self.task:
            raise InputError(
                f"the schema is for {schema.task.value}, {type(self).__name__} is for {self.task.value}: "
                "use the other estimator"
            )
        threads_of(self.n_jobs)
        return self.read_settings(self.get_params(), schema)

    @property
    def settings_(self) -> Any:
        """The parameters in force, as numbers."""
        return self.engine_.settings

    @property
    def seed_(self) -> int:
        """What the trees draw from, if they draw anything."""
        self.check_is_fitted()
        return int(self.engine_.settings.seed)

    @property
    @reads
    def nbytes_(self) -> int:
        """Bytes of trees and samples, unused capacity included."""
        self.check_is_fitted()
        return self.engine_.nbytes + self.samples_.nbytes

    def begin(self, schema: Schema, settings: Any, store: SampleStore | None = None) -> None:
        """Internal: hold the samples of a store (none when left out), over trees yet to be fitted.

        settings : what `checked_settings` returned, of this model or of another one of its kind.
        """
        if store is None:
            store = SampleStore(schema, owner=type(self).__name__)
        engine = self.engine_type(settings)(*self._columns(settings, schema))
        if engine.keeps_order:
            store.remove(engine.enqueue(store.slots_in_order()))
        self.hold(store, engine)

    def expect_kernels(self, schema: Schema, what: str = "model") -> None:
        """Internal: say what this process will compile: if a kernel is missing, other processes compile all of it."""
        if self.kind in PLACES:
            variant = json.dumps(variant_of(self.kind, self.get_params()))
            fill_with(_fill_cache, (what, self.kind, self.task.value, schema.cell_dtype.name, variant))

    def _columns(self, settings: Any, schema: Schema) -> tuple[Any, ...]:
        """What an engine is made with."""
        return settings, schema.n_features, schema.cell_dtype, schema.categorical_mask, self.task is Task.CLASSIFICATION

    def hold(self, store: SampleStore, engine: Engine) -> None:
        """Internal: belong to an engine over the samples of a store."""
        self.expect_kernels(store.schema)
        for part in (store, store.restricted):
            part.take_bounds(engine.settings)
        store.changes.lock = self.lock
        engine.changes = store.changes
        self.schema_ = schema = store.schema
        self.samples_ = store
        self.engine_ = engine
        self.take_threads()
        self.n_features_in_ = schema.n_features
        if schema.named:
            self.feature_names_in_ = np.array(schema.names, dtype=object)
        elif hasattr(self, "feature_names_in_"):
            del self.feature_names_in_

    # -- digest and fresh fit -------------------------------------------------------------------

    def class_order(self) -> Ints:
        """Internal: codes of the classes held, in the order of their values."""
        return self.samples_.classes.order()

    def header_text(self) -> str:
        """Internal: all but the trees that decides a prediction, as the digest of the model begins with it."""
        weighs_classes = len(self.schema_.class_weight) > 0
        return header_text(
            {
                "format": self.engine_.format,
                "kind": self.kind,
                "task": self.task.value,
                **self.engine_.header(),
                "types": [f"{column.type.value}:{column.dtype}" for column in self.schema_.columns],
                "classes": named_classes(self.samples_.classes.values(self.class_order())),
                **({"class_weight": self.schema_.to_dict()["label"]["class_weight"]} if weighs_classes else {}),
            }
        )

    def digest_of(self, tree_digests: list[str]) -> str:
        """Internal: digest of the model, whose trees have these."""
        return model_digest(self.header_text(), tree_digests)

    @reads_long
    def tree_digests(self) -> list[str]:
        """Internal: digest of each tree, in order; resolves all tags."""
        self.resolve()
        return self.engine_.digests(self.class_order())

    @reads_long
    def digest(self) -> str:
        """Hash of everything that can influence a prediction; resolves all tags.

        Two models of the same parameters that hold the same samples have the same digest: whatever their history if
        they are exact, and after `fit` or `scrub` otherwise.

        Examples
        --------
        >>> from oubli import DynamicForestClassifier
        >>> model = DynamicForestClassifier(random_state=0).fit([[0.0], [1.0], [2.0]], ["a", "b", "b"])
        >>> before = model.digest()
        >>> model.delete(model.add([[3.0]], ["b"]))
        >>> model.digest() == before
        True
        """
        return self.digest_of(self.tree_digests())

    @reads_long
    def fresh_fit(self, progress: Progress | None = None) -> Self:
        """Internal: fit another model on the samples held, read by value and in another order, with the same types."""
        fresh = type(self)(**{**self.get_params(), "random_state": self.seed_})
        store = SampleStore(self.schema_, owner=type(self).__name__)
        fresh.hold(store, self.engine_.counterpart())
        slots = self.samples_.slots()
        # The hashes of the ids put them into an order that has nothing to do with history.
        slots = slots[np.argsort(self.samples_.id_hashes[slots], kind="stable")]
        store.commit(self.samples_.prepared_again(slots))
        fresh.engine_.fit(store.problem(), store.slots(), progress)
        return fresh

    @reads_long
    def verify(self, progress: Progress | None = None) -> Verification:
        """Compare with a fresh fit on the samples held, and recount all counters; resolves all tags.

        A model that is not exact depends on its history. Its trees must be those of a fresh fit only when it has none.
        Otherwise it must keep what it promises; for a kind that promises nothing, the answer says how far its
        predictions are from a fresh fit's.

        Parameters
        ----------
        progress : callable(done, total), optional
            Called after each tree of the fresh fit.

        Examples
        --------
        >>> from oubli import DynamicForestClassifier
        >>> model = DynamicForestClassifier(random_state=0).fit([[0.0], [1.0], [2.0]], ["a", "b", "b"])
        >>> model.verify().ok
        True
        """
        live = self.tree_digests()
        store, engine = self.samples_, self.engine_
        live_digest = self.digest_of(live)
        has_history = self.guarantee != "exact" and engine.n_mutations > 0
        needs_fresh = engine.measures_distance or not has_history
        store.build_index()
        fresh, wrong = beside(
            lambda: self.fresh_fit(progress) if needs_fresh else None, partial(_unsound, store), engine.n_threads
        )
        others, other_digest = live, live_digest
        counterpart, distance, slots = None, None, store.slots()
        if has_history:
            distance = None if fresh is None else self._distance_to(fresh)
        elif fresh is not None:
            others = fresh.tree_digests()
            other_digest = fresh.digest_of(others)
            if other_digest == live_digest:
                other_slots = slots_in(fresh.samples_, store, slots)
                counterpart = Counterpart(fresh.engine_, fresh.samples_.problem(), other_slots)
        problem = store.problem()
        wrong += self.lock.resolve(partial(engine.recount, problem, slots, counterpart))
        broken = self.lock.resolve(partial(engine.broken_promises, problem, slots))
        return Verification(live_digest, other_digest, compare_trees(live, others), wrong, broken, distance)

    def _distance_to(self, fresh: Self) -> float:
        """Share of held samples of another class in another model; of numbers, the root mean squared difference.

        The latter is a share of the targets' standard deviation. Of many samples, some are looked at.
        """
        names = sorted(self.samples_.ids())
        names = names[:: max(1, len(names) // _MOST_COMPARED)]
        if not names:
            return 0.0
        rows = [self.samples_.get(name).features for name in names]
        ours, theirs = self.query(rows, frozen=True).labels, fresh.query(rows, frozen=True).labels
        if self.task is Task.CLASSIFICATION:
            return float(np.mean(ours != theirs))
        spread = float(np.std(self.samples_.y[self.samples_.slots()]))
        difference = float(np.sqrt(np.mean((ours - theirs) ** 2)))
        return difference / spread if spread > 0 else difference

    # -- all or nothing --------------------------------------------------------------------------

    def _beside(self) -> Self:
        """An unfitted estimator with the same parameters, to be fitted and then taken over (`_become`)."""
        other = type(self).__new__(type(self))
        other.__dict__.update((name, getattr(self, name)) for name in self._parameter_names())
        return other

    @writes
    def _become(self, other: Self) -> None:
        """Take over what another estimator was fitted to, in one step; parameters stay."""
        parameters = self._parameter_names()
        fitted = {name: value for name, value in vars(other).items() if name not in parameters}
        state = {**vars(self), **fitted}
        if "feature_names_in_" not in fitted:
            state.pop("feature_names_in_", None)
        other.samples_.changes.lock = self.lock
        with Changes(self.lock):
            self.__dict__ = state

    # -- copies ---------------------------------------------------------------------------------

    @reads_long
    def copy(self) -> Self:
        """An independent copy; O(size), without resolving anything.

        Other threads can read the model at the same time; they wait only if they meet tags.

        Examples
        --------
        >>> from oubli import DynamicForestClassifier
        >>> model = DynamicForestClassifier(random_state=0).fit([[0.0], [1.0], [2.0]], ["a", "b", "b"])
        >>> other = model.copy()
        >>> other.delete("0")
        >>> model.n_samples_, other.n_samples_
        (3, 2)
        """
        self.check_is_fitted()
        other = self._unfitted()
        with self.lock.shape:
            other.hold(self.samples_.copy(), self.engine_.copy())
        return other

    def _unfitted(self) -> Self:
        # A RandomState is copied as well: drawing from one model's must not move the other's.
        other = type(self)(**deepcopy(self.get_params()))
        other.__dict__.update(_requests=self._requests)
        return other

    def __sklearn_clone__(self) -> Self:
        """Return an unfitted estimator with the same parameters; called by scikit-learn."""
        return self._unfitted()

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        return self.copy() if self.__sklearn_is_fitted__() else self._unfitted()

    # -- files and pickles ----------------------------------------------------------------------

    @reads_long
    def to_parts(self) -> tuple[dict[str, Any], Arrays]:
        """Internal: describe a fitted model by plain values and arrays, for files and pickles; resolves all tags."""
        engine = self.engine_
        self.resolve()
        parameters = {**self.parameters_of_model(), "random_state": self.seed_}
        document = {
            "kind": self.kind,
            "task": self.task.value,
            "guarantee": self.guarantee,
            # A search over np.arange(...) sets NumPy's numbers, which JSON does not know.
            "parameters": {name: v.item() if isinstance(v, np.generic) else v for name, v in parameters.items()},
            "schema": self.schema_.to_dict(),
            "n_samples": len(self.samples_),
            "settings": engine.settings.to_dict(),
            **engine.notes(),
        }
        arrays = {engine.prefix + name: array for name, array in self.lock.resolve(engine.arrays).items()}
        return document, {**arrays, **self.samples_.state()}

    def restore(self, settings: Any, document: Mapping[str, Any], arrays: Arrays, store: SampleStore) -> None:
        """Internal: hold the samples of a store and the trees that `to_parts` described, checked; empties `arrays`.

        Raises
        ------
        ValueError, FileError
            When the parts do not fit together.
        """
        engine_type, schema = self.engine_type(settings), store.schema
        parts = engine_parts(engine_type, arrays)
        arrays.clear()
        engine = engine_type(*self._columns(settings, schema))
        engine.take_over(parts, store.problem(), store.slots())
        if "n_mutations" in engine.notes():
            engine.n_mutations = document["n_mutations"]
        if engine.keeps_order:
            engine.enqueue(store.slots_in_order())
        self.hold(store, engine)

    @reads_long
    def save(self, path: str | PathLike[str], extra: Mapping[str, str] | None = None) -> None:
        """Write the model to one file; resolves all tags.

        The file is complete or not there: it is written beside the place and moved there. It holds
        nothing of deleted samples. Other threads can read the model at the same time; changes wait.

        Parameters
        ----------
        path : where to.
        extra : text to keep with the model, for the caller.

        Raises
        ------
        InputError
            When the parameters are not those any more that the model was fitted with, or `extra` holds other things
            than texts.

        Examples
        --------
        >>> from oubli import DynamicForestClassifier
        >>> model = DynamicForestClassifier(random_state=0).fit([[0.0], [1.0], [2.0]], ["a", "b", "b"])
        >>> import os, tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     model.save(os.path.join(folder, "model"), {"author": "ada"})
        """
        self.check_is_fitted()
        if not all(type(name) is str for name in extra or {}):
            raise InputError("extra must hold texts by their names")
        if fault := persistence.EXTRA.find_fault(dict(extra or {}), "extra"):
            raise InputError(f"{fault}: shorten it, or keep it elsewhere")
        digest = self.digest()
        document, arrays = self.to_parts()
        settings = type(self)(**document["parameters"]).checked_settings(self.schema_)
        if not is_same_json(settings.to_dict(), document["settings"]):
            raise InputError("the parameters were changed after `fit`: set them back, or fit again, before saving")
        document |= {"digest": digest, "extra": dict(extra or {})}
        arrays = persistence.fill_up(arrays, self.bytes_asked(self.schema_, settings, arrays))
        persistence.write(path, arrays, document, with_rights=self.samples_.has_rights)

    @classmethod
    def load(cls, path: str | PathLike[str], *, verify: bool | None = None) -> Self:
        """Read a model that `save` wrote.

        Parameters
        ----------
        path : the file.
        verify : whether to compare with a fresh fit, see `oubli.load`.

        Raises
        ------
        FileError
            When the file is unreadable, truncated, altered, foreign or of a newer format, or holds
            another kind of model.

        Examples
        --------
        >>> from oubli import DynamicForestClassifier
        >>> model = DynamicForestClassifier(random_state=0).fit([[0.0], [1.0], [2.0]], ["a", "b", "b"])
        >>> import os, tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     model.save(os.path.join(folder, "model"))
        ...     DynamicForestClassifier.load(os.path.join(folder, "model")).n_samples_
        3
        """

        def own(kind: str, task: str) -> type[Self]:
            _, name = PLACES[kind].estimators[Task(task)]
            if name != cls.__name__:
                raise FileError(f"the file holds a {name}: use its `load`, or `oubli.load`")
            return cls

        read: tuple[Self, str] = persistence.read_model(path, own)
        return read[0].checked(verify)

    def checked(self, verify: bool | None) -> Self:
        """Internal: compare the trees of a model that was read with a fresh fit; if `verify` is None, a short one.

        Raises
        ------
        FileError
            When they differ.
        """
        is_wanted = self.engine_.seconds_to_verify(self.samples_.problem()) < _SHORT if verify is None else verify
        if is_wanted and not self.verify().ok:
            raise FileError("the file's trees are not those of its samples: restore another file")
        self.samples_.build_index()
        return self

    @classmethod
    def read_parts(
        cls, document: dict[str, Any], arrays: Arrays, *, regrow: str = "", limit: int | None = None
    ) -> tuple[Self, str]:
        """Internal: put a model together from what a model file holds, checked; for `oubli.core.persistence`.

        Parameters
        ----------
        document, arrays
            As `to_parts` returns them. `arrays` is emptied, so that no large model is in memory twice.
        regrow
            Why the trees are to be rebuilt from the samples; empty: take over those of the file.
        limit
            Bytes that may be asked for; None: as many as it takes.

        Returns
        -------
        model, and why its trees were rebuilt.
        """
        schema = Schema.from_dict(document["schema"])
        earlier = {name: value for name, value in cls.earlier_parameters.items() if name not in document["parameters"]}
        model = cls(**document["parameters"], **earlier)
        if schema.class_weight:
            model.class_weight = dict(schema.class_weight)
        settings = model.checked_settings(schema)
        if not is_same_json(settings.to_dict(), {**earlier, **document.get("settings", {})}):
            raise FileError("the file is not sound (its parameters and its settings differ): restore another file")
        require_sound(document.get("guarantee", model.guarantee) == model.guarantee, "its guarantee is another")
        given, (arrays, is_canonical) = arrays, canonical_parts(schema, arrays)
        given.clear()
        # Trees that are not taken over still say how much the file may ask for.
        checks_trees = not regrow and (is_canonical or limit is not None)
        if not is_canonical:
            regrow = regrow or persistence.NOT_CANONICAL
        cls._check_description(settings, document, arrays, with_trees=checks_trees)
        persistence.require_room(cls.bytes_asked(schema, settings, arrays, with_trees=checks_trees), limit)
        store = SampleStore.from_state(schema, arrays, owner=cls.__name__)
        if regrow:
            arrays.clear()
            model.begin(schema, settings, store)
            model.engine_.fit(store.problem(), store.slots())
        else:
            model.restore(settings, document, arrays, store)
        return model, regrow

    @classmethod
    def _check_description(
        cls, settings: Any, document: Mapping[str, Any], arrays: Arrays, *, with_trees: bool
    ) -> None:
        """Check what a file says before it is used; FileError says what is wrong."""
        engine_type = cls.engine_type(settings)
        slots, codes, targets = arrays["samples.slots"], arrays["class_table.codes"], arrays["samples.targets"]
        require_sound(document["task"] == document["schema"]["task"] == cls.task.value, "it is for another task")
        n_samples = document["n_samples"]
        require_sound(n_samples == len(slots), "the number of samples is wrong")
        engine_type.check_capacity(settings, n_samples)
        if cls.task is Task.CLASSIFICATION:
            is_sound = np.isin(targets, codes).all() and np.isin(codes, targets).all()
            require_sound(is_sound, "there are labels of no class")
        engine_type.check_file(document, arrays, with_trees=with_trees)

    @classmethod
    def bytes_asked(cls, schema: Schema, settings: Any, arrays: Arrays, *, with_trees: bool = True) -> int:
        """Internal: bytes of the arrays that a file becomes, roughly."""
        engine_type = cls.engine_type(settings)
        is_classification = cls.task is Task.CLASSIFICATION
        codes = arrays["class_table.codes"]
        shape = Shape(
            n_slots=int(arrays["samples.slots"].max(initial=-1)) + 1,
            n_samples=len(arrays["samples.slots"]),
            n_classes=len(codes) if is_classification else 0,
            n_class_codes=int(codes.max(initial=1)) + 1,
            n_codes=int(arrays["categories.codes"].max(initial=-1)) + 1,
            categorical=schema.categorical_mask,
            is_classification=is_classification,
        )
        parts = engine_parts(engine_type, arrays) if with_trees else {}
        return store_bytes(schema, arrays) + engine_type.bytes_asked(settings, shape, parts)

    @reads_long
    def __getstate__(self) -> dict[str, Any]:
        """Pickled by scikit-learn's tools (never by `save`): the fitted state as plain arrays."""
        state = {"parameters": self.get_params(), "requests": dict(self._requests)}
        if not self.__sklearn_is_fitted__():
            return state
        document, arrays = self.to_parts()
        # Copies: they are pickled after this returns, when the next change may be made.
        arrays = {name: np.array(array) for name, array in arrays.items()}
        return {**state, "settings": self.settings_, "document": document, "arrays": arrays}

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Undo `__getstate__`."""
        for name, value in state["parameters"].items():
            setattr(self, name, value)
        self._requests = state["requests"]
        if "document" in state:
            document, arrays = state["document"], state["arrays"]
            store = SampleStore.from_state(Schema.from_dict(document["schema"]), arrays, owner=type(self).__name__)
            self.restore(state["settings"], document, dict(arrays), store)


def _unsound(store: SampleStore) -> list[str]:
    """Say what is wrong with a store."""
    try:
        store.check_invariants()
    except AssertionError as error:
        return [str(error)]
    return []


def slots_in(other: SampleStore, store: SampleStore, slots: Ints) -> Ints:
    """Return the slots in another store of the samples in some slots; the other one holds the same and no more."""
    ours, theirs = store.id_hashes[slots], other.slots()
    by_ours, by_theirs = np.argsort(ours), np.argsort(other.id_hashes[theirs])
    in_order = ours[by_ours]
    if np.array_equal(in_order, other.id_hashes[theirs][by_theirs]) and (in_order[1:] != in_order[:-1]).all():
        found = np.empty_like(slots)
        found[by_ours] = theirs[by_theirs]
        return found
    return other.find(list(store.names(slots)))


def engine_parts(engine_type: type[Engine], arrays: Mapping[str, Array]) -> Arrays:
    """Return the arrays of an engine among those of a file."""
    prefix = engine_type.prefix
    return {name.removeprefix(prefix): array for name, array in arrays.items() if name.startswith(prefix)}
