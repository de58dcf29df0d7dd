"""Help: one screen of what most people need, all settings on request, and words for what is gone."""

from pathlib import Path

import pytest
from typer.testing import CliRunner

from oubli.app.cli.main import cli, main
from oubli.app.cli.options import ESSENTIAL
from oubli.app.settings import GROUPS, MODEL_PARAMETERS, Settings, flag_name

CANARY = "hunter2-canary"


def shown(*arguments: str, columns: int = 80) -> str:
    found = CliRunner().invoke(cli, arguments, env={"COLUMNS": str(columns), "TERMINAL_WIDTH": str(columns)})
    assert found.exit_code == 0, found.output
    return found.output


def test_help_fits_on_one_screen() -> None:
    flags = {flag_name(field) for field in Settings.model_fields}
    for command in ("serve", "config", "fit"):
        text = shown(command, "--help")
        listed = flags.intersection(text.split())
        assert (len(text.splitlines()) <= 60, len(listed) <= 16, "--help-all" in text) == (True, True, True)
        assert listed <= {flag_name(field) for field in ESSENTIAL}


def test_all_settings_are_shown_when_they_are_asked_for_and_commands_are_in_groups() -> None:
    text = shown("serve", "--help-all", columns=100)
    for group, fields in GROUPS.items():
        assert f"\n{group}\n" in text
        for field in fields:
            assert f"\n{flag_name(field)} " in text
    assert text.count("incremental-boosting") > len(MODEL_PARAMETERS) / 3, "the kinds that have a parameter"
    assert len(text.splitlines()) < 330
    text = shown("--help")
    places = [text.index(f"─ {group} ─") for group in ("Run", "Data", "Privacy", "Operate")]
    assert places == sorted(places)
    assert "remove-node" not in text


def test_what_is_gone_names_what_replaces_it(capfd: pytest.CaptureFixture[str]) -> None:
    for arguments, text in (
        (f"serve --max-queue {CANARY}", "--max-queue is fixed at 1,024 now; leave it out"),
        (f"serve --lease={CANARY}", "--lease is 3 seconds now, or a tenth of member_timeout if that is less; leave it"),
        ("serve --no-idle-resolve", "--no-idle-resolve is always on now; leave it out"),
        ("ledger export f --accept-missing-keys", "is `keys` in accept_missing now (--accept-missing keys); leave it"),
        ("predict m d --max-data-bytes 5", "--max-data-bytes is the memory of the machine now"),
        (f"remove-node {CANARY} --url x", "`oubli remove-node NAME` is `oubli cluster remove NAME` now"),
    ):
        with pytest.raises(SystemExit) as caught:
            main(arguments.split())
        said = " ".join(capfd.readouterr().err.split())
        assert caught.value.code == 2
        assert text in said
        assert CANARY not in said


def test_variables_of_others_are_named_in_one_warning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("OUBLI_SERVICE_HOST", "OUBLI_PORT_8000_TCP", "oubli_version"):  # Kubernetes sets the first two
        monkeypatch.setenv(name, CANARY)
    with pytest.raises(SystemExit) as caught:
        main(["config"])
    assert caught.value.code == 0
    said = capfd.readouterr()
    text = " ".join(said.err.split())
    assert "no settings and are ignored: OUBLI_PORT_8000_TCP, OUBLI_SERVICE_HOST, oubli_version" in text
    assert text.count("Note:") == 1
    assert CANARY not in said.out + said.err
