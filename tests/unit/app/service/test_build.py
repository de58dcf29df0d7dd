from __future__ import annotations

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
from tests.unit.app.outgoing.certificates import authority, certificate
from tests.unit.app.support import CLASSES, NUMBERS, ended, rows, samples, served


def build_service(*arguments: Any) -> Service:
    return build.build_service(*arguments, tell=tell, warn=warn)


@pytest.fixture
def data(tmp_path: Path) -> Path:
    path = tmp_path / "people.csv"
    lines = [f"p{i},s{i % 5},{i % 40},{'abc'[i % 3]},{'yes' if i % 4 else 'no'}" for i in range(40)]
    path.write_text("\n".join(["name,who,age,job,income", *lines]) + "\n")
    return path


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
    service = build_service(settings(tmp_path, data))
    with served(service) as client:
        assert client.get("/model").json()["n_samples"] == 40
        assert client.get("/samples/p7").json()["subject"] == "s2"
        assert client.get("/snapshot").json()["model_version"] == 1
    names = sorted(path.name for path in (tmp_path / "data").iterdir())
    assert {"lock", "keys", "ledger.sqlite", "snapshot-00000001.safetensors"} <= set(names)
    assert any(name.startswith("journal-") for name in names)
    for place in (tmp_path / "data", *(tmp_path / "data").rglob("*")):
        assert place.stat().st_mode & 0o077 == 0, f"{place} is for its owner only"
    before = {path.name: path.stat().st_mtime_ns for path in (tmp_path / "data").glob("snapshot-*")}
    with served(build_service(settings(tmp_path))) as client:
        client.post("/predict", json={"instances": [[1, "a"]]})
    assert {path.name: path.stat().st_mtime_ns for path in (tmp_path / "data").glob("snapshot-*")} == before


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


@pytest.mark.parametrize(("name", "more"), [("n_estimators", {}), ("model", {"model": "tree", "n_estimators": None})])
def test_kind_and_parameters_of_a_recovered_model_stay_and_that_is_said(tmp_path, data, capsys, name, more):
    build_service(settings(tmp_path, data)).lifecycle.close()  # without a last snapshot, as at the death of the process
    capsys.readouterr()
    service = build_service(settings(tmp_path, data, **{"n_estimators": 7, **more}))
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


def test_nothing_to_serve_is_explained_and_lets_directory_and_threads_go(tmp_path, data):
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
    assert sorted(path.name for path in tmp_path.iterdir()) == ["people.csv"]


def test_an_open_address_needs_a_key_or_a_word(tmp_path, data):
    with pytest.raises(SettingsError, match="allow_anonymous"):
        build_service(settings(tmp_path, data, host="0.0.0.0"))
    assert not (tmp_path / "data").exists()


def test_all_threads_train_and_one_is_left_to_requests(tmp_path, data, monkeypatch):
    monkeypatch.setattr(threads, "usable_cores", lambda: 4)
    seen = []
    fit = ForestEngine.fit

    def noted(self, problem, slots, progress=None):
        if self.settings.n_trees != 4:  # those of a warm-up
            seen.append(self.n_threads)
        return fit(self, problem, slots, progress)

    monkeypatch.setattr(ForestEngine, "fit", noted)
    for given, training, ready in ((None, 4, 3), (2, 2, 1), (1, 1, 1)):
        seen.clear()
        service = build_service(settings(tmp_path / str(given), data, threads=given))
        with served(service) as client:
            assert seen == [training]
            model = service.model.state.model
            assert (model.n_jobs, model.engine_.n_threads) == (None, ready)
            job = client.post("/model/fit", json={"parameters": {"n_estimators": 3}, "score": False}).json()
            job = ended(client, job)
            assert job["status"] == "succeeded"
            assert seen == [training, ready]
            assert service.model.state.model.engine_.n_threads == ready
            assert "n_jobs" not in job["result"]["parameters"]
        assert threads.threads_of(None) == 1


SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
DOMAIN = "opendsr.processor.example"
CALLBACK = "https://controller.example/opendsr/callbacks"


def push_settings(folder: Path, **values: Any) -> Any:
    (folder / "secret").write_text(SECRET)
    return load_settings(data_dir=folder / "data", **values)


def test_webhooks(tmp_path):
    assert push_of(push_settings(tmp_path)) is None, "no receipts are sent unless a target is set"
    push = push_of(
        push_settings(tmp_path, webhook_url="https://hooks.example/a?b=c", webhook_secret_file=tmp_path / "secret")
    )
    assert (push.webhook[0].host, push.webhook[0].target, push.targets) == ("hooks.example", "/a?b=c", ("webhook",))


def test_opendsr(tmp_path):
    assert processor_of(push_settings(tmp_path)) is None
    certificate_file, key_file = certificate(tmp_path, authority(), DOMAIN)
    files = {"opendsr_cert_file": certificate_file, "opendsr_key_file": key_file}
    given = push_settings(
        tmp_path, opendsr_domain=DOMAIN, opendsr_callbacks=(CALLBACK,), opendsr_identities=("email",), **files
    )
    processor, push = processor_of(given), push_of(given)
    assert push.targets == (), "receipts have no target"
    assert list(processor.callbacks) == [CALLBACK]
    assert tuple(processor.identities) == ("email",)
    assert processor.url == f"https://{DOMAIN}/opendsr/v2"
