"""Restriction, release, retention and export of subjects, as a client sees them.

What becomes of samples through fits, restarts and restores is in `tests/histories/privacy.py`.
"""

import shutil
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

import oubli.app.service.model.influence
from oubli.app.times import parse_time
from tests.unit.app.hosted import wait_until
from tests.unit.app.http.routes.test_ledger import paged
from tests.unit.app.support import ended, forest, make_service, mentions, pick, problem_of, reopened, samples, served

ASK = {"instances": [[20, "b", True], [3, "a", False], [33, "c", None]]}
REF = "0b4fa0c4-5c0a-4f9e-9c7d-7f3a3d0d6d55"
DAY = 86_400


def digest(client: TestClient) -> str:
    """The digest of the live model, which a fresh fit has as well."""
    result = ended(client, client.post("/model/verify", json={}).json())["result"]
    assert (result["ok"], result["live_digest"]) == (True, result["fresh_digest"])
    return str(result["live_digest"])


def of(*subjects: str) -> set[str]:
    return {f"c{i}" for i in range(60) if f"s{i % 5}" in subjects}


def ask(client: TestClient, what: str, *subjects: str, **more: Any) -> dict[str, Any]:
    answer = client.post(f"/subjects/{what}", json={"subjects": list(subjects), **more})
    assert answer.status_code == 200, answer.text
    return dict(answer.json())


def sample(name: str | None, **more: Any) -> dict[str, Any]:
    return {"features": [1, "a", True], "label": "yes", "id": name, **more}


def add(client: TestClient, *sent: dict[str, Any], **headers: str) -> Any:
    return client.post("/samples", json={"samples": sent}, headers=headers)


def found(client: TestClient, answer: Any, kind: str) -> dict[str, Any]:
    """What was answered, or what a job has made of it."""
    if answer.status_code == 202:
        job = ended(client, answer.json())
        assert (job["kind"], job["result"]["url"]) == (kind, f"{answer.headers['Location']}/result")
        answer = client.get(job["result"]["url"])
    assert answer.status_code == 200, answer.text
    return dict(answer.json())


def expiry(client: TestClient, name: str) -> int | None:
    """When a sample expires."""
    text = client.get(f"/samples/{name}").json()["expires_at"]
    return None if text is None else parse_time(text)


# --- restriction and release


def test_what_is_restricted_is_in_no_tree_digest_or_count_until_it_is_released(client: TestClient) -> None:
    before, predicted = digest(client), client.post("/predict", json=ASK).json()["probabilities"]
    made = ask(client, "restrict", "s1", "s2", "nobody", ref=REF)
    assert pick(made, "requested absent samples model_version n_samples ref durable") == (3, 1, 24, 2, 36, REF, False)
    assert pick(client.get("/model").json(), "n_samples n_restricted") == (36, 24)
    fresh = forest()
    fresh.delete(sorted(of("s1", "s2")))
    assert digest(client) == fresh.fresh_fit().digest()
    assert client.post("/predict", json=ASK).json()["probabilities"] == fresh.predict_proba(ASK["instances"]).tolist()
    entry = client.get("/ledger", params={"cursor": made["ledger_index"] - 1}).json()["entries"][0]
    assert pick(entry, "type n_samples hash") == ("restricted", 24, made["ledger_head"])
    assert not mentions(entry, "s1")
    again = ask(client, "restrict", "s1")
    assert pick(again, "samples absent model_version") == (0, 0, 2)
    assert again["ledger_index"] > made["ledger_index"]
    assert client.get("/samples/c1").json()["restricted_at"] == made["at"], "the time of the first"
    released = ask(client, "release", "s1", "s2", "s4")
    assert pick(released, "absent samples expired n_samples") == (1, 24, 0, 60)
    assert (digest(client), client.get("/model").json()["n_restricted"]) == (before, 0)
    assert client.post("/predict", json=ASK).json()["probabilities"] == predicted
    assert client.get("/samples/c1").json()["restricted_at"] is None
    ask(client, "restrict", *(f"s{i}" for i in range(5)))
    assert problem_of(client.post("/predict", json=ASK)) == (409, "empty-model")


def test_it_is_shown_with_the_time_in_lists_that_have_every_sample_once(client: TestClient) -> None:
    made = ask(client, "restrict", "s1", "s3")
    one = client.get("/samples/c1").json()
    assert (one["restricted_at"], one["subject"], one["features"]["age"]) == (made["at"], "s1", 7)
    listed = client.post("/samples/search", json={"subject": "s1"}).json()["samples"]
    assert {pick(one, "id restricted_at") for one in listed} == {(name, made["at"]) for name in of("s1")}
    assert f"c6,s1,,{made['at']}," in client.get("/samples?id=c6&format=csv").text
    found = sorted((s["id"], s["restricted_at"] is not None) for s in paged(client, "samples", limit=7))
    assert found == sorted((f"c{i}", i % 5 in (1, 3)) for i in range(60))
    for what in ("release", "restrict"):  # a subject's next page is refused
        cursor = client.post("/samples/search", json={"subject": "s1", "limit": 5}).json()["next"]
        ask(client, what, "s1")
        again = client.post("/samples/search", json={"subject": "s1", "limit": 5, "cursor": cursor})
        assert problem_of(again) == (422, "invalid-input")


def test_what_a_restriction_refuses(client: TestClient) -> None:
    ask(client, "restrict", "s1")
    for key in ({}, {"Idempotency-Key": "refused"}):
        answer = add(client, sample("new"), sample("c1"), sample("other", subject="s1"), **key)
        assert problem_of(answer) == (409, "restricted")
        assert [one["pointer"] for one in answer.json()["errors"]] == ["/samples/1/id", "/samples/2/subject"]
    assert client.get("/samples/new").status_code == 404
    assert problem_of(add(client, sample("c1", readd=True))) == (409, "restricted")
    without = client.put("/samples/c1", json={"features": [1, "a", True], "label": "no", "subject": None})
    assert problem_of(without) == (409, "restricted"), "it keeps a subject"
    for name, subject, status in (("c1", "s1", 422), ("c2", "s2", 201)):  # tables
        table = client.get(f"/samples?id={name}&format=csv").text.replace(f"{name},{subject}", "x1,x")
        answer = client.post("/samples", content=table, headers={"Content-Type": "text/csv"})
        assert answer.status_code == status
        assert status == 201 or answer.json()["errors"][0]["pointer"] == "/samples/0/restricted_at"
    # A key that was answered before the restriction does not add an id that is restricted.
    sent, key = (sample("n1", subject="ada"), sample(None)), {"Idempotency-Key": "k"}
    first = add(client, *sent, **key)
    assert add(client, *sent, **key).json() == first.json()
    ask(client, "restrict", "ada")
    assert problem_of(add(client, *sent, **key)) == (409, "restricted")
    ask(client, "release", "ada")
    assert add(client, *sent, **key).json() == first.json()


def test_a_key_is_answered_again_and_changes_nothing(client: TestClient) -> None:
    for what, more, back, after in (
        ("restrict", {}, "release", {}),
        ("retain", {"seconds": DAY}, "retain", {"seconds": None}),
        ("release", {}, "restrict", {}),
    ):
        if what == "release":
            ask(client, "restrict", "s1")
        key, body = {"Idempotency-Key": what}, {"subjects": ["s1", "nobody"], "ref": REF, **more}
        first = client.post(f"/subjects/{what}", json=body, headers=key).json()
        assert first["samples"] == 12
        ask(client, back, "s1", **after)
        held = client.get("/samples/c1").json()
        assert client.post(f"/subjects/{what}", json=body, headers=key).json() == first
        assert client.get("/samples/c1").json() == held
        other = client.post(f"/subjects/{what}", json={**body, "subjects": ["s2"]}, headers=key)
        assert problem_of(other) == (422, "invalid-input")


def test_a_ranking_from_before_is_not_given_out_while_it_names_restricted_samples(client, monkeypatch):
    monkeypatch.setattr(oubli.app.service.model.influence, "_LONG", 0.0)
    answer = client.post("/influence", json={**ASK, "top": 1000})
    ranking = found(client, answer, "influence")
    assert {one["id"] for one in (*ranking["helpful"], *ranking["harmful"])} & of("s1")
    place = f"{answer.headers['Location']}/result"
    ask(client, "restrict", "nobody")
    assert client.get(place).status_code == 200
    ask(client, "restrict", "s1")
    assert problem_of(client.get(place)) == (404, "no-result")


def test_many_samples_are_restricted_on_a_copy_and_exported_by_a_job_that_goes_with_the_first_of_them() -> None:
    model = forest(1200)
    for i in range(0, 1200, 2):
        model.samples_.set_subject(f"c{i}", "many")
    fresh = model.copy()
    fresh.delete([f"c{i}" for i in range(0, 1200, 2)])
    with served(make_service(model)) as client:
        before = digest(client)
        assert ask(client, "restrict", "many")["samples"] == 600
        assert digest(client) == fresh.fresh_fit().digest()
        assert ask(client, "release", "many")["samples"] == 600
        assert digest(client) == before
        made = ended(client, client.post("/subjects/export", json={"subject": "many"}).json())["result"]
        place = made["url"]
        assert made["n_samples"] == len(client.get(place).json()["samples"]) == 600
        assert client.get(f"{place}?format=csv").text.count("\r\n") == 601
        client.delete("/samples/c3")
        assert client.get(place).status_code == 200
        client.delete("/samples/c4")
        assert problem_of(client.get(place)) == (404, "no-result")


def test_a_release_without_room_is_refused_and_changes_nothing(kept, monkeypatch):
    ask(kept, "restrict", "s1")
    assert kept.post("/samples", json=samples(8)).status_code == 201
    monkeypatch.setattr("oubli.core.forest.engine.MAX_SAMPLES", 58)
    assert problem_of(kept.post("/subjects/release", json={"subjects": ["s1"]})) == (503, "capacity")
    moved = kept.put("/samples/c1", json={"features": [1, "a", True], "label": "no", "subject": "s2"})
    assert moved.status_code == 200, moved.text
    assert problem_of(kept.post("/samples", json=samples(4, "more"))) == (503, "capacity")
    assert pick(kept.get("/model").json(), "n_samples n_restricted changes") == (57, 11, "accepted")
    kept.delete("/samples/c2")
    assert ask(kept, "release", "s3")["samples"] == 0


def test_a_directory_from_a_backup_learns_from_the_newer_ledger(tmp_path: Path) -> None:
    now, backup = tmp_path / "now", tmp_path / "backup"
    with served(make_service(directory=now)) as client:
        ask(client, "restrict", "s4")
        ask(client, "retain", "s2", seconds=DAY)
    shutil.copytree(now, backup)
    with served(reopened(now)) as client:
        made = ask(client, "restrict", "s1", keep_expired=True)
        ask(client, "release", "s4")
        retained = ask(client, "retain", "s3", seconds=DAY)
        ask(client, "retain", "s2", seconds=None)
    for path in now.glob("ledger.sqlite*"):
        shutil.copy(path, backup)
    service = reopened(backup)
    with served(service) as client:
        assert client.get("/model").json()["n_restricted"] == 12
        restricted = [client.get(f"/samples/{name}").json()["restricted_at"] for name in ("c1", "c4")]
        assert restricted == [made["at"], None]
        assert service.model.state.model.samples_.restricted.marks["s1"].keeps
        assert [expiry(client, name) for name in ("c3", "c2")] == [parse_time(retained["at"]) + DAY * 1000, None]


# --- retention


def test_all_samples_of_a_subject_expire_and_those_to_come(client: TestClient) -> None:
    version = client.get("/model").json()["model_version"]
    add(client, sample("n1", subject="s1"))
    made = ask(client, "retain", "s1", "nobody", seconds=DAY, ref=REF)
    expected = (2, 1, 13, DAY, version + 2, REF)
    assert pick(made, "requested absent samples seconds model_version ref") == expected
    assert "expired" not in made
    at = parse_time(made["at"])
    assert expiry(client, "c1") == at + DAY * 1000, "its addition is not known"
    assert at - 60_000 < expiry(client, "n1") - DAY * 1000 <= at
    add(client, sample("n2", subject="s1"))
    assert at <= expiry(client, "n2") - DAY * 1000 < at + 60_000
    assert expiry(client, "c2") is None
    entry = client.get("/ledger", params={"cursor": made["ledger_index"] - 1}).json()["entries"][0]
    assert pick(entry, "type seconds hash") == ("retained", DAY, made["ledger_head"])
    assert not mentions(entry, "s1")


def test_a_period_can_come_with_a_sample_in_every_format(client: TestClient) -> None:
    assert add(client, sample("n1", subject="s1", retention=DAY)).status_code == 201
    assert expiry(client, "n1") is not None
    assert expiry(client, "c1") == expiry(client, "c6") is not None
    text = "id,subject,retention,age,job,member,income\nn2,ada,86400,1,a,true,yes\nn3,ada,,1,a,true,yes\n"
    lines = '{"id": "n4", "subject": "bob", "features": [1, "a", true], "label": "yes", "retention": 60}\n'
    for body, kind in ((text, "text/csv"), (lines, "application/x-ndjson")):
        answer = client.post("/samples", content=body, headers={"Content-Type": kind})
        assert answer.status_code == 201, answer.text
    assert expiry(client, "n2") == expiry(client, "n3") is not None
    assert expiry(client, "n4") is not None
    bad = client.post("/samples", content=text.replace("86400", "soon"), headers={"Content-Type": "text/csv"})
    assert bad.json()["errors"][0]["pointer"] == "/samples/0/retention"


# --- access and portability


def test_a_bundle_says_what_is_held_and_where_it_comes_from(client: TestClient) -> None:
    expires = "2099-01-01T00:00:00.000Z"
    sent = (sample("n1", subject="ada", expires_at=expires), sample("n2", subject="ada"))
    add(client, *sent, **{"X-Request-ID": "import-7"})
    add(client, sample("n3", subject="bob"))
    rectified = client.put("/samples/n2", json={"features": [2, "b", None], "label": "no"}).json()
    made = ask(client, "restrict", "ada")
    bundle = client.post("/subjects/export", json={"subject": "ada"}).json()
    told = {"subject": "ada", "held": True, "kind": "forest", "guarantee": "exact", "influence": None}
    assert told.items() <= bundle.items()
    assert [s["id"] for s in bundle["samples"]] == ["n1", "n2"]
    assert {(s["request_id"], s["restricted_at"]) for s in bundle["samples"]} == {("import-7", made["at"])}
    assert all(s["added_at"] <= made["at"] for s in bundle["samples"])
    assert bundle["samples"][0]["expires_at"] == expires
    assert bundle["samples"][1]["features"] == {"age": 2, "job": "b", "member": None}
    assert [r["id"] for r in bundle["receipts"]] == [rectified["id"]]
    text = client.post("/subjects/export", json={"subject": "ada"}, headers={"Accept": "text/csv"}).text
    lines = text.splitlines()
    assert lines[0] == "id,subject,expires_at,restricted_at,weight,added_at,request_id,age,job,member,income"
    assert lines[2] == f"n2,ada,,{made['at']},1,{bundle['samples'][1]['added_at']},import-7,2,b,,no"
    client.delete("/samples?subject=ada")
    left = client.post("/subjects/export", json={"subject": "ada"}).json()
    assert (left["held"], left["samples"], [r["unlearned"] for r in left["receipts"]]) == (False, [], [2])


def test_a_bundle_tells_the_influence_of_the_subjects_samples_alone(client: TestClient) -> None:
    def influence() -> Any:
        answer = client.post("/subjects/export", json={"subject": "s1", "influence": True})
        return found(client, answer, "export")["influence"]

    told = influence()
    assert ({one["id"] for one in told["scores"]}, told["method"]) == (of("s1"), "leaf-refit")
    ask(client, "restrict", "s1")
    assert influence() is None


@pytest.mark.parametrize("kind", ["forest", "tree"])
def test_restriction_and_release_while_a_model_is_fitted(client, held_up, kind):
    ask(client, "restrict", "s0", "s1")
    job = client.post("/model/fit", json={"kind": kind}).json()
    wait_until(lambda: client.get(f"/jobs/{job['id']}").json()["progress"] > 0)
    ask(client, "restrict", "s2")
    ask(client, "release", "s0")
    client.delete("/samples/c1")
    client.put("/samples/c6", json={"features": [1, "z", None], "label": "no", "subject": "s3"})
    held_up.set()
    assert ended(client, job)["status"] == "succeeded"
    assert pick(client.get("/model").json(), "kind n_samples n_restricted") == (kind, 37, 22)
    assert client.get("/samples/c2").json()["restricted_at"] is not None
    assert client.get("/samples/c6").json()["restricted_at"] is None
    digest(client)
