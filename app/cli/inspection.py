"""What `oubli inspect` says of a data file, and the schema file that it writes."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from oubli.app.datasets.loading import NoTargetError, Table, load_table
from oubli.app.datasets.understanding import Understood
from oubli.app.errors import StartError
from oubli.app.progress import Progress
from oubli.app.settings import Settings


@dataclass(frozen=True)
class Inspection:
    """What a data file holds; `table` is None as long as no target is named."""

    about: Understood
    table: Table | None = None

    def lines(self) -> Iterator[str]:
        """Yield what there is to say: some lines on all, then one for each column with examples."""
        yield from self.about.lines(values=True)
        if self.table is None:
            yield f"no target: say --target COLUMN, for instance {', '.join(self.about.candidates()[:5])}"
        yield from (() if self.table is None else (f"note: {note}" for note in self.table.notes))
        yield ""
        width = max(len(column.name) for column in self.about.columns)
        for name, kind in self.about.types().items():
            yield f"{name.ljust(width)}  {kind.ljust(18)}  {', '.join(self.about.examples.get(name, ()))}"

    def schema_file(self) -> dict[str, Any]:
        """Return the content of a schema file: columns and label, and how the file is read.

        Raises
        ------
        StartError
            When no target is named.
        """
        if self.table is None:
            raise StartError("a schema has a label: name its column with --target")
        document: dict[str, Any] = {
            **self.table.schema.to_dict(),
            "read": [one for one in self.about.read if "=" in one],
        }
        return document


def inspect_file(settings: Settings, progress: Progress) -> Inspection:
    """Read the data file that the settings name.

    Raises
    ------
    LoadError
        When it cannot be used.
    """
    try:
        table = load_table(settings, progress)
    except NoTargetError as error:
        return Inspection(error.about)
    return Inspection(table.about, table)
