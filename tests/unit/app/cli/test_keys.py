import re
from datetime import UTC, datetime
from typing import Any

import pytest

from oubli.app.access.keys import FILE_NAME, AccessKeys, now_ms, read_keys
from oubli.app.settings import SettingsError, load_settings

DAY = 86_400_000


@pytest.fixture
def run(run):
    """Run `oubli keys` in an empty folder; return stdout and stderr."""
    return lambda *arguments: run("keys", *arguments)[1:]


def not_servable(words: str, **flags: Any) -> None:
    with pytest.raises(SettingsError, match=words):
        load_settings(**flags).require_servable()


def test_a_key_is_written_to_stdout_once(run, tmp_path):
    out, _ = run("create", "--scopes", "write, predict", "--name", "shop", "--data-dir", "d")
    assert re.fullmatch(r"oubli_[0-9a-f]{8}_[0-9a-f]{64}\n", out)
    path = tmp_path / "d" / FILE_NAME
    [key] = read_keys(path)
    assert (key.name, key.scopes, key.expires_ms, key.revoked_ms) == ("shop", ("predict", "write"), None, None)
    assert AccessKeys(path).grants(out.strip().encode()) == {"predict", "write"}
    assert path.parent.stat().st_mode & 0o777 == 0o700
    listed, _ = run("list", "--data-dir", "d")
    assert listed.split("\t")[:3] == [key.id, "live", "predict,write"]
    assert out.strip().rpartition("_")[2] not in listed


def test_a_key_can_end(run, tmp_path, monkeypatch):
    before = now_ms()
    run("create", "--scopes", "read", "--expires", "90d")
    run("create", "--scopes", "read", "--expires", "2999-01-31T12:00:00+01:00")
    first, second = read_keys(tmp_path / "oubli-data" / FILE_NAME)
    assert first.expires_ms is not None
    assert before + 90 * DAY <= first.expires_ms <= now_ms() + 90 * DAY
    assert second.expires_ms == round(datetime(2999, 1, 31, 11, tzinfo=UTC).timestamp()) * 1000
    assert "2999-01-31T11:00:00.000Z" in run("list")[0]
    later = now_ms() + 91 * DAY
    monkeypatch.setattr("oubli.app.cli.keys.now_ms", lambda: later)
    assert [line.split("\t")[1] for line in run("list")[0].splitlines()] == ["expired", "live"]


def test_what_makes_no_key(refuses, tmp_path):
    for arguments, part in (
        *((("--scopes", scopes), "--scopes must name") for scopes in ("SECRET", "", ",", "read,SECRET")),
        (("--scopes", "read", "--name", "SECRET@example.org"), "--name must be"),
        (("--scopes", "read", "--expires", "SECRET"), "--expires must be"),
        (("--scopes", "read", "--expires", "90"), "unit"),
        (("--scopes", "read", "--expires", "2999-01-31T12:00:00"), "zone"),
        (("--scopes", "read", "--expires", "2001-01-31T12:00:00Z"), "future"),
    ):
        assert "SECRET" not in refuses(part, "create", *arguments)
    assert not (tmp_path / "oubli-data").exists()


def test_revoking(run, refuses, tmp_path, monkeypatch):
    monkeypatch.setenv("OUBLI_DATA_DIR", "elsewhere")
    assert run("list")[0] == ""
    refuses("no key with this id", "revoke", "00000000")
    out, _ = run("create", "--scopes", "read")
    key_id = out.split("_")[1]
    for _ in range(2):  # a second time is no mistake
        run("revoke", key_id)
    listed, _ = run("list")
    assert listed.split("\t")[:2] == [key_id, "revoked"]
    assert AccessKeys(tmp_path / "elsewhere" / FILE_NAME).grants(out.strip().encode()) is None
    refuses("no key with this id", "revoke", "00000000")


def test_where_no_key_can_be_kept(refuses, tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    refuses("cannot be", "create", "--scopes", "read", "--data-dir", "file")
    monkeypatch.setenv("OUBLI_EPHEMERAL", "true")
    refuses("api_key_file", "create", "--scopes", "read")


def test_a_live_key_is_enough_beyond_loopback(run, tmp_path, monkeypatch):
    monkeypatch.delenv("WEB_CONCURRENCY", raising=False)
    not_servable("oubli keys create", host="0.0.0.0")
    out, _ = run("create", "--scopes", "predict")
    load_settings(host="0.0.0.0").require_servable()
    not_servable("oubli keys create", host="0.0.0.0", ephemeral=True)
    run("revoke", out.split("_")[1])
    not_servable("oubli keys create", host="0.0.0.0")
    (tmp_path / "oubli-data" / FILE_NAME).write_text("{")
    not_servable("is damaged", host="0.0.0.0")


def test_a_lost_file_of_keys_is_told_and_opens_no_server(run, refuses, tmp_path, monkeypatch):
    monkeypatch.delenv("WEB_CONCURRENCY", raising=False)
    out, _ = run("create", "--scopes", "admin")
    load_settings().require_servable()
    (tmp_path / "oubli-data" / FILE_NAME).unlink()
    not_servable(r"(?s)is gone.*from a backup.*oubli keys create.*access-keys-mark")
    refuses("is gone", "list")
    refuses("no key with this id", "revoke", out.split("_")[1])
    run("create", "--scopes", "admin")
    load_settings().require_servable()
