"""The influence of training samples on predictions: which samples made them, and what changes without each.

    method             kinds                          what a score is
    leaf-influence     online- and incremental-       minus the derivative of the loss by the sample's weight, in the
                       boosting, views                structures of the trees (`reverse.py`, `forward.py`)
    leaf-refit         the same, forest               change of the loss when all leaves are refitted without the sample
    leave-one-out      forest, incremental-boosting   change of the loss when the model unlearns the sample

"Finding Influential Training Samples for Gradient Boosted Decision Trees" (Sharchilev, Ustinovsky, Serdyukov, de Rijke
2018), whose influence has the other sign: theirs is the loss with the sample minus that without it.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from oubli.core.array_types import Bools, Ints, Reals
from oubli.core.concurrency.threads import run
from oubli.core.data.values import Task, normalise_id
from oubli.core.engine import Progress
from oubli.core.errors import EmptyModelError, InputError, UnknownIdError
from oubli.core.forest.engine import ForestEngine
from oubli.core.forest.layout.blocks import blocks_over
from oubli.core.influence.forest_paths import Rows, place_rows, sums_without
from oubli.core.influence.forward import SINGLE, Change, FastLeafInfluence, FastLeafRefit, read_update_set
from oubli.core.influence.losses import class_losses, row_losses, row_slopes
from oubli.core.influence.readers import view as make_view
from oubli.core.influence.readers.rows import held_labels
from oubli.core.influence.reverse import weight_adjoints, weight_adjoints_by_row
from oubli.core.influence.views import View
from oubli.core.samples import fixed_point

METHODS = ("leaf-influence", "leaf-refit", "leave-one-out")
_STEP = 64  # samples between two calls of `progress`
_FEW_ROWS = 16  # up to which reading row by row beats unlearning
_BATCH = 2**22  # numbers of answers held at once


@dataclass(frozen=True, eq=False)
class Influence:
    """How much each training sample helps on some rows.

    A positive score says that the sample helps: removing it raises the loss on the rows. For "leave-one-out" and
    "leaf-refit" it is by how much, loss without the sample minus loss with it. For "leaf-influence" it is minus the
    derivative of the loss by the sample's weight, in the structures of the trees and with their leaves refitted: by how
    much to first order, for a sample of weight 1; for another one multiply by its weight.

    Attributes
    ----------
    ids : sequence of str, length n
    scores : float64[n], or float64[n, rows] with reduce=None
    method : str
    note : str
        What there is to know about these scores; empty when they are what the method says.

    Examples
    --------
    >>> found = Influence(ids=["a", "b", "c"], scores=np.array([0.5, -0.25, 0.0]), method="leave-one-out")
    >>> found.helpful(), found.harmful()
    ([('a', 0.5)], [('b', -0.25)])
    """

    ids: Sequence[str]
    scores: Reals
    method: str
    note: str = ""

    def __repr__(self) -> str:
        """Name the method and the sizes."""
        rows = f", {self.scores.shape[1]:,} rows" if self.scores.ndim > 1 else ""
        return f"Influence({self.method!r}, {len(self.ids):,} samples{rows})"

    def helpful(self, top: int = 10, row: int | None = None) -> list[tuple[str, float]]:
        """The samples that help most, with their scores, best first: only positive ones.

        row : which row is meant, with reduce=None.

        Examples
        --------
        >>> found = Influence(ids=["a", "b", "c"], scores=np.array([0.5, -0.25, -0.75]), method="leave-one-out")
        >>> found.helpful()
        [('a', 0.5)]
        """
        return self._ranked(top, row, sign=1.0)

    def harmful(self, top: int = 10, row: int | None = None) -> list[tuple[str, float]]:
        """The samples that harm most, with their scores, worst first: only negative ones.

        row : which row is meant, with reduce=None.

        Examples
        --------
        >>> found = Influence(ids=["a", "b", "c"], scores=np.array([0.5, -0.25, -0.75]), method="leave-one-out")
        >>> found.harmful(top=1)
        [('c', -0.75)]
        """
        return self._ranked(top, row, sign=-1.0)

    def _ranked(self, top: int, row: int | None, sign: float) -> list[tuple[str, float]]:
        if self.scores.ndim == 1:
            if row is not None:
                raise InputError("there is one score for all rows: leave `row` out, or ask with reduce=None")
            scores = self.scores
        else:
            if row is None:
                raise InputError("there is a score for each row: name one by `row`, or ask with reduce='mean'")
            n_rows = self.scores.shape[1]
            if not 0 <= row < n_rows:
                raise InputError(f"row={row} must be from 0 to {n_rows - 1}")
            scores = self.scores[:, row]
        order = np.argsort(-sign * scores, kind="stable")[: max(int(top), 0)]
        return [(self.ids[i], float(scores[i])) for i in order.tolist() if sign * scores[i] > 0]


def influence(
    model: Any,
    X: Any,
    y: Any,
    *,
    method: str | None = None,
    update_set: Any = "all",
    reduce: str | None = "mean",
    ids: Iterable[Any] | None = None,
    progress: Progress | None = None,
) -> Influence:
    """Score every training sample by how much it helps on some rows.

    Parameters
    ----------
    model
        A fitted model of ours, of any kind but `tree`; or a `view` of one, or of another library's boosted model.
    X, y
        The rows, and their labels.
    method : "leaf-influence", "leaf-refit" or "leave-one-out", optional
        See above; "leaf-influence" when left out, or what the kind has. "leaf-influence" takes O(T n) for all samples,
        but with an update set of some leaves; "leaf-refit" that for each sample, and of a forest O(k depth + T rows);
        "leave-one-out" an unlearning each.
    update_set : "all", "single" or int k
        Whose changes the leaf methods follow: all samples', none but the sample itself, or those in the k leaves of
        each tree that have changed most.
    reduce : "mean" or None
        Mean over the rows, or a score for each.
    ids
        Training samples to score; all when left out.
    progress : callable(done, total), optional
        Called from time to time.

    Returns
    -------
    Influence
        A positive score: the sample helps, removing it raises the loss. The loss of a classifier is log-loss, with
        probabilities clipped to [1e-15, 1]; of a regressor squared error.

    Raises
    ------
    InputError
        When something does not fit, the method and the kind included; the text says what to use instead.
    UnknownIdError
        When an id is not among the training samples.
    EmptyModelError
        When the model holds no samples.

    Examples
    --------
    >>> from oubli import IncrementalBoostingClassifier
    >>> X = [[float(i)] for i in range(40)]
    >>> y = ["high" if row[0] > 20 else "low" for row in X]
    >>> y[10] = "high"  # a mistake
    >>> model = IncrementalBoostingClassifier(n_estimators=20, random_state=0).fit(X, y)
    >>> influence(model, [[10.0], [11.0]], ["low", "low"]).harmful(1)[0][0]
    '10'
    """
    if method is None:
        method = next(iter(getattr(model, "influence_methods", ())), METHODS[0])
    if method not in METHODS:
        raise InputError(f"method={method!r} must be one of {', '.join(METHODS)}")
    if reduce not in ("mean", None):
        raise InputError(f"reduce={reduce!r} must be 'mean' or None")
    _check_kind(model, method)
    if not isinstance(model, View):
        model.expect_kernels(model.schema_, "influence")
    if method == "leave-one-out" or is_read_as_model(model):
        if not (isinstance(update_set, str) and update_set == "all"):
            raise InputError("update_set is for leaf-influence and leaf-refit of boosted kinds: leave it out")
        ask = partial(_leave_one_out, model, X, y, method, reduce, ids, progress)
    else:
        ask = partial(_follow_leaves, model, X, y, method, update_set, reduce, ids, progress)
    return ask() if isinstance(model, View) else model.unchanged(ask)


def is_read_as_model(model: Any) -> bool:
    """Whether questions about a model are answered by the model itself, and not by a view of it."""
    return getattr(model, "kind", "") == "forest"


def _check_kind(model: Any, method: str) -> None:
    """Refuse what does not go together, and say what does."""
    if isinstance(model, View):
        if method == "leave-one-out":
            raise InputError("leave-one-out needs a model that unlearns: a view is for leaf-influence and leaf-refit")
        return
    if not hasattr(model, "influence_methods"):
        raise InputError(
            f"{type(model).__name__} is not a model of ours: make a view of it and the samples it was fitted on"
        )
    model.check_is_fitted()
    answered = model.influence_methods
    if not answered:
        raise InputError(f"there is no influence for the kind {model.kind}: use forest, or a boosted kind")
    if method == "leave-one-out" and method not in answered:
        raise InputError(f"{method} is for exact kinds, {model.kind} is {model.guarantee}: use method={answered[0]!r}")
    if method not in answered:
        raise InputError(f"{method} is not for this {model.kind}: use method={answered[0]!r}")


def _places(names: Sequence[str], ids: Iterable[Any] | None) -> Ints:
    """Places of ids among the training samples; of all when left out."""
    if ids is None:
        return np.arange(len(names))
    place_of = {name: place for place, name in enumerate(names)}
    wanted = [normalise_id(value) for value in ids]
    unknown = [name for name in wanted if name not in place_of]
    if unknown:
        raise UnknownIdError(unknown)
    return np.array([place_of[name] for name in wanted], np.int64)


# -- leaf-influence and leaf-refit ------------------------------------------------------------------


def _follow_leaves(
    model: Any, X: Any, y: Any, method: str, update_set: Any, reduce: str | None, ids: Iterable[Any] | None,
    progress: Progress | None,
) -> Influence:  # fmt: skip
    """Scores in the structures of the trees."""
    n_wanted = read_update_set(update_set)
    seen: View = model if isinstance(model, View) else make_view(model)
    leaves = seen.route(X)
    n_rows = leaves.shape[1]
    if n_rows == 0:
        raise InputError("X has no rows: ask about one at least")
    targets = seen.read_labels(y, n_rows)
    samples = _places(seen.ids, ids)
    raw_scores = seen.scores_in(leaves)

    def score_each(
        change: Callable[[int], Change], score: Callable[[Reals], Reals], reduction: Callable[[Reals], Any]
    ) -> Reals:
        """Score sample by sample by what its change does to the raw scores of the rows."""
        result = np.empty(len(samples) if reduce else (len(samples), n_rows))
        for i, sample in enumerate(samples.tolist()):
            found = score(change(sample).of_rows(seen, leaves))
            result[i] = reduction(found) if reduce else found
            if progress is not None and ((i + 1) % _STEP == 0 or i + 1 == len(samples)):
                progress(i + 1, len(samples))
        return result

    if method == "leaf-refit":
        losses = row_losses(seen.loss, raw_scores, targets)
        change = FastLeafRefit(seen, update_set).change
        scores = score_each(change, lambda moved: row_losses(seen.loss, raw_scores + moved, targets) - losses, np.mean)
    else:
        slopes = row_slopes(seen.loss, raw_scores, targets) / (n_rows if reduce else 1)
        if n_wanted > SINGLE or (n_wanted == SINGLE and not reduce):
            change = FastLeafInfluence(seen, update_set).change
            scores = score_each(change, lambda moved: -(moved * slopes).sum(axis=1), np.sum)
        elif reduce:
            propagates = n_wanted != SINGLE
            scores = -weight_adjoints(seen, leaves, slopes, propagates=propagates, progress=progress)[samples]
        else:
            scores = -weight_adjoints_by_row(seen, leaves, slopes, progress)[samples]
    return Influence(seen.ids if ids is None else [seen.ids[place] for place in samples], scores, method, seen.note)


# -- leave-one-out ----------------------------------------------------------------------------------


def _leave_one_out(
    model: Any, X: Any, y: Any, method: str, reduce: str | None, ids: Iterable[Any] | None, progress: Progress | None
) -> Influence:
    """The change of each row's loss when the model unlearns a sample, or its leaves do; progress counts samples.

    Raises
    ------
    InputError
        When the rows are refused.
    EmptyModelError
        When a model of fewer than two samples would be left empty.
    """
    store = model.samples_
    slots = store.slots() if ids is None else store.find(ids)
    if len(store) < 2:
        raise EmptyModelError("leave-one-out needs at least two samples: without one, none would be left")
    if model.n_lazy_tags_:
        model = model.copy()
        model.resolve()
    answers = model.query(X, frozen=True)
    n_rows = len(answers.labels)
    is_regression = model.task is Task.REGRESSION
    targets = held_labels(model.schema_, None if is_regression else model.samples_.classes)(y, n_rows)
    if n_rows == 0:
        raise InputError("X has no rows: ask about one at least")

    def losses_of(predictions: Reals) -> Reals:
        """Losses by predictions [s, m], or [s, m, classes]."""
        if is_regression:
            return (predictions - targets) ** 2
        flat = predictions.reshape(-1, predictions.shape[-1])
        return class_losses(flat, np.tile(targets.astype(np.int64), len(predictions))).reshape(len(predictions), n_rows)

    with_all = losses_of((answers.labels if answers.probabilities is None else answers.probabilities)[np.newaxis])[0]
    scores = np.empty(len(slots) if reduce else (len(slots), n_rows))
    done = 0
    engine = model.engine_
    keeps_splits = method == "leaf-refit"
    # With low disclosure a sample's id does not draw its trees, and each row is answered by trees of its own.
    reads = n_rows <= _FEW_ROWS and isinstance(engine, ForestEngine) and not engine.settings.has_low_disclosure
    if keeps_splits or reads:
        parts = _read_forest(model, X, slots, keeps_splits=keeps_splits)
    else:
        parts = _unlearn(model, X, slots)
    for part in parts:
        rises = losses_of(part) - with_all
        scores[done : done + len(part)] = rises.mean(axis=1) if reduce else rises
        done += len(part)
        if progress is not None:
            progress(done, len(slots))
    return Influence(list(store.names(slots)), scores, method)


# -- forest -----------------------------------------------------------------------------------------


def _read_forest(forest: Any, X: Any, slots: Ints, *, keeps_splits: bool) -> Iterator[Reals]:
    """Predictions without each sample, [s, m] or [s, m, classes] in the order of the classes of the model."""
    engine, data = forest.engine_, forest.engine_.data(forest.problem())
    settings = engine.settings
    cells, category_hashes = forest.samples_.encode_queries(X)
    m, width = len(cells), engine.width
    n_places = m * settings.n_trees
    n_columns = 1 if settings.is_regression else width
    rows = Rows(
        cells=cells,
        category_hashes=category_hashes,
        below=np.zeros(len(engine.trees.nodes), np.int32),
        ends=np.zeros((m, settings.n_trees), np.int32),
        shares=np.zeros((n_places, n_columns)),
        kept=np.zeros((n_places, n_columns)),
        changed=np.zeros(n_places, np.int32),
    )
    place_rows(engine.trees, engine.parameters, rows)
    n_most = int(engine.trees.nodes["n_samples"][: settings.n_trees].max())
    parts = list(_parts(len(slots), m * n_columns))
    n_threads = max(1, min(engine.n_threads, len(parts)))
    sides = []  # of each thread: what it writes to
    for _ in range(n_threads):
        own = {name: getattr(rows, name).copy() for name in ("shares", "kept", "changed")}
        scratch = engine.empty_scratch(n_most, len(data.category_hashes))
        work = blocks_over(np.zeros((1, engine.layout.size), np.int64), is_regression=settings.is_regression)
        sides.append((scratch, engine.blocks, work, rows._replace(**own)))

    def answer(side: tuple[Any, ...], start: int, end: int) -> Reals:
        part = slots[start:end]
        sums, n_planted = np.zeros((len(part), m, n_columns)), np.zeros(len(part), np.int64)
        sums_without(engine.trees, data, engine.parameters, *side, part, sums, n_planted, keeps_splits)
        return _forest_answers(forest, sums, n_planted)

    moves = np.zeros(len(slots), np.bool_) if keeps_splits else _scale_moves(forest, slots)
    for first in range(0, len(parts), n_threads):
        some = parts[first : first + n_threads]
        pieces = [partial(answer, side, *part) for side, part in zip(sides, some, strict=False)]
        for (start, end), answers in zip(some, run(pieces, n_threads), strict=True):
            for i in np.flatnonzero(moves[start:end]):
                answers[i] = _answer_of_copy(forest, X, int(slots[start + i]))
            yield answers


def _forest_answers(forest: Any, sums: Reals, n_planted: Ints) -> Reals:
    """Turn sums of shares, float64[s, m, any], into what the forest says."""
    engine = forest.engine_
    if engine.targets is not None:
        return fixed_point.restore(sums[:, :, 0] / n_planted[:, np.newaxis], engine.exponent)
    shares: Reals = sums.take(forest.class_order(), axis=2) / n_planted[:, np.newaxis, np.newaxis]
    return shares


def _scale_moves(forest: Any, slots: Ints) -> Bools:
    """Whether the scale of a regression's targets moves when a sample goes: it alone is that large."""
    moves = np.zeros(len(slots), np.bool_)
    if forest.engine_.targets is None:
        return moves
    y = forest.samples_.y
    scale = fixed_point.TargetScale()
    scale.count(y[forest.samples_.slots()], 1)
    largest = float(np.abs(y[forest.samples_.slots()]).max())
    for i in np.flatnonzero(np.abs(y[slots]) * 2.0**fixed_point.EXPONENT_STEP >= largest):
        other = scale.copy()
        other.count(y[slots[i] : slots[i] + 1], -1)
        moves[i] = other.exponent != scale.exponent
    return moves


# -- all kinds --------------------------------------------------------------------------------------


def _unlearn(model: Any, X: Any, slots: Ints) -> Iterator[Reals]:
    """The same by a copy that unlearns each sample and learns it again."""
    with _copy_of(model) as copied:
        engine, problem, order = copied.engine_, copied.problem(), copied.class_order()
        cells, category_hashes = copied.samples_.encode_queries(X)
        for slot in slots:
            one = np.array([slot])
            if problem.changes_classes(one):
                yield _answer_of_copy(model, X, int(slot))[np.newaxis]
                continue
            engine.delete(problem, one)
            answers = engine.predict(cells, category_hashes, order, lambda: problem, frozen=False)
            engine.add(problem, one)
            yield answers[np.newaxis]


@contextmanager
def _copy_of(model: Any) -> Iterator[Any]:
    """A copy for the length of the block, which is overwritten then: freed memory holds nothing of samples."""
    copied = model.copy()
    try:
        yield copied
    finally:
        copied.shred()


def _answer_of_copy(model: Any, X: Any, slot: int) -> Reals:
    """What a copy answers that unlearns the sample in the public way; classes that are gone have a probability of 0."""
    with _copy_of(model) as copied:
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
