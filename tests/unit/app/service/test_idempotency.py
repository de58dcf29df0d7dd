"""After an erasure nothing that is kept of a repeated request tells what its body held."""

import hashlib
from pathlib import Path
from typing import Any

import orjson
import pytest
from starlette.testclient import TestClient

from oubli.app.ledger.keys import KEYS_NAME, LedgerKeys
from oubli.app.times import to_text
from tests.unit.app.hosted import wait_until
from tests.unit.app.support import JSON, make_service, problem_of, reopened, samples, served

BODY = samples(2, prefix="p", subject="person")
AGAIN = {"samples": [{**one, "readd": True} for one in BODY["samples"]]}


def add(client: TestClient, key: str, content: Any) -> int:
    return client.post("/samples", json=content, headers={"Idempotency-Key": key}).status_code


def erase(client: TestClient, **content: Any) -> None:
    receipt = client.post("/samples/batch-delete", json=content).json()
    assert client.post("/snapshot").status_code == 201
    assert client.get(f"/erasures/{receipt['id']}").json()["status"] == "erased"


def assert_spent(client: TestClient, key: str) -> None:
    """Every body gets the same answer, and nothing changes."""
    version = client.get("/model").json()["model_version"]
    tried = (BODY, samples(2, prefix="p", subject="other"), AGAIN)
    answers = [client.post("/samples", json=content, headers={"Idempotency-Key": key}) for content in tried]
    assert problem_of(answers[0]) == (409, "key-spent")
    assert len({(one.status_code, one.text) for one in answers}) == 1
    assert client.get("/model").json()["model_version"] == version


@pytest.mark.parametrize("named", [{"ids": ["p1"]}, {"subjects": ["person"]}, {"subjects": ["nobody", "person"]}])
def test_after_an_erasure_a_repeated_addition_is_refused_whatever_it_holds(tmp_path: Path, named: Any) -> None:
    with served(make_service(directory=tmp_path / "d")) as client:
        assert add(client, "k", BODY) == add(client, "k", BODY) == add(client, "other", samples(1, "q")) == 201
        erase(client, **named)
        assert_spent(client, "k")
        assert (add(client, "other", samples(1, "q")), add(client, "other", samples(2, "q"))) == (201, 422)
        assert add(client, "new", AGAIN) == 201
    with served(reopened(tmp_path / "d")) as client:
        assert_spent(client, "k")


def test_a_rectification_ends_what_is_known_of_the_addition_and_not_its_own_record(tmp_path: Path) -> None:
    new = {"json": {"features": [3, "a", True], "label": "no"}, "headers": {"Idempotency-Key": "r"}}
    with served(make_service(directory=tmp_path / "d")) as client:
        add(client, "k", BODY)
        first = client.put("/samples/p1", **new).json()
        assert add(client, "k", BODY) == 201, "until the erasure is finished"
        client.post("/snapshot")
        assert_spent(client, "k")
        assert client.put("/samples/p1", **new).json()["id"] == first["id"]
        erase(client, ids=["p1"])
        assert client.put("/samples/p1", **new).status_code == 409


def test_what_has_expired_is_erased_in_the_same_way(tmp_path: Path) -> None:
    with served(service := make_service(directory=tmp_path / "d")) as client:
        soon = to_text(service.model.clock.now_ms() + 300)
        assert add(client, "k", samples(1, prefix="p", expires_at=soon)) == 201
        wait_until(lambda: client.get("/samples/p0").status_code == 404)
        client.post("/snapshot")
        assert_spent(client, "k")


def test_a_name_that_is_not_held_any_more_counts(tmp_path: Path) -> None:
    """A restore can lose a sample without an erasure, as a sliding window does; it may be asked for later."""
    with served(make_service(directory=tmp_path / "d")) as client:
        older = client.get("/snapshot/file?fresh=true").content
        add(client, "k", BODY)
        octets = {"Content-Type": "application/octet-stream"}
        assert client.put("/snapshot/file", content=older, headers=octets).json()["no_longer_held"] == 2
        erase(client, ids=["p0"])
        assert_spent(client, "k")


def test_a_rotated_hashing_key_does_not_hide_a_request(tmp_path: Path) -> None:
    directory, raw = tmp_path / "d", orjson.dumps(BODY)

    def is_kept(body: str) -> bool:
        return any(body.encode() in path.read_bytes() for path in directory.rglob("*") if path.is_file())

    with served(service := make_service(directory=directory)) as client:
        assert client.post("/samples", content=raw, headers={"Idempotency-Key": "k", **JSON}).status_code == 201
        body = service.disk.ledger.hash_text(f"POST /samples\0{hashlib.sha256(raw).hexdigest()}")
        assert client.post("/snapshot").status_code == 201
    assert is_kept(body)
    LedgerKeys(directory / KEYS_NAME).rotate("hashing")
    with served(reopened(directory)) as client:
        assert is_kept(body)
        erase(client, ids=["p0"])
        assert not is_kept(body)
