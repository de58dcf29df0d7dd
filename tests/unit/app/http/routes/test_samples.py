import base64
import csv
import io
from urllib.parse import quote

from tests.unit.app.support import forest, pick, rows, samples

UUID = "123e4567-e89b-12d3-a456-426614174000"


def add(client, **sample):
    return client.post("/samples", json={"samples": [{"features": [1, "a", True], "label": "yes", **sample}]})


# --- adding


def test_what_was_added_and_rectified_is_in_the_next_prediction(client):
    added, ids = client.post("/samples", json=samples(30)), [f"n{i}" for i in range(30)]
    expected = {"ids": ids, "model_version": 2, "n_samples": 90, "durable": False}
    assert (added.status_code, added.json()) == (201, expected)
    assert client.put(f"/samples/c1?ref={UUID}", json={**C1, "label": "no"}).json()["ref"] == UUID
    receipt = client.put("/samples/c1", json={"features": [9, "z", True], "label": "no"}).json()
    assert pick(receipt, "kind unlearned model_version") == ("rectification", 1, 4)
    held = client.get("/samples/c1").json()
    assert (held["features"]["job"], held["label"], held["subject"]) == ("z", "no", "s1")
    model = forest()
    model.add(rows(30), ["yes" if i % 3 else "no" for i in range(30)], ids=ids)
    model.replace("c1", [9, "z", True], "no")
    answer = client.post("/predict", json={"instances": rows(9)}).json()
    assert (answer["probabilities"], answer["model_version"]) == (model.predict_proba(rows(9)).tolist(), 4)


# --- reading


NO_PATHS = ("search", "batch-delete", "absence-proofs", "..")  # names of routes, and what clients take for a folder
NAMES = ("a/b", "a b", "...", "a\nb", "é/ü", "?x=1#y", "%2F", "searched", "/", "a/", "+")


def test_ids_are_any_text(client):
    for name in (*NAMES, *NO_PATHS):
        assert add(client, id=name).status_code == 201
        content = {"features": [2, "a", True], "label": "no"}
        if name in NO_PATHS:
            path, query = "/samples", {"id": name}
            [read] = client.get(path, params=query).json()["samples"]
            assert client.get(path, params={**query, "format": "csv"}).text.splitlines()[1].startswith(name)
        else:
            path, query = "/samples/" + quote(name, safe=""), {}
            read = client.get(path).json()
        assert read["id"] == name
        assert client.put(path, params=query, json=content).json()["unlearned"] == 1
        assert client.delete("/samples", params={"id": name}).json()["unlearned"] == 1
        assert client.put(path, params=query, json=content).status_code == 404
        assert add(client, id=name).status_code == 409, "it was erased a moment ago"
        assert add(client, id=name, readd=True).status_code == 201
        assert client.delete(path, params=query).json()["unlearned"] == 1
        assert add(client, id=name, readd=True).status_code == 201
        assert client.post("/samples/batch-delete", json={"ids": [name]}).json()["unlearned"] == 1


def test_pages_hold_every_sample_once_and_survive_changes_in_between(client):
    page = client.get("/samples?limit=10").json()
    seen = [sample["id"] for sample in page["samples"]]
    assert seen == [f"c{i}" for i in range(10)]
    client.delete("/samples?id=c3&id=c9&id=c40")
    client.put("/samples/c30", json={"features": [39, "z", None], "label": "no"})
    client.post("/samples", json=samples(5))
    while page["next"]:
        page = client.get("/samples", params={"cursor": page["next"], "limit": 10}).json()
        seen += [sample["id"] for sample in page["samples"]]
    assert {f"c{i}" for i in range(60)} - {"c3", "c9", "c40"} <= set(seen)
    assert len(seen) == len(set(seen))


def test_cursors_hold_no_ids_and_are_checked(client):
    cursor = client.get("/samples?limit=2").json()["next"]
    # A random number and the slot: nothing else has room.
    assert base64.urlsafe_b64decode(cursor + "==")[8:] == (1).to_bytes(8, "big")
    for wrong in ("c1", cursor[:-2], cursor + "AAAA", "é"):
        assert client.get("/samples", params={"cursor": wrong}).status_code == 422, wrong
    stale = ("B" if cursor[3] == "A" else "A").join((cursor[:3], cursor[4:]))
    assert "start again" in client.get("/samples", params={"cursor": stale}).text


def test_lists_a_subject_and_what_is_named_in_a_body(client):
    for page in (client.get("/samples?subject=s2"), client.post("/samples/search", json={"subject": "s2"})):
        assert [sample["id"] for sample in page.json()["samples"]] == [f"c{i}" for i in range(2, 60, 5)]
        assert page.json()["next"] is None
    assert client.get("/samples?subject=nobody").json()["samples"] == []
    found = client.post("/samples/search", json={"ids": ["c7", 9, "nobody", "c3", "c7"]}).json()
    assert ([one["id"] for one in found["samples"]], found["next"]) == (["c7", "c3"], None)
    first = client.post("/samples/search", json={"subject": "s2", "limit": 5}).json()
    rest = client.post("/samples/search", json={"subject": "s2", "cursor": first["next"]}).json()
    assert len(first["samples"]) + len(rest["samples"]) == 12


def test_csv(client):
    add(client, id='a,"b"', subject="p", features=[None, "", None], label="yes")
    response = client.get("/samples?limit=50", headers={"Accept": "text/csv"})
    assert response.headers["content-type"].startswith("text/csv")
    assert list(csv.reader(io.StringIO(response.text)))[:2] == [
        ["id", "subject", "expires_at", "restricted_at", "weight", "age", "job", "member", "income"],
        ["c0", "s0", "", "", "1", "0", "a", "true", "no"],
    ]
    rest = client.get("/samples", params={"cursor": response.headers["next-cursor"], "format": "csv"})
    assert "next-cursor" not in rest.headers
    assert rest.text.splitlines()[-1] == '"a,""b""",p,,,1,,"",,yes'
    one = client.get("/samples/c0?format=csv").text
    assert one == "id,subject,expires_at,restricted_at,weight,age,job,member,income\r\nc0,s0,,,1,0,a,true,no\r\n"
    assert client.get("/samples?format=xml").status_code == 422


# --- rectifying


C1 = {"features": [7, "b", False], "label": "yes"}  # as it is held


def test_what_is_held_is_read_what_is_the_same_changes_nothing_and_the_subject_stays_moves_or_goes(client):
    assert client.get("/samples/c1").json() == {
        "id": "c1", "subject": "s1", "features": {"age": 7.0, "job": "b", "member": False}, "label": "yes",
        "expires_at": None, "restricted_at": None, "weight": 1, "model_version": 1,
    }  # fmt: skip
    for more, version, subject in (({}, 1, "s1"), ({"subject": "new"}, 2, "new"), ({"subject": None}, 3, None)):
        receipt = client.put("/samples/c1", json={**C1, **more}).json()
        assert pick(receipt, "unlearned model_version") == (int(version > 1), version)
        assert client.get("/samples/c1").json()["subject"] == subject


# --- deleting


def test_a_receipt_comes_again_with_the_request(client):
    receipt = client.delete(f"/samples/c1?ref={UUID}").json()
    assert client.get(f"/erasures?ref={UUID}").json()["erasures"] == [receipt]
    expected = {
        "ref": UUID, "kind": "deletion", "status": "unlearned", "guarantee": "exact", "by": "ids", "held": True,
        "requested": 1, "unlearned": 1, "absent": 0, "exported_snapshots": 0, "model_version": 2, "erased_at": None,
        "overdue": False, "ledger_index": 3, "durable": False,
    }  # fmt: skip
    assert expected.items() <= receipt.items()
    assert receipt["received_at"] <= receipt["unlearned_at"]
    client.delete("/samples/c2")
    assert client.delete("/samples/c1").json() == receipt, "of the last erasure of exactly this"
    other = client.delete("/samples?id=c1&id=c2").json()
    assert pick(other, "unlearned absent model_version") == (0, 2, 3)


def test_a_rectification_that_comes_again_with_its_key_is_made_once(kept):
    headers, sent = {"Idempotency-Key": "k1"}, {"features": [1, "a", True], "label": "yes"}
    first = kept.put("/samples/c1", json=sent, headers=headers).json()
    kept.put("/samples/c1", json={"features": [2, "b", False], "label": "no"})
    assert kept.put("/samples/c1", json=sent, headers=headers).json()["id"] == first["id"]
    assert kept.get("/samples/c1").json()["features"]["age"] == 2  # what came later was not undone
    kept.delete("/samples/c1")
    assert kept.put("/samples/c1", json=sent, headers=headers).json()["id"] == first["id"]
    again = {**sent, "label": "no"}
    for path, other in (("/samples/c2", sent), ("/samples/c1", again), (f"/samples?id=c1&ref={UUID}", sent)):
        answer = kept.put(path, json=other, headers=headers)  # the key of another request
        assert (answer.status_code, answer.json()["errors"][0]["pointer"]) == (422, "/Idempotency-Key")
