"""What classifiers of every kind share."""

from typing import Any

import numpy as np

from oubli.core.array_types import Array, Reals
from oubli.core.data.targets import encode_labels
from oubli.core.data.values import Task
from oubli.core.model import Model, QueryResult


class Classifier(Model):
    """Labels from class probabilities."""

    task = Task.CLASSIFICATION
    _estimator_type = "classifier"

    @property
    def classes_(self) -> Array:
        """The classes held, ordered by type and value."""
        self.check_is_fitted()
        return self.samples_.classes.classes_array().copy()

    def _probabilities(self, X: Any) -> Reals:
        cells, category_hashes = self._encode_queries(X)
        return self.engine_.predict(cells, category_hashes, self.class_order(), self.problem, False)

    def query(self, X: Any, *, frozen: bool = False) -> QueryResult:
        cells, category_hashes = self._encode_queries(X)
        held = self.samples_.classes
        probabilities = self.engine_.predict(cells, category_hashes, held.order(), self.problem, frozen)
        classes = held.classes_array()
        return QueryResult(classes[probabilities.argmax(axis=1)], probabilities, classes)

    def predict(self, X: Any) -> Array:
        """Predict the most probable class of each row; the smaller class wins a tie."""
        self._check_names(X)
        return self.query(X).labels

    def predict_proba(self, X: Any) -> Reals:
        """Predict class probabilities, float64[n, n_classes], in the order of `classes_`."""
        self._check_names(X)
        return self._probabilities(X)

    def predict_log_proba(self, X: Any) -> Reals:
        """Natural logarithm of `predict_proba`."""
        self._check_names(X)
        with np.errstate(divide="ignore"):
            return np.log(self._probabilities(X))

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Share of rows (of their weights) whose predicted class is y."""
        self._check_names(X)
        predicted = self.query(X).labels.tolist()
        labels = encode_labels(y, len(predicted), self.schema_.label_type, self.schema_.label_name)
        hits = [type(a) is type(b) and a == b for a, b in zip(predicted, labels, strict=True)]
        return float(np.average(hits, weights=sample_weight))
