"""How a CSV file is written, found in its first part.

encoding     by a mark or by zero bytes, else UTF-8 if it is that, else what charset-normalizer finds
delimiter    the one that cuts the most records into as many fields as the header has
missing      words for a missing value among numbers, or without quotation marks among texts that have them
decimal      a comma when a number cannot be read otherwise
index        a first column without a name, different in each row, or one that the header does not name
"""

import codecs
import re
from collections import Counter
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from oubli.app.datasets.dialect import LoadError, Reading
from oubli.app.datasets.fields import MISSING_WORDS, AmbiguousDateError, numbers_of, text_array

HEAD_BYTES = 64 * 1024
_MOST_RECORDS = 500  # that a guess is made from
_NEVER_TEXT = ("NULL", "\\N", "<NA>", "#N/A")  # missing also where only texts stand


class Field(NamedTuple):
    """A field, and whether it stands in quotation marks."""

    text: str
    is_quoted: bool = False


class Record(NamedTuple):
    """The fields of a record, and where it ends in the text."""

    fields: list[Field]
    end: int


@dataclass(frozen=True, slots=True)
class Layout:
    """What the first part of a CSV file says of all of it.

    Attributes
    ----------
    reading
        How it is read.
    names
        Of the columns; None for those that hold no data: row names, and empty columns behind the last delimiter.
    mark, start
        Bytes of the mark of the encoding, and bytes before the first row.
    numbers
        Columns that hold plain numbers as far as is known.
    words
        Columns whose values repeat.
    has_breaks
        Whether a field has a line break within.
    """

    reading: Reading
    names: list[str | None]
    mark: int
    start: int
    numbers: frozenset[str] = frozenset()
    words: frozenset[str] = frozenset()
    has_breaks: bool = False


def decode_head(head: bytes, given: Mapping[str, Any], *, is_whole: bool) -> tuple[str, str, int]:
    """Return the first part of a file as text, its encoding, and the length of its mark.

    Raises
    ------
    UnicodeDecodeError
        When it is not of the encoding that is given.
    LoadError
        When no encoding fits; the text says only that.
    """
    encoding, mark = next(((name, len(bom)) for bom, name in _MARKS if head.startswith(bom)), ("", 0))
    if not encoding and len(head) > 1:
        pairs = len(head) // 2
        if head[1::2].count(0) > 0.5 * pairs or head[::2].count(0) > 0.5 * pairs:
            encoding = "utf-16-le" if head[1::2].count(0) > head[::2].count(0) else "utf-16-be"
    if "encoding" in given:
        name = given["encoding"].removesuffix("-sig")
        if not encoding.startswith(name):
            encoding, mark = name, 0
    elif not encoding:
        try:
            return _decoded(head, "utf-8", is_whole), "utf-8", 0
        except UnicodeDecodeError:
            encoding = guess_encoding(head)
    return _decoded(head[mark:], encoding, is_whole), encoding, mark


_MARKS = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF32_LE, "utf-32-le"),
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)


def _decoded(data: bytes, encoding: str, is_whole: bool) -> str:
    return codecs.getincrementaldecoder(encoding)().decode(data, final=is_whole)


def guess_encoding(data: bytes) -> str:
    """Return the encoding of a text that is not Unicode.

    Raises
    ------
    LoadError
        When none fits.
    """
    from charset_normalizer import from_bytes

    # Western texts first: of few letters several encodings make sense, and this is what Excel writes.
    for name in ("cp1252", ""):
        found = from_bytes(data, cp_isolation=[name] if name else None).best()
        if found is not None and (not name or found.chaos < _ODD):
            return codecs.lookup(found.encoding).name
    raise LoadError("is text in no encoding that is known: say which with --read encoding=NAME")


_ODD = 0.05


def split(text: str, reading: Reading, *, is_whole: bool, most: int = _MOST_RECORDS) -> list[Record]:
    """Return the first records of a text; blank lines are passed over, and one that may go on is left out."""
    quote, delimiter = re.escape(reading.quote or "\x00"), re.escape(reading.delimiter)
    escape = re.escape(reading.escape) if reading.escape else ""
    escaped = rf"|{escape}(?:.|\Z)" if escape else ""
    inner, outer = rf"(?:[^{quote}{escape}]|{quote}{quote}{escaped})*", rf"(?:[^{delimiter}\r\n{escape}]{escaped})*"
    end = rf"({delimiter}|\r\n|\r|\n|\Z)"
    records: list[Record] = []
    fields: list[Field] = []
    for found in re.finditer(rf"(?:{quote}({inner}){quote}|({outer})){end}", text, re.DOTALL):
        inside, plain, behind = found.groups()
        is_open = reading.quote and inside is None and plain.startswith(reading.quote)
        if not is_whole and (not behind or (is_open and text.find(reading.quote, found.start() + 1) < 0)):
            break  # it may go on behind this part
        value = plain if inside is None else inside.replace(reading.quote * 2, reading.quote)
        if escape:
            value = re.sub(rf"{escape}(.)", r"\1", value, flags=re.DOTALL)
        fields.append(Field(value, inside is not None))
        if behind == reading.delimiter:
            continue
        if len(fields) > 1 or fields[0].text or fields[0].is_quoted:
            records.append(Record(fields, found.end()))
        if len(records) == most:
            break
        fields = []
    return records


def find_layout(
    head: bytes, given: Mapping[str, Any], *, is_whole: bool, least: int = 2, categorical: Container[str] = ()
) -> Layout | None:
    """Find out how a CSV file is written; None: its first part holds fewer records than `least`.

    `categorical`: columns that hold no numbers, whatever they look like.

    Raises
    ------
    LoadError
        When it cannot be read; the text is a rule, without the file.
    """
    text, encoding, mark = decode_head(head, given, is_whole=is_whole)
    reading = replace(Reading(given=frozenset(given), **given), encoding=encoding)
    begin = _lines_end(text, reading.skip)
    separator = re.match(r'"?sep=(.)"?\r?\n', text[begin:])
    if separator is not None:  # what Excel reads
        begin += separator.end()
        reading = replace(reading, skip=reading.skip + 1, delimiter=given.get("delimiter", separator[1]))
    elif "delimiter" not in given:
        reading = replace(reading, delimiter=_delimiter_of(text[begin:], reading, is_whole=is_whole))
    records = split(text[begin:], reading, is_whole=is_whole)
    if len(records) < least and not is_whole:
        return None
    first = [one.text for one in records[0].fields] if records else []
    if reading.header == "no":
        rows, names = records, [f"column{number}" for number in range(1, len(first) + 1)]
        end = 0
    else:
        rows, names = records[1:], list(first)
        end = records[0].end if records else 0
    kept, reading = _without_index(names, rows, reading)
    columns = {
        name: [row.fields[place] for row in rows if len(row.fields) == len(kept)]
        for place, name in enumerate(kept)
        if name
    }
    reading = _find_notation(columns, reading, categorical)
    if reading.header == "yes" and "header" not in given:
        _require_names(columns, reading)
    start = mark + len(text[: begin + end].encode(encoding))
    numbers = {name for name, fields in columns.items() if _are_numbers(fields, reading)}
    words = {
        name for name, fields in columns.items() if name not in numbers and len(set(fields)) <= 0.5 * len(fields) + 1
    }
    has_breaks = any(set("\r\n").intersection(one.text) for record in records for one in record.fields)
    return Layout(reading, kept, mark, start, frozenset(numbers), frozenset(words), has_breaks)


def _lines_end(text: str, n_lines: int) -> int:
    place = 0
    for _ in range(n_lines):
        found = re.compile(r"\r\n|\n|\r").search(text, place)
        place = len(text) if found is None else found.end()
    return place


_SHOWN_RECORDS = 60  # tell the delimiter


def _delimiter_of(text: str, reading: Reading, *, is_whole: bool) -> str:
    """Return the delimiter by which most records have as many fields as the header."""
    best, chosen = (0.0, 0), ","
    for delimiter in (one for one in "\t;|, " if one in text):
        records = split(text, replace(reading, delimiter=delimiter), is_whole=is_whole, most=_SHOWN_RECORDS)
        width = len(records[0].fields) if records else 0
        if width < 2:
            continue
        widths = Counter(len(record.fields) for record in records[1:])
        share = widths[width] / max(1, len(records) - 1)
        if set(widths) == {width + 1}:  # with row names, or a delimiter at the end
            share = 1.0
        if delimiter == " " and (share < 1 or chosen != "," or best[1]):
            continue
        if (share, width) > best:
            best, chosen = (share, width), delimiter
    return chosen


def _without_index(names: Sequence[str], rows: Sequence[Record], reading: Reading) -> tuple[list[str | None], Reading]:
    """Return the names of columns, None for row names and for empty columns behind the last delimiter."""
    kept: list[str | None] = [*names]
    if rows and {len(row.fields) for row in rows} == {len(names) + 1}:
        ends_empty = not any(row.fields[-1].text for row in rows)
        kept = [*names, ""] if ends_empty else ["", *names]
    whole = [row.fields for row in rows if len(row.fields) == len(kept)]
    n_named = len(kept)
    while n_named > 1 and not kept[n_named - 1] and not any(row[n_named - 1].text for row in whole):
        n_named -= 1
    kept[n_named:] = [None] * (len(kept) - n_named)
    first = [row[0].text for row in whole]
    counted = [str(number) for number in range(len(first))]
    looks_so = (kept[:1] == [""] and len(set(first)) == len(first)) or (kept[:1] == ["Unnamed: 0"] and first == counted)
    if "index" not in reading.given and first and looks_so:
        reading = replace(reading, index="yes")
    if reading.index == "yes":
        kept[:1] = [None]
    return kept, reading


# --- how values are written

_PLAIN = r"[+-]?(?:\d+{0}?\d*|{0}\d+)(?:[eE][+-]?\d+)?|nan|NaN|NAN"
_SIGNS = r"[+-]?[^\w.,'\u2019+-]{0,2}[A-Z]{0,3}\s?"  # before a number, behind which there may be a percent sign
_NUMBER = re.compile(rf"{_SIGNS}(\d[\d.,'\u2019\s]*|[.,]\d+)\s?[%‰€$£¥A-Z]{{0,3}}")
_GROUPS = r"\d{{1,3}}(?:{0}\d{{3}})+"
_SAYS = {
    "comma": re.compile(rf"{_GROUPS.format('[.]')}(?:,\d+|[.]\d{{3}})|\d*,(?:\d\d?|\d{{4,}})?|\d{{4,}},\d+|0,\d+"),
    "point": re.compile(rf"{_GROUPS.format(',')}(?:[.]\d+|,\d{{3}})|\d*[.](?:\d\d?|\d{{4,}})?|\d{{4,}}[.]\d+|0[.]\d+"),
    "comma or thousands": re.compile(r"\d{1,3},\d{3}"),
    "point or thousands": re.compile(r"\d{1,3}[.]\d{3}"),
    "nothing": re.compile(r"\d+"),
}
"""What a number without spaces and apostrophes says of the decimal mark; what is none of these is no number."""


def _are_numbers(fields: Sequence[Field], reading: Reading) -> bool:
    form = re.compile(_PLAIN.replace("{0}", re.escape(reading.decimal)))
    known = {one.text.strip() for one in fields if one.text and one.text not in reading.missing}
    return bool(known) and all(map(form.fullmatch, known))


def _find_notation(columns: Mapping[str, Sequence[Field]], reading: Reading, categorical: Container[str]) -> Reading:
    """Find the words for missing values, and how numbers are written."""
    known = frozenset(MISSING_WORDS)
    values = {name: [one for one in fields if one.text and one.text not in known] for name, fields in columns.items()}
    if "decimal" not in reading.given:
        reading = replace(reading, decimal=_decimal_of(list(values.values()), reading))
    missing: set[str] = set()
    texts: list[Field] = []
    for name, fields in columns.items():
        words = {one.text for one in fields if one.text in known}
        distinct = text_array(sorted({one.text for one in values[name]}))
        try:
            is_number = bool(len(distinct)) and name not in categorical and numbers_of(distinct, reading) is not None
        except AmbiguousDateError:
            is_number = True
        if is_number:
            missing |= words
        else:
            missing |= words.intersection(_NEVER_TEXT)
            texts += values[name]
    if "missing" in reading.given:
        return reading
    quoted = reading.quoted
    if texts and all(one.is_quoted for one in texts):
        # A word without quotation marks among texts that have them is none.
        found = {one.text for fields in columns.values() for one in fields if one.text in known and not one.is_quoted}
        missing |= found
        if found and "quoted" not in reading.given:
            quoted = "text"
    missing -= set() if texts else {"nan", "NaN"}  # numbers read them anyway
    return replace(reading, missing=tuple(sorted(missing)), quoted=quoted)


def _decimal_of(columns: Sequence[Sequence[Field]], reading: Reading) -> str:
    """Return the decimal mark of a file, by the columns that hold numbers only."""
    votes: Counter[str] = Counter()
    for fields in columns:
        found = [_NUMBER.fullmatch(text.strip()) for text in {one.text for one in fields}]
        bodies = [re.sub(r"['\u2019\s]", "", match[1]) for match in found if match is not None]
        said = [next((what for what, form in _SAYS.items() if form.fullmatch(body)), None) for body in bodies]
        if len(said) == len(found) and None not in said:
            votes.update(filter(None, said))
    if votes["comma"] != votes["point"]:
        return "," if votes["comma"] > votes["point"] else "."
    # Three digits behind a mark say nothing; where semicolons stand between fields, a comma is a decimal one.
    return "," if reading.delimiter == ";" and not votes["point"] + votes["point or thousands"] else "."


def _require_names(columns: Mapping[str, Sequence[Field]], reading: Reading) -> None:
    """Refuse a file whose first line holds values."""
    over = [name for name, fields in columns.items() if _are_numbers(fields, reading)]
    odd = [name for name in over if _are_numbers([Field(name)], reading)]
    counted = [str(number) for number in range(len(over))]
    is_named = all(name.isdigit() and (1800 <= int(name) <= 2200) for name in odd) or odd[: len(counted)] == counted
    if odd and not is_named:
        raise LoadError(
            "has values in its first line, where names of columns are expected: add a line with names, or say --read "
            "header=no, which names them column1, column2 and so on (header=yes: these are names)"
        )
