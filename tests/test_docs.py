"""The documentation is true: every setting, command and route is in it, and what it shows works."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any, cast

import pytest
from typer.main import get_command

from oubli.app.cli.main import cli
from oubli.app.http.app import create_app
from oubli.app.settings import GROUPS, Settings, flag_name
from tests.serving import EXAMPLE, ROOT, Running, environment

README = (ROOT / "README.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```(\w+)\n(.*?)^```$", README, re.MULTILINE | re.DOTALL)
CURL = [text for kind, text in BLOCKS if kind == "console" and text.startswith("curl")]
PYTHON = [text for kind, text in BLOCKS if kind == "python"]


def commands_of(group: Any, prefix: str = "") -> dict[str, Any]:
    """All commands, those of a group with its name before theirs."""
    found: dict[str, Any] = {}
    for name, command in group.commands.items():
        if hasattr(command, "commands"):
            found.update(commands_of(command, f"{prefix}{name} "))
        else:
            found[prefix + name] = command
    return found


COMMANDS = commands_of(cast("Any", get_command(cli)))


def setting_row(field: str) -> str:
    """The row of the settings table for a setting, written from its description."""
    info = Settings.model_fields[field]
    default = info.get_default()
    flag = flag_name(field).replace("--", "--no-", 1) if default is True else flag_name(field)
    value = str(default).lower() if isinstance(default, bool) else str(default)
    shown = "" if default in (None, ()) else f"`{value}`"
    return f"| `{field}` | `{flag}` | {shown} | {info.description} |"


@pytest.mark.parametrize("field", [field for fields in GROUPS.values() for field in fields])
def test_every_setting_is_in_the_readme(field: str) -> None:
    assert setting_row(field) in README.splitlines(), f"README.md needs this row:\n{setting_row(field)}"


def test_the_readme_lists_no_other_setting() -> None:
    table = README.partition("| setting | flag |")[2].partition("\n\n")[0]
    assert re.findall(r"^\| `(\w+)`", table, re.MULTILINE) == [field for fields in GROUPS.values() for field in fields]


def test_every_command_is_in_the_readme() -> None:
    listed = re.findall(r"^\| `oubli ([\w -]+)`", README, re.MULTILINE)
    assert sorted(listed) == sorted(COMMANDS)


def test_the_flags_that_the_readme_shows_are_there() -> None:
    shown = 0
    for kind, text in BLOCKS:
        if kind != "console":
            continue
        for words, rest in re.findall(r"^oubli ((?:[a-z-]+ ?)+)(.*)$", text, re.MULTILINE):
            name = next(name for name in COMMANDS if f"{words} ".startswith(f"{name} "))
            flags = {option for parameter in COMMANDS[name].params for option in parameter.opts}
            for flag in re.findall(r"--[\w-]+", rest):
                assert flag in flags, f"oubli {name} {flag}"
                shown += 1
    assert shown > 10


def test_every_route_is_in_the_readme() -> None:
    app = create_app(Settings(), cast("Any", None))
    routes = {f"{method.upper()} {path}" for path, methods in app.openapi()["paths"].items() for method in methods}
    listed = set(re.findall(r"^\| `([A-Z]+ /[^`]*)` \|", README, re.MULTILINE))
    assert listed == routes


@pytest.mark.parametrize("text", PYTHON)
def test_the_python_code_of_the_readme_runs(text: str, tmp_path: Path) -> None:
    command = [sys.executable, "-W", "error", "-c", text]
    done = subprocess.run(command, cwd=tmp_path, env=environment(), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_the_curl_lines_of_the_readme_work(adult_server: Running, tmp_path: Path) -> None:
    assert sum(block.count("curl ") for block in CURL) >= 14
    script = f'set -e\noubli() {{ "{sys.executable}" -m app "$@"; }}\n'
    script += 'curl() { command curl --silent --show-error --fail-with-body --max-time 60 "$@"; echo; }\n'
    script += "".join(CURL).replace("http://127.0.0.1:8000", adult_server.url)
    command = ["bash", "-c", script]
    done = subprocess.run(command, cwd=tmp_path, env=environment(), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert '"predictions"' in done.stdout
    assert '"unlearned":1' in done.stdout.replace(" ", "")


def test_the_command_lines_of_the_readme_work(tmp_path: Path) -> None:
    blocks = [text for kind, text in BLOCKS if kind == "console" and text.startswith("oubli fit")]
    assert len(blocks) == 2
    (tmp_path / "examples").mkdir()
    (tmp_path / "examples" / EXAMPLE.name).symlink_to(EXAMPLE)
    script = f'set -e\noubli() {{ "{sys.executable}" -m app "$@"; }}\n{"".join(blocks)}'
    done = subprocess.run(
        ["bash", "-c", script],
        cwd=tmp_path,
        env=environment(OUBLI_N_ESTIMATORS="5"),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("prediction,probability of <=50K,probability of >50K\n")
    assert "\neffect,id,score\nhelps," in done.stdout
    assert "exactly what training on its 32,561 samples gives" in done.stderr


def test_links_to_files_lead_somewhere() -> None:
    for document in ("README.md", "ARCHITECTURE.md", "CHANGELOG.md", "examples/README.md"):
        path = ROOT / document
        for target in re.findall(r"\]\(([^)#:]+)\)", path.read_text(encoding="utf-8")):
            assert (path.parent / target).exists(), f"{document} links to {target}"


def test_the_example_is_attributed() -> None:
    text = (ROOT / "examples" / "README.md").read_text(encoding="utf-8")
    for part in ("Becker", "Kohavi", "1996", "10.24432/C5XW20", "CC BY 4.0", "UCI Machine Learning Repository"):
        assert part in text


def test_the_make_targets_that_the_readme_names_are_there() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    targets = set(re.findall(r"^([a-z-]+):", makefile, re.MULTILINE))
    assert set(re.findall(r"`make ([a-z-]+)`", README)) <= targets
    assert os.access(ROOT / ".ci" / "run", os.X_OK)
