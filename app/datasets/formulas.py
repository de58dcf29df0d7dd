"""Fields of CSV as they are written, and texts that a spreadsheet would run: behind an apostrophe, and back.

A number stays as it is, and so does a sign alone. A text that begins with apostrophes and such a sign gets one more, so
that reading back gives every text that was written.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pyarrow as pa

_GUARDED = r"^'('*[=+\-@\t\r])"
_IS_GUARDED = re.compile(_GUARDED)
_IS_RUN = re.compile(r"[=+\-@\t\r].", re.DOTALL)
_IS_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", re.ASCII)


def guarded(value: Any) -> Any:
    """Return a value as it is written: texts that a spreadsheet would run behind an apostrophe."""
    if not isinstance(value, str) or not (_IS_RUN.match(value) or _IS_GUARDED.match(value)):
        return value
    return value if _IS_NUMBER.fullmatch(value) else "'" + value


def unguarded(text: str) -> str:
    """Return a text that was read, without the apostrophe."""
    return text[1:] if _IS_GUARDED.match(text) else text


def verbatim_fields(header: Sequence[str], **further: Any) -> Any:
    """Return options for pyarrow to read CSV fields as they are: every field is a text, an empty one is missing."""
    from pyarrow import csv, string

    return csv.ConvertOptions(
        column_types={name: string() for name in header},
        null_values=[""],
        strings_can_be_null=True,
        quoted_strings_can_be_null=True,
        **further,
    )


def unguarded_columns(table: pa.Table) -> pa.Table:
    """Return a table of texts that was read, without the apostrophes."""
    import pyarrow.compute as pc

    for place, name in enumerate(table.schema.names):
        column = table.column(place)
        if pc.any(pc.starts_with(column, "'")).as_py():
            table = table.set_column(place, name, pc.replace_substring_regex(column, _GUARDED, r"\1"))
    return table
