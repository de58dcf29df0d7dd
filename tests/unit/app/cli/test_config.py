"""`oubli config`: what it prints can be a settings file, and names where each setting comes from."""

import tomllib
from pathlib import Path

import pytest

from oubli.app.cli.main import settings_lines
from oubli.app.settings import GROUPS, TABLES, load_settings


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_each_setting_names_the_source_that_wins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "oubli.toml").write_text("max_rows = 7\nport = 1\nn_estimators = 7\n")
    monkeypatch.setenv("OUBLI_PORT", "2")
    monkeypatch.setenv("OUBLI_N_ESTIMATORS", "8")
    monkeypatch.setenv("OUBLI_CORS_ORIGINS", "https://a.example,https://b.example")
    lines = list(settings_lines(load_settings(host="127.0.0.2", n_estimators=9)))
    found = {line.split(" = ")[0]: " ".join(line.split()) for line in lines if " = " in line}
    for name, said in (
        *(("max_rows", "7 # file oubli.toml"), ("port", "2 # variable OUBLI_PORT")),
        *(("host", '"127.0.0.2" # flag --host'), ("n_estimators", "9 # flag --n-estimators")),
    ):
        assert found[name] == f"{name} = {said}"
    assert found["idle_timeout"].endswith("# default")
    assert found["cors_origins"].startswith('cors_origins = ["https://a.example", "https://b.example"]')


def test_what_is_printed_can_be_read_again(tmp_path: Path) -> None:
    for kind in TABLES:
        settings = load_settings(model=kind, ephemeral=True, drop=("a b", "c,d"))
        lines = [line for line in "\n".join(settings_lines(settings)).splitlines() if not line.startswith("data_dir")]
        values = tomllib.loads("\n".join(lines))
        (tmp_path / "oubli.toml").write_text("\n".join(lines))
        again = load_settings()
        for name in ("model", "drop", "ephemeral", "max_rows"):
            assert getattr(again, name) == getattr(settings, name)
        named = {name for names in GROUPS.values() for name in names}
        assert set(values) <= named
        assert {one.name for one in TABLES[kind] if one.default is not None} <= set(values)
