"""`oubli remove-node`: a node that is gone for good is no part of the cluster any more."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from oubli.app.cli.console import tell, warn
from oubli.app.cli.files import key_option


def remove_node(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Name of the node, as GET /cluster shows it.")],
    *,
    url: Annotated[str, typer.Option("--url", metavar="URL", help="Of the node that leads.")] = "http://127.0.0.1:8000",
    api_key_file: Annotated[Path | None, key_option("File that holds a key with the scope `admin`.")] = None,
) -> None:
    """Remove a node that is gone for good from its cluster. Needs the extra `client`.

    The node must be stopped, and expelled: that takes `member_timeout` from when it was heard of last. The ledger notes
    the removal. Receipts say nothing of that machine's disk any more: wipe it.
    """
    from oubli.app.cli.remote import asking

    with asking(url, api_key_file) as client:
        cluster = client.remove_node(name)
    tell(f"Removed {name}. The cluster has now: {', '.join(one.name for one in cluster.nodes)}.")
    warn(f"wipe the disk of {name}: it holds what the model held, also what receipts call `erased`")
