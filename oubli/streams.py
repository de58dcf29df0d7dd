"""Models that learn a stream one sample at a time: dictionaries, sliding windows, new features.

A window holds the newest samples. After each sample the model is that of a fresh fit on the samples in the window, bit
for bit if the kind is exact, whatever the kind: the oldest samples are unlearned.
"""

from collections import deque
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from operator import attrgetter
from typing import Any

import numpy as np

from oubli.core.data.schema import LabelType, Schema, Task, infer_columns
from oubli.core.data.values import is_missing
from oubli.core.errors import InputError
from oubli.core.model import Model


class Stream:
    """Learns samples of a stream, and unlearns those that leave its window.

    Parameters
    ----------
    model : an estimator of any kind
        Fitted by the first sample. A fitted one is continued, if its columns have names; of its samples those with the
        lowest ids, as text or number, count as the oldest.
    window : int, optional
        Most samples to hold; the oldest leaves when there is one more.
    window_seconds : float, optional
        How long a sample is held. It is the `expires_at` of the sample; the clock is the `at` of the samples.

    Attributes
    ----------
    model : the estimator, a new one after a sample with a new feature.

    Features are named. One that has not been there before becomes a column: a new model is then fitted on the samples
    held, in which it is missing. What is missing from a sample is a missing value. A feature is a number or a
    category for ever, as its first value is.

    One thread at a time may use a stream.

    Examples
    --------
    >>> from oubli import DynamicForestClassifier
    >>> stream = Stream(DynamicForestClassifier(n_estimators=5, random_state=0), window=2)
    >>> for hour, label in enumerate(["night", "night", "day"]):
    ...     name = stream.learn_one({"hour": hour}, label)
    >>> stream.model.n_samples_
    2
    >>> stream.unlearn_one(name)
    >>> stream.predict_one({"hour": 3})
    'night'
    """

    def __init__(self, model: Model, *, window: int | None = None, window_seconds: float | None = None) -> None:
        if window is not None and (type(window) is not int or window < 1):
            raise InputError("must be an integer of at least 1, or None", field="window", value=window)
        if window_seconds is not None and not window_seconds > 0:
            raise InputError("must be positive, or None", field="window_seconds", value=window_seconds)
        if model.get_params().get("window") is not None:
            raise InputError("the model has a window of its own: leave one of them out", field="window")
        self.model = model
        self.window = window
        self.window_seconds = window_seconds
        self._arrivals: deque[tuple[str, datetime | None]] = deque()
        self._latest: datetime | None = None
        if self.is_fitted:
            if not model.schema_.named:
                raise InputError("the columns of the model have no names: fit it on a table that has")
            names = sorted(model.samples_.ids(), key=lambda name: (not name.isdecimal(), len(name), name))
            self._arrivals.extend((name, _expiry_of(model, name)) for name in names)

    @property
    def is_fitted(self) -> bool:
        """Whether there has been a sample."""
        return self.model.__sklearn_is_fitted__()

    def learn_one(
        self,
        x: Mapping[str, Any],
        y: Any,
        *,
        sample_id: str | None = None,
        at: datetime | None = None,
        w: float = 1.0,
    ) -> str:
        """Learn a sample, then unlearn those that leave the window.

        Parameters
        ----------
        x : values by feature; None or NaN: missing.
        y : the label.
        sample_id : its id, generated when left out.
        at : when it came, of the caller's clock, with a time zone; needed with `window_seconds` only, and now when left
            out. It must not go back.
        w : its weight; see `Model.fit`.

        Returns
        -------
        str
            The id, to unlearn it by.

        Raises
        ------
        InputError
            When the sample is refused: nothing has changed, and nothing has left the window.

        Examples
        --------
        >>> from oubli import DynamicForestClassifier
        >>> stream = Stream(DynamicForestClassifier(n_estimators=5, random_state=0), window=2)
        >>> [stream.learn_one({"hour": hour}, "night") for hour in range(3)]
        ['0', '1', '2']
        >>> stream.model.samples_.ids()
        ['1', '2']
        """
        y = y.item() if isinstance(y, np.generic) else y
        given: dict[str, Any] = {} if sample_id is None else {"ids": [sample_id]}
        if w != 1:
            given["sample_weight"] = [w]
        if self.window_seconds is not None:
            at = self._checked(datetime.now(UTC) if at is None else at)
            given["expires_at"] = at + timedelta(seconds=self.window_seconds)
        schema, is_new = self._schema_for(x)
        row = [x.get(column.name) for column in schema.columns]
        if not self.is_fitted:
            self.model.fit([row], [y], schema=schema, **given)
            (name,) = self.model.samples_.ids()
        else:
            model = self._fitted_with(schema) if is_new else self.model
            (name,) = model.add([row], [y], **given)
            self.model = model
        self._arrivals.append((name, given.get("expires_at")))
        self._latest = at or self._latest
        self._slide(at)
        return name

    def _checked(self, at: datetime) -> datetime:
        if at.tzinfo is None or (self._latest is not None and at < self._latest):
            raise InputError("must have a time zone, and not be before that of an earlier sample", field="at")
        return at

    def unlearn_one(self, sample_id: str) -> None:
        """Unlearn a sample.

        Raises
        ------
        UnknownIdError
            (a KeyError) when it is not held, such as one that has left the window.

        Examples
        --------
        >>> from oubli import DynamicForestClassifier
        >>> stream = Stream(DynamicForestClassifier(n_estimators=5, random_state=0), window=2)
        >>> stream.unlearn_one(stream.learn_one({"hour": 1}, "night"))
        >>> stream.model.n_samples_
        0
        """
        self.model.delete(sample_id)

    def predict_one(self, x: Mapping[str, Any]) -> Any:
        """Predict the label of a sample; None before there is any. Features that no sample had are left out.

        Examples
        --------
        >>> from oubli import DynamicForestClassifier
        >>> stream = Stream(DynamicForestClassifier(n_estimators=5, random_state=0), window=2)
        >>> name = stream.learn_one({"hour": 1}, "night")
        >>> stream.predict_one({"hour": 2, "street": "new"})
        'night'
        """
        if not self._can_predict:
            return None
        return self.model.predict([self._row(x)]).tolist()[0]

    def predict_proba_one(self, x: Mapping[str, Any]) -> dict[Any, float]:
        """Predict the probability of each class held; empty before there is any sample.

        Examples
        --------
        >>> from oubli import DynamicForestClassifier
        >>> stream = Stream(DynamicForestClassifier(n_estimators=5, random_state=0), window=2)
        >>> name = stream.learn_one({"hour": 1}, "night")
        >>> stream.predict_proba_one({"hour": 2})
        {'night': 1.0}
        """
        if not self._can_predict:
            return {}
        found = self.model.query([self._row(x)])
        if found.classes is None or found.probabilities is None:
            raise InputError("a regression has no probabilities: use predict_one")
        return dict(zip(found.classes.tolist(), found.probabilities[0].tolist(), strict=True))

    @property
    def _can_predict(self) -> bool:
        return self.is_fitted and self.model.n_samples_ > 0

    def _row(self, x: Mapping[str, Any]) -> list[Any]:
        return [x.get(column.name) for column in self.model.schema_.columns]

    def _schema_for(self, x: Mapping[str, Any]) -> tuple[Schema, bool]:
        """Return the schema with columns for all features of a sample, and whether any is new."""
        model, known = self.model, self.model.schema_.columns if self.is_fitted else ()
        names = {column.name for column in known}
        new = {name: value for name, value in x.items() if name not in names and not is_missing(value)}
        if not new:
            if not known:
                raise InputError("the first sample needs a feature that has a value")
            return model.schema_, False
        found, _ = infer_columns([list(new.values())], dtype="float64")
        columns = [*known, *(replace(column, name=name) for column, name in zip(found, new, strict=True))]
        columns.sort(key=attrgetter("name"))  # in whatever order features come, the model is the same
        if known:
            return replace(model.schema_, columns=tuple(columns)), True
        label = LabelType.NUMBER if model.task is Task.REGRESSION else LabelType.SCALAR
        return Schema(tuple(columns), model.task, label, named=True), True

    def _fitted_with(self, schema: Schema) -> Model:
        """Return a model of the same samples with further columns."""
        model, store = self.model, self.model.samples_
        if store.has_rights:
            raise InputError(
                "a new feature fits a new model, which cannot take over restricted samples and retention periods: "
                "release them first, or leave the feature out"
            )
        known = {column.name: place for place, column in enumerate(model.schema_.columns)}
        places = [known.get(column.name) for column in schema.columns]
        names = store.ids()
        held = [store.get(name) for name in names]
        wider = type(model)(**model.get_params()).start(schema)
        if held:
            wider.fit(
                [[None if place is None else sample.features[place] for place in places] for sample in held],
                [sample.label for sample in held],
                ids=names,
                subjects=[store.belongings(name).subject for name in names],
                expires_at=[_expiry_of(model, name) for name in names],
                sample_weight=[sample.weight for sample in held],
                schema=schema,
            )
        wider.samples_.next_id = store.next_id  # the id of a sample that has left names no other one
        return wider

    def _slide(self, now: datetime | None) -> None:
        """Unlearn what is too old, and the oldest of too many."""
        store, gone = self.model.samples_, list[str]()
        n_held = len(store)
        while self._arrivals:
            name, expires_at = self._arrivals[0]
            is_held = store.contains(name)
            is_due = now is not None and expires_at is not None and expires_at <= now
            if is_held and not is_due and (self.window is None or n_held <= self.window):
                break
            self._arrivals.popleft()
            if is_held:
                gone.append(name)
                n_held -= 1
        if gone:
            self.model.delete(gone)


def _expiry_of(model: Model, name: str) -> datetime | None:
    milliseconds = model.samples_.belongings(name).expires_ms
    return None if milliseconds is None else datetime.fromtimestamp(milliseconds / 1000, UTC)
