"""The log of a service: published in the background, cosigned, continued after a crash, compared with its witnesses."""

import json
import shutil
import tarfile
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from oubli.app.errors import StopReason
from oubli.app.ledger.log import log_key
from oubli.app.outgoing.addresses import AddressRules
from oubli.app.outgoing.sender import Sender
from oubli.app.service.build import Means, compose, open_directory
from oubli.app.service.evidence.publisher import Witness, parse_witness
from oubli.verifier import check_checkpoint, check_proof, check_since, opening_of, read_checkpoint, read_policy
from oubli.verifier.merkle import check_consistency
from oubli.verifier.notes import decode, read_key
from tests.closing import closed_at_the_end
from tests.imports import ROOT
from tests.unit.app.service.support import begun, until
from tests.unit.app.support import JSON, forest, samples, served_here
from tests.witness import LocalWitness, witnessing

pytestmark = pytest.mark.anyio


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("oubli.app.service.evidence.publisher.PERIOD", 0.05)


def opened(folder: Path, *witnesses: LocalWitness, accept: bool = False) -> Any:
    """A service over a data directory, begun when it is empty."""
    directory = open_directory(folder, log_name="oubli.example")
    closed_at_the_end(directory.database)
    sender, places = Sender(AddressRules(("127.0.0.0/8",)), 5.0), [f"http://127.0.0.1:{one.port}" for one in witnesses]
    named = [f"{one.key} {place}" for one, place in zip(witnesses, places, strict=True)]
    known = [Witness(*parse_witness(text, plain_http=True), sender) for text in named]
    means = Means(witnesses=known)
    return compose(begun(directory, forest(20)), idle_resolve=False, means=means, accept_missing=accept)


async def get(client: Any, path: str) -> Any:
    return (await client.get(path)).json()


async def proof_of(client: Any, receipt: dict[str, Any]) -> str:
    return str((await client.get(f"/erasures/{receipt['id']}/proof")).text)


async def policy_of(client: Any, *witnesses: LocalWitness) -> Any:
    """A policy that trusts the keys that a server publishes, and asks for all of some witnesses."""
    lines = [f"log {key['log_key']}" for key in (await get(client, "/ledger/keys"))["keys"]]
    lines += [f"witness {one.key.name} {one.key}" for one in witnesses]
    names = " ".join(one.key.name for one in witnesses)
    lines += [f"group g all {names}", "quorum g"] if witnesses else ["quorum none"]
    return read_policy("\n".join(lines).encode())


def log_of(folder: Path) -> Any:
    """The key of the log in a data directory, made when there is none."""
    with closing(open_directory(folder, log_name="oubli.example")) as directory:
        directory.begin(forest(20))
        (key, *_) = directory.keys.all_signing
        return read_key(log_key(directory.database.log.origin, key.public))


async def until_cosigned(client: Any, policy: Any, size: int) -> Any:
    """The published checkpoint as soon as it is large enough; its quorum is checked."""

    async def found() -> Any:
        checkpoint = read_checkpoint((await client.get("/log/checkpoint")).text)
        return checkpoint if checkpoint.size >= size else None

    checkpoint = await until(found)
    check_checkpoint(checkpoint, policy)
    return checkpoint


async def erase(service: Any, *names: str, witnesses: tuple[LocalWitness, ...] = ()) -> Any:
    """Delete samples, wait each time until that is published, and check the proof; return the last checkpoint."""
    async with served_here(service) as client:
        policy = await policy_of(client, *witnesses)
        for name in names:
            receipt = (await client.delete(f"/samples/{name}")).json()
            checkpoint = await until_cosigned(client, policy, receipt["ledger_index"])
            check_proof(await proof_of(client, receipt), policy)
        return checkpoint


async def test_deletions_are_published_within_a_second_and_proved(tmp_path):
    async with served_here(opened(tmp_path / "data")) as client:
        policy = await policy_of(client)
        first = read_checkpoint((await client.get("/log/checkpoint")).text)
        receipts = [(await client.delete(f"/samples/c{i}")).json() for i in range(3)]
        later = await until_cosigned(client, policy, receipts[-1]["ledger_index"])
        answer = await get(client, f"/ledger/consistency?from={first.size}&to={later.size}")
        check_consistency(first.size, later.size, list(map(decode, answer["proof"])), first.root, later.root)
        for i, receipt in enumerate(receipts):
            secret = bytes.fromhex((await get(client, f"/erasures/{receipt['id']}/opening"))["opening"])
            more = {"name": f"c{i}", "opening": opening_of(secret, "ids", f"c{i}"), "kept": receipt}
            assert check_proof(await proof_of(client, receipt), policy, **more).found == ("targets", "samples")


async def test_a_witness_cosigns_and_knows_more_after_each_change(tmp_path):
    log, data = log_of(tmp_path / "data"), tmp_path / "data"
    two = LocalWitness("two.example", log)
    with witnessing(LocalWitness("one.example", log)) as one:
        with witnessing(two):
            await erase(opened(data, one, two), "c0", "c1", witnesses=(one, two))
        await erase(opened(data, one), "c9", witnesses=(one,))
        # It is told what it has missed.
        with witnessing(two):
            await erase(opened(data, one, two), "c2", "c3", witnesses=(one, two))
    await erase(opened(data, one, two), "c4")  # witnesses that are away hold nothing up


async def test_a_disk_restored_from_yesterday_is_noticed_by_a_witness(tmp_path, caplog):
    log = log_of(tmp_path / "data")
    with witnessing(LocalWitness("w.example", log)) as witness:
        await erase(opened(tmp_path / "data", witness), "c1", witnesses=(witness,))
        shutil.copytree(tmp_path / "data", tmp_path / "yesterday")
        await erase(opened(tmp_path / "data", witness), "c2", "c3", witnesses=(witness,))
        last = read_checkpoint(witness.seen[log.name])
        async with served_here(service := opened(tmp_path / "yesterday", witness)) as client:
            assert service.model.state.halted is StopReason.LOG_ROLLED_BACK
            assert (await client.delete("/samples/c4")).json()["type"].endswith("changes-stopped")
            assert (await client.get("/samples/c2")).status_code == 200
            assert (await get(client, "/model"))["changes_stopped"] == "log-rolled-back"
            seen = read_checkpoint((await client.get("/log/checkpoint")).text)
            assert (seen.origin, seen.size < last.size) == (last.origin, True)
        assert "older backup" in caplog.text
        # Another log begins when the operator goes on without what is missing.
        now = await erase(opened(tmp_path / "yesterday", witness, accept=True), "c4")
        assert now.origin != last.origin
        async with served_here(opened(tmp_path / "yesterday", witness)) as client:
            entries = (await get(client, "/ledger"))["entries"]
        (begun,) = [entry for entry in entries if entry["type"] == "accepted-missing-erasures"]
        origins = [f"{begun[before + 'log_name']}/{begun[before + 'log_id']}" for before in ("", "previous_")]
        assert (origins, begun["snapshot_index"]) == ([now.origin, last.origin], last.size)


async def test_an_unknown_entry_or_receipt_has_no_proof(tmp_path):
    async with served_here(opened(tmp_path / "data")) as client:
        await client.post("/samples", json=samples(1), headers=JSON)
        receipt = "0f5c1d2e-3b4a-4c5d-8e6f-7a8b9c0d1e2f"
        tiles = ("0/001", "0/000.p/256", "0/000.p/0", "0/0", "x/000", "entries/x001/000")
        for path, slug in (
            *((f"/ledger/{entry}/proof", "not-logged") for entry in (0, 99, "x")),
            *((f"/ledger/consistency?{sizes}", "not-logged") for sizes in ("from=1&to=99", "from=99")),
            *((f"/ledger/consistency{sizes}", "invalid-input") for sizes in ("", "?from=x", "?from=2&to=1")),
            ("/ledger/consistency?from=2&more=1", "invalid-input"),
            *((f"/erasures/{path}", "no-receipt") for path in ("x/proof", f"{receipt}/proof", f"{receipt}/opening")),
            *((f"/log/tile/{tile}", "not-logged") for tile in tiles),
        ):
            answer = await client.get(path)
            assert answer.json()["type"] == f"urn:oubli:problem:{slug}", path
        assert len((await client.get("/log/tile/0/000.p/2")).content) == 64
        assert (await client.get("/log/tile/entries/000.p/2")).status_code == 200


@pytest.mark.parametrize("text", ["", "x", "x http://w.example", "a+b+c https://w.example"])
def test_what_is_no_witness(text):
    with pytest.raises(ValueError, match="key of a witness"):
        parse_witness(text, plain_http=True)


@pytest.mark.parametrize("name", ["journal-forest-classification", "ledger-2-forest-classification"])
async def test_a_directory_of_an_earlier_version_goes_on_with_a_log_over_all_its_entries(name, tmp_path):
    with tarfile.open(ROOT / "tests" / "golden" / "directories" / f"{name}.tar.xz") as archive:
        archive.extractall(tmp_path, filter="data")
    notes = json.loads((tmp_path / "notes.json").read_text())
    async with served_here(opened(tmp_path / "data")) as client:
        policy = await policy_of(client)
        receipt = (await client.delete("/samples/sample-20")).json()
        checkpoint = await until_cosigned(client, policy, receipt["ledger_index"])
        entries = (await get(client, "/ledger?limit=50"))["entries"]
        assert entries[: len(notes["ledger"])] == notes["ledger"]
        types = [entry["type"] for entry in entries[len(notes["ledger"]) :]]
        assert types[-3:] == ["log-begun", "trees-grown-anew", "unlearned"]
        check_since(entries[: checkpoint.size], checkpoint, policy)
        check_proof(await proof_of(client, receipt), policy, kept=receipt)
        # What was written before is in the log as it is, and says nothing of names.
        for old in notes["erasures"]:
            assert check_proof(await proof_of(client, old), policy).receipt["id"] == old["id"]
            assert (await get(client, f"/erasures/{old['id']}/opening"))["type"].endswith("no-opening")
        # The keyed hashes in entries of that version still say who was erased lately.
        late = {"id": "sample-5", "features": notes["samples"][0]["features"], "label": "yes"}
        refused = await client.post("/samples", json={"samples": [late]}, headers=JSON)
        assert refused.json()["type"].endswith("erased-lately")
    with closing(open_directory(tmp_path / "data")) as directory:
        assert directory.database.log.origin == checkpoint.origin
