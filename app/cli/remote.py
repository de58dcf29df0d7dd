"""A running server, as the command line asks it: a client whose errors are told as those of the command line."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from oubli.app.cli.files import read_api_key
from oubli.app.errors import StartError

if TYPE_CHECKING:
    from oubli.client import Client

_TIMEOUT_SECONDS = 600  # a snapshot of a large model is long work
_REPETITIONS = 2  # a person who waits is told soon


@contextmanager
def asking(url: str, key_file: Path | None = None, retries: int = _REPETITIONS) -> Iterator[Client]:
    """Give a client of a server until the end of the block.

    Parameters
    ----------
    url
        Of the server.
    key_file
        That holds its key.
    retries
        How often a request is sent again.

    Raises
    ------
    StartError
        When the extra is not installed, the address or the key file cannot be used, the server cannot be reached, or
        its answer is an error.
    """
    try:
        from oubli.client import Client, ClientError, NoAnswerError, NotLeaderError, ProblemError
    except ImportError as error:
        raise StartError(str(error)) from None
    key = None if key_file is None else read_api_key(key_file)
    try:
        client = Client(url, key, timeout=_TIMEOUT_SECONDS, retries=retries)
    except ValueError as error:
        raise StartError(str(error)) from None
    try:
        with client:
            yield client
    except NotLeaderError as error:
        remedy = "try again" if error.leader is None else f"name it with --url {error.leader}"
        raise StartError(f"{url} is not the node that takes changes: {remedy}") from None
    except ProblemError as error:
        raise StartError(f"{url} answered {error.status}: {error.detail or error.title}") from None
    except NoAnswerError as error:
        remedy = "try again" if error.may_have_been_applied else "start it, or name it with --url"
        raise StartError(f"{error}: {remedy}") from None
    except ClientError as error:
        raise StartError(str(error)) from None
