import json
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from oubli.app.cli.console import tell, warn
from oubli.app.errors import StartError
from oubli.app.service import build
from oubli.app.service.build import processor_of, push_of
from oubli.app.service.service import Service
from oubli.app.settings import Settings, SettingsError, load_settings
from oubli.core.concurrency import threads
from oubli.core.forest.engine import ForestEngine
from tests.serving import small_table
from tests.unit.app.outgoing.certificates import authority, certificate
from tests.unit.app.support import CLASSES, NUMBERS, ended, rows, samples, served


def build_service(*arguments: Any) -> Service:
    return build.build_service(*arguments, tell=tell, warn=warn)


@pytest.fixture
def data(tmp_path: Path) -> Path:
    small_table(tmp_path, 40)
    return tmp_path / "data.csv"


def settings(tmp_path: Path, data: Path | None = None, **more: Any) -> Settings:
    values: dict[str, Any] = {"n_estimators": 5, "random_state": 0}
    if not more.get("ephemeral"):
        values["data_dir"] = tmp_path / "data"
    if data is not None:
        values |= {"data": data, "target": "income", "id_column": "name", "subject_column": "who"}
    found = Settings(**{**values, **more})
    vars(found)["idle_resolve"] = False
    return found


def test_trains_and_writes_a_first_snapshot_and_no_other_at_a_start_without_changes(tmp_path, data):
    with served(build_service(settings(tmp_path, data))) as client:
        assert client.get("/model").json()["n_samples"] == 40
        assert client.get("/samples/p7").json()["subject"] == "s7"
        assert client.get("/snapshot").json()["model_version"] == 1
    directory = tmp_path / "data"
    names = {path.name for path in directory.iterdir()}
    assert {"lock", "keys", "ledger.sqlite", "snapshot-00000001.safetensors"} <= names
    assert any(name.startswith("journal-") for name in names)
    for place in (directory, *directory.rglob("*")):
        assert place.stat().st_mode & 0o077 == 0, f"{place} is for its owner only"
    before = {path.name: path.stat().st_mtime_ns for path in directory.glob("snapshot-*")}
    with served(build_service(settings(tmp_path))) as client:
        client.post("/predict", json={"instances": [[1, "a"]]})
    assert {path.name: path.stat().st_mtime_ns for path in directory.glob("snapshot-*")} == before


def test_what_was_changed_is_there_after_a_stop_and_the_data_are_not_read_again(tmp_path, data, capsys):
    def observed(client: TestClient) -> tuple[Any, str]:
        predicted = client.post("/predict", json={"instances": [[i, "a"] for i in range(20)]}).json()
        return predicted, client.get("/samples?limit=50&format=csv").text

    with served(build_service(settings(tmp_path, data))) as client:
        client.delete("/samples/p7")
        before = observed(client)
        cursor = client.get("/samples?limit=5").json()["next"]
    data.unlink()
    service = build_service(settings(tmp_path, data))
    assert "is not read again" in capsys.readouterr().err.replace("\n", " ")
    with served(service) as client:
        assert observed(client) == before
        assert client.get("/samples", params={"cursor": cursor}).status_code == 200


def test_kind_and_parameters_of_a_recovered_model_stay_and_that_is_said(tmp_path, data, capsys):
    build_service(settings(tmp_path, data)).lifecycle.close()  # without a last snapshot, as at the death of the process
    for name, given in (("n_estimators", {"n_estimators": 7}), ("model", {"model": "tree", "n_estimators": None})):
        capsys.readouterr()
        service = build_service(settings(tmp_path, data, **given))
        assert f"keeps its own {name};" in capsys.readouterr().err.replace("\n", " ")
        model = service.model.state.model
        assert (model.kind, model.get_params()["n_estimators"]) == ("forest", 5)
        service.lifecycle.close()


@pytest.mark.parametrize("schema", [CLASSES, NUMBERS])
def test_starts_empty_from_a_schema(tmp_path, schema):
    path = tmp_path / "schema.json"
    path.write_text(json.dumps(schema.to_dict()))
    with served(build_service(settings(tmp_path, schema_file=path))) as client:
        assert client.get("/model").json()["n_samples"] == 0
        assert client.post("/predict", json={"instances": rows(1)}).status_code == 409
        body = samples(20)
        for i, sample in enumerate(body["samples"]):
            sample["label"] = sample["label"] if schema is CLASSES else i
        assert client.post("/samples", json=body).status_code == 201
    with served(build_service(settings(tmp_path, schema_file=path))) as client:
        assert client.get("/model").json()["n_samples"] == 20


def test_what_cannot_be_served_is_explained_and_lets_directory_and_threads_go(tmp_path, data):
    with pytest.raises(SettingsError, match="allow_anonymous"):  # to an open address without a key
        build_service(settings(tmp_path, data, host="0.0.0.0"))
    assert not (tmp_path / "data").exists()
    with pytest.raises(StartError, match=r"nothing to serve: give --data.*--schema.*holds no snapshot of a model"):
        build_service(settings(tmp_path))
    with pytest.raises(StartError, match="nothing to serve"):
        build_service(settings(tmp_path, ephemeral=True, threads=2))
    assert threads.threads_of(None) == 1
    build_service(settings(tmp_path, data)).lifecycle.close()


def test_ephemeral_says_so_and_writes_nothing(tmp_path, data, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with served(build_service(settings(tmp_path, data, ephemeral=True))) as client:
        assert client.delete("/samples/p1").json()["durable"] is False
    assert "brings deleted rows back" in capsys.readouterr().err.replace("\n", " ")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["data.csv"]


def test_all_threads_train_and_one_is_left_to_requests(tmp_path, data, monkeypatch):
    monkeypatch.setattr(threads, "usable_cores", lambda: 4)
    seen, fit = [], ForestEngine.fit

    def noted(self, problem, slots, progress=None):
        if self.settings.n_trees != 4:  # those of a warm-up
            seen.append(self.n_threads)
        return fit(self, problem, slots, progress)

    monkeypatch.setattr(ForestEngine, "fit", noted)
    for given, training, ready in ((None, 4, 3), (2, 2, 1), (1, 1, 1)):
        seen.clear()
        with served(service := build_service(settings(tmp_path / str(given), data, threads=given))) as client:
            model = service.model.state.model
            assert (seen, model.n_jobs, model.engine_.n_threads) == ([training], None, ready)
            content = {"parameters": {"n_estimators": 3}, "score": False}
            job = ended(client, client.post("/model/fit", json=content).json())
            assert (job["status"], "n_jobs" in job["result"]["parameters"]) == ("succeeded", False)
            assert (seen, service.model.state.model.engine_.n_threads) == ([training, ready], ready)
        assert threads.threads_of(None) == 1


SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
DOMAIN = "opendsr.processor.example"
CALLBACK = "https://controller.example/opendsr/callbacks"


def push_settings(folder: Path, **values: Any) -> Any:
    (folder / "secret").write_text(SECRET)
    return load_settings(data_dir=folder / "data", **values)


def test_webhooks_and_opendsr(tmp_path):
    nothing = push_settings(tmp_path)
    assert (push_of(nothing), processor_of(nothing)) == (None, None), "nothing is sent unless a target is set"
    given = {"webhook_url": "https://hooks.example/a?b=c", "webhook_secret_file": tmp_path / "secret"}
    push = push_of(push_settings(tmp_path, **given))
    assert (push.webhook[0].host, push.webhook[0].target, push.targets) == ("hooks.example", "/a?b=c", ("webhook",))
    files = zip(("cert_file", "key_file"), certificate(tmp_path, authority(), DOMAIN), strict=True)
    values = {"domain": DOMAIN, "callbacks": (CALLBACK,), "identities": ("email",), **dict(files)}
    given = push_settings(tmp_path, **{f"opendsr_{name}": value for name, value in values.items()})
    processor = processor_of(given)
    assert push_of(given).targets == (), "receipts have no target"
    assert (list(processor.callbacks), tuple(processor.identities)) == ([CALLBACK], ("email",))
    assert processor.url == f"https://{DOMAIN}/opendsr/v2"
