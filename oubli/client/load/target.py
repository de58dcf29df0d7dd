"""The server under test: its address, single requests before and after the load, and rows for its model.

Rows to predict and samples to add come from the samples held, are made up by the schema, or come from a CSV file.
"""

from __future__ import annotations

import csv
import gzip
import http.client
import json
import random
import ssl
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from pydantic import ValidationError

from oubli.api.model import Schema
from oubli.client.load.plan import LoadTestError


class Target:
    """A server's address, and what every request to it has.

    Parameters
    ----------
    url
        Address, with a path when the server is below one.
    key
        The key that is sent; None for none.
    ca_file
        Certificates to trust in place of those of the system.

    Raises
    ------
    LoadTestError
        When it is no address, or the certificates cannot be read.
    """

    def __init__(self, url: str, key: str | None = None, ca_file: Path | None = None) -> None:
        try:
            parts = urlsplit(url)
            port = parts.port
        except ValueError:
            raise LoadTestError("the server's address cannot be read: write it as http://127.0.0.1:8000") from None
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise LoadTestError("the server's address must begin with http:// or https://, as in http://127.0.0.1:8000")
        if parts.username is not None:
            raise LoadTestError("the server's address must not hold a user or a password, which would be shown")
        self.url = url.rstrip("/")
        self.host = parts.hostname
        self.port = port or (443 if parts.scheme == "https" else 80)
        self.path = parts.path.rstrip("/")
        self.headers = {"Host": parts.netloc, "User-Agent": "oubli-load-test"}
        if key is not None:
            self.headers["Authorization"] = f"Bearer {key}"
        self.tls: ssl.SSLContext | None = None
        if parts.scheme == "https":
            try:
                self.tls = ssl.create_default_context(cafile=ca_file)
            except (OSError, ssl.SSLError) as error:
                raise LoadTestError(f"the certificates in {ca_file} cannot be read: {error}") from None

    def request(self, method: str, path: str, content: bytes | None = None) -> bytes:
        """Return a request; content is JSON."""
        headers = dict(self.headers)
        if content is not None:
            headers |= {"Content-Type": "application/json", "Content-Length": str(len(content))}
        lines = [f"{method} {self.path}{path} HTTP/1.1", *(f"{name}: {value}" for name, value in headers.items())]
        return "\r\n".join([*lines, "", ""]).encode("latin-1") + (content or b"")


def ask(target: Target, method: str, path: str, content: Any = None, *, seconds: float = 60.0) -> tuple[int, Any, str]:
    """Send one request over a connection of its own; return status, content and `Retry-After`.

    Raises
    ------
    LoadTestError
        When there is no answer, or one that is not JSON.
    """
    if target.tls is None:
        connection = http.client.HTTPConnection(target.host, target.port, timeout=seconds)
    else:
        connection = http.client.HTTPSConnection(target.host, target.port, timeout=seconds, context=target.tls)
    headers, body = target.headers, None
    if content is not None:
        headers, body = {**headers, "Content-Type": "application/json"}, json.dumps(content).encode()
    try:
        connection.request(method, target.path + path, body, headers)
        answer = connection.getresponse()
        text = answer.read()
    except TimeoutError:
        raise LoadTestError(f"no server answers at {target.url} (nothing within {seconds:g} s)") from None
    except http.client.HTTPException:
        raise LoadTestError(f"the server at {target.url} closed the connection without an answer") from None
    except OSError as error:
        raise LoadTestError(f"no server answers at {target.url} ({error})") from None
    finally:
        connection.close()
    try:
        return answer.status, json.loads(text or b"null"), answer.headers.get("Retry-After", "")
    except ValueError:
        raise LoadTestError(f"{target.url}{path} answered {answer.status} and no JSON: is it a server?") from None


def explain(path: str, status: int, content: Any) -> str:
    """Return the text of a refusal, with the server's own."""
    detail = content.get("detail") or content.get("title") if isinstance(content, dict) else None
    return f"{path} answered {status}{f': {detail}' if detail else ''}"


MOST_ROWS = 1000  # different ones; they are used again and again
_PAGE = 200
_CATEGORIES = "abcdefgh"


def read_schema(model: dict[str, Any]) -> Schema:
    """Read features and label from the answer of `GET /model`.

    Raises
    ------
    LoadTestError
        When it is something else.
    """
    try:
        return Schema.model_validate(model)
    except ValidationError:
        raise LoadTestError("the answer of GET /model is not that of a server of Oubli") from None


@dataclass(frozen=True)
class Rows:
    """Features in feature order, and a label for each; None where labels are not known."""

    features: list[list[Any]]
    labels: list[Any] | None


def from_schema(schema: Schema, seed: int, n: int = MOST_ROWS) -> Rows:
    """Make rows up: numbers from 0 to 100, few categories, and labels out of the classes held."""
    random_ = random.Random(seed)  # noqa: S311 - made-up rows, no secret
    make: dict[str, Callable[[], Any]] = {
        "numeric": lambda: round(random_.uniform(0, 100), 2),
        "boolean": lambda: random_.random() < 0.5,
        "categorical": lambda: random_.choice(_CATEGORIES),
    }
    labels: dict[str, list[Any]] = {"integer": [0, 1], "boolean": [False, True], "number": [0.0, 1.0]}
    classes = schema.classes or labels.get(schema.label.type, ["a", "b"])
    features = [[make[one.type]() for one in schema.features] for _ in range(n)]
    if schema.classes is None:
        return Rows(features, [round(random_.uniform(0, 100), 2) for _ in range(n)])
    return Rows(features, [random_.choice(classes) for _ in range(n)])


def from_held(target: Target, schema: Schema) -> Rows:
    """Read samples that the server holds; none when it holds none.

    Raises
    ------
    LoadTestError
        When the key does not allow to read.
    """
    samples: list[dict[str, Any]] = []
    cursor = ""
    while len(samples) < MOST_ROWS:
        path = f"/samples?limit={_PAGE}{cursor}"
        status, page, _ = ask(target, "GET", path)
        if status != 200:
            raise LoadTestError(f"{explain('GET /samples', status, page)} Rows can be made up or come from a CSV file")
        samples += page["samples"]
        if page["next"] is None:
            break
        cursor = f"&cursor={page['next']}"
    return Rows(
        [[one["features"][name] for name in schema.names] for one in samples], [one["label"] for one in samples]
    )


def from_csv(path: Path, schema: Schema) -> Rows:
    """Read the first rows of a CSV file, columns by name; one that ends in .gz is unpacked.

    Raises
    ------
    LoadTestError
        When it cannot be read, or lacks a column.
    """
    opened = gzip.open if path.suffix == ".gz" else open
    try:
        with opened(path, "rt", encoding="utf-8-sig", newline="") as file:
            rows = list(islice(_csv_rows(csv.DictReader(file), schema, path), MOST_ROWS))
    except (OSError, EOFError, UnicodeDecodeError, csv.Error) as error:
        raise LoadTestError(f"the file {path} cannot be read: {error}") from None
    if not rows:
        raise LoadTestError(f"the file {path} has no rows")
    labels = [label for _, label in rows]
    return Rows([features for features, _ in rows], labels if labels[0] is not None else None)


def _csv_rows(reader: csv.DictReader[str], schema: Schema, path: Path) -> Iterator[tuple[list[Any], Any]]:
    missing = [name for name in schema.names if name not in (reader.fieldnames or ())]
    if missing:
        raise LoadTestError(f"the file {path} lacks columns of the model: {', '.join(missing[:5])}")
    has_labels = schema.label.name in (reader.fieldnames or ())
    for number, row in enumerate(reader, 1):
        fields = [(one.name, one.type, row[one.name]) for one in schema.features]
        fields += [(schema.label.name, schema.label.type, row[schema.label.name])] if has_labels else []
        cells = []
        for name, kind, text in fields:
            try:
                cells.append(None if text in ("", None) else _PARSERS.get(kind, str)(text))
            except (ValueError, KeyError):
                raise LoadTestError(f"row {number} of {path}, column {name}: the value is not {kind}") from None
        if has_labels and cells[-1] is None:
            continue  # a sample needs a label
        yield (cells[:-1], cells[-1]) if has_labels else (cells, None)


def _number(text: str) -> float:
    number = float(text)
    if number - number != 0:  # infinite or none
        raise ValueError
    return int(number) if number.is_integer() and abs(number) < 2**53 else number


_TRUTHS = {"true": True, "false": False, "1": True, "0": False, "yes": True, "no": False}
_PARSERS: dict[str, Callable[[str], Any]] = {
    "numeric": _number,
    "number": _number,
    "integer": int,
    "boolean": lambda text: _TRUTHS[text.strip().lower()],
}
