"""`oubli erase`: erase long lists of ids or subjects from a running server, with a report that a later run continues.

    ids.csv.report.csv           a line for each name: whether it was held, how many samples, receipt, deadline
    ids.csv.report.csv.journal   one JSON object a line: what was asked for, then one for each batch that is done

The names are in a file or on standard input, and are read one by one. A batch is sent with a key made of the run and
its number, so the server recognises it when it is sent again. The answer's lines are added to the report, and once they
are on the disk, its line is added to the journal. What the report has beyond the journal is cut off at the next start,
and the batch is sent again under the same key.

Both files identify people. Only their owner may read them.
"""

from __future__ import annotations

import csv
import fcntl
import hashlib
import io
import os
import stat
import sys
import uuid
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from itertools import islice
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Annotated, Any, Self, TextIO

import orjson
import typer

from oubli.app.cli.console import Bars, tell, warn
from oubli.app.cli.options import INTERRUPTED, LOCAL, ServerUrl, key_option
from oubli.app.cli.remote import asking
from oubli.app.datasets.formulas import guarded, unguarded
from oubli.app.errors import StartError
from oubli.app.ledger.entries import By
from oubli.app.storage.directory import flush_directory
from oubli.core.data.values import RefusedError, id_text

if TYPE_CHECKING:
    from oubli.client import Client, ListedDeletion

COLUMNS: dict[By, str] = {"ids": "id", "subjects": "subject"}
VERSION = 1
_JSON_SUFFIXES = frozenset({".json", ".jsonl", ".ndjson"})
_OWNER_ONLY = 0o600
_ANOTHER = "name another file with --report to start over"


@dataclass(frozen=True, slots=True)
class Task:
    """What a run asks for. A run that continues an earlier one must ask for the same.

    Attributes
    ----------
    url, by, ref
        Of which server, by what, and under which case number.
    batch_size
        Names in one request.
    run
        Names the run; it is in the key of each request.
    version
        Of the journal.
    """

    url: str
    by: By
    ref: str | None
    batch_size: int
    run: str = ""
    version: int = VERSION


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a run is.

    Attributes
    ----------
    batches, named
        Requests that were answered, and the names in them.
    held, samples, receipts
        Names of which something was held, samples unlearned, and receipts.
    report_bytes
        Length of the report.
    digest
        Of the names so far.
    done
        Whether all names of the list are among them.
    """

    batches: int = 0
    named: int = 0
    held: int = 0
    samples: int = 0
    receipts: int = 0
    report_bytes: int = 0
    digest: str = ""
    done: bool = False


class Report:
    """Report and journal of a run that begins or continues; `with` closes them.

    Parameters
    ----------
    path
        Of the report: JSON, one object a line, when its name ends with `.json`, `.jsonl` or `.ndjson`, else CSV.
    task
        What is asked for. A journal that is there already decides about the run and the size of batches.

    Attributes
    ----------
    task
        The same, as the journal has it.
    progress
        How far the run is.

    Raises
    ------
    StartError
        When the files belong to another run or are in use, or cannot be written.
    """

    def __init__(self, path: Path, task: Task) -> None:
        self._path = path
        self._journal_path = path.with_name(path.name + ".journal")
        self._as_json = path.suffix.lower() in _JSON_SUFFIXES
        self.task, self.progress = task, Progress()
        self._descriptors: list[int] = []
        try:
            self._open(task)
        except OSError as error:
            self.close()
            raise StartError(f"{path} cannot be written: {error.strerror or error}") from None
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the files."""
        while self._descriptors:
            os.close(self._descriptors.pop())

    @property
    def is_begun(self) -> bool:
        """Whether an earlier process has begun the run."""
        return self.progress.batches > 0

    def key_of_next(self) -> str:
        """Return the idempotency key of the next batch."""
        return f"{self.task.run}-{self.progress.batches}"

    def add(self, names: Sequence[str], deletion: ListedDeletion, digest: str) -> None:
        """Write down what became of a batch; on the disk when this returns.

        Parameters
        ----------
        names
            Of the batch.
        deletion
            The answer.
        digest
            Of all names up to the last of these.
        """
        before, receipt, found = self.progress, deletion.receipt, deletion.found
        lines = self._lines(names, deletion)
        now = replace(
            before,
            batches=before.batches + 1,
            named=before.named + len(names),
            held=before.held + len(found),
            samples=before.samples + sum(found.values()),
            receipts=before.receipts + (receipt.id is not None),
            report_bytes=before.report_bytes + len(lines),
            digest=digest,
        )
        _append(self._report, lines)
        self._note(now)

    def end(self) -> None:
        """Write down that all names are done."""
        self._note(replace(self.progress, done=True))

    # --- the files

    def _open(self, task: Task) -> None:
        is_new = not self._journal_path.exists()
        if is_new and self._path.exists():
            raise StartError(f"{self._path} is there already, and no journal beside it: {_ANOTHER}")
        self._journal = self._opened(self._journal_path)
        try:
            fcntl.flock(self._journal, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise StartError(f"{self._path} is being written by another process: wait for its end") from None
        length = self._read_journal(task)
        os.ftruncate(self._journal, length)
        os.lseek(self._journal, length, os.SEEK_SET)
        if not length:
            self.task = replace(task, run=uuid.uuid4().hex)
            _append(self._journal, orjson.dumps(asdict(self.task)) + b"\n")
        self._report = self._opened(self._path)
        if os.fstat(self._report).st_size < self.progress.report_bytes:
            raise StartError(f"{self._path} is shorter than its journal says: {_ANOTHER}")
        if not self.progress.report_bytes:
            header = self._header()
            os.ftruncate(self._report, 0)
            _append(self._report, header)
            self.progress = replace(self.progress, report_bytes=len(header))
        # What was written without a line of the journal belongs to a batch that is asked for again.
        os.ftruncate(self._report, self.progress.report_bytes)
        os.lseek(self._report, self.progress.report_bytes, os.SEEK_SET)
        if is_new:
            flush_directory(self._path.parent)

    def _opened(self, path: Path) -> int:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, _OWNER_ONLY)
        self._descriptors.append(descriptor)
        os.fchmod(descriptor, _OWNER_ONLY)
        return descriptor

    def _read_journal(self, task: Task) -> int:
        """Read what the journal tells, and return its length up to the last whole line."""
        length = 0
        with os.fdopen(os.dup(self._journal), "rb") as file:
            for line in file:
                if not line.endswith(b"\n"):
                    break  # the process was killed while it wrote
                try:
                    content = orjson.loads(line)
                    if length:
                        self.progress = Progress(**content)
                    else:
                        self.task = Task(**content)
                except (orjson.JSONDecodeError, TypeError):
                    raise StartError(f"{self._journal_path} is no journal of erasures: {_ANOTHER}") from None
                length += len(line)
        if length:
            asked = replace(task, run=self.task.run, batch_size=self.task.batch_size)
            wrong = [name for name, value in asdict(asked).items() if value != getattr(self.task, name)]
            if wrong:
                raise StartError(f"{self._path} was begun with another {wrong[0]}: give the same, or {_ANOTHER}")
        return length

    def _note(self, progress: Progress) -> None:
        _append(self._journal, orjson.dumps(asdict(progress)) + b"\n")
        self.progress = progress

    # --- lines of the report

    def _header(self) -> bytes:
        return b"" if self._as_json else _csv([(COLUMNS[self.task.by], "held", "samples", "receipt", "deadline")])

    def _lines(self, names: Sequence[str], deletion: ListedDeletion) -> bytes:
        """Return what the report says of some names."""
        content, found, column = deletion.receipt.content, deletion.found, COLUMNS[self.task.by]
        receipt, deadline = content.get("id"), content.get("deadline")
        rows = [(name, i in found, found.get(i, 0), receipt, deadline) for i, name in enumerate(names)]
        if not self._as_json:
            return _csv((name, "true" if held else "false", *rest) for name, held, *rest in rows)
        keys = (column, "held", "samples", "receipt", "deadline")
        return b"".join(orjson.dumps(dict(zip(keys, row, strict=True))) + b"\n" for row in rows)


def _csv(rows: Any) -> bytes:
    text = io.StringIO(newline="")
    csv.writer(text, lineterminator="\n").writerows(map(guarded, row) for row in rows)
    return text.getvalue().encode("utf-8")


def _append(descriptor: int, content: bytes) -> None:
    """Write at the end of a file; on the disk when this returns."""
    view = memoryview(content)
    while view:
        view = view[os.write(descriptor, view) :]
    os.fsync(descriptor)


# First lines that are the header of another list, and hardly anybody's name.
_OTHER_HEADERS = frozenset(
    {"id", "ids", "subject", "subjects", "subject_id", "sample", "sample_id", "person", "person_id", "name", "names"}
    | {"email", "e-mail", "mail", "user", "user_id", "username", "customer", "customer_id", "key", "uuid"}
)


def read_names(
    lines: Iterable[str], by: By, column: str | None, place: str, *, has_header: bool = False
) -> Iterator[str]:
    """Yield the names of a list, which is CSV with a header, or has a name a line.

    Without a column the first line is a header when it has a field `id` (or `subject`), in capitals or not; otherwise
    it is a name. What looks like the header of another list is refused: it would be taken for a name.

    Parameters
    ----------
    lines
        Of the file.
    by
        What is named.
    column
        That holds the names; the first line is a header then.
    place
        What the file is called in messages.
    has_header
        Whether the first line is a header in any case.

    Raises
    ------
    StartError
        With the line, the field, the rule and the remedy.
    """
    wanted = column or COLUMNS[by]
    reader = csv.reader(lines, strict=True)
    position: int | None = None
    is_first = True
    try:
        for fields in reader:
            if not fields:
                continue  # a blank line
            if is_first:
                is_first = False
                header = fields if column is not None else [field.strip().casefold() for field in fields]
                if wanted in header:
                    position = header.index(wanted)
                    continue
                if column is not None:
                    raise StartError(f"{place}, line 1: no field of the header is {column!r}: name another --column")
                if len(fields) == 1 and (has_header or header[0] in _OTHER_HEADERS):
                    raise StartError(
                        f"{place}, line 1: this is a header, or looks like one, and not {wanted!r}: name the column "
                        f"with --column, or put a line {wanted!r} above the names; without --subjects the column is "
                        f"{COLUMNS['ids']!r}, with it {COLUMNS['subjects']!r}"
                    )
            where = f"{place}, line {reader.line_num}"
            if position is None and len(fields) > 1:
                raise StartError(
                    f"{where}: it has {len(fields)} fields, and the first line has no field {wanted!r}: name the "
                    "column with --column, or put quotes around a name with a comma"
                )
            yield _name(fields, position or 0, f"{where}, field {wanted!r}")
    except csv.Error as error:
        raise StartError(f"{place}, line {reader.line_num}: it is not CSV ({error}): correct the line") from None
    except UnicodeDecodeError:
        raise StartError(f"{place}, after line {reader.line_num}: it is not UTF-8: convert the file") from None


def _name(fields: list[str], position: int, where: str) -> str:
    if position >= len(fields) or not fields[position]:
        raise StartError(f"{where}: it is empty: fill it in, or remove the line")
    try:
        return id_text(unguarded(fields[position]))
    except RefusedError as error:
        raise StartError(f"{where}: {error.rule}: correct it, or remove the line") from None


NOTHING_HELD = 3
STDIN = Path("-")
_RETRIES = 8  # of one request: a server may be busy, or restart


def erase(
    *,
    url: ServerUrl = LOCAL,
    file: Annotated[
        Path,
        typer.Option(
            "--file",
            metavar="FILE",
            help="List of names to erase, `-` for standard input: one name a line, or CSV with a header that has a "
            "column `id` (`subject` with --subjects). A file that ends with .csv must have the header.",
        ),
    ],
    subjects: Annotated[bool, typer.Option("--subjects", help="The names are subjects, not ids of samples.")] = False,
    column: Annotated[
        str | None,
        typer.Option("--column", metavar="COLUMN", help="Column with the names, if it has another name."),
    ] = None,
    ref: Annotated[
        str | None, typer.Option(metavar="UUID", help="Case number that all receipts carry; no personal data.")
    ] = None,
    report: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Report to write, with a line for each name: CSV, or JSON lines if it ends with .json, .jsonl or "
            ".ndjson. The default is FILE.report.csv beside the list. A journal, FILE.journal, is beside it.",
        ),
    ] = None,
    batch_size: Annotated[
        int, typer.Option(min=1, max=100_000, help="Names in one request; each request gives one receipt.")
    ] = 1000,
    api_key_file: Annotated[Path | None, key_option("File with a key that has the scope `erase`.")] = None,
) -> None:
    """Erase a list of ids or subjects from a running server, and report the outcome of each.

    If it is interrupted or killed, start the same command again: it continues, and nothing is erased or recorded twice.
    Report and journal identify people: only you may read them. Remove them when you no longer need them. Needs the
    extra `client`. Exits with 0 when every name was answered and something was held, 3 when every name was answered and
    nothing was held, 2 on an error, 130 when it was interrupted.
    """
    by: By = "subjects" if subjects else "ids"
    if report is None:
        if file == STDIN:
            raise StartError("names come from standard input: say with --report FILE where the report is to be written")
        report = file.with_name(f"{file.name}.report.csv")
    total = _count(file, by, column)
    go_on = f"What was answered is in {report}: start the same command again to continue."
    with Report(report, Task(url, by, ref, batch_size)) as written:
        try:
            if written.is_begun and not written.progress.done:
                tell(f"Continuing after {written.progress.named:,} names.")
            with Bars() as progress, _opened(file) as lines, asking(url, api_key_file, retries=_RETRIES) as client:
                names = _names(lines, file, by, column)
                for named in _erased(client, written, names, report):
                    progress(f"erasing {by}", named, total)
        except KeyboardInterrupt:
            warn(f"interrupted. {go_on}")
            raise typer.Exit(INTERRUPTED) from None
        except StartError as error:
            raise StartError(f"{error}. {go_on}" if written.is_begun else str(error)) from None
        found = written.progress
    kept = "It identifies people, as does the journal beside it: remove both when you no longer need them."
    tell(f"Wrote {report}. {kept}")
    totals = {name: asdict(found)[name] for name in ("named", "held", "samples", "receipts")}
    typer.echo(orjson.dumps(totals).decode())
    if not found.held:
        warn(f"none of these {by} was held: if you expected some, check the list, --column and --subjects")
        raise typer.Exit(NOTHING_HELD)


def _erased(client: Client, report: Report, names: Iterator[str], path: Path) -> Iterator[int]:
    """Have names erased batch by batch, those that were answered before aside, and yield how many are done."""
    task, digest, done = report.task, hashlib.sha256(), report.progress
    another = StartError(
        f"{path} was begun with another list of names: give that again, or name another file with --report to start "
        "over"
    )
    for _ in range(done.batches):
        digest.update(orjson.dumps(list(islice(names, task.batch_size))))
    if done.batches and digest.hexdigest() != done.digest:
        raise another
    if done.done:
        if next(names, None) is not None:
            raise another
        tell("The list was finished before: nothing is sent.")
        return
    while batch := list(islice(names, task.batch_size)):
        digest.update(orjson.dumps(batch))
        ids, subjects = (batch, None) if task.by == "ids" else (None, batch)
        key = report.key_of_next()
        deletion = client.delete_listing(ids, subjects=subjects, ref=task.ref, idempotency_key=key)
        report.add(batch, deletion, digest.hexdigest())
        yield report.progress.named
    if not report.progress.named:
        raise StartError(f"the list holds no {COLUMNS[task.by]}: there is nothing to erase")
    report.end()


def _count(file: Path, by: By, column: str | None) -> int:
    """Check every name of a file before the first is sent, and return how many there are; 0 for what is no file."""
    if file == STDIN or not stat.S_ISREG(_mode(file)):
        return 0
    with _opened(file) as lines:
        return sum(1 for _ in _names(lines, file, by, column))


def _names(lines: TextIO, file: Path, by: By, column: str | None) -> Iterator[str]:
    place = "standard input" if file == STDIN else str(file)
    return read_names(lines, by, column, place, has_header=file.suffix.lower() == ".csv")


def _mode(file: Path) -> int:
    try:
        return file.stat().st_mode
    except OSError as error:
        raise StartError(f"{file} cannot be read: {error.strerror or error}") from None


@contextmanager
def _opened(file: Path) -> Iterator[TextIO]:
    """Open a list, or use standard input."""
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
