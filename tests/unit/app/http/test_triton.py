"""Triton's own client of the Open Inference Protocol."""

from collections.abc import Iterator
from itertools import product
from typing import Any

import numpy as np
import pytest
import tritonclient.http as triton
from tritonclient.utils import triton_to_np_dtype

from tests.unit.app.hosted import Hosted, hosted
from tests.unit.app.support import make_service, rows


@pytest.fixture(scope="module")
def host() -> Iterator[Hosted]:
    with hosted(make_service()) as one:
        yield one


@pytest.fixture(scope="module")
def client(host: Hosted) -> Iterator[triton.InferenceServerClient]:
    with triton.InferenceServerClient(f"127.0.0.1:{host.port}") as client:
        yield client


def test_it_asks_for_health_and_metadata(client: Any) -> None:
    assert client.is_server_live()
    assert client.is_server_ready()
    for version, is_ready in (("", True), ("1", True), ("2", False)):
        assert client.is_model_ready("oubli", version) == is_ready
    assert not client.is_model_ready("other")
    assert client.get_server_metadata()["extensions"] == ["binary_tensor_data"]
    assert client.get_model_metadata("oubli")["versions"] == ["1"]


@pytest.mark.parametrize("n", [1, 7, 500])
def test_it_predicts_in_json_and_in_bytes(client: Any, host: Hosted, n: int) -> None:
    sent: list[list[Any]] = [[None, *rows(1)[0][1:]], *rows(n)[1:]]
    expected = host.ask("POST", "/predict", {"instances": sent})[1]
    version = expected.pop("model_version")
    for is_binary, is_answered_in_bytes in product((True, False), (True, False, None)):
        inputs = []
        for told, column in zip(client.get_model_metadata("oubli")["inputs"], zip(*sent, strict=True), strict=True):
            cells = [cell.encode() if isinstance(cell, str) else cell for cell in column]
            array = np.array(cells, triton_to_np_dtype(told["datatype"]))
            inputs.append(triton.InferInput(told["name"], [n], told["datatype"]))
            inputs[-1].set_data_from_numpy(array, binary_data=is_binary)
        outputs = [triton.InferRequestedOutput(name, binary_data=is_answered_in_bytes) for name in expected]
        wanted = None if is_answered_in_bytes is None else outputs
        answer = client.infer("oubli", inputs, outputs=wanted, request_id="r-1")
        told = answer.get_response()
        assert (told["id"], told["parameters"]) == ("r-1", {"model_version": version})
        for name, values in expected.items():
            found = answer.as_numpy(name).tolist()
            assert [one.decode() if isinstance(one, bytes) else one for one in found] == values
