"""Sets of classes and intervals of numbers that hold the right answer as often as asked.

Conformal prediction with samples that the trees have not learned: how far their predictions are from their labels says
how far a prediction may be from the truth. A forest predicts each sample by the trees that do not have it ("Regression
conformal prediction with random forests", Johansson, Bostrom, Lofstrom, Linusson 2014). Boosting with early stopping
does so with the samples that it validates on, which is split conformal prediction.

    a class    is in the set of a row where 1 - its probability is at most the quantile of 1 - that of the right class
    a number   is in the interval of a row where it is at most the quantile of |label - prediction| away

The quantile is the ceil((n + 1) coverage)-th smallest of n. For new rows that come from where the samples held come
from, split conformal prediction holds the right answer with at least the probability asked, whatever the model. The
forest's trees have each learned most of the samples that calibrate them: it keeps the probability closely in practice,
and the guarantee that is proven for such predictions is 1 - 2 (1 - coverage) ("Predictive inference is free with the
jackknife+-after-bootstrap", Kim, Xu, Barber 2020).
"""

import math
from typing import Any

import numpy as np

from oubli.core.array_types import Bools, Reals
from oubli.core.base import Keepable
from oubli.core.errors import InputError
from oubli.core.unseen.answers import label_columns, unseen_of

MOST = 20_000  # samples, those with the smallest hashes of ids: more would hardly move a quantile
_EXACT = 9  # decimals: 0.9 of 10 samples are 9


def class_limits(model: Keepable, coverage: Any, *, by_class: bool) -> Reals:
    """How far below 1 the probability of a class may be in a set, by column; infinite where too few samples tell."""
    share = read_coverage(coverage)
    slots, answers = unseen_of(model, MOST)
    n_classes = answers.shape[1]
    columns = label_columns(model, slots)
    distances = 1.0 - answers[np.arange(len(slots)), columns]
    if not by_class:
        return np.full(n_classes, _quantile(distances, share))
    return np.array([_quantile(distances[columns == column], share) for column in range(n_classes)])


def sets(probabilities: Reals, limits: Reals) -> Bools:
    """Which classes are in the set of each row."""
    return np.asarray(1.0 - probabilities <= limits)


def width(model: Keepable, coverage: Any) -> float:
    """How far an interval reaches to each side of a prediction; infinite where too few samples tell."""
    share = read_coverage(coverage)
    slots, answers = unseen_of(model, MOST)
    return _quantile(np.abs(model.samples_.y[slots] - answers), share)


def intervals(predictions: Reals, reach: float) -> Reals:
    """The lowest and the highest number of each row."""
    return np.stack([predictions - reach, predictions + reach], axis=1)


def read_coverage(coverage: Any) -> float:
    """Check the share of right answers that is asked for.

    Raises
    ------
    InputError
    """
    is_number = isinstance(coverage, (int, float, np.floating)) and not isinstance(coverage, bool)
    if not (is_number and 0.0 < coverage < 1.0):
        raise InputError("coverage must be a number between 0 and 1, such as 0.9")
    return float(coverage)


def _quantile(distances: Reals, share: float) -> float:
    rank = math.ceil(round((len(distances) + 1) * share, _EXACT))
    if rank > len(distances):
        return math.inf
    return float(np.partition(distances, rank - 1)[rank - 1])
