"""Turns settings into flags, so that a setting is written down once, in `oubli.app.settings`.

A command says which settings it takes and gets the loaded `Settings`:

    @takes("data", "target")
    def fit(settings: Settings, output: Annotated[Path, typer.Option()]) -> None: ...

Every flag's default is "not given": what is not given comes from the environment or the settings file.
"""

import functools
import inspect
from collections.abc import Callable
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, Union, get_args, get_origin, get_type_hints

import typer

from oubli.app.settings import ENV_PREFIX, GROUPS, Settings, flag_name, load_settings


def takes(*fields: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Give a command the flags of some settings, and call it with the settings loaded from all sources."""

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        own = [p for p in inspect.signature(command).parameters.values() if p.name != "settings"]
        hints = get_type_hints(command, include_extras=True)
        parameters = [p.replace(annotation=hints[p.name], kind=inspect.Parameter.KEYWORD_ONLY) for p in own]
        parameters += [_parameter(field) for field in fields]

        @functools.wraps(command)
        def run(**given: Any) -> None:
            flags = {field: _not_empty(given.pop(field)) for field in fields}
            command(load_settings(**flags), **given)

        run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        run.__annotations__ = {p.name: p.annotation for p in parameters}
        return run

    return decorate


def _parameter(field: str) -> inspect.Parameter:
    info = Settings.model_fields[field]
    flag = flag_name(field)
    kind = _flag_type(info.annotation)
    default = info.get_default()
    names = [f"{flag}/--no-{flag.removeprefix('--')}"] if kind is bool else [flag]
    if field == "trusted_proxies":
        names.append("--trusted-proxies")  # its name before
    option = typer.Option(
        *names,
        help=f"{info.description} ({ENV_PREFIX}{field.upper()})",
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
    if field in ("target", "id_column", "subject_column", "expiry_column", "drop", "categorical"):
        return "COLUMN"
    return "DIR" if field.endswith("_dir") else "TEXT"


def _not_empty(value: Any) -> Any:
    """A flag that can be repeated is an empty list when it was not given."""
    if isinstance(value, list):
        return tuple(value) or None
    return value
