"""Commands for a running server, and the client that they share; its errors become errors of the command line."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from oubli.app.cli.console import tell, warn
from oubli.app.cli.options import (
    LOCAL,
    ApiKeyFile,
    Force,
    Output,
    ServerUrl,
    key_option,
    read_api_key,
    require_new,
    writing,
)
from oubli.app.errors import StartError

if TYPE_CHECKING:
    from oubli.client import Client


_TIMEOUT_SECONDS = 600  # a snapshot of a large model takes minutes
_REPETITIONS = 2  # a person is waiting

cluster_cli = typer.Typer(help="Manage the nodes of a cluster.", no_args_is_help=True)


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


def snapshot(
    *,
    url: ServerUrl = LOCAL,
    output: Output = None,
    force: Force = False,
    api_key_file: ApiKeyFile = None,
) -> None:
    """Let a running server write a snapshot now; --output downloads it. Needs the extra `client`."""
    require_new(output, force)
    with asking(url, api_key_file) as client:
        written = client.snapshot()
        tell(f"Snapshot {written.id} of model version {written.model_version}: {written.bytes:,} bytes.")
        typer.echo(written.digest)
        if output is None:
            return
        with writing(output):
            size = client.download_snapshot(output)
        tell(f"Downloaded {size:,} bytes to {output}. It holds the samples: keep it as safe as the data.")


@cluster_cli.command("remove")
def remove(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Name of the node, as GET /cluster shows it.")],
    *,
    url: Annotated[str, typer.Option("--url", metavar="URL", help="Address of the node that leads.")] = LOCAL,
    api_key_file: Annotated[Path | None, key_option("File that holds a key with the scope `admin`.")] = None,
) -> None:
    """Remove a node that is gone for good from its cluster. Needs the extra `client`.

    Stop the node first, and wait until it is expelled: `member_timeout` seconds after its last report. The ledger
    records the removal. Receipts no longer cover the disk of that machine: wipe it.
    """
    with asking(url, api_key_file) as client:
        cluster = client.remove_node(name)
    tell(f"Removed {name}. The cluster has now: {', '.join(one.name for one in cluster.nodes)}.")
    warn(f"wipe the disk of {name}: it holds what the model held, also what receipts call `erased`")
