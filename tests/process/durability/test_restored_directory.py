"""A directory from a backup, started with today's ledger: nothing that is gone is served, wherever it is killed."""

from __future__ import annotations

import json
import shutil
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.process.durability.asking import send, wait_for
from tests.process.durability.clients import as_json
from tests.process.durability.clocks import Clock, add_expiring
from tests.process.durability.evidence import check_evidence, read_ledger, read_pages
from tests.process.durability.model_of_truth import Sent
from tests.process.durability.people import Content, flags, people
from tests.process.durability.reading import check_held, finish
from tests.process.durability.steps import Plan, kills_for, started, thinned
from tests.serving import Running, serving

FLAGS = flags("--erasure-deadline", "600")
WITH_LEDGER = (*FLAGS, "--ledger", "newer.jsonl")
PEOPLE = people()


@dataclass
class Backup:
    """A folder with the data directory of yesterday and the ledger of today."""

    folder: Path
    held: dict[str, Content]
    receipts: list[dict[str, object]]
    version: int

    def check(self, server: Running) -> None:
        assert check_held(server, self.held) > self.version
        check_evidence(server, self.receipts)
        (entry,) = [one for one in read_ledger(server) if one["type"] == "restore"]
        assert [entry[f"dropped_{how}"] for how in ("erased", "rectified", "expired")] == [7, 1, 1]


@pytest.fixture(scope="module")
def backup(_begun: tuple[Path, int], tmp_path_factory: pytest.TempPathFactory) -> Backup:
    folder = tmp_path_factory.mktemp("backup") / "backup"
    shutil.copytree(_begun[0], folder)
    clock = Clock(folder)
    command = Plan(folder, clock=clock.path).command
    with serving(*FLAGS, cwd=folder, command=command) as server:
        add_expiring(server, "short", clock.after(1800), 5)
        assert server.stop() == 0
    shutil.copytree(folder / "oubli-data", folder / "yesterday")
    with serving(*FLAGS, cwd=folder, command=command) as server:
        receipts = [send(server, "DELETE", f"/samples{what}")[1] for what in ("?subject=h0", "/p9", "?id=p20&id=p21")]
        content = {"features": list(PEOPLE["p11"].features), "label": "<=50K"}
        receipts.append(send(server, "PUT", "/samples/p10", content)[1])
        clock.set(3600)
        wait_for(lambda: server.get("/samples/short")[0] == 404, "an expiry")
        assert send(server, "POST", "/samples", {"samples": [as_json(Sent("late", PEOPLE["p12"]))]})[0] == 201
        receipts.append(send(server, "DELETE", "/samples/late")[1])
        finish(server, "/model/scrub")
        pages = read_pages(server)
        version = server.get("/model")[1]["model_version"]
        assert server.stop() == 0
    (folder / "newer.jsonl").write_text("".join(json.dumps(page) + "\n" for page in pages))
    shutil.rmtree(folder / "oubli-data")
    (folder / "yesterday").rename(folder / "oubli-data")
    gone = {"p0", "p1", "p2", "p3", "p9", "p10", "p20", "p21"}
    return Backup(folder, {name: one for name, one in PEOPLE.items() if name not in gone}, receipts, version)


def test_a_backup_with_the_newer_ledger_serves_nothing_that_is_gone(backup, tmp_path):
    folder = tmp_path / "folder"
    shutil.copytree(backup.folder, folder)
    for more in (WITH_LEDGER, WITH_LEDGER, FLAGS):
        with serving(*more, cwd=folder) as server:
            backup.check(server)
            server.process.kill()
    assert "7 erased, 1 rectified, 1 expired" not in server.output, "it was done by the first start"


@pytest.mark.parametrize("n_kills", [1, pytest.param(1000, marks=pytest.mark.long)])
def test_killed_at_steps_of_that_start(backup, tmp_path, tell, n_kills):
    dry = Plan(shutil.copytree(backup.folder, tmp_path / "dry"))
    with started(dry, WITH_LEDGER) as server:
        assert server is not None
        server.process.kill()
    taken = dry.steps_taken()
    methods = {"LedgerDatabase.adopt", "SnapshotStore.write", "SqliteJournal.rotate"}
    assert taken.keys() >= {*methods, "os.unlink", "os.fsync"}
    kills = thinned(kills_for(taken), n_kills)
    for number, kill in enumerate(kills):
        folder = shutil.copytree(backup.folder, tmp_path / f"kill{number}")
        with started(Plan(folder, kill), WITH_LEDGER) as server:
            if server is not None:
                server.process.kill()
        with serving(*WITH_LEDGER, cwd=folder) as server:
            backup.check(server)
        shutil.rmtree(folder)
    tell(f"killed at a start with the newer ledger: {len(kills)} kills survived, nothing that was gone came back")
    assert len(kills) >= min(n_kills, 40)
