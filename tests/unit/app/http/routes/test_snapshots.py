import oubli
from oubli.app.service.erasure.checkpoint import Checkpointer
from tests.unit.app.support import NUMBERS, forest, make_service, pick, rows, samples, served


def test_a_fresh_download_has_what_was_acknowledged_before(kept, tmp_path):
    kept.post("/samples", json=samples(3, "late"))
    path = tmp_path / "downloaded"
    for query, n in (("", 60), ("?fresh=false", 60), ("?fresh=true", 63)):
        path.write_bytes(kept.get(f"/snapshot/file{query}").content)
        assert oubli.load(path).n_samples_ == n
    assert len(list((tmp_path / "data").glob("snapshot-*"))) == 2


def test_a_download_goes_on_when_newer_snapshots_take_its_place(kept, tmp_path, monkeypatch):
    """The one that was to be handed out is gone before it is opened: the next one is, and the ledger knows of both."""
    export, handed_out = Checkpointer.export, []

    async def overtaken(self):
        handed_out.append(await export(self))
        if len(handed_out) == 1:
            await self.write_snapshot()
            await self.write_snapshot()
        return handed_out[-1]

    monkeypatch.setattr(Checkpointer, "export", overtaken)
    content = kept.get("/snapshot/file").content
    assert content == max((tmp_path / "data").glob("snapshot-*")).read_bytes()
    assert not handed_out[0].path.exists()
    types = [entry["type"] for entry in kept.get("/ledger").json()["entries"]]
    assert types.count("export") == len(handed_out) == 2


def test_writes_one_describes_it_and_restores_what_was_downloaded(kept):
    written, file = kept.post("/snapshot"), kept.get("/snapshot/file").content
    assert (written.status_code, written.json()) == (201, kept.get("/snapshot").json())
    assert pick(written.json(), "model_version digest bytes") == (1, forest().digest(), len(file))
    kept.post("/samples", json=samples(10))
    assert kept.put("/snapshot/file", content=file).json() == {
        "model_version": 3, "snapshot_model_version": 1, "n_samples": 60, "n_restricted": 0, "no_longer_held": 10,
        "dropped": {"erased": 0, "rectified": 0, "expired": 0}, "verified": "verified", "durable": True,
    }  # fmt: skip
    assert pick(kept.get("/snapshot").json(), "model_version digest") == (3, forest().digest())
    answer = kept.post("/predict", json={"instances": rows(9)}).json()
    assert answer["probabilities"] == forest().predict_proba(rows(9)).tolist()


def test_a_file_of_another_history_loses_all_that_was_ever_erased(kept, tmp_path):
    with served(make_service(directory=tmp_path / "other")) as other:
        for i in range(5):
            other.delete(f"/samples/c{50 + i}")
        file = other.get("/snapshot/file?fresh=true").content
    kept.delete("/samples/c1")
    made = kept.put("/snapshot/file", content=file).json()
    assert (made["snapshot_model_version"], made["dropped"]["erased"], made["n_samples"]) == (6, 1, 54)


def test_ids_are_not_generated_again_and_cursors_do_not_survive_a_restore(kept):
    file = kept.get("/snapshot/file?fresh=true").content
    cursor = kept.get("/samples?limit=5").json()["next"]
    sample = {"features": [1, "a", True], "label": "yes"}
    assert kept.post("/samples", json={"samples": [sample] * 3}).json()["ids"] == ["0", "1", "2"]
    kept.put("/snapshot/file", content=file)
    assert kept.post("/samples", json={"samples": [sample]}).json()["ids"] == ["3"]
    assert kept.get("/samples", params={"cursor": cursor}).status_code == 422


def test_a_file_with_another_schema_replaces_the_model_and_one_that_is_none_leaves_nothing(kept, tmp_path):
    before, path = {*(tmp_path / "data").iterdir()}, tmp_path / "numbers"
    kept.put("/snapshot/file", content=b"not a model" * 1000)
    assert {*(tmp_path / "data").iterdir()} == before, "nothing is left of an upload"
    forest(20, NUMBERS).save(path)
    assert kept.put("/snapshot/file", content=path.read_bytes()).status_code == 200
    assert kept.get("/model").json()["task"] == "regression"
    assert "classes" not in kept.post("/predict", json={"instances": rows(2)}).json()
    assert kept.post("/samples", json=samples(1)).status_code == 422  # its labels are text


def test_ephemeral(client, tmp_path):
    for response in (client.post("/snapshot"), client.get("/snapshot"), client.get("/snapshot/file")):
        assert response.status_code == 409
        assert "--ephemeral" in response.json()["detail"]
    forest(20).save(tmp_path / "model")
    assert client.put("/snapshot/file", content=(tmp_path / "model").read_bytes()).json()["n_samples"] == 20
