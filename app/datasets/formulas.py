"""Fields of CSV as they are written, and texts that a spreadsheet would run: behind an apostrophe, and back.

A number stays as it is, and so does a sign alone. A text that begins with apostrophes and such a sign gets one more, so
that reading back gives every text that was written.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pyarrow as pa

    from oubli.app.datasets.dialect import Reading

_GUARDED = r"^'('*[=+\-@\t\r])"
_IS_GUARDED = re.compile(_GUARDED)
_IS_RUN = re.compile(r"[=+\-@\t\r].", re.DOTALL)
_IS_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", re.ASCII)


def guarded(value: Any) -> Any:
    """Return a value as it is written: texts that a spreadsheet would run behind an apostrophe."""
    if not isinstance(value, str) or not (_IS_RUN.match(value) or _IS_GUARDED.match(value)):
        return value
    return value if is_number(value) else "'" + value


def is_number(text: str) -> bool:
    """Whether a text is a number as programs write it."""
    return _IS_NUMBER.fullmatch(text) is not None


def unguarded(text: str) -> str:
    """Return a text that was read, without the apostrophe."""
    return text[1:] if _IS_GUARDED.match(text) else text


def verbatim_fields(
    header: Sequence[str], types: Mapping[str, Any] | None = None, reading: Reading | None = None, **further: Any
) -> Any:
    """Return options for pyarrow to read CSV fields as they are: every field is a text, an empty one is missing.

    Parameters
    ----------
    header
        Names of the columns.
    types
        Of columns that are read as something else.
    reading
        Of the file: what else is missing, and the decimal mark.
    **further
        More options.
    """
    from pyarrow import csv, string

    return csv.ConvertOptions(
        column_types={**{name: string() for name in header}, **(types or {})},
        null_values=["", *(reading.missing if reading is not None else ())],
        strings_can_be_null=True,
        quoted_strings_can_be_null=reading is None or reading.quoted == "any",
        decimal_point="." if reading is None else reading.decimal,
        **further,
    )


def unguarded_columns(table: pa.Table) -> pa.Table:
    """Return a table of texts that was read, without the apostrophes."""
    import pyarrow.compute as pc

    return _changed(
        table,
        lambda texts: pc.any(pc.starts_with(texts, "'")).as_py(),
        lambda column: pc.replace_substring_regex(column, _GUARDED, r"\1"),
    )


def without_empty(table: pa.Table) -> pa.Table:
    """Return a table whose empty texts are missing."""
    import pyarrow.compute as pc

    from oubli.app.datasets.fields import EMPTY, NO_TEXT

    return _changed(
        table,
        lambda texts: pc.any(pc.equal(texts, EMPTY)).as_py(),
        lambda column: pc.if_else(pc.equal(column, EMPTY), NO_TEXT, column),
    )


def _changed(table: pa.Table, concerns: Callable[[Any], bool], change: Callable[[Any], Any]) -> pa.Table:
    """Change the columns of texts that hold what a change concerns; codes are looked at by their texts."""
    import pyarrow as pa

    for place, name in enumerate(table.schema.names):
        column, kind = table.column(place), table.schema.types[place]
        if pa.types.is_dictionary(kind):
            if any(concerns(part.dictionary) for part in (column.chunks if isinstance(table, pa.Table) else [column])):
                table = table.set_column(place, name, change(column.cast(pa.string())))
        elif pa.types.is_string(kind) and concerns(column):
            table = table.set_column(place, name, change(column))
    return table
