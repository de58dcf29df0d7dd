"""`oubli proof fetch`: a state with the digests of its trees, and the samples of the same version."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from oubli.app.cli import audit
from oubli.app.errors import StartError
from tests.unit.app.hosted import Hosted, hosted
from tests.unit.app.support import forest, make_service, samples


@pytest.fixture
def host(tmp_path) -> Iterator[Hosted]:
    with hosted(make_service(forest(60), tmp_path / "data")) as host:
        yield host


def fetch(host: Hosted, run: Any) -> Any:
    url = f"http://127.0.0.1:{host.port}"
    done = run("proof", "fetch", "export.jsonl", "--state", "state.json", "--url", url, "--force")
    assert done[0] == 0, done
    return json.loads(Path("state.json").read_text())


def change_while_downloading(host: Hosted, monkeypatch: pytest.MonkeyPatch, n_times: int) -> None:
    """Add a sample whenever the file of the samples is opened, so often."""
    written, changes = audit._written, iter(range(n_times))

    def changing(path: Path) -> Any:
        if path.name == "export.jsonl" and (number := next(changes, None)) is not None:
            assert host.ask("POST", "/samples", samples(1, f"m{number}-"))[0] == 201
        return written(path)

    monkeypatch.setattr(audit, "_written", changing)


@pytest.mark.parametrize("n_changes", [0, 2])
def test_what_is_fetched_is_of_one_version_and_passes_an_audit_of_single_trees(host, run, monkeypatch, n_changes):
    change_while_downloading(host, monkeypatch, n_changes)
    state = fetch(host, run)
    assert (state["state"]["model_version"], len(state["tree_digests"])) == (1 + n_changes, 5)
    keys = host.ask("GET", "/ledger/keys")[1]["keys"]
    Path("policy").write_text("".join(f"log {key['log_key']}\n" for key in keys) + "quorum none\n")
    for more in ((), ("--trees", 2)):
        _, told, _ = run("audit", "export.jsonl", "--state", "state.json", "--policy", "policy", *more)
        assert f"that of the {60 + n_changes} samples in the export" in told


def test_a_model_that_changes_all_the_time_is_not_fetched(host, run, monkeypatch):
    change_while_downloading(host, monkeypatch, 99)
    with pytest.raises(StartError, match="changed during each download"):
        fetch(host, run)
