"""Restriction, release and export of subjects, as a client sees them."""

from __future__ import annotations

import csv
import io
import shutil
import threading
import time
from typing import Any

import pytest
from starlette.testclient import TestClient

import oubli.app.service.model.influence
import oubli.app.service.recovery.rebuild
from oubli.api.samples import Bundle, Restriction
from oubli.app.service.build import compose, open_directory
from oubli.app.service.erasure.checkpoint import CheckpointPolicy
from tests.closing import closed_at_the_end
from tests.unit.app.support import JSON, forest, make_service, mentions, require_conforms, samples, served

ASK = {"instances": [[20, "b", True], [3, "a", False], [33, "c", None]]}
REF = "0b4fa0c4-5c0a-4f9e-9c7d-7f3a3d0d6d55"


def digest(client: TestClient) -> str:
    """The digest of the live model, which a fresh fit has as well."""
    job = client.post("/model/verify", headers=JSON).json()
    while (state := client.get(f"/jobs/{job['id']}").json())["status"] not in ("succeeded", "failed"):
        time.sleep(0.01)
    assert state["status"] == "succeeded", state
    assert state["result"]["ok"]
    assert state["result"]["live_digest"] == state["result"]["fresh_digest"]
    return str(state["result"]["live_digest"])


def expected(gone: set[str]) -> str:
    """The digest of a fresh fit without some samples of the small model."""
    model = forest()
    model.delete(sorted(gone))
    return str(model.fresh_fit().digest())


def of(*subjects: str, n: int = 60) -> set[str]:
    return {f"c{i}" for i in range(n) if f"s{i % 5}" in subjects}


def restrict(client: TestClient, *subjects: str, **more: Any) -> dict[str, Any]:
    answer = client.post("/subjects/restrict", json={"subjects": list(subjects), **more})
    assert answer.status_code == 200, answer.text
    return dict(answer.json())


def release(client: TestClient, *subjects: str, **more: Any) -> dict[str, Any]:
    answer = client.post("/subjects/release", json={"subjects": list(subjects), **more})
    assert answer.status_code == 200, answer.text
    return dict(answer.json())


def sample(name: str, **more: Any) -> dict[str, Any]:
    return {"features": [1, "a", True], "label": "yes", "id": name, **more}


def found(client: TestClient, answer: Any, kind: str) -> dict[str, Any]:
    """What was answered, or what a job has made of it."""
    if answer.status_code == 202:
        place = answer.headers["Location"]
        while (job := client.get(place).json())["status"] not in ("succeeded", "failed"):
            time.sleep(0.01)
        assert job["status"] == "succeeded", job
        assert (job["kind"], job["result"]["url"]) == (kind, f"{place}/result")
        answer = client.get(f"{place}/result")
    assert answer.status_code == 200, answer.text
    return dict(answer.json())


def problem(answer: Any) -> str:
    return str(answer.json()["type"]).removeprefix("urn:oubli:problem:")


def test_what_is_restricted_is_in_no_tree_digest_or_count():
    with served() as client:
        version = client.get("/model").json()["model_version"]
        made = restrict(client, "s1", "s2", "nobody", ref=REF)
        assert (made["requested"], made["absent"], made["samples"]) == (3, 1, 24)
        assert (made["model_version"], made["n_samples"], made["ref"]) == (version + 1, 36, REF)
        assert made["durable"] is False
        require_conforms(Restriction, made)
        require_conforms(Restriction, release(client, "nobody"))
        model = client.get("/model").json()
        assert (model["n_samples"], model["n_restricted"]) == (36, 24)
        assert digest(client) == expected(of("s1", "s2"))
        entry = client.get("/ledger", params={"cursor": made["ledger_index"] - 1}).json()["entries"][0]
        assert (entry["type"], entry["n_samples"], entry["hash"]) == ("restricted", 24, made["ledger_head"])
        assert not mentions(entry, "s1")


def test_release_brings_digest_and_predictions_back():
    with served() as client:
        before, predicted = digest(client), client.post("/predict", json=ASK).json()
        restrict(client, "s1", "s4")
        assert client.post("/predict", json=ASK).json()["probabilities"] != predicted["probabilities"]
        made = release(client, "s1", "s4", "s2")
        assert (made["absent"], made["samples"], made["expired"], made["n_samples"]) == (1, 24, 0, 60)
        assert digest(client) == before
        assert client.post("/predict", json=ASK).json()["probabilities"] == predicted["probabilities"]
        assert client.get("/model").json()["n_restricted"] == 0
        assert client.get("/samples/c1").json()["restricted_at"] is None


def test_it_is_shown_with_the_time():
    with served() as client:
        made = restrict(client, "s1")
        one = client.get("/samples/c1").json()
        assert one["restricted_at"] == made["at"]
        assert (one["subject"], one["features"]["age"]) == ("s1", 7)
        listed = client.post("/samples/search", json={"subject": "s1"}).json()["samples"]
        assert {s["id"] for s in listed} == of("s1")
        assert {s["restricted_at"] for s in listed} == {made["at"]}
        table = list(csv.DictReader(io.StringIO(client.get("/samples?id=c6&format=csv").text)))
        assert table[0]["restricted_at"] == made["at"]


def test_a_list_has_every_sample_once():
    with served() as client:
        restrict(client, "s0", "s3")
        seen, cursor = [], None
        while True:
            page = client.get("/samples", params={"limit": 7} | ({} if cursor is None else {"cursor": cursor})).json()
            seen += [(s["id"], s["restricted_at"] is not None) for s in page["samples"]]
            cursor = page["next"]
            if cursor is None:
                break
        assert sorted(seen) == sorted((f"c{i}", i % 5 in (0, 3)) for i in range(60))


@pytest.mark.parametrize("back", [False, True])
def test_a_page_of_a_subject_that_was_restricted_meanwhile_is_refused(back: bool):
    with served() as client:
        if back:
            restrict(client, "s1")
        page = client.post("/samples/search", json={"subject": "s1", "limit": 5}).json()
        (release if back else restrict)(client, "s1")
        again = client.post("/samples/search", json={"subject": "s1", "limit": 5, "cursor": page["next"]})
        assert (again.status_code, problem(again)) == (422, "invalid-input")


def test_adding_a_restricted_id_or_a_sample_of_a_restricted_subject_is_refused():
    with served() as client:
        restrict(client, "s1")
        body = {"samples": [sample("new"), sample("c1"), sample("other", subject="s1")]}
        for key in ({}, {"Idempotency-Key": "k"}):
            answer = client.post("/samples", json=body, headers=key)
            assert (answer.status_code, problem(answer)) == (409, "restricted")
            assert [one["pointer"] for one in answer.json()["errors"]] == ["/samples/1/id", "/samples/2/subject"]
        assert client.get("/samples/new").status_code == 404
        one = client.post("/samples", json={"samples": [sample("c1", readd=True)]})
        assert (one.status_code, problem(one)) == (409, "restricted")


def test_a_key_that_was_answered_before_does_not_add_a_restricted_id():
    with served() as client:
        body, key = {"samples": [sample("n1", subject="ada"), {**sample(""), "id": None}]}, {"Idempotency-Key": "k"}
        first = client.post("/samples", json=body, headers=key)
        assert client.post("/samples", json=body, headers=key).json() == first.json()
        restrict(client, "ada")
        again = client.post("/samples", json=body, headers=key)
        assert (again.status_code, problem(again)) == (409, "restricted")
        release(client, "ada")
        assert client.post("/samples", json=body, headers=key).json() == first.json()


def test_a_key_is_answered_again_and_changes_nothing():
    with served() as client:
        key, body = {"Idempotency-Key": "one"}, {"subjects": ["s1", "nobody"], "ref": REF}
        first = client.post("/subjects/restrict", json=body, headers=key).json()
        release(client, "s1")
        assert client.post("/subjects/restrict", json=body, headers=key).json() == first
        assert client.get("/model").json()["n_restricted"] == 0
        other = client.post("/subjects/restrict", json={"subjects": ["s2"]}, headers=key)
        assert (other.status_code, problem(other)) == (422, "invalid-input")
        released = client.post("/subjects/release", json=body, headers=key).json()
        assert client.post("/subjects/release", json=body, headers=key).json() == released


def test_restricting_again_changes_nothing_and_keeps_the_time():
    with served() as client:
        first = restrict(client, "s1")
        again = restrict(client, "s1")
        assert (again["samples"], again["absent"]) == (0, 0)
        assert again["model_version"] == first["model_version"]
        assert again["ledger_index"] > first["ledger_index"]
        assert client.get("/samples/c1").json()["restricted_at"] == first["at"]


@pytest.mark.parametrize("subjects", [["s0", "s1", "s2", "s3", "s4"]])
def test_a_model_of_which_all_is_restricted_is_empty(subjects: list[str]):
    with served() as client:
        before = digest(client)
        restrict(client, *subjects)
        answer = client.post("/predict", json=ASK)
        assert (answer.status_code, problem(answer)) == (409, "empty-model")
        digest(client)
        release(client, *subjects)
        assert digest(client) == before


def test_it_is_erased_by_id_and_by_subject_with_a_receipt():
    with served() as client:
        restrict(client, "s1", "s2")
        before = digest(client)
        receipt = client.delete("/samples/c1").json()
        assert (receipt["unlearned"], receipt["absent"]) == (1, 0)
        assert client.get("/samples/c1").status_code == 404
        body = {"subjects": ["s1"], "ref": REF}
        receipt = client.post("/samples/batch-delete", json=body).json()
        assert (receipt["unlearned"], receipt["requested"], receipt["ref"]) == (11, 1, REF)
        assert client.post("/samples/search", json={"subject": "s1"}).status_code == 404
        receipt = client.post("/samples/batch-delete", json={"ids": ["c2", "c3", "c1"]}).json()
        assert (receipt["unlearned"], receipt["absent"]) == (2, 1)
        assert digest(client) == expected(of("s1", "s2") | {"c3"}) != before
        assert release(client, "s1", "s2")["samples"] == 11
        assert digest(client) == expected(of("s1") | {"c2", "c3"})


def test_the_restriction_ends_with_the_last_sample_of_the_subject():
    with served() as client:
        client.post("/samples", json={"samples": [sample("n1", subject="ada")]})
        restrict(client, "ada")
        assert client.delete("/samples/n1").json()["unlearned"] == 1
        assert client.post("/samples", json={"samples": [sample("n2", subject="ada")]}).status_code == 201
        assert client.get("/samples/n2").json()["restricted_at"] is None


def test_it_can_be_rectified_and_stays_restricted():
    with served() as client:
        made = restrict(client, "s1")
        before = digest(client)
        body = {"features": [99, "z", None], "label": "maybe"}
        receipt = client.put("/samples/c1", json=body).json()
        assert (receipt["kind"], receipt["unlearned"]) == ("rectification", 1)
        one = client.get("/samples/c1").json()
        assert (one["features"], one["label"]) == ({"age": 99, "job": "z", "member": None}, "maybe")
        assert (one["restricted_at"], one["subject"]) == (made["at"], "s1")
        assert digest(client) == before
        assert "maybe" not in client.get("/model").json()["classes"]
        release(client, "s1")
        model = forest()
        model.replace("c1", [99, "z", None], "maybe")
        assert digest(client) == model.fresh_fit().digest()


def test_a_sample_that_is_moved_to_a_restricted_subject_is_restricted():
    with served() as client:
        made = restrict(client, "s1")
        receipt = client.put("/samples/c2", json={"features": [5, "a", True], "label": "no", "subject": "s1"}).json()
        assert receipt["unlearned"] == 1
        assert client.get("/samples/c2").json()["restricted_at"] == made["at"]
        assert digest(client) == expected(of("s1") | {"c2"})
        assert client.get("/model").json()["n_restricted"] == 13
        assert release(client, "s1")["samples"] == 13


def test_a_sample_that_is_moved_to_an_unrestricted_subject_is_learned_from():
    with served() as client:
        restrict(client, "s1")
        body = {"features": [7, "b", False], "label": "yes", "subject": "s2"}
        assert client.put("/samples/c1", json=body).json()["unlearned"] == 1
        assert client.get("/samples/c1").json()["restricted_at"] is None
        assert digest(client) == expected(of("s1") - {"c1"})


def test_a_restricted_sample_keeps_a_subject():
    with served() as client:
        restrict(client, "s1")
        version = client.get("/model").json()["model_version"]
        answer = client.put("/samples/c1", json={"features": [1, "a", True], "label": "no", "subject": None})
        assert (answer.status_code, problem(answer)) == (409, "restricted")
        assert client.get("/model").json()["model_version"] == version


def test_restricted_samples_do_not_count_in_influence():
    with served() as client:
        restrict(client, "s1", "s2", "s3")
        answer = client.post("/influence", json={"instances": ASK["instances"], "top": 1000})
        ranking = found(client, answer, "influence")
        named = {one["id"] for one in (*ranking["helpful"], *ranking["harmful"])}
        assert named
        assert not named & of("s1", "s2", "s3")


def test_a_ranking_from_before_is_not_given_out_while_it_names_restricted_samples(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(oubli.app.service.model.influence, "_LONG", 0.0)
    with served() as client:
        answer = client.post("/influence", json={"instances": ASK["instances"], "top": 1000})
        assert answer.status_code == 202
        ranking = found(client, answer, "influence")
        assert {one["id"] for one in (*ranking["helpful"], *ranking["harmful"])} & of("s1")
        place = f"{answer.headers['Location']}/result"
        assert client.get(place).status_code == 200
        restrict(client, "nobody")
        assert client.get(place).status_code == 200
        restrict(client, "s1")
        assert problem(client.get(place)) == "no-result"


@pytest.mark.parametrize("path", ["/subjects/restrict", "/subjects/release"])
@pytest.mark.parametrize(
    ("body", "pointer"),
    [
        ({}, "/subjects"),
        ({"subjects": []}, "/subjects"),
        ({"subjects": "s1"}, "/subjects"),
        ({"subjects": ["s1", ""]}, "/subjects/1"),
        ({"subjects": ["s1"], "ref": "ada"}, "/ref"),
        ({"subject": "s1"}, ""),
    ],
)
def test_what_is_no_request_is_refused(path: str, body: Any, pointer: str):
    with served() as client:
        answer = client.post(path, json=body)
        assert (answer.status_code, problem(answer)) == (422, "invalid-input")
        assert [one["pointer"] for one in answer.json()["errors"]] == [pointer]
        assert not mentions(answer.json(), "s1")


def test_flags_are_true_or_false():
    with served() as client:
        answer = client.post("/subjects/restrict", json={"subjects": ["s1"], "keep_expired": 1})
        assert [one["pointer"] for one in answer.json()["errors"]] == ["/keep_expired"]
        assert client.post("/subjects/release", json={"subjects": ["s1"], "keep_expired": True}).status_code == 422
        answer = client.post("/subjects/export", json={"subject": "s1", "influence": "yes"})
        assert [one["pointer"] for one in answer.json()["errors"]] == ["/influence"]


def test_a_table_with_restricted_samples_is_refused():
    with served() as client:
        restrict(client, "s1")
        table = client.get("/samples?id=c1&format=csv").text.replace("c1,s1", "x1,x")
        answer = client.post("/samples", content=table, headers={"Content-Type": "text/csv"})
        assert (answer.status_code, answer.json()["errors"][0]["pointer"]) == (422, "/samples/0/restricted_at")
        table = client.get("/samples?id=c2&format=csv").text.replace("c2,s2", "x1,x")
        answer = client.post("/samples", content=table, headers={"Content-Type": "text/csv"})
        assert answer.status_code == 201


def test_many_samples_are_restricted_on_a_copy(tmp_path: Any):
    model = forest(1200)
    for i in range(0, 1200, 2):
        model.samples_.set_subject(f"c{i}", "many")
    fresh = model.copy()
    with served(make_service(model, tmp_path)) as client:
        before = digest(client)
        assert restrict(client, "many")["samples"] == 600
        fresh.delete([f"c{i}" for i in range(0, 1200, 2)])
        assert digest(client) == fresh.fresh_fit().digest()
    with served(reopened(tmp_path)) as client:
        assert digest(client) == fresh.digest()
        assert release(client, "many")["samples"] == 600
        assert digest(client) == before


@pytest.mark.parametrize("kind", ["forest", "tree"])
def test_restriction_and_release_while_a_model_is_fitted(monkeypatch: pytest.MonkeyPatch, kind: str):
    gate, refit = threading.Event(), oubli.app.service.recovery.rebuild.refit

    def slow(*arguments: Any) -> Any:
        assert gate.wait(60)
        return refit(*arguments)

    monkeypatch.setattr(oubli.app.service.recovery.rebuild, "refit", slow)
    with served() as client:
        restrict(client, "s0", "s1")
        job = client.post("/model/fit", json={"kind": kind}).json()
        while client.get(f"/jobs/{job['id']}").json()["progress"] == 0:
            time.sleep(0.01)
        restrict(client, "s2")
        release(client, "s0")
        client.delete("/samples/c1")
        client.put("/samples/c6", json={"features": [1, "z", None], "label": "no", "subject": "s3"})
        gate.set()
        while (state := client.get(f"/jobs/{job['id']}").json())["status"] != "succeeded":
            assert state["status"] != "failed", state
            time.sleep(0.01)
        model = client.get("/model").json()
        assert (model["kind"], model["n_samples"], model["n_restricted"]) == (kind, 37, 22)
        assert {s["id"] for s in listed(client, "s2")} == of("s2")
        assert all(s["restricted_at"] is not None for s in (*listed(client, "s2"), *listed(client, "s1")))
        assert client.get("/samples/c6").json()["restricted_at"] is None
        digest(client)


def listed(client: TestClient, subject: str) -> list[dict[str, Any]]:
    return list(client.post("/samples/search", json={"subject": subject}).json()["samples"])


# --- over restarts and restores


def reopened(directory: Any) -> Any:
    opened = open_directory(directory)
    closed_at_the_end(opened.database)
    recovered = opened.snapshots.recover()
    return compose(opened.recover(recovered), idle_resolve=False)


def test_a_release_without_room_is_refused_and_changes_nothing(tmp_path: Any, monkeypatch: pytest.MonkeyPatch):
    with served(make_service(directory=tmp_path / "data")) as client:
        restrict(client, "s1")
        assert client.post("/samples", json=samples(8)).status_code == 201
        monkeypatch.setattr("oubli.core.forest.engine.MAX_SAMPLES", 58)
        answer = client.post("/subjects/release", json={"subjects": ["s1"]})
        assert (answer.status_code, problem(answer)) == (503, "capacity"), answer.text
        moved = client.put("/samples/c1", json={"features": [1, "a", True], "label": "no", "subject": "s2"})
        assert moved.status_code == 200, moved.text
        refused = client.post("/samples", json=samples(4, "more"))
        assert (refused.status_code, problem(refused)) == (503, "capacity"), refused.text
        model = client.get("/model").json()
        assert (model["n_samples"], model["n_restricted"], model["changes"]) == (57, 11, "accepted")
        client.delete("/samples/c2")
        assert release(client, "s3")["samples"] == 0


@pytest.mark.parametrize("is_in_snapshot", [False, True])
def test_it_survives_a_restart(tmp_path: Any, is_in_snapshot: bool):
    with served(make_service(directory=tmp_path, policy=CheckpointPolicy())) as client:
        before = digest(client)
        made = restrict(client, "s1", "s3", keep_expired=True)
        client.put("/samples/c1", json={"features": [99, "z", None], "label": "no"})
        client.put("/samples/c1", json={"features": [7, "b", False], "label": "yes"})
        client.delete("/samples/c3")
        if is_in_snapshot:
            assert client.post("/snapshot", headers=JSON).status_code == 201
            release(client, "s3")
            restrict(client, "s3")
        model = client.get("/model").json()
        live = digest(client)
    with served(reopened(tmp_path)) as client:
        assert client.get("/model").json()["model_version"] == model["model_version"]
        assert client.get("/model").json()["n_restricted"] == model["n_restricted"] == 23
        assert digest(client) == live == expected(of("s1", "s3"))
        assert client.get("/samples/c1").json()["restricted_at"] == made["at"]
        answer = client.post("/samples", json={"samples": [sample("c1")]})
        assert problem(answer) == "restricted"
        release(client, "s1", "s3")
        assert digest(client) == expected({"c3"}) != before


def snapshot_file(client: TestClient) -> bytes:
    assert client.post("/snapshot", headers=JSON).status_code == 201
    return client.get("/snapshot/file").content


def restore(client: TestClient, file: bytes) -> dict[str, Any]:
    answer = client.put("/snapshot/file", content=file)
    assert answer.status_code == 200, answer.text
    return dict(answer.json())


def test_a_restore_of_an_older_snapshot_ends_no_restriction_and_begins_none(tmp_path: Any):
    with served(make_service(directory=tmp_path)) as client:
        restrict(client, "s4")
        file = snapshot_file(client)
        restrict(client, "s1")
        release(client, "s4")
        client.delete("/samples/c6")
        made = restore(client, file)
        assert made["dropped"] == {"erased": 1, "rectified": 0, "expired": 0}
        assert (made["n_samples"], made["n_restricted"], made["no_longer_held"]) == (48, 11, 0)
        assert digest(client) == expected(of("s1"))
        assert client.get("/samples/c4").json()["restricted_at"] is None
        assert client.get("/samples/c1").json()["restricted_at"] is not None
        release(client, "s1")
        assert digest(client) == expected({"c6"})


def test_a_directory_from_a_backup_learns_of_restrictions_from_the_newer_ledger(tmp_path: Any):
    now, backup = tmp_path / "now", tmp_path / "backup"
    with served(make_service(directory=now)) as client:
        restrict(client, "s4")
    shutil.copytree(now, backup)
    with served(reopened(now)) as client:
        made = restrict(client, "s1", keep_expired=True)
        release(client, "s4")
    for path in now.glob("ledger.sqlite*"):
        shutil.copy(path, backup)
    service = reopened(backup)
    with served(service) as client:
        assert client.get("/model").json()["n_restricted"] == 12
        assert client.get("/samples/c1").json()["restricted_at"] == made["at"]
        assert service.model.state.model.samples_.restricted.marks["s1"].keeps
        assert client.get("/samples/c4").json()["restricted_at"] is None
        assert digest(client) == expected(of("s1"))


def test_a_restore_restricts_whom_nothing_was_held_of_meanwhile(tmp_path: Any):
    with served(make_service(directory=tmp_path)) as client:
        older = snapshot_file(client)
        client.post("/samples", json={"samples": [sample("n1", subject="ada")]})
        newer = snapshot_file(client)
        restore(client, older)
        assert restrict(client, "ada")["absent"] == 1
        assert restore(client, newer)["n_restricted"] == 1
        assert client.get("/samples/n1").json()["restricted_at"] is not None


def test_a_snapshot_is_restored_as_restricted_elsewhere(tmp_path: Any):
    with served(make_service(directory=tmp_path / "a")) as client:
        restrict(client, "s1")
        file = snapshot_file(client)
    with served(make_service(forest(3), directory=tmp_path / "b")) as client:
        restrict(client, "s2")
        release(client, "s1")
        made = restore(client, file)
        assert (made["n_samples"], made["n_restricted"]) == (36, 24)
        assert digest(client) == expected(of("s1", "s2"))


# --- access and portability


def test_a_bundle_says_what_is_held_and_where_it_comes_from():
    with served() as client:
        body = {
            "samples": [sample("n1", subject="ada", expires_at="2099-01-01T00:00:00Z"), sample("n2", subject="ada")]
        }
        client.post("/samples", json=body, headers={"X-Request-ID": "import-7"})
        client.post("/samples", json={"samples": [sample("n3", subject="bob")]})
        rectified = client.put("/samples/n2", json={"features": [2, "b", None], "label": "no"}).json()
        made = restrict(client, "ada")
        bundle = client.post("/subjects/export", json={"subject": "ada"}).json()
        assert (bundle["subject"], bundle["held"], bundle["kind"], bundle["guarantee"]) == (
            "ada",
            True,
            "forest",
            "exact",
        )
        assert [s["id"] for s in bundle["samples"]] == ["n1", "n2"]
        assert {s["request_id"] for s in bundle["samples"]} == {"import-7"}
        assert {s["restricted_at"] for s in bundle["samples"]} == {made["at"]}
        assert all(s["added_at"] <= made["at"] for s in bundle["samples"])
        assert bundle["samples"][0]["expires_at"] == "2099-01-01T00:00:00.000Z"
        assert bundle["samples"][1]["features"] == {"age": 2, "job": "b", "member": None}
        assert [r["id"] for r in bundle["receipts"]] == [rectified["id"]]
        assert bundle["influence"] is None
        require_conforms(Bundle, bundle)
        text = client.post("/subjects/export", json={"subject": "ada"}, headers={"Accept": "text/csv"}).text
        table = list(csv.DictReader(io.StringIO(text)))
        assert [row["id"] for row in table] == ["n1", "n2"]
        assert table[1] == {
            "id": "n2",
            "subject": "ada",
            "expires_at": "",
            "restricted_at": made["at"],
            "added_at": bundle["samples"][1]["added_at"],
            "request_id": "import-7",
            "age": "2",
            "job": "b",
            "member": "",
            "income": "no",
        }


def test_a_bundle_of_somebody_unknown_says_that_nothing_is_held():
    with served() as client:
        client.delete("/samples?subject=s1")
        bundle = client.post("/subjects/export", json={"subject": "s1"}).json()
        assert (bundle["held"], bundle["samples"]) == (False, [])
        assert [r["unlearned"] for r in bundle["receipts"]] == [12]
        assert client.post("/subjects/export", json={"subject": "nobody"}).json()["receipts"] == []


def exported(client: TestClient, **body: Any) -> dict[str, Any]:
    return found(client, client.post("/subjects/export", json=body), "export")


def test_a_bundle_tells_the_influence_of_the_subjects_samples_alone():
    with served() as client:
        bundle = exported(client, subject="s1", influence=True)
        require_conforms(Bundle, bundle)
        assert {one["id"] for one in bundle["influence"]["scores"]} == of("s1")
        assert bundle["influence"]["method"] == "leave-one-out"
        restrict(client, "s1")
        assert exported(client, subject="s1", influence=True)["influence"] is None


def test_a_large_bundle_is_a_job_and_goes_with_the_first_of_its_samples():
    model = forest(1200)
    with served(make_service(model)) as client:
        for i in range(0, 1200, 2):
            model.samples_.set_subject(f"c{i}", "many")
        answer = client.post("/subjects/export", json={"subject": "many"})
        assert answer.status_code == 202
        while (job := client.get(answer.headers["Location"]).json())["status"] != "succeeded":
            assert job["status"] != "failed", job
            time.sleep(0.01)
        assert job["result"]["n_samples"] == 600
        place = job["result"]["url"]
        assert len(client.get(place).json()["samples"]) == 600
        assert client.get(f"{place}?format=csv").text.count("\r\n") == 601
        client.delete("/samples/c3")
        assert client.get(place).status_code == 200
        client.delete("/samples/c4")
        gone = client.get(place)
        assert (gone.status_code, problem(gone)) == (404, "no-result")


def test_generated_ids_pass_over_restricted_ones():
    with served() as client:
        (name,) = client.post("/samples", json={"samples": [{**sample(""), "id": None, "subject": "ada"}]}).json()[
            "ids"
        ]
        restrict(client, "ada")
        more = client.post("/samples", json=samples(3) | {"samples": [{**sample(""), "id": None}]}).json()["ids"]
        assert name not in more
