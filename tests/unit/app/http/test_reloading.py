"""What SIGHUP reads again, and what it refuses."""

import logging
from pathlib import Path

import pytest

from oubli.app.http import server
from oubli.app.http.auth import AccessRules
from oubli.app.http.problems import ProblemError
from oubli.app.http.server import Reloader
from oubli.app.settings import Settings, load_settings
from tests.unit.app.http.connections import access_rules

OLD, NEW = "0123456789abcdef-old", "0123456789abcdef-new"


@pytest.fixture
def settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Settings:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "key").write_text(OLD)
    (tmp_path / "oubli.toml").write_text("max_rows = 7\n")
    return load_settings(api_key_file=tmp_path / "key")


def passes(rules: AccessRules, key: str) -> bool:
    try:
        rules.check("GET", "/model", {b"host": b"127.0.0.1", b"x-api-key": key.encode()})
    except ProblemError:
        return False
    return True


def test_a_new_key_replaces_the_old_one_unless_it_cannot_be_used(settings, tmp_path, caplog):
    rules = access_rules(api_key=settings.read_api_key())
    epoch, reload = rules.access_keys.epoch, Reloader(settings, rules, None)
    for text in ("short", "", None):
        caplog.clear()
        (tmp_path / "key").unlink()
        if text is not None:
            (tmp_path / "key").write_text(text)
        reload()
        assert passes(rules, OLD)
        assert "nothing was reloaded" in caplog.text
    (tmp_path / "key").write_text(NEW)
    reload()
    assert (passes(rules, OLD), passes(rules, NEW)) == (False, True)
    assert rules.access_keys.epoch > epoch, "the fast path decides again"


def test_a_server_with_a_key_is_not_opened_by_its_settings_file(settings: Settings, tmp_path: Path) -> None:
    (tmp_path / "oubli.toml").write_text('api_key_file = "key"\n')
    settings = load_settings()
    rules = access_rules(api_key=settings.read_api_key())
    (tmp_path / "oubli.toml").write_text("")
    Reloader(settings, rules, None)()
    assert (passes(rules, ""), passes(rules, OLD)) == (False, True)


def test_the_log_level_is_that_of_the_settings_file_and_other_settings_wait(settings, tmp_path, caplog, monkeypatch):
    levels: list[str] = []
    monkeypatch.setattr(server, "set_level", levels.append)
    reload = Reloader(settings, access_rules(api_key=settings.read_api_key()), None)
    with caplog.at_level(logging.INFO, logger="oubli.server"):
        for text, told in (
            ("max_rows = 8\nport = 9\n", "wait for a restart: max_rows"),
            ('max_rows = "no"\n', "nothing was reloaded: max_rows"),
            ('max_rows = 7\nlog_level = "debug"\n', "reloaded"),
        ):
            caplog.clear()
            (tmp_path / "oubli.toml").write_text(text)
            reload()
            assert told in caplog.text
    assert levels[-1] == "debug"
