from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oubli.app.times import TimeError, parse_future, parse_period, parse_time, to_text


@pytest.mark.parametrize(
    ("text", "moment"),
    [
        ("1970-01-01T00:00:00Z", 0),
        ("1970-01-01t00:00:01z", 1000),
        ("1970-01-01T00:00:00.5Z", 500),
        ("1970-01-01T00:00:00.1239Z", 123),
        ("1970-01-01T01:00:00+01:00", 0),
        ("1969-12-31T19:30:00.007-04:30", 7),
        ("1970-01-01T00:00:00-00:00", 0),
        ("1969-12-31T23:59:59.750Z", -250),
        ("2028-02-29T12:00:00Z", 1835438400000),
        ("9999-12-31T23:59:59.999Z", 253402300799999),
    ],
)
def test_a_time_with_its_zone(text, moment):
    assert parse_time(text) == moment


@pytest.mark.parametrize("text", ["2030-01-31T12:00:00", "2030-01-31T12:00:00.5"])
def test_a_time_without_zone_is_told_so(text):
    with pytest.raises(TimeError, match="zone"):
        parse_time(text)


@pytest.mark.parametrize(
    "value",
    [
        None,
        True,
        1893456000,
        1893456000000,
        [],
        "",
        "2030-01-31",
        "2030-01-31 12:00:00Z",
        "2030-01-31T12:00Z",
        "2030-01-31T12:00:00.Z",
        "2030-01-31T12:00:00,5Z",
        "2030-01-31T12:00:00 Z",
        "2030-01-31T12:00:00+0100",
        "2030-01-31T12:00:00+01",
        "2030-01-31T12:00:00+24:00",
        "2030-01-31T12:00:00Z\n",
        " 2030-01-31T12:00:00Z",
        "20300131T120000Z",
        "2030-W05-4T12:00:00Z",
        "2030-1-31T12:00:00Z",
        "+2030-01-31T12:00:00Z",
        "\uff12030-01-31T12:00:00Z",
        "2030-02-30T12:00:00Z",
        "2029-02-29T12:00:00Z",
        "2030-13-01T12:00:00Z",
        "0000-01-01T12:00:00Z",
        "0001-01-01T00:00:00+01:00",
        "9999-12-31T23:59:59-01:00",
        "2030-01-31T24:00:00Z",
        "2030-01-31T12:60:00Z",
        "2030-01-31T12:00:60Z",
        "never SECRET",
        "2030-01-31T12:00:00Z SECRET",
        {"SECRET": 1},
    ],
)
def test_everything_else_is_refused_without_being_repeated(value):
    with pytest.raises(TimeError) as caught:
        parse_time(value)
    assert caught.value.rule.startswith("must ")
    assert "SECRET" not in caught.value.rule


@given(
    st.datetimes(datetime(1, 1, 2), datetime(9999, 12, 30)),  # noqa: DTZ001 - the zone is drawn apart
    st.integers(-23 * 60, 23 * 60),
)
def test_what_is_written_is_read(naive, minutes):
    moment = naive.replace(tzinfo=timezone(timedelta(minutes=minutes)))
    expected = (moment - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(milliseconds=1)
    assert parse_time(moment.isoformat()) == expected
    assert parse_time(to_text(expected)) == expected


def test_the_future_is_later_than_now():
    now = parse_time("2030-01-01T00:00:00Z")
    assert parse_future("2030-01-01T00:00:00.001Z", now) == now + 1
    assert parse_future("2030-01-01T01:00:01+01:00", now) == now + 1000
    for text in ("2030-01-01T00:00:00Z", "2030-01-01T00:30:00+01:00", "1970-01-01T00:00:00Z"):
        with pytest.raises(TimeError, match="future"):
            parse_future(text, now)
    with pytest.raises(TimeError, match="zone"):
        parse_future("2031-01-01T00:00:00", now)


@pytest.mark.parametrize(
    ("text", "seconds"), [("1s", 1), ("90d", 90 * 86_400), ("12h", 43_200), ("5m", 300), ("2w", 1_209_600)]
)
def test_periods(text, seconds):
    assert parse_period(text) == seconds * 1000


@pytest.mark.parametrize("text", ["", "d", "90", "0d", "-1d", "1.5h", "1y", "90 d", "1d2h", "101000w", "1D", "\u0661d"])
def test_what_is_no_period(text):
    with pytest.raises(TimeError, match="unit"):
        parse_period(text)
