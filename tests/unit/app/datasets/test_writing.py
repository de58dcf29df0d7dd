"""Files as programs write them: all of them are understood as the same table, and give the same model."""

import io
import json
import re
from dataclasses import replace
from datetime import UTC, date, datetime, time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import csv, feather
from pyarrow import parquet as pq

from oubli.app.datasets.columns import ColumnError, convert_feature
from oubli.app.datasets.fields import iso_dates, text_array
from oubli.app.datasets.loading import Table, load_queries
from oubli.core.data.values import NOT_A_MOMENT, Column, ColumnType, RefusedError, moment
from tests.unit.app.datasets.support import load, refusal
from tests.unit.app.datasets.writing import STYLES, arrow, parquet, people, understood, ways

WAYS = ways()


def values_of(table: Table, name: str) -> list[Any]:
    return [None if value != value else value for value in table.X[name].tolist()]


def kinds(table: Table) -> list[str]:
    return [str(column.type) for column in table.schema.columns]


def found_in(table: Table) -> dict[str, tuple[str, list[Any]]]:
    """Types or units with the values, as `understood` has them."""
    units = [one.unit if one.unit in ("days", "seconds") else str(one.type) for one in table.schema.columns]
    return {name: (unit, values_of(table, name)) for name, unit in zip(table.schema.names, units, strict=True)}


@pytest.mark.parametrize("name", WAYS)
def test_a_file_is_understood(name: str) -> None:
    rows = people(list(WAYS).index(name))
    write, style = WAYS[name]
    table = load(write(rows), **style.flags)
    assert (found_in(table), list(table.y)) == (understood(rows, style.without), rows["y"])
    assert [one.name for one in table.schema.columns if one.dtype == "float64"] == ["seen"]


def test_a_unit_is_in_the_schema_and_holds_for_later_files() -> None:
    rows = people(2)
    table = load(STYLES["euros"].write(rows))
    units = {column.name: column.unit for column in table.schema.columns}
    assert units == {**dict.fromkeys(units), "sum": "€", "since": "days", "seen": "seconds"}
    for style in ("plain", "excel-us-dates", "euros"):
        Path("more.csv").write_bytes(STYLES[style].write(rows))
        again = load_queries(Path("more.csv"), table.schema)
        for name in ("since", "seen", "sum"):
            np.testing.assert_array_equal(again.X[name], table.X[name])


def test_what_comes_behind_the_first_part_is_understood_too() -> None:
    """The guess is made from the first 64 KiB: words, fractions, letters and line breaks may follow."""
    head = "".join(f"{i % 90},Wien,{i % 7},{'yes' if i % 2 else 'no'}\n" for i in range(9000))
    tail = 'NA,NA,1.5,yes\n17,"two\nlines",-,no\n18,Zürich,2,yes\n'
    for encoding in ("utf-8", "cp1252"):
        table = load(("age,town,n,y\n" + head + tail).encode(encoding))
        assert kinds(table) == ["numeric", "categorical", "numeric"]
        last = [values_of(table, name)[-3:] for name in ("age", "town", "n")]
        assert last == [[None, 17, 18], [None, "two\nlines", "Zürich"], [1.5, None, 2]]


def test_every_guess_can_be_overridden() -> None:
    text = "a;b;d;y\n1,5;NA;2024-01-31;p\nNA;x;2024-02-01;q\n"
    table = load(text.encode(), read=("missing=", "dates=no", "decimal=."))
    assert (kinds(table), values_of(table, "b")) == (["categorical"] * 3, ["NA", "x"])
    assert table.about.read == ("csv", "delimiter=;", "decimal=.", "missing=", "dates=no")
    for first, days in (("day", [[19754.0], [19816.0]]), ("month", [[19724.0], [19786.0]])):
        table = load(b"d,y\n01/02/2024,p\n03/04/2024,q\n", read=(f"dates={first}-first",))
        assert table.X.tolist() == days
    table = load(b"5.1,3.5,setosa\n4.9,3.0,other\n", target="column3", read=("header=no",))
    assert (table.schema.names, list(table.y)) == (("column1", "column2"), ["setosa", "other"])


CYCLES = "d,t,c,y\n2024-02-03,2024-02-03 10:20,3,p\n2024-12-31,2023-12-31 23:59,4,q\n,,5,p\n"


@pytest.mark.parametrize("form", ["csv", "local", "jsonl", "parquet", "arrow"])
def test_the_cycles_of_dates_are_learned_where_that_is_said(form: str) -> None:
    table = csv.read_csv(io.BytesIO(CYCLES.encode()))
    rows = [{name: one and str(one) for name, one in row.items()} for row in table.to_pylist()]
    contents: dict[str, str | bytes] = {
        "csv": CYCLES,
        "local": re.sub(r"(\d+)-(\d+)-(\d+)", r"\3.\2.\1", CYCLES),
        "jsonl": "\n".join(map(json.dumps, rows)),
        "parquet": arrow(table, pq.write_table),
        "arrow": arrow(table, feather.write_feather),
    }
    found = load(contents[form], read=("cycles=d:year,t:day",), drop=("c",))
    assert [column.unit for column in found.schema.columns] == ["day of the year", "seconds of the day"]
    np.testing.assert_array_equal(found.X, [[34, 37_200], [366, 86_340], [np.nan, np.nan]])
    assert "date or time: d (day of the year), t (seconds of the day)" in found.about.lines(values=True)
    assert "cycles=d:year,t:day" in found.about.read
    later = load_queries(Path("data.csv"), replace(found.schema, extra_columns="ignore"))
    np.testing.assert_array_equal(later.X, found.X)


def test_a_cycle_of_something_else_is_refused() -> None:
    for text, option, rule in (
        (CYCLES, "d:month", "COLUMN:day, COLUMN:week or"),
        (CYCLES, ":day", "COLUMN:day"),
        (CYCLES, "x:day", "has no column 'x', which --read"),
        (CYCLES.replace(",3,", ",x,"), "c:week", "line 2, column 'c': must be a date"),
    ):
        assert rule in refusal(text, read=(f"cycles={option}",))


def test_the_encoding_can_be_given() -> None:
    csv_text = "town,y\nZürich,p\n„Genève“,q\n"
    json_lines = '{"town": "Zürich", "y": "p"}\n{"town": "„Genève“", "y": "q"}\n'
    for text, encoding in ((csv_text, "cp1252"), (json_lines, "cp1252"), (json_lines, "utf-16")):
        found = load(text.encode(encoding), read=(f"encoding={encoding}",))
        assert found.X["town"].tolist() == ["Zürich", "„Genève“"]
        assert f"encoding={encoding}" in found.about.read


def test_the_decimal_mark_is_that_of_numbers_not_of_dates_or_versions() -> None:
    for text, values in (
        *(
            (f"d{s}x{s}y\n31.12.2024{s}1{d}234{s}p\n30.11.2024{s}2{d}500{s}q\n", [1.234, 2.5])
            for s, d in (",.", ";.", ";,")
        ),
        ("d;x;z;y\n31.12.2024;1.234;0,5;p\n30.11.2024;2.500;1,25;q\n", [1234, 2500]),
        ('d,x,y\n1,"1,234",p\n2,"2,500",q\n', [1234, 2500]),
        ('d,x,y\n1,"1,234,000",p\n2,"2,500",q\n', [1234000, 2500]),
        ('d,x,y\n1,"0,234",p\n2,"2,500",q\n', [0.234, 2.5]),
        ("v;x;y\n10.0.0.1;1.5;p\n192.168.1.20;2.25;q\n", [1.5, 2.25]),
        *(("a;x;y\n1;.5;p\n2;2.;q\n", [0.5, 2]), ("a;x;y\n1;,5;p\n2;2,0;q\n", [0.5, 2])),
        *(("a;x;y\n1;-1e5;p\n2;2E-3;q\n", [-1e5, 2e-3]), ("a;x;y\n1;\u22121,5;p\n2;+2,5;q\n", [-1.5, 2.5])),
    ):
        table = load(text.encode())
        column = table.X["x"] if hasattr(table.X, "columns") else table.X[:, table.schema.index("x")]
        assert column.tolist() == [float(np.float32(value)) for value in values]


def test_single_letters_and_codes_stay_what_they_are_and_a_column_of_spans_can_be_declared_as_it_was_found() -> None:
    table = load(b"a,b,c,y\nt,007,1.2.3.4,p\nf,x,10.0.0.1,q\nu,010,192.168.100.200,p\n")
    assert (kinds(table), values_of(table, "b")) == (["categorical"] * 3, ["007", "x", "010"])
    found = load(parquet(d=pa.array([1, 90], pa.duration("s")), y=["p", "q"]))
    assert [column.unit for column in found.schema.columns] == ["s"]
    np.testing.assert_array_equal(load_queries(Path("data.csv"), found.schema).X, found.X)


@pytest.mark.parametrize("unit", NOT_A_MOMENT)
@pytest.mark.parametrize(
    ("guess", "texts"),
    [
        ("days", ["2024-01-31", "1969-12-31", "1970-01-01", "0001-01-01", "9999-12-31", "2024-12-31", "2100-03-01"]),
        ("seconds", ["2024-01-31 10:20", "2024-12-31T23:59:59.75", "1901-02-03 04:05:06", "1900-03-01T00:00"]),
        ("seconds", ["2024-01-31T00:20:30Z", "2024-01-01 00:20:30.5+01:00", "2024-12-31T22:20:30-0330"]),
        ("seconds of the day", ["00:00", "10:20:30", "23:59:59.5"]),
    ],
    ids=["dates", "times", "zones", "clock"],
)
def test_a_column_takes_the_same_texts_as_a_request(unit: str, guess: str, texts: list[str]) -> None:
    """Whether its unit is declared or follows from the file."""
    found = iso_dates(text_array(texts))
    assert found is not None
    assert (found.unit, found.values.to_pylist()) == (guess, [moment(text, guess) for text in texts])
    column = Column("d", ColumnType.NUMERIC, "float64", unit)
    try:
        expected = [moment(text, unit) for text in texts]
    except RefusedError:
        with pytest.raises(ColumnError, match=f"^{re.escape(NOT_A_MOMENT[unit])}"):
            convert_feature(column, pa.chunked_array([texts]))
    else:
        assert convert_feature(column, pa.chunked_array([texts])).tolist() == expected


def test_dates_among_times_are_taken_as_midnights() -> None:
    found = iso_dates(text_array(["1970-01-02 10:20", "1970-01-02"]))
    assert found is not None
    assert (found.unit, found.values.to_pylist()) == ("seconds", [123_600, 86_400])


@pytest.mark.parametrize("unit", NOT_A_MOMENT)
def test_what_is_no_moment_is_refused_without_repeating_it(unit: str) -> None:
    for text in ("soon", "2024-02-30", "2024-13-01", "20240131", "25:00", "12", ""):
        assert iso_dates(text_array([text])) is None
        with pytest.raises(RefusedError) as caught:
            moment(text, unit)
        assert caught.value.rule == NOT_A_MOMENT[unit]


def test_moments_of_python_and_numbers_are_taken() -> None:
    late, noon = datetime(2024, 2, 3, 1, 0, 30, tzinfo=UTC), datetime(1970, 1, 2, 12)  # noqa: DTZ001 - as in a file
    for value, unit, expected in (
        *((date(1970, 1, 3), "days", 2), (noon, "days", 1.5), (7, "days", 7)),
        *((datetime(1970, 1, 1, 1, tzinfo=UTC), "seconds", 3600), (late, "seconds of the day", 3630)),
        *((time(1, 0, 1), "seconds of the day", 3601), (date(2024, 12, 31), "day of the year", 366)),
        (date(2024, 2, 3), "day of the week", 5),
    ):
        assert moment(value, unit) == expected
    assert np.isnan(moment(None, "seconds"))
