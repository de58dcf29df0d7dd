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
        Fitted by the first sample; a fitted one is continued, if its columns have names.
    window : int, optional
        Most samples to hold; the oldest leaves when there is one more.
    window_seconds : float, optional
        How long a sample is held. It is the `expires_at` of the sample; the clock is the `at` of the samples.

    Attributes
    ----------
    model : the estimator.

    Features are named. One that has not been there before becomes a column: the model is then fitted again on the
    samples held, in which it is missing. What is missing from a sample is a missing value. A feature is a number or a
    category for ever, as its first value is.

    One thread at a time may use a stream.
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
        if self.is_fitted:
            if not model.schema_.named:
                raise InputError("the columns of the model have no names: fit it on a table that has")
            self._arrivals.extend((name, None) for name in model.samples_.ids())

    @property
    def is_fitted(self) -> bool:
        """Whether there has been a sample."""
        return self.model.__sklearn_is_fitted__()

    def learn_one(
        self, x: Mapping[str, Any], y: Any, *, sample_id: str | None = None, at: datetime | None = None
    ) -> str:
        """Learn a sample, then unlearn those that leave the window.

        Parameters
        ----------
        x : values by feature; None or NaN: missing.
        y : the label.
        sample_id : its id, generated when left out.
        at : when it came, of the caller's clock; now, when left out and `window_seconds` needs it.

        Returns
        -------
        str
            The id, to unlearn it by.

        Raises
        ------
        InputError
            When the sample is refused: nothing has changed, and nothing has left the window.
        """
        y = y.item() if isinstance(y, np.generic) else y
        given: dict[str, Any] = {} if sample_id is None else {"ids": [sample_id]}
        if self.window_seconds is not None:
            at = at or datetime.now(UTC)
            given["expires_at"] = at + timedelta(seconds=self.window_seconds)
        self._widen(x)
        (name,) = self.model.add([self._row(x)], [y], **given)
        self._arrivals.append((name, given.get("expires_at")))
        self._slide(at)
        return name

    def unlearn_one(self, sample_id: str) -> None:
        """Unlearn a sample.

        Raises
        ------
        UnknownIdError
            (a KeyError) when it is not held, such as one that has left the window.
        """
        self.model.delete(sample_id)

    def predict_one(self, x: Mapping[str, Any]) -> Any:
        """Predict the label of a sample; None before there is any. Features that no sample had are left out."""
        if not self._can_predict:
            return None
        return self.model.predict([self._row(x)]).tolist()[0]

    def predict_proba_one(self, x: Mapping[str, Any]) -> dict[Any, float]:
        """Predict the probability of each class held; empty before there is any sample."""
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

    def _widen(self, x: Mapping[str, Any]) -> None:
        """Make columns of the features that are new; all of the model is fitted again."""
        known = {column.name for column in self.model.schema_.columns} if self.is_fitted else set()
        new = {name: value for name, value in x.items() if name not in known and not is_missing(value)}
        if not new:
            if not known:
                raise InputError("the first sample needs a feature that has a value")
            return
        found, _ = infer_columns([list(new.values())], dtype="float64")
        model = self.model
        columns = [replace(column, name=name) for column, name in zip(found, new, strict=True)]
        columns += model.schema_.columns if known else ()
        columns.sort(key=attrgetter("name"))  # whatever order features come in, the model is the same
        if not self.is_fitted:
            is_regression = model.task is Task.REGRESSION
            label = LabelType.NUMBER if is_regression else LabelType.SCALAR
            model.start(Schema(tuple(columns), model.task, label, named=True))
            return
        store, expiries = model.samples_, dict(self._arrivals)
        if len(store.restricted):
            raise InputError("a new feature fits the model again, without its restricted samples: release them first")
        names = store.ids()
        held = [store.get(name) for name in names]
        schema = replace(model.schema_, columns=tuple(columns))
        places = [model.schema_.names.index(column.name) if column.name in known else None for column in columns]
        wider = type(model)(**model.get_params()).start(schema)
        if held:
            wider.fit(
                [[None if place is None else sample.features[place] for place in places] for sample in held],
                [sample.label for sample in held],
                ids=names,
                expires_at=None if self.window_seconds is None else [expiries.get(name) for name in names],
                schema=schema,
            )
        self.model = wider

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
