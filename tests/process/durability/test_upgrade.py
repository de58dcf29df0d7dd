"""Data directories that earlier versions wrote open in this one, with all that they hold (tests/golden/README.md)."""

import json
import tarfile
from pathlib import Path
from typing import Any

import pytest

from tests.process.durability.reading import check_set
from tests.serving import ROOT, Running, run_cli, serving
from tests.tiers import ordinary

DIRECTORIES = sorted((ROOT / "tests" / "golden" / "directories").glob("*.tar.xz"))
# One of each form of files; the others, which differ in the kind of model, are long.
SHORT = ("v0.1.0-forest-classification", "journal-forest-classification")
# Splits are chosen otherwise since: samples and parameters are kept, and the trees are others.
GROWN_ANEW = ("v0.1.0-", "boosting-", "journal-forest-", "ledger-2-forest-", "one-package-forest-")
# What stays in a receipt.
LASTING = ("id", "ref", "kind", "guarantee", "requested", "unlearned", "received_at", "unlearned_at", "key_id")
FLAGS = ("--data-dir", "data", "--erasure-deadline", "1")


def unpack(name: str, folder: Path) -> dict[str, Any]:
    """Have the directory as `data`, and return what the server that wrote it answered."""
    with tarfile.open(ROOT / "tests" / "golden" / "directories" / f"{name}.tar.xz") as archive:
        archive.extractall(folder, filter="data")
    return dict(json.loads((folder / "notes.json").read_text()))


def all_of(server: Running, route: str, field: str) -> list[dict[str, Any]]:
    return list(server.get(f"{route}?limit=1000")[1][field])


@pytest.mark.parametrize("name", ordinary([path.name.removesuffix(".tar.xz") for path in DIRECTORIES], *SHORT))
def test_an_earlier_data_directory_opens_is_served_and_changed(name: str, tmp_path: Path) -> None:
    notes = unpack(name, tmp_path)
    with serving(*FLAGS, cwd=tmp_path) as server:
        # At once: a model that is not exact is fitted again before an erasure says `erased`.
        answered = server.ask("POST", "/predict", {"instances": notes["asked"]})[1]
        if not name.startswith(GROWN_ANEW):
            for field in ("predictions", "classes", "probabilities"):
                assert answered.get(field) == notes["answered"].get(field)
        # Everything is there.
        model = server.get("/model")[1]
        assert (model["kind"], model["task"]) == (notes["kind"], notes["task"])
        assert model["model_version"] >= notes["model_version"]
        assert notes["parameters"].items() <= model["parameters"].items()
        held = {one["id"]: one for one in all_of(server, "/samples", "samples")}
        assert held.keys() == {one["id"] for one in notes["samples"]}
        assert all(one.items() <= held[one["id"]].items() for one in notes["samples"])
        for erased in notes["erased"]:
            assert server.get(f"/samples/{erased}")[0] == 404
        assert all_of(server, "/ledger", "entries")[: len(notes["ledger"])] == notes["ledger"]
        keys = server.get("/ledger/keys")[1]["keys"]
        assert [key for key in notes["keys"] if not any(key.items() <= one.items() for one in keys)] == []
        for receipt in notes["erasures"]:
            now = server.get(f"/erasures/{receipt['id']}")[1]
            assert {field: now[field] for field in LASTING} == {field: receipt[field] for field in LASTING}
            server.wait_until_erased(receipt["id"], 120)
        # It is changed.
        nonces = check_set(server)
        assert server.finish("/model/verify")["ok"]
        status, receipt = server.ask("DELETE", "/samples/sample-20")
        assert (status, receipt["unlearned"]) == (200, 1)
        server.wait_until_erased(receipt["id"], 120)
        before = all_of(server, "/ledger", "entries")
        (tmp_path / "ledger.jsonl").write_text("\n".join(map(json.dumps, before)))
        assert server.stop() == 0
    done = run_cli("ledger", "verify", "ledger.jsonl", cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    with serving(*FLAGS, cwd=tmp_path) as server:
        assert server.get("/samples/sample-20")[0] == 404
        assert server.get("/model")[1]["n_samples"] == len(notes["samples"]) - 1
        assert server.get(f"/erasures/{receipt['id']}")[1]["status"] == "erased"
        assert all_of(server, "/ledger", "entries")[: len(before)] == before
        assert check_set(server) == {sample: one for sample, one in nonces.items() if sample != "sample-20"}
        assert server.finish("/model/verify")["ok"]


def test_there_is_a_directory_of_every_kind() -> None:
    from oubli.core.estimators import KINDS

    for kind, task in KINDS:
        assert any(f"-{kind}-{task}." in path.name for path in DIRECTORIES), (kind, task)
