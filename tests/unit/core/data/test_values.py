import math
import sys
from decimal import Decimal
from enum import IntEnum, StrEnum
from fractions import Fraction

import numpy as np
import pandas as pd
import pytest

from oubli.core.data import values
from oubli.core.errors import InputError

MISSING = [
    None, math.nan, np.nan, np.float32("nan"), np.float64("nan"), pd.NA, pd.NaT, Decimal("nan"),
    np.datetime64("NaT"), np.timedelta64("NaT"),
]  # fmt: skip


DAYS = np.timedelta64(5, "D")


class Colour(StrEnum):
    RED = "red"

    def __str__(self):
        return "Colour.RED"


class Size(IntEnum):
    LARGE = 3


@pytest.mark.parametrize("value", MISSING, ids=repr)
def test_missing_markers_are_missing_in_every_type_of_column(value):
    assert values.is_missing(value)
    assert math.isnan(values.number(value))
    assert math.isnan(values.boolean(value))
    assert values.category_text(value) is None


@pytest.mark.parametrize("value", [0, 0.0, "", "nan", "None", False, np.datetime64("2020-01-01"), [], {}])
def test_what_looks_empty_is_not_missing(value):
    assert not values.is_missing(value)


@pytest.mark.parametrize(("value", "expected"), [
    (3, 3.0), (-3, -3.0), (2.5, 2.5), (np.int8(-3), -3.0), (np.uint64(7), 7.0), (np.float32(0.5), 0.5),
    (2**24, 2.0**24), (2**24 + 2, 2.0**24 + 2), (2**100, 2.0**100), (-(2**127), -(2.0**127)), (Fraction(1, 4), 0.25),
    (Decimal("0.25"), 0.25), (Size.LARGE, 3.0), (3.4e38, 3.4e38),
])  # fmt: skip
def test_numbers_of_a_float32_column(value, expected):
    assert values.number(value) == expected


@pytest.mark.parametrize(("read", "value", "rule"), [
    *((values.number, value, "finite") for value in (math.inf, -math.inf, np.float32("inf"), Decimal("inf"))),
    (values.number, True, "send 1 or 0"), (values.number, np.True_, "declare the column boolean"),
    (values.number, "3", "not text"), (values.number, np.str_("3"), "without quotes"),
    *((values.number, value, "number or null") for value in (b"3", [1], {"a": 1}, 1j, object())),
    *((values.number, np.datetime64("2020-01-01"), "number or null"), (values.number, DAYS, "number or null")),
    *((values.boolean, value, "true, false or null") for value in (2, -1, 0.5, math.inf, 10**400, "true", "1", b"1")),
    *((values.boolean, value, "true, false or null") for value in ([True], 1j, np.timedelta64(1, "D"))),
    *((values.category_text, value, "") for value in (b"red", [1], {"a": 1}, 1j, object(), Decimal(1), 10**5000)),
    *((values.category_text, value, "") for value in (DAYS, math.inf, "\ud800")),
], ids=lambda value: getattr(value, "__name__", type(value).__name__))  # fmt: skip
def test_values_that_are_refused(read, value, rule):
    with pytest.raises(values.RefusedError) as info:
        read(value)
    assert rule in info.value.rule


@pytest.mark.parametrize("value", [10**400, Decimal("1e400"), Fraction(10**400), np.longdouble("1e400")])
def test_numbers_beyond_float64_are_held_as_its_largest(value):
    assert values.number(value) == sys.float_info.max
    assert values.number(-value) == -sys.float_info.max


@pytest.mark.parametrize(("value", "dtype", "expected"), [
    (2**24, "float32", False), (2**24 + 1, "float32", True), (-(2**24) - 1, "float32", True),
    (2**24 + 1, "float64", False), (2**53 + 1, "float64", True), (np.int64(2**53 + 1), "float64", True),
    (2**2000, "float64", True), (Decimal(2**53 + 1), "float64", True), (Decimal("0.1"), "float32", False),
    (Decimal("nan"), "float32", False), (Decimal("inf"), "float32", False), (16777217.0, "float32", False),
    (None, "float32", False), (True, "float32", False),
])  # fmt: skip
def test_integers_that_are_lost(value, dtype, expected):
    assert values.loses_integer(value, dtype) is expected


@pytest.mark.parametrize(
    ("value", "expected"),
    [(True, 1.0), (False, 0.0), (1, 1.0), (0, 0.0), (1.0, 1.0), (-0.0, 0.0), (np.True_, 1.0), (np.int8(1), 1.0)],
)
def test_booleans(value, expected):
    result = values.boolean(value)
    assert result == expected
    assert not math.copysign(1.0, result) < 0


@pytest.mark.parametrize(("value", "text"), [
    ("red", "red"), ("", ""), (" Red ", " Red "), ("é😀", "é😀"), (np.str_("red"), "red"), (Colour.RED, "red"),
    (7, "7"), (-7, "-7"), (np.int16(7), "7"), (2**70, str(2**70)), (Size.LARGE, "3"), (7.0, "7"), (-0.0, "0"),
    (np.float32(7), "7"), (1e20, "100000000000000000000"), (0.1, "0.1"), (np.float32(0.1), "0.1"),
    (np.float64(0.1), "0.1"), (1e-7, "1e-07"), (True, "true"), (False, "false"), (np.True_, "true"),
])  # fmt: skip
def test_categories_are_text(value, text):
    assert values.category_text(value) == text
    assert type(values.category_text(value)) is str


@pytest.mark.parametrize(("value", "text"), [
    (7, "7"), ("7", "7"), ("007", "007"), (-7, "-7"), (np.int64(7), "7"), (np.str_("a"), "a"), (Colour.RED, "red"),
    (Size.LARGE, "3"), (" ", " "), ("x" * 256, "x" * 256), ("😀" * 256, "😀" * 256), (10**255, "1" + "0" * 255),
])  # fmt: skip
def test_ids_are_text(value, text):
    assert values.normalise_id(value) == values.id_text(value) == text
    assert type(values.normalise_id(value)) is str


@pytest.mark.parametrize("value", [
    "", "x" * 257, 10**256, 10**10_000, True, np.True_, 7.0, np.float64(7), None, math.nan, b"7", [7], ("7",), "\ud800",
    "a\udfffb", pd.NA, np.timedelta64(5, "D"),
], ids=lambda value: type(value).__name__)  # fmt: skip
def test_ids_that_are_refused(value):
    for named, field in (({}, "id"), ({"field": "subject"}, "subject")):
        with pytest.raises(InputError) as info:
            values.normalise_id(value, row=3, **named)
        assert (info.value.row, info.value.field, info.value.value) == (3, field, value)


def test_rules_never_repeat_the_value():
    secret = "s3cret"
    for refuse in (values.number, values.boolean, lambda v: values.category_text([v]), lambda v: values.id_text([v])):
        with pytest.raises(values.RefusedError) as info:
            refuse(secret)
        assert secret not in info.value.rule


def test_what_is_made_of_a_value_is_made_once_and_kept_unless_it_fails():
    asked = []
    made = values.Distinct(lambda value: asked.append(value) or int(value))
    assert [made[value] for value in ["22", "1", "22", "333", "1"]] == [22, 1, 22, 333, 1]
    assert asked == ["22", "1", "333"]
    with pytest.raises(ValueError, match="invalid literal"):
        made["x"]
    assert "x" not in made
