"""Our boosted kinds as views: the samples held go down the trees held.

Leaf values of our kinds are rounded (to fixed point, or to a coarse grid on purpose), and those of `online-boosting`
are not -G / H of the present scores once it has been updated in place. So the view refits them: influence is that of
the model whose leaves are made anew from the samples held, in float64, in the structures as they are.

F_0 follows the samples where it is a mean or log-odds. On a coarse grid, or where updates leave it alone, it stays.
"""

from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from oubli.core.array_types import Array, Bools, Ints, Reals
from oubli.core.data.values import ColumnType, Task
from oubli.core.errors import EmptyModelError, InputError
from oubli.core.influence.losses import Loss
from oubli.core.influence.readers.labels import held_classes, held_targets
from oubli.core.influence.routing import make_table, route
from oubli.core.influence.start import StartRule, find_rule
from oubli.core.influence.views import LeafKind, View

if TYPE_CHECKING:
    from oubli.core.boosting.estimator import BoostedModel


ONLINE_NOTE = (
    "trees that were updated in place have leaves of their own history: this is the influence of refitting all leaves "
    "in the present structures; scrub first to have it of freshly trained trees"
)
QUANTISED_NOTE = (
    "leaf values lie on a grid, on purpose: this is the influence of refitting them as they are before rounding, in "
    "the present structures; what unlearning one sample changes, often nothing, is method='leave-one-out'"
)


def read(model: "BoostedModel") -> View:
    """Make the view.

    Raises
    ------
    EmptyModelError, InputError
        When the model holds no samples, or one class: there are no trees.
    """
    store, settings = model.samples_, model.settings_
    slots = store.slots()
    if len(slots) == 0:
        raise EmptyModelError("the model holds no samples: there is nothing that could have influence")
    trees = model.engine_.trees
    if trees.n_groups == 0:
        raise InputError("the model holds samples of one class: there are no trees, and no influence")
    data = model.data()
    columns = store.categories.columns.copy()
    categorical = [i for i, column in enumerate(model.schema_.columns) if column.type is ColumnType.CATEGORICAL]
    table = make_table(trees, data.category_hashes, columns)
    n_groups = trees.n_groups
    is_regression = model.task is Task.REGRESSION
    if is_regression:
        loss, y = Loss.SQUARED_ERROR, store.y[slots]
    else:
        loss = Loss.BINARY_LOG_LOSS if n_groups == 1 else Loss.SOFTMAX_LOG_LOSS
        y = model.problem().ranks[store.class_codes[slots]].astype(np.float64)
    weights = _training_weights(model, slots)

    def route_rows(X: Any) -> Array:
        cells, category_hashes = store.encode_queries(X)
        # Rows may have categories that are not held, under codes beyond those held.
        if category_hashes is data.category_hashes:
            return route(table, cells, np.arange(len(cells)))
        all_columns = _columns_of(columns, len(category_hashes), cells, categorical)
        return route(make_table(trees, category_hashes, all_columns), cells, np.arange(len(cells)))

    return View(
        leaves=route(table, data.cells, slots),
        offsets=table.offsets,
        values=table.values * (trees.unit / settings.learning_rate),
        n_groups=n_groups,
        loss=loss,
        leaf_kind=LeafKind.NEWTON,
        learning_rate=settings.learning_rate,
        l2=np.full(int(table.offsets[-1]), float(settings.l2_regularization)),
        start=trees.base.astype(np.float64),
        start_rule=_start_rule(model, trees.base, y, weights),
        y=y,
        weights=weights,
        ids=list(store.names(slots)),
        route=route_rows,
        read_labels=held_targets(model) if is_regression else held_classes(model),
        factor=(n_groups - 1) / n_groups if n_groups > 1 else 1.0,
        refits=True,
        note=_note_on(model),
    )


def _columns_of(
    held: npt.NDArray[np.int32], n_codes: int, cells: Array, categorical: list[int]
) -> npt.NDArray[np.int32]:
    """Columns by code: of those held, and of those that some rows have for categories that are not."""
    columns = np.full(n_codes, -1, np.int32)
    columns[: len(held)] = held
    for column in categorical:
        codes = cells[:, column]
        columns[codes[codes >= len(held)].astype(np.int64)] = column
    return columns


def _note_on(model: "BoostedModel") -> str:
    """What the answers have to say."""
    if model.guarantee != "exact":
        return ONLINE_NOTE
    return QUANTISED_NOTE if model.settings_.is_quantised else ""


def _start_rule(model: "BoostedModel", start: Reals, y: Reals, weights: Reals) -> StartRule:
    """How F_0 follows the samples: by a rule when trees are exact and nothing is on a coarse grid."""
    if model.guarantee != "exact" or model.settings_.is_quantised:
        return StartRule.CONSTANT
    return find_rule((StartRule.MEAN if model.task is Task.REGRESSION else StartRule.LOG_ODDS,), start, y, weights)


def _training_weights(model: "BoostedModel", slots: Ints) -> Reals:
    """1 for the samples that train, 0 for those that validate."""
    weights = np.ones(len(slots))
    if getattr(model.settings_, "patience", 0):
        # All train when all would validate.
        validates = validating(model, slots)
        if not validates.all():
            weights[validates] = 0.0
    return weights


def validating(model: "BoostedModel", slots: Ints) -> Bools:
    """Whether samples validate, by the hashes of their ids."""
    from oubli.core.boosting.presorted.watch import mark_validating

    settings = model.settings_
    limit = np.uint64(min(int(settings.validation_fraction * 2.0**64), 2**64 - 1))
    result = np.zeros(len(slots), np.bool_)
    mark_validating(model.samples_.id_hashes, slots, np.uint64(settings.seed), limit, result)
    return result
