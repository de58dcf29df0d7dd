"""True leave-one-out for the exact kinds: the loss after unlearning a sample, for one sample after the other.

For a few rows the forest is only read: `forest_paths.py` finds what it would answer without a sample. For many rows,
and for `incremental-boosting`, a copy of the trees unlearns each sample, answers, and learns it again; being exact, it
then is what it was. The model itself is never written to, whatever happens on the way.
"""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from oubli.core.data.types import Task
from oubli.core.errors import EmptyModelError, InputError
from oubli.core.forest import quantisation
from oubli.core.forest.blocks import blocks_over
from oubli.core.forest.engine import ForestEngine
from oubli.core.forest.workspace import empty_scratch
from oubli.core.influence.forest_paths import Rows, place_rows, sums_without
from oubli.core.influence.losses import class_losses
from oubli.core.influence.readers.labels import held_classes, held_targets
from oubli.core.model import Model

Reals = npt.NDArray[np.float64]
Slots = npt.NDArray[np.int64]

_FEW_ROWS = 16  # up to which reading row by row beats unlearning
_BATCH = 2**22  # numbers of answers held at once
_STEP = 64  # samples between two calls of `progress`


def losses_without(
    model: Model, X: Any, y: Any, slots: Slots, progress: Callable[[int, int], None] | None = None
) -> tuple[Reals, Iterator[Reals]]:
    """Losses of rows with all samples, float64[m], and without each of those in some slots, part by part float64[s, m].

    Raises
    ------
    InputError
        When the kind is not exact, or the rows are refused.
    EmptyModelError
        When a model of fewer than two samples would be left empty.
    """
    if "leave-one-out" not in model.influence_methods:
        raise InputError(
            f"leave-one-out needs a kind whose guarantee is exact, forest or incremental-boosting; {model.kind} is "
            f"{model.guarantee}"
        )
    if len(model.samples_) < 2:
        raise EmptyModelError("leave-one-out needs at least two samples: without one, none would be left")
    if model.n_lazy_tags_:
        model = model.copy()
        model.resolve()
    answers = model.query(X, frozen=True)
    n_rows = len(answers.labels)
    is_regression = model.task is Task.REGRESSION
    targets = (held_targets(model) if is_regression else held_classes(model))(y, n_rows)

    def losses_of(predictions: Reals) -> Reals:
        """Losses by predictions [s, m], or [s, m, classes]."""
        if is_regression:
            return (predictions - targets) ** 2
        flat = predictions.reshape(-1, predictions.shape[-1])
        return class_losses(flat, np.tile(targets.astype(np.int64), len(predictions))).reshape(len(predictions), n_rows)

    with_all = losses_of((answers.labels if answers.probabilities is None else answers.probabilities)[np.newaxis])[0]
    answering = _answers_without(model, X, n_rows, slots)

    def parts() -> Iterator[Reals]:
        done = 0
        for part in answering:
            yield losses_of(part)
            done += len(part)
            if progress is not None:
                progress(done, len(slots))

    return with_all, parts()


def _answers_without(model: Any, X: Any, n_rows: int, slots: Slots) -> Iterator[Reals]:
    """Predictions without each sample, [s, m] or [s, m, classes] in the order of the classes of the model."""
    if not isinstance(model.engine_, ForestEngine):
        return _unlearn(model, X, slots)
    if n_rows <= _FEW_ROWS:
        return _read_forest(model, X, slots)
    return _unlearn_forest(model, X, slots)


# -- forest -----------------------------------------------------------------------------------------


def _read_forest(forest: Any, X: Any, slots: Slots) -> Iterator[Reals]:
    ensemble, data = forest.engine_.ensemble, forest.engine_.data(forest.problem())
    settings = ensemble.settings
    cells, category_hashes = forest.samples_.encode_queries(X)
    m, width = len(cells), ensemble.width
    n_places = m * settings.n_trees
    n_columns = 1 if settings.is_regression else width
    rows = Rows(
        cells=cells,
        category_hashes=category_hashes,
        below=np.zeros(len(ensemble.trees.nodes), np.int32),
        ends=np.zeros((m, settings.n_trees), np.int32),
        shares=np.zeros((n_places, n_columns)),
        kept=np.zeros((n_places, n_columns)),
        changed=np.zeros(n_places, np.int32),
    )
    place_rows(ensemble.trees, ensemble.parameters, rows)
    layout = ensemble.layout
    n_most = int(ensemble.trees.nodes["n_samples"][: settings.n_trees].max())
    scratch = empty_scratch(
        n_most,
        len(data.category_hashes),
        layout.n_counters,
        forest.n_features_in_,
        settings.n_trees,
        width,
        cells.dtype,
    )
    work = blocks_over(np.zeros((1, layout.size), np.int64), is_regression=settings.is_regression)
    moves = _scale_moves(forest, slots)
    for start, end in _parts(len(slots), m * n_columns):
        part = slots[start:end]
        sums, n_planted = np.zeros((len(part), m, n_columns)), np.zeros(len(part), np.int64)
        sums_without(
            ensemble.trees, data, ensemble.parameters, scratch, ensemble.blocks, work, rows, part, sums, n_planted
        )
        answers = _forest_answers(forest, sums, n_planted)
        for i in np.flatnonzero(moves[start:end]):
            answers[i] = _answer_of_copy(forest, X, int(part[i]))
        yield answers


def _unlearn_forest(forest: Any, X: Any, slots: Slots) -> Iterator[Reals]:
    copied = forest.copy()
    ensemble, data = copied.engine_.ensemble, copied.engine_.data(copied.problem())
    cells, category_hashes = copied.samples_.encode_queries(X)
    moves = _scale_moves(forest, slots)
    for i, slot in enumerate(slots):
        if moves[i]:
            yield _answer_of_copy(forest, X, int(slot))[np.newaxis]
            continue
        one = np.array([slot])
        ensemble.delete(data, one)
        sums, n_planted = ensemble.sum_leaves(data, cells, category_hashes, frozen=False)
        ensemble.add(data, one)
        yield _forest_answers(forest, sums[np.newaxis], np.array([n_planted]))


def _forest_answers(forest: Any, sums: Reals, n_planted: npt.NDArray[np.int64]) -> Reals:
    """Turn sums of shares, float64[s, m, any], into what the forest says."""
    targets = forest.engine_.targets
    if targets is not None:
        return quantisation.restore(sums[:, :, 0] / n_planted[:, np.newaxis], targets.exponent)
    shares: Reals = sums.take(forest.class_order(), axis=2) / n_planted[:, np.newaxis, np.newaxis]
    return shares


def _scale_moves(forest: Any, slots: Slots) -> npt.NDArray[np.bool_]:
    """Whether the scale of a regression's targets moves when a sample goes: it alone is that large."""
    moves = np.zeros(len(slots), np.bool_)
    if forest.engine_.targets is None:
        return moves
    y = forest.samples_.y
    scale = quantisation.TargetScale()
    scale.count(y[forest.samples_.slots()], 1)
    largest = float(np.abs(y[forest.samples_.slots()]).max())
    for i in np.flatnonzero(np.abs(y[slots]) * 2.0**quantisation.EXPONENT_STEP >= largest):
        other = scale.copy()
        other.count(y[slots[i] : slots[i] + 1], -1)
        moves[i] = other.exponent != scale.exponent
    return moves


# -- others -----------------------------------------------------------------------------------------


def _unlearn(model: Any, X: Any, slots: Slots) -> Iterator[Reals]:
    copied = model.copy()
    problem = copied.problem()
    for slot in slots:
        one = np.array([slot])
        if problem.changes_classes(one):
            yield _answer_of_copy(model, X, int(slot))[np.newaxis]
            continue
        copied.engine_.delete(problem, one)
        answers = copied.query(X)
        copied.engine_.add(problem, one)
        yield (answers.labels if answers.probabilities is None else answers.probabilities)[np.newaxis]


# -- both -------------------------------------------------------------------------------------------


def _answer_of_copy(model: Any, X: Any, slot: int) -> Reals:
    """What a copy answers that unlearns the sample in the public way; classes that are gone have a probability of 0."""
    copied = model.copy()
    copied.delete([model.samples_.id_of(slot)])
    answers = copied.query(X)
    if answers.probabilities is None:
        return np.asarray(answers.labels, np.float64)
    codes, order = copied.class_order(), model.class_order()
    result = np.zeros((len(answers.probabilities), len(order)))
    result[:, [int(np.flatnonzero(order == code)[0]) for code in codes]] = answers.probabilities
    return result


def _parts(n: int, n_numbers: int) -> Iterator[tuple[int, int]]:
    """Cut samples into parts that are answered together."""
    step = max(1, min(_STEP * max(1, n // (_STEP * 64)), _BATCH // max(n_numbers, 1)))
    for start in range(0, n, step):
        yield start, min(start + step, n)
