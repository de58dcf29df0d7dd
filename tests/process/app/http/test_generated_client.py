"""A client that is generated from the OpenAPI document works against a live server, errors included."""

import compileall
import importlib
import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest

from oubli.app.http.openapi import PARTS
from tests.servers import module_server
from tests.serving import Running, run_program

KEY = "0123456789abcdef-key"
ROW = {"age": 40.3, "job": "a", "member": True}


def with_data_and_a_key(folder: Path) -> tuple[str, ...]:
    rows = [f"{i % 7 + 0.3},{'abc'[i % 3]},{('true', 'false')[i % 2]},{'yes' if i % 4 else 'no'}" for i in range(60)]
    (folder / "data.csv").write_text("\n".join(["age,job,member,income", *rows]) + "\n")
    (folder / "key").write_text(KEY)
    return ("--data", "data.csv", "--target", "income", "--n-estimators", "3", "--api-key-file", "key")


server = module_server(with_data_and_a_key)


def generate(server: Running, document: str, folder: Path) -> None:
    """Generate a client from a document as docs/how-to/clients.md says: without a warning."""
    status, content = server.ask("GET", document, X_API_Key=KEY)
    assert status == 200
    (folder / "openapi.json").write_text(json.dumps(content))
    types = ("text/csv", "application/x-ndjson", "application/vnd.apache.arrow.stream")
    overrides = {"content_type_overrides": dict.fromkeys(types, "application/octet-stream")}
    (folder / "generator.yaml").write_text(json.dumps(overrides))  # which is YAML
    words = ("generate", "--path", "openapi.json", "--output-path", "oubli_client", "--config", "generator.yaml")
    found = os.pathsep.join((str(Path(sys.executable).parent), os.environ["PATH"]))  # it formats with ruff
    program = (sys.executable, "-m", "openapi_python_client")
    made = run_program(*program, *words, "--meta", "none", "--fail-on-warning", cwd=folder, PATH=found)
    assert made.returncode == 0, made.stdout + made.stderr
    assert "arning" not in made.stdout + made.stderr


@pytest.mark.long
@pytest.mark.parametrize("name", PARTS)
def test_a_client_of_each_document_compiles(server: Running, tmp_path: Path, name: str) -> None:
    generate(server, f"/openapi/{name}.json", tmp_path)
    assert compileall.compile_dir(tmp_path, quiet=1)


@pytest.fixture(scope="module")
def package(server: Running, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """The generated client: its modules by name."""
    folder = tmp_path_factory.mktemp("client")
    generate(server, "/openapi.json", folder)
    sys.path.insert(0, str(folder))
    names = {"root": "oubli_client", "models": "oubli_client.models"}
    for path in (folder / "oubli_client" / "api").glob("*/[!_]*.py"):
        names[path.stem] = f"oubli_client.api.{path.parent.name}.{path.stem}"
    try:
        yield SimpleNamespace(**{name: importlib.import_module(module) for name, module in names.items()})
    finally:
        sys.path.remove(str(folder))
        for name in [name for name in sys.modules if name.partition(".")[0] == "oubli_client"]:
            del sys.modules[name]


@pytest.fixture
def client(server: Running, package: Any) -> Iterator[Any]:
    with package.root.AuthenticatedClient(server.url, token=KEY) as client:
        yield client


def add(package: Any, client: Any, sample_id: str, row: dict[str, Any] = ROW, label: str = "yes") -> Any:
    features = package.models.FeatureObject.from_dict(row)
    samples = [package.models.Sample(id=sample_id, features=features, label=label)]
    return package.add_samples.sync_detailed(client=client, body=package.models.AddRequest(samples=samples))


def test_a_sample_comes_out_as_it_went_in_and_is_deleted_with_a_receipt(package: Any, client: Any) -> None:
    models = package.models
    added, again = (add(package, client, "a/b") for _ in range(2))
    assert (added.status_code, again.status_code, added.parsed.ids) == (201, 200, ["a/b"])
    read = package.get_sample.sync("a/b", client=client)
    assert isinstance(read, models.SampleAnswer)
    assert read.features.to_dict() == ROW
    page = package.list_samples.sync(client=client, limit=10)
    following = package.list_samples.sync(client=client, limit=100, cursor=page.next_)
    assert len(page.samples) + len(following.samples) == 61
    content = models.ReplaceRequest(features=[1, None, False], label="no")
    assert package.replace_sample.sync("a/b", client=client, body=content).kind == models.ReceiptKind.RECTIFICATION
    case = UUID("123e4567-e89b-12d3-a456-426614174000")
    receipt = package.delete_sample.sync("a/b", client=client, ref=case)
    assert isinstance(receipt, models.Receipt)
    assert (receipt.unlearned, receipt.absent) == (1, 0)
    assert package.get_erasure.sync(receipt.id, client=client).id == receipt.id
    assert [one.id for one in package.list_erasures.sync(client=client, ref=case).erasures] == [receipt.id]
    both = package.delete_samples.sync(client=client, id=["nobody", "no one"])
    assert (both.requested, both.absent) == (2, 2)
    many = models.DeleteSubjectsRequest(subjects=["no subject"])
    assert package.batch_delete_samples.sync(client=client, body=many).absent == 1


def test_errors_are_typed(server: Running, package: Any, client: Any) -> None:
    add(package, client, "held")
    refused = {
        404: package.get_sample.sync_detailed("nobody", client=client),
        409: add(package, client, "held", label="no"),
        422: add(package, client, "new", {**ROW, "age": "text"}),
    }
    with package.root.Client(server.url) as anonymous:
        refused[401] = package.get_model.sync_detailed(client=anonymous)
    for status, answer in refused.items():
        assert isinstance(answer.parsed, package.models.Problem)
        assert answer.status_code == answer.parsed.status == status
    found = [one.pointer for status in (409, 422) for one in refused[status].parsed.errors]
    assert found == ["/samples/0/id", "/samples/0/features/age"]
