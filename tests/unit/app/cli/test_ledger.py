from pathlib import Path

import orjson
import pytest

from oubli.app.ledger.database import LedgerDatabase
from oubli.app.ledger.keys import LedgerKeys
from oubli.app.storage.directory import DataDirectory
from tests.unit.app.cli.auditing import holds
from tests.unit.app.hosted import hosted
from tests.unit.app.ledger.support import WholeLedger, as_objects, in_time, make_ledger, write_lines
from tests.unit.app.support import forest, make_service


@pytest.fixture
def run(run):
    return lambda *arguments: run("ledger", *arguments)


@pytest.fixture
def ledger(tmp_path) -> WholeLedger:
    (tmp_path / "data").mkdir()
    ledger = make_ledger(tmp_path / "data")
    receipt = ledger.unlearned("a")
    ledger.event("fit", model_version=2)
    ledger.erased(receipt)
    ledger.unlearned("b", "c")
    return ledger


def write(path: Path, content: object) -> Path:
    path.write_bytes(orjson.dumps(content))
    return path


def test_a_sound_ledger_and_a_wrong_one(run, ledger, tmp_path):
    out, _ = holds(run("verify", write_lines(tmp_path / "empty.jsonl", [])))
    assert out.splitlines()[0] == "0 entries"
    entries = ledger.entries()
    out, told = holds(run("verify", write_lines(tmp_path / "ledger.jsonl", entries)))
    assert out.splitlines() == [
        f"{len(entries)} entries, from {entries[0]['at']} to {entries[-1]['at']}",
        "2 erasures, 1 of them erased from all files",
        f"newest entry {entries[-1]['hash']}",
    ]
    assert "Not proved" in told
    entries = as_objects(entries)
    entries[2]["at"] = "2026-01-01T00:00:00.000Z"
    code, out, told = run("verify", write_lines(tmp_path / "ledger.jsonl", entries))
    assert (code, out) == (1, "")
    assert "wrong at entry 3: it was changed" in told


def test_a_receipt_and_keys(run, ledger, tmp_path):
    file = write_lines(tmp_path / "ledger.jsonl", ledger.entries())
    entry = next(entry for entry in ledger.entries() if entry["type"] == "unlearned")
    found = ledger.store.receipt(entry["receipt"], in_time)
    assert found is not None
    good = write(tmp_path / "receipt.json", {**found.content(), "durable": True})
    bad = write(tmp_path / "bad.json", {**found.content(), "unlearned": 7})
    keys = write(tmp_path / "keys.json", {"keys": ledger.auditor.public_keys()})
    others = write(tmp_path / "others.json", {"keys": LedgerKeys(None).public_keys()})
    out, _ = holds(run("verify", file, "--receipt", good))
    assert out.splitlines()[-2:] == [
        f"receipt signed by key {found.key_id}, entry {found.ledger_index}: erased",
        f"disclosure low: {found.disclosure_limits}",
    ]
    holds(run("verify", file, "--receipt", good, "--keys", keys))
    for arguments, part in ((("--receipt", bad), "signature"), (("--receipt", good, "--keys", others), "unknown")):
        code, _, told = run("verify", file, *arguments)
        assert (code, "the receipt is wrong" in told, part in told) == (1, True, True)


def test_files_that_cannot_be_read(refuses, ledger, tmp_path):
    file = write_lines(tmp_path / "ledger.jsonl", ledger.entries())
    (tmp_path / "text").write_text("SECRET text")
    write(tmp_path / "list.json", ["SECRET"])
    for arguments in (
        *(("none",), ("text",), (tmp_path,), (file, "--keys", "text")),
        *((file, "--receipt", name) for name in ("none", "text", "list.json")),
        (file, "--keys", write(tmp_path / "empty.json", {})),
    ):
        assert "SECRET" not in refuses(".", "verify", *arguments)


@pytest.mark.parametrize("kind", ["signing", "hashing"])
def test_keys_are_rotated_while_the_server_is_stopped_wherever_they_are(kind, run, ledger, tmp_path):
    ledger.store.close()
    (tmp_path / "data" / "keys").rename(tmp_path / "elsewhere")
    before = LedgerKeys(tmp_path / "elsewhere")
    out, told = holds(run("rotate-keys", kind, "--data-dir", "data", "--key-dir", "elsewhere"))
    assert "next start" in told
    after = LedgerKeys(tmp_path / "elsewhere")
    ids = [[keys.signing.id, keys.hashing[0].id] for keys in (before, after)]
    place = ["signing", "hashing"].index(kind)
    assert ids[1][place] == out.strip() != ids[0][place]
    assert ids[1][1 - place] == ids[0][1 - place]
    assert not (tmp_path / "data" / "keys").exists()


@pytest.mark.parametrize("command", [("rotate-keys", "signing"), ("destroy-key", "0" * 16)])
def test_keys_are_left_to_a_running_server_and_there_must_be_a_ledger(command, refuses, ledger, tmp_path):
    ledger.store.close()
    server = DataDirectory(tmp_path / "data")
    refuses("in use", *command, "--data-dir", "data")
    server.close()
    refuses("--data-dir", *command, "--data-dir", "nowhere")
    assert not (tmp_path / "nowhere").exists()


def test_a_hashing_key_is_destroyed(run, refuses, ledger, tmp_path):
    ledger.store.close()
    old = ledger.keys.hashing[0].id
    refuses("in use", "destroy-key", old, "--data-dir", "data")
    run("rotate-keys", "hashing", "--data-dir", "data")
    assert old in holds(run("destroy-key", old, "--data-dir", "data"))[1]
    assert old not in [key.id for key in LedgerKeys(tmp_path / "data" / "keys").hashing]


# --- `fetch` and `export`: files that are complete, or not there


def test_both_write_all_entries_and_the_signed_end(run, refuses, tmp_path):
    data, fetched, exported = tmp_path / "data", tmp_path / "fetched.jsonl", tmp_path / "exported.jsonl"
    with hosted(make_service(forest(60), data)) as host:
        for i in range(130):  # more than a page
            assert host.ask("DELETE", f"/samples/{'c' if i < 5 else 'n'}{i}")[0] == 200
        run("fetch", fetched, "--url", f"http://127.0.0.1:{host.port}")
        refuses("in use", "export", exported, "--data-dir", data)
        assert not exported.exists()
        refuses("--force", "fetch", fetched, "--url", f"http://127.0.0.1:{host.port}")
    assert len(fetched.read_bytes().splitlines()) > 1
    run("export", exported, "--data-dir", data)
    files = [[orjson.loads(line) for line in path.read_bytes().splitlines()] for path in (fetched, exported)]
    early, late = ([entry for page in pages for entry in page["entries"]] for pages in files)
    assert late[: len(early)] == early
    for path, entries in ((fetched, early), (exported, late)):
        store = LedgerDatabase(None, LedgerKeys(None))
        assert store.adopt(path) == len(entries)
        store.close()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["data", "exported.jsonl", "fetched.jsonl"]


def test_without_a_ledger_or_with_an_end_that_is_not_signed_there_is_no_file(refuses, tmp_path, monkeypatch):
    refuses("no ledger", "export", tmp_path / "ledger.jsonl", "--data-dir", tmp_path / "nothing")
    assert not list(tmp_path.iterdir())
    with hosted(make_service(forest(60), tmp_path / "data")) as host:
        page = LedgerDatabase.page
        monkeypatch.setattr(LedgerDatabase, "page", lambda *given, **_: page(*given, signs=False))
        refuses("not signed", "fetch", tmp_path / "ledger.jsonl", "--url", f"http://127.0.0.1:{host.port}")
    assert [path.name for path in tmp_path.iterdir()] == ["data"]
