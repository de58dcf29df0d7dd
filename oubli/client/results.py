"""What the client returns: messages of `oubli.api` as they are, and predictions as arrays."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from pydantic import TypeAdapter, ValidationError

from oubli.api.erasures import NothingErased, Receipt
from oubli.api.predictions import PredictionReceipt
from oubli.client.errors import UnexpectedAnswerError

if TYPE_CHECKING:
    import pandas as pd

T = TypeVar("T")


@dataclass(frozen=True, slots=True, eq=False)
class Predictions:
    """Predictions in the order of the rows.

    Attributes
    ----------
    predictions : ndarray, shape (n,)
        A class or a number for each row.
    classes : ndarray, shape (k,), or None
        The classes held, in the order of the probabilities; None for regression.
    probabilities : ndarray of float64, shape (n, k), or None
        None for regression.
    model_version : int
        Of the model that predicted; of a long table, which is sent in parts, of the newest that did.
    index : pandas Index, or None
        Of the DataFrame that was asked about.
    sets : list of lists of classes, or None
        With `coverage`: the classes that each row may be of.
    intervals : ndarray of float64, shape (n, 2), or None
        With `coverage`: between which numbers each target lies; infinite when too few samples tell.
    oldest_version : int
        As `model_version`, of the oldest model: another one when the model has changed between two parts. A class that
        was not held then has the probability 0.
    """

    predictions: np.ndarray[Any, Any]
    classes: np.ndarray[Any, Any] | None
    probabilities: np.ndarray[Any, Any] | None
    model_version: int
    index: Any = None
    sets: list[list[Any]] | None = None
    intervals: np.ndarray[Any, Any] | None = None
    oldest_version: int = 0

    def to_frame(self) -> pd.DataFrame:
        """Return a DataFrame with the index of the one asked about: `prediction`, and a column for each class.

        With `coverage` also `set`, or `low` and `high`.
        """
        import pandas as pd

        frame = pd.DataFrame({"prediction": self.predictions}, index=self.index)
        if self.sets is not None:
            frame["set"] = self.sets
        if self.intervals is not None:
            frame["low"], frame["high"] = self.intervals.T
        if self.classes is None or self.probabilities is None:
            return frame
        shares = pd.DataFrame(self.probabilities, index=frame.index, columns=list(self.classes))
        return pd.concat([frame, shares], axis=1)


@dataclass(frozen=True, slots=True)
class ListedDeletion:
    """What became of each name of a deletion.

    Attributes
    ----------
    receipt
        Of all of them.
    found
        How many samples were unlearned, by the position of a name in the request, from 0; without names of which
        nothing was held.
    """

    receipt: Receipt | NothingErased
    found: dict[int, int]


@dataclass(frozen=True, slots=True, eq=False)
class Without:
    """Predictions as they are, and as they would be without some samples.

    Attributes
    ----------
    before, after
        As they are, and as they would be; `after` is None when no sample would be left.
    removed, absent
        Samples that were left out, and names of which the model has learned nothing.
    n_samples, model_version
        Samples that would be left, and the version of the model that was asked.
    """

    before: Predictions
    after: Predictions | None
    removed: int
    absent: int
    n_samples: int
    model_version: int


@dataclass(frozen=True, slots=True, eq=False)
class SignedPredictions:
    """Predictions with a receipt; the server keeps nothing of it.

    Attributes
    ----------
    predictions
        As `predict` returns them.
    set_root
        Over the samples that the model is a function of, in hexadecimal.
    key_id
        Of the key that has signed.
    content
        `instances` as they were sent, and `answer` as it came: what `oubli.verifier.check_prediction` and `oubli proof
        check` check, and a line of the file for `oubli audit --receipts`.
    """

    predictions: Predictions
    set_root: str
    key_id: str
    content: Mapping[str, Any] = field(repr=False)


@cache
def _adapter(kind: Any) -> TypeAdapter[Any]:
    return TypeAdapter(kind)


def read(kind: type[T], content: Any) -> T:
    """Return an answer's JSON as a message.

    Raises
    ------
    UnexpectedAnswerError
        When it is none.
    """
    hashable: Any = kind
    try:
        found: T = _adapter(hashable).validate_python(content)
    except ValidationError as error:
        # The text of a validation error repeats what was answered.
        places = ", ".join(".".join(map(str, one["loc"])) or "the whole" for one in error.errors()[:5])
        raise UnexpectedAnswerError(
            f"the answer is no {kind.__name__} of a server that this client knows (wrong: {places})", 200
        ) from None
    return found


def read_predictions(content: Any, index: Any) -> Predictions:
    """Return predictions as arrays."""
    try:
        classes, probabilities = content.get("classes"), content.get("probabilities")
        return Predictions(
            _vector(content["predictions"]),
            None if classes is None else _vector(classes),
            None if probabilities is None else np.array(probabilities, np.float64).reshape(-1, len(classes)),
            int(content["model_version"]),
            index,
            content.get("sets"),
            _intervals(content.get("intervals")),
            int(content["model_version"]),
        )
    except (AttributeError, KeyError, TypeError, ValueError):
        raise UnexpectedAnswerError("the answer holds no predictions that this client knows", 200) from None


def joined(parts: Sequence[Predictions], index: Any) -> Predictions:
    """Return predictions of parts of a table, of which there is one at least, as those of the whole."""
    versions = [part.model_version for part in parts]
    first = replace(parts[0], index=index, model_version=max(versions), oldest_version=min(versions))
    if len(parts) == 1:
        return first
    intervals = [part.intervals for part in parts if part.intervals is not None]
    labels = sorted({label for part in parts for label in _ordered(part)})  # as the server orders them
    return replace(
        first,
        predictions=np.concatenate([part.predictions for part in parts]),
        classes=None if first.classes is None else _vector([label for _, label in labels]),
        probabilities=None if first.classes is None else np.concatenate([_spread(part, labels) for part in parts]),
        sets=None if first.sets is None else [one for part in parts for one in part.sets or ()],
        intervals=np.concatenate(intervals) if intervals else None,
    )


def _ordered(part: Predictions) -> list[tuple[str, Any]]:
    """Return the classes of predictions, each behind the name of its type."""
    return [] if part.classes is None else [(type(label).__name__, label) for label in part.classes.tolist()]


def _spread(part: Predictions, labels: list[tuple[str, Any]]) -> np.ndarray[Any, Any]:
    """Return probabilities with a column for each of some classes; of those that were not held it is 0."""
    shares = np.zeros((len(part.predictions), len(labels)))
    shares[:, list(map(labels.index, _ordered(part)))] = part.probabilities
    return shares


def _intervals(content: Any) -> np.ndarray[Any, Any] | None:
    if content is None:
        return None
    bounds = np.array(content, np.float64).reshape(-1, 2)  # null is NaN
    return np.where(np.isnan(bounds), [-np.inf, np.inf], bounds)


def read_without(content: Any, index: Any) -> Without:
    """Return predictions with and without some samples."""
    try:
        version = {"model_version": content["model_version"]}
        before, after = content["with"], content["without"]
        return Without(
            read_predictions({**before, **version}, index),
            None if after is None else read_predictions({**after, **version}, index),
            *(int(content[name]) for name in ("removed", "absent", "n_samples", "model_version")),
        )
    except (KeyError, TypeError, ValueError):
        raise UnexpectedAnswerError("the answer is no comparison that this client knows", 200) from None


def _vector(values: list[Any]) -> np.ndarray[Any, Any]:
    """Return values of one type as an array of it, others as an array of objects."""
    kinds = set(map(type, values))
    if kinds <= {int, float} or kinds == {bool}:
        return np.array(values)
    vector = np.empty(len(values), dtype=object)
    vector[:] = values
    return vector


def read_signed(instances: Any, answer: Any, index: Any) -> SignedPredictions:
    """Return predictions with their receipt."""
    if not isinstance(answer, dict) or "receipt" not in answer:
        raise UnexpectedAnswerError("the answer has no receipt: the server is of an earlier version", 200)
    receipt, content = read(PredictionReceipt, answer["receipt"]), {"instances": instances, "answer": answer}
    return SignedPredictions(read_predictions(answer, index), receipt.set_root, receipt.key_id, content)
