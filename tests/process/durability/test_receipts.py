"""Receipts from the acknowledgement to the end: what they say, what they are found by, and who signed them."""

from __future__ import annotations

import shutil
import uuid
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from cryptography.exceptions import InvalidSignature

from tests.process.durability.asking import send, wait_until_erased
from tests.process.durability.clients import as_json
from tests.process.durability.evidence import check_chain, check_evidence, check_receipt, public_keys, read_ledger
from tests.process.durability.model_of_truth import Sent
from tests.process.durability.people import flags, people
from tests.process.durability.reading import finish
from tests.serving import Running, serving

PEOPLE = people()


@pytest.fixture(scope="module")
def server(_begun: tuple[Path, int], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """One server for all tests here: each has people of its own."""
    folder = tmp_path_factory.mktemp("receipts")
    shutil.copytree(_begun[0], folder, dirs_exist_ok=True)
    with serving(*flags("--erasure-deadline", "3"), cwd=folder) as server:
        yield server


def erase(server: Running, *names: str, **more: Any) -> dict[str, Any]:
    status, receipt = send(server, "POST", "/samples/batch-delete", {"ids": list(names), **more})
    assert status == 200, receipt
    return receipt


def moment(text: str) -> datetime:
    assert text.endswith("Z")
    return datetime.fromisoformat(text)


def test_a_receipt_is_unlearned_and_then_erased_in_time(server):
    first = erase(server, "p0", "p1", "nobody")
    assert (first["kind"], first["status"], first["guarantee"]) == ("deletion", "unlearned", "exact")
    assert (first["requested"], first["unlearned"], first["absent"]) == (3, 2, 1)
    assert (first["erased_at"], first["overdue"]) == (None, False)
    erased = wait_until_erased(server, first["id"], 10)
    assert erased["overdue"] is False
    times = [moment(erased[name]) for name in ("received_at", "unlearned_at", "erased_at")]
    assert times == sorted(times)
    assert (times[2] - times[1]).total_seconds() <= 3
    keys = public_keys(server)
    for receipt in (first, erased):
        check_receipt(receipt, keys)
    changed = {name for name in erased if erased[name] != first.get(name)}
    assert changed <= {"status", "erased_at", "overdue", "ledger_index", "ledger_head", "key_id", "signature"}


def test_a_receipt_that_was_changed_is_noticed(server):
    receipt = erase(server, "p2")
    keys = public_keys(server)
    check_receipt(receipt, keys)
    with pytest.raises(InvalidSignature):
        check_receipt({**receipt, "unlearned": 2}, keys)


def test_an_unknown_receipt(server):
    status, problem = server.get(f"/erasures/{uuid.uuid4()}")
    assert (status, problem["status"]) == (404, 404)


def test_by_subject_and_by_case_number(server):
    ref = str(uuid.uuid4())
    status, receipt = send(server, "DELETE", f"/samples?subject=h2&ref={ref}")
    assert (status, receipt["requested"], receipt["unlearned"], receipt["ref"]) == (200, 1, 4, ref)
    second = erase(server, "p12", ref=ref)
    status, found = server.get(f"/erasures?ref={ref}")
    assert status == 200
    assert [one["id"] for one in found["erasures"]] == [receipt["id"], second["id"]]
    status, nothing = server.get(f"/erasures?ref={uuid.uuid4()}")
    assert (status, nothing["erasures"]) == (200, [])


def test_when_all_is_absent_the_receipt_of_the_same_targets_is_given_again(server):
    first = erase(server, "p13", "p14")
    version = server.get("/model")[1]["model_version"]
    again = erase(server, "p14", "p13")
    assert again["id"] == first["id"]
    assert (again["unlearned"], again["model_version"]) == (2, first["model_version"])
    assert server.get("/model")[1]["model_version"] == version
    # Of other targets, and of none that were ever held, there is nothing to be told again.
    other = erase(server, "p13")
    assert other["id"] != first["id"]
    assert (other["unlearned"], other["absent"]) == (0, 1)
    status, of_subject = send(server, "DELETE", "/samples?subject=p13")
    assert status == 200
    assert of_subject["id"] != first["id"]


def test_a_rectification_has_a_receipt_and_is_erased(server):
    content = {"features": list(PEOPLE["p17"].features), "label": "<=50K"}
    status, receipt = send(server, "PUT", "/samples/p16", content)
    assert status == 200
    assert (receipt["kind"], receipt["requested"], receipt["unlearned"], receipt["absent"]) == (
        "rectification",
        1,
        1,
        0,
    )
    assert server.get("/samples/p16")[1]["subject"] == "h4"
    assert wait_until_erased(server, receipt["id"], 10)["overdue"] is False
    # It was not a deletion: the id is held, and may be used as before.
    assert server.get("/samples/p16")[1]["features"]["age"] == PEOPLE["p17"].features[0]
    status, problem = send(server, "PUT", "/samples/nobody", content)
    assert (status, problem["status"]) == (404, 404)


def test_the_same_key_with_the_same_body_is_answered_again(server):
    key = str(uuid.uuid4())
    sample = {"samples": [{"features": list(PEOPLE["p18"].features), "label": ">50K"}]}
    first = send(server, "POST", "/samples", sample, key=key)
    assert first[0] == 201
    again = send(server, "POST", "/samples", sample, key=key)
    assert (again[0], again[1]["ids"]) == (201, first[1]["ids"])
    assert again[1]["model_version"] == first[1]["model_version"] == server.get("/model")[1]["model_version"]
    status, problem = send(server, "POST", "/samples", {"samples": sample["samples"] * 2}, key=key)
    assert (status, problem["status"]) == (422, 422)
    deletion, other = {"ids": first[1]["ids"]}, str(uuid.uuid4())
    receipt = send(server, "POST", "/samples/batch-delete", deletion, key=other)[1]
    assert send(server, "POST", "/samples/batch-delete", deletion, key=other)[1]["id"] == receipt["id"]
    assert send(server, "POST", "/samples/batch-delete", {"ids": ["p299"]}, key=other)[0] == 422
    assert server.get("/samples/p299")[0] == 200
    # A late repetition of the addition does not bring the sample back.
    n_samples = server.get("/model")[1]["n_samples"]
    late = send(server, "POST", "/samples", sample, key=key)
    assert (late[0], late[1]["ids"]) == (201, first[1]["ids"])
    assert server.get("/model")[1]["n_samples"] == n_samples


def test_an_erased_id_comes_back_only_when_it_is_meant(server):
    erase(server, "p20")
    sample = as_json(Sent("p20", PEOPLE["p20"]))
    status, problem = send(server, "POST", "/samples", {"samples": [sample]})
    assert (status, problem["status"]) == (409, 409)
    assert server.get("/samples/p20")[0] == 404
    assert "p20" not in str(problem)
    status, _ = send(server, "POST", "/samples", {"samples": [{**sample, "readd": True}]})
    assert status == 201
    assert server.get("/samples/p20")[0] == 200


def test_an_expiry_in_the_past_or_without_zone_is_refused(server):
    sample = as_json(Sent("expired", PEOPLE["p21"]))
    for wrong in ("2020-01-01T00:00:00Z", "2999-01-01T00:00:00", "tomorrow", 7):
        status, problem = send(server, "POST", "/samples", {"samples": [{**sample, "expires_at": wrong}]})
        assert status == 422
        assert [error["pointer"] for error in problem["errors"]] == ["/samples/0/expires_at"]
    assert server.get("/samples/expired")[0] == 404
    right = {**sample, "expires_at": "2999-01-01T01:00:00+01:00"}
    assert send(server, "POST", "/samples", {"samples": [right]})[0] == 201
    assert moment(server.get("/samples/expired")[1]["expires_at"]).year == 2999


def test_the_ledger_holds_no_personal_data(server):
    ref = str(uuid.uuid4())
    status, receipt = send(server, "DELETE", f"/samples?subject=h30&ref={ref}")
    assert status == 200
    wait_until_erased(server, receipt["id"], 10)
    check_evidence(server, [receipt])
    entries = read_ledger(server)
    text = str(entries)
    assert ref in text
    for value in ("h30", "p120", "p121", PEOPLE["p120"].features[1]):
        assert f"'{value}'" not in text
    # Pages of any size make up the same ledger.
    assert read_ledger(server, limit=3)[: len(entries)] == entries
    check_chain(entries)


def test_a_scrub_erases_at_once(server):
    receipt = erase(server, "p30")
    finish(server, "/model/scrub")
    assert server.get(f"/erasures/{receipt['id']}")[1]["status"] == "erased"


def test_a_verification_compares_with_a_fresh_fit(server):
    erase(server, "p31")
    result = finish(server, "/model/verify")
    assert result["ok"] is True
    assert result["live_digest"] == result["fresh_digest"]
