"""Receipts from the acknowledgement to the end: what they say, what they are found by, and who signed them."""

from __future__ import annotations

import shutil
import uuid
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from tests.process.durability.asking import send, wait_until_erased
from tests.process.durability.evidence import check_receipt, public_keys
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


def test_a_scrub_erases_at_once(server):
    receipt = erase(server, "p30")
    finish(server, "/model/scrub")
    assert server.get(f"/erasures/{receipt['id']}")[1]["status"] == "erased"
