"""Times and periods as people and programs write them. Inside they are milliseconds, times since 1970 UTC.

A time is RFC 3339 with its zone and nothing looser: a time whose zone has to be guessed can be off by a day, and a
sample would be kept too long or too short.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import Any

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND = timedelta(milliseconds=1)
_TIME = re.compile(
    r"(\d{4}-\d{2}-\d{2})[Tt]"
    r"((?:[01]\d|2[0-3]):[0-5]\d:[0-5]\d)(\.\d+)?"
    r"(?P<zone>[Zz]|[+-](?:[01]\d|2[0-3]):[0-5]\d)?",
    re.ASCII,
)
_PERIOD = re.compile(r"(\d{1,9})([smhdw])", re.ASCII)
_LONGEST = 100 * 366 * 86_400_000  # a century: beyond it somebody has mistaken the unit
_UNITS = {"s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000, "w": 7 * 86_400_000}

_EXAMPLE = "as in 2030-01-31T12:00:00Z or 2030-01-31T12:00:00+01:00"


class TimeError(ValueError):
    """A text that is not what it should be.

    Parameters
    ----------
    rule
        What must hold; it does not repeat the text.
    """

    def __init__(self, rule: str) -> None:
        super().__init__(rule)
        self.rule = rule


def parse_time(value: Any) -> int:
    """Return a time in milliseconds since 1970; what is finer is cut off.

    Parameters
    ----------
    value
        RFC 3339 with zone.

    Raises
    ------
    TimeError
        When it is anything else.
    """
    if not isinstance(value, str):
        raise TimeError(f"must be a text with a time in RFC 3339, {_EXAMPLE}")
    found = _TIME.fullmatch(value)
    if found is None:
        raise TimeError(f"must be a time in RFC 3339, {_EXAMPLE}")
    if found["zone"] is None:
        raise TimeError(f"must say its time zone: end it with Z for UTC or with an offset, {_EXAMPLE}")
    date, time, fraction = found[1], found[2], found[3] or "."
    zone = "+00:00" if found["zone"] in "Zz" else found["zone"]
    try:
        found_moment = datetime.fromisoformat(f"{date}T{time}{zone}").astimezone(UTC)
    except (ValueError, OverflowError):
        raise TimeError("must be a day that exists, in the years 1 to 9999 of UTC") from None
    return (found_moment - _EPOCH) // _MILLISECOND + int(f"{fraction[1:4]:0<3}")


def parse_future(value: Any, now_ms: int) -> int:
    """Return a time that is yet to come; see `parse_time`.

    Raises
    ------
    TimeError
        When it is none, or not later than now.
    """
    moment_ms = parse_time(value)
    if moment_ms <= now_ms:
        raise TimeError("must be in the future: what has expired is not learned")
    return moment_ms


def parse_period(text: str) -> int:
    """Return a period such as ``90d`` or ``12h`` in milliseconds.

    Raises
    ------
    TimeError
        When it is none, or longer than a century.
    """
    found = _PERIOD.fullmatch(text.strip())
    period = int(found[1]) * _UNITS[found[2]] if found is not None else 0
    if not 0 < period <= _LONGEST:
        raise TimeError("must be a number above 0 and a unit (s, m, h, d or w), as in 90d, and at most a century")
    return period


def moment(moment_ms: int) -> datetime:
    """Return a time that is given in milliseconds since 1970."""
    return _EPOCH + moment_ms * _MILLISECOND


def to_text(moment_ms: int) -> str:
    """Return a time as RFC 3339 in UTC, to the millisecond."""
    return moment(moment_ms).isoformat(timespec="milliseconds").replace("+00:00", "Z")
