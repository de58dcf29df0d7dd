"""Triton's own client of the Open Inference Protocol against a server process."""

from __future__ import annotations

import csv
import gzip
from collections.abc import Iterator
from itertools import islice
from typing import Any

import numpy as np
import pytest
import tritonclient.http as triton
from tritonclient.utils import np_to_triton_dtype, triton_to_np_dtype

from tests.serving import EXAMPLE, Running

Columns = dict[str, list[str]]


@pytest.fixture(scope="module")
def adult() -> Columns:
    """Rows of the example, by column."""
    with gzip.open(EXAMPLE, "rt", encoding="utf-8", newline="") as file:
        header, *rows = islice(csv.reader(file), 501)
    return {name: [row[j] for row in rows] for j, name in enumerate(header) if name != "income"}


@pytest.fixture(scope="module")
def client(adult_server: Running) -> Iterator[triton.InferenceServerClient]:
    with triton.InferenceServerClient(adult_server.url.removeprefix("http://")) as client:
        yield client


def tensors(told: list[dict[str, Any]], adult: Columns, n: int) -> dict[str, np.ndarray]:
    """The first rows, as the metadata of the model ask for them."""
    found = {}
    for one in told:
        dtype = triton_to_np_dtype(one["datatype"])
        cells = adult[one["name"]][:n]
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


def test_tritons_client_asks_for_health_and_metadata(client, adult_server, adult):
    version = adult_server.get("/model")[1]["model_version"]
    assert client.is_server_live()
    assert client.is_server_ready()
    assert client.is_model_ready("oubli")
    assert client.is_model_ready("oubli", str(version))
    assert not client.is_model_ready("oubli", str(version + 1))
    assert not client.is_model_ready("other")
    assert client.get_server_metadata()["extensions"] == ["binary_tensor_data"]
    told = client.get_model_metadata("oubli")
    assert [one["name"] for one in told["inputs"]] == list(adult)
    assert {one["datatype"] for one in told["inputs"]} == {"FP32", "BYTES"}
    assert told["versions"] == [str(version)]


@pytest.mark.parametrize("n", [1, 7, 500])
@pytest.mark.parametrize("binary_in", [True, False])
@pytest.mark.parametrize("binary_out", [True, False, None])
def test_tritons_client_predicts(client, adult_server, adult, n, binary_in, binary_out):
    values = tensors(client.get_model_metadata("oubli")["inputs"], adult, n)
    values["age"][n // 2] = np.nan
    names = ("predictions", "probabilities", "classes")
    outputs = None
    if binary_out is not None:
        outputs = [triton.InferRequestedOutput(name, binary_data=binary_out) for name in names]
    answer = client.infer("oubli", asked(values, binary=binary_in), outputs=outputs, request_id="r-1")
    told, expected = answer.get_response(), plain(adult_server, values)
    version = expected["model_version"]
    assert (told["id"], told["model_version"], told["parameters"]) == ("r-1", str(version), {"model_version": version})
    assert np.array_equal(answer.as_numpy("probabilities"), expected["probabilities"])
    for name in ("predictions", "classes"):
        found = [text.decode() if isinstance(text, bytes) else text for text in answer.as_numpy(name).tolist()]
        assert found == expected[name]
