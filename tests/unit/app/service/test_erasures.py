"""What of the journal is dropped, and what for."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from oubli.app.storage.sqlite_journal import SqliteJournal
from tests.unit.app.support import make_service, samples, served


def test_the_journal_is_told_what_is_dropped_for_an_erasure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[bool] = []
    plain = SqliteJournal.drop_before

    def drop_before(journal: SqliteJournal, seq: int, **options: Any) -> None:
        told.append(options["erases"])
        plain(journal, seq, **options)

    monkeypatch.setattr(SqliteJournal, "drop_before", drop_before)
    with served(make_service(directory=tmp_path)) as client:
        assert client.post("/samples", json=samples(2)).status_code == 201
        told.clear()
        assert client.post("/snapshot").status_code == 201
        assert told == [False]
        assert client.delete("/samples/n0").status_code == 200
        assert client.post("/snapshot").status_code == 201
        assert told[1:]
        assert all(told[1:])
