"""Retention periods of subjects, as a client sees them."""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from oubli.api.samples import Restriction
from oubli.app.service.build import compose, open_directory
from oubli.app.service.service import Service
from oubli.app.times import parse_time
from tests.closing import closed_at_the_end
from tests.unit.app.support import JSON, make_service, mentions, require_conforms, served

DAY = 86_400
REF = "0b4fa0c4-5c0a-4f9e-9c7d-7f3a3d0d6d55"


def retain(client: TestClient, subjects: list[str], seconds: int | None, **more: Any) -> dict[str, Any]:
    answer = client.post("/subjects/retain", json={"subjects": subjects, "seconds": seconds, **more})
    assert answer.status_code == 200, answer.text
    return dict(answer.json())


def add(client: TestClient, name: str, status: int = 201, **more: Any) -> dict[str, Any]:
    sample = {"id": name, "features": [1, "a", True], "label": "yes", **more}
    answer = client.post("/samples", json={"samples": [sample]})
    assert answer.status_code == status, answer.text
    return dict(answer.json())


def expiry(client: TestClient, name: str) -> int | None:
    """When a sample expires."""
    text = client.get(f"/samples/{name}").json()["expires_at"]
    return None if text is None else parse_time(text)


def reopened(directory: Path) -> Service:
    opened = open_directory(directory)
    closed_at_the_end(opened.database)
    assert opened.snapshots is not None
    recovered = opened.snapshots.recover()
    return compose(opened.recover(recovered), idle_resolve=False)


def test_all_samples_of_a_subject_expire_and_those_to_come():
    with served() as client:
        version = client.get("/model").json()["model_version"]
        add(client, "n1", subject="s1")
        made = retain(client, ["s1", "nobody"], DAY, ref=REF)
        require_conforms(Restriction, made)
        assert (made["requested"], made["absent"], made["samples"], made["seconds"]) == (2, 1, 13, DAY)
        assert (made["model_version"], made["ref"], "expired" in made) == (version + 2, REF, False)
        at = parse_time(made["at"])
        assert expiry(client, "c1") == at + DAY * 1000, "its addition is not known"
        assert at - 60_000 < expiry(client, "n1") - DAY * 1000 <= at
        add(client, "n2", subject="s1")
        assert at <= expiry(client, "n2") - DAY * 1000 < at + 60_000
        assert expiry(client, "c2") is None
        entry = client.get("/ledger", params={"cursor": made["ledger_index"] - 1}).json()["entries"][0]
        assert (entry["type"], entry["seconds"], entry["hash"]) == ("retained", DAY, made["ledger_head"])
        assert not mentions(entry, "s1")


def test_the_sooner_of_both_holds_and_a_period_can_be_taken_back():
    with served() as client:
        add(client, "soon", subject="s1", expires_at="2050-01-01T00:00:00Z")
        soon = expiry(client, "soon")
        retain(client, ["s1"], 90 * 366 * DAY)
        assert expiry(client, "soon") == soon
        retain(client, ["s1"], DAY)
        assert expiry(client, "soon") < soon
        row = {"features": [2, "b", None], "label": "no"}
        assert client.put("/samples/soon", json=row).status_code == 200
        made = retain(client, ["s1"], None)
        assert made["seconds"] is None
        assert expiry(client, "soon") == soon, "rectified meanwhile, it has its own expiry again"
        assert expiry(client, "c1") is None
        version = client.get("/model").json()["model_version"]
        assert retain(client, ["s1"], None)["model_version"] == version, "nothing has changed"


def test_a_period_can_come_with_a_sample():
    with served() as client:
        add(client, "n1", subject="s1", retention=DAY)
        assert expiry(client, "n1") is not None
        assert expiry(client, "c1") is not None
        n = client.get("/model").json()["n_samples"]
        again = add(client, "n1", 200, subject="s1", retention=2 * DAY)
        assert again["n_samples"] == n
        assert expiry(client, "c1") - expiry(client, "c6") == 0
        later = expiry(client, "c1")
        add(client, "n1", 200, subject="s1")
        assert expiry(client, "c1") == later
        shown = client.get("/samples/n1").json()["expires_at"]
        add(client, "n1", 200, subject="s1", expires_at=shown)


def test_bulk_formats_have_a_column_for_it():
    with served() as client:
        text = "id,subject,retention,age,city,member,label\nn1,ada,86400,1,a,true,yes\nn2,ada,,1,a,true,yes\n"
        names = [feature["name"] for feature in client.get("/model").json()["features"]]
        label = client.get("/model").json()["label"]["name"]
        text = text.replace("age,city,member,label", ",".join([*names, label]))
        answer = client.post("/samples", content=text, headers={"Content-Type": "text/csv"})
        assert answer.status_code == 201, answer.text
        assert expiry(client, "n1") == expiry(client, "n2") is not None
        bad = client.post("/samples", content=text.replace("86400", "soon"), headers={"Content-Type": "text/csv"})
        assert bad.json()["errors"][0]["pointer"] == "/samples/0/retention"
        lines = '{"id": "n3", "subject": "bob", "features": [1, "a", true], "label": "yes", "retention": 60}\n'
        answer = client.post("/samples", content=lines, headers={"Content-Type": "application/x-ndjson"})
        assert answer.status_code == 201, answer.text
        assert expiry(client, "n3") is not None


@pytest.mark.parametrize(
    ("content", "pointer"),
    [
        ({"subjects": ["s1"]}, "/seconds"),
        ({"subjects": ["s1"], "seconds": 0}, "/seconds"),
        ({"subjects": ["s1"], "seconds": 1.5}, "/seconds"),
        ({"subjects": ["s1"], "seconds": True}, "/seconds"),
        ({"subjects": ["s1"], "seconds": 10**10}, "/seconds"),
        ({"subjects": [], "seconds": 1}, "/subjects"),
        ({"subjects": [1.5], "seconds": 1}, "/subjects/0"),
        ({"subjects": ["s1"], "seconds": 1, "ref": "SEKRET"}, "/ref"),
    ],
)
def test_bad_requests_name_the_place(content: dict[str, Any], pointer: str):
    with served() as client:
        answer = client.post("/subjects/retain", json=content)
        assert (answer.status_code, answer.json()["errors"][0]["pointer"]) == (422, pointer)
        assert "SEKRET" not in answer.text


def test_bad_periods_of_samples_name_the_place():
    one = {"features": [1, "a", True], "label": "yes"}
    with served() as client:
        for samples, place in (
            ([{**one, "retention": DAY}], 0),
            ([{**one, "subject": "s1", "retention": "1d"}], 0),
            ([{**one, "subject": "s1", "retention": 1}, {**one, "subject": "s1", "retention": 2}], 1),
        ):
            answer = client.post("/samples", json={"samples": samples})
            assert answer.json()["errors"][0]["pointer"] == f"/samples/{place}/retention"
        assert client.get("/model").json()["model_version"] == 1


def test_a_repeated_request_gets_the_first_answer():
    with served() as client:
        body, key = {"subjects": ["s1"], "seconds": DAY}, {"Idempotency-Key": "k"}
        made = client.post("/subjects/retain", json=body, headers=key).json()
        retain(client, ["s1"], None)
        assert client.post("/subjects/retain", json=body, headers=key).json() == made
        assert expiry(client, "c1") is None


def test_samples_of_restricted_subjects_have_it_too():
    with served() as client:
        client.post("/subjects/restrict", json={"subjects": ["s1"]})
        made = retain(client, ["s1"], DAY)
        assert (made["absent"], made["samples"]) == (0, 12)
        assert expiry(client, "c1") == parse_time(made["at"]) + DAY * 1000
        client.post("/subjects/release", json={"subjects": ["s1"]})
        assert expiry(client, "c1") == parse_time(made["at"]) + DAY * 1000


def test_what_is_over_is_erased_with_a_receipt():
    service = make_service()
    with served(service) as client:
        client.portal.call(asyncio.sleep, 0)  # type: ignore[union-attr]
        add(client, "n1", subject="eve", retention=1)
        deadline = 600
        while client.get("/samples/n1").status_code == 200:
            deadline -= 1
            assert deadline, "it does not expire"
            client.portal.call(asyncio.sleep, 0.05)  # type: ignore[union-attr]
        receipt = client.get("/erasures").json()["erasures"][-1]
        assert (receipt["kind"], receipt["unlearned"], receipt["held"]) == ("expiry", 1, True)
        assert service.model.state.model.samples_.periods == {}


@pytest.mark.parametrize("is_in_snapshot", [False, True])
def test_it_survives_a_restart(tmp_path: Path, is_in_snapshot: bool):
    with served(make_service(directory=tmp_path)) as client:
        retain(client, ["s1", "s2"], DAY)
        add(client, "n1", subject="ada", retention=2 * DAY)
        add(client, "n2", subject="ada")
        client.post("/subjects/restrict", json={"subjects": ["s2"]})
        if is_in_snapshot:
            assert client.post("/snapshot", headers=JSON).status_code == 201
        retain(client, ["s1"], 3 * DAY)
        names = ("c1", "c2", "n1", "n2", "c3")
        before = [expiry(client, name) for name in names]
        assert [at is None for at in before] == [False] * 4 + [True]
    with served(reopened(tmp_path)) as client:
        assert [expiry(client, name) for name in names] == before
        add(client, "n3", subject="ada")
        assert expiry(client, "n3") is not None


def snapshot_file(client: TestClient) -> bytes:
    assert client.post("/snapshot", headers=JSON).status_code == 201
    return client.get("/snapshot/file").content


def test_a_restore_of_an_older_snapshot_takes_no_period_away_and_brings_none_back(tmp_path: Path):
    with served(make_service(directory=tmp_path)) as client:
        retain(client, ["s2", "s3"], DAY)
        file = snapshot_file(client)
        retain(client, ["s1"], DAY)
        add(client, "n1", subject="s4", retention=DAY)
        retain(client, ["s2"], None)
        retain(client, ["s3"], 2 * DAY)
        later = expiry(client, "c3")
        assert client.put("/snapshot/file", content=file).status_code == 200
        assert [expiry(client, name) is not None for name in ("c1", "c2", "c3", "c4")] == [True, False, True, True]
        assert expiry(client, "c3") == later


def test_a_directory_from_a_backup_learns_of_periods_from_the_newer_ledger(tmp_path: Path):
    now, backup = tmp_path / "now", tmp_path / "backup"
    with served(make_service(directory=now)) as client:
        retain(client, ["s2"], DAY)
    shutil.copytree(now, backup)
    with served(reopened(now)) as client:
        made = retain(client, ["s1"], DAY)
        retain(client, ["s2"], None)
    for path in now.glob("ledger.sqlite*"):
        shutil.copy(path, backup)
    with served(reopened(backup)) as client:
        assert expiry(client, "c1") == parse_time(made["at"]) + DAY * 1000
        assert expiry(client, "c2") is None
