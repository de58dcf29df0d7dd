"""Asking the model."""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import partial
from typing import Any

from oubli.api.predictions import Explanations, Influence
from oubli.client.errors import DataError, ProblemError, TooLargeError
from oubli.client.messages import Flow, Work, to_json
from oubli.client.operations.jobs import result_of
from oubli.client.operations.requests import Progress, column_rules, posting, reporting
from oubli.client.results import Predictions, SignedPredictions, joined, read, read_predictions, read_signed
from oubli.client.session import Session
from oubli.client.tables import index_of, labels_of, n_rows, part_of, rows_of

MOST_ROWS, MOST_BYTES = 10_000, 8 * 2**20
"""Of a request. Servers take so many rows in JSON, and twice as many bytes, unless their settings say otherwise."""


def predict(
    session: Session,
    X: Any,
    *,
    coverage: float | None = None,
    by_class: bool = False,
    extra_columns: str | None = None,
    missing_columns: str | None = None,
    progress: Progress | None = None,
) -> Flow[Predictions]:
    """Predict rows with the model as it is now; every change that this client has seen answered is in it.

    A long table is sent in several requests, of 10,000 rows or of fewer where the server takes no more.

    Parameters
    ----------
    X : DataFrame, array of shape (n, d), or list of rows
        Rows are lists in feature order or dictionaries by feature name; columns of a DataFrame are matched by name.
        None, NaN and pandas' NA are missing values.
    coverage : float in (0, 1), optional
        Also return sets of classes or intervals of numbers that hold the right answer with this probability.
    by_class : bool
        Whether `coverage` holds for the rows of each class, rather than of all together.
    extra_columns : {"refuse", "ignore"}, optional
        What is done with named columns that the model does not have; by default as its schema says, which refuses them.
    missing_columns : {"refuse", "missing"}, optional
        What is done where named columns are left out; by default as the schema says, which refuses that.
    progress : bool or callable, optional
        True shows a bar with tqdm, or rich if that is not installed. A function is called with the share that is done.

    Returns
    -------
    Predictions

    Raises
    ------
    DataError, InvalidInputError
        With the row, the field and the rule.
    EmptyModelError
        When no samples are held.

    Examples
    --------
    >>> found = client.predict([[39, "a", True], {"age": 2, "job": "b", "member": None}])
    >>> found.predictions.shape, found.classes.tolist()
    ((2,), ['no', 'yes'])
    """
    wanted: dict[str, Any] = {} if coverage is None else {"coverage": coverage}
    if by_class:
        wanted["by_class"] = True
    query = column_rules(extra_columns, missing_columns)
    found: list[Predictions] = []
    n, start, size = n_rows(X), 0, MOST_ROWS
    with reporting(progress, "predicting") as report:
        while not found or start < n:
            n_sent = min(size, n - start)
            try:
                rows = yield Work(partial(rows_of, X if n <= size else part_of(X, start, start + n_sent)))
                request = posting("/predict", {"instances": rows, **wanted}, is_safe=True, is_spread=True, query=query)
                if n_sent > 1 and isinstance(request.body, bytes) and len(request.body) > MOST_BYTES:
                    size = n_sent // 2
                    continue
                content = yield from session.ask(request)
            except TooLargeError:
                if n_sent <= 1:
                    raise
                size = n_sent // 2
                continue
            except (DataError, ProblemError) as error:
                raise error.further_on(start) from None
            found.append(read_predictions(content, None))
            start += n_sent
            report(start / max(n, 1))
    return joined(found, index_of(X))


def predict_signed(session: Session, X: Any) -> Flow[SignedPredictions]:
    """Predict rows, and have the server sign rows, answer, model version and the root over its samples.

    Parameters
    ----------
    X : DataFrame, array of shape (n, d), or list of rows
        As for `predict`.

    Returns
    -------
    SignedPredictions
        Keep its `content`: an audit of that version shows whether the model has made them.

    Raises
    ------
    DataError, InvalidInputError
        With the row, the field and the rule.
    EmptyModelError
        When no samples are held.

    Examples
    --------
    >>> found = client.predict_signed([[39, "a", True]])
    >>> found.key_id == client.keys()[0].key_id
    True
    """
    rows = rows_of(X)
    answer = yield from session.ask(posting("/predict", {"receipt": True, "instances": rows}, is_safe=True))
    sent = json.loads(to_json(rows))  # as the server reads them
    return read_signed(sent, answer, index_of(X))


def explain(
    session: Session,
    X: Any,
    *,
    columns: int | None = None,
    features: Sequence[str] | None = None,
    target: Any = None,
    extra_columns: str | None = None,
    missing_columns: str | None = None,
) -> Flow[Explanations]:
    """Say what each feature adds to the predictions for some rows.

    Parameters
    ----------
    X : DataFrame, array or list of rows
        As for `predict`.
    columns : 1 or 2, optional
        Also find the nearest change of at most so many features that changes each prediction.
    features : sequence of str, optional
        The features that may change; all when left out.
    target : label or float, optional
        The class to get, any other one when left out; of a regression the number to cross.
    extra_columns, missing_columns : optional
        As for `predict`.

    Returns
    -------
    Explanations

    Raises
    ------
    DataError, InvalidInputError
        With the row, the field and the rule; also when so many rows would take too long.
    EmptyModelError
        When no samples are held.

    Examples
    --------
    >>> found = client.explain([[39, "a", True]])
    >>> found.measure, found.features
    ('probability', ['age', 'job', 'member'])
    """
    content: dict[str, Any] = {"instances": rows_of(X)}
    if columns is not None:
        names = None if features is None else list(features)
        content["change"] = {"columns": columns, "features": names, "target": target}
    query = column_rules(extra_columns, missing_columns)
    answer = yield from session.ask(posting("/explain", content, is_safe=True, is_spread=True, query=query))
    return read(Explanations, answer)


def influence(
    session: Session,
    X: Any,
    labels: Any = None,
    *,
    method: str | None = None,
    update_set: str | int = "all",
    top: int = 10,
    extra_columns: str | None = None,
    missing_columns: str | None = None,
    progress: Progress | None = None,
    timeout: float | None = None,
) -> Flow[Influence]:
    """Rank the samples held by what they do for the predictions of some rows. What takes long is waited for.

    Parameters
    ----------
    X : DataFrame, array or list of rows
        As for `predict`.
    labels : list, Series or array of shape (n,), optional
        The true labels; the predicted ones when left out.
    method : {"leaf-influence", "leaf-refit", "leave-one-out"}, optional
        The default depends on the kind of model.
    update_set : {"all", "single"} or int
        Whose changes the leaf methods follow.
    top : int
        Largest number of samples in each list.
    extra_columns, missing_columns : optional
        As for `predict`.
    progress : bool or callable, optional
        As for `predict`, when it takes long.
    timeout : float, optional
        Seconds to wait for a long ranking; by default as long as it takes.

    Returns
    -------
    Influence

    Raises
    ------
    JobFailedError, WaitTimeoutError
        When a long ranking failed, or took longer than `timeout`.

    Examples
    --------
    >>> found = client.influence([[39, "a", True]], ["yes"], top=3)
    >>> len(found.helpful) <= 3
    True
    """
    rows = rows_of(X)
    content: dict[str, Any] = {"instances": rows, "update_set": update_set, "top": top}
    if labels is not None:
        content["labels"] = labels_of(labels, len(rows))
    if method is not None:
        content["method"] = method
    query = column_rules(extra_columns, missing_columns)
    answer = yield from session.exchange(posting("/influence", content, is_safe=True, query=query))
    found = answer.json()
    if answer.status == 202:
        found = yield from result_of(session, found, progress=progress, timeout=timeout)
    session.saw(found)
    return read(Influence, found)
