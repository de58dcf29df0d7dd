"""People for the tests: some rows of the example data, with ids and households made up for them.

Every sample that a test sends has a number of its own in the column `fnlwgt`, its mark: by that it is found again
wherever it is, also when nobody knows the id it was given.
"""

import csv
import gzip
import itertools
import random
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.serving import EXAMPLE

TARGET = "income"
ID_COLUMN = "person"
SUBJECT_COLUMN = "household"
N_PEOPLE = 300
_MARK = 2  # the position of `fnlwgt`
FIRST_MARK = 2_000_000  # above all that the example data hold, and exact in float32 for the next fourteen million


@dataclass(frozen=True, slots=True)
class Content:
    """What a sample holds, as JSON has it."""

    features: tuple[Any, ...]
    label: str
    subject: str | None
    is_restricted: bool = False

    @property
    def mark(self) -> int:
        """The number by which it is known."""
        return int(self.features[_MARK])


def rows(n: int = N_PEOPLE) -> tuple[list[str], list[list[Any]], list[str]]:
    """Return names, cells and labels of the first rows of the example data."""
    with gzip.open(EXAMPLE, "rt", encoding="utf-8", newline="") as file:
        header, *lines = itertools.islice(csv.reader(file), n + 1)
    target = header.index(TARGET)
    labels = [line.pop(target) for line in lines]
    del header[target]
    # `fnlwgt` is numbered, so that no two people have the same content.
    for i, line in enumerate(lines):
        line[_MARK] = str(1_000_000 + i)
    return header, [[_cell(text) for text in line] for line in lines], labels


def people(n: int = N_PEOPLE) -> dict[str, Content]:
    """Return everybody by id; a household has four of them."""
    _, cells, labels = rows(n)
    return {f"p{i}": Content(tuple(cells[i]), labels[i], f"h{i // 4}") for i in range(n)}


def write_csv(path: Path, n: int = N_PEOPLE) -> None:
    """Write everybody as the server reads them at its first start."""
    header, _, _ = rows(1)
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow([ID_COLUMN, SUBJECT_COLUMN, *header, TARGET])
        for name, content in people(n).items():
            cells = ["" if cell is None else cell for cell in content.features]
            writer.writerow([name, content.subject, *cells, content.label])


def flags(*more: str, kind: str = "forest") -> tuple[str, ...]:
    """Return the flags of a small server on these people."""
    columns = ("--data", "people.csv", "--target", TARGET, "--id", ID_COLUMN, "--subject", SUBJECT_COLUMN)
    model = ("--model", kind) if kind == "tree" else ("--model", kind, "--n-estimators", "10")
    return (*columns, *model, "--random-state", "0", *more)


class Strangers:
    """Makes contents that no one else has; a source for each client, told apart by their first marks."""

    def __init__(self, random_state: random.Random, first_mark: int = FIRST_MARK) -> None:
        self._random = random_state
        self._marks: Iterator[int] = itertools.count(first_mark)
        _, self._rows, self._labels = rows(100)

    def meet(self, subject: str | None = None) -> Content:
        """Return a new content of a subject."""
        row = list(self._random.choice(self._rows))
        row[_MARK] = next(self._marks)
        row[0] = self._random.randrange(17, 91)
        if self._random.random() < 0.1:
            row[1] = None
        return Content(tuple(row), self._random.choice(self._labels), subject)


def _cell(text: str) -> Any:
    if not text:
        return None
    return int(text) if text.lstrip("-").isdigit() else text
