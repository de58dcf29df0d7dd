"""Models of Oubli as estimators of river: `wrap(model)`. Needs river."""

from collections.abc import Mapping
from copy import deepcopy
from typing import Any

from river import base

from oubli.core.data.values import Task
from oubli.core.forest.estimator import DynamicForestClassifier, DynamicForestRegressor
from oubli.core.model import Model
from oubli.streams import Stream


class _Wrapped(base.Estimator):
    """What classifier and regressor share: a stream that begins with a copy of the model."""

    def __init__(self, model: Model, window: int | None = None, window_seconds: float | None = None) -> None:
        self.model = model
        self.window = window
        self.window_seconds = window_seconds
        self.stream = Stream(deepcopy(model), window=window, window_seconds=window_seconds)

    def learn_one(self, x: Mapping[Any, Any], y: Any, *, w: float = 1.0) -> None:
        """Learn a sample of weight `w`, and unlearn those that leave the window.

        Examples
        --------
        >>> model = OubliClassifier(DynamicForestClassifier(5, random_state=0), window=1)
        >>> for hour, label in enumerate(["night", "day"]):
        ...     model.learn_one({"hour": hour}, label)
        >>> model.predict_one({"hour": 0})
        'day'
        """
        self.stream.learn_one(_named(x), y, w=w)


class OubliClassifier(_Wrapped, base.Classifier):
    """A classifier of Oubli in river.

    Parameters
    ----------
    model
        A classifier of any kind; it stays as it is.
    window, window_seconds
        Of `oubli.streams.Stream`, which is the attribute `stream`.

    Examples
    --------
    >>> model = OubliClassifier(DynamicForestClassifier(5, random_state=0), window=100)
    >>> model.learn_one({"hour": 1}, "night")
    >>> model.predict_one({"hour": 2})
    'night'
    """

    @property
    def _multiclass(self) -> bool:
        return True

    @classmethod
    def _unit_test_params(cls) -> Any:
        yield {"model": DynamicForestClassifier(5, random_state=0), "window": 50}

    def predict_one(self, x: Mapping[Any, Any], **kwargs: Any) -> Any:
        """Predict the class; None before there is any sample.

        Examples
        --------
        >>> OubliClassifier(DynamicForestClassifier(5)).predict_one({"hour": 1}) is None
        True
        """
        return self.stream.predict_one(_named(x))

    def predict_proba_one(self, x: Mapping[Any, Any], **kwargs: Any) -> dict[Any, float]:
        """Predict the probability of each class held.

        Examples
        --------
        >>> model = OubliClassifier(DynamicForestClassifier(5, random_state=0))
        >>> model.learn_one({"hour": 1}, "night")
        >>> model.predict_proba_one({"hour": 2})
        {'night': 1.0}
        """
        return self.stream.predict_proba_one(_named(x))


class OubliRegressor(_Wrapped, base.Regressor):
    """A regressor of Oubli in river; parameters as those of `OubliClassifier`.

    Examples
    --------
    >>> model = OubliRegressor(DynamicForestRegressor(5, random_state=0), window=100)
    >>> model.learn_one({"hour": 1}, 20.0)
    >>> model.predict_one({"hour": 2})
    20.0
    """

    @classmethod
    def _unit_test_params(cls) -> Any:
        yield {"model": DynamicForestRegressor(5, random_state=0), "window": 50}

    def predict_one(self, x: Mapping[Any, Any]) -> float:
        """Predict the number; 0 before there is any sample.

        Examples
        --------
        >>> OubliRegressor(DynamicForestRegressor(5)).predict_one({"hour": 1})
        0.0
        """
        found = self.stream.predict_one(_named(x))
        return 0.0 if found is None else float(found)


def wrap(
    model: Model, *, window: int | None = None, window_seconds: float | None = None
) -> OubliClassifier | OubliRegressor:
    """Return a model as an estimator of river.

    Parameters
    ----------
    model
        An estimator of any kind. The wrapper learns with a copy: a fitted model is continued, and stays as it is.
    window, window_seconds
        Of `oubli.streams.Stream`: how many of the newest samples are held, and for how long.

    Examples
    --------
    >>> type(wrap(DynamicForestRegressor(5, random_state=0), window=100)).__name__
    'OubliRegressor'
    """
    wrapper = OubliClassifier if model.task is Task.CLASSIFICATION else OubliRegressor
    return wrapper(model, window, window_seconds)


def _named(x: Mapping[Any, Any]) -> dict[str, Any]:
    return {str(name): value for name, value in x.items()}
