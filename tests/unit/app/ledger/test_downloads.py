"""What is wrong with a downloaded file is said with its line."""

from pathlib import Path

import pytest

from oubli.app.errors import StartError
from oubli.app.ledger.downloads import read_lines, read_object
from tests.unit.app.ledger.support import make_ledger


def test_the_line_that_is_not_json_is_named(tmp_path: Path) -> None:
    path = tmp_path / "ledger.jsonl"
    path.write_text('{"index": 1}\n\n{"index": 2}\nno JSON\n')
    with pytest.raises(StartError, match=r"line 4 is not JSON"):
        list(read_lines(path))


def test_an_object_begins_in_the_first_line(tmp_path: Path) -> None:
    path = tmp_path / "receipt.json"
    path.write_text('{"id": \n')
    with pytest.raises(StartError, match=r"line 1 is not JSON"):
        read_object(path)


def test_a_first_line_that_is_no_entry_is_entry_1(tmp_path: Path) -> None:
    path = tmp_path / "ledger.jsonl"
    path.write_text('{"index": 1}\n')
    ledger = make_ledger(None)
    with pytest.raises(StartError, match=r"\b1\b.*is no entry"):
        ledger.store.adopt(path)
