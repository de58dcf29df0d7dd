"""`oubli ledger`: check a downloaded ledger and a receipt, rotate and destroy the ledger's keys."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from oubli.app.cli.console import complain, tell
from oubli.app.cli.files import ReadKeyFile
from oubli.app.cli.options import takes
from oubli.app.errors import StartError
from oubli.app.settings import Settings

if TYPE_CHECKING:
    from oubli.app.ledger.keys import LedgerKeys

WRONG = 1

ledger_cli = typer.Typer(
    name="ledger",
    help="Check a downloaded audit ledger; rotate and destroy its keys.",
    no_args_is_help=True,
)


class KeyKind(StrEnum):
    """Which key."""

    SIGNING = "signing"
    HASHING = "hashing"


@ledger_cli.command()
def verify(
    file: Annotated[
        Path, typer.Argument(metavar="FILE", help="Ledger: entries or pages of GET /ledger, one JSON object a line.")
    ],
    *,
    receipt: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Receipt to check against the ledger, as it was answered.")
    ] = None,
    keys: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Answer of GET /keys to trust instead of the keys in the ledger."),
    ] = None,
    since: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Checkpoint of the log that was kept: the ledger must go on from it."),
    ] = None,
    policy: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Keys that the checkpoint is checked with (tlog-policy).")
    ] = None,
) -> None:
    """Check a ledger without its server: exit 0 when all is well, 1 when not, 2 when a file cannot be read."""
    from oubli.app.ledger.downloads import read_lines, read_object
    from oubli.app.ledger.entries import ChainError
    from oubli.app.ledger.verify import ReceiptError, check_ledger, check_receipt, read_public_keys

    content = None if receipt is None else read_object(receipt)
    trusted = None
    if keys is not None:
        trusted = read_public_keys(read_object(keys))
        if trusted is None:
            raise StartError(f"{keys} is not an answer of GET /keys")
    try:
        ledger = check_ledger(read_lines(file))
    except ChainError as error:
        complain(f"the ledger is wrong at entry {error.index}: it {error.rule}")
        raise typer.Exit(WRONG) from None
    span = "" if ledger.first_at is None else f", from {ledger.first_at} to {ledger.last_at}"
    typer.echo(f"{ledger.head.index} entries{span}")
    typer.echo(f"{ledger.n_erasures} erasures, {ledger.n_erased} of them erased from all files")
    typer.echo(f"newest entry {ledger.head.hash}")
    if content is not None:
        try:
            checked = check_receipt(content, ledger, trusted)
        except ReceiptError as error:
            complain(f"the receipt is wrong: {error}")
            raise typer.Exit(WRONG) from None
        typer.echo(f"receipt signed by key {checked.key_id}, entry {checked.ledger_index}: {checked.status}")
    if since is not None:
        _check_since(file, since, policy)
    tell(
        "Proved: none of these entries was altered, removed, moved or put in between since the newest was made. Not "
        "proved: that none was cut off at the end (a receipt that names a later entry shows it), that whoever runs "
        "the server has not made the whole anew (compare with a hash or receipt kept elsewhere), and that the server "
        "did what it wrote."
    )


def _check_since(file: Path, since: Path, policy: Path | None) -> None:
    from oubli.app.cli.proofs import checking, policy_in, read_text
    from oubli.app.ledger.downloads import read_lines
    from oubli.verifier import check_since, read_checkpoint

    with checking():
        checkpoint = read_checkpoint(read_text(since))
        check_since(read_lines(file), checkpoint, None if policy is None else policy_in(policy))
    typer.echo(f"it goes on from the checkpoint of {checkpoint.size} entries of the log {checkpoint.origin}")


@ledger_cli.command()
def fetch(
    output: Annotated[Path, typer.Argument(metavar="FILE", help="Where to write the ledger, a page a line.")],
    *,
    url: Annotated[str, typer.Option("--url", metavar="URL", help="Of the server.")] = "http://127.0.0.1:8000",
    api_key_file: ReadKeyFile = None,
    force: Annotated[bool, typer.Option("--force", help="Overwrite the file.")] = False,
) -> None:
    """Download the ledger with the keyed hashes that belong to it, which `oubli serve --ledger` needs.

    They lead whoever has the hashing key from a name to its erasures: keep the file as safe as a backup.
    """
    import orjson

    from oubli.app.cli.remote import asking
    from oubli.client.operations.requests import object_of, reading

    if output.exists() and not force:
        raise StartError(f"{output} is there: give another name, or --force")
    n_entries = 0
    cursor: str | None = "0"
    with asking(url, api_key_file) as client:
        try:
            with output.open("wb") as file:
                while cursor is not None:
                    answer = client.transport.run(client.session.ask(reading("/ledger", cursor=cursor)))
                    page = object_of(answer)
                    n_entries += len(page.get("entries", []))
                    file.write(orjson.dumps(page) + b"\n")
                    cursor = page.get("next")
        except OSError as error:
            raise StartError(f"{output} cannot be written: {error.strerror}") from None
    tell(f"Wrote {n_entries} entries to {output}.")


@ledger_cli.command("rotate-keys")
@takes("config", "data_dir", "key_dir")
def rotate_keys(
    settings: Settings,
    *,
    kind: Annotated[KeyKind, typer.Argument(help="The key that signs receipts, or the one that ids are hashed under.")],
) -> None:
    """Make a new key and retire the old one. The server must be stopped; it uses the new key from its next start on.

    A retired signing key keeps its public half, so that old receipts can be checked. A retired hashing key is kept, so
    that what was erased under it is known at a restore; see `destroy-key`.
    """
    with _keys_of(settings) as (keys, highest_ms, _):
        new = keys.rotate(kind.value, highest_ms)
    tell(f"The old {kind.value} key is retired. The new one, used from the next start on:")
    typer.echo(new)


@ledger_cli.command("destroy-key")
@takes("config", "data_dir", "key_dir")
def destroy_key(
    settings: Settings,
    *,
    key_id: Annotated[str, typer.Argument(metavar="ID", help="Of a retired hashing key: its file is hashing-ID.key.")],
) -> None:
    """Destroy a retired hashing key, so that nobody can tell whom its hashes are of. The server must be stopped.

    Refused while a snapshot from its time can be restored from the data directory. Snapshots from its time that were
    downloaded can never be restored again.
    """
    with _keys_of(settings) as (keys, _, oldest_ms):
        keys.destroy_hashing_key(key_id, oldest_ms)
    tell(f"Hashing key {key_id} is destroyed. Destroy its backups too.")


@contextmanager
def _keys_of(settings: Settings) -> Iterator[tuple[LedgerKeys, int, int | None]]:
    """Give the keys of a stopped server, the highest time in its ledger, and when its oldest snapshot was written."""
    from oubli.app.ledger.database import LEDGER_NAME, LedgerDatabase
    from oubli.app.ledger.keys import KEYS_NAME, LedgerKeys
    from oubli.app.storage.directory import DataDirectory
    from oubli.app.storage.snapshots import SnapshotStore

    path = settings.data_dir
    if not (path / LEDGER_NAME).is_file():
        raise StartError(f"{path} holds no ledger: name the data directory of a server with --data-dir")
    directory = DataDirectory(path)  # refuses while a server runs
    try:
        keys = LedgerKeys(settings.key_dir or path / KEYS_NAME, complete=False)
        store = LedgerDatabase(path / LEDGER_NAME, keys)
        try:
            keys.require(store.named_keys())
            keys.complete()
            highest_ms = store.highest_ms() or 0
        finally:
            store.close()
        oldest = SnapshotStore(directory).oldest_at()
        yield keys, highest_ms, None if oldest is None else int(oldest.timestamp() * 1000)
    finally:
        directory.close()
