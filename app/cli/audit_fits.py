"""Models and trees that an audit fits to compare with a state, and the root over the samples of an export.

The root is made as a server makes it, in a fraction of the time that `oubli.verifier` takes: samples become JSON in C,
and a kernel hashes the tree. `oubli.verifier.set_root` needs only hashlib and shares no code with a server: it is for
auditors who do not trust this code, and for exports that a server did not write.
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from hashlib import sha256
from itertools import chain
from typing import TYPE_CHECKING, Any, NamedTuple

import orjson

from oubli import verifier
from oubli.app.ledger.set_tree import Positions, SetTree, as_written, content_of, in_order

if TYPE_CHECKING:
    from oubli.core.model import Model, SomeTrees
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
    from oubli.app.service.jobs.fits import estimator_of
    from oubli.core.data.schema import Schema

    schema = Schema.from_dict(checked.schema)
    model: Model = estimator_of(checked.entry["kind"], schema.task, checked.parameters).start(schema)
    return model


def _prepared(samples: Samples, model: Model) -> tuple[list[list[Any]], list[Any], dict[str, Any]]:
    """Have the kernels of a model ready; return rows and labels as it reads them, and its ids and weights."""
    from oubli.app.service.compiling import prepare_kernels

    schema = model.schema_
    if samples:
        prepare_kernels(model.kind, schema, model.get_params(), answers=False)
    rows = [[one["features"][name] for name in schema.names] for one in samples]
    further = {"ids": [one["id"] for one in samples], "sample_weight": [one.get("weight", 1) for one in samples]}
    return rows, [one["label"] for one in samples], further


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
            rows, labels, further = _prepared(samples, model)
            model.fit(rows, labels, **further, schema=model.schema_, progress=progress)
    return model


def draw(checked: CheckedState, n: int) -> Drawn:
    """Draw trees of the model of a state, so that the choice cannot be known in advance.

    Raises
    ------
    UncheckableError
        When single trees cannot be compared, or when there are fewer.
    """
    from oubli.core.model import separate_trees_of
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
    from oubli.core.model import grow_some

    with _fitting():
        model = _begun(checked)
        rows, labels, further = _prepared(samples, model)
        return grow_some(model, drawn.trees, rows, labels, **further, progress=progress)


def check_model(model: Model, checked: CheckedState) -> None:
    """Check that a model that was fitted afresh is the one that a state has the digest of.

    Raises
    ------
    FailedError
        When it is not.
    UncheckableError
        When that cannot be known.
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


FEW = 2_000  # samples for which the kernel is not worth loading
_NONCES = re.compile(r"(?:[0-9a-f]{32})*")
_NONCE_DIGITS, _NONCE_BYTES = 32, 16
_WRITTEN_ALIKE = frozenset({str, int, bool, type(None)})  # by orjson and by RFC 8785


class _UnusualError(Exception):
    """The samples are not as a server writes them."""


def set_root(samples: Sequence[Any], positions_key: bytes) -> bytes:
    """Return what `oubli.verifier.set_root` returns, or raise what that raises; other threads keep running.

    Parameters
    ----------
    samples
        As `GET /samples?openings=true` lists them.
    positions_key
        The key of positions.
    """
    if len(samples) <= FEW:
        return verifier.set_root(samples, positions_key)
    try:
        leaves = _leaves(samples, positions_key)
    except (_UnusualError, AttributeError, KeyError, TypeError, ValueError):
        return verifier.set_root(samples, positions_key)
    tree, positions = SetTree(len(leaves)), sorted(leaves)
    tree.fill(positions, b"".join(map(leaves.__getitem__, positions)))
    return tree.root()


def _leaves(samples: Sequence[Any], key: bytes) -> dict[int, bytes]:
    """Return the contents of leaves by position."""
    if any(one.get("restricted_at") is not None for one in samples):
        raise _UnusualError
    hashes = dict(zip((one["id"] for one in samples), _hashes(samples), strict=True))
    if len(hashes) < len(samples):
        raise _UnusualError
    of_subjects: dict[str, list[bytes]] = {}
    for one in samples:
        if one["subject"] is not None:
            of_subjects.setdefault(one["subject"], []).append(hashes[one["id"]])
    places = Positions(key)
    leaves = {places.of(("id", name)): content for name, content in hashes.items()}
    subjects = {places.of(("subject", name)): content_of(ones) for name, ones in of_subjects.items()}
    if len(leaves) < len(hashes) or len(subjects) < len(of_subjects):  # names that share a position
        raise _UnusualError
    return leaves | subjects


def _hashes(samples: Sequence[Any]) -> list[bytes]:
    """Return the hashes of samples."""
    nonces = _raw_nonces([one["nonce"] for one in samples])
    rows = _features(samples)
    labels = [one["label"] for one in samples]
    weights = [one.get("weight", 1) for one in samples]
    if not {*map(type, labels)} <= _WRITTEN_ALIKE | {float} or not {*map(type, weights)} <= {int, float}:
        raise _UnusualError
    own = [{} if weight == 1 else {"weight": as_written(weight)} for weight in weights]
    return [
        sha256(
            nonces[_NONCE_BYTES * i : _NONCE_BYTES * (i + 1)]
            + orjson.dumps(
                {
                    "features": rows[i],
                    "id": one["id"],
                    "label": as_written(labels[i]),
                    "subject": one["subject"],
                    **own[i],
                },
                option=orjson.OPT_SORT_KEYS,
            )
        ).digest()
        for i, one in enumerate(samples)
    ]


def _raw_nonces(nonces: Sequence[str]) -> bytes:
    text = "".join(nonces)
    if not _NONCES.fullmatch(text) or {*map(len, nonces)} != {_NONCE_DIGITS}:
        raise _UnusualError
    return bytes.fromhex(text)


def _features(samples: Sequence[Any]) -> list[dict[str, Any]]:
    """Return the features of samples so that orjson writes them as RFC 8785 does."""
    rows: list[dict[str, Any]] = [one["features"] for one in samples]
    names = {*chain.from_iterable(rows)}
    types = {*map(type, chain.from_iterable(map(dict.values, rows)))}
    if sorted(names) != in_order(names) or not types <= _WRITTEN_ALIKE | {float}:
        raise _UnusualError
    if float in types:
        rows = [{name: as_written(value) for name, value in row.items()} for row in rows]
    return rows
