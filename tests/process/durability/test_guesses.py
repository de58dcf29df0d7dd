"""Nothing that is kept tests guesses about an erased sample: neither files and answers, nor logs, nor memory.

A digest is a function of all samples. Kept anywhere, in the clear or hashed without a secret, it confirms the one right
guess among all that the missing sample could have been. `tests/histories/backups.py` looks for them in files and
answers after any history; here the log and the memory are searched as well.
"""

from __future__ import annotations

import hashlib
import logging
from pathlib import Path
from typing import Any

from oubli.app.service.erasure.checkpoint import CheckpointPolicy
from tests.histories.guesses import is_in
from tests.reach import array_bytes, texts
from tests.unit.app.hosted import Hosted, hosted, wait_until
from tests.unit.app.support import forest, make_service

VICTIM = {"id": "victim", "subject": "V", "features": [33, "b", True], "label": "no"}


def model() -> Any:
    """Enough trees to tell neighbouring ages apart."""
    return forest(60, n_estimators=60)


def finished_job(host: Hosted, path: str) -> dict[str, Any]:
    status, job = host.ask("POST", path, {})
    assert status == 202
    wait_until(lambda: host.ask("GET", f"/jobs/{job['id']}")[1]["status"] in ("succeeded", "failed"))
    return dict(host.ask("GET", f"/jobs/{job['id']}")[1])


def erase(host: Hosted) -> None:
    status, receipt = host.ask("DELETE", "/samples/victim")
    assert (status, receipt["unlearned"]) == (200, 1)
    assert host.ask("POST", "/snapshot")[0] == 201
    wait_until(lambda: host.ask("GET", f"/erasures/{receipt['id']}")[1]["status"] == "erased")


def memory(host: Hosted) -> str:
    """All that can be reached from the server, as one text."""
    return "\0".join(texts(host.everything)) + array_bytes(host.everything).decode("latin-1")


def files_of(directory: Path) -> bytes:
    """All files but keys."""
    paths = sorted(path for path in directory.rglob("*") if path.is_file() and "keys" not in path.parts)
    return b"\0".join(path.read_bytes().rstrip(b"\0") for path in paths)


def answers_of(host: Hosted, index: int) -> bytes:
    """What the server tells; a state with its trees is among it."""
    paths = ["/jobs", "/erasures", "/ledger?limit=50", "/model/states?limit=50", "/snapshot", "/metrics"]
    paths += [f"/model/states/{index}?trees=true", "/samples?limit=50&openings=true"]
    return b"\0".join(host.ask_bytes("GET", path)[1] for path in paths)


def test_digests_and_salts_of_before_are_nowhere_and_digests_of_trees_are_never_on_the_disk(tmp_path, caplog):
    """A server has learned the victim, and told its digest wherever it can."""
    caplog.set_level(logging.DEBUG)
    directory = tmp_path / "data"
    policy = CheckpointPolicy(erasure_deadline=600)
    with hosted(make_service(model(), directory, policy=policy)) as host:
        assert host.ask("POST", "/samples", {"samples": [VICTIM]})[0] == 201
        assert finished_job(host, "/model/fit")["status"] == "succeeded"
        digest = finished_job(host, "/model/verify")["result"]["live_digest"]
        assert host.ask("POST", "/model/states")[0] == 200, "verify has told this version"
        assert host.ask("POST", "/snapshot")[0] == 201
        with host.connect() as listening:  # to what changes, for a moment
            listening.sendall(b"GET /events HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
            assert listening.recv(12) == b"HTTP/1.1 200"

        (state,) = host.ask("GET", "/model/states")[1]["states"]
        opened = host.ask("GET", f"/model/states/{state['index']}?trees=true")[1]
        salt, trees = opened["salt"], opened["tree_digests"]
        assert hashlib.sha256(bytes.fromhex(salt + digest)).hexdigest() == state["digest_hash"]
        of_victim = {*trees} - {*model().tree_digests()}
        assert of_victim
        for _ in range(2):
            assert not any(is_in(one, files_of(directory)) for one in trees)
            assert host.ask("POST", "/snapshot")[0] == 201
        told = answers_of(host, state["index"])
        assert all(is_in(one, told) for one in (digest, salt, *of_victim)), "the search is blind"
        assert digest in memory(host), "the search is blind"
        wait_until(lambda: not any(one in memory(host) for one in trees[:3]))
        held = memory(host)
        assert not any(one in held for one in trees)

        erase(host)
        left = b"\0".join([files_of(directory), answers_of(host, state["index"]), caplog.text.encode()])
        assert not any(is_in(one, left) for one in (digest, salt, *of_victim))
        wait_until(lambda: not any(one in memory(host) for one in (digest, salt)))
