"""Requests: what every operation is built from."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from importlib import import_module
from typing import Any

from oubli.client.errors import DataError, UnexpectedAnswerError
from oubli.client.messages import Answer, Emit, Emits, Flow, Request, to_json
from oubli.client.results import read
from oubli.client.session import KEY_HEADER, Session

Names = str | int | Iterable[str | int]
Progress = bool | Callable[[float], object]
"""Whether to show a bar; or what is called with the share that is done, from 0 to 1."""
_BAR = "{desc}: {percentage:3.0f}%|{bar}| {elapsed}<{remaining}"
FIRST_POLL, LONGEST_POLL = 0.05, 2.0  # seconds
_LONGEST_KEY = 255


def reading(path: str, **query: Any) -> Request:
    """Make a GET request."""
    pairs = tuple((name, str(value)) for name, value in query.items() if value is not None)
    return Request("GET", path, pairs, is_safe=True)


def paged(session: Session, answer: type[Any], items: str, path: str, **query: Any) -> Emits[Any]:
    """Emit what the pages of a list hold, each page when it is needed.

    Parameters
    ----------
    answer, items
        Message of a page, and its field with the items.
    path, query
        Of the list; a `cursor` says where to begin.
    """
    while True:
        page = read(answer, (yield from session.ask(reading(path, **query))))
        yield from map(Emit, getattr(page, items))
        if page.next is None:
            return
        query["cursor"] = page.next


def local(path: str) -> Request:
    """Make a GET request for what may be known to the node alone that has made it."""
    return replace(reading(path), is_local=True)


def posting(path: str, content: Any = None, *, key: str | None = None, **options: Any) -> Request:
    """Make a POST request; DataError when the content is nothing that JSON knows, or the key is none."""
    if key is not None and not (0 < len(key) <= _LONGEST_KEY and key.isascii() and key.isprintable()):
        raise DataError(f"an idempotency key must be 1 to {_LONGEST_KEY} printable ASCII characters")
    headers = {} if key is None else {KEY_HEADER: key}
    try:
        body = to_json({} if content is None else content)
    except TypeError as error:  # the encoder's own texts repeat nothing
        raise DataError(f"the request cannot be written as JSON: {error}") from None
    return Request("POST", path, body=body, headers=headers, **options)


@contextmanager
def reporting(progress: Progress | None, name: str) -> Iterator[Callable[[float], object]]:
    """Return what is to be called with the share that is done; a bar with this name is shown until the block ends."""
    if callable(progress):
        yield progress
    elif not progress:
        yield lambda share: None
    else:
        bar, tell = _bar(name)
        with bar:
            yield tell


def _bar(name: str) -> tuple[Any, Callable[[float], object]]:
    """Return a bar of tqdm, or of rich where that is not installed, and what moves it."""
    try:
        bar = import_module("tqdm.auto").tqdm(total=1.0, desc=name, bar_format=_BAR)
        return bar, lambda share: bar.update(share - bar.n)
    except ImportError:
        shown = import_module("rich.progress").Progress()
        task = shown.add_task(name, total=1.0)
        return shown, lambda share: shown.update(task, completed=share)


def column_rules(extra: str | None, missing: str | None) -> tuple[tuple[str, str], ...]:
    """Return the parameters of a query that say what is done with columns too many or too few."""
    asked = {"extra_columns": extra, "missing_columns": missing}
    return tuple((name, rule) for name, rule in asked.items() if rule is not None)


def object_of(content: Any) -> dict[str, Any]:
    """Return an answer that must be a JSON object."""
    if not isinstance(content, dict):
        raise UnexpectedAnswerError("the answer is no JSON object", 200)
    return content


def send(session: Session, request: Request) -> Flow[Answer]:
    """Send any request, with this client's key, retries and version, and return the answer.

    Parameters
    ----------
    request : Request
        For routes that have no method here.

    Raises
    ------
    NoAnswerError, ProblemError
        What came of the last time.
    """
    return (yield from session.exchange(request))
