"""Rows to predict and samples to add: from the samples held, made up by the schema, or from a CSV file."""

from __future__ import annotations

import csv
import gzip
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from oubli.client.load.http import Target, ask, explain
from oubli.client.load.plan import LoadTestError

MOST_ROWS = 1000  # different ones; they are used again and again
_PAGE = 200
_CATEGORIES = "abcdefgh"


@dataclass(frozen=True)
class Schema:
    """What `GET /model` says of features and labels.

    Attributes
    ----------
    features
        Type by name, in feature order.
    label, label_type
        Its name and type.
    classes
        The classes held; None for regression.
    """

    features: dict[str, str]
    label: str
    label_type: str
    classes: list[Any] | None

    @classmethod
    def read(cls, model: dict[str, Any]) -> Schema:
        """Read the answer of `GET /model`.

        Raises
        ------
        LoadTestError
            When it is something else.
        """
        try:
            features = {one["name"]: one["type"] for one in model["features"]}
            return cls(features, model["label"]["name"], model["label"]["type"], model["classes"])
        except (KeyError, TypeError):
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
    classes = schema.classes or labels.get(schema.label_type, ["a", "b"])
    features = [[make[kind]() for kind in schema.features.values()] for _ in range(n)]
    if schema.classes is None:
        return Rows(features, [round(random_.uniform(0, 100), 2) for _ in range(n)])
    return Rows(features, [random_.choice(classes) for _ in range(n)])


async def from_held(target: Target, schema: Schema) -> Rows:
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
        status, page, _ = await ask(target, "GET", path)
        if status != 200:
            raise LoadTestError(f"{explain('GET /samples', status, page)} Rows can be made up or come from a CSV file")
        samples += page["samples"]
        if page["next"] is None:
            break
        cursor = f"&cursor={page['next']}"
    return Rows(
        [[one["features"][name] for name in schema.features] for one in samples], [one["label"] for one in samples]
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
    missing = [name for name in schema.features if name not in (reader.fieldnames or ())]
    if missing:
        raise LoadTestError(f"the file {path} lacks columns of the model: {', '.join(missing[:5])}")
    has_labels = schema.label in (reader.fieldnames or ())
    for number, row in enumerate(reader, 1):
        fields = [(name, kind, row[name]) for name, kind in schema.features.items()]
        fields += [(schema.label, schema.label_type, row[schema.label])] if has_labels else []
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
