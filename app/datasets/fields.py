"""Texts that stand for numbers: as programs write them, as people write them, and dates and times.

    plain       12  -1.5  1e-3                            as they are
    written     1.234,56  1 234  12 %  1,200.50 EUR       by the decimal and thousands marks of the file
    dates       2024-01-31  31.01.2024  01/31/24          days since 1970-01-01
    times       2024-01-31T10:20Z  31.01.2024 10:20       seconds since 1970-01-01T00:00Z; without a zone as if in UTC
                10:20                                     seconds of the day

All functions take the distinct texts of a column and answer for all of them or for none. Words for missing values are
missing where everything else is a number.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from oubli.app.datasets.dialect import Reading
from oubli.core.data.values import DAYS, OF_DAY, SECONDS

MISSING_WORDS = (
    "NA", "N/A", "n/a", "na", "NaN", "nan", "NULL", "null", "None", "none", "?", "-", "--", ".", "\\N", "<NA>",
    "(null)", "#N/A", "#NV", "#VALUE!", "#DIV/0!", "#REF!",
)  # fmt: skip
"""What programs and people write where there is no value."""


# Where pandas is installed, pyarrow imports it to make an array or a scalar of its own from Python's values; that takes
# a third of a second of a server's start.


def text_array(texts: Sequence[str]) -> pa.Array:
    """Return texts as an array of pyarrow."""
    data = [text.encode() for text in texts]
    ends = np.cumsum([0, *map(len, data)], dtype=np.int32)
    return pa.StringArray.from_buffers(len(data), pa.py_buffer(ends.tobytes()), pa.py_buffer(b"".join(data)))


def number_array(values: npt.NDArray[Any] | np.generic) -> pa.Array:
    """Return numbers as an array of pyarrow."""
    return pa.Array.from_buffers(pa.from_numpy_dtype(values.dtype), values.size, [None, pa.py_buffer(values.tobytes())])


def number(value: np.generic) -> pa.Scalar:
    """Return a number as a scalar of pyarrow."""
    return number_array(value)[0]


NO_TEXT = pa.nulls(1, pa.string())[0]
EMPTY = text_array([""])[0]
_HALF_DAY, _NOUGHT, _MILLION = number(np.float64(43_200)), number(np.float64(0)), number(np.float64(1e6))
_NOT_NUMBERS = text_array([word for word in MISSING_WORDS if word.lower() != "nan"])


@dataclass(frozen=True, slots=True)
class Numbers:
    """What some texts stand for.

    Attributes
    ----------
    values
        int64 or float64, null where the text is missing.
    unit
        Of all of them; None: there is none.
    """

    values: pa.Array
    unit: str | None = None


class AmbiguousDateError(Exception):
    """Day and month cannot be told apart."""


def numbers_of(texts: pa.Array, reading: Reading | None = None) -> Numbers | None:
    """Return what texts stand for, or None when one of them is no number.

    Parameters
    ----------
    texts
        Distinct, without nulls.
    reading
        Of the file; None: only plain numbers are.

    Raises
    ------
    AmbiguousDateError
        When they are dates, and the reading does not say which number is the day.
    """
    if reading is None:
        values = plain_numbers(texts)
        return None if values is None else Numbers(values)
    known = _without_words(texts, reading)
    if known.null_count == len(known) and len(known):
        return None
    ways = (_plain, _written) if reading.decimal == "." else (_written, _plain)
    for way in (*ways, dates_of):
        found = way(known, reading)
        if found is not None:
            return found
    return None


def is_missing_word(texts: pa.Array) -> pa.Array:
    """Tell which texts are words for a missing value."""
    return pc.is_in(texts, value_set=_NOT_NUMBERS)


def _without_words(texts: pa.Array, reading: Reading) -> pa.Array:
    words = _NOT_NUMBERS if "missing" not in reading.given else text_array(reading.missing)
    return pc.if_else(pc.is_in(texts, value_set=words), NO_TEXT, texts)


_FIRST_TEXTS = 100  # tell most columns of text from numbers


def plain_numbers(texts: pa.Array) -> pa.Array | None:
    """Return texts as int64 or float64, or None when one of them is not a number as programs write it."""
    for kind in (pa.int64(), pa.float64()):
        try:
            # A cast that fails looks at all texts before it says so.
            pc.cast(texts.slice(0, _FIRST_TEXTS), kind)
            numbers = pc.cast(texts, kind)
        except pa.ArrowInvalid:
            continue
        # Arrow reads 0x1F as an integer; in data such texts are codes.
        hexadecimal = pa.types.is_integer(kind) and pc.any(pc.match_substring(texts, "x", ignore_case=True)).as_py()
        return None if hexadecimal else numbers
    # Spaces around numbers are common in old files. Texts that differ in them only are few, or fail early.
    trimmed = pc.utf8_trim_whitespace(texts)
    if pc.all(pc.equal(trimmed, texts)).as_py() is not False:
        return None
    return plain_numbers(pc.if_else(pc.equal(trimmed, EMPTY), NO_TEXT, trimmed))


def _plain(texts: pa.Array, reading: Reading) -> Numbers | None:
    del reading
    values = plain_numbers(texts)
    return None if values is None else Numbers(values)


_SIGN = "([+-]?)"
_CURRENCY = r"[$€£¥₹₽₩₺]|EUR|USD|GBP|CHF|JPY|CNY|INR|AUD|CAD|NZD|SEK|NOK|DKK|PLN|CZK|HUF|RUB|TRY|BRL|MXN|ZAR|KRW"
_AFFIXES = re.compile(rf"^[+-]?\s*({_CURRENCY})?\s*[+-]?\s*[\d.,'\u2019\s]+?\s*([%‰]|{_CURRENCY})?$")
_SPACES = " \u00a0\u202f\u2009"


def _written(texts: pa.Array, reading: Reading) -> Numbers | None:
    """Return numbers as people write them: grouped, with a decimal comma, a currency or a percent sign."""
    texts = pc.replace_substring(pc.utf8_trim_whitespace(texts), "\u2212", "-")
    affixes = _AFFIXES.match(texts.drop_null()[0].as_py()) if texts.null_count < len(texts) else None
    if affixes is None:
        return None
    before, after = affixes.groups()
    other = "," if reading.decimal == "." else "."
    marks = {"": other + _SPACES + "'\u2019", "none": ""}.get(reading.thousands, reading.thousands)
    point, group = re.escape(reading.decimal), f"[{re.escape(marks)}]" if marks else "[^\\x00-\\x{10FFFF}]"
    fraction = rf"(?:{point}\d*)?"
    number = rf"[1-9]\d{{0,2}}(?:{group}\d{{3}})+{fraction}|\d+{fraction}|{point}\d+"
    shape = rf"^{_SIGN}\s*{re.escape(before or '')}\s*{_SIGN}\s*({number})\s*{re.escape(after or '')}$"
    if pc.all(pc.match_substring_regex(texts, shape)).as_py() is False:
        return None
    texts = pc.replace_substring_regex(texts, shape, r"\1\2\3")
    texts = pc.replace_substring_regex(texts, group, "") if marks else texts
    values = plain_numbers(pc.replace_substring(texts, reading.decimal, "."))
    return None if values is None else Numbers(values, before or after)


# --- dates and times

_CLOCK = r"\d{2}:\d{2}(?::\d{2}(?:\.\d+)?)?"
_ISO_DATE = r"^\d{4}-\d{2}-\d{2}$"
_ISO_TIME = rf"^\d{{4}}-\d{{2}}-\d{{2}}(?:[T ]{_CLOCK})?$"
_ISO_ZONED = rf"^\d{{4}}-\d{{2}}-\d{{2}}[T ]{_CLOCK}(?:Z|[+-]\d{{2}}(?::?\d{{2}})?)$"
_OF_DAY = rf"^{_CLOCK}$"
_LOCAL = re.compile(
    r"^(?P<first>\d{1,4}|[A-Za-z]{3,9})(?P<sep>[./ -])(?P<second>\d{1,2}|[A-Za-z]{3,9})(?P<comma>,?)(?:(?P=sep))"
    r"(?P<third>\d{4}|\d{1,2})(?P<time>,?[T ]\d{1,2}:\d{2}(?::\d{2})?(?: ?[AaPp][Mm])?)?$"
)
_PADDED = {
    r"^([0-6]\d-)": r"20\1",
    r"^([7-9]\d-)": r"19\1",
    r"-(\d)-": r"-0\1-",
    r"-(\d) ": r"-0\1 ",
    r" (\d):": r" 0\1:",
}
"""What a date of two digits a year, and numbers of one digit, become."""
_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")


def dates_of(texts: pa.Array, reading: Reading) -> Numbers | None:
    """Return dates and times as numbers, or None when one of the texts is something else; see `numbers_of`."""
    if reading.dates == "no" or texts.null_count == len(texts):
        return None
    texts = pc.utf8_trim_whitespace(texts)
    found = iso_dates(texts)
    return _local(texts, reading) if found is None else found


def iso_dates(texts: pa.Array) -> Numbers | None:
    """Return dates and times of ISO 8601, or None when one of the texts is none."""
    padded = pc.replace_substring_regex(texts, r"^(\d):", r"0\1:")
    if _all(padded, _OF_DAY):
        times = _cast(pc.replace_substring_regex(padded, "^", "1970-01-01 "), pa.timestamp("us"))
        return None if times is None else Numbers(_seconds(pc.cast(times, pa.int64())), OF_DAY)
    if _all(texts, _ISO_DATE):
        days = _cast(texts, pa.date32())
        return None if days is None else Numbers(pc.cast(pc.cast(days, pa.int32()), pa.int64()), DAYS)
    zoned = pc.replace_substring_regex(texts, r" ?(?:UTC|GMT)$", "Z")
    if _all(zoned, _ISO_ZONED):
        times = _cast(zoned, pa.timestamp("us", "UTC"))
    else:
        times = _cast(texts, pa.timestamp("us")) if _all(texts, _ISO_TIME) else None
    return None if times is None else Numbers(_seconds(pc.cast(times, pa.int64())), SECONDS)


def _local(texts: pa.Array, reading: Reading) -> Numbers | None:
    """Return dates as they are written in some country, rewritten as those of ISO 8601."""
    shape = _LOCAL.match(texts.drop_null()[0].as_py())
    if shape is None:
        return None
    texts = pc.utf8_lower(texts)
    if shape["first"].isalpha() or shape["second"].isalpha():
        for number, month in enumerate(_MONTHS, start=1):
            texts = pc.replace_substring_regex(texts, rf"\b{month}[a-z]*\b", f"{number:02}")
    sep = re.escape(shape["sep"])
    year = r"(\d{4})" if len(shape["third"]) == 4 else r"(\d{2})"
    time = r"(?:,?[t ](\d{1,2}:\d{2}(?::\d{2})?)(?: ?[ap]m)?)" if shape["time"] else "()"
    if len(shape["first"]) == 4 and shape["first"].isdigit():
        orders = {"year-first": (rf"^(\d{{4}}){sep}(\d{{1,2}}){sep}(\d{{1,2}}){time}$", r"\1-\2-\3 \4")}
    else:
        form = rf"^(\d{{1,2}}){sep}(\d{{1,2}}){shape['comma']}{sep}{year}{time}$"
        orders = {"day-first": (form, r"\3-\2-\1 \4"), "month-first": (form, r"\3-\1-\2 \4")}
        if shape["first"].isalpha():
            del orders["day-first"]
        elif shape["second"].isalpha() or (shape["sep"] == "." and reading.dates == "yes"):
            del orders["month-first"]
        elif reading.dates in orders:
            orders = {reading.dates: orders[reading.dates]}
    found = [one for one in (_rewritten(texts, *order) for order in orders.values()) if one is not None]
    if len(found) == 2 and not found[0].values.equals(found[1].values):
        raise AmbiguousDateError
    return found[0] if found else None


def _rewritten(texts: pa.Array, form: str, order: str) -> Numbers | None:
    if not _all(texts, form):
        return None
    iso = pc.replace_substring_regex(texts, form, order)
    for short, full in _PADDED.items():
        iso = pc.replace_substring_regex(iso, short, full)
    iso = pc.utf8_trim_whitespace(iso)
    found = iso_dates(iso)
    half = pc.match_substring_regex(texts, "[ap]m$")
    if found is None or not pc.any(half).as_py():
        return found
    # Twelve o'clock is the first hour of its half of the day.
    later = pc.if_else(pc.match_substring_regex(texts, "pm$"), _HALF_DAY, _NOUGHT)
    earlier = pc.if_else(pc.match_substring_regex(iso, " 12:"), _HALF_DAY, _NOUGHT)
    return Numbers(pc.subtract(pc.add(found.values, later), earlier), found.unit)


def moments_of(column: pa.ChunkedArray) -> Numbers | None:
    """Return a column of dates or times as numbers; None for what is neither."""
    kind = column.type
    if pa.types.is_date(kind):
        return Numbers(pc.cast(pc.cast(pc.cast(column, pa.date32()), pa.int32()), pa.int64()), DAYS)
    if pa.types.is_timestamp(kind):
        return Numbers(_seconds(pc.cast(pc.cast(column, pa.timestamp("us", kind.tz), safe=False), pa.int64())), SECONDS)
    if pa.types.is_time(kind):
        return Numbers(_seconds(pc.cast(pc.cast(column, pa.time64("us"), safe=False), pa.int64())), OF_DAY)
    if pa.types.is_duration(kind):
        return Numbers(_seconds(pc.cast(pc.cast(column, pa.duration("us"), safe=False), pa.int64())), "s")
    return None


def _seconds(microseconds: pa.Array) -> pa.Array:
    return pc.divide(pc.cast(microseconds, pa.float64(), safe=False), _MILLION)


def _all(texts: pa.Array, form: str) -> bool:
    return bool(pc.all(pc.match_substring_regex(texts, form)).as_py())


def _cast(texts: pa.Array, kind: pa.DataType) -> pa.Array | None:
    try:
        return pc.cast(texts, kind)
    except pa.ArrowInvalid:
        return None
