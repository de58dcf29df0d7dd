"""What an audit compares a state with: a model that is fitted afresh, or some of its trees."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from oubli.core.model import Model
    from oubli.core.some_trees import SomeTrees
    from oubli.verifier import CheckedPrediction, CheckedState

Samples = list[dict[str, Any]]
_randomness = random.SystemRandom()


class Drawn(NamedTuple):
    """Trees that an audit compares.

    Attributes
    ----------
    trees
        Their numbers, ascending.
    n_trees
        How many there are to draw from.
    """

    trees: list[int]
    n_trees: int


@contextmanager
def _fitting() -> Iterator[None]:
    from oubli.core.errors import OubliError
    from oubli.verifier import UncheckableError

    try:
        yield
    except (OubliError, LookupError, TypeError, ValueError):
        raise UncheckableError(
            "this version of Oubli cannot fit the samples with the parameters in the log: use the version in 'software'"
        ) from None


def _begun(checked: CheckedState) -> Model:
    """Begin a model without samples."""
    from oubli.app.service.fitting import estimator_of
    from oubli.core.data.schema import Schema

    schema = Schema.from_dict(checked.schema)
    model: Model = estimator_of(checked.entry["kind"], schema.task, checked.parameters).start(schema)
    return model


def _prepared(samples: Samples, model: Model) -> tuple[list[list[Any]], list[Any], list[Any]]:
    """Have the kernels of a model ready; return rows, labels and ids as it reads them."""
    from oubli.app.service.compiling import prepare_kernels

    schema = model.schema_
    if samples:
        prepare_kernels(model.kind, schema, model.get_params(), answers=False)
    rows = [[one["features"][name] for name in schema.names] for one in samples]
    return rows, [one["label"] for one in samples], [one["id"] for one in samples]


def fit(samples: Samples, checked: CheckedState, progress: Any = None) -> Model:
    """Fit a model on samples, with the parameters of a state.

    Raises
    ------
    UncheckableError
        When they cannot be fitted.
    """
    with _fitting():
        model = _begun(checked)
        if samples:
            rows, labels, ids = _prepared(samples, model)
            model.fit(rows, labels, ids=ids, schema=model.schema_, progress=progress)
    return model


def draw(checked: CheckedState, n: int) -> Drawn:
    """Draw trees of the model of a state, so that nobody knows before which ones are compared.

    Raises
    ------
    UncheckableError
        When single trees cannot be compared, or when there are fewer.
    """
    from oubli.core.some_trees import separate_trees_of
    from oubli.verifier import UncheckableError

    if not checked.is_exact:
        raise UncheckableError("the kind is not exact, so there are no trees to compare with: leave out --trees")
    with _fitting():
        model = _begun(checked)
    n_trees = separate_trees_of(model)
    if not n_trees:
        raise UncheckableError(
            f"each tree of {model.kind} depends on those before it, so they are compared together: leave out --trees"
        )
    if n > n_trees:
        raise UncheckableError(f"the model has {n_trees} trees: give --trees a number from 1 to {n_trees}")
    _require_same_format(model, checked)
    if checked.tree_digests is None:
        raise UncheckableError(
            "the state holds no digests of trees: download a new one with `oubli proof fetch`, or leave out --trees"
        )
    return Drawn(sorted(_randomness.sample(range(n_trees), n)), n_trees)


def grow(samples: Samples, checked: CheckedState, drawn: Drawn, progress: Any = None) -> SomeTrees:
    """Grow some trees of a fit on samples, with the parameters of a state.

    Raises
    ------
    UncheckableError
        When they cannot be fitted.
    """
    from oubli.core.some_trees import grow_some

    with _fitting():
        model = _begun(checked)
        rows, labels, ids = _prepared(samples, model)
        return grow_some(model, drawn.trees, rows, labels, ids=ids, progress=progress)


def check_model(model: Model, checked: CheckedState) -> None:
    """Check that a model that was fitted afresh is the one that a state has the digest of.

    Raises
    ------
    FailedError
        When it is not.
    UncheckableError
        When nobody knows.
    """
    from oubli.verifier import FailedError

    _require_same_format(model, checked)
    if model.digest() != checked.digest:
        raise FailedError(
            "digest", "the model is another than the one that training on these samples with these parameters gives"
        )


def _require_same_format(model: Model, checked: CheckedState) -> None:
    from oubli.verifier import UncheckableError

    if checked.digest is None:
        raise UncheckableError("the digest was forgotten, because samples were erased since: ask for a new state")
    if model.engine_.format != checked.entry["digest_format"]:
        raise UncheckableError(
            f"the server is of version {checked.entry['software']}, whose digests are others: use that version"
        )


def check_answer(model: Model, prediction: CheckedPrediction) -> None:
    """Check that a prediction is one of a model.

    Raises
    ------
    FailedError
        When it is not.
    """
    from oubli.app.http.responses import result_content
    from oubli.core.errors import OubliError
    from oubli.verifier import FailedError, same_answer

    names = model.schema_.names
    try:
        rows = [row if isinstance(row, list) else [row[name] for name in names] for row in prediction.instances]
        answer = result_content(model.query(rows))
    except (OubliError, LookupError, TypeError):
        answer = {}
    if "probabilities" in answer:
        answer["probabilities"] = answer["probabilities"].tolist()
    if not same_answer(answer, prediction.answer):
        raise FailedError("prediction", "a prediction is signed that this model does not make")
