"""Triton's own client of the Open Inference Protocol against a server process."""

from __future__ import annotations

import csv
import gzip
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import pytest
import tritonclient.http as triton
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
    values["age"][n // 2] = np.nan
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
