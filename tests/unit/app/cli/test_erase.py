"""Report and journal of erasures in bulk: whatever a killed process leaves, the next one continues with it."""

import hashlib
import json
from dataclasses import replace
from pathlib import Path

import orjson
import pytest

from oubli.app.cli.erase import Report, Task, read_names
from oubli.app.errors import StartError
from oubli.client import ListedDeletion, NothingErased

TASK = Task("http://127.0.0.1:1", "ids", None, 3)


def nothing() -> NothingErased:
    content = {"id": None, "ref": None, "kind": "deletion", "guarantee": "exact", "by": "ids", "unlearned": 0}
    return NothingErased.model_validate({**content, "requested": 3, "absent": 3, "model_version": 1})


def found(*positions: int) -> ListedDeletion:
    return ListedDeletion(nothing(), dict.fromkeys(positions, 2))


def write(path: Path, n_batches: int, *, done: bool = False) -> None:
    digest = hashlib.sha256()
    with Report(path, TASK) as report:
        for i in range(n_batches):
            names = [f"{i}-{j}" for j in range(3)]
            digest.update(orjson.dumps(names))
            report.add(names, found(1), digest.hexdigest())
        if done:
            report.end()


def test_a_report_goes_on_behind_what_the_journal_has_seen(tmp_path: Path):
    path = tmp_path / "report.csv"
    write(path, 2)
    whole = path.read_bytes()
    journal = path.with_name("report.csv.journal")
    assert [one.stat().st_mode & 0o777 for one in (path, journal)] == [0o600, 0o600]
    path.write_bytes(whole + b"2-0,true,1,,\n2-")
    journal.write_bytes(journal.read_bytes() + b'{"batches": 3')
    with Report(path, TASK) as report:
        assert report.is_begun
        assert (report.progress.batches, report.progress.held, report.progress.samples) == (2, 2, 4)
        assert (report.key_of_next(), path.read_bytes()) == (f"{report.task.run}-2", whole)
    first = json.loads(journal.read_text().splitlines()[0])
    with Report(path, replace(TASK, batch_size=50)) as report:
        assert report.task.run == first["run"]
        assert report.task.batch_size == 3, "batches keep their size: their keys depend on it"


def test_a_process_that_was_killed_before_its_first_batch_begins_again(tmp_path: Path):
    for n_bytes in (0, 1, 20):
        path = tmp_path / f"report-{n_bytes}.csv"
        write(path, 0)
        journal = path.with_name(f"{path.name}.journal")
        journal.write_bytes(journal.read_bytes()[:n_bytes])
        path.write_bytes(b"id,he")
        write(path, 1)
        assert len(path.read_text().splitlines()) == 4


def test_another_run_and_another_process_are_refused(tmp_path: Path):
    path = tmp_path / "report.csv"
    write(path, 1)
    with Report(path, TASK), pytest.raises(StartError, match="another process"):
        Report(path, TASK)
    before = path.read_bytes()
    for name in ("url", "by", "ref"):
        with pytest.raises(StartError, match=f"another {name}"):
            Report(path, replace(TASK, **{name: "subjects"}))  # type: ignore[arg-type]
        assert path.read_bytes() == before


def test_files_that_are_no_report_are_left_alone(tmp_path: Path):
    path = tmp_path / "report.csv"

    def refused(words: str, changed: Path, text: str) -> None:
        changed.write_text(text)
        with pytest.raises(StartError, match=words):
            Report(path, TASK)
        assert changed.read_text() == text

    refused("no journal beside it", path, "mine")
    path.unlink()
    write(path, 1)
    refused("shorter", path, "short")
    refused("no journal of erasures", path.with_name("report.csv.journal"), "no journal\n")


# --- lists of names


def read(text: str, by: str = "ids", column: str | None = None) -> list[str]:
    return list(read_names(text.splitlines(keepends=True), by, column, "list"))  # type: ignore[arg-type]


def test_a_name_a_line_is_a_list_and_a_header_names_the_column():
    for text, by, column, names in (
        *(("a\nb\n\n007", "ids", None, "a|b|007"), ('"Doe, Ada"\r\nb\r\n', "ids", None, "Doe, Ada|b")),
        *(("who,id\nada,1\nbob,2\n", "ids", None, "1|2"), ("who,id\nada,1\nbob,2\n", "ids", "who", "ada|bob")),
        *(("subject\nada\n", "subjects", None, "ada"), ("Who, ID\nada,1\n", "ids", None, "1")),
        ("subject\nsubject\nid\n", "subjects", None, "subject|id"),  # only the first line is a header
    ):
        assert read(text, by, column) == names.split("|")


def test_the_header_of_another_list_is_no_name():
    for first in ("email", "E-Mail", "subject", " user_id "):
        with pytest.raises(StartError, match=r"list, line 1: .*header.*--column.*'id'.*--subjects.*'subject'"):
            read(f"{first}\nada\n")
        assert read(f"{first}\nada\n", column=first) == ["ada"]
        assert read(f"ada\n{first.strip()}\n") == ["ada", first.strip()]
        with pytest.raises(StartError, match="line 1: this is a header"):  # whatever the first line of a CSV file is
            list(read_names(["kundennummer\n", "17\n"], "ids", None, "list.csv", has_header=True))


def test_what_is_wrong_is_told_with_line_field_and_remedy():
    for text, column, place, rule in (
        ("Doe, Ada\n", None, "list, line 1", "2 fields"),
        ("ada\nDoe, Ada\n", None, "list, line 2", "2 fields"),
        ("who\nada\n", "id", "list, line 1", "no field of the header is 'id'"),
        ("id,x\n1,2\n,3\n", None, "list, line 3, field 'id'", "empty"),
        ("x,id\n1,2\n3\n", None, "list, line 3, field 'id'", "empty"),
        ("a\n" + "b" * 257 + "\n", None, "list, line 2, field 'id'", "256 characters"),
        ('a\n"b\n', None, "list, line 2", "not CSV"),
    ):
        with pytest.raises(StartError, match=rule) as refused:
            read(text, column=column)
        assert str(refused.value).startswith(place)
        assert "bbb" not in str(refused.value)
