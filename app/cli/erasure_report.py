"""The report of erasures in bulk, and the journal beside it that lets them go on where they were broken off.

    ids.csv.report.csv           a line for each name: whether it was held, how many samples, receipt, deadline
    ids.csv.report.csv.journal   one JSON object a line: what was asked for, then one for each batch that is done

A batch is sent with a key made of the run and its number, so that the server knows it when it comes again. When its
answer is there, its lines are added to the report, and when they are on the disk, its line to the journal. What the
report has beyond the journal is cut off at the next start, and the batch is asked for again under the same key.

Both files identify people. Only their owner may read them.
"""

from __future__ import annotations

import csv
import fcntl
import hashlib
import io
import os
import uuid
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

import orjson

from oubli.app.cli.name_list import COLUMNS
from oubli.app.errors import StartError
from oubli.app.ledger.entries import By
from oubli.app.storage.directory import flush_directory

if TYPE_CHECKING:
    from oubli.client import ListedDeletion

VERSION = 1
_JSON_SUFFIXES = frozenset({".json", ".jsonl", ".ndjson"})
_OWNER_ONLY = 0o600
_ANOTHER = "name another file with --report to begin anew"


@dataclass(frozen=True, slots=True)
class Task:
    """What a run asks for; a run that goes on must ask for the same.

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


class NameDigest:
    """A digest of names in their order, to tell whether a list begins as it did before."""

    def __init__(self) -> None:
        self._hash = hashlib.sha256()

    def take(self, names: Sequence[str]) -> None:
        """Take in the next names."""
        self._hash.update(orjson.dumps(names))

    def text(self) -> str:
        """Return the digest of the names so far."""
        return self._hash.hexdigest()


class Report:
    """Report and journal of a run, begun or gone on with; `with` closes them.

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

    def add(self, names: Sequence[str], deletion: ListedDeletion, digest: NameDigest) -> None:
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
            digest=digest.text(),
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

    # --- what stands in the report

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
    csv.writer(text, lineterminator="\n").writerows(rows)
    return text.getvalue().encode("utf-8")


def _append(descriptor: int, content: bytes) -> None:
    """Write at the end of a file; on the disk when this returns."""
    view = memoryview(content)
    while view:
        view = view[os.write(descriptor, view) :]
    os.fsync(descriptor)
