"""Settings: their order, their refusals, and that no refusal repeats what was set."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from oubli.app import settings as settings_module
from oubli.app.cli.main import settings_lines
from oubli.app.settings import (
    DEFAULT_CONFIG,
    GROUPS,
    MODEL_PARAMETERS,
    REMOVED,
    Settings,
    SettingsError,
    load_settings,
    unknown_variables,
)

CANARY = "hunter2-canary"


@pytest.fixture(autouse=True)
def _no_settings_around(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("WEB_CONCURRENCY", raising=False)


def write(path: Path, text: str) -> Path:
    path.write_text(text, encoding="utf-8")
    return path


def refusal(**flags: Any) -> str:
    with pytest.raises(SettingsError) as caught:
        load_settings(**flags)
    return str(caught.value)


def test_flags_win_over_variables_and_variables_over_the_file(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    config = write(tmp_path / "my.toml", "port = 1001\nmax_rows = 11\nidle_timeout = 7\n")
    monkeypatch.setenv("OUBLI_MAX_ROWS", "22")
    monkeypatch.setenv("OUBLI_PORT", "1002")
    settings = load_settings(config=config, port=1003)
    assert (settings.port, settings.max_rows, settings.idle_timeout) == (1003, 22, 7)


def test_the_file_of_the_working_directory_is_read_if_it_is_there_or_the_one_that_is_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    assert load_settings().port == 8000
    assert load_settings(port=None, drop=None) == Settings(), "flags that were not given do not count"
    write(tmp_path / DEFAULT_CONFIG, "port = 1001")
    assert load_settings().port == 1001
    monkeypatch.setenv("OUBLI_CONFIG", str(write(tmp_path / "other.toml", "port = 1004")))
    assert load_settings().port == 1004
    assert "cannot be read (No such file" in refusal(config=tmp_path / "absent.toml")


@pytest.mark.parametrize(
    ("variable", "text", "value"),
    [
        *(("drop", text, ("a", "b")) for text in ("a, b", "a,b,", '["a", "b"]')),
        ("drop", '["a, b"]', ("a, b",)),
        *(("max_features", text, value) for text, value in (("5", 5), ("0.5", 0.5), ("sqrt", "sqrt"))),
        ("max_depth", "", None),  # an empty variable is not set
    ],
)
def test_a_variable(monkeypatch: pytest.MonkeyPatch, variable: str, text: str, value: object) -> None:
    """It lists columns with commas or as JSON; max_features is a number where it looks like one."""
    monkeypatch.setenv(f"OUBLI_{variable.upper()}", text)
    found = getattr(load_settings(), variable)
    assert (found, type(found)) == (value, type(value))


def test_each_kind_of_model_has_its_own_parameters() -> None:
    assert load_settings().model_parameters() == {}
    assert load_settings(max_features="all").model_parameters() == {"max_features": None}
    tree = load_settings(model="tree", epsilon="derived", alpha="0.1", beta=0.1, max_depth=5)
    assert tree.model_parameters() == {"max_depth": 5, "alpha": 0.1, "beta": 0.1, "epsilon": None}
    assert load_settings(model="tree", epsilon="0").model_parameters() == {"epsilon": 0.0}
    priced = load_settings(model="online-boosting", monotone_constraints="area:1,age:-1")
    assert priced.model_parameters() == {"monotone_constraints": ("area:1", "age:-1")}
    for kind in ("online-boosting", "incremental-boosting"):
        late = load_settings(model=kind, loss="quantile", quantile=0.9)
        assert late.model_parameters() == {"loss": "quantile", "quantile": 0.9}
    with pytest.raises(
        SettingsError, match="--loss is for a model of kind `online-boosting` or `incremental-boosting`"
    ):
        load_settings(model="forest", loss="huber").model_parameters()
    with pytest.raises(SettingsError, match="--occurrence is for a model of kind `forest`, this one is a `tree`"):
        load_settings(model="tree", occurrence=0.1).model_parameters()
    with pytest.raises(SettingsError, match="epsilon"):
        load_settings(model="tree", epsilon="a little")


def test_a_misspelt_setting_is_refused_wherever_it_stands(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert "did you mean port?" in refusal(prot=1)
    config = write(tmp_path / "my.toml", f'prot = "{CANARY}"')
    text = refusal(config=config)
    assert "my.toml" in text
    assert "did you mean port?" in text
    assert CANARY not in text
    monkeypatch.setenv("OUBLI_API_KEY", CANARY)
    text = refusal()
    assert "OUBLI_API_KEY (did you mean OUBLI_API_KEY_FILE?)" in text
    assert CANARY not in text


@pytest.mark.parametrize(
    ("flags", "part"),
    [
        ({"port": 65536}, "port (--port, OUBLI_PORT): input should be less than or equal to 65535"),
        ({"occurrence": 0.0}, "occurrence"),
        ({"occurrence": 1.5}, "occurrence"),
        ({"n_estimators": 0}, "n_estimators"),
        ({"max_rows": CANARY}, "max_rows (--max-rows, OUBLI_MAX_ROWS)"),
        ({"model": CANARY}, "model"),
        ({"task": "clustering"}, "'classification' or 'regression'"),
        ({"drop": "[1"}, "not a JSON list"),
        ({"data": "x.csv", "target": "y", "id_column": "y"}, "must be different columns"),
        ({"data": "x.csv", "target": "y", "drop": ("y",)}, "choose one"),
        ({"ephemeral": True, "data_dir": "d"}, "data_dir and ephemeral exclude each other"),
        ({"ephemeral": True, "journal": "postgresql://db/oubli"}, "journal and ephemeral exclude each other"),
        ({"ephemeral": True, "ledger": "ledger.jsonl"}, "ledger and ephemeral exclude each other"),
        ({"workers": 2}, "workers is gone: one process serves one model"),
        ({"accept_missing": ("files",)}, "accept_missing"),
        ({"follow": True, "journal": "postgresql://db/oubli"}, "node_url and cluster_secret_file are missing"),
    ],
)
def test_a_wrong_setting_is_named_with_its_rule(flags: dict[str, Any], part: str) -> None:
    text = refusal(**flags)
    assert part in text
    assert CANARY not in text


def test_every_wrong_setting_is_named_at_once() -> None:
    assert refusal(port=-1, max_rows=0).count("\n") == 1


@pytest.mark.parametrize(
    ("content", "part"), [("port = ", "is not TOML"), ("config = 'x'", "config"), ("\udc80", "not UTF-8")]
)
def test_a_broken_settings_file_is_named(tmp_path: Path, content: str, part: str) -> None:
    config = tmp_path / "my.toml"
    config.write_bytes(content.encode("utf-8", "surrogateescape"))
    text = refusal(config=config)
    assert str(config) in text
    assert part in text


@pytest.mark.parametrize("host", ["127.0.0.1", "127.8.8.8", "::1", "[::1]", "localhost"])
def test_loopback_needs_no_key(host: str) -> None:
    load_settings(host=host).require_servable()


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.168.0.7", "example.org"])
def test_beyond_loopback_needs_a_key_or_consent(host: str, tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="--allow-anonymous"):
        load_settings(host=host).require_servable()
    load_settings(host=host, allow_anonymous=True).require_servable()
    load_settings(host=host, api_key_file=write(tmp_path / "key", "0123456789abcdef\n")).require_servable()


@pytest.mark.parametrize("content", [None, "", "\n", "short", "two words of a long key", "kéy-kéy-kéy-kéy-kéy"])
def test_a_key_file_holds_one_long_key(tmp_path: Path, content: str | None) -> None:
    key = tmp_path / "key"
    settings = load_settings(api_key_file=key if content is None else write(key, content))
    with pytest.raises(SettingsError, match="cannot be read" if content is None else "api_key_file") as caught:
        settings.require_servable()
    assert not (content or "").strip() or (content or "").strip() not in str(caught.value)
    write(key, "0123456789abcdef\r\n")
    assert settings.read_api_key() == "0123456789abcdef", "without the end of the line"
    assert load_settings().read_api_key() is None


def test_several_workers_are_refused_however_they_are_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WEB_CONCURRENCY", "4")
    with pytest.raises(SettingsError, match="one process serves one model"):
        load_settings().require_servable()


def test_every_setting_is_described_and_in_one_group() -> None:
    grouped = [field for fields in GROUPS.values() for field in fields]
    assert sorted(grouped) == sorted(Settings.model_fields)
    assert all(info.description for info in Settings.model_fields.values())
    assert set(MODEL_PARAMETERS) < set(Settings.model_fields)


@pytest.mark.parametrize("name", REMOVED)
def test_a_setting_that_is_gone_says_what_replaces_it(
    name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv(f"OUBLI_{name.upper()}", CANARY)
    assert f"OUBLI_{name.upper()} {REMOVED[name]}; leave it out" in refusal()
    monkeypatch.delenv(f"OUBLI_{name.upper()}")
    write(tmp_path / DEFAULT_CONFIG, f'{name} = "{CANARY}"')
    text = refusal()
    assert f"{name} {REMOVED[name]}; leave it out" in text
    assert CANARY not in text


def test_what_other_programs_set_is_named_and_does_not_stop_the_server(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("OUBLI_SERVICE_HOST", "OUBLI_PORT_8000_TCP", "oubli_version"):  # Kubernetes sets the first two
        monkeypatch.setenv(name, CANARY)
    load_settings()
    assert unknown_variables() == ["OUBLI_PORT_8000_TCP", "OUBLI_SERVICE_HOST", "oubli_version"]


def test_values_follow_from_others() -> None:
    assert [load_settings(member_timeout=n).lease for n in (2, 10, 30, 600)] == [0.5, 1.0, 3.0, 3.0]
    assert load_settings(max_body_bytes=2048).max_bulk_bytes == 32_768
    assert not load_settings().push_plain_http
    assert load_settings(push_networks=("10.0.0.0/8",)).push_plain_http


@pytest.mark.parametrize(
    ("given", "used"),
    [
        ("http://127.0.0.1:4318", "http://127.0.0.1:4318/v1/traces"),
        ("https://collector.example/", "https://collector.example/v1/traces"),
        ("https://collector.example/otlp/traces", "https://collector.example/otlp/traces"),
    ],
)
def test_a_collector_is_named_with_or_without_a_path(given: str, used: str) -> None:
    assert load_settings(traces_endpoint=given).traces_endpoint == used


@pytest.mark.parametrize(
    ("name", "values", "rule"),
    [
        (
            *("traces_endpoint", ("collector:4318", "ftp://collector", "http://", "http://me:SECRET@collector")),
            "must be a URL",
        ),
        ("traces_endpoint", ("http://a?b",), "must be a URL"),
        (
            *("journal", ("postgres", "mysql://SECRET@db/x", "postgresql:SECRET", "")),
            r"journal .*must be `sqlite`, or a URL",
        ),
    ],
)
def test_a_url_is_one_that_can_be_used(name: str, values: tuple[str, ...], rule: str) -> None:
    for value in values:
        with pytest.raises(SettingsError, match=rule) as refused:
            load_settings(**{name: value})
        assert "SECRET" not in str(refused.value)


@pytest.mark.parametrize(
    ("values", "rule"),
    [
        ({"webhook_url": "https://hooks.example"}, "belong together"),
        ({"webhook_secret_file": "secret"}, "belong together"),
        ({"webhook_url": "http://hooks.example/SECRET", "webhook_secret_file": "secret"}, "push_networks"),
        ({"webhook_url": "https://SECRET@hooks.example", "webhook_secret_file": "secret"}, "no user name"),
        ({"opendsr_domain": "opendsr.processor.example"}, "belong together"),
        ({"opendsr_callbacks": ("http://controller.example/SECRET",)}, "push_networks"),
        ({"push_networks": ("SECRET",)}, "must be addresses or networks"),
        ({"opendsr_domain": "SECRET"}, "opendsr_domain"),
    ],
)
def test_who_is_told_of_erasures_is_said_as_a_whole(values: dict[str, Any], rule: str) -> None:
    text = refusal(**values)
    assert rule in text
    assert "SECRET" not in text


@pytest.mark.parametrize(
    ("given", "shown"),
    [
        ("sqlite", "sqlite"),
        ("postgresql://db/oubli", "postgresql://db/oubli"),
        ("postgresql://me@db:5432/oubli", "postgresql://me@db:5432/oubli"),
        ("postgresql://me:SECRET@one:1,two:2/oubli", "postgresql://me:***@one:1,two:2/oubli"),
        ("postgres://:SEC:R@ET@db/oubli", "postgres://:***@db/oubli"),
        ("postgresql:///o?user=me&password=SECRET&port=1", "postgresql:///o?user=me&password=***&port=1"),
        ("postgresql://db/o?sslpassword=SECRET", "postgresql://db/o?sslpassword=***"),
    ],
)
def test_the_password_of_a_journal_is_not_shown(given: str, shown: str) -> None:
    settings = load_settings(journal=given)
    assert settings.journal == given
    assert settings.shown_journal == shown
    assert "SECRET" not in "\n".join(settings_lines(settings))


@pytest.mark.parametrize(
    ("module", "extra", "given"),
    [
        ("POSTGRES_MODULE", "postgres", {"journal": "postgresql://db/oubli"}),
        ("TELEMETRY_MODULE", "telemetry", {"traces_endpoint": "http://127.0.0.1:4318"}),
    ],
)
def test_what_needs_the_packages_of_an_extra(
    monkeypatch: pytest.MonkeyPatch, module: str, extra: str, given: dict[str, Any]
) -> None:
    monkeypatch.setattr(settings_module, module, "psycopg_not.installed")
    with pytest.raises(SettingsError, match=rf"oubli-server\[{extra}\]"):
        load_settings(**given).require_servable()
    load_settings().require_servable()
