"""Transformers of scikit-learn before a model, which keep the ids of samples.

A transformer that learns from samples, such as a scaler or an imputer, is not unlearned: what it remembers of a sample
stays after the sample is deleted. Such a transformer is refused unless you accept that.
"""

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import Any, Self

import numpy as np

from oubli.core.array_types import Array, Reals
from oubli.core.errors import InputError, StatefulTransformerWarning, warn_caller
from oubli.core.model import Model
from oubli.core.samples.identity import read_rows
from oubli.core.samples.slots import IdSource


class DynamicPipeline:
    """Transforms rows, and learns and unlearns samples by their ids.

    Parameters
    ----------
    steps : list of (name, transformer), and (name, model) at its end
        Transformers of scikit-learn, and an estimator of any kind of ours.
    stateful : "refuse" or "warn"
        What to do about transformers that learn from samples: raise in `fit`, or warn in `fit` and in each `delete`.
        With "warn" they are fitted by `fit` and never again; what they have learned of a sample stays.

    Attributes
    ----------
    model : the last step.

    Examples
    --------
    >>> from sklearn.preprocessing import FunctionTransformer
    >>> from oubli import DynamicForestClassifier
    >>> forest = DynamicForestClassifier(random_state=0)
    >>> pipeline = DynamicPipeline([("scaled", FunctionTransformer(np.abs)), ("forest", forest)])
    >>> pipeline.fit([[-1.0], [-10.0], [-100.0]], ["low", "low", "high"], ids=["a", "b", "c"]).delete("c")
    >>> pipeline.predict([[-1000.0]]).tolist()
    ['low']
    """

    def __init__(self, steps: Sequence[tuple[str, Any]], *, stateful: str = "refuse") -> None:
        if not steps or not isinstance(steps[-1][1], Model):
            raise InputError("the last step must be an estimator of oubli", field="steps")
        if stateful not in ("refuse", "warn"):
            raise InputError("must be 'refuse' or 'warn'", field="stateful", value=stateful)
        self.steps = list(steps)
        self.stateful = stateful

    @property
    def model(self) -> Model:
        """The model behind the transformers."""
        model: Model = self.steps[-1][1]
        return model

    def fit(
        self,
        X: Any,
        y: Any,
        *,
        ids: Any = None,
        subjects: Any = None,
        expires_at: Any = None,
        sample_weight: Any = None,
    ) -> Self:
        """Fit transformers and model; what belongs to samples is as in the model's `fit`.

        Transformers are fitted without weights.

        Raises
        ------
        InputError
            When a transformer learns from samples and `stateful` is "refuse"; nothing has changed.

        Examples
        --------
        >>> from sklearn.preprocessing import FunctionTransformer
        >>> from oubli import DynamicForestRegressor
        >>> steps = [("positive", FunctionTransformer(np.abs)), ("forest", DynamicForestRegressor(random_state=0))]
        >>> pipeline = DynamicPipeline(steps).fit([[-1.0], [2.0]], [5.0, 5.0], ids=["a", "b"])
        >>> pipeline.model.samples_.ids()
        ['a', 'b']
        """
        learning = list(self._stateful())
        if learning and self.stateful == "refuse":
            raise InputError(
                f"{', '.join(learning)} would learn from samples and keep that after these are deleted: leave it to "
                "the model (trees need no scaling, and take missing values and categories), or pass stateful='warn'"
            )
        self._warn(learning, "will not forget samples that are deleted; fit again after an erasure")
        X, belongings = self._read(X, ids, subjects, expires_at, sample_weight)
        for _, transformer in self.steps[:-1]:
            X = transformer.fit_transform(X, y)
        self.model.fit(X, y, **belongings)
        return self

    def add(
        self,
        X: Any,
        y: Any,
        *,
        ids: Any = None,
        subjects: Any = None,
        expires_at: Any = None,
        sample_weight: Any = None,
    ) -> list[str]:
        """Learn samples, and return their ids; transformers only transform them.

        Examples
        --------
        >>> from sklearn.preprocessing import FunctionTransformer
        >>> from oubli import DynamicForestRegressor
        >>> steps = [("positive", FunctionTransformer(np.abs)), ("forest", DynamicForestRegressor(random_state=0))]
        >>> pipeline = DynamicPipeline(steps).fit([[-1.0], [2.0]], [5.0, 5.0], ids=["a", "b"])
        >>> pipeline.add([[-3.0]], [5.0], ids=["c"])
        ['c']
        """
        X, belongings = self._read(X, ids, subjects, expires_at, sample_weight)
        return self.model.add(self._transform(X), y, **belongings)

    def delete(self, ids: Any = None, *, subjects: Any = None) -> None:
        """Unlearn samples; warns of transformers that keep what they learned of them.

        Examples
        --------
        >>> from sklearn.preprocessing import FunctionTransformer
        >>> from oubli import DynamicForestRegressor
        >>> steps = [("positive", FunctionTransformer(np.abs)), ("forest", DynamicForestRegressor(random_state=0))]
        >>> pipeline = DynamicPipeline(steps).fit([[-1.0], [2.0]], [5.0, 5.0], ids=["a", "b"])
        >>> pipeline.delete("a")
        >>> pipeline.model.samples_.ids()
        ['b']
        """
        self.model.delete(ids, subjects=subjects)
        self._warn(list(self._stateful()), "has not forgotten what it learned of the samples; fit again")

    def replace(self, sample_id: str | int, x: Any, y: Any) -> None:
        """Rectify a sample: a row, and its label.

        Examples
        --------
        >>> from sklearn.preprocessing import FunctionTransformer
        >>> from oubli import DynamicForestRegressor
        >>> steps = [("positive", FunctionTransformer(np.abs)), ("forest", DynamicForestRegressor(random_state=0))]
        >>> pipeline = DynamicPipeline(steps).fit([[-1.0], [2.0]], [5.0, 5.0], ids=["a", "b"])
        >>> pipeline.replace("a", [-7.0], 5.0)
        >>> pipeline.model.samples_.get("a").features
        [7.0]
        """
        self.model.replace(sample_id, np.asarray(self._transform([x] if np.ndim(x) == 1 else x))[0].tolist(), y)

    def predict(self, X: Any) -> Array:
        """Predict the label of each row.

        Examples
        --------
        >>> from sklearn.preprocessing import FunctionTransformer
        >>> from oubli import DynamicForestRegressor
        >>> steps = [("positive", FunctionTransformer(np.abs)), ("forest", DynamicForestRegressor(random_state=0))]
        >>> pipeline = DynamicPipeline(steps).fit([[-1.0], [2.0]], [5.0, 5.0], ids=["a", "b"])
        >>> pipeline.predict([[-1.5]]).tolist()
        [5.0]
        """
        return self.model.predict(self._transform(X))

    def predict_proba(self, X: Any) -> Reals:
        """Predict the probabilities of the classes, of a classifier.

        Examples
        --------
        >>> from sklearn.preprocessing import FunctionTransformer
        >>> from oubli import DynamicForestClassifier
        >>> steps = [("positive", FunctionTransformer(np.abs)), ("forest", DynamicForestClassifier(random_state=0))]
        >>> pipeline = DynamicPipeline(steps).fit([[-1.0], [2.0]], ["low", "low"], ids=["a", "b"])
        >>> pipeline.predict_proba([[-1.5]]).tolist()
        [[1.0]]
        """
        found: Reals = self.model.predict_proba(self._transform(X))  # type: ignore[attr-defined]
        return found

    def score(self, X: Any, y: Any) -> float:
        """How well the rows are predicted; see the model's `score`.

        Examples
        --------
        >>> from sklearn.preprocessing import FunctionTransformer
        >>> from oubli import DynamicForestRegressor
        >>> steps = [("positive", FunctionTransformer(np.abs)), ("forest", DynamicForestRegressor(random_state=0))]
        >>> pipeline = DynamicPipeline(steps).fit([[-1.0], [2.0]], [5.0, 5.0], ids=["a", "b"])
        >>> pipeline.score([[-1.0], [2.0]], [5.0, 5.0])
        1.0
        """
        return self.model.score(self._transform(X), y)

    def _transform(self, X: Any) -> Any:
        for _, transformer in self.steps[:-1]:
            X = transformer.transform(X)
        return X

    def _read(self, X: Any, ids: Any, subjects: Any, expires_at: Any, sample_weight: Any) -> tuple[Any, dict[str, Any]]:
        """Take apart features and what belongs to samples: transformers change the one and lose the other."""
        model = self.model
        store = model.samples_ if model.__sklearn_is_fitted__() else None
        given = {"ids": ids, "subjects": subjects, "expires_at": expires_at, "sample_weight": sample_weight}
        rows = read_rows(X, **given, store=store)
        names: Any = rows.ids
        if names is not None and rows.source is IdSource.INDEX:
            import pandas as pd  # the table is one of its

            names = pd.Index(names)
        expires: Any = rows.expires
        if expires is not None:
            expires = _moment(expires) if isinstance(expires, int) else [_moment(one) for one in expires]
        columns = list(getattr(X, "columns", ()))
        named = [one for one in given.values() if isinstance(one, str) and one in columns]
        if named:
            X = X.drop(columns=named) if hasattr(X, "iloc") else X.drop(named)  # pandas; polars
        return X, {"ids": names, "subjects": rows.subjects, "expires_at": expires, "sample_weight": rows.weights}

    def _stateful(self) -> Iterator[str]:
        """Names of the steps that learn from samples."""
        return (name for name, transformer in self.steps[:-1] if _learns(transformer))

    def _warn(self, names: Sequence[str], text: str) -> None:
        for name in names:
            warn_caller(f"the transformer {name!r} {text}", StatefulTransformerWarning)


def _learns(transformer: Any) -> bool:
    """Whether a transformer learns from samples, by scikit-learn's tags; those of one of several inside count."""
    if transformer is None or isinstance(transformer, str):  # "passthrough" and "drop"
        return False
    for name in ("steps", "transformers", "transformer_list"):
        if hasattr(transformer, name):
            inside = [step[1] for step in getattr(transformer, name)]
            return any(map(_learns, [*inside, getattr(transformer, "remainder", None)]))
    from sklearn.utils import get_tags

    try:
        return bool(get_tags(transformer).requires_fit)
    except AttributeError:  # it does not say
        return True


def _moment(milliseconds: int | None) -> datetime | None:
    return None if milliseconds is None else datetime.fromtimestamp(milliseconds / 1000, UTC)
