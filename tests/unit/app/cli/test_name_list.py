"""Lists of names on the command line."""

from __future__ import annotations

import pytest

from oubli.app.cli.erase import read_names
from oubli.app.errors import StartError


def read(text: str, by: str = "ids", column: str | None = None) -> list[str]:
    return list(read_names(text.splitlines(keepends=True), by, column, "list"))  # type: ignore[arg-type]


def test_a_name_a_line_is_a_list():
    assert read("a\nb\n\n007\n") == ["a", "b", "007"]
    assert read("a") == ["a"]
    assert read('"Doe, Ada"\r\nb\r\n') == ["Doe, Ada", "b"]


def test_a_header_names_the_column():
    assert read("who,id\nada,1\nbob,2\n") == ["1", "2"]
    assert read("who,id\nada,1\nbob,2\n", column="who") == ["ada", "bob"]
    assert read("subject\nada\n", "subjects") == ["ada"]
    assert read("subject\nsubject\nid\n", "subjects") == ["subject", "id"], "only the first line is a header"
    assert read("Who, ID\nada,1\n") == ["1"]


@pytest.mark.parametrize("first", ["email", "E-Mail", "subject", " user_id "])
def test_the_header_of_another_list_is_no_name(first: str):
    with pytest.raises(StartError, match=r"list, line 1: .*header.*--column.*'id'.*--subjects.*'subject'"):
        read(f"{first}\nada\n")
    assert read(f"{first}\nada\n", column=first) == ["ada"]
    assert read(f"ada\n{first.strip()}\n") == ["ada", first.strip()]


def test_the_first_line_of_a_csv_file_is_a_header():
    with pytest.raises(StartError, match="line 1: this is a header"):
        list(read_names(["kundennummer\n", "17\n"], "ids", None, "list.csv", has_header=True))
    assert list(read_names(["ID\n", "17\n"], "ids", None, "list.csv", has_header=True)) == ["17"]


@pytest.mark.parametrize(
    ("text", "column", "place", "rule"),
    [
        ("Doe, Ada\n", None, "list, line 1", "2 fields"),
        ("ada\nDoe, Ada\n", None, "list, line 2", "2 fields"),
        ("who\nada\n", "id", "list, line 1", "no field of the header is 'id'"),
        ("id,x\n1,2\n,3\n", None, "list, line 3, field 'id'", "empty"),
        ("x,id\n1,2\n3\n", None, "list, line 3, field 'id'", "empty"),
        ("a\n" + "b" * 257 + "\n", None, "list, line 2, field 'id'", "256 characters"),
        ('a\n"b\n', None, "list, line 2", "not CSV"),
    ],
)
def test_what_is_wrong_is_told_with_line_field_and_remedy(text: str, column: str | None, place: str, rule: str):
    with pytest.raises(StartError) as refused:
        read(text, column=column)
    assert str(refused.value).startswith(place)
    assert rule in str(refused.value)
    assert "bbb" not in str(refused.value)
