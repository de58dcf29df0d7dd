"""`oubli keys`: make, list and revoke the keys of a data directory, whether its server runs or not."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer

from oubli.app.access.keys import AccessKey, KeyFileError, create_key, is_name, now_ms, read_keys, revoke_key
from oubli.app.access.scopes import SCOPES
from oubli.app.cli.console import tell
from oubli.app.cli.options import takes
from oubli.app.errors import StartError
from oubli.app.settings import Settings
from oubli.app.storage.directory import make_directory
from oubli.app.times import TimeError, parse_future, parse_period, to_text

keys_cli = typer.Typer(
    name="keys",
    help="Make, list and revoke the keys that callers of a server send.",
    no_args_is_help=True,
)


@keys_cli.command()
@takes("config", "data_dir")
def create(
    settings: Settings,
    *,
    scopes: Annotated[
        str,
        typer.Option(  # some versions of Typer take the metavar for the flag of a required option without a name
            "--scopes", metavar="SCOPES", help=f"What the key allows, with commas: {', '.join(SCOPES)} (all of them)."
        ),
    ],
    name: Annotated[
        str, typer.Option(metavar="TEXT", help="What the key is for: letters, digits, '.', '_', '-'; no personal data.")
    ] = "unnamed",
    expires: Annotated[
        str | None,
        typer.Option(
            metavar="TIME", help="When it expires: 90d, 12h, or a time such as 2030-01-31T12:00:00Z; by default never."
        ),
    ] = None,
) -> None:
    """Make a key and write it to stdout. It is shown only once: the data directory stores its hash."""
    chosen = _scopes(scopes)
    if not is_name(name):
        raise StartError("--name must be 1 to 64 letters, digits, '.', '_' or '-'")
    expires_ms = None if expires is None else _end(expires)
    path = _path(settings)
    with _file_errors(path):
        make_directory(path.parent)
        key, text = create_key(path, name=name, scopes=chosen, expires_ms=expires_ms)
    until = "it does not expire" if key.expires_ms is None else f"it expires at {to_text(key.expires_ms)}"
    tell(f"Key {key.id} ({', '.join(key.scopes)}); {until}. It is shown once:")
    typer.echo(text)


@keys_cli.command("list")
@takes("config", "data_dir")
def list_keys(settings: Settings) -> None:
    """List the keys: id, state, scopes, time of creation, time of expiry, name."""
    path = _path(settings)
    with _file_errors(path):
        keys = read_keys(path)
    if not keys:
        tell(f"{path.parent} has no keys yet: `oubli keys create` makes one.")
    now = now_ms()
    for key in keys:
        end = "never" if key.expires_ms is None else to_text(key.expires_ms)
        line = (key.id, _state(key, now), ",".join(key.scopes), to_text(key.created_ms), end, key.name)
        typer.echo("\t".join(line))


@keys_cli.command()
@takes("config", "data_dir")
def revoke(
    settings: Settings, *, key_id: Annotated[str, typer.Argument(metavar="ID", help="Id from `oubli keys list`.")]
) -> None:
    """Revoke a key: a running server refuses it within a second."""
    path = _path(settings)
    with _file_errors(path):
        key = revoke_key(path, key_id) if path.exists() else None
    if key is None or key.revoked_ms is None:
        raise StartError(f"{path.parent} has no key with this id: `oubli keys list` shows all")
    tell(f"Key {key.id} is revoked since {to_text(key.revoked_ms)}.")


def _path(settings: Settings) -> Path:
    path = settings.access_keys_path
    if path is None:
        raise StartError("ephemeral servers have no data directory to keep keys in: use api_key_file (--api-key-file)")
    return path


def _scopes(text: str) -> set[str]:
    chosen = {part.strip() for part in text.split(",") if part.strip()}
    if not chosen or not chosen.issubset(SCOPES):
        raise StartError(f"--scopes must name one or more of {', '.join(SCOPES)}, with commas between them")
    return chosen


def _end(text: str) -> int:
    now = now_ms()
    try:
        if "T" in text.upper():
            return parse_future(text, now)
        return now + parse_period(text)
    except TimeError as error:
        raise StartError(f"--expires {error.rule}") from None


def _state(key: AccessKey, now: int) -> str:
    if key.revoked_ms is not None:
        return "revoked"
    return "live" if key.is_live(now) else "expired"


@contextmanager
def _file_errors(path: Path) -> Iterator[None]:
    try:
        yield
    except KeyFileError as error:
        raise StartError(str(path.parent / str(error))) from None
    except OSError as error:
        raise StartError(f"{path} cannot be written: {error.strerror}") from None
