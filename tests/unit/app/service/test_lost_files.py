"""Data directories that have lost files: nothing erased comes back, and nothing acknowledged goes, in silence."""

import asyncio
import shutil
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import orjson
import pytest

from oubli.app.errors import StartError
from oubli.app.ledger.downloads import check_ledger
from oubli.app.service.build import build_service
from oubli.app.service.service import Service
from oubli.app.settings import Settings
from tests.tiers import covering
from tests.unit.app.service.killed import Kept
from tests.unit.app.service.support import erased
from tests.unit.app.support import JSON, served_here

pytestmark = pytest.mark.anyio
PEOPLE = [f"p{i}" for i in range(40)]
# p1 was erased, those of s3 too, p7 was rectified; who was added is in no data file.
GONE = {"p1", "p7", *PEOPLE[3::5]}
HELD = set(PEOPLE) - GONE
NAMELESS = {"samples": [{"features": [3, "new"], "label": "yes"}]}


class Lost(Kept):
    """What is left of a server: its data file, the ledger, a snapshot from before, and its files."""

    def settings(self, **more: Any) -> Settings:
        values: dict[str, Any] = {"n_estimators": 5, "random_state": 0, "data_dir": self.data}
        values |= {"target": "income", "id_column": "name", "subject_column": "who"}
        found = Settings(**{**values, "data": self.folder / "people.csv", **more})
        vars(found)["idle_resolve"] = False
        return found

    def lose_all_but_keys(self) -> None:
        self.data.rename(self.folder / "old")
        self.data.mkdir()
        shutil.copytree(self.folder / "old" / "keys", self.data / "keys")


def build(lost: Lost, told: list[str] | None = None, **more: Any) -> Service:
    return build_service(lost.settings(**more), warn=(told if told is not None else []).append)


def held(service: Service) -> set[str]:
    return set(service.model.state.model.samples_.ids())


async def fetched(client: Any) -> bytes:
    pages, cursor = b"", "0"
    while cursor is not None:
        page = (await client.get(f"/ledger?limit=3&cursor={cursor}")).content
        pages, cursor = pages + page + b"\n", orjson.loads(page)["next"]
    return pages


def entries_in(pages: bytes) -> list[dict[str, Any]]:
    return [entry for line in pages.splitlines() for entry in orjson.loads(line)["entries"]]


@pytest.fixture(scope="module")
def lived(tmp_path_factory: pytest.TempPathFactory) -> Lost:
    """A server that was stopped after it has learned, unlearned, and told its ledger."""
    lost = Lost(tmp_path_factory.mktemp("lost"))
    lines = [f"p{i},s{i % 5},{i % 37},{'abc'[i % 3]},{'yes' if i % 4 else 'no'}" for i in range(40)]
    (lost.folder / "people.csv").write_text("\n".join(["name,who,age,job,income", *lines]) + "\n")

    async def live() -> None:
        async with served_here(service := build(lost)) as client:
            assert (await client.post("/samples", json=NAMELESS, headers=JSON)).json()["ids"] == ["0"]
            (lost.folder / "backup").write_bytes((await client.get("/snapshot/file?fresh=true")).content)
            assert (await client.delete("/samples/p1")).status_code == 200
            assert (await client.delete("/samples?subject=s3")).json()["unlearned"] == 8
            content = {"features": [39, "z"], "label": "no", "subject": "s2"}
            assert (await client.put("/samples/p7", json=content, headers=JSON)).status_code == 200
            assert (await client.post("/subjects/restrict", json={"subjects": ["s4"]}, headers=JSON)).status_code == 200
            assert (await client.post("/snapshot", json={}, headers=JSON)).status_code == 201
            assert (await client.delete("/samples/0")).json()["status"] == "unlearned"
            lost.ledger.write_bytes(await fetched(client))
            lost.version = service.model.state.version

    asyncio.run(live())
    return lost


@pytest.fixture
def lost(lived: Lost, tmp_path: Path) -> Lost:
    return lived.copy(tmp_path / "lost")


# --- all disks lost


async def test_an_empty_directory_with_the_ledger_serves_nobody_who_was_erased(lost):
    """Histories restore snapshots into such a directory."""
    lost.lose_all_but_keys()
    told: list[str] = []
    service = build(lost, told, ledger=lost.ledger)
    state, restricted = service.model.state, set(PEOPLE[4::5])
    assert (held(service), set(state.model.samples_.restricted.ids())) == (HELD - restricted, restricted)
    assert (state.version > lost.version, state.exports) == (True, 1)
    assert any("9 erased, 1 rectified, 0 expired" in one for one in told)
    async with served_here(service) as client:
        assert (await client.post("/samples", json=NAMELESS, headers=JSON)).json()["ids"] != ["0"], "it was erased"
        receipts = (await client.get("/erasures")).json()["erasures"]
        assert len(await erased(client, *(one["id"] for one in receipts))) == 4
        entries, before = entries_in(await fetched(client)), entries_in(lost.ledger.read_bytes())
        check_ledger(entries)
        assert entries[: len(before)] == before, "the ledger continues"
        assert sum("log_id" in entry for entry in entries) == 1, "and its log as well"


@pytest.mark.parametrize(
    ("how", "expected"),
    [
        *(("no file", "cannot be read"), ("cut", "ends before the ledger's end")),
        *(("no key", "hashing-[0-9a-f]+.key"), ("no key, accepted", "hashing key is gone")),
    ],
)
def test_a_ledger_that_cannot_be_used_is_refused_before_anything_is_trained(how, expected, lost, monkeypatch):
    lost.lose_all_but_keys()
    accepts = how == "no key, accepted"
    if how == "no file":
        lost.ledger.unlink()
    elif how == "cut":
        lost.ledger.write_bytes(b"".join(lost.ledger.read_bytes().splitlines(keepends=True)[:2]))
    else:
        lost.lose("keys/hashing-*")
    if not accepts:
        monkeypatch.setattr("oubli.app.service.build.train", lambda *_, **__: pytest.fail("trained"))
    for _ in range(2):
        with pytest.raises(StartError, match=expected):
            build(lost, ledger=lost.ledger, accept_missing=("keys",) if accepts else ())
    if how == "no key":
        assert not list((lost.data / "keys").glob("hashing-*")), "none is made in its place"


def test_a_cut_ledger_can_be_accepted(lost):
    lost.lose_all_but_keys()
    lost.ledger.write_bytes(b"".join(lost.ledger.read_bytes().splitlines(keepends=True)[:-1]))
    service = build(lost, ledger=lost.ledger, accept_missing=("erasures",))
    assert "p1" not in held(service)
    service.lifecycle.close()


def test_keys_without_a_ledger_are_told(lost):
    lost.lose_all_but_keys()
    told: list[str] = []
    build(lost, told).lifecycle.close()
    assert any("--ledger" in one for one in told)


# --- snapshots gone

LOST_TOO = ("", "journal-mark", "journal-*", "journal-0*", "ledger.sqlite*", "ledger.sqlite* journal-mark")


ADDED, SAVED = ("POST", "/samples", NAMELESS), ("POST", "/snapshot", {})
TOLD, EXPORTED = ("POST", "/model/states", {}), ("GET", "/snapshot/file", None)
DONE = {"none": [], "addition": [ADDED], "snapshot": [ADDED, *[SAVED] * 3], "state": [TOLD], "export": [EXPORTED]}


@pytest.mark.parametrize(("files", "with_ledger"), covering(LOST_TOO, [False, True]))
def test_without_its_snapshots_a_directory_is_refused(files, with_ledger, lost, monkeypatch):
    monkeypatch.setattr("oubli.app.service.build.train", lambda *_, **__: pytest.fail("trained"))
    lost.lose("snapshot-*", *files.split())
    before = {path.name for path in lost.data.iterdir()}
    for _ in range(2):
        with pytest.raises(StartError, match=r"no snapshot|was acknowledged and is missing"):
            build(lost, ledger=lost.ledger if with_ledger else None)
    assert before <= {path.name for path in lost.data.iterdir()}


@pytest.mark.parametrize(("change", "crashes"), covering(DONE, [False, True]))
async def test_whatever_was_done_last(change, crashes, lost, tmp_path):
    """Only a directory in which nothing was done that a model is needed for is begun in again."""
    shutil.rmtree(lost.data)
    async with served_here(build(lost)) as client:
        for method, path, content in DONE[change]:
            assert (await client.request(method, path, json=content)).status_code in (200, 201)
        if crashes:
            lost = lost.copy(tmp_path / "killed")
    lost.lose("snapshot-*")
    with nullcontext() if change == "none" else pytest.raises(StartError, match="no snapshot"):
        build(lost).lifecycle.close()


@pytest.mark.parametrize("files", ["ledger.sqlite*", "journal-*", "journal-0*", "keys/*"])
def test_other_files_that_are_missing_are_named(files, lost):
    lost.lose(files)
    with pytest.raises(StartError, match=r"ledger|journal|\.key"):
        build(lost)


@pytest.mark.parametrize("is_cut", [False, True])
def test_the_newest_snapshot_alone_may_be_missing_or_damaged(is_cut, lost):
    newest, told = max(lost.data.glob("snapshot-*")), list[str]()
    if is_cut:
        newest.write_bytes(newest.read_bytes()[:-100])
    else:
        newest.unlink()
    service = build(lost, told)
    assert any("fell back to snapshot-" in one for one in told) == is_cut
    assert (held(service) & GONE, service.model.state.version) == ({"p7"}, lost.version)
    service.lifecycle.close()


def test_an_older_snapshot_in_place_of_the_newer_ones_is_refused(lost):
    lost.lose("snapshot-*")
    shutil.copy(lost.folder / "backup", lost.data / "snapshot-00000009.safetensors")
    with pytest.raises(StartError, match="missing"):
        build(lost)
