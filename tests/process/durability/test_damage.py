"""Files that are cut short or have a bit flipped: a refusal that says what to do, or nothing acknowledged is lost."""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.process.durability.asking import send
from tests.process.durability.clients import as_json
from tests.process.durability.evidence import check_evidence
from tests.process.durability.model_of_truth import Sent
from tests.process.durability.people import Content, Strangers, flags, people
from tests.process.durability.reading import check_held, finish
from tests.serving import serving

REFUSED = 2
FLAGS = flags("--erasure-deadline", "600")


@dataclass(frozen=True)
class Killed:
    """A data directory whose server was killed, with everything in it that can be damaged, and what it has told."""

    folder: Path
    held: dict[str, Content]
    receipts: list[dict[str, Any]]


@pytest.fixture(scope="module")
def killed(_begun: tuple[Path, int], tmp_path_factory: pytest.TempPathFactory) -> Killed:
    """Add and delete, rewrite all files half way, and be killed at the end."""
    folder = tmp_path_factory.mktemp("killed") / "killed"
    shutil.copytree(_begun[0], folder)
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


# The newest of each that is not empty.
FILES = {
    "snapshot": "snapshot-*.safetensors",
    "segment": "journal-*.sqlite",
    "segment's log": "journal-*.sqlite-wal",
    "ledger": "ledger.sqlite",
    "ledger's log": "ledger.sqlite-wal",
}


def cut_in_half(content: bytes) -> bytes:
    return content[: len(content) // 2]


def empty(content: bytes) -> bytes:
    return content[:0]


def flip_in_a_record(content: bytes) -> bytes:
    """Flip a bit where it hurts: inside something that was written as text, as records and entries are."""
    places = [place for word in (b'"do":', b'"previous"', b"new3") if (place := content.rfind(word)) >= 0]
    return flip(content, places[0] + 7 if places else len(content) // 2)


def flip_in_the_middle(content: bytes) -> bytes:
    return flip(content, len(content) // 2)


def flip_somewhere(content: bytes) -> bytes:
    return flip(content, random.Random(content).choice([place for place, one in enumerate(content) if one]))


def flip(content: bytes, place: int) -> bytes:
    changed = bytearray(content)
    changed[min(place, len(content) - 1)] ^= 4
    return bytes(changed)


DAMAGES = (cut_in_half, empty, flip_in_a_record, flip_in_the_middle, flip_somewhere)


# Each file in one way; the other pairs are long tests.
@pytest.mark.parametrize(
    ("file", "damage"),
    [
        pytest.param(file, damage, id=f"{file}-{damage.__name__}", marks=() if (i + j) % 5 == 2 else pytest.mark.long)
        for i, file in enumerate(FILES)
        for j, damage in enumerate(DAMAGES)
    ],
)
def test_a_damaged_file_is_refused_or_loses_nothing(
    file: str, damage: Callable[[bytes], bytes], killed: Killed, tmp_path: Path
) -> None:
    folder = tmp_path / "damaged"
    shutil.copytree(killed.folder, folder)
    path = max((folder / "oubli-data").glob(FILES[file]), key=lambda path: (path.stat().st_size > 0, path.name))
    before = path.read_bytes() or bytes([1]) * 256  # of a log that was folded in
    after = damage(before)
    assert after != before
    path.write_bytes(after)
    try:
        with serving(*FLAGS, cwd=folder) as server:
            check_held(server, killed.held)
            check_evidence(server, killed.receipts)
            assert server.stop() == 0
    except AssertionError as ended:
        said = " ".join(str(ended).split())
        if f"the server ended with {REFUSED}:" not in said:
            raise
        # It names what is damaged, and what a person can do.
        explains = any(word in said for word in ("journal", "snapshot", "ledger"))
        helps = any(word in said for word in ("backup", "--ledger", "restore", "--data-dir"))
        if "Traceback" in said or not explains or not helps:
            raise
