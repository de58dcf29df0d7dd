"""Settings: their order, their refusals, and that no refusal repeats what was set."""

from pathlib import Path
from typing import Any

import pytest

from oubli.app import settings as settings_module
from oubli.app.cli.main import settings_lines
from oubli.app.settings import DEFAULT_CONFIG, GROUPS, MODEL_PARAMETERS, REMOVED, Settings, SettingsError, load_settings

CANARY = "hunter2-canary"


@pytest.fixture(autouse=True)
def _no_settings_around(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("WEB_CONCURRENCY", raising=False)


def write(path: Path, text: str) -> Path:
    path.write_text(text, encoding="utf-8")
    return path


def refusal(**flags: Any) -> str:
    """What is said of settings, which is never what was set."""
    with pytest.raises(SettingsError) as caught:
        load_settings(**flags)
    assert CANARY not in str(caught.value)
    return str(caught.value)


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


def test_a_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    """It lists columns with commas or as JSON; max_features is a number where it looks like one."""
    for variable, text, value in (
        *(("drop", text, ("a", "b")) for text in ("a, b", "a,b,", '["a", "b"]')),
        ("drop", '["a, b"]', ("a, b",)),
        *(("max_features", text, value) for text, value in (("5", 5), ("0.5", 0.5), ("sqrt", "sqrt"))),
        ("max_depth", "", None),  # an empty variable is not set
    ):
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
    for kind, more, rule in (
        ("forest", {"loss": "huber"}, "--loss is for a model of kind `online-boosting` or `incremental-boosting`"),
        ("tree", {"occurrence": 0.1}, "--occurrence is for a model of kind `forest`, this one is a `tree`"),
        ("tree", {"epsilon": "a little"}, "epsilon"),
    ):
        with pytest.raises(SettingsError, match=rule):
            load_settings(model=kind, **more).model_parameters()


def test_a_misspelt_setting_is_refused_wherever_it_stands(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert "did you mean port?" in refusal(prot=1)
    text = refusal(config=write(tmp_path / "my.toml", f'prot = "{CANARY}"'))
    assert ("my.toml" in text, "did you mean port?" in text) == (True, True)
    monkeypatch.setenv("OUBLI_API_KEY", CANARY)
    assert "OUBLI_API_KEY (did you mean OUBLI_API_KEY_FILE?)" in refusal()


KEPT = {"data_dir": "d", "journal": "postgresql://db/oubli", "ledger": "ledger.jsonl"}
ALONE = {"webhook_url": "https://hooks.example", "webhook_secret_file": "secret", "opendsr_domain": "o.example"}
NO_COLLECTORS = ("collector:4318", "ftp://collector", "http://", f"http://me:{CANARY}@collector", "http://a?b")
NO_JOURNALS = ("postgres", f"mysql://{CANARY}@db/x", f"postgresql:{CANARY}", "")
WRONG: list[tuple[dict[str, Any], str]] = [
    ({"port": 65536}, "port (--port, OUBLI_PORT): input should be less than or equal to 65535"),
    *(({"occurrence": share}, "occurrence") for share in (0.0, 1.5)),
    *(({"n_estimators": 0}, "n_estimators"), ({"max_rows": CANARY}, "max_rows (--max-rows, OUBLI_MAX_ROWS)")),
    *(({"model": CANARY}, "model"), ({"task": "clustering"}, "'classification' or 'regression'")),
    ({"drop": "[1"}, "not a JSON list"),
    ({"data": "x.csv", "target": "y", "id_column": "y"}, "must be different columns"),
    ({"data": "x.csv", "target": "y", "drop": ("y",)}, "choose one"),
    *(({"ephemeral": True, name: value}, f"{name} and ephemeral exclude each other") for name, value in KEPT.items()),
    ({"workers": 2}, "workers is gone: one process serves one model"),
    ({"accept_missing": ("files",)}, "accept_missing"),
    ({"follow": True, "journal": "postgresql://db/oubli"}, "node_url and cluster_secret_file are missing"),
    *(({"traces_endpoint": url}, "must be a URL such as http://127.0.0.1:4318") for url in NO_COLLECTORS),
    *(({"journal": url}, "must be `sqlite`, or a URL") for url in NO_JOURNALS),
    *(({name: value}, "belong together") for name, value in ALONE.items()),
    ({"webhook_url": f"http://hooks.example/{CANARY}", "webhook_secret_file": "secret"}, "push_networks"),
    ({"webhook_url": f"https://{CANARY}@hooks.example", "webhook_secret_file": "secret"}, "no user name"),
    ({"opendsr_callbacks": (f"http://controller.example/{CANARY}",)}, "push_networks"),
    ({"push_networks": (CANARY,)}, "must be addresses or networks"),
    ({"opendsr_domain": CANARY}, "opendsr_domain"),
]


def test_a_wrong_setting_is_named_with_its_rule() -> None:
    for flags, part in WRONG:
        assert part in refusal(**flags)
    # All of them at once.
    assert refusal(port=-1, max_rows=0).count("\n") == 1


def test_a_broken_settings_file_is_named(tmp_path: Path) -> None:
    config = tmp_path / "my.toml"
    for content, part in (("port = ", "is not TOML"), ("config = 'x'", "config"), ("\udc80", "not UTF-8")):
        config.write_bytes(content.encode("utf-8", "surrogateescape"))
        text = refusal(config=config)
        assert (str(config) in text, part in text) == (True, True)


def test_beyond_loopback_needs_a_key_or_consent(tmp_path: Path) -> None:
    for host in ("127.0.0.1", "127.8.8.8", "::1", "[::1]", "localhost"):
        load_settings(host=host).require_servable()
    for host in ("0.0.0.0", "::", "192.168.0.7", "example.org"):
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
def test_a_setting_that_is_gone_names_another(name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv(f"OUBLI_{name.upper()}", CANARY)
    assert f"OUBLI_{name.upper()} {REMOVED[name]}; leave it out" in refusal()
    monkeypatch.delenv(f"OUBLI_{name.upper()}")
    write(tmp_path / DEFAULT_CONFIG, f'{name} = "{CANARY}"')
    assert f"{name} {REMOVED[name]}; leave it out" in refusal()


def test_values_follow_from_others() -> None:
    assert [load_settings(member_timeout=n).lease for n in (2, 10, 30, 600)] == [0.5, 1.0, 3.0, 3.0]
    assert load_settings(max_body_bytes=2048).max_bulk_bytes == 32_768
    assert not load_settings().push_plain_http
    assert load_settings(push_networks=("10.0.0.0/8",)).push_plain_http
    # A collector is named with or without a path.
    for given, added in (("http://c:4318", "/v1/traces"), ("https://c.example/", "v1/traces"), ("https://c/d/e", "")):
        assert load_settings(traces_endpoint=given).traces_endpoint == given + added


def test_the_password_of_a_journal_is_not_shown() -> None:
    for given, shown in (
        *((url, url) for url in ("sqlite", "postgresql://db/oubli", "postgresql://me@db:5432/oubli")),
        ("postgresql://me:SECRET@one:1,two:2/oubli", "postgresql://me:***@one:1,two:2/oubli"),
        ("postgres://:SEC:R@ET@db/oubli", "postgres://:***@db/oubli"),
        ("postgresql:///o?user=me&password=SECRET&port=1", "postgresql:///o?user=me&password=***&port=1"),
        ("postgresql://db/o?sslpassword=SECRET", "postgresql://db/o?sslpassword=***"),
    ):
        settings = load_settings(journal=given)
        assert (settings.journal, settings.shown_journal) == (given, shown)
        assert "SECRET" not in "\n".join(settings_lines(settings))


def test_what_needs_the_packages_of_an_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    for module, extra, given in (
        ("POSTGRES_MODULE", "postgres", {"journal": "postgresql://db/oubli"}),
        ("TELEMETRY_MODULE", "telemetry", {"traces_endpoint": "http://127.0.0.1:4318"}),
    ):
        monkeypatch.setattr(settings_module, module, "psycopg_not.installed")
        with pytest.raises(SettingsError, match=rf"oubli-server\[{extra}\]"):
            load_settings(**given).require_servable()
        load_settings().require_servable()
