"""What the boosted kinds share: everything but the trees.

Who does what:

    online/estimator.py, incremental/estimator.py    what users see: parameters, documentation
    BoostedModel                                     answers from the trees, keeps, digests and checks them
    engines (`engine.py` says what they can)         grow the trees and keep them up to date
"""

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from oubli.core.boosting import serialise as storing
from oubli.core.boosting import verification as checking
from oubli.core.boosting.engine import Arrays, Engine, Shape
from oubli.core.boosting.loss import sigmoids, softmaxes
from oubli.core.boosting.predict import answer_one, raw_scores
from oubli.core.boosting.problem import Problem
from oubli.core.classification import Classifier
from oubli.core.data.schema import Schema, Task
from oubli.core.errors import CapacityError
from oubli.core.model import Model, QueryResult
from oubli.core.regression import Regressor
from oubli.core.samples.store import Prepared, SampleStore
from oubli.core.verification import Verification

MAX_SAMPLES = 2**24 - 1  # what sums in fixed point have room for
_LARGEST = float(np.finfo(np.float64).max)
_HUGE = 2.0**900  # units from which on, of a regression on the largest numbers, a sum of leaves may overflow
_CELLS_A_SECOND = 200_000_000  # of a sample in a tree, summed and divided by training, roughly


class BoostedModel(Model):
    """Boosted trees over a sample store."""

    lazy = False  # mutations are made at once: every tree depends on those before it

    engine_: Any
    settings_: Any
    n_mutations_since_scrub_: int

    @property
    def _engine(self) -> Engine:
        engine: Engine = self.engine_
        return engine

    @staticmethod
    @abstractmethod
    def _engine_type(settings: Any) -> Any:
        """The class of the engine that some settings ask for."""

    @classmethod
    @abstractmethod
    def read_parameters(cls, parameters: Mapping[str, Any]) -> Any:
        """Check the constructor's parameters and return the settings; InputError names the one that does not fit."""

    # -- learning -------------------------------------------------------------------------------

    @property
    def _settings(self) -> Any:
        return self.settings_

    def _read_settings(self, schema: Schema) -> Any:
        return self.read_parameters(self.get_params())

    @staticmethod
    def _check_capacity(settings: Any, n_samples: int, n_slots: int = 0) -> None:
        if n_samples > MAX_SAMPLES:
            raise CapacityError(f"a boosted model holds at most {MAX_SAMPLES} samples")

    def _begin_trees(self, settings: Any) -> None:
        self.settings_ = settings
        self.n_mutations_since_scrub_ = 0
        self._install(self._new_engine(), 0)

    def _new_engine(self) -> Any:
        return self._engine_type(self.settings_)(*self._engine_arguments())

    def _install(self, engine: Any, n_mutations: int) -> None:
        """Go on with another engine, in one step."""
        engine.changes = changes = self.samples_.changes
        changes.undo = None
        # One statement: no exception comes between its parts.
        self.engine_, self.n_mutations_since_scrub_ = engine, n_mutations

    def _engine_arguments(self) -> tuple[Any, ...]:
        schema = self.schema_
        is_classification = schema.task is Task.CLASSIFICATION
        return self.settings_, schema.n_features, schema.cell_dtype, schema.categorical_mask, is_classification

    def problem(self) -> Problem:
        """The samples as the engine reads them; anew after each mutation."""
        return self._problem_of(self.samples_.classes.order())

    def _problem_of(self, order: npt.NDArray[np.int64]) -> Problem:
        """The samples, and these classes in their order."""
        store = self.samples_
        ranks = np.full(store.classes.capacity, -1, np.int32)
        ranks[order] = np.arange(len(order), dtype=np.int32)
        n_classes = len(order) if self.task is Task.CLASSIFICATION else 0
        return Problem(self.data(), ranks, n_classes, store.y)

    def grow_all(self, progress: Callable[[int, int], None] | None = None) -> None:  # noqa: D102 - inherited
        engine = self._new_engine()
        engine.grow(self.problem(), self.samples_.slots(), progress)
        self._install(engine, 0)

    def _learn(self, slots: npt.NDArray[np.int64], n_before: int) -> None:
        if self._is_grown_with(slots):
            self.grow_all()
        else:
            self._engine.add(self.problem(), slots)
            self.n_mutations_since_scrub_ += len(slots)

    def _unlearn(self, slots: npt.NDArray[np.int64]) -> None:
        store = self.samples_
        departures = store.stage_removal(slots)
        if self._is_grown_without(slots):
            engine = self._new_engine()
            engine.grow(*self._problem_without(slots))
            self._install(engine, self._n_mutations_when_grown(len(slots)))
            store.let_go(departures)
            return
        n_classes = len(store.classes)
        self._engine.delete(self.problem(), slots)
        store.changes.undo = None
        self.n_mutations_since_scrub_ += len(slots)
        store.let_go(departures)
        if len(store.classes) != n_classes:
            self._after_losing_classes()

    def _problem_without(self, slots: npt.NDArray[np.int64]) -> tuple[Problem, npt.NDArray[np.int64]]:
        """The samples as they will be without some, and the slots of the others."""
        store = self.samples_
        stays = store.held.copy()
        stays[slots] = False
        rest = np.flatnonzero(stays)
        if self.task is not Task.CLASSIFICATION:
            return self.problem(), rest
        counts = np.bincount(store.class_codes[rest], minlength=store.classes.capacity)
        order = store.classes.order()
        return self._problem_of(order[counts[order] > 0]), rest

    @abstractmethod
    def _is_grown_with(self, slots: npt.NDArray[np.int64]) -> bool:
        """Whether all trees are grown anew when samples come, which are in the store already."""

    @abstractmethod
    def _is_grown_without(self, slots: npt.NDArray[np.int64]) -> bool:
        """Whether all trees are grown anew on the other samples when some leave."""

    def _after_losing_classes(self) -> None:
        """Let the trees follow the classes when some have lost their last sample, and the trees are not grown anew."""

    def _n_mutations_when_grown(self, n_gone: int) -> int:
        """What `n_mutations_since_scrub_` is when samples have left and all trees were grown anew."""
        return 0

    def _changes_classes(self, slots: npt.NDArray[np.int64]) -> bool:
        """Whether a class has only the samples of some slots: it has come with them, or will leave with them."""
        if self.task is not Task.CLASSIFICATION:
            return False
        classes = self.samples_.classes
        codes, counts = np.unique(self.samples_.class_codes[slots], return_counts=True)
        return bool((classes.counts[codes] == counts).any())

    def takes_long(  # noqa: D102 - inherited
        self, adds: Prepared | None, deletes: Sequence[str], n_others: int, seconds: float
    ) -> bool:
        n_changed = (0 if adds is None else adds.n) + len(deletes) + n_others
        return self._seconds_of(n_changed) > seconds

    @abstractmethod
    def _seconds_of(self, n_changed: int) -> float:
        """How long it may take to make so many samples come or go, roughly."""

    def _seconds_of_growing(self) -> float:
        """How long it takes to train from nothing, roughly."""
        n_classes = len(self.samples_.classes) if self.task is Task.CLASSIFICATION else 0
        n_trees: int = self.settings_.n_estimators * (n_classes if n_classes > 2 else 1)
        return len(self.samples_) * self.n_features_in_ * n_trees / _CELLS_A_SECOND

    def resolve(self, max_tags: int | None = None) -> int:
        """Return 0: nothing is ever put off."""
        self._check_is_fitted()
        return 0

    @property
    def n_lazy_tags_(self) -> int:
        """Number of tagged nodes: none, nothing is put off."""
        self._check_is_fitted()
        return 0

    def wipe(self) -> None:
        """Overwrite what is kept of samples no longer held: the working space."""
        self._check_is_fitted()
        self._engine.wipe()

    def _shred_trees(self) -> None:
        self._engine.shred()

    # -- reading --------------------------------------------------------------------------------

    def _answers(self, X: Any, n_outputs: int) -> npt.NDArray[np.float64]:
        """Values, or probabilities of the classes held in canonical order; float64[n, n_outputs]."""
        cells, category_hashes = self._encode_queries(X)
        trees = self._engine.trees
        answers = np.empty((len(cells), n_outputs))
        if trees.n_groups == 0:
            answers.fill(1.0)
            return answers
        is_regression = self.task is Task.REGRESSION
        if len(cells) == 1:
            answer_one(
                trees.nodes, trees.roots, trees.base, trees.unit, cells, category_hashes, is_regression, answers[0]
            )
            return answers if trees.unit < _HUGE else _saturated(answers)
        scores = answers if trees.n_groups == n_outputs else np.empty((len(cells), trees.n_groups))
        raw_scores(trees.nodes, trees.roots, trees.base, trees.unit, cells, category_hashes, scores)
        if not is_regression:
            (sigmoids if trees.n_groups == 1 else softmaxes)(scores, answers)
        return answers if trees.unit < _HUGE else _saturated(answers)

    def raw_scores(self, X: Any) -> npt.NDArray[np.float64]:
        """Raw scores F of each row, float64[n, groups]: log-odds of the second class of two, or one score a class."""
        self._check_names(X)
        cells, category_hashes = self._encode_queries(X)
        trees = self._engine.trees
        scores = np.empty((len(cells), trees.n_groups))
        if trees.n_groups:
            raw_scores(trees.nodes, trees.roots, trees.base, trees.unit, cells, category_hashes, scores)
        return scores if trees.unit < _HUGE else _saturated(scores)

    @property
    def n_trees_(self) -> int:
        """Number of trees that predictions read."""
        self._check_is_fitted()
        return len(self._engine.trees.roots)

    def _trees_nbytes(self) -> int:
        return self._engine.nbytes

    @property
    def feature_importances_(self) -> npt.NDArray[np.float64]:
        """Share of each feature in the gains of all splits, float64[d]. O(model)."""
        self._check_is_fitted()
        gains = self._engine.importances()
        total = gains.sum()
        return gains / total if total > 0 else gains

    # -- checking -------------------------------------------------------------------------------

    def digest(self) -> str:
        """Hash of everything that can influence a prediction."""
        self._check_is_fitted()
        return checking.digest(self)

    def verify(self) -> Verification:
        """Compare with a fresh fit on the samples held, and count all that is kept anew."""
        self._check_is_fitted()
        return checking.verify(self)

    def check_invariants(self) -> None:  # noqa: D102 - inherited
        self._check_is_fitted()
        self.samples_.check_invariants()
        self._engine.check_invariants(self.problem(), self.samples_.slots())

    # -- keeping --------------------------------------------------------------------------------

    def _copy_trees_to(self, other: Self) -> None:
        other.engine_ = self._engine.copy()
        other.engine_.changes = other.samples_.changes
        other.n_mutations_since_scrub_ = self.n_mutations_since_scrub_

    def _take_apart(self) -> tuple[dict[str, Any], Arrays]:
        return storing.take_apart(self)

    @staticmethod
    def _describe_settings(settings: Any) -> dict[str, Any]:
        described: dict[str, Any] = settings.parameters()
        return described

    @classmethod
    def _tree_bytes(cls, document: Mapping[str, Any], arrays: Arrays, *, with_trees: bool) -> int:
        settings = cls.read_parameters(document["settings"])
        n_classes = len(arrays["class_table.codes"]) if cls.task is Task.CLASSIFICATION else 0
        shape = Shape(
            n_slots=int(arrays["samples.slots"].max(initial=-1)) + 1,
            n_samples=len(arrays["samples.slots"]),
            groups=n_classes if n_classes > 2 else 1,
            categorical=np.array([column["type"] == "categorical" for column in document["schema"]["columns"]]),
            is_classification=cls.task is Task.CLASSIFICATION,
        )
        parts = storing.engine_parts(arrays) if with_trees else {}
        asked: int = cls._engine_type(settings).bytes_asked(settings, shape, parts)
        return asked

    def seconds_to_verify(self) -> float:  # noqa: D102 - inherited
        reading = len(self.samples_) * self.n_features_in_ / 1_000_000
        return reading + 10 * self._seconds_of_growing()

    @classmethod
    def _check_description(cls, document: Mapping[str, Any], arrays: Arrays, *, with_trees: bool) -> None:
        storing.check_description(cls, document, arrays, with_trees=with_trees)

    def take_over(self, arrays: Arrays) -> None:
        """Take the trees over that `engine_.arrays()` described; ValueError when they are not sound."""
        engine_type = self._engine_type(self.settings_)
        problem, slots = self.problem(), self.samples_.slots()
        self.engine_ = engine_type.from_arrays(*self._engine_arguments(), arrays, problem, slots)
        self.engine_.changes = self.samples_.changes

    def _put_together(
        self, document: Mapping[str, Any], arrays: Arrays, store: SampleStore, *, with_trees: bool
    ) -> None:
        storing.put_together(self, document, arrays, store, with_trees=with_trees)

    def _check_trees(self) -> None:
        """Nothing is left to do: engines take no trees over that are not sound."""


class BoostedClassifier(BoostedModel, Classifier):
    """Boosted trees for classes: one tree an iteration for two classes, one a class for more."""

    def _probabilities(self, X: Any, frozen: bool) -> npt.NDArray[np.float64]:
        self._check_is_fitted()
        return self._answers(X, len(self.samples_.classes))


class BoostedRegressor(BoostedModel, Regressor):
    """Boosted trees for numbers."""

    def query(self, X: Any, *, frozen: bool = False) -> QueryResult:  # noqa: D102 - inherited
        return QueryResult(self._answers(X, 1)[:, 0], None, None)


def _saturated(values: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Values that lie beyond the largest number, as that number."""
    return np.clip(values, -_LARGEST, _LARGEST, out=values)
