"""What commands share: flags made from settings, options that name files and servers, and exit codes.

A command says which settings it takes and gets the loaded `Settings`:

    @takes("data", "target")
    def fit(settings: Settings, output: Annotated[Path, typer.Option()]) -> None: ...

Every flag's default is "not given": what is not given comes from the environment or the settings file. So a setting is
written down once, in `oubli.app.settings`.
"""

from __future__ import annotations

import functools
import inspect
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, Union, get_args, get_origin, get_type_hints

import typer
from rich.console import Console
from rich.table import Table
from typer.core import TyperCommand

from oubli.app.cli.console import warn
from oubli.app.errors import StartError
from oubli.app.settings import (
    ENV_PREFIX,
    GROUPS,
    TABLES,
    Settings,
    flag_name,
    load_settings,
    removal,
    unknown_variables,
)

ESSENTIAL = (
    "config", "target", "id_column", "subject_column", "schema_file", "model", "data_dir", "ephemeral",
    "erasure_deadline", "retention", "host", "port", "api_key_file", "allow_anonymous", "threads",
)  # fmt: skip
"""What `--help` shows of the settings; `--help-all` shows all of them."""

_FIRST_SENTENCE = re.compile(r"[.;] .*", re.DOTALL)


class Command(TyperCommand):
    """A command that says what became of flags of earlier versions."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse the command line; see `settings.REMOVED`."""
        for flag in (one.partition("=")[0] for one in args):
            name = flag.removeprefix("--").removeprefix("no-").replace("-", "_")
            is_known = any(flag in one.opts for one in self.params)
            if flag.startswith("--") and not is_known and (text := removal(name, flag)):
                raise StartError(text)
        return super().parse_args(ctx, args)


def takes(*fields: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Give a command the flags of some settings, and call it with the settings loaded from all sources."""

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        own = [p for p in inspect.signature(command).parameters.values() if p.name != "settings"]
        if "data" in fields:
            own.insert(0, inspect.Parameter("file", inspect.Parameter.KEYWORD_ONLY, default=None, annotation=DataFile))
        hints = get_type_hints(command, include_extras=True)
        hints["file"] = DataFile
        parameters = [p.replace(annotation=hints[p.name], kind=inspect.Parameter.KEYWORD_ONLY) for p in own]
        is_long = len(fields) > len(ESSENTIAL)
        parameters += [_parameter(field, is_long=is_long) for field in fields]
        if is_long:
            parameters.append(_HELP_ALL)

        @functools.wraps(command)
        def run(**given: Any) -> None:
            given.pop("help_all", None)
            flags = {field: _not_empty(given.pop(field)) for field in fields}
            if (file := given.pop("file", None)) is not None:
                if flags["data"] is not None:
                    raise StartError("the data file is named twice: leave --data out")
                flags["data"] = file
            command(load_settings(**flags), **given)

        run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        run.__annotations__ = {p.name: p.annotation for p in parameters}
        return run

    return decorate


def warn_of_unknown_variables() -> None:
    """Name the variables that begin as ours and are no settings, in one warning."""
    if names := unknown_variables():
        warn(f"these variables are no settings and are ignored: {', '.join(names)}")


def _show_all(context: typer.Context, wanted: bool) -> None:
    """Print all settings of a command by group, and the parameters of models as one table."""
    if not wanted:
        return
    console = Console(highlight=False, markup=False, emoji=False)
    console.print(
        f"Each setting is a flag, a variable ({ENV_PREFIX}MAX_ROWS) and a key of the settings file (max_rows)."
    )
    taken = {option.name for option in context.command.params}
    for group, members in GROUPS.items():
        fields = [field for field in members if field in taken]
        if fields:
            console.print(f"\n{group}\n")
            console.print(_table(fields))
    raise typer.Exit


def _table(fields: Sequence[str]) -> Table:
    """Return flags with their defaults and meanings; parameters with the kinds of models that have them."""
    table = Table.grid(padding=(0, 2, 0, 0), expand=False)
    for field in fields:
        info = Settings.model_fields[field]
        default = info.get_default()
        note = kinds_of(field) or ("" if default in (None, ()) else str(default).lower())
        table.add_row(flag_name(field), note, " ".join((info.description or "").split()))
    return table


def kinds_of(field: str) -> str:
    """Return the kinds of models that have a parameter, as text; empty for other settings."""
    return ", ".join(kind for kind, table in TABLES.items() if any(one.name == field for one in table))


_HELP_ALL = inspect.Parameter(
    "help_all",
    inspect.Parameter.KEYWORD_ONLY,
    default=False,
    annotation=Annotated[
        bool, typer.Option("--help-all", callback=_show_all, is_eager=True, help="Show all settings and exit.")
    ],
)


def _parameter(field: str, *, is_long: bool) -> inspect.Parameter:
    info = Settings.model_fields[field]
    text, flag = info.description or "", flag_name(field)
    kind = _flag_type(info.annotation)
    default = info.get_default()
    names = [f"{flag}/--no-{flag.removeprefix('--')}"] if kind is bool else [flag]
    if field == "trusted_proxies":
        names.append("--trusted-proxies")  # its name before
    option = typer.Option(
        *names,
        help=_FIRST_SENTENCE.sub(".", text) if is_long else f"{text} ({ENV_PREFIX}{field.upper()})",
        hidden=is_long and field not in ESSENTIAL,
        show_default=str(default) if default not in (None, (), False) else False,
        metavar=None if kind in (int, float, bool) else _metavar(field),
        rich_help_panel=next(group for group, members in GROUPS.items() if field in members),
    )
    annotation = Annotated[kind | None, option]  # type: ignore[valid-type]
    return inspect.Parameter(field, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=annotation)


def _flag_type(annotation: Any) -> Any:
    """What typer parses; pydantic does the rest, so a union or a choice is a text here."""
    if get_origin(annotation) in (Union, UnionType):
        kinds = [kind for kind in get_args(annotation) if kind is not type(None)]
        return _flag_type(kinds[0]) if len(kinds) == 1 else str
    if get_origin(annotation) is tuple:
        return list[str]
    return annotation if annotation in (int, float, bool, Path) else str


def _metavar(field: str) -> str:
    if field in ("data", "config", "ledger") or field.endswith("_file"):
        return "FILE"
    if field in ("target", "id_column", "subject_column", "expiry_column", "weight_column", "drop", "categorical"):
        return "COLUMN"
    if field == "read":
        return "KEY=VALUE"
    return "DIR" if field.endswith("_dir") else "TEXT"


def _not_empty(value: Any) -> Any:
    """A flag that can be repeated is an empty list when it was not given."""
    if isinstance(value, list):
        return tuple(value) or None
    return value


def key_option(text: str) -> Any:
    """Return the option that names the file of a server's key; `text` is its help."""
    return typer.Option(metavar="FILE", envvar="OUBLI_API_KEY_FILE", help=text)


ApiKeyFile = Annotated[Path | None, key_option("File with the server's key.")]
FAILED = 1  # what was asked for was done, and the answer is no
REFUSED = 2  # it could not be done: wrong input, wrong settings, a file that cannot be read
INTERRUPTED = 130
LOCAL = "http://127.0.0.1:8000"
ServerUrl = Annotated[str, typer.Option("--url", metavar="URL", help="Address of the server.")]
DataFile = Annotated[
    Path | None, typer.Argument(metavar="[FILE]", help="The data file, the same as --data.", show_default=False)
]
Read = Annotated[
    list[str] | None,
    typer.Option(metavar="KEY=VALUE", help="How the data file is written, where the guess is wrong: delimiter=';' ..."),
]
Output = Annotated[Path | None, typer.Option("--output", "-o", metavar="FILE", help="Write to this file.")]
Force = Annotated[bool, typer.Option("--force", help="Overwrite files that are there.")]
ReadKeyFile = Annotated[Path | None, typer.Option(metavar="FILE", help="File with a key of the scope 'read'.")]


def read_api_key(file: Path) -> str:
    """Return the key that a file holds."""
    try:
        return file.read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError):
        raise StartError(f"the key file {file} cannot be read") from None


def require_new(output: Path | None, force: bool) -> None:
    """Refuse to overwrite a file unless that is asked for; None: nothing is written."""
    if output is not None and output.exists() and not force:
        raise StartError(f"{output} is there already: choose another name, or overwrite it with --force")


@contextmanager
def writing(output: Path) -> Iterator[None]:
    """Say of what cannot be written that it cannot."""
    try:
        yield
    except OSError as error:
        raise StartError(f"{output} cannot be written: {error.strerror or error}") from None
