"""Samples on their way into the store and out of it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np

from oubli.core.array_types import Array, Ints, Reals
from oubli.core.data.values import Label
from oubli.core.jit.targets import GRID
from oubli.core.samples.categories import Arriving, Leaving
from oubli.core.samples.labels import Moving
from oubli.core.samples.slots import IdSource, refuse_repeated


@dataclass(frozen=True, slots=True)
class HeldSample:
    """One sample as it is held.

    Attributes
    ----------
    id : str
        Its id.
    features : list
        In the order of the schema: float for numeric columns, bool for boolean ones, text for
        categorical ones, None where missing.
    label : str, int, float or bool
        Its label, of the schema's type.
    subject : str or None
        Whom it belongs to.
    expires_ms : int or None
        When it has to go, in milliseconds since 1970 UTC.
    restricted_ms : int or None
        Since when its subject is restricted, in milliseconds since 1970 UTC; None when it is not.
    weight : float
        Its weight, without that of its class.

    Examples
    --------
    >>> from oubli import DynamicForestClassifier
    >>> forest = DynamicForestClassifier(n_estimators=5, random_state=0)
    >>> forest.fit([[0.0], [1.0]], ["a", "b"], subjects=["ada", "bob"]).n_samples_
    2
    >>> sample = forest.samples_.get("1")
    >>> sample.features, sample.label, sample.subject
    ([1.0], 'b', 'bob')
    """

    id: str
    features: list[float | str | bool | None]
    label: Label
    subject: str | None
    expires_ms: int | None = None
    restricted_ms: int | None = None
    weight: float = 1.0


@dataclass(slots=True)
class Prepared:
    """Rows that have passed every check and only wait to be committed.

    Attributes
    ----------
    n : int
        Number of rows.
    cells : float32/64[n, d]
        Encoded features; NaN in categorical columns.
    texts : dict of int to list
        By categorical column: each row's category, None when missing.
    labels : list or float64[n]
        Canonical labels, or targets of a regression.
    ids : list of str or None
        None when ids are to be generated; `SampleStore.commit` fills them in.
    weights : int32[n] or None
        In units, see `weights.py`; None when all are 1.
    units : int32[n] or None
        The same, times the weights of the classes.
    """

    n: int
    cells: Array
    texts: dict[int, list[str | None]]
    labels: list[Label] | Reals
    ids: list[str] | None
    weights: Array | None = None
    units: Array | None = None

    def take(self, rows: Sequence[int]) -> "Prepared":
        """Return some of the rows, in the order given."""
        rows = list(rows)
        labels = self.labels
        return Prepared(
            n=len(rows),
            cells=self.cells[rows],
            texts={column: [values[row] for row in rows] for column, values in self.texts.items()},
            labels=[labels[row] for row in rows] if isinstance(labels, list) else labels[rows],
            ids=None if self.ids is None else [self.ids[row] for row in rows],
            weights=None if self.weights is None else self.weights[rows],
            units=None if self.units is None else self.units[rows],
        )

    @classmethod
    def merged(cls, parts: "Sequence[Prepared]") -> "Prepared":
        """Put batches for one store together, to be committed as one.

        Parameters
        ----------
        parts : sequence of Prepared
            At least one; all with ids, or all without.

        Raises
        ------
        DuplicateIdError
            When an id occurs twice.
        ValueError
            When ids are given in some parts and to be generated in others.
        """
        if len(parts) == 1:
            return parts[0]
        labels: list[Label] | Reals
        if isinstance(parts[0].labels, list):
            labels = [label for part in parts for label in part.labels]
        else:
            labels = np.concatenate([part.labels for part in parts])
        given = [part.ids for part in parts if part.ids is not None]
        ids = [name for names in given for name in names] if given else None
        if given and len(given) != len(parts):
            raise ValueError("ids must be given in all parts or in none")
        if ids is not None and len(set(ids)) != len(ids):
            refuse_repeated(ids)
        return cls(
            n=sum(part.n for part in parts),
            cells=np.concatenate([part.cells for part in parts]),
            texts={column: [text for part in parts for text in part.texts[column]] for column in parts[0].texts},
            labels=labels,
            ids=ids,
            weights=_merged([part.weights for part in parts], parts),
            units=_merged([part.units for part in parts], parts),
        )


def _merged(units: Sequence[Array | None], parts: Sequence[Prepared]) -> Array | None:
    """Weights of several parts, where None is 1 for each row."""
    if all(some is None for some in units):
        return None
    pairs = zip(units, parts, strict=True)
    return np.concatenate([np.full(part.n, GRID, np.int32) if some is None else some for some, part in pairs])


class Arrivals(NamedTuple):
    """What `SampleStore.hold` writes."""

    prepared: Prepared
    names: list[str]
    slots: Ints
    next_id: int
    hashes: Any  # of the ids: uint64[n], or a number for one row that is not written ahead
    categories: Arriving | None  # of one row, looked up when it is held
    classes: Moving | None


class Departures(NamedTuple):
    """What `SampleStore.let_go` does."""

    slots: list[int]
    where: Ints | None  # the same; of one sample None, as all that follows
    categories: Leaving | None
    classes: Moving | None
    kept: tuple[dict[str, int], list[str | None]] | None  # slots by id and ids by slot, when most samples leave


class Rows(NamedTuple):
    """Rows to be added, with what belongs to them besides features and labels.

    Attributes
    ----------
    X : the features.
    ids : texts, None where one is to be generated; None when all are.
    source : where the ids come from; None leaves what the model knows of that.
    subjects : by row, None where there is none; None when no row has one.
    expires : by row, in milliseconds since 1970, None where a row does not expire; one time for all rows; or None
        when no row says when.
    default_expiry : of rows that do not say when they expire.
    origin : a number of the caller's, for all rows.
    at_ms : when they are added, in milliseconds since 1970; 0 when that is not known.
    request : what names the request that adds them.
    retentions : how long samples of subjects are kept from now on, in milliseconds.
    nonces : 16 bytes for each row; None when none are kept.
    weights : by row; one for all rows; or None when all are 1.
    """

    X: Any
    ids: Sequence[str | None] | None
    source: IdSource | None = None
    subjects: Sequence[str | None] | None = None
    expires: Sequence[int | None] | int | None = None
    default_expiry: int | None = None
    origin: int = 0
    at_ms: int = 0
    request: str | None = None
    retentions: Mapping[str, int] = MappingProxyType({})
    nonces: bytes | None = None
    weights: Any = None

    def take(self, rows: Sequence[int]) -> "Rows":
        """Return what belongs to some of the rows, in the order given; features, nonces and weights are left out."""
        ids, subjects, expires = self.ids, self.subjects, self.expires
        return self._replace(
            X=None,
            weights=None,
            ids=None if ids is None else [ids[row] for row in rows],
            subjects=None if subjects is None else [subjects[row] for row in rows],
            expires=expires if expires is None or isinstance(expires, int) else [expires[row] for row in rows],
        )

    def with_default_expiry(self, n: int) -> "Rows":
        """Return them with the expiry of n rows that say nothing about it."""
        default, expires = self.default_expiry, self.expires
        if default is None or isinstance(expires, int):
            return self
        return self._replace(expires=[default if at is None else at for at in expires or [None] * n])


NO_ROWS = Rows(None, None)
