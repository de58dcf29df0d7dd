"""`oubli erase`: erase long lists of ids or subjects from a running server."""

from __future__ import annotations

import io
import stat
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TextIO

import orjson
import typer

from oubli.app.cli.console import Bars, tell, warn
from oubli.app.cli.files import key_option
from oubli.app.cli.name_list import COLUMNS, read_names
from oubli.app.errors import StartError

if TYPE_CHECKING:
    from oubli.app.cli.erasure_report import Report
    from oubli.app.ledger.entries import By
    from oubli.client import Client

INTERRUPTED = 130
STDIN = Path("-")
_RETRIES = 8  # of one request: a server may be busy, or restart


def erase(
    *,
    url: Annotated[str, typer.Option(help="Address of the server.")] = "http://127.0.0.1:8000",
    file: Annotated[
        Path,
        typer.Option(
            "--file",
            metavar="FILE",
            help="List of what to erase, `-` for standard input: a name a line, or CSV with a header that has a column "
            "`id` (`subject` with --subjects).",
        ),
    ],
    subjects: Annotated[bool, typer.Option("--subjects", help="The names are subjects, not ids of samples.")] = False,
    column: Annotated[
        str | None,
        typer.Option("--column", metavar="COLUMN", help="Column that holds the names, when it has another name."),
    ] = None,
    ref: Annotated[
        str | None, typer.Option(metavar="UUID", help="Case number that all receipts carry; no personal data.")
    ] = None,
    report: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Report to write, with a line for each name: CSV, or JSON lines when it ends with .json, .jsonl or "
            ".ndjson. By default FILE.report.csv beside the list. A journal, FILE.journal, is kept beside it.",
        ),
    ] = None,
    batch_size: Annotated[
        int, typer.Option(min=1, max=100_000, help="Names in one request, each of which gives one receipt.")
    ] = 1000,
    api_key_file: Annotated[Path | None, key_option("File that holds a key with the scope `erase`.")] = None,
) -> None:
    """Erase a list of ids or subjects from a running server, and report what became of each.

    Interrupted, or killed, it goes on when the same command is started again: nothing is erased or written to the
    ledger twice. Report and journal identify people: only you may read them, and you should remove them when they have
    served. Needs the extra `client`. Exits with 0 when every name was answered, 2 when something is
    wrong, 130 when it was interrupted.
    """
    from oubli.app.cli.erasure_report import Report, Task
    from oubli.app.cli.remote import asking

    by: By = "subjects" if subjects else "ids"
    if report is None:
        if file == STDIN:
            raise StartError("names come from standard input: say with --report FILE where the report is to be written")
        report = file.with_name(f"{file.name}.report.csv")
    total = _count(file, by, column)
    go_on = f"What was answered is in {report}: start the same command again to go on."
    with Report(report, Task(url, by, ref, batch_size)) as written:
        try:
            if written.is_begun and not written.progress.done:
                tell(f"Going on after {written.progress.named:,} names.")
            with Bars() as progress, _opened(file) as lines, asking(url, api_key_file, retries=_RETRIES) as client:
                names = read_names(lines, by, column, _place(file))
                for named in _erased(client, written, names, report):
                    progress(f"erasing {by}", named, total)
        except KeyboardInterrupt:
            warn(f"interrupted. {go_on}")
            raise typer.Exit(INTERRUPTED) from None
        except StartError as error:
            raise StartError(f"{error}. {go_on}" if written.is_begun else str(error)) from None
        found = written.progress
    kept = "It identifies people, as does the journal beside it: remove both when they have served."
    tell(f"Wrote {report}. {kept}")
    totals = {name: asdict(found)[name] for name in ("named", "held", "samples", "receipts")}
    typer.echo(orjson.dumps(totals).decode())


def _erased(client: Client, report: Report, names: Iterator[str], path: Path) -> Iterator[int]:
    """Have names erased batch by batch, those that were answered before aside, and yield how many are done."""
    from oubli.app.cli.erasure_report import NameDigest

    task, digest, done = report.task, NameDigest(), report.progress
    another = StartError(
        f"{path} was begun with another list of names: give that again, or name another file with --report to begin "
        "anew"
    )
    for _ in range(done.batches):
        digest.take(list(islice(names, task.batch_size)))
    if done.batches and digest.text() != done.digest:
        raise another
    if done.done:
        if next(names, None) is not None:
            raise another
        tell("It was finished before: the server is not asked again.")
        return
    while batch := list(islice(names, task.batch_size)):
        digest.take(batch)
        ids, subjects = (batch, None) if task.by == "ids" else (None, batch)
        key = report.key_of_next()
        deletion = client.delete_listing(ids, subjects=subjects, ref=task.ref, idempotency_key=key)
        report.add(batch, deletion, digest)
        yield report.progress.named
    if not report.progress.named:
        raise StartError(f"the list holds no {COLUMNS[task.by]}: there is nothing to erase")
    report.end()


def _count(file: Path, by: By, column: str | None) -> int:
    """Check every name of a file before the first is sent, and return how many there are; 0 for what is no file."""
    if file == STDIN or not stat.S_ISREG(_mode(file)):
        return 0
    with _opened(file) as lines:
        return sum(1 for _ in read_names(lines, by, column, _place(file)))


def _mode(file: Path) -> int:
    try:
        return file.stat().st_mode
    except OSError as error:
        raise StartError(f"{file} cannot be read: {error.strerror or error}") from None


@contextmanager
def _opened(file: Path) -> Iterator[TextIO]:
    """Open a list, or lend standard input."""
    if file == STDIN:
        lines = io.TextIOWrapper(sys.stdin.buffer, encoding="utf-8-sig", newline="")
        try:
            yield lines
        finally:
            lines.detach()
        return
    try:
        opened = file.open(encoding="utf-8-sig", newline="")
    except OSError as error:
        raise StartError(f"{file} cannot be read: {error.strerror or error}") from None
    with opened:
        yield opened


def _place(file: Path) -> str:
    return "standard input" if file == STDIN else str(file)
