"""What an erasure tells: what was named, what was held, what was unlearned; and those that find nothing."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from oubli.app.access.keys import FILE_NAME, create_key
from oubli.app.ledger.downloads import check_ledger, check_receipt
from oubli.app.times import parse_time
from tests.tiers import covering
from tests.unit.app.support import JSON, ended, forest, make_service, mentions, pick, served, served_here

pytestmark = pytest.mark.anyio

REF = "0b4fa0c4-5c0a-4f9e-9c7d-7f3a3d0d6d55"


def delete(client: TestClient, *, headers: dict[str, str] | None = None, **content: Any) -> dict[str, Any]:
    answer = client.post("/samples/batch-delete", json=content, headers=headers)
    assert answer.status_code == 200, answer.text
    return dict(answer.json())


def keyed(name: str) -> dict[str, str]:
    return {"Idempotency-Key": name}


def entries(client: TestClient) -> list[dict[str, Any]]:
    return list(client.get("/ledger").json()["entries"])


def n_receipts(client: TestClient) -> int:
    return len(client.get("/erasures").json()["erasures"])


def test_a_receipt_says_which_disclosure_was_in_force_and_what_it_does_not_hide():
    with served(make_service(forest(disclosure="low"))) as client:
        described, low = client.get("/model").json(), delete(client, ids=["c0"])
        assert (described["disclosure"], described["parameters"]["random_state"]) == ("low", None)
        assert pick(low, "disclosure disclosure_limits") == ("low", described["disclosure_limits"])
        assert "rows near them" in low["disclosure_limits"]
        ended(client, client.post("/model/fit", json={"parameters": {"disclosure": "standard"}}).json())
        standard = delete(client, ids=["c1"])
        assert (standard["disclosure"], client.get("/model").json()["disclosure"]) == ("standard", "standard")
        assert "find out" in standard["disclosure_limits"]
        ledger = check_ledger(entries(client))
        for made in (low, standard, client.get(f"/erasures/{low['id']}").json()):
            check_receipt(made, ledger)


COUNTED = "by held requested absent unlearned"


def test_subjects_named_and_samples_unlearned_are_counted_apart(client):
    made = delete(client, subjects=["s1", "s2", "nobody"])
    assert pick(made, COUNTED) == ("subjects", True, 3, 1, 24)
    assert parse_time(made["deadline"]) == parse_time(made["unlearned_at"]) + 60_000
    assert check_receipt(made, check_ledger(entries(client))).held is True
    named = delete(client, ids=["c0", "c3", "c1", "x"])
    assert pick(named, COUNTED) == ("ids", True, 4, 2, 2)
    assert client.get(f"/erasures/{made['id']}").json()["by"] == "subjects"
    page = client.get("/ledger").json()
    unlearned = [one for one in page["entries"] if one["type"] == "unlearned"]
    assert [one["by"] for one in unlearned] == ["subjects", "ids"]
    of_subjects, of_ids = (page["keyed"][str(one["index"])] for one in unlearned)
    assert (of_subjects["subject_samples"], len(of_subjects["subjects"])) == ([12, 12], 2)
    assert not mentions(page, "s1")
    assert "subjects" not in of_ids


def test_many_that_find_nothing_are_not_written_down_and_what_erases_something_always_is():
    with served(make_service(max_empty_erasures=2)) as client:
        first = [delete(client, ids=[f"x{i}"]) for i in range(2)]
        assert all(one["id"] and one["signature"] and not one["held"] for one in first)
        n_before, n_entries = n_receipts(client), len(entries(client))
        version = client.get("/model").json()["model_version"]
        assert delete(client, subjects=["a", "b", "c"]) == {
            "id": None, "ref": None, "kind": "deletion", "guarantee": "exact", "by": "subjects", "held": False,
            "requested": 3, "unlearned": 0, "absent": 3, "model_version": version, "durable": False,
        }  # fmt: skip
        assert client.post("/expiry/confirm", headers=JSON).status_code == 200, "which is not paused"
        assert (n_receipts(client), len(entries(client))) == (n_before, n_entries)
        assert {delete(client, ids=["x", f"c{i}"])["unlearned"] for i in range(20)} == {1}, "never limited"
        assert client.delete("/samples/c20").json()["held"]
        assert client.put("/samples/c21", json={"features": [1, "a", True], "label": "no"}).json()["held"]
        assert n_receipts(client) == n_before + 22


SAME = {"features": [7, "b", False], "label": "yes", "subject": "s1"}  # what c1 is
UNCHANGED: list[tuple[str, str, dict[str, Any]]] = [
    ("PUT", "/samples/c1", SAME),
    ("POST", "/subjects/restrict", {"subjects": ["s2", "nobody"]}),
    ("POST", "/subjects/release", {"subjects": ["nobody", "s1"]}),
    ("POST", "/subjects/retain", {"subjects": ["s3", "nobody"], "seconds": 3_000_000}),
    ("POST", "/subjects/retain", {"subjects": ["s1"], "seconds": None}),
    ("POST", "/samples/batch-delete", {"subjects": ["nobody"]}),
    ("POST", "/samples/batch-delete", {"ids": ["y", "y"], "ref": REF}),
    *(("DELETE", path, None) for path in ("/samples/y", "/samples?id=y&id=z")),
]


@pytest.mark.parametrize(("asked", "is_keyed"), covering(UNCHANGED, [True, False]))
def test_nothing_that_changes_nothing_is_written_down_above_the_limit(asked: Any, is_keyed: bool, tmp_path: Path):
    method, path, content = asked
    with served(make_service(directory=tmp_path, max_empty_erasures=2)) as client:
        assert client.post("/subjects/restrict", json={"subjects": ["s2"]}).json()["samples"] == 12
        assert client.post("/subjects/retain", json={"subjects": ["s3"], "seconds": 3_000_000}).json()["samples"] == 12

        def ask(key: int) -> dict[str, Any]:
            answer = client.request(method, path, json=content, headers=keyed(f"k{key}") if is_keyed else {})
            assert answer.status_code == 200, answer.text
            return dict(answer.json())

        written = ask(0)
        named = "ledger_index" if "subjects/" in path else "id"
        assert written[named] is not None
        ask(1)
        before = entries(client), client.get("/model").json()["model_version"]
        made = [ask(key) for key in range(2, 6)]
        assert (entries(client), client.get("/model").json()["model_version"]) == before
        for one in made:
            assert one[named] is None
            counted = set(one) & {"kind", "requested", "absent", "samples", "seconds", "n_samples", "by", "held"}
            assert {name: one[name] for name in counted} == {name: written[name] for name in counted}
        if is_keyed and method != "DELETE":  # which takes no key
            client.delete("/samples", params={"subject": "s0"})
            assert ask(2) == made[0], "a late retry is answered the same"


@pytest.mark.parametrize("is_kept", [False, True])
def test_a_repeated_request_without_a_receipt_is_answered_the_same(is_kept: bool, tmp_path: Path):
    names = ["n1", "n2"]
    with served(make_service(directory=tmp_path if is_kept else None, max_empty_erasures=0)) as client:
        made = delete(client, ids=names, headers=keyed("k"))
        listed = delete(client, ids=names, list_found=True, headers=keyed("listed"))
        assert (made["id"], listed["receipt"]["id"], listed["found"]) == (None, None, [])
        sample = {"id": "n1", "features": [1, "a", True], "label": "yes"}
        assert client.post("/samples", json={"samples": [sample]}).status_code == 201
        assert delete(client, ids=names, headers=keyed("k")) == made, "a late retry erases nothing new"
        assert delete(client, ids=names, list_found=True, headers=keyed("listed")) == listed
        assert client.get("/samples/n1").status_code == 200
        assert client.post("/samples/batch-delete", json={"ids": ["n1"]}, headers=keyed("k")).status_code == 422
        assert delete(client, ids=names, headers=keyed("l"))["unlearned"] == 1


def test_each_key_has_a_count_of_its_own(tmp_path: Path):
    path = tmp_path / FILE_NAME
    keys = [create_key(path, name=f"n{i}", scopes=["erase"], expires_ms=None)[1] for i in range(2)]
    with served(make_service(max_empty_erasures=1), data_dir=tmp_path) as client:
        for i, (key, is_written) in enumerate(((0, True), (0, False), (1, True), (1, False), (0, False))):
            made = client.delete(f"/samples/x{i}", headers={"X-API-Key": keys[key]}).json()
            assert (made["id"] is not None) is is_written


def test_what_was_found_is_listed_when_it_is_asked_for_and_again_for_a_repeated_request(kept: TestClient):
    asked: list[dict[str, Any]] = [{"ids": ["x", "c1", "c2", "c1"], "ref": REF}, {"subjects": ["s1", "nobody", "s2"]}]
    made = [delete(kept, **one, list_found=True, headers=keyed(str(one))) for one in asked]
    expected = [[(1, 1), (2, 1)], [(0, 11), (2, 11)]]
    assert [[(at["position"], at["samples"]) for at in one["found"]] for one in made] == expected
    assert pick(made[0]["receipt"], "requested ref") == (3, REF)
    assert delete(kept, ids=["x"], list_found=True)["found"] == []
    assert delete(kept, ids=["x", "c9"], list_found=True)["found"] == [{"position": 1, "samples": 1}]
    assert kept.post("/model/scrub").status_code == 202
    for one, first in zip(asked, made, strict=True):
        again = delete(kept, **one, list_found=True, headers=keyed(str(one)))
        assert (again["found"], again["receipt"]["id"]) == (first["found"], first["receipt"]["id"])


ONE, PERSON, MANY = {"ids": ["c1"]}, {"subjects": ["s1"]}, {"ids": ["c1", "c2", "gone"]}


@pytest.mark.parametrize("is_restricted", [False, True])
@pytest.mark.parametrize("with_keys", [False, True])
@pytest.mark.parametrize("named", [ONE, PERSON, MANY], ids=["one", "person", "many"])
async def test_who_loses_the_race_gets_the_receipt_of_the_winner(tmp_path, named, with_keys, is_restricted):
    """All are asked before the first is answered: those behind it find nothing any more."""
    async with served_here(make_service(directory=tmp_path / "d")) as client:
        if is_restricted:
            assert (await client.post("/subjects/restrict", json={"subjects": ["s1", "s2"]})).status_code == 200
        path, body = "/samples/batch-delete", {**named, "list_found": True}
        headers: list[Any] = [keyed(f"k{i}") if with_keys else {} for i in range(4)]
        sent = [client.post(path, json=body, headers=one) for one in headers]
        if not with_keys:
            query = [(name.removesuffix("s"), text) for name, texts in named.items() for text in texts]
            sent.append(client.delete("/samples", params=query))
        made = [answer.json() for answer in await asyncio.gather(*sent)]
        receipts = [one.get("receipt", one) for one in made]
        assert {one["id"] for one in receipts} == {receipts[0]["id"]}
        assert all(one["held"] and one["unlearned"] for one in receipts)
        assert {str(one["found"]) for one in made if "found" in one} == {str(made[0]["found"])}
        assert len((await client.get("/erasures")).json()["erasures"]) == 1
        if with_keys:
            assert (await client.post(path, json=body, headers=keyed("k3"))).json() == made[3]
