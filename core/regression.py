"""What regressors of every kind share."""

import math
from typing import Any

import numpy as np

from oubli.core.array_types import Reals
from oubli.core.data.targets import encode_targets
from oubli.core.data.values import Task
from oubli.core.model import Model, QueryResult


class Regressor(Model):
    """Predictions that are numbers."""

    task = Task.REGRESSION
    _estimator_type = "regressor"

    def query(self, X: Any, *, frozen: bool = False) -> QueryResult:
        cells, category_hashes = self._encode_queries(X)
        order = self.samples_.classes.order()
        return QueryResult(self.engine_.predict(cells, category_hashes, order, self.problem, frozen), None, None)

    def predict(self, X: Any) -> Reals:
        """Predict the target of each row, float64[n]."""
        self._check_names(X)
        return self.query(X).labels

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Coefficient of determination R^2 of the predictions; NaN for less than two rows."""
        self._check_names(X)
        predicted = self.query(X).labels
        y = encode_targets(y, len(predicted), self.schema_.label_name)
        if len(y) < 2:
            return math.nan
        residual = float(np.average((y - predicted) ** 2, weights=sample_weight))
        total = float(np.average((y - np.average(y, weights=sample_weight)) ** 2, weights=sample_weight))
        return 1.0 - residual / total if total > 0 else float(residual == 0)
