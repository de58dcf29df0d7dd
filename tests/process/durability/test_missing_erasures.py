"""A ledger that is older than its snapshot: erasures could be missing, so somebody has to say what to do."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.process.durability.asking import send
from tests.process.durability.evidence import check_evidence, read_ledger
from tests.process.durability.faults import refusal
from tests.process.durability.killed import FLAGS, Killed
from tests.process.durability.reading import finish, read_held
from tests.serving import Running, serving


@pytest.fixture(scope="module")
def _outdated(killed: Killed, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[dict[str, Any]]]:
    folder = tmp_path_factory.mktemp("missing") / "outdated"
    directory = killed.copy(folder)
    with serving(*FLAGS, cwd=folder) as server:
        server.stop()
    for path in directory.glob("ledger.sqlite*"):
        shutil.copy(path, folder)
    with serving(*FLAGS, cwd=folder) as server:
        receipts = [send(server, "DELETE", f"/samples/p{i}")[1] for i in range(60, 65)]
        finish(server, "/model/scrub")
        (folder / "newer.jsonl").write_bytes(download_ledger(server))
        assert server.stop() == 0
    for path in directory.glob("ledger.sqlite*"):
        path.unlink()
    for path in folder.glob("ledger.sqlite*"):
        shutil.copy(path, directory)
    return folder, [*killed.receipts, *receipts]


@pytest.fixture
def outdated(_outdated: tuple[Path, list[dict[str, Any]]], tmp_path: Path) -> tuple[Path, list[dict[str, Any]]]:
    """A directory with the ledger as it was before the last erasures, the newer ledger downloaded, and the receipts."""
    folder, receipts = _outdated
    return shutil.copytree(folder, tmp_path / "outdated"), receipts


def download_ledger(server: Running) -> bytes:
    """Return the ledger as a file: an entry a line."""
    return b"".join(json.dumps(entry).encode() + b"\n" for entry in read_ledger(server))


def test_a_ledger_older_than_its_snapshot_is_refused(outdated):
    folder, _ = outdated
    said = refusal(folder, *FLAGS)
    assert "ledger" in said
    assert "--ledger" in said
    assert "--accept-missing-erasures" in said


def test_with_the_newer_ledger_it_serves(outdated):
    folder, receipts = outdated
    with serving(*FLAGS, "--ledger", "newer.jsonl", cwd=folder) as server:
        held, _ = read_held(server)
        assert not held.keys() & {f"p{i}" for i in range(60, 65)}
        check_evidence(server, receipts)
        assert server.stop() == 0
    # It is kept: from now on the directory is whole again.
    with serving(*FLAGS, cwd=folder) as server:
        check_evidence(server, receipts)


def test_what_is_missing_can_be_accepted(outdated):
    folder, receipts = outdated
    with serving(*FLAGS, "--accept-missing-erasures", cwd=folder) as server:
        held, _ = read_held(server)
        assert not held.keys() & {f"p{i}" for i in range(60, 65)}
        check_evidence(server, receipts[:40])
        assert server.stop() == 0
    with serving(*FLAGS, cwd=folder) as server:
        check_evidence(server, receipts[:40])


def test_a_downloaded_ledger_that_was_changed_is_refused(outdated):
    folder, _ = outdated
    path = folder / "newer.jsonl"
    path.write_bytes(path.read_bytes().replace(b'"deletion"', b'"expiry"', 1))
    said = refusal(folder, *FLAGS, "--ledger", "newer.jsonl")
    assert "ledger" in said
