"""A column that says when the samples of a file expire."""

import pyarrow as pa

from oubli.app.datasets.columns import ColumnError
from oubli.app.times import TimeError, parse_time


def read_expiries(name: str, column: pa.ChunkedArray) -> list[int | None]:
    """Return when each sample expires, in milliseconds since 1970; None where the field is empty: never.

    Parameters
    ----------
    name
        Of the column.
    column
        Texts in RFC 3339 with a time zone, as the `expires_at` of a sample; or times of a Parquet file, with a zone.

    Raises
    ------
    ColumnError
        When a value is anything else.
    """
    kind = column.type
    if pa.types.is_timestamp(kind) and kind.tz is not None:
        moments: list[int | None] = column.cast(pa.timestamp("ms", kind.tz), safe=False).cast(pa.int64()).to_pylist()
        return moments
    if pa.types.is_timestamp(kind):
        raise ColumnError(name, "holds times without a time zone: write them with one")
    if pa.types.is_dictionary(kind):
        column = column.cast(kind.value_type)
    if not (pa.types.is_null(column.type) or pa.types.is_string(column.type) or pa.types.is_large_string(column.type)):
        raise ColumnError(name, f"holds {kind} values, expiries are texts in RFC 3339 or times: convert the column")
    known: dict[str | None, int | None] = {None: None}  # many samples expire at the same time
    found = []
    for row, text in enumerate(column.to_pylist()):
        if text not in known:
            try:
                known[text] = parse_time(text)
            except TimeError as error:
                raise ColumnError(name, f"the expiry {error.rule}; leave the field empty for never", row) from None
        found.append(known[text])
    return found
