"""What `core` raises.

    OubliError
      InputError             (ValueError)                 refused input: row, field, rule, value
        FeatureCountError                                 another number of features than the schema's
        DuplicateIdError                                  an id twice in a call, or already held
        UnavailableError     (AttributeError)             something that a model with other parameters would have
      UnknownIdError         (KeyError)                   ids that are not held
      NotFittedError         (ValueError, AttributeError) used before `fit` or `start`
      CapacityError          (RuntimeError)               a documented limit is reached
      EmptyModelError        (RuntimeError)               a prediction with no samples held
      UnusableModelError     (RuntimeError)               a change was broken off halfway
      FileError              (ValueError)                 a file that is not a sound model file
        NewerFormatError                                  one that a newer version of Oubli wrote

The texts are for a Python user and may name the refused value. A service must build its own texts
from `row`, `field` and `rule`, which hold positions, schema names and rules but never submitted data.
"""

import sys
import warnings
from collections.abc import Iterable
from inspect import currentframe
from typing import Any

_SHOWN = 60  # characters of a refused value that a message repeats
_LISTED = 5  # ids that a message names


def shorten(value: object) -> str:
    """Internal: the representation of a value, cut to what fits a message."""
    try:
        text = repr(value)
    except Exception:  # a broken __repr__ must not hide the error that is being reported
        text = object.__repr__(value)
    return text if len(text) <= _SHOWN else text[: _SHOWN - 3] + "..."


class OubliError(Exception):
    """Base of everything that Oubli raises on purpose.

    Examples
    --------
    >>> from oubli import DynamicForestClassifier
    >>> model = DynamicForestClassifier(random_state=0).fit([[0.0], [1.0]], ["a", "b"])
    >>> try:
    ...     model.delete("ada")
    ... except OubliError as error:
    ...     print(error)
    no sample with this id is held: 'ada'; nothing was changed
    """


_NOTHING: Any = object()


class InputError(OubliError, ValueError):
    """Input that was refused; nothing has changed.

    Parameters
    ----------
    rule : str
        What must hold and how to get there. Never contains submitted values.
    row : int, optional
        Position of the row in the call, from 0.
    field : str, optional
        Name of the column or of the label; "id" and "subject" for those.
    value : object, optional
        What was refused. Left out of the text when not given.
    message : str, optional
        The whole text, for messages that users and tools know in this form.

    Examples
    --------
    >>> from oubli import DynamicForestClassifier
    >>> model = DynamicForestClassifier(random_state=0).fit([[0.0], [1.0]], ["a", "b"])
    >>> try:
    ...     model.add([[2.0], [float("inf")]], ["a", "b"])
    ... except InputError as error:
    ...     print(error.row, error.field, model.n_samples_)
    1 x0 2
    """

    def __init__(
        self,
        rule: str,
        *,
        row: int | None = None,
        field: str | None = None,
        value: Any = _NOTHING,
        message: str | None = None,
    ) -> None:
        self.rule = rule
        self.row = row
        self.field = field
        self.value = None if value is _NOTHING else value
        if message is None:
            message = self._text(value)
        super().__init__(message)

    def _text(self, value: Any) -> str:
        where = []
        if self.row is not None:
            where.append(f"row {self.row}")
        if self.field is not None:
            where.append(repr(self.field))
        text = f"{', '.join(where)}: {self.rule}" if where else self.rule
        if value is not _NOTHING:
            text += f" (got {shorten(value)})"
        return text

    def __reduce__(self) -> tuple[Any, ...]:
        # Exceptions are pickled by their positional arguments; ours are named.
        return _rebuild, (type(self), self.args, self.__dict__.copy())


def _rebuild(kind: type[OubliError], args: tuple[Any, ...], attributes: dict[str, Any]) -> OubliError:
    error = kind.__new__(kind)
    error.args = args
    error.__dict__.update(attributes)
    return error


class FeatureCountError(InputError):
    """The input has another number of features than the schema.

    Parameters
    ----------
    given, expected : int
        The two numbers of features.
    owner : str
        Name of the estimator, for the message.
    row : int, optional
        The row that differs, when rows are given one by one.

    Examples
    --------
    >>> from oubli import DynamicForestClassifier
    >>> model = DynamicForestClassifier(random_state=0).fit([[0.0], [1.0]], ["a", "b"])
    >>> try:
    ...     model.predict([[1.0, 2.0]])
    ... except FeatureCountError as error:
    ...     print(error.given, error.expected)
    2 1
    """

    def __init__(self, given: int, expected: int, *, owner: str = "the model", row: int | None = None) -> None:
        self.given = given
        self.expected = expected
        if given < expected:
            remedy = f"add the {expected - given} missing, in the order of the schema"
        else:
            remedy = f"remove the {given - expected} that the schema does not have"
        where = "X" if row is None else f"row {row} of X"
        super().__init__(
            f"must have {expected} features, not {given}: {remedy}",
            row=row,
            message=f"{where} has {given} features, but {owner} is expecting {expected} features as input: {remedy}",
        )


class DuplicateIdError(InputError):
    """An id is repeated in one call, or already held.

    Examples
    --------
    >>> from oubli import DynamicForestClassifier
    >>> model = DynamicForestClassifier(random_state=0).fit([[0.0], [1.0]], ["a", "b"])
    >>> try:
    ...     model.add([[2.0]], ["a"], ids=["0"])
    ... except DuplicateIdError as error:
    ...     print(error.row, error.field)
    0 id
    """


class UnknownIdError(OubliError, KeyError):
    """Ids that are not held were named; nothing has changed.

    Parameters
    ----------
    ids : iterable of str
        The ids that are not held.
    what : str
        "subject" when they are subjects without samples.

    Examples
    --------
    >>> from oubli import DynamicForestClassifier
    >>> model = DynamicForestClassifier(random_state=0).fit([[0.0], [1.0]], ["a", "b"])
    >>> try:
    ...     model.delete(["0", "ada"])
    ... except UnknownIdError as error:
    ...     print(error.ids, model.n_samples_)
    ['ada'] 2
    """

    def __init__(self, ids: Iterable[str], what: str = "id") -> None:
        self.ids = list(ids)
        self.what = what
        super().__init__(self.ids)

    def __str__(self) -> str:  # KeyError would show the representation of its argument
        shown = ", ".join(shorten(i) for i in self.ids[:_LISTED])
        more = f" and {len(self.ids) - _LISTED} more" if len(self.ids) > _LISTED else ""
        return f"no sample with this {self.what} is held: {shown}{more}; nothing was changed"


class UnavailableError(InputError, AttributeError):
    """The model does not have this; the text says which models do.

    Examples
    --------
    >>> from oubli import OnlineBoostingClassifier
    >>> model = OnlineBoostingClassifier(3, random_state=0).fit([[0.0], [1.0]], ["a", "b"])
    >>> try:
    ...     model.data_values()
    ... except UnavailableError:
    ...     print("this kind has none")
    this kind has none
    """


class NotFittedError(OubliError, ValueError, AttributeError):
    """The estimator is used before `fit`, `start` or `load`.

    Examples
    --------
    >>> from oubli import DynamicForestClassifier
    >>> try:
    ...     DynamicForestClassifier().predict([[1.0]])
    ... except NotFittedError:
    ...     print("fit it first")
    fit it first
    """


class CapacityError(OubliError, RuntimeError):
    """A limit of the data structures is reached; nothing has changed.

    Examples
    --------
    >>> from oubli import IncrementalBoostingClassifier
    >>> model = IncrementalBoostingClassifier(100_000, max_depth=8)
    >>> try:
    ...     model.fit([[float(i)] for i in range(300)], [i % 150 for i in range(300)])
    ... except CapacityError:
    ...     print("too many nodes for one model")
    too many nodes for one model
    """


class EmptyModelError(OubliError, RuntimeError):
    """There is nothing to predict from: no samples are left.

    Examples
    --------
    >>> from oubli import DynamicForestClassifier
    >>> model = DynamicForestClassifier(random_state=0).fit([[0.0], [1.0]], ["a", "b"])
    >>> model.delete(["0", "1"])
    >>> try:
    ...     model.predict([[1.0]])
    ... except EmptyModelError:
    ...     print("add samples first")
    add samples first
    """


class UnusableModelError(OubliError, RuntimeError):
    """A change was broken off halfway by an error or an interrupt: the model refuses every call until a fit.

    Examples
    --------
    >>> "call 'fit' or 'start'" in str(UnusableModelError())
    True
    """

    def __init__(self) -> None:
        super().__init__(
            "an earlier change of this model was broken off halfway, so neither it nor its samples can be used: "
            "call 'fit' or 'start', or use a model from 'load'"
        )


class FileError(OubliError, ValueError):
    """A file cannot be read as a model: truncated, damaged, foreign, or from a newer version.

    Parameters
    ----------
    rule : str
        What is wrong with the file, and what to do.

    Examples
    --------
    >>> from oubli import load
    >>> try:
    ...     load(__file__)
    ... except FileError:
    ...     print("no model file")
    no model file
    """

    def __init__(self, rule: str) -> None:
        self.rule = rule
        super().__init__(rule)


class NewerFormatError(FileError):
    """A file is of a format that only a newer version reads.

    Examples
    --------
    >>> issubclass(NewerFormatError, FileError)  # whose handlers catch it, too
    True
    """


class DataConversionWarning(UserWarning):
    """Input was accepted in a shape that may be a mistake.

    Examples
    --------
    >>> from oubli import DynamicForestClassifier
    >>> model = DynamicForestClassifier(random_state=0).fit([[0.0], [1.0]], ["a", "b"])
    >>> import numpy as np, warnings
    >>> with warnings.catch_warnings(record=True) as found:
    ...     warnings.simplefilter("always")
    ...     added = model.add([[2.0]], np.array([["a"]]))
    >>> issubclass(found[0].category, DataConversionWarning)
    True
    """


class IndexWarning(UserWarning):
    """The index of a DataFrame cannot name its rows, so ids are generated.

    Examples
    --------
    >>> from oubli import DynamicForestClassifier
    >>> import pandas as pd, warnings
    >>> with warnings.catch_warnings(record=True) as found:
    ...     warnings.simplefilter("always")
    ...     model = DynamicForestClassifier().fit(pd.DataFrame({"age": [1.0, 2.0]}, index=[0.5, 1.5]), ["a", "b"])
    >>> issubclass(found[0].category, IndexWarning)
    True
    """


class StatefulTransformerWarning(UserWarning):
    """A transformer keeps what it has learned of samples after these are deleted.

    Examples
    --------
    >>> from oubli import DynamicForestClassifier
    >>> from sklearn.preprocessing import StandardScaler
    >>> from oubli.pipeline import DynamicPipeline
    >>> import warnings
    >>> steps = [("scaled", StandardScaler()), ("forest", DynamicForestClassifier())]
    >>> with warnings.catch_warnings(record=True) as found:
    ...     warnings.simplefilter("always")
    ...     pipeline = DynamicPipeline(steps, stateful="warn").fit([[1.0], [2.0]], ["a", "b"])
    >>> issubclass(found[0].category, StatefulTransformerWarning)
    True
    """


def for_scikit_learn(kind: type[Any]) -> type[Any]:
    """Internal: the class, such that scikit-learn's users can catch it as theirs, if there are such users.

    Once somebody has imported scikit-learn: a subclass of both, `kind` and scikit-learn's class of
    the same name.
    """
    theirs = getattr(sys.modules.get("sklearn.exceptions"), kind.__name__, None)
    if theirs is None:
        return kind
    if kind not in _BOTH:
        _BOTH[kind] = _both(kind, theirs)
    return _BOTH[kind]


_BOTH: dict[type[Any], type[Any]] = {}  # one class for each kind, so that a warning is shown once


def _both(kind: type[Any], theirs: type[Any]) -> type[Any]:
    def reduce(self: Any) -> tuple[Any, ...]:
        # No module holds the class that is made here, so pickles (of errors in other processes) name `kind`.
        return _again, (kind, self.args)

    members = {"__module__": kind.__module__, "__doc__": kind.__doc__, "__reduce__": reduce}
    return type(kind.__name__, (kind, theirs), members)


def _again(kind: type[Any], args: tuple[Any, ...]) -> Any:
    return for_scikit_learn(kind)(*args)


def expect(condition: Any, what: str) -> None:
    """Internal: ValueError unless something holds."""
    if not condition:
        raise ValueError(what)


def ensure(condition: Any, rule: str) -> None:
    """Internal: AssertionError unless an invariant holds."""
    if not condition:
        raise AssertionError(rule)


def warn_caller(text: str, category: type[Warning]) -> None:
    """Internal: warn of a call, at the line of the program that made it."""
    level, frame = 1, currentframe()
    while frame is not None and frame.f_globals.get("__name__", "").startswith("oubli.core"):
        level, frame = level + 1, frame.f_back
    warnings.warn(text, category, stacklevel=level)
