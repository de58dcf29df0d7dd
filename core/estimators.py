"""Estimators: what classifiers and regressors of every kind share, all of them by kind, and models from files."""

import math
from collections.abc import Iterator, Mapping
from importlib import import_module
from os import PathLike
from typing import Any, NamedTuple

import numpy as np

from oubli.core.array_types import Array, Bools, Reals
from oubli.core.concurrency.locks import reads, reads_long, reads_rows
from oubli.core.data.targets import encode_labels, encode_targets
from oubli.core.data.values import Task
from oubli.core.explanation.estimator import Explained
from oubli.core.export.estimator import Exportable
from oubli.core.model import Model, QueryResult
from oubli.core.persistence import ASKED_FOR, read_model
from oubli.core.registry import PLACES
from oubli.core.unseen import conformal
from oubli.core.unseen.answers import out_of_bag_answers
from oubli.core.unseen.scoring import Score, score_unseen
from oubli.core.unseen.valuation import DataValues, data_values


class _Scored(Exportable, Explained, Model):
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

        Examples
        --------
        >>> from oubli import DynamicForestRegressor
        >>> X, y = [[float(i)] for i in range(20)], [0.0] * 19 + [100.0]
        >>> model = DynamicForestRegressor(random_state=0).fit(X, y)
        >>> model.data_values().lowest(1)[0][0]
        '19'
        """
        self.resolve()
        return data_values(self)


class Classifier(_Scored):
    """Labels from class probabilities."""

    task = Task.CLASSIFICATION
    _estimator_type = "classifier"

    @property
    @reads
    def classes_(self) -> Array:
        """The classes held, ordered by type and value."""
        self.check_is_fitted()
        return self.samples_.classes.classes_array().copy()

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
        """Predict the most probable class of each row; the smaller class wins a tie.

        Examples
        --------
        >>> from oubli import DynamicForestClassifier
        >>> model = DynamicForestClassifier(random_state=0).fit([[0.0], [1.0], [2.0]], ["a", "b", "b"])
        >>> model.predict([[5.0]]).tolist()
        ['b']
        """
        self._check_names(X)
        return self._answer(X).labels

    @reads_rows
    def predict_proba(self, X: Any) -> Reals:
        """Predict class probabilities, float64[n, n_classes], in the order of `classes_`.

        Examples
        --------
        >>> from oubli import DynamicForestClassifier
        >>> model = DynamicForestClassifier(random_state=0).fit([[0.0], [1.0], [2.0]], ["a", "b", "b"])
        >>> model.predict_proba([[5.0], [-5.0]]).shape
        (2, 2)
        """
        self._check_names(X)
        return self._probabilities(X)

    @reads_rows
    def predict_log_proba(self, X: Any) -> Reals:
        """Natural logarithm of `predict_proba`.

        Examples
        --------
        >>> from oubli import DynamicForestClassifier
        >>> model = DynamicForestClassifier(random_state=0).fit([[0.0], [1.0], [2.0]], ["a", "b", "b"])
        >>> model.predict_log_proba([[5.0], [-5.0]]).shape
        (2, 2)
        """
        self._check_names(X)
        with np.errstate(divide="ignore"):
            return np.log(self._probabilities(X))

    @reads
    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Share of rows (of their weights) whose predicted class is y.

        Examples
        --------
        >>> from oubli import DynamicForestClassifier
        >>> model = DynamicForestClassifier(random_state=0).fit([[0.0], [1.0], [2.0]], ["a", "b", "b"])
        >>> model.score([[5.0], [6.0]], ["b", "b"])
        1.0
        """
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

        Examples
        --------
        >>> from oubli import DynamicForestClassifier
        >>> X, y = [[float(i)] for i in range(40)], ["low"] * 20 + ["high"] * 20
        >>> model = DynamicForestClassifier(random_state=0).fit(X, y)
        >>> model.predict_set([[2.0], [38.0]], coverage=0.8).tolist()
        [[False, True], [True, False]]
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


class Regressor(_Scored):
    """Predictions that are numbers."""

    task = Task.REGRESSION
    _estimator_type = "regressor"

    @reads
    def query(self, X: Any, *, frozen: bool = False) -> QueryResult:
        self.check_is_fitted()
        return self._answer(X, frozen)

    def _answer(self, X: Any, frozen: bool = False) -> QueryResult:
        return QueryResult(self._read_trees(self.engine_.predict, X, frozen), None, None)

    @reads_rows
    def predict(self, X: Any) -> Reals:
        """Predict the target of each row, float64[n].

        Examples
        --------
        >>> from oubli import DynamicForestRegressor
        >>> model = DynamicForestRegressor(random_state=0).fit([[0.0], [1.0], [2.0]], [5.0, 5.0, 5.0])
        >>> model.predict([[1.5]]).tolist()
        [5.0]
        """
        self._check_names(X)
        return self._answer(X).labels

    @reads
    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Coefficient of determination R^2 of the predictions; NaN for less than two rows.

        Examples
        --------
        >>> from oubli import DynamicForestRegressor
        >>> model = DynamicForestRegressor(random_state=0).fit([[0.0], [1.0], [2.0]], [5.0, 5.0, 5.0])
        >>> model.score([[0.0], [1.0]], [5.0, 5.0])
        1.0
        """
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

        Examples
        --------
        >>> from oubli import DynamicForestRegressor
        >>> X = [[float(i)] for i in range(40)]
        >>> model = DynamicForestRegressor(random_state=0).fit(X, [row[0] for row in X])
        >>> low, high = model.predict_interval([[20.0]], coverage=0.8)[0]
        >>> bool(low < 20.0 < high)
        True
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

    Examples
    --------
    >>> import os, tempfile
    >>> from oubli import DynamicForestClassifier
    >>> forest = DynamicForestClassifier(n_estimators=5, random_state=0).fit([[0.0], [1.0]], ["a", "b"])
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     forest.save(os.path.join(folder, "forest.oubli"))
    ...     loaded = load(os.path.join(folder, "forest.oubli"))
    >>> loaded.digest() == forest.digest()
    True
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
