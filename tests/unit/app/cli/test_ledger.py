from __future__ import annotations

from pathlib import Path

import orjson
import pytest
from typer.testing import CliRunner

from oubli.app.cli.ledger import ledger_cli
from oubli.app.errors import StartError
from oubli.app.ledger.keys import LedgerKeys
from oubli.app.storage.directory import DataDirectory
from tests.unit.app.ledger.support import WholeLedger, as_objects, in_time, make_ledger, write_lines


@pytest.fixture
def run(tmp_path, monkeypatch, capsys):
    """Run a command in an empty folder; return exit code, stdout and what was told, or raise what it raises."""
    monkeypatch.chdir(tmp_path)

    def run(*arguments: object) -> tuple[int, str, str]:
        result = CliRunner().invoke(ledger_cli, [str(argument) for argument in arguments])
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        return result.exit_code, result.stdout, " ".join((capsys.readouterr().err + result.stderr).split())

    return run


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


def test_a_sound_ledger(run, ledger, tmp_path):
    entries = ledger.entries()
    file = write_lines(tmp_path / "ledger.jsonl", entries)
    code, out, told = run("verify", file)
    assert code == 0
    assert out.splitlines() == [
        f"{len(entries)} entries, from {entries[0]['at']} to {entries[-1]['at']}",
        "2 erasures, 1 of them erased from all files",
        f"newest entry {entries[-1]['hash']}",
    ]
    assert "Proved" in told
    assert "Not proved" in told


def test_an_empty_ledger(run, tmp_path):
    code, out, _ = run("verify", write_lines(tmp_path / "ledger.jsonl", []))
    assert (code, out.splitlines()[0]) == (0, "0 entries")


@pytest.mark.parametrize("place", [0, 2, 4])
def test_a_wrong_ledger(place, run, ledger, tmp_path):
    entries = as_objects(ledger.entries())
    entries[place]["at"] = "2026-01-01T00:00:00.000Z"
    code, out, told = run("verify", write_lines(tmp_path / "ledger.jsonl", entries))
    assert (code, out) == (1, "")
    assert f"wrong at entry {place + 1}: it was changed" in told


def test_a_receipt_and_keys(run, ledger, tmp_path):
    file = write_lines(tmp_path / "ledger.jsonl", ledger.entries())
    entry = next(entry for entry in ledger.entries() if entry["type"] == "unlearned")
    found = ledger.store.receipt(entry["receipt"], in_time)
    assert found is not None
    good = write(tmp_path / "receipt.json", {**found.content(), "durable": True})
    bad = write(tmp_path / "bad.json", {**found.content(), "unlearned": 7})
    keys = write(tmp_path / "keys.json", {"keys": ledger.auditor.public_keys()})
    others = write(tmp_path / "others.json", {"keys": LedgerKeys(None).public_keys()})
    code, out, _ = run("verify", file, "--receipt", good)
    assert (code, out.splitlines()[-1]) == (
        0,
        f"receipt signed by key {found.key_id}, entry {found.ledger_index}: erased",
    )
    assert run("verify", file, "--receipt", good, "--keys", keys)[0] == 0
    for arguments, part in (
        (("--receipt", bad), "signature"),
        (("--receipt", good, "--keys", others), "unknown"),
    ):
        code, _, told = run("verify", file, *arguments)
        assert code == 1
        assert "the receipt is wrong" in told
        assert part in told


def test_files_that_cannot_be_read(run, ledger, tmp_path):
    file = write_lines(tmp_path / "ledger.jsonl", ledger.entries())
    (tmp_path / "text").write_text("SECRET text")
    write(tmp_path / "list.json", ["SECRET"])
    for arguments in (
        ("none",),
        ("text",),
        (tmp_path,),
        (file, "--receipt", "none"),
        (file, "--receipt", "text"),
        (file, "--receipt", "list.json"),
        (file, "--keys", "text"),
        (file, "--keys", write(tmp_path / "empty.json", {})),
    ):
        with pytest.raises(StartError) as caught:
            run("verify", *arguments)
        assert "SECRET" not in str(caught.value)


@pytest.mark.parametrize("kind", ["signing", "hashing"])
def test_keys_are_rotated_while_the_server_is_stopped(kind, run, ledger, tmp_path):
    ledger.store.close()
    before = LedgerKeys(tmp_path / "data" / "keys")
    code, out, told = run("rotate-keys", kind, "--data-dir", "data")
    assert code == 0
    assert "next start" in told
    after = LedgerKeys(tmp_path / "data" / "keys")
    ids = [[keys.signing.id, keys.hashing[0].id] for keys in (before, after)]
    place = ["signing", "hashing"].index(kind)
    assert ids[1][place] == out.strip() != ids[0][place]
    assert ids[1][1 - place] == ids[0][1 - place]


def test_a_running_server_keeps_its_keys(run, ledger, tmp_path):
    ledger.store.close()
    server = DataDirectory(tmp_path / "data")
    for arguments in (("rotate-keys", "signing"), ("destroy-key", "0" * 16)):
        with pytest.raises(StartError, match="in use"):
            run(*arguments, "--data-dir", "data")
    server.close()
    run("rotate-keys", "signing", "--data-dir", "data")


def test_there_must_be_a_ledger(run, tmp_path):
    for arguments in (("rotate-keys", "signing"), ("destroy-key", "0" * 16)):
        with pytest.raises(StartError, match="--data-dir"):
            run(*arguments, "--data-dir", "nowhere")
    assert list(tmp_path.iterdir()) == []


def test_a_hashing_key_is_destroyed(run, ledger, tmp_path):
    ledger.store.close()
    old = ledger.keys.hashing[0].id
    with pytest.raises(StartError, match="in use"):
        run("destroy-key", old, "--data-dir", "data")
    run("rotate-keys", "hashing", "--data-dir", "data")
    code, _, told = run("destroy-key", old, "--data-dir", "data")
    assert code == 0
    assert old in told
    assert old not in [key.id for key in LedgerKeys(tmp_path / "data" / "keys").hashing]


def test_another_key_directory(run, ledger, tmp_path):
    ledger.store.close()
    (tmp_path / "data" / "keys").rename(tmp_path / "elsewhere")
    _, out, _ = run("rotate-keys", "signing", "--data-dir", "data", "--key-dir", "elsewhere")
    assert LedgerKeys(tmp_path / "elsewhere").signing.id == out.strip()
    assert not (tmp_path / "data" / "keys").exists()
