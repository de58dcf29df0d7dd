"""Servers whose model, names and ledger are known, for the views of erasures, the model and the ledger."""

import csv
import itertools
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.process.console.support import scrub
from tests.serving import Running, serving

CASE = "6f1c1d2e-0000-4000-8000-000000000001"
MARKUP = "<img src=x onerror=document.title='owned'>"
TURNED = "turn\u202eed"
LONG = "x" * 256
FOX = '🦊 & "fox"'
COLUMN = f"age {MARKUP}"
CATEGORIES = (MARKUP, TURNED, LONG, FOX)
LABELS = (f"no {MARKUP}", "yes \u202e")
N_SAMPLES = 240
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

    @property
    def subjects(self) -> list[str]:
        """People who were erased."""
        return [f"person-{n}" for n in range(3)]

    def take(self) -> str:
        """Return the id of a sample that no other test erases."""
        return f"row-{next(self._ids)}"

    def receipts(self) -> list[dict[str, Any]]:
        return list(self._all("/erasures", "erasures"))

    def entries(self) -> list[dict[str, Any]]:
        return list(self._all("/ledger", "entries"))

    def public_keys(self) -> list[dict[str, Any]]:
        keys: list[dict[str, Any]] = self.server.get("/ledger/keys")[1]["keys"]
        return keys

    def finish(self) -> None:
        """Erase from all files what was unlearned."""
        scrub(self.server)

    def _all(self, path: str, name: str) -> Iterator[dict[str, Any]]:
        cursor = ""
        while cursor is not None:
            page = self.server.get(f"{path}?limit=50{cursor and f'&cursor={cursor}'}")[1]
            yield from page[name]
            cursor = page["next"]


def write_data(path: Path) -> None:
    """Write samples whose columns, categories and classes have hostile names."""
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(["id", "person", COLUMN, "kind", "<b>label</b>"])
        for i, kind in zip(range(N_SAMPLES), itertools.cycle(CATEGORIES), strict=False):
            writer.writerow(
                [f"row-{i}", f"person-{i // 2}", (i * 37) % 83, kind, LABELS[(i % 4 == 0) ^ ((i * 37) % 83 > 60)]]
            )


@contextmanager
def world_in(folder: Path) -> Iterator[World]:
    """Serve a world with receipts of each status until the end of the block."""
    write_data(folder / "data.csv")
    with serving(*FLAGS, cwd=folder) as server:
        world = World(server)
        for subject in world.subjects:
            server.ask("POST", "/samples/batch-delete", {"subjects": [subject]})
        world.finish()
        server.ask("POST", "/samples/batch-delete", {"ids": ["row-90", "nobody"], "ref": CASE})
        yield world
