"""A data directory whose server was killed, with everything in it that can be damaged."""

from __future__ import annotations

import random
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.process.durability.asking import send
from tests.process.durability.clients import as_json
from tests.process.durability.model_of_truth import Sent
from tests.process.durability.people import Content, Strangers, flags, people
from tests.process.durability.reading import finish
from tests.serving import serving

FLAGS = flags("--erasure-deadline", "600")


@dataclass(frozen=True)
class Killed:
    """The directory, and what was acknowledged."""

    folder: Path
    held: dict[str, Content]
    receipts: list[dict[str, Any]]

    def stopped(self, folder: Path) -> Killed:
        """Return a copy whose server was started again and stopped in order, so that its files have no logs."""
        self.copy(folder)
        with serving(*FLAGS, cwd=folder) as server:
            assert server.stop() == 0
        return Killed(folder, self.held, self.receipts)

    def copy(self, target: Path) -> Path:
        """Copy it; return the new data directory."""
        shutil.copytree(self.folder, target)
        return target / "oubli-data"


def live_and_be_killed(begun: Path, folder: Path) -> Killed:
    """Start on a copy of a directory, add and delete, rewrite all files half way, and be killed at the end."""
    shutil.copytree(begun, folder)
    strangers = Strangers(random.Random(1))
    receipts = []
    held = people()
    with serving(*FLAGS, cwd=folder) as server:
        for i in range(40):
            content = strangers.meet(f"h{i}")
            held[f"new{i:02d}"] = content
            assert send(server, "POST", "/samples", {"samples": [as_json(Sent(f"new{i:02d}", content))]})[0] == 201
            if i == 20:
                # From here on both generations and the journal are younger than the first erasures.
                finish(server, "/model/scrub")
            status, receipt = send(server, "DELETE", f"/samples/p{i}")
            assert status == 200
            receipts.append(receipt)
            del held[f"p{i}"]
        server.process.kill()
    return Killed(folder, held, receipts)
