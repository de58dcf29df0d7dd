"""The command line, run in this process."""

from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
from typer.testing import CliRunner

from oubli.app.cli.main import cli
from oubli.app.errors import StartError


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., object]:
    """Run `oubli` in a folder with some files; return exit code, stdout and what was told, or raise what it raises."""
    monkeypatch.chdir(tmp_path)

    def run(*arguments: object, files: Mapping[str, str] | None = None) -> tuple[int, str, str]:
        for name, content in (files or {}).items():
            Path(name).write_text(content)
        result = CliRunner().invoke(cli, [str(argument) for argument in arguments])
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        return result.exit_code, result.stdout, " ".join((capsys.readouterr().err + result.stderr).split())

    return run


@pytest.fixture
def refuses(run: Callable[..., object]) -> Callable[..., str]:
    """Run a command that is refused with some words; return all that is said."""

    def refuses(words: str, *arguments: object) -> str:
        with pytest.raises(StartError, match=words) as caught:
            run(*arguments)
        return str(caught.value)

    return refuses
