"""A list of ids or subjects in a file or on standard input, read one by one."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Iterator

from oubli.app.errors import StartError
from oubli.app.ledger.entries import By
from oubli.core.data.values import RefusedError, id_text

COLUMNS: dict[By, str] = {"ids": "id", "subjects": "subject"}


def read_names(lines: Iterable[str], by: By, column: str | None, place: str) -> Iterator[str]:
    """Yield the names of a list, which is CSV with a header, or has a name a line.

    Without a column the first line is a header when it has a field `id` (or `subject`); otherwise it is a name.

    Parameters
    ----------
    lines
        Of the file.
    by
        What is named.
    column
        That holds the names; the first line is a header then.
    place
        What the file is called in messages.

    Raises
    ------
    StartError
        With the line, the field, the rule and the remedy.
    """
    wanted = column or COLUMNS[by]
    reader = csv.reader(lines, strict=True)
    position: int | None = None
    is_first = True
    try:
        for fields in reader:
            if not fields:
                continue  # a blank line
            if is_first:
                is_first = False
                if wanted in fields:
                    position = fields.index(wanted)
                    continue
                if column is not None:
                    raise StartError(f"{place}, line 1: no field of the header is {column!r}: name another --column")
            where = f"{place}, line {reader.line_num}"
            if position is None and len(fields) > 1:
                raise StartError(
                    f"{where}: it has {len(fields)} fields, and the first line has no field {wanted!r}: name the "
                    "column with --column, or put quotes around a name with a comma"
                )
            yield _name(fields, position or 0, f"{where}, field {wanted!r}")
    except csv.Error as error:
        raise StartError(f"{place}, line {reader.line_num}: it is no CSV ({error}): mend the line") from None
    except UnicodeDecodeError:
        raise StartError(f"{place}, after line {reader.line_num}: it is not UTF-8: convert the file") from None


def _name(fields: list[str], position: int, where: str) -> str:
    if position >= len(fields) or not fields[position]:
        raise StartError(f"{where}: it is empty: fill it in, or remove the line")
    try:
        return id_text(fields[position])
    except RefusedError as error:
        raise StartError(f"{where}: {error.rule}: correct it, or remove the line") from None
