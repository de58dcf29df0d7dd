"""After `erased` nothing of a sample is left in any array, cache or container that the application can reach."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import quote

import pytest
from starlette.testclient import TestClient

from oubli.app.http.app import create_app
from oubli.app.service.build import build_service
from oubli.app.settings import Settings
from tests.process.durability.canaries import canary, forms, remains, tensors
from tests.process.durability.people import ID_COLUMN, SUBJECT_COLUMN, TARGET, people, write_csv
from tests.tiers import ordinary

ROW = people(1)["p0"].features
KEPT = canary(500, ROW)
NEVER = canary(900, ROW)
FLOCK = [canary(i, people()[f"p{i}"].features, extreme=i < 4) for i in range(8)]


@contextmanager
def serving_here(folder: Path, directory: Path, kind: str) -> Iterator[TestClient]:
    """The application as the command line builds it, without a socket."""
    settings = Settings(
        model=kind,
        data=folder / "people.csv",
        target=TARGET,
        id_column=ID_COLUMN,
        subject_column=SUBJECT_COLUMN,
        n_estimators=None if kind == "tree" else 10,
        random_state=0,
        data_dir=directory,
        erasure_deadline=600,
    )
    with TestClient(create_app(settings, build_service(settings)), base_url="http://127.0.0.1") as client:
        while client.get("/readyz").status_code != 200:
            time.sleep(0.01)
        yield client


KINDS = ("forest", "tree", "online-boosting", "incremental-boosting")
with_the_forest = pytest.mark.parametrize("kind", ordinary(KINDS, "forest"), indirect=True)


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def client(tmp_path: Path, kind: str) -> Iterator[TestClient]:
    write_csv(tmp_path / "people.csv")
    with serving_here(tmp_path, tmp_path / "oubli-data", kind) as client:
        yield client


def pass_by(client: TestClient) -> None:
    """Ask for something else: the last request of each sort may be remembered."""
    plain = {"samples": [{"id": "passer-by", "features": list(ROW), "label": "<=50K"}]}
    assert client.post("/samples", json=plain).status_code == 201
    assert client.post("/predict", json={"instances": [list(ROW)]}).status_code == 200
    assert client.delete("/samples/passer-by").status_code == 200


def scrub(client: TestClient) -> None:
    finish(client, "/model/scrub")


def finish(client: TestClient, path: str) -> None:
    job = client.post(path, json={}).json()
    while job["status"] in ("queued", "running"):
        time.sleep(0.01)
        job = client.get(f"/jobs/{job['id']}").json()
    assert job["status"] == "succeeded"


def learn(client: TestClient) -> None:
    content = {"samples": [one.as_json() for one in [*FLOCK, KEPT]]}
    headers = {"Idempotency-Key": "8a4f0f6e-3a3c-4a56-9d8f-9f0a2e5c1b11"}
    assert client.post("/samples", json=content, headers=headers).status_code == 201
    assert client.post("/predict", json={"instances": [list(one.features) for one in FLOCK]}).status_code == 200
    asked = tensors(client.get("/v2/models/oubli").json(), [one.features for one in FLOCK])
    assert client.post("/v2/models/oubli/infer", json=asked).status_code == 200
    assert remains(client.app, FLOCK[0]) == forms(FLOCK[0]).keys(), "the search is blind"


def unlearn(client: TestClient) -> None:
    """Make tags that nothing resolves before the canaries go; then use every way to go."""
    neighbours = {"ids": [f"p{i}" for i in range(100, 140)]}
    assert client.post("/samples/batch-delete", json=neighbours).status_code == 200
    for one in FLOCK[:3]:
        assert client.delete(f"/samples/{quote(one.id, safe='')}").json()["unlearned"] == 1
    for one in FLOCK[3:5]:
        assert client.delete("/samples", params={"subject": one.subject}).json()["unlearned"] == 1
    batch = {"ids": [one.id for one in FLOCK[5:7]]}
    assert client.post("/samples/batch-delete", json=batch).json()["unlearned"] == 2
    place = f"/samples/{quote(FLOCK[7].id, safe='')}"
    assert client.put(place, json={"features": list(ROW), "label": "<=50K", "subject": None}).status_code == 200
    assert client.delete(place).json()["unlearned"] == 1


def check_nothing_remains(client: TestClient) -> None:
    scrub(client)
    pass_by(client)
    scrub(client)
    for one in FLOCK:
        assert remains(client.app, one) == set()
    assert remains(client.app, NEVER) == set()
    assert remains(client.app, KEPT) == forms(KEPT).keys()


def test_nothing_can_be_reached_of_what_was_erased(client):
    learn(client)
    unlearn(client)
    check_nothing_remains(client)


@with_the_forest
def test_nothing_can_be_reached_after_a_crash(client, kind, tmp_path):
    learn(client)
    unlearn(client)
    # The files as a kill would leave them now; the journal brings the canaries back to life and lets them go again.
    crashed = tmp_path / "crashed"
    shutil.copytree(tmp_path / "oubli-data", crashed)
    with serving_here(tmp_path, crashed, kind) as after:
        check_nothing_remains(after)


def test_nothing_can_be_reached_after_the_model_was_replaced(tmp_path):
    """Whatever knew the model before must have let go of it: by a fit, by a restore, by a long change on a copy."""
    write_csv(tmp_path / "people.csv")
    with serving_here(tmp_path, tmp_path / "oubli-data", "forest") as client:
        learn(client)
        assert client.post("/snapshot").status_code == 201
        older = client.get("/snapshot/file").content
        assert client.put("/snapshot/file", content=older).status_code == 200
        finish(client, "/model/fit")
        assert client.post("/samples/batch-delete", json={"ids": [f"p{i}" for i in range(40, 100)]}).status_code == 200
        unlearn(client)
        check_nothing_remains(client)


@with_the_forest
def test_nothing_is_left_of_a_refused_request(client):
    one = FLOCK[0]
    bad = {"samples": [one.as_json(), one.as_json(label=None)]}
    assert client.post("/samples", json=bad).status_code == 422
    assert client.post("/samples/search", json={"subject": one.subject}).status_code == 404
    pass_by(client)
    assert remains(client.app, one) == set()
