from __future__ import annotations

import pytest

import oubli
from oubli.api.model import Restored, Snapshot
from oubli.app.service.erasure.checkpoint import Checkpointer
from tests.unit.app.support import NUMBERS, forest, make_service, require_conforms, rows, samples, served


@pytest.fixture
def client(tmp_path):
    with served(make_service(directory=tmp_path / "data")) as client:
        yield client


def test_writes_one_and_describes_it(client, tmp_path):
    response = client.post("/snapshot")
    assert response.status_code == 201
    require_conforms(Snapshot, response.json())
    assert response.json() == client.get("/snapshot").json()
    assert response.json()["model_version"] == 1
    assert response.json()["digest"] == forest().digest()
    path = max((tmp_path / "data").glob("snapshot-*"))
    assert path.stat().st_size == response.json()["bytes"]
    assert client.get("/snapshot/file").content == path.read_bytes()


def test_two_generations_are_kept(client, tmp_path):
    ids = [client.post("/snapshot").json()["id"] for _ in range(4)]
    assert len(set(ids)) == 4
    names = sorted(path.name for path in (tmp_path / "data").iterdir())
    assert [name for name in names if name.startswith("snapshot")] == [
        "snapshot-00000004.safetensors",
        "snapshot-00000005.safetensors",
    ]


def test_a_fresh_download_has_what_was_acknowledged_before(client, tmp_path):
    client.post("/samples", json=samples(3, "late"))
    for query, n in (("", 60), ("?fresh=false", 60), ("?fresh=true", 63)):
        path = tmp_path / "downloaded"
        path.write_bytes(client.get(f"/snapshot/file{query}").content)
        assert oubli.load(path).n_samples_ == n
    for query in ("?fresh=1", "?fresh=true&fresh=true", "?fresh=", "?new=true"):
        assert client.get(f"/snapshot/file{query}").status_code == 422
    assert len(list((tmp_path / "data").glob("snapshot-*"))) == 2, "who was refused has had none written"


def test_a_download_goes_on_when_newer_snapshots_take_its_place(client, tmp_path, monkeypatch):
    """The one that was to be handed out is gone before it is opened: the next one is, and the ledger knows of both."""
    export, handed_out = Checkpointer.export, []

    async def overtaken(self):
        handed_out.append(await export(self))
        if len(handed_out) == 1:
            await self.write_snapshot()
            await self.write_snapshot()
        return handed_out[-1]

    monkeypatch.setattr(Checkpointer, "export", overtaken)
    content = client.get("/snapshot/file").content
    assert content == max((tmp_path / "data").glob("snapshot-*")).read_bytes()
    assert not handed_out[0].path.exists()
    types = [entry["type"] for entry in client.get("/ledger").json()["entries"]]
    assert types.count("export") == len(handed_out) == 2


def test_restores_what_was_downloaded(client):
    client.post("/snapshot")
    file = client.get("/snapshot/file").content
    client.post("/samples", json=samples(10))
    response = client.put("/snapshot/file", content=file)
    require_conforms(Restored, response.json())
    assert response.json() == {
        "model_version": 3,
        "snapshot_model_version": 1,
        "n_samples": 60,
        "n_restricted": 0,
        "dropped": {"erased": 0, "rectified": 0, "expired": 0},
        "no_longer_held": 10,
        "verified": "verified",
        "durable": True,
    }
    assert client.get("/snapshot").json()["model_version"] == 3
    assert client.get("/snapshot").json()["digest"] == forest().digest()
    answer = client.post("/predict", json={"instances": rows(9)}).json()
    assert answer["probabilities"] == forest().predict_proba(rows(9)).tolist()


def test_a_restore_brings_nothing_erased_or_rectified_back(client):
    client.delete("/samples/c0")
    client.post("/snapshot")
    file = client.get("/snapshot/file").content
    client.delete("/samples?id=c1&id=c2")
    client.put("/samples/c3", json={"features": [39, "z", True], "label": "no"})
    response = client.put("/snapshot/file", content=file).json()
    assert response["dropped"] == {"erased": 2, "rectified": 1, "expired": 0}
    assert (response["n_samples"], response["no_longer_held"]) == (56, 1)
    for name in ("c0", "c1", "c2", "c3"):
        assert client.get(f"/samples/{name}").status_code == 404
    # Once more: what was dropped stays dropped.
    assert client.put("/snapshot/file", content=file).json()["n_samples"] == 56


def test_a_file_of_another_history_loses_all_that_was_ever_erased(client, tmp_path):
    with served(make_service(directory=tmp_path / "other")) as other:
        for i in range(5):
            other.delete(f"/samples/c{50 + i}")
        other.post("/snapshot")
        file = other.get("/snapshot/file").content
    client.delete("/samples/c1")
    response = client.put("/snapshot/file", content=file).json()
    assert response["snapshot_model_version"] == 6
    assert response["dropped"]["erased"] == 1
    assert response["n_samples"] == 54


def test_ids_are_not_generated_again_after_a_restore(client):
    client.post("/snapshot")
    file = client.get("/snapshot/file").content
    sample = {"features": [1, "a", True], "label": "yes"}
    assert client.post("/samples", json={"samples": [sample] * 3}).json()["ids"] == ["0", "1", "2"]
    client.put("/snapshot/file", content=file)
    assert client.post("/samples", json={"samples": [sample]}).json()["ids"] == ["3"]


def test_cursors_do_not_survive_a_restore(client):
    client.post("/snapshot")
    file = client.get("/snapshot/file").content
    cursor = client.get("/samples?limit=5").json()["next"]
    client.put("/snapshot/file", content=file)
    assert client.get("/samples", params={"cursor": cursor}).status_code == 422


def test_a_file_with_another_schema_replaces_the_model(client, tmp_path):
    path = tmp_path / "numbers"
    forest(20, NUMBERS).save(path)
    assert client.put("/snapshot/file", content=path.read_bytes()).status_code == 200
    assert client.get("/model").json()["task"] == "regression"
    assert "classes" not in client.post("/predict", json={"instances": rows(2)}).json()
    assert client.post("/samples", json=samples(1)).status_code == 422  # its labels are text


def test_nothing_is_left_of_an_upload(client, tmp_path):
    before = sorted(path.name for path in (tmp_path / "data").iterdir())
    client.put("/snapshot/file", content=b"not a model" * 1000)
    assert sorted(path.name for path in (tmp_path / "data").iterdir()) == before


def test_ephemeral():
    with served(make_service()) as client:
        for response in (client.post("/snapshot"), client.get("/snapshot"), client.get("/snapshot/file")):
            assert response.status_code == 409
            assert "--ephemeral" in response.json()["detail"]


def test_ephemeral_can_restore(tmp_path):
    forest(20).save(tmp_path / "model")
    with served(make_service()) as client:
        assert client.put("/snapshot/file", content=(tmp_path / "model").read_bytes()).json()["n_samples"] == 20
