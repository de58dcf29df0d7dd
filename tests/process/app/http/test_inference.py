"""Clients of the Open Inference Protocol against a server process: Triton's own client, and what KServe's one does."""

from __future__ import annotations

import asyncio
import csv
import gzip
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import httpx2
import numpy as np
import orjson
import pytest
import tritonclient.http as triton
import tritonclient.http.aio as triton_aio
from tritonclient.utils import InferenceServerException, np_to_triton_dtype, triton_to_np_dtype

from oubli.core import DynamicForestClassifier
from tests.serving import EXAMPLE, Running, serving

N_ROWS = 2000
KEY = "0123456789abcdef-key"
_FLAGS = ("--ephemeral", "--n-estimators", "10", "--random-state", "0")


class Adult(NamedTuple):
    """Rows of the example, by column."""

    columns: dict[str, list[str]]
    labels: list[str]


@pytest.fixture(scope="module")
def adult() -> Adult:
    with gzip.open(EXAMPLE, "rt", encoding="utf-8", newline="") as file:
        reader = csv.reader(file)
        header = next(reader)
        rows = [row for row, _ in zip(reader, range(N_ROWS), strict=False)]
    columns = {name: [row[j] for row in rows] for j, name in enumerate(header)}
    return Adult(columns, columns.pop("income"))


@pytest.fixture(scope="module")
def server(adult: Adult, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    folder = tmp_path_factory.mktemp("inference")
    with (folder / "adult.csv").open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow([*adult.columns, "income"])
        writer.writerows(zip(*adult.columns.values(), adult.labels, strict=True))
    with serving("--data", "adult.csv", "--target", "income", *_FLAGS, cwd=folder) as running:
        yield running


@pytest.fixture(scope="module")
def client(server: Running) -> Iterator[triton.InferenceServerClient]:
    with triton.InferenceServerClient(server.url.removeprefix("http://")) as client:
        yield client


def tensors(told: list[dict[str, Any]], adult: Adult, n: int) -> dict[str, np.ndarray]:
    """The first rows, as the metadata of the model ask for them."""
    found = {}
    for one in told:
        dtype = triton_to_np_dtype(one["datatype"])
        cells = adult.columns[one["name"]][:n]
        if one["datatype"] == "BYTES":
            found[one["name"]] = np.array([cell.encode() for cell in cells], object)
        else:
            found[one["name"]] = np.array([float(cell) if cell else np.nan for cell in cells], dtype)
    return found


def asked(values: dict[str, np.ndarray], *, binary: bool) -> list[triton.InferInput]:
    inputs = []
    for name, array in values.items():
        one = triton.InferInput(name, list(array.shape), np_to_triton_dtype(array.dtype))
        one.set_data_from_numpy(array, binary_data=binary)
        inputs.append(one)
    return inputs


def plain(server: Running, values: dict[str, np.ndarray]) -> dict[str, Any]:
    """What `/predict` answers to the same rows."""
    columns = [
        [cell.decode() if isinstance(cell, bytes) else None if cell != cell else cell for cell in array.tolist()]
        for array in values.values()
    ]
    status, answer = server.ask("POST", "/predict", {"instances": [list(row) for row in zip(*columns, strict=True)]})
    assert status == 200, answer
    return dict(answer)


def test_tritons_client_asks_for_health_and_metadata(client, adult):
    assert client.is_server_live()
    assert client.is_server_ready()
    assert client.is_model_ready("oubli")
    assert client.is_model_ready("oubli", "1")
    assert not client.is_model_ready("oubli", "2")
    assert not client.is_model_ready("other")
    assert client.get_server_metadata()["extensions"] == ["binary_tensor_data"]
    told = client.get_model_metadata("oubli")
    assert [one["name"] for one in told["inputs"]] == list(adult.columns)
    assert {one["datatype"] for one in told["inputs"]} == {"FP32", "BYTES"}
    assert told["versions"] == ["1"]


@pytest.mark.parametrize("n", [1, 7, 500])
@pytest.mark.parametrize("binary_in", [True, False])
@pytest.mark.parametrize("binary_out", [True, False, None])
def test_tritons_client_predicts(client, server, adult, n, binary_in, binary_out):
    values = tensors(client.get_model_metadata("oubli")["inputs"], adult, n)
    names = ("predictions", "probabilities", "classes")
    outputs = None
    if binary_out is not None:
        outputs = [triton.InferRequestedOutput(name, binary_data=binary_out) for name in names]
    answer = client.infer("oubli", asked(values, binary=binary_in), outputs=outputs, request_id="r-1")
    told, expected = answer.get_response(), plain(server, values)
    assert (told["id"], told["model_version"], told["parameters"]) == ("r-1", "1", {"model_version": 1})
    assert np.array_equal(answer.as_numpy("probabilities"), expected["probabilities"])
    for name in ("predictions", "classes"):
        found = [text.decode() if isinstance(text, bytes) else text for text in answer.as_numpy(name).tolist()]
        assert found == expected[name]


def test_tritons_client_compresses(client, server, adult):
    values = tensors(client.get_model_metadata("oubli")["inputs"], adult, 200)
    for binary in (True, False):
        outputs = [triton.InferRequestedOutput("probabilities", binary_data=binary)]
        compressed = {"request_compression_algorithm": "gzip", "response_compression_algorithm": "gzip"}
        answer = client.infer("oubli", asked(values, binary=binary), outputs=outputs, **compressed)
        assert np.array_equal(answer.as_numpy("probabilities"), plain(server, values)["probabilities"])
    with pytest.raises(InferenceServerException, match="gzip") as refused:
        client.infer("oubli", asked(values, binary=True), request_compression_algorithm="deflate")
    assert refused.value.status() == "415"


def test_a_missing_number_is_nan_to_tritons_client(client, server, adult):
    values = tensors(client.get_model_metadata("oubli")["inputs"], adult, 3)
    values["age"][1] = np.nan
    for binary in (True, False):
        answer = client.infer("oubli", asked(values, binary=binary))
        assert np.array_equal(answer.as_numpy("probabilities"), plain(server, values)["probabilities"])


@pytest.mark.parametrize(
    ("model", "version", "change", "status", "text"),
    [
        ("other", "", {}, "404", "'oubli'"),
        ("oubli", "9", {}, "404", "version 1"),
        ("oubli", "", {"age": np.array([b"SECRET"] * 3, object)}, "422", "feature 'age'"),
        ("oubli", "", {"age": np.zeros(2, np.float32)}, "422", "rows"),
        ("oubli", "", {"SECRET": np.zeros(3, np.float32)}, "422", "14 features"),
    ],
)
@pytest.mark.parametrize("binary", [True, False])
def test_tritons_client_is_told_what_is_wrong(client, adult, model, version, change, status, text, binary):
    values = {**tensors(client.get_model_metadata("oubli")["inputs"], adult, 3), **change}
    with pytest.raises(InferenceServerException) as refused:
        client.infer(model, asked(values, binary=binary), model_version=version)
    assert refused.value.status() == status
    assert text in refused.value.message()
    assert "SECRET" not in refused.value.message()
    assert "an exception occurred in the client" not in refused.value.message()


def test_tritons_client_is_told_of_routes_that_are_not_there(client):
    for ask in (client.get_model_repository_index, client.get_inference_statistics, client.get_trace_settings):
        with pytest.raises(InferenceServerException, match=r"no route|named 'oubli'"):
            ask()


def test_tritons_client_is_told_of_numbers_and_extensions_that_are_refused(client, adult):
    values = tensors(client.get_model_metadata("oubli")["inputs"], adult, 3)
    values["age"][1] = np.inf
    inputs = asked(values, binary=True)
    with pytest.raises(InferenceServerException, match="finite"):
        client.infer("oubli", inputs)
    inputs[0].set_shared_memory("region", 4)
    with pytest.raises(InferenceServerException, match="extension"):
        client.infer("oubli", inputs)


def test_tritons_asynchronous_client(server, adult):
    async def run() -> None:
        async with triton_aio.InferenceServerClient(server.url.removeprefix("http://")) as client:
            assert await client.is_server_ready()
            values = tensors((await client.get_model_metadata("oubli"))["inputs"], adult, 5)
            inputs = []
            for name, array in values.items():
                one = triton_aio.InferInput(name, list(array.shape), np_to_triton_dtype(array.dtype))
                one.set_data_from_numpy(array)
                inputs.append(one)
            answers = await asyncio.gather(*(client.infer("oubli", inputs) for _ in range(8)))
            expected = plain(server, values)["probabilities"]
            assert all(np.array_equal(answer.as_numpy("probabilities"), expected) for answer in answers)

    asyncio.run(run())


def test_all_features_as_one_tensor(adult, tmp_path):
    names = ("age", "education_num", "capital_gain", "hours_per_week")
    X = np.array([[float(cell) for cell in adult.columns[name]] for name in names]).T
    with (tmp_path / "numbers.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow([*names, "income"])
        writer.writerows([*map(int, row), label] for row, label in zip(X, adult.labels, strict=True))
    model = DynamicForestClassifier(n_estimators=10, random_state=0)
    ids = [str(i) for i in range(len(X))]
    model.fit(X.astype(np.float32), adult.labels, ids=ids)
    (tmp_path / "key").write_text(KEY)
    flags = ("--data", "numbers.csv", "--target", "income", "--model-name", "adult", "--api-key-file", "key")
    with (
        serving(*flags, *_FLAGS, cwd=tmp_path) as server,
        triton.InferenceServerClient(server.url.removeprefix("http://")) as client,
    ):
        assert client.is_server_live()
        assert client.is_server_ready()
        assert not client.is_model_ready("adult")
        headers = {"Authorization": f"Bearer {KEY}"}
        with pytest.raises(InferenceServerException, match="Send a valid key") as refused:
            client.get_model_metadata("adult")
        assert refused.value.status() == "401"
        [told] = client.get_model_metadata("adult", headers=headers)["inputs"]
        assert (told["datatype"], told["shape"]) == ("FP32", [-1, 4])
        for dtype in (np.float64, np.float32, np.int64, np.uint16):
            one = triton.InferInput("any-name", [300, 4], np_to_triton_dtype(np.dtype(dtype)))
            one.set_data_from_numpy(X[:300].astype(dtype))
            answer = client.infer("adult", [one], headers=headers)
            assert np.array_equal(
                answer.as_numpy("probabilities"), model.query(X[:300].astype(np.float32)).probabilities
            )


# --- what KServe's InferenceRESTClient does, over HTTP as it does it


class KServe:
    """Sends what KServe's client sends and reads what it reads."""

    def __init__(self, client: httpx2.Client) -> None:
        self._client = client

    def is_server_live(self) -> Any:
        return self._client.get("/v2/health/live").raise_for_status().json().get("live")

    def is_server_ready(self) -> Any:
        return self._client.get("/v2/health/ready").raise_for_status().json().get("ready")

    def is_model_ready(self, name: str) -> bool:
        return self._client.get(f"/v2/models/{name}/ready").is_success

    def infer(self, name: str, request: dict[str, Any], parts: list[bytes]) -> tuple[dict[str, Any], bytes]:
        request = {"id": "5b0d", "model_name": name, **request}
        header, headers = orjson.dumps(request), {}
        if parts:
            headers = {
                "inference-header-content-length": str(len(header)),
                "content-type": "application/octet-stream",
            }
        answer = self._client.post(f"/v2/models/{name}/infer", content=header + b"".join(parts), headers=headers)
        if not answer.is_success:
            raise ValueError(answer.json()["error"])
        length = int(answer.headers.get("inference-header-content-length", len(answer.content)))
        return orjson.loads(answer.content[:length]), answer.content[length:]


@pytest.fixture
def kserve(server: Running) -> Iterator[KServe]:
    with httpx2.Client(base_url=server.url) as client:
        yield KServe(client)


def test_kserves_client(kserve, client, server, adult):
    assert kserve.is_server_live() is True
    assert kserve.is_server_ready() is True
    assert kserve.is_model_ready("oubli")
    assert not kserve.is_model_ready("other")
    values = tensors(client.get_model_metadata("oubli")["inputs"], adult, 4)
    expected = plain(server, values)["probabilities"]
    for binary in (False, True):
        inputs, parts = [], []
        for one in asked(values, binary=binary):
            sent = one._get_tensor()
            raw = one._get_binary_data()
            parts += [] if raw is None else [raw]
            inputs.append(sent)
        outputs = [{"name": "probabilities", "parameters": {"binary_data": binary}}]
        told, raw = kserve.infer("oubli", {"inputs": inputs, "outputs": outputs}, parts)
        [output] = told["outputs"]
        found = np.frombuffer(raw, np.float64) if binary else np.array(output["data"])
        assert np.array_equal(found.reshape(output["shape"]), expected)
        assert told["id"] == "5b0d"
    with pytest.raises(ValueError, match="'oubli'"):
        kserve.infer("other", {"inputs": []}, [])


def test_health_is_answered_while_the_server_trains(tmp_path: Path) -> None:
    """Standby answers both health routes in the protocol's own form."""
    from oubli.app.http.standby import Standby, bind
    from oubli.app.settings import Settings

    with Standby(bind("127.0.0.1", 0), Settings(ephemeral=True)) as standby:
        standby.start("training")
        transport = httpx2.HTTPTransport(retries=5)
        with httpx2.Client(base_url=f"http://127.0.0.1:{standby.port}", transport=transport, timeout=60) as client:
            assert client.get("/v2/health/live").json() == {"live": True}
            refused = client.get("/v2/health/ready")
            assert refused.status_code == 503
            assert refused.json() == {"error": "The server is training."}
            assert client.get("/readyz").headers["content-type"] == "application/problem+json"
