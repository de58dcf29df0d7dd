"""Estimators: what classifiers and regressors of every kind share, all of them by kind, and models from files."""

import math
from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib import import_module
from os import PathLike
from typing import Any, NamedTuple

import numpy as np

from oubli.core.array_types import Array, Bools, Reals
from oubli.core.concurrency.locks import reads, reads_long, reads_rows
from oubli.core.data.targets import encode_labels, encode_targets
from oubli.core.data.values import Task
from oubli.core.errors import EmptyModelError, InputError, UnavailableError
from oubli.core.explanation.attributions import Attributions, attribute_rows, seconds_to_attribute
from oubli.core.explanation.flips import NearestChange, flipping_changes, shown
from oubli.core.explanation.trees import Sizes, WeightedTrees, measure
from oubli.core.model import Model, QueryResult
from oubli.core.persistence import ASKED_FOR, read_model
from oubli.core.registry import PLACES
from oubli.core.unseen import conformal
from oubli.core.unseen.answers import out_of_bag_answers
from oubli.core.unseen.scoring import Score, score_unseen
from oubli.core.unseen.valuation import DataValues, data_values


class _Scored(Model):
    """What is known of a model from samples that some of its trees have not learned."""

    @property
    def oob_score_(self) -> float:
        """Share of right classes, or R^2, of a forest's samples, each predicted by trees that have not learned it.

        NaN with fewer than ten samples. Once for each version O(n T depth).
        """
        value = self._score_out_of_bag().value
        return math.nan if value is None else value

    @reads_long
    def _score_out_of_bag(self) -> Score:
        self.resolve()
        return score_unseen(self, out_of_bag_answers(self))

    @reads_long
    def data_values(self) -> DataValues:
        """Value the samples of a forest by how well trees that have not learned them predict them.

        Samples with wrong labels have low values: `data_values().lowest(20)`. Once for each version O(n T depth).

        Returns
        -------
        DataValues
            Of all samples held but those that all trees have learned; see `oubli.core.unseen.valuation`.

        Raises
        ------
        InputError
            When all trees learn all samples (`UnavailableError`).
        """
        self.resolve()
        return data_values(self)


class _Explained(_Scored):
    """Why a model answers as it does."""

    @reads_long
    def shap_values(self, X: Any) -> Attributions:
        """Say what each column of rows adds to their answers: Shapley values, see `oubli.core.explanation`.

        The trees are read as they are, with the weights of the samples held now. Categories, missing values, and
        categories that no sample has are followed as predictions follow them.

        Parameters
        ----------
        X : array, DataFrame or list of rows, shape (n, d)

        Returns
        -------
        Attributions
            `shap.Explanation(**found._asdict())` takes it. A row's base value and its values sum to its answer:
            probabilities, float64[n, d, n_classes] in the order of `classes_`; of boosted classifiers raw scores,
            float64[n, d] of the second of two classes; of regressors the number, float64[n, d].

        Raises
        ------
        InputError
            When the input is refused, or with `disclosure="low"` (`UnavailableError`).
        EmptyModelError
            With no samples left.

        O(n nodes), and once for each version of a boosted model O(n_samples T depth).
        """
        self._check_names(X)
        self.resolve()
        unseen: dict[str, int] = {}
        cells, hashes = self._encode_queries(X, unseen)
        (trees, sizes), engine, store = self._weighted_trees(), self.engine_, self.samples_
        read = engine.read_queries(cells, hashes)
        values, base = attribute_rows(trees, sizes, engine.n_features, *read, engine.n_threads), sizes.expected
        classes = store.classes.classes_array().tolist() if engine.is_classification else []
        if len(classes) == 2 and len(base) == 1 and not self.is_boosted:
            values, base = np.concatenate([-values, values], axis=2), np.array([1.0 - base[0], base[0]])
        texts = {code: text for text, code in unseen.items()}
        data = np.empty(cells.shape, object)
        for row, one in enumerate(cells):
            data[row] = store.features_of(one, texts)
        if len(base) == 1 and (self.is_boosted or not classes):
            return Attributions(values[:, :, 0], np.full(len(cells), base[0]), data, list(self.schema_.names), None)
        names = [str(label) for label in classes]
        return Attributions(values, np.tile(base, (len(cells), 1)), data, list(self.schema_.names), names)

    def _weighted_trees(self) -> tuple[WeightedTrees, Sizes]:
        """The trees, without tags, in a read."""
        if self.disclosure_ == "low":
            raise UnavailableError(
                "nothing is explained with disclosure='low': it would show what that hides. Fit with disclosure="
                "'standard' to have it"
            )
        if len(self.samples_) == 0:
            raise EmptyModelError("the model holds no samples: add some before asking why it answers")
        trees = self.engine_.weighted_trees(self.problem(), self.class_order())
        kept, name = self.samples_.changes.derived, "sizes of trees"
        if name not in kept:
            kept[name] = measure(trees).to_array()
        return trees, Sizes.of_array(kept[name])

    @reads_long
    def seconds_to_explain(self, n_rows: int) -> float:
        """How long `shap_values` of so many rows takes, roughly."""
        self.resolve()
        return seconds_to_attribute(*self._weighted_trees(), n_rows)

    @reads_long
    def nearest_change(
        self, x: Any, *, columns: int = 1, features: Sequence[str] | None = None, target: Any = None
    ) -> NearestChange | None:
        """Find the smallest change of one or two columns of a row that changes its answer.

        The changes are found in the trees, see `oubli.core.explanation.flips`, and each is predicted before it is
        returned. The same model gives the same change.

        Parameters
        ----------
        x : list, array or table of one row
        columns : 1 or 2
            How many columns may change at most.
        features : sequence of str, optional
            Names of the columns that may change; all when left out.
        target : label or float
            Of a classifier: the class that the row is to get; any other one when left out. Of a regressor: the number
            that the prediction is to cross, that is, to be above if it is not, or no longer.

        Returns
        -------
        NearestChange or None
            None when no change was found.

        Raises
        ------
        InputError
            When a parameter is refused, or with `disclosure="low"` (`UnavailableError`).
        EmptyModelError
            With no samples left.

        O(d candidates), each of which is a prediction, at most some ten thousand.
        """
        if isinstance(columns, bool) or columns not in (1, 2):
            raise InputError("must be 1 or 2: how many columns may change", field="columns", value=columns)
        X = x if hasattr(x, "columns") else [x]
        self._check_names(X)
        self.resolve()
        unseen: dict[str, int] = {}
        cells, hashes = self._encode_queries(X, unseen)
        if len(cells) != 1:
            raise InputError("must be one row: ask for one after the other")
        allowed = list(map(self.schema_.index, self.schema_.names if features is None else features))
        (trees, sizes), engine, store = self._weighted_trees(), self.engine_, self.samples_

        def answers(some: Array) -> Reals:
            return engine.predict(some, hashes, self.class_order(), self.problem, False)

        judge = self._judge(answers(cells), target)
        found = flipping_changes(
            trees, sizes.n_levels, store, cells, engine.read_queries(cells, hashes), columns, allowed,
            lambda some: judge(answers(some)),
        )  # fmt: skip
        texts = {code: text for text, code in unseen.items()}
        before = self._shown_row(cells[0], texts)
        for distance, changed, changed_cells in found:
            row = self._shown_row(changed_cells, texts)
            result = self.query([row])  # as it is sent: a number may be rounded
            if judge(result.labels if result.probabilities is None else result.probabilities)[0][0]:
                names, answer = [self.schema_.names[column] for column in changed], result.labels.tolist()[0]
                old, new = ([one[column] for column in changed] for one in (before, row))
                return NearestChange(names, old, new, distance, answer, row)
        return None

    def _shown_row(self, cells: Array, unseen: Mapping[int, str]) -> list[Any]:
        values = zip(self.samples_.features_of(cells, unseen), self.schema_.columns, strict=True)
        return [shown(value, column) for value, column in values]

    @abstractmethod
    def _judge(self, answers: Reals, target: Any) -> Callable[[Reals], tuple[Bools, Reals]]:
        """Return what says of answers whether they are other ones than that for a row, and how close to that.

        target : as `nearest_change` takes it.
        """


class Classifier(_Explained):
    """Labels from class probabilities."""

    task = Task.CLASSIFICATION
    _estimator_type = "classifier"

    @property
    @reads
    def classes_(self) -> Array:
        """The classes held, ordered by type and value."""
        self.check_is_fitted()
        return self.samples_.classes.classes_array().copy()

    def _judge(self, answers: Reals, target: Any) -> Callable[[Reals], tuple[Bools, Reals]]:
        now = int(answers.argmax(axis=1)[0])
        if target is None:
            return lambda some: (some.argmax(axis=1) != now, -some[:, now])
        label = encode_labels([target], 1, self.schema_.label_type, "target")[0]
        held = self.samples_.classes.classes_array().tolist()
        wanted = held.index(label) if label in held else now
        if wanted == now:
            raise InputError("must be another class than the predicted one, and held", field="target", value=target)
        return lambda some: (some.argmax(axis=1) == wanted, some[:, wanted])

    def _probabilities(self, X: Any, frozen: bool = False) -> Reals:
        return self._read_trees(self.engine_.predict, X, frozen)

    @reads
    def query(self, X: Any, *, frozen: bool = False) -> QueryResult:
        self.check_is_fitted()
        return self._answer(X, frozen)

    def _answer(self, X: Any, frozen: bool = False) -> QueryResult:
        probabilities, classes = self._probabilities(X, frozen), self.samples_.classes.classes_array()
        return QueryResult(classes[probabilities.argmax(axis=1)], probabilities, classes)

    @reads_rows
    def predict(self, X: Any) -> Array:
        """Predict the most probable class of each row; the smaller class wins a tie."""
        self._check_names(X)
        return self._answer(X).labels

    @reads_rows
    def predict_proba(self, X: Any) -> Reals:
        """Predict class probabilities, float64[n, n_classes], in the order of `classes_`."""
        self._check_names(X)
        return self._probabilities(X)

    @reads_rows
    def predict_log_proba(self, X: Any) -> Reals:
        """Natural logarithm of `predict_proba`."""
        self._check_names(X)
        with np.errstate(divide="ignore"):
            return np.log(self._probabilities(X))

    @reads
    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Share of rows (of their weights) whose predicted class is y."""
        self._check_names(X)
        predicted = self._answer(X).labels.tolist()
        labels = encode_labels(y, len(predicted), self.schema_.label_type, self.schema_.label_name)
        hits = [type(a) is type(b) and a == b for a, b in zip(predicted, labels, strict=True)]
        return float(np.average(hits, weights=sample_weight))

    @reads_long
    def predict_set(self, X: Any, coverage: float = 0.9, *, by_class: bool = False) -> Bools:
        """Say for each row which classes it may be of, so that the right one is among them as often as asked.

        Needs samples that trees have not learned: a forest, or `incremental-boosting` with `early_stopping`. The method
        and its guarantee are those of `oubli.core.unseen.conformal`.

        Parameters
        ----------
        X : array, DataFrame or list of rows, shape (n, d)
        coverage : float in (0, 1)
            The share of new rows whose right class is to be in their set.
        by_class : bool
            Whether to keep it for the rows of each class, rather than of all together ("Mondrian"): larger sets where
            classes are rare.

        Returns
        -------
        bool[n, n_classes], in the order of `classes_`. A set may be empty, when no class is likely enough; it holds all
        classes when there are too few samples to tell.

        Raises
        ------
        InputError
            When the input is refused, or the model has no such samples (`UnavailableError`).

        The first call after a change predicts all samples held, O(n T depth).
        """
        self._check_names(X)
        self.resolve()
        limits = conformal.class_limits(self, coverage, by_class=by_class)
        return conformal.sets(self._probabilities(X), limits)

    @property
    @reads_long
    def oob_decision_function_(self) -> Reals:
        """Probabilities of the samples held by trees that have not learned them, float64[n, n_classes].

        Rows are in the order of `data_values().ids`. Samples that all trees have learned are left out.
        """
        self.resolve()
        return out_of_bag_answers(self).answers.copy()


class Regressor(_Explained):
    """Predictions that are numbers."""

    task = Task.REGRESSION
    _estimator_type = "regressor"

    def _judge(self, answers: Reals, target: Any) -> Callable[[Reals], tuple[Bools, Reals]]:
        number = float(encode_targets([target], 1, "target")[0])
        is_above = bool(answers[0] > number)
        return lambda some: ((some > number) != is_above, -some if is_above else some)

    @reads
    def query(self, X: Any, *, frozen: bool = False) -> QueryResult:
        self.check_is_fitted()
        return self._answer(X, frozen)

    def _answer(self, X: Any, frozen: bool = False) -> QueryResult:
        return QueryResult(self._read_trees(self.engine_.predict, X, frozen), None, None)

    @reads_rows
    def predict(self, X: Any) -> Reals:
        """Predict the target of each row, float64[n]."""
        self._check_names(X)
        return self._answer(X).labels

    @reads
    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Coefficient of determination R^2 of the predictions; NaN for less than two rows."""
        self._check_names(X)
        predicted = self._answer(X).labels
        y = encode_targets(y, len(predicted), self.schema_.label_name)
        if len(y) < 2:
            return math.nan
        residual = float(np.average((y - predicted) ** 2, weights=sample_weight))
        total = float(np.average((y - np.average(y, weights=sample_weight)) ** 2, weights=sample_weight))
        return 1.0 - residual / total if total > 0 else float(residual == 0)

    @reads_long
    def predict_interval(self, X: Any, coverage: float = 0.9) -> Reals:
        """Say for each row between which numbers its target lies, as often as asked.

        Needs samples that trees have not learned: a forest, or `incremental-boosting` with `early_stopping`. The method
        and its guarantee are those of `oubli.core.unseen.conformal`.

        Parameters
        ----------
        X : array, DataFrame or list of rows, shape (n, d)
        coverage : float in (0, 1)
            The share of new rows whose target is to be in their interval.

        Returns
        -------
        float64[n, 2], the lowest and the highest number; infinite when there are too few samples to tell.

        Raises
        ------
        InputError
            When the input is refused, or the model has no such samples (`UnavailableError`).

        The first call after a change predicts all samples held, O(n T depth).
        """
        self._check_names(X)
        self.resolve()
        reach = conformal.width(self, coverage)
        return conformal.intervals(self._answer(X).labels, reach)

    @property
    @reads_long
    def oob_prediction_(self) -> Reals:
        """Predictions of the samples held by trees that have not learned them, float64[n].

        They are in the order of `data_values().ids`. Samples that all trees have learned are left out.
        """
        self.resolve()
        return out_of_bag_answers(self).answers.copy()


# -- by kind, and from files ---------------------------------------------------------------------------


class _Kinds(Mapping[tuple[str, Task], type[Model]]):
    """Estimators by kind and task, imported when they are looked up."""

    def __getitem__(self, key: tuple[str, Task]) -> type[Model]:
        kind, task = key
        module, name = PLACES[kind].estimators[task]
        estimator: type[Model] = getattr(import_module(module), name)
        return estimator

    def __contains__(self, key: object) -> bool:
        return isinstance(key, tuple) and len(key) == 2 and key[0] in PLACES and key[1] in PLACES[key[0]].estimators

    def __iter__(self) -> Iterator[tuple[str, Task]]:
        return ((kind, task) for kind, place in PLACES.items() for task in place.estimators)

    def __len__(self) -> int:
        return sum(len(place.estimators) for place in PLACES.values())


KINDS: Mapping[tuple[str, Task], type[Model]] = _Kinds()
"""The estimator of every kind and task."""


def _estimator_of(kind: str, task: str) -> type[Model]:
    return KINDS[kind, Task(task)]


class Loaded(NamedTuple):
    """A model from a file.

    Attributes
    ----------
    model : the model.
    regrown : why its trees were rebuilt from its samples; empty when they are the file's.
    """

    model: Model
    regrown: str


def load(path: str | PathLike[str], *, verify: bool | None = None) -> Model:
    """Load a model of any kind that `save` wrote.

    Everything that takes no longer than reading is checked: checksum, types and shapes, ranges, references, that every
    sample is where the splits lead, counters against each other, parameters against settings, and the digest. Of a file
    in an older format, or with numbers in another form than `fit` holds them in, the samples and the parameters are
    taken, and the trees are rebuilt.

    Parameters
    ----------
    path : the file.
    verify : bool, optional
        Whether to compare the trees with a fresh fit on the samples too, as the model's `verify` does. That takes as
        long as training. When left out, it is done where it takes less than about a second.

    Raises
    ------
    FileError
        When the file is unreadable, truncated, altered, foreign or of a newer format, or asks for much more memory
        than a file of its size may.
    """
    return load_foreign(path).model.checked(verify)


def load_foreign(path: str | PathLike[str]) -> Loaded:
    """Load a model from a file that may come from anywhere; as `load`, but the trees are not compared with a fit."""
    return Loaded(*read_model(path, _estimator_of))


def load_own(path: str | PathLike[str], *, regrow: bool = False) -> Loaded:
    """Load a model from a file that this program wrote and kept, however much memory it takes.

    With `regrow` the samples and the parameters are taken, and the trees are rebuilt: they are derived data, and
    what is wrong with them is no reason to do without the samples.
    """
    return Loaded(*read_model(path, _estimator_of, is_own=True, regrow=ASKED_FOR if regrow else ""))
