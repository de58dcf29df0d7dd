"""Values as CSV: what is missing is empty, empty text is ``""``."""

from collections.abc import Iterable, Sequence
from typing import Any

from oubli.core.data.schema import Schema

BESIDE = ("id", "subject", "expires_at", "restricted_at")
"""Columns of a sample besides its features and its label."""
ORIGIN = ("added_at", "request_id")
"""Further columns of a sample in a bundle."""
NONCE = "nonce"
"""A further column in a list with openings."""


def csv_line(cells: Iterable[Any]) -> str:
    """Return a line."""
    return ",".join(map(csv_cell, cells)) + "\r\n"


def csv_cell(value: Any) -> str:
    """Return a value as a field."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if not isinstance(value, str):
        return str(value)
    if not value or any(sign in value for sign in ',"\r\n') or value != value.strip():
        return '"' + value.replace('"', '""') + '"'
    return value


def free_name(name: str, taken: Sequence[str]) -> str:
    """Return a name that no other column has: a feature may be called "id" as well."""
    while name in taken:
        name = "_" + name
    return name


def label_column(schema: Schema) -> str:
    """Return what the column of the labels is called."""
    return free_name(schema.label_name, schema.names)


def columns_beside(schema: Schema) -> dict[str, str]:
    """Return what the columns of a sample are called besides its features and its label."""
    taken = [*schema.names, label_column(schema)]
    return {name: free_name(name, taken) for name in (*BESIDE, *ORIGIN, NONCE, "readd", "retention")}
