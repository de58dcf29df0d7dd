"""Blocks of a stream depend on its bytes, not on the pieces in which they come; so does what is wrong with it."""

import csv
import io
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from itertools import pairwise

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from oubli.app.datasets import blocks
from oubli.app.datasets.blocks import ArrowBlocks, Blocks, StreamError, TextBlocks, line_end
from oubli.app.datasets.streams import ArrowTables, CsvTables, names_checker
from oubli.core.data.schema import Column, ColumnType, LabelType, Schema, Task
from tests.unit.app.datasets.writing import arrow, stream

MOST = 2000
AB = Schema(tuple(Column(name, ColumnType.CATEGORICAL) for name in "ab"), Task.REGRESSION, LabelType.NUMBER)


@pytest.fixture(autouse=True, scope="module")
def _small_blocks() -> object:
    before, blocks.BLOCK_BYTES = blocks.BLOCK_BYTES, 64
    yield
    blocks.BLOCK_BYTES = before


def cut(new: Callable[[], Blocks], data: bytes, places: list[int]) -> tuple[list[bytes], str]:
    """The blocks of a stream that comes in pieces, and what is wrong with it in the end."""
    cutter, found = new(), []
    borders = sorted({0, len(data), *(place % (len(data) + 1) for place in places)})
    try:
        for start, end in pairwise(borders):
            found += cutter.feed(data[start:end])
        found += cutter.end()
    except StreamError as error:
        return found, error.rule
    return found, ""


TEXTS = pa.array([f"t{i % 3}" for i in range(30)]).dictionary_encode()
ARROW = arrow({"a": list(range(30)), "b": TEXTS}, partial(stream, max_chunksize=7))
pieces = st.lists(st.integers(0, 5000), max_size=12)
fields = st.text(st.sampled_from('ab,"\n\r é'), max_size=40)


@given(st.lists(st.lists(fields, min_size=2, max_size=2), max_size=30), pieces)
def test_any_split_of_csv_gives_the_same_blocks_of_whole_records(rows: list[list[str]], places: list[int]) -> None:
    text = io.StringIO(newline="")
    csv.writer(text, lineterminator="\n").writerows(rows)
    data = text.getvalue().encode()
    found, wrong = cut(lambda: TextBlocks(MOST, quoted=True), data, places)
    assert ((found, wrong), b"".join(found)) == (cut(lambda: TextBlocks(MOST, quoted=True), data, []), data)
    read = [row for block in found for row in csv.reader(io.StringIO(block.decode(), newline=""))]
    assert read == list(csv.reader(io.StringIO(text.getvalue(), newline="")))
    assert all(len(block) >= 64 for block in found[:-1])


@given(st.binary(max_size=600) | st.text(st.sampled_from('a"\n,'), max_size=600).map(str.encode), pieces)
def test_any_split_of_any_bytes_gives_the_same(data: bytes, places: list[int]) -> None:
    for new in (*(partial(TextBlocks, 100, quoted=quoted) for quoted in (True, False)), partial(ArrowBlocks, 100)):
        whole, wrong = cut(new, data, [])
        found, other = cut(new, data, places)
        assert (found, bool(other)) == (whole, bool(wrong))


@given(pieces)
def test_any_split_of_an_arrow_stream_gives_the_same_batches(places: list[int]) -> None:
    found, wrong = cut(lambda: ArrowBlocks(MOST), ARROW, places)
    assert (len(found), wrong, (found, wrong)) == (5, "", cut(lambda: ArrowBlocks(MOST), ARROW, []))
    tables = ArrowTables(names_checker(AB), MOST)
    rows = [table.to_pylist() for block in found for _, table in tables.read(block)]
    assert [row for some in rows for row in some] == [{"a": i, "b": f"t{i % 3}"} for i in range(30)]


@given(st.binary(min_size=1, max_size=4), st.integers(0, len(ARROW) - 1), pieces)
def test_a_damaged_arrow_stream_is_refused_or_read_in_any_split(damage: bytes, place: int, places: list[int]) -> None:
    data = ARROW[:place] + damage + ARROW[place + len(damage) :]
    whole, wrong = cut(lambda: ArrowBlocks(MOST), data, [])
    assert (whole, wrong) == cut(lambda: ArrowBlocks(MOST), data, places)
    tables = ArrowTables(names_checker(AB), MOST)
    for block in whole:
        try:
            list(tables.read(block))
        except StreamError:
            break


def test_a_stream_keeps_no_more_than_a_block_and_a_record() -> None:
    for cutter, data in ((TextBlocks(100, quoted=False), b"x" * 200), (ArrowBlocks(100), ARROW)):
        with pytest.raises(StreamError, match="more than 100 bytes"):
            list(cutter.feed(data))
    many = TextBlocks(100, quoted=False)
    assert sum(len(block) for _ in range(100) for block in many.feed(b"x" * 9 + b"\n")) == 980


def test_dictionaries_count_as_long_as_they_are_kept() -> None:
    table = pa.table({"b": pa.array([f"{i:050}" for i in range(30)]).dictionary_encode()})
    sink = io.BytesIO()
    options = pa.ipc.IpcWriteOptions(emit_dictionary_deltas=True)
    with pa.ipc.new_stream(sink, table.schema, options=options) as writer:
        for n in range(5, 31, 5):
            texts = pa.array([f"{i:050}" for i in range(n)])
            values = pa.DictionaryArray.from_arrays(pa.array(range(n), pa.int32()), texts)
            writer.write_batch(pa.RecordBatch.from_arrays([values], names=["b"]))
    cutter = ArrowBlocks(10_000)
    assert len(list(cutter.feed(sink.getvalue()))) == 6
    assert cutter.has_dictionaries
    with pytest.raises(StreamError, match="more than"):
        list(ArrowBlocks(1500).feed(sink.getvalue()))


@given(st.text(st.sampled_from('a"\n'), max_size=60), st.integers(0, 60), st.booleans())
def test_the_end_of_a_line_is_found_as_by_looking_at_each_sign(text: str, start: int, is_within: bool) -> None:
    within, expected = is_within, 0
    for place, sign in enumerate(text):
        within ^= sign == '"'
        if sign == "\n" and not within and place >= start:
            expected = place + 1
            break
    assert line_end(text.encode(), start, is_within=is_within) == expected


def test_a_csv_block_is_read_as_rfc_4180_says_or_not_at_all() -> None:
    for body, expected in (
        *((b'"x ""y"", z",1\n', 'x "y", z'), (b'"two\nlines",1\n', "two\nlines")),
        *((b'"",1\n', None), (b'"""",1\n', '"'), (b"N/A,1\n", "N/A")),
    ):
        tables = CsvTables(names_checker(AB), MOST)
        ((first, table),) = tables.read(b"a,b\n" + body)
        assert (first, table["a"].to_pylist()) == (0, [expected])
    for body in (b'x"y,1\n', b'"x"y,1\n', b'x,"1"2\n', b'""x,1\n', b'"x" ,1\n'):
        with pytest.raises(StreamError, match="quotation mark"):
            list(CsvTables(names_checker(AB), MOST).read(b"a,b\n" + body))


def test_a_header_has_the_columns_of_the_schema_or_what_its_rules_allow() -> None:
    strict = names_checker(AB, ["y"], ["id"])
    assert strict(["id", "y", "b", "a"]) == ["id", "y", "b", "a"]
    lax = names_checker(replace(AB, extra_columns="ignore", missing_columns="missing"), ["y"], ["id"])
    assert lax(["x", "b", "y", "z"]) == ["b", "y"]
    income = names_checker(Schema((Column("income", ColumnType.NUMERIC),), Task.REGRESSION, LabelType.NUMBER))
    for check, names, rule in (
        *((strict, names, "missing") for names in (["id", "y", "b"], ["a", "b"])),
        (strict, ["a", "b", "y", "c"], "column 4"),
        (strict, ["a", "b", "y", "a"], "column 4 has the name of column 1"),
        (lax, ["a", "b"], "is missing"),
        (lax, ["x", "y", "x"], "column 3 has the name of column 1"),
        (income, ["income", "incomes"], r"column 2 .* not known \(the nearest that it has is 'income'\)"),
        (income, ["income", "incomes" * 1000], "column 2 has a name that is not known: GET"),
    ):
        with pytest.raises(StreamError, match=rule):
            check(names)
