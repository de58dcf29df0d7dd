"""Servers whose model, names and ledger are known, for the views of erasures, the model and the ledger."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.process.console.people import write_csv
from tests.serving import Running, serving

CASE = "6f1c1d2e-0000-4000-8000-000000000001"
MARKUP = "<img src=x onerror=document.title='owned'>"
COLUMN = f"age {MARKUP}"
CATEGORIES = (MARKUP, "turn\u202eed", "x" * 256, '🦊 & "fox"')
LABELS = (f"no {MARKUP}", "yes \u202e")
N_SAMPLES = 240
ERASED = ("person-0", "person-1", "person-2")
FLAGS = (
    *("--data", "data.csv", "--target", "<b>label</b>", "--id", "id", "--subject", "person", "--categorical", "kind"),
    *("--n-estimators", "4", "--random-state", "1"),  # every tree is deeper than what the console shows at first
    *("--erasure-deadline", "3600"),  # an erasure is finished when a test says so, and not by itself
)
Told = tuple[list[dict[str, Any]], list[dict[str, Any]], list[dict[str, Any]]]
"""Receipts, public keys and entries of a ledger."""


@dataclass
class World:
    """A server, and what was done with it."""

    server: Running
    _ids: Iterator[int] = field(default_factory=lambda: iter(range(100, N_SAMPLES)))

    def take(self) -> str:
        """Return the id of a sample that no other test erases."""
        return f"row-{next(self._ids)}"

    def receipts(self) -> list[dict[str, Any]]:
        return [one for page in self.server.pages("/erasures", 50) for one in page["erasures"]]

    def entries(self) -> list[dict[str, Any]]:
        return [one for page in self.server.pages("/ledger", 50) for one in page["entries"]]

    def public_keys(self) -> list[dict[str, Any]]:
        keys: list[dict[str, Any]] = self.server.get("/ledger/keys")[1]["keys"]
        return keys


def write_data(path: Path) -> None:
    """Write samples whose columns, categories and classes have hostile names."""
    rows = []
    for i in range(N_SAMPLES):
        label = LABELS[(i % 4 == 0) ^ ((i * 37) % 83 > 60)]
        rows.append((f"row-{i}", f"person-{i // 2}", (i * 37) % 83, CATEGORIES[i % len(CATEGORIES)], label))
    write_csv(path, ("id", "person", COLUMN, "kind", "<b>label</b>"), rows)


@contextmanager
def world_in(folder: Path) -> Iterator[World]:
    """Serve a world with receipts of each status until the end of the block."""
    write_data(folder / "data.csv")
    with serving(*FLAGS, cwd=folder) as server:
        world = World(server)
        for subject in ERASED:
            server.ask("POST", "/samples/batch-delete", {"subjects": [subject]})
        server.finish("/model/scrub")
        server.ask("POST", "/samples/batch-delete", {"ids": ["row-90", "nobody"], "ref": CASE})
        yield world
