"""`oubli ledger fetch` and `export`: files that are complete, or not there."""

from __future__ import annotations

from pathlib import Path

import orjson
import pytest
from typer.testing import CliRunner

from oubli.app.cli.main import cli
from oubli.app.errors import StartError
from oubli.app.ledger.database import LedgerDatabase
from oubli.app.ledger.keys import LedgerKeys
from tests.unit.app.hosted import hosted
from tests.unit.app.support import forest, make_service


def run(*arguments: object) -> None:
    result = CliRunner().invoke(cli, [str(argument) for argument in arguments])
    if isinstance(result.exception, StartError):
        raise result.exception
    assert result.exit_code == 0, (result.stdout, result.exception)


def test_both_write_all_entries_and_the_signed_end(tmp_path):
    data, fetched, exported = tmp_path / "data", tmp_path / "fetched.jsonl", tmp_path / "exported.jsonl"
    with hosted(make_service(forest(60), data)) as host:
        for i in range(130):  # more than a page
            assert host.ask("DELETE", f"/samples/{'c' if i < 5 else 'n'}{i}")[0] == 200
        run("ledger", "fetch", fetched, "--url", f"http://127.0.0.1:{host.port}")
        with pytest.raises(StartError, match="in use"):
            run("ledger", "export", exported, "--data-dir", data)
        assert not exported.exists()
        with pytest.raises(StartError, match="--force"):
            run("ledger", "fetch", fetched, "--url", f"http://127.0.0.1:{host.port}")
    assert len(fetched.read_bytes().splitlines()) > 1
    run("ledger", "export", exported, "--data-dir", data)
    files = [[orjson.loads(line) for line in path.read_bytes().splitlines()] for path in (fetched, exported)]
    early, late = ([entry for page in pages for entry in page["entries"]] for pages in files)
    assert late[: len(early)] == early
    for path, entries in ((fetched, early), (exported, late)):
        store = LedgerDatabase(None, LedgerKeys(None))
        assert store.adopt(path) == len(entries)
        store.close()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["data", "exported.jsonl", "fetched.jsonl"]


def test_an_end_that_is_not_signed_leaves_no_file(tmp_path, monkeypatch):
    with hosted(make_service(forest(60), tmp_path / "data")) as host:
        page = LedgerDatabase.page
        monkeypatch.setattr(
            LedgerDatabase, "page", lambda self, after, limit, **_: page(self, after, limit, signs=False)
        )
        with pytest.raises(StartError, match="not signed"):
            run("ledger", "fetch", tmp_path / "ledger.jsonl", "--url", f"http://127.0.0.1:{host.port}")
    assert [path.name for path in tmp_path.iterdir()] == ["data"]


def test_a_directory_without_a_ledger_has_none_to_export(tmp_path: Path) -> None:
    with pytest.raises(StartError, match="no ledger"):
        run("ledger", "export", tmp_path / "ledger.jsonl", "--data-dir", tmp_path / "nothing")
    assert not list(tmp_path.iterdir())
