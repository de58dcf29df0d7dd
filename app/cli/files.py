"""Files that commands read and write, and the options that name them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer

from oubli.app.errors import StartError


def key_option(text: str) -> Any:
    """Return the option that names the file of a server's key; `text` is its help."""
    return typer.Option(metavar="FILE", envvar="OUBLI_API_KEY_FILE", help=text)


ApiKeyFile = Annotated[Path | None, key_option("File that holds the server's key.")]
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
