"""A small table, and the ways in which programs write one: as their documentation describes it, or by themselves.

Spreadsheets, databases and R are imitated: what they write is a matter of separators, quotation marks, words for what
is missing, and forms of numbers and dates.
"""

import bz2
import gzip
import io
import json
import lzma
import random
import zipfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, date, datetime, timedelta
from functools import partial
from typing import Any

import pandas as pd
import polars as pl
import pyarrow as pa
from pyarrow import feather
from pyarrow import parquet as pq

Rows = dict[str, list[Any]]
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def people(seed: int, n_rows: int = 60, *, texts: str = "café, größe") -> Rows:
    """Columns of all types with missing values, and a label that follows from some of them."""
    rng = random.Random(seed)
    towns = ["Wien", "São Paulo", 'the "Hague"', "Łódź" if "Ł" in texts else "Zürich", texts]

    def some(make: Callable[[], Any], share: float = 0.15) -> list[Any]:
        values = [None if rng.random() < share else make() for _ in range(n_rows)]
        return values if any(value is None for value in values) else [None, *values[1:]]

    ages = some(lambda: rng.randrange(18, 90))
    heights = some(lambda: rng.randrange(1200, 1600) / 8)
    sums = some(lambda: rng.randrange(-5_000_000, 5_000_000) / 4)
    days = some(lambda: date(2001, 1, 13) + timedelta(days=rng.randrange(9000)))
    times = some(lambda: datetime(2020, 1, 13, 10, 20, 30) + timedelta(seconds=rng.randrange(10**8)))  # noqa: DTZ001
    return {
        "age": ages,
        "height": heights,
        "sum": sums,
        "town": some(lambda: rng.choice(towns)),
        "member": some(lambda: rng.random() < 0.5),
        "since": days,
        "seen": times,
        "y": ["yes" if (age or 40) + rng.randrange(20) > 55 else "no" for age in ages],
    }


def understood(rows: Rows, without: Sequence[str] = ()) -> dict[str, tuple[str, list[Any]]]:
    """What must be understood of such a table: the type or unit of each column, and its values."""
    found: dict[str, tuple[str, list[Any]]] = {}
    for name, values in rows.items():
        kinds = {type(value) for value in values} - {type(None)}
        if name == "y" or name in without:
            continue
        if kinds == {date}:
            found[name] = ("days", [v and (v - EPOCH.date()).days for v in values])
        elif kinds == {datetime}:
            found[name] = ("seconds", [v and (v.replace(tzinfo=UTC) - EPOCH).total_seconds() for v in values])
        else:
            kind = "categorical" if kinds == {str} else "boolean" if kinds == {bool} else "numeric"
            found[name] = (kind, values)
    return found


@dataclass(frozen=True)
class Style:
    """How a program writes CSV."""

    delimiter: str = ","
    decimal: str = "."
    thousands: str = ""
    missing: str = ""
    quotes: str = "minimal"  # or text, all, none
    newline: str = "\n"
    true: str = "true"
    false: str = "false"
    day: str = "%Y-%m-%d"
    time: str = "%Y-%m-%d %H:%M:%S"
    encoding: str = "utf-8"
    before: str = ""
    behind: str = ""  # at the end of each line
    index: str = ""  # name of a column of row names; "-" for none in the header
    blank: bool = False
    padded: bool = False
    sums: str = "{}"
    pack: Callable[[bytes], bytes] = bytes
    without: tuple[str, ...] = ()
    flags: Mapping[str, Any] = field(default_factory=dict)

    def write(self, rows: Rows) -> bytes:
        """Return the file."""
        rows = {name: values for name, values in rows.items() if name not in self.without}
        n_rows = len(rows["y"])
        first = [] if not self.index or self.index == "-" else [self._quoted(self.index.strip("."), is_text=True)]
        lines = [self.delimiter.join(first + [self._quoted(name, is_text=True) for name in rows]) + self.behind]
        for row in range(n_rows):
            names = [] if not self.index else [self._quoted(str(row + (self.quotes == "text")), is_text=True)]
            cells = [self._cell(name, values[row]) for name, values in rows.items()]
            lines.append(self.delimiter.join(names + cells) + self.behind)
            if self.blank and row % 7 == 3:
                lines.append("")
        text = self.before + self.newline.join(lines) + self.newline
        return self.pack(text.encode(self.encoding))

    def _cell(self, name: str, value: Any) -> str:
        if value is None or isinstance(value, bool):
            return self._quoted({None: self.missing, True: self.true, False: self.false}[value], is_text=False)
        if isinstance(value, date):
            return self._quoted(value.strftime(self.time if isinstance(value, datetime) else self.day), is_text=True)
        if isinstance(value, (int, float)):
            text = f"{value:,}" if self.thousands else str(value)
            text = text.translate({ord(","): self.thousands, ord("."): self.decimal})
            text = self.sums.format(text) if name == "sum" else text
            return self._quoted(f" {text} " if self.padded else text, is_text=False)
        return self._quoted(value, is_text=True)

    def _quoted(self, text: str, *, is_text: bool) -> str:
        needs = any(sign in text for sign in (self.delimiter, '"', "\n", "\r"))
        has = self.quotes == "all" or needs or (self.quotes == "text" and is_text)
        return '"' + text.replace('"', '""') + '"' if has and self.quotes != "none" else text


SHEET = Style(newline="\r\n", true="TRUE", false="FALSE")
GERMAN = replace(SHEET, delimiter=";", decimal=",", day="%d.%m.%Y", time="%d.%m.%Y %H:%M:%S", without=("member",))
R = Style(quotes="text", missing="NA", true="TRUE", false="FALSE", index=".")
PANDAS = Style(true="True", false="False")
TEXT_FORMAT = Style(delimiter="\t", missing="\\N", quotes="none", true="t", false="f")


def zstd(data: bytes) -> bytes:
    """Compress with zstd."""
    packed: bytes = pa.compress(data, codec="zstd", asbytes=True)
    return packed


STYLES: dict[str, Style] = {
    "plain": Style(), "excel-utf8": replace(SHEET, before="\ufeff"),
    "excel-unicode-text": replace(SHEET, delimiter="\t", encoding="utf-16-le", before="\ufeff"),
    "excel-german": replace(GERMAN, encoding="cp1252"), "excel-german-utf8": replace(GERMAN, before="\ufeff"),
    "excel-german-thousands": replace(GERMAN, thousands=".", encoding="cp1252"),
    "excel-sep-semicolon": replace(SHEET, before="sep=;\r\n", delimiter=";"),
    "excel-sep-comma": replace(SHEET, before="sep=,\r\n"),
    "excel-us-dates": replace(SHEET, day="%m/%d/%Y", time="%m/%d/%Y %I:%M:%S %p"),
    "excel-us-short-year": replace(SHEET, day="%m/%d/%y", time="%m/%d/%y %H:%M:%S"),
    "excel-british": replace(SHEET, day="%d/%m/%Y", time="%d/%m/%Y %H:%M:%S"),
    "excel-accounting": replace(SHEET, thousands=",", sums="${}"), "excel-percent": replace(SHEET, sums="{}%"),
    "excel-not-available": replace(SHEET, missing="#N/A"), "excel-empty-columns": replace(SHEET, behind=",,"),
    "excel-mac": replace(SHEET, newline="\r"), "google-sheets": SHEET, "postgresql-csv": Style(true="t", false="f"),
    "postgresql-force-quote": Style(true="t", false="f", quotes="all"),
    "postgresql-null": Style(true="t", false="f", missing="NULL"), "postgresql-text": TEXT_FORMAT,
    "postgresql-zone": Style(true="t", false="f", time="%Y-%m-%d %H:%M:%S+00"),
    "duckdb-bars": Style(delimiter="|", missing="NULL"), "duckdb-gz": Style(pack=partial(gzip.compress, mtime=0)),
    "duckdb-zst": Style(pack=zstd), "mysql-outfile": replace(TEXT_FORMAT, without=("member",)),
    "mysql-workbench": Style(missing="NULL", without=("member",), quotes="text"),
    "mysql-semicolons": Style(delimiter=";", missing="\\N", quotes="all", without=("member",)), "r-write-csv": R,
    "r-write-csv-no-row-names": replace(R, index=""), "r-write-csv2": replace(R, delimiter=";", decimal=","),
    "r-write-table": replace(R, delimiter=" ", index="-"), "r-write-table-tab": replace(R, delimiter="\t", index="-"),
    "r-fwrite": Style(true="TRUE", false="FALSE", time="%Y-%m-%dT%H:%M:%SZ"),
    "r-readr": Style(missing="NA", true="TRUE", false="FALSE", time="%Y-%m-%dT%H:%M:%SZ"),
    "r-readr-csv2": Style(delimiter=";", decimal=",", missing="NA", true="TRUE", false="FALSE"),
    "openml": Style(missing="?", quotes="text"), "dashes": Style(missing="-"), "words": Style(missing="N/A"),
    "nan": replace(PANDAS, missing="nan"), "bz2": Style(pack=bz2.compress), "xz": Style(pack=lzma.compress),
    "utf-16-be": Style(encoding="utf-16-be", before="\ufeff"), "utf-16-without-mark": Style(encoding="utf-16-le"),
    "utf-32": Style(encoding="utf-32-le", before="\ufeff"), "latin-1": Style(encoding="latin-1"),
    "utf-16-given": Style(encoding="utf-16", flags={"read": ("encoding=utf-16",)}),
    "trailing-comma": Style(behind=","), "blank-lines": Style(blank=True), "padded": Style(padded=True),
    "decimal-comma-with-commas": Style(decimal=","),
    "spaces-in-thousands": Style(delimiter=";", decimal=",", thousands="\u00a0"),
    "swiss": Style(delimiter=";", thousands="'"),
    "thin-spaces": Style(delimiter="\t", decimal=",", thousands="\u202f"),
    "euros": Style(delimiter=";", decimal=",", thousands=".", sums="{} €"),
    "month-names": Style(day="%d-%b-%Y", time="%d %b %Y %H:%M:%S"),
    "slashed-iso": Style(day="%Y/%m/%d", time="%Y/%m/%d %H:%M:%S"),
    "title-lines": Style(before="Our people\nas of today\n", flags={"read": ("skip=2",)}),
    "given-delimiter": Style(delimiter=":", flags={"read": ("delimiter=:",)}, quotes="all"),
    "unnamed-zero": replace(PANDAS, index=".Unnamed: 0"),
}  # fmt: skip
"""The ways of writing text, by name."""


def frame(rows: Rows) -> pd.DataFrame:
    """The table of pandas."""
    table = pd.DataFrame(rows)
    table["age"] = table["age"].astype("Int64")
    return table


def _pandas(rows: Rows, **options: Any) -> bytes:
    return frame(rows).to_csv(**options).encode()


def _polars(rows: Rows, write: str, **options: Any) -> bytes:
    sink = io.BytesIO()
    getattr(pl.DataFrame(rows), write)(sink, **options)
    return sink.getvalue()


def arrow(rows: Mapping[str, Any] | pa.Table, write: Callable[[pa.Table, Any], object]) -> bytes:
    """Return a file of pyarrow."""
    sink = io.BytesIO()
    write(pa.table(rows), sink)
    return sink.getvalue()


def parquet(row_group_size: int | None = None, **columns: Any) -> bytes:
    """Return a Parquet file of some columns."""
    return arrow(columns, partial(pq.write_table, row_group_size=row_group_size))


def stream(table: pa.Table, sink: Any, **options: Any) -> None:
    """Write an Arrow stream."""
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table, **options)


def _json(rows: Rows) -> bytes:
    lines = (dict(zip(rows, row, strict=True)) for row in zip(*rows.values(), strict=True))
    return "".join(json.dumps(line, default=str) + "\n" for line in lines).encode()


def _sheet(rows: Rows) -> bytes:
    """The parts of a workbook that have data, one sheet, as Excel writes them: dates are numbers with a style."""
    cells: list[list[Any]] = [list(rows), *map(list, zip(*rows.values(), strict=True))]

    def cell(value: Any) -> str:
        if value is None or isinstance(value, bool):
            return "<c/>" if value is None else f'<c t="b"><v>{int(value)}</v></c>'
        if isinstance(value, datetime):
            return f'<c s="2"><v>{(value - datetime(1899, 12, 30)).total_seconds() / 86400!r}</v></c>'  # noqa: DTZ001
        if isinstance(value, date):
            return f'<c s="1"><v>{(value - date(1899, 12, 30)).days}</v></c>'
        if isinstance(value, (int, float)):
            return f"<c><v>{value!r}</v></c>"
        escaped = value.replace("&", "&amp;").replace("<", "&lt;")
        return f'<c t="inlineStr"><is><t>{escaped}</t></is></c>'

    main = 'xmlns="http://schemas.openxmlformats.org/spreadsheetml/2006/main"'
    office = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
    package = "http://schemas.openxmlformats.org/package/2006"
    body = "".join(f"<row>{''.join(map(cell, row))}</row>" for row in cells)
    parts = {
        "_rels/.rels": f'<Relationships xmlns="{package}/relationships"><Relationship Id="r1" '
        f'Type="{office}/officeDocument" Target="xl/workbook.xml"/></Relationships>',
        "xl/workbook.xml": f'<workbook {main} xmlns:r="{office}"><sheets><sheet name="people" sheetId="1" r:id="r1"/>'
        "</sheets></workbook>",
        "xl/_rels/workbook.xml.rels": f'<Relationships xmlns="{package}/relationships"><Relationship Id="r1" '
        f'Type="{office}/worksheet" Target="worksheets/sheet1.xml"/><Relationship Id="r2" Type="{office}/styles" '
        'Target="styles.xml"/></Relationships>',
        "xl/styles.xml": f'<styleSheet {main}><cellXfs count="3"><xf numFmtId="0"/><xf numFmtId="14"/>'
        '<xf numFmtId="22"/></cellXfs></styleSheet>',
        "xl/worksheets/sheet1.xml": f"<worksheet {main}><sheetData>{body}</sheetData></worksheet>",
    }
    sink = io.BytesIO()
    with zipfile.ZipFile(sink, "w") as archive:
        for name, text in parts.items():
            archive.writestr(name, '<?xml version="1.0" encoding="UTF-8"?>' + text)
    return sink.getvalue()


PROGRAMS: dict[str, Callable[[Rows], bytes]] = {
    "pandas": partial(_pandas, index=False), "pandas-with-index": _pandas,
    "pandas-semicolons": partial(_pandas, index=False, sep=";", decimal=","),
    "pandas-na": partial(_pandas, index=False, na_rep="NA"), "pandas-nan": partial(_pandas, na_rep="NaN"),
    "pandas-quotes": partial(_pandas, index=False, quoting=1),
    "pandas-parquet": lambda rows: frame(rows).to_parquet(), "polars": partial(_polars, write="write_csv"),
    "polars-quotes": partial(_polars, write="write_csv", quote_style="always"),
    "polars-null": partial(_polars, write="write_csv", null_value="null"),
    "polars-json-lines": partial(_polars, write="write_ndjson"),
    "polars-arrow": partial(_polars, write="write_ipc", compression="zstd"),
    "polars-arrow-stream": partial(_polars, write="write_ipc_stream"),
    "polars-parquet": partial(_polars, write="write_parquet"),
    "pyarrow-feather": partial(arrow, write=lambda table, sink: feather.write_feather(table, sink)),
    "pyarrow-stream": partial(arrow, write=stream), "pyarrow-parquet": partial(arrow, write=pq.write_table),
    "excel-workbook": _sheet, "json-lines": _json, "json-lines-gz": lambda rows: gzip.compress(_json(rows)),
}  # fmt: skip
"""What programs write that are there; all of it has the same types."""


def ways() -> dict[str, tuple[Callable[[Rows], bytes], Style]]:
    """Every way of writing with its name; of programs the style says nothing."""
    styles = {name: (style.write, style) for name, style in STYLES.items()}
    return styles | {name: (write, Style()) for name, write in PROGRAMS.items()}
