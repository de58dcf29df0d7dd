"""`oubli ledger`: download and check a ledger, check a receipt, rotate and destroy the ledger's keys."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from oubli.app.cli.console import complain, tell
from oubli.app.cli.options import FAILED, LOCAL, Command, Force, ReadKeyFile, ServerUrl, require_new, takes, writing
from oubli.app.cli.proofs import disclosure_line
from oubli.app.cli.remote import asking
from oubli.app.errors import StartError
from oubli.app.settings import Settings

if TYPE_CHECKING:
    from oubli.app.ledger.keys import LedgerKeys

_PAGE = 1000  # entries a line
LedgerFile = Annotated[Path, typer.Argument(metavar="FILE", help="Where to write the ledger, one page a line.")]

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
        Path | None, typer.Option(metavar="FILE", help="Receipt to check against the ledger, unchanged.")
    ] = None,
    keys: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Answer of GET /ledger/keys to trust instead of the keys in the ledger."),
    ] = None,
    since: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Checkpoint of the log that was kept: the ledger must continue it."),
    ] = None,
    policy: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Trusted keys for the checkpoint (tlog-policy).")
    ] = None,
) -> None:
    """Check a ledger without its server. Exit code 0: it is correct; 1: it is not; 2: a file cannot be read."""
    from oubli.app.ledger.downloads import (
        ReceiptError,
        check_ledger,
        check_receipt,
        read_lines,
        read_object,
        read_public_keys,
    )
    from oubli.app.ledger.entries import ChainError

    content = None if receipt is None else read_object(receipt)
    trusted = None
    if keys is not None:
        trusted = read_public_keys(read_object(keys))
        if trusted is None:
            raise StartError(f"{keys} is not an answer of GET /ledger/keys")
    try:
        ledger = check_ledger(read_lines(file))
    except ChainError as error:
        complain(f"the ledger is wrong at entry {error.index}: it {error.rule}")
        raise typer.Exit(FAILED) from None
    span = "" if ledger.first_at is None else f", from {ledger.first_at} to {ledger.last_at}"
    typer.echo(f"{ledger.head.index} entries{span}")
    typer.echo(f"{ledger.n_erasures} erasures, {ledger.n_erased} of them erased from all files")
    typer.echo(f"newest entry {ledger.head.hash}")
    if content is not None:
        try:
            checked = check_receipt(content, ledger, trusted)
        except ReceiptError as error:
            complain(f"the receipt is wrong: {error}")
            raise typer.Exit(FAILED) from None
        typer.echo(f"receipt signed by key {checked.key_id}, entry {checked.ledger_index}: {checked.status}")
        typer.echo(disclosure_line(checked.disclosure, checked.disclosure_limits))
    if since is not None:
        _check_since(file, since, policy)
    tell(
        "Proved: since the newest entry was written, none of these entries was changed, removed, moved or inserted. "
        "Not proved: that no entry was cut off at the end (a receipt that names a later entry shows it), that the "
        "operator has not rewritten the whole ledger (compare with a hash or receipt kept elsewhere), and that the "
        "server did what it wrote."
    )


def _check_since(file: Path, since: Path, policy: Path | None) -> None:
    from oubli.app.cli.proofs import checking, policy_in, read_text
    from oubli.app.ledger.downloads import read_lines
    from oubli.verifier import check_since, read_checkpoint

    with checking():
        checkpoint = read_checkpoint(read_text(since))
        check_since(read_lines(file), checkpoint, None if policy is None else policy_in(policy))
    typer.echo(f"it continues the checkpoint of {checkpoint.size} entries of the log {checkpoint.origin}")


@ledger_cli.command()
def fetch(
    output: LedgerFile,
    *,
    url: ServerUrl = LOCAL,
    api_key_file: ReadKeyFile = None,
    force: Force = False,
) -> None:
    """Download the whole ledger with keyed hashes and its signed end, as `oubli serve --ledger` needs it.

    With the hashing key, the hashes lead from a name to its erasures: keep the file as safe as a backup.
    """
    from oubli.client.operations.requests import object_of, reading

    require_new(output, force)
    with asking(url, api_key_file) as client:
        asked = partial(reading, "/ledger")
        _write(output, lambda after: object_of(client.transport.run(client.session.ask(asked(cursor=after)))))


@ledger_cli.command(cls=Command)
@takes("config", "data_dir", "key_dir", "journal", "accept_missing")
def export(settings: Settings, *, output: LedgerFile, force: Force = False) -> None:
    """Write the whole ledger of a stopped server into a file, as `fetch` does for a running one."""
    from oubli.app.ledger.database import LEDGER_NAME
    from oubli.app.service.build import directory_of
    from oubli.app.service.recovery.start import LedgerChoice, fold_journal, require_keys

    require_new(output, force)
    if not (settings.data_dir / LEDGER_NAME).is_file():
        raise StartError(f"{settings.data_dir} holds no ledger: name the data directory of a server with --data-dir")
    opened = directory_of(settings)  # refuses while a server runs
    try:
        choice = LedgerChoice(accept_missing_keys=settings.accept_missing_keys)
        require_keys(opened.database, opened.storage.journal, opened.keys, choice)
        fold_journal(opened.database, opened.storage.journal)
        _write(output, lambda after: opened.database.page(int(after), _PAGE, signs=True))
    finally:
        opened.close()


def _write(output: Path, page_after: Callable[[str], dict[str, Any]]) -> None:
    """Write the pages of a ledger into a file that is there when all of it is, with its signed end."""
    import orjson

    n_entries = 0
    cursor: str | None = "0"
    unfinished = output.with_name(output.name + ".part")
    try:
        with writing(output), unfinished.open("wb") as file:
            while cursor is not None:
                page = page_after(cursor)
                n_entries += len(page.get("entries", []))
                file.write(orjson.dumps(page) + b"\n")
                cursor = page.get("next")
            if page.get("checkpoint") is None:
                raise StartError(
                    f"{output} is not written, because the end of the ledger is not signed: name the node that leads "
                    "with --url, and see `changes_stopped` in GET /model"
                )
            unfinished.replace(output)
    finally:
        unfinished.unlink(missing_ok=True)
    tell(f"Wrote {n_entries} entries to {output}.")


@ledger_cli.command("rotate-keys")
@takes("config", "data_dir", "key_dir")
def rotate_keys(
    settings: Settings,
    *,
    kind: Annotated[KeyKind, typer.Argument(help="The key that signs receipts, or the one that hashes ids.")],
) -> None:
    """Make a new key and retire the old one. The server must be stopped; it uses the new key from its next start on.

    The public half of a retired signing key stays, so that old receipts can be checked. A retired hashing key stays, so
    that a restore recognises samples that were erased under it; see `destroy-key`.
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
    key_id: Annotated[
        str, typer.Argument(metavar="ID", help="Id of a retired hashing key: its file is hashing-ID.key.")
    ],
) -> None:
    """Destroy a retired hashing key, so that its hashes can no longer be linked to names. The server must be stopped.

    This is refused while the data directory has a snapshot from the time of the key. Downloaded snapshots from that
    time can never be restored again.
    """
    with _keys_of(settings) as (keys, _, oldest_ms):
        keys.destroy_hashing_key(key_id, oldest_ms)
    tell(f"Hashing key {key_id} is destroyed. Destroy its backups too.")


@contextmanager
def _keys_of(settings: Settings) -> Iterator[tuple[LedgerKeys, int, int | None]]:
    """Return the keys of a stopped server, the latest time in its ledger, and the time of its oldest snapshot."""
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
