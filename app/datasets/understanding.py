"""What was understood of a data file: how it is read, what is predicted, and what is worth knowing of its columns.

    id-like     a different value in nearly every row: texts, or whole numbers that count
    constant    one value at most
    many        so many categories that most have few rows
    leak        each value goes with one label only, and has several rows: it may say what is to be predicted

Remarks come from the samples, and some from a part of them. They name columns and never repeat values; examples and
the classes with their counts are for a person who looks at the file, and are kept nowhere.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from oubli.core.data.schema import Column, ColumnType, Schema, Task
from oubli.core.data.values import NOT_A_MOMENT

MANY_CATEGORIES = 1000
_LOOKED_AT = 2_000  # rows that a remark is made from
_LEAST_ROWS = 20  # that tell anything
_LISTED = 8
_NAMED_SO = ("target", "label", "class", "y", "outcome", "income", "price", "survived", "species", "churn", "default")

REMARKS = {
    "id": "looks like an id: use it as --id, or --drop it",
    "constant": "is the same in all rows: --drop it",
    "many": f"has more than {MANY_CATEGORIES:,} categories",
    "leak": "goes with one label only, value by value: --drop it if it is not known before the label is",
}
"""What is said of a column, by what was found."""


FROM_SAMPLES = ("remarks", "left_out")
"""What of the content depends on samples."""


@dataclass(frozen=True)
class Understood:
    """What was understood; see the top of this file.

    Attributes
    ----------
    name
        Of the file.
    read
        How it is read, as `KEY=VALUE`.
    n_rows
        That are learned from.
    columns
        The features.
    roles
        The other columns, and what each is.
    remarks
        The features that there is something to say about, each with a key of `REMARKS`.
    left_out
        Rows that are not learned from, by reason.
    categories
        How many categories each categorical column has.
    target, task
        What is predicted; None as long as no target is named.
    classes
        The labels, the most frequent first, with their numbers of rows.
    hint
        What else there is to say about the target.
    examples
        Some values of each column.
    """

    name: str
    read: tuple[str, ...]
    n_rows: int
    columns: tuple[Column, ...]
    roles: Mapping[str, str]
    remarks: Mapping[str, str]
    left_out: Mapping[str, int] = field(default_factory=dict)
    categories: Mapping[str, int] = field(default_factory=dict)
    target: str | None = None
    task: Task | None = None
    classes: tuple[tuple[Any, int], ...] = ()
    hint: str = ""
    examples: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    def content(self) -> dict[str, Any]:
        """Return what a server answers; `Understood` of `oubli.api` documents the fields."""
        return {
            "read": list(self.read),
            "roles": [{"name": name, "role": role} for name, role in self.roles.items()],
            "remarks": [{"name": name, "remark": remark} for name, remark in self.remarks.items()],
            "left_out": [{"reason": reason, "rows": count} for reason, count in self.left_out.items()],
        }

    def lines(self, *, values: bool) -> Iterator[str]:
        """Yield some lines for a person; `values` also tells the classes and numbers of rows."""
        yield f"{self.name}: {', '.join(self.read)}" + (f"; {self.n_rows:,} rows" if values else "")
        if self.target is not None:
            counted = ", ".join(f"{label} ({count:,})" for label, count in self.classes[:_LISTED])
            more = f" and {len(self.classes) - _LISTED} more" if len(self.classes) > _LISTED else ""
            what = f"{len(self.classes)} classes" if self.classes else "a number"
            shown = f": {counted}{more}" if counted and values else ""
            yield f"target: {self.target}, {self.task}, {what}{shown}" + (f" ({self.hint})" if self.hint else "")
        else:
            yield f"target: none yet; --target COLUMN says which: {_listed(self.candidates())}"
        for kind, names in self._by_type(values=values).items():
            yield f"{kind}: {_listed(names)}"
        if self.roles:
            yield "not learned from: " + _listed([f"{name} ({role})" for name, role in self.roles.items()])
        for key, text in REMARKS.items():
            names = [name for name, remark in self.remarks.items() if remark == key]
            if names:
                yield f"{_listed(names)} {text}"
        for reason, count in self.left_out.items():
            yield f"left out: {count:,} rows, {reason}" if values else f"rows are left out: {reason}"

    def _by_type(self, *, values: bool) -> dict[str, list[str]]:
        found: dict[str, list[str]] = {}
        for column in self.columns:
            kind = "date or time" if column.unit in NOT_A_MOMENT else str(column.type)
            n = self.categories.get(column.name) if values else None
            beside = column.unit if n is None else f"{n:,}"
            found.setdefault(kind, []).append(column.name if beside is None else f"{column.name} ({beside})")
        return found

    def candidates(self) -> list[str]:
        """Return the columns that may be the target, the likely ones first."""
        names = [column.name for column in self.columns if self.remarks.get(column.name) not in ("id", "constant")]
        said = [name for name in names if name.lower() in _NAMED_SO]
        return list(dict.fromkeys([*said, *names[-1:], *names]))

    def examples_lines(self) -> Iterator[str]:
        """Yield a line for each feature: its type, and some of its values."""
        types = self.types()
        width, wide = max(map(len, types), default=0), max(map(len, types.values()), default=0)
        for name, kind in types.items():
            yield f"{name.ljust(width)}  {kind.ljust(wide)}  {', '.join(self.examples.get(name, ()))}"

    def types(self) -> dict[str, str]:
        """Return the type of each feature as text."""
        return {one.name: f"{one.type}, {one.unit}" if one.unit else str(one.type) for one in self.columns}


Show = Callable[[Understood], object]
"""Shows a person what was understood."""


def show_nobody(about: Understood) -> None:
    """Show nothing."""
    del about


def _listed(names: Sequence[str]) -> str:
    more = f" and {len(names) - _LISTED} more" if len(names) > _LISTED + 1 else ""
    return ", ".join(names if not more else names[:_LISTED]) + more


def find_remarks(
    columns: Mapping[str, npt.NDArray[Any]],
    schema: Sequence[Column],
    labels: npt.NDArray[Any] | None,
    categories: Mapping[str, int],
) -> dict[str, str]:
    """Return what there is to say about columns, as keys of `REMARKS`.

    Parameters
    ----------
    columns
        Their values.
    schema
        Their types.
    labels
        The values of the target, if there is one.
    categories
        How many there are in each categorical column.
    """
    remarks: dict[str, str] = {}
    n_rows = len(next(iter(columns.values()), ()))
    step = -(-n_rows // _LOOKED_AT) or 1
    classes = None if labels is None else _codes(labels[::step])
    for column in schema:
        values = columns[column.name]
        some = _codes(values[::step])
        n_some = int(some.max(initial=-1)) + 1
        if n_rows < 2:
            continue
        if n_some <= 1 and _codes(values).max(initial=-1) < 1:
            remarks[column.name] = "constant"
        elif len(some) >= _LEAST_ROWS and n_some > 0.95 * len(some) and _names_rows(column, values):
            remarks[column.name] = "id"
        elif classes is not None and _tells(some, classes):
            remarks[column.name] = "leak"
        elif categories.get(column.name, 0) > MANY_CATEGORIES:
            remarks[column.name] = "many"
    return remarks


def _codes(values: npt.NDArray[Any]) -> npt.NDArray[np.int64]:
    """Return distinct values as numbers from 0; -1 for a missing one."""
    known: dict[Any, int] = {}
    return np.array([-1 if v is None or v != v else known.setdefault(v, len(known)) for v in values.tolist()], np.int64)


def _names_rows(column: Column, values: npt.NDArray[Any]) -> bool:
    """Whether values that differ in most rows name them: texts do, and whole numbers that are close to a count."""
    if column.type is ColumnType.CATEGORICAL:
        return True
    if column.unit is not None or values.dtype.kind != "f":
        return False
    known = values[np.isfinite(values)]
    span = float(known.max()) - float(known.min()) + 1
    return bool((known == np.floor(known)).all()) and span <= 1.1 * len(known)


def _tells(codes: npt.NDArray[np.int64], classes: npt.NDArray[np.int64]) -> bool:
    """Whether each value goes with one label only, where values and labels have several rows each."""
    known = codes >= 0
    pairs = Counter(zip(codes[known].tolist(), classes[known].tolist(), strict=True))
    n_values = len({value for value, _ in pairs})
    n_known = int(known.sum())
    n_classes = len({label for _, label in pairs})
    is_copy = n_known >= _LEAST_ROWS and n_classes > 1 and len(pairs) == n_values
    return is_copy and (5 * n_values <= n_known or n_values == n_classes)


def count_classes(labels: npt.NDArray[Any], schema: Schema) -> tuple[tuple[Any, int], ...]:
    """Return the labels with their numbers of rows, the most frequent first; nothing for a regression."""
    return tuple(Counter(labels.tolist()).most_common()) if schema.task is Task.CLASSIFICATION else ()
