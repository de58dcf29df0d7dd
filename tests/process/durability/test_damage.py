"""Files that are cut short or have a bit flipped: a refusal that says what to do, or nothing acknowledged is lost."""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.process.durability.evidence import check_evidence
from tests.process.durability.faults import REFUSED
from tests.process.durability.killed import FLAGS, Killed
from tests.process.durability.reading import fresh_digest, live_digest, read_held, read_schema
from tests.serving import serving


def newest(pattern: str) -> Callable[[Path], Path]:
    def find(directory: Path) -> Path:
        return max(directory.glob(pattern), key=lambda path: (path.stat().st_size > 0, path.name))

    return find


FILES: dict[str, Callable[[Path], Path]] = {
    "snapshot": newest("snapshot-*.safetensors"),
    "segment": newest("journal-*.sqlite"),
    "segment's log": newest("journal-*.sqlite-wal"),
    "ledger": newest("ledger.sqlite"),
    "ledger's log": newest("ledger.sqlite-wal"),
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


def flip(content: bytes, place: int) -> bytes:
    changed = bytearray(content)
    changed[min(place, len(content) - 1)] ^= 4
    return bytes(changed)


DAMAGES = (cut_in_half, empty, flip_in_a_record, flip_in_the_middle)


# Each file in one way; the other pairs are long tests.
PAIRS = [
    pytest.param(file, damage, id=f"{file}-{damage.__name__}", marks=() if (i + j) % 4 == 2 else pytest.mark.long)
    for i, file in enumerate(FILES)
    for j, damage in enumerate(DAMAGES)
]


@pytest.mark.parametrize(("file", "damage"), PAIRS)
def test_a_damaged_file_is_refused_or_loses_nothing(file, damage, killed, tmp_path):
    directory = killed.copy(tmp_path / "damaged")
    path = FILES[file](directory)
    before = path.read_bytes() or bytes(64)  # of a log that was folded in
    after = damage(before)
    assert after != before
    path.write_bytes(after)
    check_refused_or_whole(killed, tmp_path / "damaged")


def check_refused_or_whole(killed: Killed, folder: Path) -> None:
    """Start on a damaged directory."""
    try:
        with serving(*FLAGS, cwd=folder) as server:
            held, _ = read_held(server)
            assert held == killed.held
            check_evidence(server, killed.receipts)
            assert live_digest(server, by_snapshot=True) == fresh_digest(read_schema(server), held)
            assert server.stop() == 0
    except AssertionError as ended:
        if f"the server ended with {REFUSED}:" not in str(ended):
            raise
        check_explained(" ".join(str(ended).split()))


def check_explained(said: str) -> None:
    """A refusal names what is damaged, and what a person can do."""
    assert "Traceback" not in said
    assert any(word in said for word in ("journal", "snapshot", "ledger")), said
    assert any(word in said for word in ("backup", "--ledger", "restore", "--data-dir")), said


@pytest.fixture(scope="session")
def stopped(killed: Killed, tmp_path_factory: pytest.TempPathFactory) -> Killed:
    return killed.stopped(tmp_path_factory.mktemp("stopped") / "stopped")


def check_flips(whole: Killed, name: str, n: int, tmp_path: Path) -> None:
    """Flip one bit at a time, in something that was written."""
    source = random.Random(name)
    for number in range(n):
        folder = tmp_path / f"flip{number}"
        path = FILES[name](whole.copy(folder))
        content = path.read_bytes() or bytes([1]) * 256  # of a log that was folded in
        written = [place for place in source.sample(range(len(content)), 200) if content[place]]
        path.write_bytes(flip(content, written[0]))
        check_refused_or_whole(whole, folder)
        shutil.rmtree(folder)


def test_a_flipped_bit_in_the_ledger_of_a_stopped_server(stopped, tmp_path):
    check_flips(stopped, "ledger", 1, tmp_path)


@pytest.mark.long
@pytest.mark.parametrize("name", FILES)
def test_many_flipped_bits(name, killed, stopped, tmp_path):
    check_flips(stopped if name == "ledger" else killed, name, 60, tmp_path)
