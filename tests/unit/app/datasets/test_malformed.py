"""Files that cannot be understood: each is refused with where, the rule and what to do, and without its values."""

import bz2
import gzip
import lzma
from contextlib import suppress
from functools import partial
from typing import Any

import numpy as np
import pytest
from pyarrow import feather

from oubli.app.datasets.loading import LoadError
from tests.unit.app.datasets.support import load, refusal
from tests.unit.app.datasets.writing import STYLES, arrow, parquet, people, stream, zstd

LONG = b"a,y\n" + b"1,p\n" * 1000
STREAM = arrow({"a": [1.0] * 1000, "y": ["p"] * 1000}, stream)
CANARY = "canary"
SAY = "save the file as UTF-8, or say what it is with --read encoding=NAME"


GZIP = gzip.compress(LONG, mtime=0)
CUT = [packed[:-20] for packed in (GZIP, bz2.compress(LONG), zstd(LONG * 100), lzma.compress(LONG))]
DAMAGED = [*CUT, GZIP[:30] + b"\0" * 30]
ARROW = (STREAM[:-300], b"ARROW1\0\0" + bytes(100), b"FEA1" + bytes(100))
READ = {
    "separator=;": "takes KEY=VALUE, and KEY is one of format, encoding",
    "delimiter=;;": "delimiter must be one character",
    "delimiter=none": "delimiter must be one character, or a word: tab, space",
    **dict.fromkeys(("encoding=klingon", "encoding=rot13"), "encoding must be an encoding that Python knows"),
    "decimal=x": "decimal must be one of",
    "skip=two": "skip must be a number of lines",
}
MALFORMED: list[tuple[str | bytes, dict[str, Any], str]] = [
    *((content, {}, "is empty: it needs a header line") for content in ("", "\n\n", "\ufeff")),
    *((content, {}, "holds a header but no rows") for content in ("a,y\n", "a;b;y\r\n")),
    ("a,b,a,y\n1,2,3,p\n", {}, "names 'a' more than once, as columns 1 and 3: rename or remove one"),
    ("a,,y\n1,2,p\n3,4,q\n", {}, "column 2 has no name: give it one"),
    (",a,y\n1,2,p\n1,4,q\n", {}, "column 1 has no name: give it one"),
    ("a,y,\n1,p,\n3,q,canary\n", {}, "column 3 has no name"),
    ("a,y,\n" + "1,p,\n" * 20_000 + "3,q,canary\n", {}, "column 3 has values and no name"),
    ("1,2,p\n3,4,q\n", {}, "has values in its first line"),
    ("5.1,3.5,setosa\n4.9,3.0,other\n", {}, "or say --read header=no, which names them column1, column2"),
    ("a,y\n1,p\ncanary,2,q\n3,q\n", {}, "line 3: has 3 fields where the header has 2"),
    ('a,y\n1,p\n"canary,q\n', {}, "cannot be read as CSV|line 3: has 1 fields"),
    ('a,b,y\n"1\n\n2",x,p\n3,canary\n', {}, "line 5: has 2 fields where the header has 3"),
    ("sep=;\na;y\n1;p\n2\n", {}, "line 4: has 1 fields where the header has 2"),
    (b"a,y\n\x81\x8d,p\n2,q\n" + b"\x00\xff" * 50, {}, "encoding=NAME|encoding that is known"),
    (b"a,y\n" + b"1,p\n" * 30_000 + b"\xe9,q\n", {"read": ("encoding=ascii",)}, "line 30002: is not ASCII text: save"),
    (("a,y\n" + "1,p\n" * 30_000).encode("utf-16-le") + b"1", {"read": ("encoding=utf-16-le",)}, "not UTF-16-LE text"),
    ("ä,y\n1,p\n".encode() + b"1,p\n" * 30_000 + b"\xe9,q\n", {"target": "y"}, f"line 30003: is not UTF-8 text: {SAY}"),
    *((content, {}, "is compressed and cut short or damaged") for content in DAMAGED),
    (parquet(a=[1.0, 2.0], y=["p", "q"])[:-30], {}, "begins like a Parquet file but cannot be read as one"),
    *((content, {}, "begins like an Arrow file but cannot be read as one") for content in ARROW),
    ('[{"a": 1, "y": "p"}]', {}, "is a JSON array: write JSON lines"),
    ('{"a": 1, "y": "p"}\n{"a": canary\n', {}, "line 2: is not a JSON object"),
    ('{"a": 1, "y": "p"}\n\n[1, 2]\n', {}, "line 3: is not a JSON object"),
    ('{"a": 1, "y": "p"}\n{"a": "canary", "y": "q"}\n', {}, "line 2, column 'a': is a text where lines above have a"),
    (b'{"a": "\xe9", "y": "p"}\n', {}, f"line 1: is not UTF-8 text: {SAY}"),
    (b'{"\x86": 1, "y": "p"}\n', {}, "line 1: is not UTF-8 text"),
    (b'{"a": 1, "y": "p"}\n{"a": "\xe9"}', {"read": ("encoding=ascii",)}, "line 2: is not ASCII text"),
    (b"a,y\n1,p\n", {"read": ("encoding=utf-16",)}, f"data.csv is not UTF-16 text: {SAY}"),
    ("a,\0b,y,\n1,2,p,\n3,4,q,r\n", {}, "column 4 has no name"),
    ('{"a": {"b": 1}, "y": "p"}\n{"a": {"b": 2}, "y": "q"}\n', {}, "column 'a': holds struct"),
    ('{"a": 1, "y": "p"}\n{"a": 2}\n', {}, "line 2, column 'y': the label is missing"),
    ("d,y\n01/02/2024,p\n03/04/2024,q\n", {}, "column 'd': holds dates whose day and month cannot be told apart"),
    ("a;y\n1,5;1,5\n2,5;canary\n", {"task": "regression"}, "line 3, column 'y': regression needs a number"),
    ("a,y\n1,p\n9007199254740993,q\n", {}, "line 3, column 'a': the integer has more digits"),
    ("a,y\n1,p\n1e999,q\n", {}, "line 3, column 'a': is too large for a 64-bit float"),
    ("a,y\n" + "".join(f"{i},c{i}\n" for i in range(1001)), {}, "has 1,001 different labels, and a model"),
    *(("a,y\n1,p\n2,q\n", {"read": (option,)}, f"--read {rule}") for option, rule in READ.items()),
    ("a,y\n1,p\n2,q\n", {"target": "income"}, "no column 'income', which --target names. It has 'a', 'y': choose"),
    ("y\np\n", {}, "no column left to learn from"),
    ("a,y\n1,1\n2,nan\n", {}, "line 3, column 'y': the label must be a finite number"),
    ("a,y\n1,p\ninf,q\n", {}, "line 3, column 'a': must be a finite number: remove the infinity"),
    ("a,y\n1,1.5\n2,-1e999\n", {}, "line 3, column 'y': is too large for a 64-bit float"),
    ("a,y\n1.5,p\n123456789012345678901,q\n", {}, "line 3, column 'a': the integer has more digits"),
    ('a,y\n1,p\n"x\ny",q\n\nz,\n', {}, "line 6, column 'y': the label is missing"),
    ("a,y\n1,p\n2,q\n", {"id_column": "key"}, "no column 'key', which --id names"),
    *(("a,y\n1,p\n2,q\n", {flag: ("b",)}, f"no column 'b', which --{flag} names") for flag in ("drop", "categorical")),
    ("a,b,y\n1,1,p\n1,2,q\n", {"id_column": "a"}, "line 3, column 'a': the id is also in row 1"),
    ("a,b,y\n1,1,p\n,2,q\n", {"id_column": "a"}, "line 3, column 'a': the id is missing"),
    (f"a,b,y\n{CANARY * 50},1,p\n", {"id_column": "a"}, "longer than 256"),
    (b"PK\x03\x04", {}, "is a zip archive or a"),
]


@pytest.mark.parametrize(("content", "flags", "part"), MALFORMED, ids=range(len(MALFORMED)))
def test_a_malformed_file_is_refused(content: str | bytes, flags: dict[str, Any], part: str) -> None:
    text = refusal(content, **flags)
    assert any(one in text for one in part.split("|")), text
    assert CANARY not in text
    assert "data.csv" in text or text.startswith("--read")


def test_a_file_that_is_cut_off_anywhere_is_read_or_refused() -> None:
    """Whatever is left of a file, nothing but a `LoadError` comes out."""
    for name in ("excel-unicode-text", "r-write-csv", "excel-german", "duckdb-gz"):
        data = STYLES[name].write(people(3, 6))
        for end in range(0, len(data), 17):
            with suppress(LoadError):
                assert len(load(data[:end])) > 0


@pytest.mark.parametrize("write", [stream, partial(feather.write_feather, compression="uncompressed")])
def test_an_arrow_file_whose_texts_lie_elsewhere_is_refused(write: Any) -> None:
    """Where texts begin is what the file says: beyond its end is the memory of others."""
    content = arrow({"a": ["x" * 50, "b" * 60] * 100, "y": ["p", "q"] * 100}, write)
    offsets = np.array([0, 50, 110, 160], np.int32).tobytes()
    assert content.count(offsets) == 1
    elsewhere = np.array([0, 2**30, 2**30, 2**31 - 1], np.int32).tobytes()
    assert "cannot be read as one" in refusal(content.replace(offsets, elsewhere))
